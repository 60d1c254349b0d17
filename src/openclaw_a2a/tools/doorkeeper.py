"""Who may call tools, as whom, and how much at once."""

import hashlib
import hmac
import re
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from openclaw_a2a.model.errors import Overloaded, Unauthenticated
from openclaw_a2a.model.ids import AgentId, SessionKey
from openclaw_a2a.tools.table import ToolCaller
from openclaw_a2a.tools.tokens import OPERATOR_NAME, PREFIX, TokenKind, ToolTokens

OPERATOR = ToolCaller(OPERATOR_NAME)
"""The person who runs the gateway, from its own machine."""

SESSION_HEADER = b"x-openclaw-session-key"
AGENT_HEADER = b"x-openclaw-agent-id"
_MOST_HEADER = 1024
_RETRY_S = 1.0
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_HOW = f"send a tool token ({PREFIX}...) as `Authorization: Bearer <token>`"
_MAKE = "openclaw-a2a token create --tool NAME"


class Doorkeeper:
    """Knows callers by their tokens, and counts what each has under way."""

    def __init__(self, tokens: ToolTokens, *, most_calls: int, operator: str | None = None) -> None:
        """`operator` is a token that is good on the gateway's own machine only."""
        self._tokens = tokens
        self._most_calls = most_calls
        self._operator = None if operator is None else _digest(operator.encode())
        self._under_way: Counter[str] = Counter()

    def identify(self, headers: Mapping[bytes, bytes], *, is_from_here: bool) -> ToolCaller:
        """The caller. Raises: Unauthenticated, CorruptRecord (the tokens cannot be read)."""
        scheme, _, shown = headers.get(b"authorization", b"").partition(b" ")
        text = shown.strip()
        if scheme.lower() != b"bearer" or not text:
            raise Unauthenticated(f"tools need a token: {_HOW}; make one with: {_MAKE}")
        if is_from_here and self._is_operator(text):
            return OPERATOR
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
        return self._operator is not None and hmac.compare_digest(self._operator, _digest(text))


def _said(headers: Mapping[bytes, bytes], name: bytes) -> str | None:
    """What a host says in a header, as UTF-8; nothing when it cannot be a name."""
    try:
        text = headers.get(name, b"").decode().strip()
    except UnicodeDecodeError:
        return None
    return text if text and len(text) <= _MOST_HEADER and not _CONTROLS.search(text) else None


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()
