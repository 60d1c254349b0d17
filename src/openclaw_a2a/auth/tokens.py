"""Tokens of peers and tools: made by the operator, kept hashed in a file, valid without a restart.

The text of a token is shown once. The file has the owner, what the token is valid for and the
SHA-256 of its text. Which tokens were used when is in a second file that only gateways write: a
command that revokes a token never competes with a gateway about the same file.
"""

import asyncio
import hashlib
import os
import re
import secrets
import time
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Annotated

import msgspec

from openclaw_a2a.auth.principal import A2A_SCOPES, Principal, Scope, can_be_limited
from openclaw_a2a.engine.audit_log import record_command
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import CorruptRecord, InvalidParams, Problem
from openclaw_a2a.model.file_lock import lock_file
from openclaw_a2a.model.ids import PeerName
from openclaw_a2a.model.session_keys import OPERATOR_NAME, RESERVED_NAMES
from openclaw_a2a.settings import TOKENS_FILE, TokenFileHead, write_private_file

log = get_logger(__name__)

OLD_TOOL_TOKENS_FILE = "tool-tokens.json"
"""The file of earlier versions, which knew tokens for tools only."""
TOKEN_USE_FILE = "token-use.json"  # noqa: S105 - the name of a file
TOOL_OWNER = "tool:"
"""Prefix of the names under which programs with a token for tools only own objectives."""

TOKEN_PREFIX = "oca_"  # noqa: S105 - a name, not a secret
TOOL_TOKEN_PREFIX = f"{TOKEN_PREFIX}tool_"
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_TOKEN_BYTES = 32
_ID_DIGITS = 8
WRITE_USE_S = 30.0
_HexDigest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-fA-F]{64}\Z")]
_Moment = Annotated[datetime, msgspec.Meta(tz=True)]
_Version = tuple[int, ...] | None


def token_digest(token: bytes) -> bytes:
    """The SHA-256 of a token. Tokens are kept and compared as digests only."""
    return hashlib.sha256(token).digest()


class TokenKind(Enum):
    """Who holds a token: a peer, a program that calls tools, or the host that agents run in."""

    PEER = "peer"
    TOOL = "tool"
    HOST = "host"


class Token(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A token as it is stored: its owner, what it is valid for, and the digest of its text.

    `scopes` without any are those of the kind; `accounts` and `agents` are None for all.
    `owner` is the name under which its holder owns objectives; without one, its name.
    """

    name: str
    sha256: _HexDigest
    created_at: _Moment
    kind: TokenKind = TokenKind.TOOL
    id: str = ""
    scopes: frozenset[Scope] = frozenset()
    accounts: frozenset[str] | None = None
    agents: frozenset[str] | None = None
    expires_at: _Moment | None = None
    owner: str = ""

    @property
    def is_for_tools_only(self) -> bool:
        """True when its holder is a program that calls tools, and no peer."""
        return self.kind is not TokenKind.PEER and Scope.A2A not in self.scopes

    def is_valid(self, now: datetime) -> bool:
        """True until the token expires."""
        return self.expires_at is None or now < self.expires_at

    @property
    def principal(self) -> Principal:
        """The caller that shows this token."""
        return Principal(
            PeerName(self.name),
            self.scopes,
            self.accounts,
            self.agents,
            is_host=self.kind is TokenKind.HOST,
            owner=PeerName(self.owner),
        )


class _TokenFile(TokenFileHead, frozen=True):
    tokens: tuple[Token, ...] = ()


class _Entry(msgspec.Struct, frozen=True):
    """A token, ready for lookups; `expires` is a timestamp."""

    token: Token
    principal: Principal
    expires: float


def scopes_of(kind: TokenKind) -> frozenset[Scope]:
    """The default scopes of a token of this kind."""
    return A2A_SCOPES if kind is TokenKind.PEER else frozenset({Scope.TOOLS})


class TokenStore:
    """The tokens in a data folder. The file is read again whenever it has changed."""

    def __init__(
        self,
        folder: Path,
        *,
        peers: Collection[str] = (),
        are_commands: bool = True,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`peers` are those of the settings.

        `are_commands`: changes are made by commands of the operator, and audited here; otherwise
        the caller audits them.
        """
        self._peers = peers
        self._are_commands = are_commands
        self._path = folder / TOKENS_FILE
        self._old_path = folder / OLD_TOOL_TOKENS_FILE
        self._use_path = folder / TOKEN_USE_FILE
        self._now = now
        self._version: _Version = ()
        self._damage = ""
        self._tokens: tuple[Token, ...] = ()
        self._by_digest: dict[bytes, _Entry] = {}
        self._peers_need_tokens = False
        self._used: set[str] = set()

    # ---------------------------------------------------------------- lookups

    def identify(self, digest: bytes) -> Principal | None:
        """The owner of the token with this digest; None when it is unknown, revoked or expired.

        The cost does not grow with the number of tokens. The duration of a lookup reveals nothing
        about the tokens: a client cannot choose the digest of what it sends.

        Raises: CorruptRecord.
        """
        entry = self._find(digest)
        if entry is None:
            return None
        # Kept in memory: `write_use` writes it to the file, never a request.
        self._used.add(entry.token.id)
        return entry.principal

    def find(self, text: bytes) -> Token | None:
        """The token with this text, if it is valid. Raises: CorruptRecord."""
        entry = self._find(token_digest(text))
        return None if entry is None else entry.token

    def peers_need_tokens(self) -> bool:
        """True once a token for A2A was made here, also when all of them have been revoked.

        Otherwise revoking the last token would open the gateway. Raises: CorruptRecord.
        """
        self._refresh()
        return self._peers_need_tokens

    def list_tokens(self) -> tuple[Token, ...]:
        """All tokens, oldest first. Raises: CorruptRecord."""
        self._refresh()
        return self._tokens

    def last_used(self) -> dict[str, datetime]:
        """When tokens were last used, by id, as far as gateways have written it."""
        try:
            return msgspec.json.decode(self._use_path.read_bytes(), type=dict[str, _Moment])
        except (OSError, ValueError, RecursionError):  # a damaged file is replaced by the next use
            return {}

    def _find(self, digest: bytes) -> _Entry | None:
        # The file is checked for changes on each lookup, so revoked tokens are refused at once.
        self._refresh()
        entry = self._by_digest.get(digest)
        return None if entry is None or entry.expires <= self._now() else entry

    def _refresh(self) -> None:
        # Taken before the read: the next lookup sees a change that happens in between. With the
        # inode: a replacement within one tick of the clock has the same time.
        version = _file_version(self._path)
        if version != self._version:
            self._load(version)
        if self._damage:  # no token is accepted until the file is repaired
            raise CorruptRecord(self._damage)

    def _load(self, version: _Version) -> None:
        self._damage, self._tokens, self._by_digest = "", (), {}
        try:
            current, old = _read_file(self._path), _read_file(self._old_path)
        except CorruptRecord as error:
            self._damage = error.message
        else:
            known = {token.sha256 for token in current.tokens}
            moved = [token for token in old.tokens if token.sha256 not in known]
            self._peers_need_tokens = current.peers_need_tokens
            self._set_tokens([*moved, *current.tokens])
        self._version = version

    def _set_tokens(self, tokens: Iterable[Token]) -> None:
        self._tokens = tuple(_fill_old_fields(token) for token in tokens)
        peers = {one.name for one in self._tokens if not one.is_for_tools_only}.union(self._peers)
        self._by_digest = {
            bytes.fromhex(token.sha256): _Entry(
                token,
                _separate(token, peers).principal,
                float("inf") if token.expires_at is None else token.expires_at.timestamp(),
            )
            for token in self._tokens
        }

    # ---------------------------------------------------------------- changes

    def create(
        self,
        name: str,
        kind: TokenKind = TokenKind.TOOL,
        *,
        scopes: Iterable[Scope] = (),
        accounts: Collection[str] | None = None,
        agents: Collection[str] | None = None,
        expires_at: datetime | None = None,
    ) -> str:
        """Create a token and return its text, which is stored nowhere.

        A name may have several tokens.

        Raises: InvalidParams, CorruptRecord, OSError (the folder cannot be written to).
        """
        granted = frozenset(scopes) or scopes_of(kind)
        _check_name(name)
        is_host = kind is TokenKind.HOST
        if not can_be_limited(granted, accounts=accounts, agents=agents, is_host=is_host):
            reason = (
                "accounts and agents limit tokens for a2a, and agents those of a host; make one"
                " token for a2a and another for the rest"
            )
            raise InvalidParams(f"limits: {reason}", problems=(Problem("limits", reason),))
        token = Token(
            name,
            "0" * 64,
            datetime.now(UTC),
            kind,
            scopes=granted,
            accounts=None if accounts is None else frozenset(accounts),
            agents=None if agents is None else frozenset(agents),
            expires_at=expires_at,
        )
        with self._locked():
            # Like its other tokens: those of earlier versions own objectives under the bare name.
            others = [one for one in self._tokens if one.name == name and one.is_for_tools_only]
            if all(one.owner for one in others):
                token = _separate(token, {name})
            text = self._add(self._tokens, token)
        self._record("token-created", name, kind.value)
        return text

    def rotate(self, selector: str, *, grace: timedelta, expires_at: datetime | None = None) -> str:
        """Create a token like another one, which stays valid for the grace time only.

        `selector` is the id of a token, or the name of its owner if that has just one. Without
        `expires_at` the new token lives as long as the old one was meant to.

        Raises: InvalidParams, CorruptRecord, OSError.
        """
        with self._locked():
            now = datetime.now(UTC)
            found = [one for one in self._select(selector) if one.is_valid(now)]
            if len(found) != 1:
                ids = ", ".join(one.id for one in found)
                reason = f"{selector} has several tokens; name one by its id: {ids}"
                if not found:
                    reason = f"there is no valid token {selector}"
                raise InvalidParams(reason, problems=(Problem("token", reason),))
            (old,) = found
            if expires_at is None and old.expires_at is not None:
                expires_at = _later(now, old.expires_at - old.created_at)
            end = _later(now, grace)
            if old.expires_at is not None:
                end = min(end, old.expires_at)
            ending = msgspec.structs.replace(old, expires_at=end)
            others = [ending if one is old else one for one in self._tokens]
            new = msgspec.structs.replace(old, created_at=now, expires_at=expires_at)
            text = self._add(others, new)
        self._record("token-rotated", old.name, old.id)
        return text

    def revoke(self, selector: str) -> int:
        """Delete the token with this id, or all of this name; returns how many there were.

        Raises: CorruptRecord, OSError.
        """
        with self._locked():
            gone = self._select(selector)
            if gone:
                self._write([one for one in self._tokens if one not in gone])
        for name in sorted({one.name for one in gone}):
            self._record("token-revoked", name)
        return len(gone)

    def _record(self, event: str, name: str, action: str = "") -> None:
        if self._are_commands:
            record_command(self._path.parent, event, target=name, action=action)

    def _select(self, selector: str) -> list[Token]:
        named = [one for one in self._tokens if one.name == selector]
        return [one for one in self._tokens if one.id == selector] or named

    def _add(self, others: Iterable[Token], token: Token) -> str:
        prefix = TOOL_TOKEN_PREFIX if Scope.TOOLS in token.scopes else TOKEN_PREFIX
        text = prefix + secrets.token_urlsafe(_TOKEN_BYTES)
        known, token_id = {one.id for one in self._tokens}, ""
        while not token_id or token_id in known:
            token_id = secrets.token_hex(_ID_DIGITS // 2)
        digest = token_digest(text.encode()).hex()
        self._write([*others, msgspec.structs.replace(token, id=token_id, sha256=digest)])
        return text

    @contextmanager
    def _locked(self) -> Generator[None]:
        """The newest tokens, while no other command can change them."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # The folder itself is locked: there is no lock file that could be replaced by a link.
        descriptor = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Where there are no file locks, of two commands at once one may lose its change.
            lock_file(descriptor)
            self._refresh()
            yield
        finally:
            os.close(descriptor)

    def _write(self, tokens: Iterable[Token]) -> None:
        """Replace the whole file at once: a reader sees the old one or the new one."""
        tokens = tuple(tokens)
        are_for_peers = any(Scope.A2A in token.scopes for token in tokens)
        file = _TokenFile(peers_need_tokens=self._peers_need_tokens or are_for_peers, tokens=tokens)
        body = msgspec.json.format(msgspec.json.encode(file), indent=2)
        # Durable before the caller sees the token, of which the file has only the digest.
        write_private_file(self._path, body + b"\n", durable=True)
        # After the new file: until then it has the only copy of these tokens.
        self._old_path.unlink(missing_ok=True)
        self._peers_need_tokens = file.peers_need_tokens
        self._set_tokens(tokens)
        self._version = ()

    # ---------------------------------------------------------------- last use

    async def write_use(self) -> None:
        """Write which tokens were used since the last time."""
        used, self._used = self._used, set()
        if not used:
            return
        try:
            await asyncio.to_thread(self._write_use, used)
        except OSError as error:
            log.warning("tokens.use_not_written", reason=str(error))

    def _write_use(self, used: set[str]) -> None:
        known = {token.id for token in self._tokens}
        moment = datetime.now(UTC).replace(microsecond=0)
        uses = {**self.last_used(), **dict.fromkeys(used, moment)}
        kept = {token_id: used_at for token_id, used_at in uses.items() if token_id in known}
        write_private_file(self._use_path, msgspec.json.encode(kept))


def _later(moment: datetime, span: timedelta) -> datetime:
    """The instant after this duration; the latest representable one if it lies beyond."""
    try:
        return moment + span
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _separate(token: Token, peers: Collection[str]) -> Token:
    """The token; a program must not own anything under the name of a peer."""
    if not token.is_for_tools_only or token.owner or token.name not in peers:
        return token
    return msgspec.structs.replace(token, owner=f"{TOOL_OWNER}{token.name}")


def _check_name(name: str) -> None:
    reason = ""
    if not _NAME.fullmatch(name):
        reason = "a token's name is 1 to 64 of a-z 0-9 _ . - and starts with a letter or digit"
    elif name == OPERATOR_NAME:
        reason = f"{name} is the person who runs the gateway; take another name"
    elif name in RESERVED_NAMES:
        reason = f"{name} is a reserved name; take another name"
    if reason:
        raise InvalidParams(f"name: {reason}", problems=(Problem("name", reason),))


def _fill_old_fields(token: Token) -> Token:
    """The token with what files of earlier versions leave out."""
    if token.id and token.scopes:
        return token
    return msgspec.structs.replace(
        token,
        id=token.id or token.sha256[:_ID_DIGITS].lower(),
        scopes=token.scopes or scopes_of(token.kind),
    )


def _file_version(path: Path) -> _Version:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CorruptRecord(f"{path} cannot be read ({error}); see its permissions") from error
    return status.st_mtime_ns, status.st_ino


def _read_file(path: Path) -> _TokenFile:
    """Raises CorruptRecord when the file is damaged: then no token is accepted."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_TokenFile)
    except (FileNotFoundError, NotADirectoryError):
        return _TokenFile()
    except (OSError, ValueError, RecursionError) as error:
        reason = f"{path} is no list of tokens ({error}); restore it or delete it"
        raise CorruptRecord(reason) from error
