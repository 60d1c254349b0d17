"""Reads the peers and their tokens, from references or hashes, never from literals."""

import re
from collections.abc import Mapping
from pathlib import Path

from openclaw_a2a.model.ids import LOCAL_PEER, Json, JsonObject, PeerName
from openclaw_a2a.model.session_keys import RESERVED_PEERS
from openclaw_a2a.model.validation import ProblemCollector, is_list, is_object, join_path, json_kind
from openclaw_a2a.settings.json5_file import read_text_file
from openclaw_a2a.settings.paths import expand_path
from openclaw_a2a.settings.schema.file_schema import PEER_NAME, PeerKeys, names_of
from openclaw_a2a.settings.schema.sections import PeerSettings, Secret

_MAX_BYTES = 64 * 1024
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
            return read_text_file(file, max_bytes=_MAX_BYTES)
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
