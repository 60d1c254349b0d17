"""OpenClaw's config file, read as OpenClaw does: JSON5, `$include`, `.env` and `${VARIABLES}`.

Also the OpenClaw that it describes: address and token of its gateway, its agents and plugins.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from openclaw_a2a.model.card import AgentProfile
from openclaw_a2a.model.ids import AgentId, Json, JsonObject
from openclaw_a2a.model.validation import as_list, as_object, is_list, is_object, object_at
from openclaw_a2a.settings.files import read_json5_object, read_secret_file
from openclaw_a2a.settings.sources import process_environment

OPENCLAW_CONFIG = "openclaw-config:"
"""Prefix of a reference to an OpenClaw config: the token of the gateway it configures."""

_TOKEN_VARIABLE = "OPENCLAW_GATEWAY_TOKEN"  # noqa: S105 - a name, not a secret
"""The variable that OpenClaw's own clients read."""

GENERATE_TOKEN_COMMAND = "openclaw doctor --generate-gateway-token"  # noqa: S105 - a name, not a secret
"""OpenClaw's command that generates a gateway token."""

_MAX_BYTES = 2 * 1024 * 1024
_MAX_FILES = 64
_MAX_INCLUDE_DEPTH = 10
_MAX_NAME = 4096
_VARIABLE = re.compile(r"(\$?)\$\{([A-Z_][A-Z0-9_]*)\}")
_DOTENV_LINE = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*?)\s*$")
_UNSET = frozenset({"", "undefined", "null"})
_DEFAULT_PORT = 18789
_MAX_PORT = 65535
_MAIN = "main"
_MAX_LENGTH = 500
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\s]+")
_SHORTHAND = re.compile(r"\$\{?([A-Z][A-Z0-9_]{0,127})\}?")
_HOW_TO_SET = f"set {_TOKEN_VARIABLE}, or openclaw.token in the settings"


class OpenClawConfig(msgspec.Struct, frozen=True):
    """OpenClaw's config with its includes and variables; `warnings` say what is wrong with it.

    Texts are as written; `fill` substitutes variables.
    """

    path: Path
    values: JsonObject
    variables: dict[str, str]
    warnings: tuple[str, ...] = ()
    is_readable: bool = True

    def section(self, *keys: str) -> JsonObject:
        """The object below the keys; empty when there is none."""
        return object_at(self.values, *keys)

    def fill(self, value: Json) -> str | None:
        """The text with its variables substituted; None when it is no text or one is not set."""
        if not isinstance(value, str):
            return None
        # A second dollar sign escapes: $${NAME} is the text ${NAME}.
        named = [one[2] for one in _VARIABLE.finditer(value) if not one[1]]
        if not all(self.variables.get(name) for name in named):
            return None
        text = _VARIABLE.sub(lambda one: one[0][1:] if one[1] else self.variables[one[2]], value)
        return text.strip() or None


def config_path(environ: Mapping[str, str]) -> Path | None:
    """Where OpenClaw looks for its config; None when no home is known."""
    given = _expanded(environ.get("OPENCLAW_CONFIG_PATH", ""), environ)
    if given is not None:
        return given
    folder = state_folder(environ)
    return None if folder is None else folder / "openclaw.json"


def state_folder(environ: Mapping[str, str]) -> Path | None:
    """OpenClaw's state directory: the one given, the profile's, else `~/.openclaw`."""
    given = _expanded(environ.get("OPENCLAW_STATE_DIR", ""), environ)
    home = _home(environ)
    if given is not None or home is None:
        return given
    profile = environ.get("OPENCLAW_PROFILE", "").strip()
    is_named = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", profile)
    if is_named and profile.lower() != "default":
        return home / f".openclaw-{profile}"
    return home / ".openclaw"


def read_config(path: Path, environ: Mapping[str, str]) -> OpenClawConfig:
    """The config at this path. What is wrong with it becomes a warning, never an error."""
    reader = _Reader(path, environ)
    values = reader.read(path, depth=0)
    folder = state_folder(environ) or path.parent
    configured = object_at(values, "env", "vars").items()
    variables = {
        **{name: text for name, text in configured if isinstance(text, str) and text},
        **_dotenv(folder / ".env"),
        **{name: text for name, text in environ.items() if text},
    }
    return OpenClawConfig(path, values, variables, tuple(reader.warnings), reader.is_readable)


def _home(environ: Mapping[str, str]) -> Path | None:
    own = environ.get("HOME", "").strip() or environ.get("USERPROFILE", "").strip()
    given = environ.get("OPENCLAW_HOME", "").strip()
    if given in _UNSET:
        return Path(own) if own else None
    if given == "~" or given.startswith(("~/", "~\\")):
        return Path(own) / given[2:] if own else None
    return Path(given)


def _expanded(text: str, environ: Mapping[str, str]) -> Path | None:
    text = text.strip()
    if not text or "\0" in text:
        return None
    home = _home(environ)
    if home is not None and (text == "~" or text.startswith(("~/", "~\\"))):
        return home / text[2:]
    return Path(text).absolute()


class _Reader:
    """Reads one config and what it includes."""

    def __init__(self, path: Path, environ: Mapping[str, str]) -> None:
        self.warnings: list[str] = []
        self.is_readable = True
        self._main = path
        self._read: list[Path] = []
        roots = environ.get("OPENCLAW_INCLUDE_ROOTS", "").split(os.pathsep)
        expanded = (_expanded(root, environ) for root in roots)
        self._roots = [_real(root) for root in (path.parent, *expanded) if root is not None]

    def read(self, path: Path, *, depth: int) -> JsonObject:
        """The object in a file, with what it includes."""
        try:
            value = read_json5_object(path, max_bytes=_MAX_BYTES)
        except ValueError as error:
            self.warnings.append(f"{path} {error}")
            self.is_readable = self.is_readable and path != self._main
            return {}
        return as_object(self._include(value, path, depth))

    def _include(self, value: Json, path: Path, depth: int) -> Json:
        """The value with every `$include` in it replaced by what it names."""
        if is_list(value):
            return [self._include(item, path, depth) for item in value]
        if not is_object(value):
            return value
        own: JsonObject = {
            key: self._include(member, path, depth)
            for key, member in value.items()
            if key != "$include"
        }
        if "$include" not in value:
            return own
        merged: JsonObject = {}
        names = value["$include"]
        for name in names if is_list(names) else [names]:
            if isinstance(name, str) and name and "\0" not in name and len(name) < _MAX_NAME:
                merged = _merge(merged, self._included(name, path, depth))
        return _merge(merged, own)

    def _included(self, name: str, path: Path, depth: int) -> JsonObject:
        place = _real(path.parent / name)
        if depth >= _MAX_INCLUDE_DEPTH or len(self._read) >= _MAX_FILES:
            reason = f"includes too many files; {name} is left out"
        elif not any(place.is_relative_to(root) for root in self._roots):
            reason = f"includes {name}, which is outside of the config's folder"
        elif place == _real(self._main):
            reason = f"includes {name}, which includes it"
        else:
            self._read.append(place)
            return self.read(place, depth=depth + 1)
        self.warnings.append(f"{path} {reason}")
        return {}


def _merge(below: JsonObject, above: JsonObject) -> JsonObject:
    merged = dict(below)
    for key, value in above.items():
        known = merged.get(key)
        merged[key] = _merge(known, value) if is_object(known) and is_object(value) else value
    return merged


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _dotenv(path: Path) -> dict[str, str]:
    """The variables of OpenClaw's own `.env`; a file that cannot be read has none."""
    try:
        with path.open("rb") as stream:
            text = stream.read(_MAX_BYTES).decode("utf-8-sig", "replace")
    except (OSError, ValueError):
        return {}
    variables: dict[str, str] = {}
    for found in filter(None, map(_DOTENV_LINE.match, text.splitlines())):
        name, value = found[1], found[2]
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'`":
            variables[name] = value[1:-1]
        elif value:
            variables[name] = re.sub(r"\s+#.*$", "", value)
    return variables


# -------------------------------------------------------------------- its token


def gateway_token(config: OpenClawConfig) -> str | None:
    """The token that OpenClaw's own clients would use; None when it cannot be read."""
    environment = config.variables.get(_TOKEN_VARIABLE)
    local = config.section("gateway", "auth").get("token")
    remote = config.section("gateway", "remote").get("token")
    is_remote = config.section("gateway").get("mode") == "remote"
    first, last = (remote, local) if is_remote else (local, remote)
    if first not in (None, ""):
        return _resolved(config, first)
    return environment or _resolved(config, last)


def missing_token(config: OpenClawConfig) -> str:
    """Why there is no token, and what to do."""
    token = config.section("gateway", "auth").get("token")
    if not config.is_readable:
        return f"OpenClaw's config cannot be read: {config.warnings[0]}"
    if is_object(token):
        source = token.get("source")
        kind = source if source in ("exec", "store", "file", "env") else "unknown"
        return (
            f"gateway.auth.token of {config.path} is a secret of the source {kind}, which could "
            f"not be read here; {_HOW_TO_SET}"
        )
    if token:
        return (
            f"gateway.auth.token of {config.path} names a variable that is not set; {_HOW_TO_SET}"
        )
    return f"{config.path} has no gateway.auth.token; make one with: {GENERATE_TOKEN_COMMAND}"


def _resolved(config: OpenClawConfig, value: Json) -> str | None:
    if isinstance(value, str) and (name := _SHORTHAND.fullmatch(value.strip())):
        return config.variables.get(name[1])
    if not is_object(value):
        return config.fill(value)
    source, name = value.get("source"), value.get("id")
    if source == "env" and isinstance(name, str):
        return config.variables.get(name)
    if source != "file" or not isinstance(name, str):
        return None
    alias = value.get("provider") or config.section("secrets", "defaults").get("file")
    provider = config.section("secrets", "providers", str(alias))
    path = config.fill(provider.get("path"))
    text = read_secret_file(path, config.path.parent) if path else None
    if text is None or provider.get("mode") == "singleValue":
        return text
    return _select_pointer(text, name)


def _select_pointer(text: str, pointer: str) -> str | None:
    """The string that a JSON pointer selects in a JSON text; None when there is none."""
    try:
        value: Json = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        value = as_object(value).get(key)
    return value if isinstance(value, str) and value else None


# -------------------------------------------------------------------- its gateway and agents


class OpenClawAgent(msgspec.Struct, frozen=True):
    """An agent of OpenClaw's config, with what the config says about it."""

    id: AgentId
    name: str = ""
    description: str = ""
    is_default: bool = False

    @property
    def profile(self) -> AgentProfile:
        """Its name and description on a card, until the agent itself provides them."""
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
    # Independent of its bind address, a gateway answers its own machine on this address.
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
    named = config.section("agents", "entries").items()
    listed = as_list(config.section("agents").get("list"))
    for name, values in [*named, *((as_object(one).get("id"), one) for one in listed)]:
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


# -------------------------------------------------------------------- its plugins


class PluginConfig(msgspec.Struct, frozen=True):
    """A plugin in OpenClaw's config. `paths` are all folders that plugins are loaded from.

    `is_disabled`: by its own entry; `is_denied`: by the rules for all plugins.
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
        own = _real(folder.expanduser())
        return any(_real(Path(path).expanduser()) == own for path in self.paths)

    def allows_tools(self, tools: Iterable[str]) -> bool:
        """True when agents may use all of these tools."""
        return set(tools) <= {*self.allowed, *self.added}


def read_plugin_config(plugin_id: str, config: Path) -> PluginConfig:
    """The plugin in the config at this path; what is missing or unreadable is empty."""
    file = read_config(config, process_environment(None))
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
    return tuple(text for text in map(file.fill, as_list(value)) if text is not None)
