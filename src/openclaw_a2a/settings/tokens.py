"""Token references (`env:`, `file:`, `openclaw-config:`), and the peers whose tokens they name."""

import base64
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from openclaw_a2a.model.errors import SettingsInvalid
from openclaw_a2a.model.ids import Json, JsonObject, PeerName
from openclaw_a2a.model.session_keys import RESERVED_NAMES
from openclaw_a2a.model.validation import ProblemCollector, is_list, join_path, json_kind
from openclaw_a2a.settings.file_schema import PEER_NAME, PeerKeys, names_of
from openclaw_a2a.settings.files import expand_path, read_secret_file, read_text_file
from openclaw_a2a.settings.openclaw_config import (
    OPENCLAW_CONFIG,
    gateway_token,
    missing_token,
    read_config,
)
from openclaw_a2a.settings.sections import PeerSettings, Secret
from openclaw_a2a.settings.sources import SettingsReader, process_environment

TOKENS_FILE = "tokens.json"
"""The file in the data folder with the tokens that `openclaw-a2a token` makes."""

_MAX_PEER_TOKEN_BYTES = 64 * 1024
_MIN_LENGTH = 16
_KEY_BYTES = 32
_USE_A_REFERENCE = (
    "must be a reference or a hash, not the token itself: write env:NAME, file:PATH or "
    'sha256:HEX, where HEX is printed by: printf %s "$TOKEN" | openssl dgst -sha256 -r'
)


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
        token = read_secret_file(rest, Path.cwd())
        otherwise = f"the file {rest} has no token that can be read"
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
        return True  # the gateway refuses every caller until the file is repaired


def is_reference(
    path: str, reference: str, collector: ProblemCollector, *, what: str = "token"
) -> bool:
    """True for a reference to a secret; anything else is a problem, and may be the secret."""
    if re.match(r"(env|file):.", reference):
        return True
    message = f"must be a reference, not the {what} itself: write env:NAME or file:PATH"
    collector.problem(path, message, "secret")
    return False


def check_reference(
    path: str, reference: str, reader: SettingsReader, *, what: str = "token"
) -> str | None:
    """The secret that a reference names now; None, with a problem, when there is none."""
    if not is_reference(path, reference, reader, what=what):
        return None
    warn_if_shared(path, reference, reader)
    try:
        return resolve_token(reference, environ=reader.environ)
    except SettingsInvalid as error:
        reader.problem(path, error.message, "secret")
        return None


def _read_secret(path: str, reference: Json, reader: SettingsReader) -> Secret | None:
    """The secret of a reference; None, with a problem, when there is none."""
    if not isinstance(reference, str):
        reader.problem(path, f"must be a string, not {json_kind(reference)}", "type")
        return None
    source = reference.strip()
    if re.fullmatch(r"sha256:[0-9A-Fa-f]{64}", source):
        return Secret("sha256", bytes.fromhex(source.removeprefix("sha256:")))
    try:
        token = _read_token(source, environ=reader.environ, folder=reader.folder)
    except ValueError as error:
        reader.problem(path, str(error), "secret")
        return None
    warn_if_shared(path, absolute_reference(source, reader.folder), reader)
    if len(token) < _MIN_LENGTH:
        reader.warning(path, f"has under {_MIN_LENGTH} characters; use a longer one", "secret")
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


def read_peers(reader: SettingsReader) -> dict[PeerName, PeerSettings]:
    """The peers, sorted by name."""
    values = reader.read_object("channels.a2a.security.peers")
    peers: dict[PeerName, PeerSettings] = {}
    owners: dict[Secret, str] = {}
    for name in sorted(values):
        place = f"channels.a2a.security.peers.{name}"
        if name in RESERVED_NAMES:
            message = f"{name} is a reserved name; call the peer something else"
            reader.problem(place, message, "name")
        elif not re.fullmatch(PEER_NAME, name):
            message = "a peer's name is 1 to 64 of a-z 0-9 _ . - and starts with a letter or digit"
            reader.problem(place, message, "name")
        members = reader.as_object(place, values[name])
        reader.unknown_keys(place, members, names_of(PeerKeys))
        certificates = _read_certificates(place, members, reader)
        references, tokens_path = members.get("tokens"), join_path(place, "tokens")
        if references is None and certificates:
            references = []
        elif not is_list(references) or (not references and not certificates):
            reader.problem(tokens_path, "must be a list with at least one token", "type")
            references = []
        found = [
            _read_secret(f"{tokens_path}[{index}]", one, reader)
            for index, one in enumerate(references)
        ]
        secrets = tuple(secret for secret in found if secret is not None)
        for secret in secrets:
            owner = owners.setdefault(secret, name)
            if owner != name:
                message = f"has a token that is also {owner}'s; every peer needs its own"
                reader.problem(tokens_path, message, "secret")
        # The right to approve commands has no default: a wrong value is a problem.
        may_approve = members.get("mayApprove", False)
        if not isinstance(may_approve, bool):
            message = f"must be true or false, not {json_kind(may_approve)}"
            reader.problem(join_path(place, "mayApprove"), message, "type")
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
