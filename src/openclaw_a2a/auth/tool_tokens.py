"""Tokens for callers of tools: made once, kept hashed in a file, revocable at any time."""

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import tempfile
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path

import msgspec

from openclaw_a2a.model.errors import (
    CorruptRecord,
    InvalidParams,
    Overloaded,
    Problem,
    Unauthenticated,
)
from openclaw_a2a.model.ids import AgentId, SessionKey

TOOL_TOKENS_FILE = "tool-tokens.json"
TOKEN_PREFIX = "oca_tool_"  # noqa: S105 - a name, not a secret
OPERATOR_NAME = "operator"
"""The name of the person who runs the gateway, whose token is not among these."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_BYTES = 32


class ToolCaller(msgspec.Struct, frozen=True):
    """Who calls a tool.

    `name` is the token's. The session comes from the host an agent runs in, never from the
    arguments a model wrote; None means that nobody vouches for one.
    """

    name: str
    agent_id: AgentId | None = None
    session_key: SessionKey | None = None


class TokenKind(Enum):
    """Whom the holder of a token speaks for: itself, or the agents of the host it is part of."""

    TOOL = "tool"
    HOST = "host"


class ToolToken(msgspec.Struct, frozen=True, rename="camel"):
    """A token as it is kept: whose it is and what its text hashes to."""

    name: str
    sha256: str
    created_at: datetime
    kind: TokenKind = TokenKind.TOOL


class _File(msgspec.Struct, frozen=True):
    tokens: tuple[ToolToken, ...] = ()


class ToolTokens:
    """The tokens in a file. Every look reads the file again when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._tokens: tuple[ToolToken, ...] = ()

    def list_tokens(self) -> tuple[ToolToken, ...]:
        """All tokens, oldest first. Raises: CorruptRecord."""
        self._refresh()
        return self._tokens

    def create(self, name: str, kind: TokenKind = TokenKind.TOOL) -> str:
        """Make a token; its text is told only now. A name that has one gets a second.

        Raises: InvalidParams, CorruptRecord, OSError (the folder cannot be written to).
        """
        if not _NAME.fullmatch(name) or name == OPERATOR_NAME:
            reason = "a token's name is 1 to 64 of a-z 0-9 _ . - and starts with a letter or digit"
            if name == OPERATOR_NAME:
                reason = f"{name} is the person who runs the gateway; take another name"
            raise InvalidParams(f"name: {reason}", problems=(Problem("name", reason),))
        text = TOKEN_PREFIX + secrets.token_urlsafe(_BYTES)
        token = ToolToken(name, _digest(text.encode()), datetime.now(UTC), kind)
        self._write((*self.list_tokens(), token))
        return text

    def revoke(self, name: str) -> int:
        """Forget all tokens of this name; how many there were."""
        kept = tuple(token for token in self.list_tokens() if token.name != name)
        count = len(self._tokens) - len(kept)
        if count:
            self._write(kept)
        return count

    def identify(self, text: bytes) -> ToolToken | None:
        """The token with this text; None when there is none. Raises: CorruptRecord."""
        digest, found = _digest(text), None
        for token in self.list_tokens():
            if hmac.compare_digest(token.sha256, digest):
                found = token
        return found

    def _refresh(self) -> None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._seen, self._tokens = None, ()
            return
        seen = (status.st_mtime_ns, status.st_ino)
        if seen != self._seen:
            self._tokens = _read(self._path)
            self._seen = seen

    def _write(self, tokens: tuple[ToolToken, ...]) -> None:
        """Replace the file as a whole: whoever reads sees the old one or the new one."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        body = msgspec.json.format(msgspec.json.encode(_File(tokens)), indent=2)
        handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=".tokens-")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(body + b"\n")
                stream.flush()
                os.fsync(stream.fileno())
            Path(name).replace(self._path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                Path(name).unlink()
            raise
        self._tokens, self._seen = tokens, None


def _read(path: Path) -> tuple[ToolToken, ...]:
    """Raises CorruptRecord when the file is broken: nobody is let in by a guess."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_File).tokens
    except msgspec.MsgspecError as error:
        reason = f"{path} is no list of tokens ({error}); restore it or delete it"
        raise CorruptRecord(reason) from error


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


OPERATOR_CALLER = ToolCaller(OPERATOR_NAME)
"""The person who runs the gateway, from its own machine."""

SESSION_HEADER = b"x-openclaw-session-key"
AGENT_HEADER = b"x-openclaw-agent-id"
_MOST_HEADER = 1024
_RETRY_S = 1.0
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_HOW = f"send a tool token ({TOKEN_PREFIX}...) as `Authorization: Bearer <token>`"
_MAKE = "openclaw-a2a token create --tool NAME"


class ToolAuthenticator:
    """Knows callers by their tokens, and counts what each has under way."""

    def __init__(self, tokens: ToolTokens, *, most_calls: int, operator: str | None = None) -> None:
        """`operator` is a token that is good on the gateway's own machine only."""
        self._tokens = tokens
        self._most_calls = most_calls
        self._operator = None if operator is None else _sha256(operator.encode())
        self._under_way: Counter[str] = Counter()

    def identify(self, headers: Mapping[bytes, bytes], *, is_from_here: bool) -> ToolCaller:
        """The caller. Raises: Unauthenticated, CorruptRecord (the tokens cannot be read)."""
        scheme, _, shown = headers.get(b"authorization", b"").partition(b" ")
        text = shown.strip()
        if scheme.lower() != b"bearer" or not text:
            raise Unauthenticated(f"tools need a token: {_HOW}; make one with: {_MAKE}")
        if is_from_here and self._is_operator(text):
            return OPERATOR_CALLER
        token = self._tokens.identify(text)
        if token is None:
            raise Unauthenticated(
                f"this token is not known here, or was revoked; make one with: {_MAKE}"
            )
        if token.kind is not TokenKind.HOST:
            return ToolCaller(token.name)
        agent_id, session_key = _said(headers, AGENT_HEADER), _said(headers, SESSION_HEADER)
        return ToolCaller(
            token.name,
            agent_id=AgentId(agent_id) if agent_id else None,
            session_key=SessionKey(session_key) if session_key else None,
        )

    @contextmanager
    def admit(self, caller: ToolCaller) -> Generator[None]:
        """Count a call while it lasts. Raises: Overloaded."""
        if self._under_way[caller.name] >= self._most_calls:
            raise Overloaded(
                f"{caller.name} has {self._most_calls} calls under way; wait for one to end",
                retry_after_s=_RETRY_S,
            )
        self._under_way[caller.name] += 1
        try:
            yield
        finally:
            self._under_way[caller.name] -= 1
            if not self._under_way[caller.name]:
                del self._under_way[caller.name]

    def _is_operator(self, text: bytes) -> bool:
        return self._operator is not None and hmac.compare_digest(self._operator, _sha256(text))


def _said(headers: Mapping[bytes, bytes], name: bytes) -> str | None:
    """What a host says in a header, as UTF-8; nothing when it cannot be a name."""
    try:
        text = headers.get(name, b"").decode().strip()
    except UnicodeDecodeError:
        return None
    return text if text and len(text) <= _MOST_HEADER and not _CONTROLS.search(text) else None


def _sha256(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()
