"""Finds OpenClaw on this machine: its config, its gateway's address and token, its agents."""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from openclaw_a2a.model.card import AgentProfile
from openclaw_a2a.model.ids import AgentId, Json, JsonObject
from openclaw_a2a.model.validation import is_list, is_object, object_at
from openclaw_a2a.settings.openclaw_config import OpenClawConfig, config_path, read_config
from openclaw_a2a.settings.sources import process_environment
from openclaw_a2a.settings.tokens import OPENCLAW_CONFIG, gateway_token, missing_token

_DEFAULT_PORT = 18789
_MAX_PORT = 65535
_MAIN = "main"
_MAX_LENGTH = 500
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\s]+")


class OpenClawAgent(msgspec.Struct, frozen=True):
    """An agent of OpenClaw's config, with what the config says about it."""

    id: AgentId
    name: str = ""
    description: str = ""
    workspace: str = ""
    is_default: bool = False

    @property
    def profile(self) -> AgentProfile:
        """Its name and description on a card, until the agent itself can be asked."""
        description = self.description or f"The OpenClaw agent {self.id}."
        return AgentProfile(self.name or self.id, description)


class OpenClawInstallation(msgspec.Struct, frozen=True):
    """An OpenClaw that is configured on this machine; it need not be running.

    `config_path` is None when our settings alone name it.
    `token` is a reference (see `resolve_token`), never the token: None when none is needed or none
    can be read. `warnings` say what in the config could not be used, and what to do.
    """

    config_path: Path | None
    url: str
    token: str | None
    auth_mode: str
    agents: tuple[OpenClawAgent, ...]
    warnings: tuple[str, ...] = ()
    is_readable: bool = True

    @property
    def default_agent(self) -> OpenClawAgent:
        """The one marked as default, else `main`, else the first."""
        marked = [agent for agent in self.agents if agent.is_default]
        called = [agent for agent in self.agents if agent.id == _MAIN]
        return (*marked, *called, *self.agents)[0]


def find_openclaw(
    path: Path | None = None, *, environ: Mapping[str, str] | None = None
) -> OpenClawInstallation | None:
    """The OpenClaw whose config is at `path`, else where OpenClaw itself looks; None without one.

    A config that is there and cannot be read is found too, with warnings that say why.
    """
    environment = process_environment(environ)
    place = path or config_path(environment)
    try:
        if place is None or not place.is_file():
            return None
    except (OSError, ValueError):
        return None
    config = read_config(place, environment)
    if not config.is_readable:
        why = f"{config.warnings[0]}; correct it, or have OpenClaw do it: openclaw doctor --fix"
        return OpenClawInstallation(
            place, _url(config), None, "token", (), (why,), is_readable=False
        )
    agents, refused = _agents(config)
    auth = config.section("gateway", "auth")
    uses_password = auth.get("password") and not auth.get("token")
    mode = _one_line(config.fill(auth.get("mode")) or ("password" if uses_password else "token"))
    has_token = gateway_token(config) is not None
    warnings = [*config.warnings, *refused]
    if mode == "token" and not has_token:
        warnings.append(missing_token(config))
    elif mode not in {"none", "token"}:
        warnings.append(
            f"gateway.auth.mode of {config.path} is {mode}, and only token and none are supported; "
            "change it with: openclaw config set gateway.auth.mode token"
        )
    return OpenClawInstallation(
        config_path=place,
        url=_url(config),
        token=f"{OPENCLAW_CONFIG}{place}" if has_token and mode != "none" else None,
        auth_mode=mode,
        agents=agents,
        warnings=tuple(warnings),
    )


def _url(config: OpenClawConfig) -> str:
    """The gateway's WebSocket URL, determined as OpenClaw's own clients do."""
    given = config.variables.get("OPENCLAW_GATEWAY_URL", "").strip()
    if given:
        return given
    gateway = config.section("gateway")
    remote = config.fill(config.section("gateway", "remote").get("url"))
    if gateway.get("mode") == "remote" and remote:
        return remote
    # Whatever it binds to, a gateway also answers its own machine on this address.
    scheme = "wss" if config.section("gateway", "tls").get("enabled") is True else "ws"
    return f"{scheme}://127.0.0.1:{_port(config)}"


def _port(config: OpenClawConfig) -> int:
    for value in (
        config.variables.get("OPENCLAW_GATEWAY_PORT"),
        config.section("gateway").get("port"),
    ):
        text = str(config.fill(value) or "") if isinstance(value, str) else str(value)
        if text.isascii() and text.isdigit() and 0 < int(text[:9]) <= _MAX_PORT:
            return int(text)
    return _DEFAULT_PORT


def _agents(config: OpenClawConfig) -> tuple[tuple[OpenClawAgent, ...], list[str]]:
    """The agents in the order of the config, and warnings about those left out."""
    found: dict[AgentId, OpenClawAgent] = {}
    refused: list[str] = []
    # Ids and settings, from the current map and from the list of earlier versions.
    entries: list[tuple[Json, Json]] = [*config.section("agents", "entries").items()]
    listed = config.section("agents").get("list")
    for values in listed if is_list(listed) else []:
        entries += [(values.get("id") if is_object(values) else None, values)]
    for name, values in entries:
        agent_id = normalize_agent_id(name)
        if agent_id is None or not is_object(values):
            refused.append(f"an agent of {config.path} has no usable id or no settings; left out")
        elif agent_id in found:
            refused.append(f"{config.path} has two agents whose id is {agent_id}; one is used")
        else:
            found[agent_id] = _agent(config, agent_id, values)
    if not found and not refused:
        # With no agents configured OpenClaw has exactly this one.
        found[AgentId(_MAIN)] = OpenClawAgent(AgentId(_MAIN))
    return tuple(found.values()), refused


def _agent(config: OpenClawConfig, agent_id: AgentId, values: JsonObject) -> OpenClawAgent:
    persona = object_at(values, "identity")
    name = config.fill(persona.get("name")) or config.fill(values.get("name")) or ""
    description = config.fill(values.get("description")) or config.fill(persona.get("theme")) or ""
    return OpenClawAgent(
        id=agent_id,
        name=_one_line(name),
        description=_one_line(description),
        workspace=config.fill(values.get("workspace")) or "",
        is_default=values.get("default") is True,
    )


def normalize_agent_id(name: Json) -> AgentId | None:
    """The id as OpenClaw spells it: lower case, 1 to 64 of a-z 0-9 _ -."""
    if not isinstance(name, str):
        return None
    text = re.sub(r"[^a-z0-9_-]+", "-", name.strip().lower()).strip("-")[:64]
    return AgentId(text) if text else None


def _one_line(text: str) -> str:
    """One line without control characters, of limited length."""
    return _CONTROLS.sub(" ", text).strip()[:_MAX_LENGTH]


class PluginConfig(msgspec.Struct, frozen=True):
    """A plugin in OpenClaw's config. `paths` are all folders that plugins are loaded from.

    `is_disabled` is what an entry of its own says, `is_denied` what is said about all plugins.
    `allowed` and `added` are the lists of tools that agents get (`tools.allow`) or get beside
    the usual ones (`tools.alsoAllow`). `is_reload_off`: OpenClaw takes up changes of its config at
    its next start only.
    """

    paths: tuple[str, ...]
    is_enabled: bool
    is_disabled: bool
    is_denied: bool
    options: JsonObject
    allowed: tuple[str, ...]
    added: tuple[str, ...]
    is_reload_off: bool = False

    def loads_from(self, folder: Path) -> bool:
        """True when plugins are loaded from the folder."""
        return any(_real(path) == _real(str(folder)) for path in self.paths)

    def allows_tools(self, tools: Iterable[str]) -> bool:
        """True when agents may use all of these tools."""
        return set(tools) <= {*self.allowed, *self.added}


def read_plugin_config(
    plugin_id: str, config: Path, *, environ: Mapping[str, str] | None = None
) -> PluginConfig:
    """The plugin in the config at this path; what is missing or unreadable is empty."""
    file = read_config(config, process_environment(environ))
    plugins = file.section("plugins")
    entry = file.section("plugins", "entries", plugin_id)
    allow = _texts(file, plugins.get("allow"))
    denied = _texts(file, plugins.get("deny"))
    return PluginConfig(
        paths=_texts(file, file.section("plugins", "load").get("paths")),
        is_enabled=entry.get("enabled") is True and (not allow or plugin_id in allow),
        is_disabled=entry.get("enabled") is False,
        is_denied=plugins.get("enabled") is False or plugin_id in denied,
        options=object_at(entry, "config"),
        allowed=_texts(file, file.section("tools").get("allow")),
        added=_texts(file, file.section("tools").get("alsoAllow")),
        is_reload_off=file.section("gateway", "reload").get("mode") == "off",
    )


def _texts(file: OpenClawConfig, value: Json) -> tuple[str, ...]:
    if not is_list(value):
        return ()
    return tuple(text for text in map(file.fill, value) if text is not None)


def _real(path: str) -> str:
    return os.path.realpath(Path(path).expanduser())
