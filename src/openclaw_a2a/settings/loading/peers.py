"""Who may call: peers and their tokens, from references or hashes, never from literals."""

import re
from collections.abc import Mapping
from pathlib import Path

from openclaw_a2a.model.ids import LOCAL_PEER, Json, JsonObject, PeerName
from openclaw_a2a.model.session_keys import RESERVED_PEERS
from openclaw_a2a.model.validation import ProblemCollector, is_list, is_object, join_path, json_kind
from openclaw_a2a.settings.paths import expand_path
from openclaw_a2a.settings.schema.file_schema import PEER_NAME, PeerKeys, names_of
from openclaw_a2a.settings.schema.sections import PeerSettings, Secret

_MOST_BYTES = 64 * 1024
_SHORT = 16
_NOT_PEERS = RESERVED_PEERS | {LOCAL_PEER}
_USE_A_REFERENCE = (
    "must be a reference or a hash, not the token itself: write env:NAME, file:PATH or "
    'sha256:HEX, where HEX is printed by: printf %s "$TOKEN" | openssl dgst -sha256 -r'
)


class TokenReader:
    """Turns references into secrets, with the environment and folder they are read from."""

    def __init__(
        self, environ: Mapping[str, str], *, folder: Path, report: ProblemCollector
    ) -> None:
        self._environ = environ
        self._folder = folder
        self._report = report

    def read(self, path: str, reference: Json) -> Secret | None:
        """The secret a reference names; None after noting why there is none."""
        if not isinstance(reference, str):
            self._report.problem(path, f"must be a string, not {json_kind(reference)}", "type")
            return None
        scheme, _, rest = reference.strip().partition(":")
        if scheme == "sha256" and re.fullmatch(r"[0-9A-Fa-f]{64}", rest):
            return Secret("sha256", bytes.fromhex(rest))
        if scheme in {"env", "file"} and rest:
            return self._resolve(path, scheme, rest)
        self._report.problem(path, _USE_A_REFERENCE, "secret")
        return None

    def _resolve(self, path: str, scheme: str, name: str) -> Secret | None:
        text = self._environ.get(name) if scheme == "env" else self._read_file(path, name)
        if text is None:
            if scheme == "env":
                message = f"names the environment variable {name}, which is not set; set it"
                self._report.problem(path, message, "secret")
            return None
        token = text.strip()
        if not token:
            self._report.problem(path, f"{scheme}:{name} is empty; put the token there", "secret")
            return None
        if len(token) < _SHORT:
            self._report.warning(path, f"has under {_SHORT} characters; use a longer one", "secret")
        return Secret.from_text(f"{scheme}:{name}", token)

    def _read_file(self, path: str, name: str) -> str | None:
        try:
            place = expand_path(name, self._folder)
            if not place.is_file():
                raise FileNotFoundError(2, "there is no such file")
            with place.open("rb") as stream:
                return stream.read(_MOST_BYTES).decode()
        except UnicodeDecodeError:
            self._report.problem(path, f"names the file {name}, which is not text", "secret")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            message = f"names the file {name}, which cannot be read: {reason}"
            self._report.problem(path, message, "secret")
        return None


def read_peers(
    path: str, values: JsonObject, *, tokens: TokenReader, report: ProblemCollector
) -> dict[PeerName, PeerSettings]:
    """The peers by name, in order of their names."""
    peers: dict[PeerName, PeerSettings] = {}
    owners: dict[Secret, str] = {}
    for name in sorted(values):
        place = join_path(path, name)
        _check_name(place, name, report)
        secrets = _read_tokens(place, values[name], tokens=tokens, report=report)
        may_approve = _may_approve(place, values[name], report)
        for secret in secrets:
            owner = owners.setdefault(secret, name)
            if owner != name:
                message = f"has a token that is also {owner}'s; every peer needs its own"
                report.problem(join_path(place, "tokens"), message, "secret")
        peers[PeerName(name)] = PeerSettings(PeerName(name), secrets, may_approve)
    return peers


def _may_approve(path: str, value: Json, report: ProblemCollector) -> bool:
    """A right to run commands is never guessed: anything but true or false is a problem."""
    given: Json = value.get("mayApprove", False) if is_object(value) else False
    if isinstance(given, bool):
        return given
    message = f"must be true or false, not {json_kind(given)}"
    report.problem(join_path(path, "mayApprove"), message, "type")
    return False


def _check_name(path: str, name: str, report: ProblemCollector) -> None:
    if name in _NOT_PEERS:
        report.problem(path, f"{name} is a reserved name; call the peer something else", "name")
    elif not re.fullmatch(PEER_NAME, name):
        message = "a peer's name is 1 to 64 of a-z 0-9 _ . - and starts with a letter or digit"
        report.problem(path, message, "name")


def _read_tokens(
    path: str, value: Json, *, tokens: TokenReader, report: ProblemCollector
) -> tuple[Secret, ...]:
    values = report.as_object(path, value)
    report.unknown_keys(path, values, names_of(PeerKeys))
    place = join_path(path, "tokens")
    references = values.get("tokens")
    if not is_list(references) or not references:
        report.problem(place, "must be a list with at least one token", "type")
        return ()
    found = (tokens.read(f"{place}[{index}]", one) for index, one in enumerate(references))
    return tuple(secret for secret in found if secret is not None)
