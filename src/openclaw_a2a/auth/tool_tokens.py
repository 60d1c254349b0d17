"""Authenticates callers of tools by tokens, which are kept hashed in a file and can be revoked."""

import contextlib
import os
import re
import secrets
import tempfile
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Annotated

import msgspec

from openclaw_a2a.auth.peers import (
    ClientRequest,
    allowed_hosts,
    check_host_and_origin,
    is_loopback_client,
    is_proxied,
    match_token,
    read_bearer_token,
    token_digest,
)
from openclaw_a2a.engine.audit_log import record_command
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
"""The name of the gateway's operator, whose token is not among these."""

SESSION_HEADER = b"x-openclaw-session-key"
AGENT_HEADER = b"x-openclaw-agent-id"
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_TOKEN_BYTES = 32
_HexDigest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-fA-F]{64}$")]
_MAX_HEADER = 1024
_RETRY_S = 1.0
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_HOW_TO_SEND = f"send a tool token ({TOKEN_PREFIX}...) as `Authorization: Bearer <token>`"
_HOW_TO_CREATE = "openclaw-a2a token create --tool NAME"


class ToolCaller(msgspec.Struct, frozen=True):
    """The caller of a tool.

    `name` is the token's. Agent and session come from the host an agent runs in, never from the
    arguments that a model wrote; None means that no host vouches for one.
    """

    name: str
    agent_id: AgentId | None = None
    session_key: SessionKey | None = None


OPERATOR_CALLER = ToolCaller(OPERATOR_NAME)
"""The gateway's operator, on its own machine."""


class TokenKind(Enum):
    """For whom the holder of a token calls: itself, or the agents of the host it is part of."""

    TOOL = "tool"
    HOST = "host"


class ToolToken(msgspec.Struct, frozen=True, rename="camel"):
    """A token as it is stored: its owner and the digest of its text."""

    name: str
    sha256: _HexDigest
    created_at: datetime
    kind: TokenKind = TokenKind.TOOL


class _TokenFile(msgspec.Struct, frozen=True):
    tokens: tuple[ToolToken, ...] = ()


class ToolTokens:
    """The tokens in a file, which is read again whenever it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version: tuple[int, int] | None = None
        self._tokens: tuple[ToolToken, ...] = ()

    def list_tokens(self) -> tuple[ToolToken, ...]:
        """All tokens, oldest first. Raises: CorruptRecord."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._version, self._tokens = None, ()
            return ()
        # Taken before the read, so that a change in between is seen by the next call. The inode as
        # well: a replacement within one tick of the clock has the same time.
        version = (status.st_mtime_ns, status.st_ino)
        # Looked at for each call: a token that was revoked is refused at once, without a restart.
        if version != self._version:
            self._tokens = _read_file(self._path)
            self._version = version
        return self._tokens

    def create(self, name: str, kind: TokenKind = TokenKind.TOOL) -> str:
        """Create a token and return its text, which is stored nowhere.

        A name may have several tokens.

        Raises: InvalidParams, CorruptRecord, OSError (the folder cannot be written to).
        """
        if not _NAME.fullmatch(name) or name == OPERATOR_NAME:
            reason = "a token's name is 1 to 64 of a-z 0-9 _ . - and starts with a letter or digit"
            if name == OPERATOR_NAME:
                reason = f"{name} is the person who runs the gateway; take another name"
            raise InvalidParams(f"name: {reason}", problems=(Problem("name", reason),))
        text = TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
        token = ToolToken(name, token_digest(text.encode()).hex(), datetime.now(UTC), kind)
        # No lock between read and write: of two commands at once, one loses its token.
        self._write((*self.list_tokens(), token))
        record_command(self._path.parent, "token-created", target=name, action=kind.value)
        return text

    def revoke(self, name: str) -> int:
        """Delete all tokens of this name and return how many there were."""
        kept = tuple(token for token in self.list_tokens() if token.name != name)
        count = len(self._tokens) - len(kept)
        if count:
            self._write(kept)
            record_command(self._path.parent, "token-revoked", target=name)
        return count

    def identify(self, text: bytes) -> ToolToken | None:
        """The token with this text; None when there is none. Raises: CorruptRecord."""
        known = ((bytes.fromhex(token.sha256), token) for token in self.list_tokens())
        return match_token(text, known)

    def _write(self, tokens: tuple[ToolToken, ...]) -> None:
        """Replace the whole file at once: a reader sees the old one or the new one."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        body = msgspec.json.format(msgspec.json.encode(_TokenFile(tokens)), indent=2)
        handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=".tokens-")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(body + b"\n")
                # Durable before the caller sees the token, of which the file has only the digest.
                stream.flush()
                os.fsync(stream.fileno())
            Path(name).replace(self._path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                Path(name).unlink()
            raise
        self._tokens, self._version = tokens, None


class ToolAuthenticator:
    """Identifies callers by their tokens and limits the concurrent calls of each."""

    def __init__(
        self,
        tokens: ToolTokens,
        *,
        max_calls: int,
        operator: str | None = None,
        own_hosts: Iterable[str] = (),
    ) -> None:
        """`operator` is a token that is valid from the gateway's own machine only."""
        self._tokens = tokens
        self._max_calls = max_calls
        self._operator = None if operator is None else token_digest(operator.encode())
        self._allowed_hosts = allowed_hosts(own_hosts)
        self._active_calls: Counter[str] = Counter()

    def identify(self, request: ClientRequest) -> ToolCaller:
        """The caller.

        Raises: Unauthenticated, NotAllowed (a web page), CorruptRecord (the token file).
        """
        is_local = is_loopback_client(request)
        if is_local or request.headers.get(b"origin"):
            check_host_and_origin(request, self._allowed_hosts)
        text = read_bearer_token(request.headers)
        if text is None:
            raise Unauthenticated(
                f"tools need a token: {_HOW_TO_SEND}; make one with: {_HOW_TO_CREATE}"
            )
        # Only from this machine: elsewhere the admin token is not even compared.
        if self._operator is not None and is_local and not is_proxied(request):
            caller = match_token(text, [(self._operator, OPERATOR_CALLER)])
            if caller is not None:
                return caller
        token = self._tokens.identify(text)
        if token is None:
            raise Unauthenticated(
                f"this token is not known here, or was revoked; make one with: {_HOW_TO_CREATE}"
            )
        # Only a host vouches for its agents; from others these headers are ignored claims.
        if token.kind is not TokenKind.HOST:
            return ToolCaller(token.name)
        agent_id = _read_header(request.headers, AGENT_HEADER)
        session_key = _read_header(request.headers, SESSION_HEADER)
        return ToolCaller(
            token.name,
            agent_id=AgentId(agent_id) if agent_id else None,
            session_key=SessionKey(session_key) if session_key else None,
        )

    @contextmanager
    def admit(self, caller: ToolCaller) -> Generator[None]:
        """Count a call while it lasts. Raises: Overloaded."""
        if self._active_calls[caller.name] >= self._max_calls:
            raise Overloaded(
                f"{caller.name} has {self._max_calls} calls under way; wait for one to end",
                retry_after_s=_RETRY_S,
            )
        self._active_calls[caller.name] += 1
        try:
            yield
        finally:
            self._active_calls[caller.name] -= 1
            if not self._active_calls[caller.name]:
                del self._active_calls[caller.name]


def _read_file(path: Path) -> tuple[ToolToken, ...]:
    """Raises CorruptRecord when the file is damaged: then no token is accepted."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_TokenFile).tokens
    except msgspec.MsgspecError as error:
        reason = f"{path} is no list of tokens ({error}); restore it or delete it"
        raise CorruptRecord(reason) from error


def _read_header(headers: Mapping[bytes, bytes], name: bytes) -> str | None:
    """A name that a host sends in a header, as UTF-8; None when it cannot be a name."""
    try:
        text = headers.get(name, b"").decode().strip()
    except UnicodeDecodeError:
        return None
    return text if text and len(text) <= _MAX_HEADER and not _CONTROLS.search(text) else None
