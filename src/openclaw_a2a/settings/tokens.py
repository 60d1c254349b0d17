"""Token references (`env:`, `file:`, `openclaw-config:`), and the peers whose tokens they name."""

import base64
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import msgspec

from openclaw_a2a.model.errors import SettingsInvalid
from openclaw_a2a.model.ids import Json, JsonObject, PeerName
from openclaw_a2a.model.session_keys import RESERVED_NAMES
from openclaw_a2a.model.validation import ProblemCollector, is_list, is_object, join_path, json_kind
from openclaw_a2a.settings.file_schema import PEER_NAME, PeerKeys, names_of
from openclaw_a2a.settings.files import expand_path, read_text_file
from openclaw_a2a.settings.openclaw_config import OpenClawConfig, read_config
from openclaw_a2a.settings.sections import PeerSettings, Secret
from openclaw_a2a.settings.sources import process_environment

OPENCLAW_CONFIG = "openclaw-config:"
"""Prefix of a reference to an OpenClaw config: the token of the gateway it configures."""

TOKEN_VARIABLE = "OPENCLAW_GATEWAY_TOKEN"  # noqa: S105 - a name, not a secret
"""The variable that OpenClaw's own clients read."""

GENERATE_TOKEN_COMMAND = "openclaw doctor --generate-gateway-token"  # noqa: S105 - a name, not a secret
"""OpenClaw's command that generates a gateway token."""

TOKENS_FILE = "tokens.json"
"""The file in the data folder with the tokens that `openclaw-a2a token` makes."""

_MAX_BYTES = 1024 * 1024
_SHORTHAND = re.compile(r"\$\{?([A-Z][A-Z0-9_]{0,127})\}?")
_MAX_PEER_TOKEN_BYTES = 64 * 1024
_MIN_LENGTH = 16
_KEY_BYTES = 32
_USE_A_REFERENCE = (
    "must be a reference or a hash, not the token itself: write env:NAME, file:PATH or "
    'sha256:HEX, where HEX is printed by: printf %s "$TOKEN" | openssl dgst -sha256 -r'
)
_HOW_TO_SET = f"set {TOKEN_VARIABLE}, or openclaw.token in the settings"


def resolve_token(reference: str, *, environ: Mapping[str, str] | None = None) -> str:
    """The token of a reference, read now, so that a changed token needs no restart.

    `env:NAME` is a variable, `file:PATH` a file, `openclaw-config:PATH` the token of the gateway
    of an OpenClaw config; any other text is the token itself.

    Raises: SettingsInvalid (there is no token; the message says why and what to do).
    """
    environment = process_environment(environ)
    scheme, _, rest = reference.partition(":")
    if scheme == "env" and rest:
        token, otherwise = environment.get(rest), f"the variable {rest} is not set; set it"
    elif scheme == "file" and rest:
        token, otherwise = _file_text(rest), f"the file {rest} has no token that can be read"
    elif scheme + ":" == OPENCLAW_CONFIG and rest:
        config = read_config(Path(rest), environment)
        token, otherwise = gateway_token(config), missing_token(config)
    else:
        return reference
    if token is None or not token.strip():
        raise SettingsInvalid(otherwise)
    return token.strip()


def decode_key(text: str) -> bytes:
    """The key in a text: 32 bytes in base64 or hex. Raises: ValueError."""
    text = text.strip()
    try:
        key = bytes.fromhex(text) if len(text) == 2 * _KEY_BYTES else _from_base64(text)
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise ValueError("is no key; make one with: openssl rand -base64 32")
    return key


def _from_base64(text: str) -> bytes:
    plain = text.replace("-", "+").replace("_", "/").rstrip("=")
    return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)


def absolute_reference(reference: str, folder: Path) -> str:
    """The reference with an absolute path."""
    scheme, _, rest = reference.partition(":")
    try:
        return f"file:{expand_path(rest, folder)}" if scheme == "file" else reference
    except ValueError:
        return reference


def warn_if_shared(path: str, reference: str, collector: ProblemCollector) -> None:
    """Warn of a token in a file that other users of the machine can read."""
    scheme, _, name = reference.partition(":")
    if scheme != "file":
        return
    try:
        mode = Path(name).stat().st_mode
    except OSError:
        return
    if mode & 0o077:
        message = f"names {name}, which others can read; make it yours alone: chmod 600 {name}"
        collector.warning(path, message, "secret")


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
    text = _file_text(path, config.path.parent) if path else None
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


class TokenFileHead(msgspec.Struct, frozen=True, rename="camel"):
    """What settings need of the token file: whether peers must show one of its tokens."""

    peers_need_tokens: bool = False


def peers_need_tokens(data: Path) -> bool:
    """True when a token for peers was made in this data folder."""
    try:
        body = (data / TOKENS_FILE).read_bytes()
        return msgspec.json.decode(body, type=TokenFileHead).peers_need_tokens
    except FileNotFoundError:
        return False
    except (OSError, ValueError, RecursionError):
        return True  # the gateway refuses every caller until the file is mended


def read_secret(
    path: str,
    reference: Json,
    *,
    environ: Mapping[str, str],
    folder: Path,
    collector: ProblemCollector,
) -> Secret | None:
    """The secret of a reference; None, with a problem, when there is none."""
    if not isinstance(reference, str):
        collector.problem(path, f"must be a string, not {json_kind(reference)}", "type")
        return None
    source = reference.strip()
    if re.fullmatch(r"sha256:[0-9A-Fa-f]{64}", source):
        return Secret("sha256", bytes.fromhex(source.removeprefix("sha256:")))
    try:
        token = _read_token(source, environ=environ, folder=folder)
    except ValueError as error:
        collector.problem(path, str(error), "secret")
        return None
    warn_if_shared(path, absolute_reference(source, folder), collector)
    if len(token) < _MIN_LENGTH:
        message = f"has under {_MIN_LENGTH} characters; use a longer one"
        collector.warning(path, message, "secret")
    return Secret.from_text(source, token)


def _read_token(reference: str, *, environ: Mapping[str, str], folder: Path) -> str:
    """The token of a peer. Raises: ValueError, which says what is wrong with the reference."""
    scheme, _, name = reference.partition(":")
    if scheme not in {"env", "file"} or not name:
        raise ValueError(_USE_A_REFERENCE)
    if scheme == "env":
        text = environ.get(name)
        if text is None:
            raise ValueError(f"names the environment variable {name}, which is not set; set it")
    else:
        try:
            file = expand_path(name, folder)
            if not file.is_file():  # reading a pipe or a device could block
                raise ValueError("cannot be read: there is no such file")
            text = read_text_file(file, max_bytes=_MAX_PEER_TOKEN_BYTES)
        except (OSError, ValueError) as error:
            raise ValueError(f"names the file {name}, which {error}") from None
    if not text.strip():
        raise ValueError(f"{reference} is empty; put the token there")
    return text.strip()


def read_peers(
    values: JsonObject,
    *,
    environ: Mapping[str, str],
    folder: Path,
    collector: ProblemCollector,
) -> dict[PeerName, PeerSettings]:
    """The peers, sorted by name."""
    peers: dict[PeerName, PeerSettings] = {}
    owners: dict[Secret, str] = {}
    read = partial(read_secret, environ=environ, folder=folder, collector=collector)
    for name in sorted(values):
        place = f"channels.a2a.security.peers.{name}"
        if name in RESERVED_NAMES:
            message = f"{name} is a reserved name; call the peer something else"
            collector.problem(place, message, "name")
        elif not re.fullmatch(PEER_NAME, name):
            message = "a peer's name is 1 to 64 of a-z 0-9 _ . - and starts with a letter or digit"
            collector.problem(place, message, "name")
        members = collector.as_object(place, values[name])
        collector.unknown_keys(place, members, names_of(PeerKeys))
        certificates = _read_certificates(place, members, collector)
        references, tokens_path = members.get("tokens"), join_path(place, "tokens")
        if references is None and certificates:
            references = []
        elif not is_list(references) or (not references and not certificates):
            collector.problem(tokens_path, "must be a list with at least one token", "type")
            references = []
        found = [read(f"{tokens_path}[{index}]", one) for index, one in enumerate(references)]
        secrets = tuple(secret for secret in found if secret is not None)
        for secret in secrets:
            owner = owners.setdefault(secret, name)
            if owner != name:
                message = f"has a token that is also {owner}'s; every peer needs its own"
                collector.problem(tokens_path, message, "secret")
        # The right to approve commands is never defaulted: a wrong value is a problem.
        may_approve = members.get("mayApprove", False)
        if not isinstance(may_approve, bool):
            message = f"must be true or false, not {json_kind(may_approve)}"
            collector.problem(join_path(place, "mayApprove"), message, "type")
            may_approve = False
        peers[PeerName(name)] = PeerSettings(PeerName(name), secrets, may_approve, certificates)
    return peers


def _read_certificates(
    place: str, members: JsonObject, collector: ProblemCollector
) -> tuple[str, ...]:
    values = members.get("certificates", [])
    path = join_path(place, "certificates")
    if not is_list(values):
        collector.problem(path, f"must be a list, not {json_kind(values)}", "type")
        return ()
    found = [value.strip() for value in values if isinstance(value, str) and value.strip()]
    if len(found) != len(values):
        collector.problem(path, "must be fingerprints or subjects of certificates", "type")
    return tuple(found)
