"""What OpenClaw's config says about one of its plugins and the tools of it."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.settings.openclaw_file import ConfigFile, read_config
from openclaw_a2a.settings.report import is_list, is_object


class PluginConfig(msgspec.Struct, frozen=True):
    """A plugin as OpenClaw's config has it. `paths` are all folders that plugins load from.

    `is_disabled` is what an entry of its own says, `is_denied` what is said about all plugins.
    `allowed` and `added` are the lists of tools that agents get (`tools.allow`) or get beside
    the usual ones (`tools.alsoAllow`).
    """

    paths: tuple[str, ...]
    is_enabled: bool
    is_disabled: bool
    is_denied: bool
    options: JsonObject
    allowed: tuple[str, ...]
    added: tuple[str, ...]

    def loads_from(self, folder: Path) -> bool:
        """True when the folder is among those that plugins load from."""
        return any(_real(path) == _real(str(folder)) for path in self.paths)

    def offers(self, tools: Iterable[str]) -> bool:
        """True when agents may get all of these tools."""
        return set(tools) <= {*self.allowed, *self.added}


def read_plugin(
    plugin_id: str, config: Path, *, environ: Mapping[str, str] | None = None
) -> PluginConfig:
    """What the config at this path says; what it does not say, or cannot, is empty."""
    file = read_config(config, os.environ if environ is None else environ)
    plugins = file.section("plugins")
    entry = file.section("plugins", "entries", plugin_id)
    allow = _texts(file, plugins.get("allow"))
    denied = _texts(file, plugins.get("deny"))
    options = entry.get("config")
    return PluginConfig(
        paths=_texts(file, file.section("plugins", "load").get("paths")),
        is_enabled=entry.get("enabled") is True and (not allow or plugin_id in allow),
        is_disabled=entry.get("enabled") is False,
        is_denied=plugins.get("enabled") is False or plugin_id in denied,
        options=options if is_object(options) else {},
        allowed=_texts(file, file.section("tools").get("allow")),
        added=_texts(file, file.section("tools").get("alsoAllow")),
    )


def _texts(file: ConfigFile, value: Json) -> tuple[str, ...]:
    if not is_list(value):
        return ()
    return tuple(text for text in map(file.fill, value) if text is not None)


def _real(path: str) -> str:
    return os.path.realpath(Path(path).expanduser())
