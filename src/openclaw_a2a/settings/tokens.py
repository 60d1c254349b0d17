"""Token references (`env:`, `file:`, `openclaw-config:`), and the peers whose tokens they name."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from openclaw_a2a.model.errors import SettingsInvalid
from openclaw_a2a.model.ids import LOCAL_PEER, Json, JsonObject, PeerName
from openclaw_a2a.model.session_keys import RESERVED_PEERS
from openclaw_a2a.model.validation import ProblemCollector, is_list, is_object, join_path, json_kind
from openclaw_a2a.settings.file_schema import PEER_NAME, PeerKeys, names_of
from openclaw_a2a.settings.files import expand_path, read_text_file
from openclaw_a2a.settings.openclaw_config import OpenClawConfig, read_config
from openclaw_a2a.settings.sections import PeerSettings, Secret

OPENCLAW_CONFIG = "openclaw-config:"
"""Prefix of a reference to an OpenClaw config: the token of the gateway it configures."""

TOKEN_VARIABLE = "OPENCLAW_GATEWAY_TOKEN"  # noqa: S105 - a name, not a secret
"""The variable that OpenClaw's own clients read."""

GENERATE_TOKEN_COMMAND = "openclaw doctor --generate-gateway-token"  # noqa: S105 - a name, not a secret
"""OpenClaw's command that generates a gateway token."""

_MAX_BYTES = 1024 * 1024
_SHORTHAND = re.compile(r"\$\{?([A-Z][A-Z0-9_]{0,127})\}?")
_HOW_TO_SET = f"set {TOKEN_VARIABLE}, or openclaw.token in the settings"


def resolve_token(reference: str, *, environ: Mapping[str, str] | None = None) -> str:
    """The token of a reference, read now, so that a changed token needs no restart.

    `env:NAME` is a variable, `file:PATH` a file, `openclaw-config:PATH` the token of the gateway
    of an OpenClaw config; any other text is the token itself.

    Raises:
        SettingsInvalid: there is no token; the message says why and what to do.
    """
    environment = os.environ if environ is None else environ
    scheme, _, rest = reference.partition(":")
    if scheme == "env" and rest:
        return _require(environment.get(rest), f"the variable {rest} is not set; set it")
    if scheme == "file" and rest:
        return _require(_file_text(rest), f"the file {rest} has no token that can be read")
    if scheme + ":" == OPENCLAW_CONFIG and rest:
        config = read_config(Path(rest), environment)
        return _require(gateway_token(config), missing_token(config))
    return reference


def absolute_reference(reference: str, folder: Path) -> str:
    """The reference with an absolute path."""
    scheme, _, rest = reference.partition(":")
    try:
        return f"file:{expand_path(rest, folder)}" if scheme == "file" else reference
    except ValueError:
        return reference


def gateway_token(config: OpenClawConfig) -> str | None:
    """The token that OpenClaw's own clients would use; None when it cannot be read."""
    environment = config.variables.get(TOKEN_VARIABLE)
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
    if is_object(value):
        return _secret(config, value)
    if isinstance(value, str) and (name := _SHORTHAND.fullmatch(value.strip())):
        return config.variables.get(name[1])
    return config.fill(value)


def _secret(config: OpenClawConfig, reference: JsonObject) -> str | None:
    source, name = reference.get("source"), reference.get("id")
    if not isinstance(name, str):
        return None
    if source == "env":
        return config.variables.get(name)
    if source == "file":
        return _file_secret(config, reference, name)
    return None


def _file_secret(config: OpenClawConfig, reference: JsonObject, name: str) -> str | None:
    alias = reference.get("provider") or config.section("secrets", "defaults").get("file")
    provider = config.section("secrets", "providers", str(alias))
    path = config.fill(provider.get("path"))
    text = _file_text(path, config.path.parent) if path else None
    if text is None or provider.get("mode") == "singleValue":
        return text
    return _select_pointer(text, name)


def _select_pointer(text: str, pointer: str) -> str | None:
    """The string that a JSON pointer selects in a JSON text; None when there is none."""
    try:
        value: Json = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return None
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        value = value.get(key) if is_object(value) else None
    return value if isinstance(value, str) and value else None


def _file_text(name: str, folder: Path | None = None) -> str | None:
    try:
        place = expand_path(name, folder or Path.cwd())
        if not place.is_file():
            return None
        return read_text_file(place, max_bytes=_MAX_BYTES).strip() or None
    except (OSError, ValueError):
        return None


def _require(token: str | None, otherwise: str) -> str:
    if token and token.strip():
        return token.strip()
    raise SettingsInvalid(otherwise)


_MAX_PEER_TOKEN_BYTES = 64 * 1024
_MIN_LENGTH = 16
_RESERVED_NAMES = RESERVED_PEERS | {LOCAL_PEER}
_USE_A_REFERENCE = (
    "must be a reference or a hash, not the token itself: write env:NAME, file:PATH or "
    'sha256:HEX, where HEX is printed by: printf %s "$TOKEN" | openssl dgst -sha256 -r'
)


class TokenReader:
    """Resolves token references to secrets."""

    def __init__(
        self, environ: Mapping[str, str], *, folder: Path, collector: ProblemCollector
    ) -> None:
        self._environ = environ
        self._folder = folder
        self._collector = collector

    def read(self, path: str, reference: Json) -> Secret | None:
        """The secret of a reference; None, with a problem, when there is none."""
        if not isinstance(reference, str):
            self._collector.problem(path, f"must be a string, not {json_kind(reference)}", "type")
            return None
        scheme, _, rest = reference.strip().partition(":")
        if scheme == "sha256" and re.fullmatch(r"[0-9A-Fa-f]{64}", rest):
            return Secret("sha256", bytes.fromhex(rest))
        if scheme in {"env", "file"} and rest:
            return self._resolve(path, scheme, rest)
        self._collector.problem(path, _USE_A_REFERENCE, "secret")
        return None

    def _resolve(self, path: str, scheme: str, name: str) -> Secret | None:
        text = self._environ.get(name) if scheme == "env" else self._read_file(path, name)
        if text is None:
            if scheme == "env":
                message = f"names the environment variable {name}, which is not set; set it"
                self._collector.problem(path, message, "secret")
            return None
        token = text.strip()
        if not token:
            self._collector.problem(
                path, f"{scheme}:{name} is empty; put the token there", "secret"
            )
            return None
        if len(token) < _MIN_LENGTH:
            self._collector.warning(
                path, f"has under {_MIN_LENGTH} characters; use a longer one", "secret"
            )
        return Secret.from_text(f"{scheme}:{name}", token)

    def _read_file(self, path: str, name: str) -> str | None:
        try:
            file = expand_path(name, self._folder)
            if not file.is_file():  # reading a pipe or a device could block
                raise ValueError("cannot be read: there is no such file")
            return read_text_file(file, max_bytes=_MAX_PEER_TOKEN_BYTES)
        except (OSError, ValueError) as error:
            self._collector.problem(path, f"names the file {name}, which {error}", "secret")
            return None


def read_peers(
    path: str, values: JsonObject, *, tokens: TokenReader, collector: ProblemCollector
) -> dict[PeerName, PeerSettings]:
    """The peers, sorted by name."""
    peers: dict[PeerName, PeerSettings] = {}
    owners: dict[Secret, str] = {}
    for name in sorted(values):
        place = join_path(path, name)
        _check_name(place, name, collector)
        secrets = _read_tokens(place, values[name], tokens=tokens, collector=collector)
        may_approve = _may_approve(place, values[name], collector)
        for secret in secrets:
            owner = owners.setdefault(secret, name)
            if owner != name:
                message = f"has a token that is also {owner}'s; every peer needs its own"
                collector.problem(join_path(place, "tokens"), message, "secret")
        peers[PeerName(name)] = PeerSettings(PeerName(name), secrets, may_approve)
    return peers


def _may_approve(path: str, value: Json, collector: ProblemCollector) -> bool:
    """The right to approve commands is never defaulted: a wrong value is a problem."""
    given: Json = value.get("mayApprove", False) if is_object(value) else False
    if isinstance(given, bool):
        return given
    message = f"must be true or false, not {json_kind(given)}"
    collector.problem(join_path(path, "mayApprove"), message, "type")
    return False


def _check_name(path: str, name: str, collector: ProblemCollector) -> None:
    if name in _RESERVED_NAMES:
        collector.problem(path, f"{name} is a reserved name; call the peer something else", "name")
    elif not re.fullmatch(PEER_NAME, name):
        message = "a peer's name is 1 to 64 of a-z 0-9 _ . - and starts with a letter or digit"
        collector.problem(path, message, "name")


def _read_tokens(
    path: str, value: Json, *, tokens: TokenReader, collector: ProblemCollector
) -> tuple[Secret, ...]:
    values = collector.as_object(path, value)
    collector.unknown_keys(path, values, names_of(PeerKeys))
    place = join_path(path, "tokens")
    references = values.get("tokens")
    if not is_list(references) or not references:
        collector.problem(place, "must be a list with at least one token", "type")
        return ()
    found = (tokens.read(f"{place}[{index}]", one) for index, one in enumerate(references))
    return tuple(secret for secret in found if secret is not None)
