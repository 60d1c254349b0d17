"""Authenticates callers of tools, and limits the concurrent calls of each."""

import hmac
import re
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager

import msgspec

from openclaw_a2a.auth.peers import Credentials, read_bearer_token
from openclaw_a2a.auth.principal import Scope
from openclaw_a2a.auth.request_origin import (
    ClientRequest,
    OwnAddresses,
    is_loopback_client,
    is_proxied,
)
from openclaw_a2a.auth.tokens import TOOL_TOKEN_PREFIX, token_digest
from openclaw_a2a.model.errors import InsufficientScope, Overloaded, Unauthenticated
from openclaw_a2a.model.ids import AgentId, PeerName, SessionKey
from openclaw_a2a.model.session_keys import OPERATOR_NAME, session_agent

SESSION_HEADER = b"x-openclaw-session-key"
AGENT_HEADER = b"x-openclaw-agent-id"
_MAX_HEADER = 1024
_RETRY_S = 1.0
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_HOW_TO_SEND = f"send a tool token ({TOOL_TOKEN_PREFIX}...) as `Authorization: Bearer <token>`"
_HOW_TO_CREATE = "openclaw-a2a token create --tool NAME"
_MISSING = f"tools need a token: {_HOW_TO_SEND}; make one with: {_HOW_TO_CREATE}"
_UNKNOWN = f"this token is not known here, or was revoked; make one with: {_HOW_TO_CREATE}"


class ToolCaller(msgspec.Struct, frozen=True):
    """The caller of a tool.

    `name` is the token's. Agent and session come from the host an agent runs in, never from the
    arguments that a model wrote; None means that no host vouches for one. `owner` is the name under
    which it owns objectives if it has no agent; without one, its name. `address` is the address of
    the client.
    """

    name: str
    agent_id: AgentId | None = None
    session_key: SessionKey | None = None
    owner: str = ""
    address: str = ""

    @property
    def remote_owner(self) -> PeerName:
        """The name under which it owns tasks of remote agents.

        The agent, in all its sessions; without an agent the owner of the token.
        """
        holder, session = self.owner or self.name, (self.session_key or "").lower()
        agent = self.agent_id or session_agent(SessionKey(session)) or session
        return PeerName(f"agent:{agent}@{holder}" if agent else holder)


OPERATOR_CALLER = ToolCaller(OPERATOR_NAME)
"""The gateway's operator, on its own machine."""


class ToolAuthenticator:
    """Identifies callers by their tokens and limits the concurrent calls of each."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        max_calls: int,
        operator: str | None = None,
        own: OwnAddresses | None = None,
    ) -> None:
        """`operator` is a token that is valid from the gateway's own machine only."""
        self._credentials = credentials
        self._max_calls = max_calls
        self._operator = None if operator is None else token_digest(operator.encode())
        self._own = own or OwnAddresses()
        self._active_calls: Counter[str] = Counter()

    def identify(self, request: ClientRequest) -> ToolCaller:
        """The caller.

        Raises: Unauthenticated, NotAllowed (a web page), InsufficientScope, CorruptRecord (the
        token file).
        """
        if request.facts.origin_accepted_by is not self:
            if self._is_operator(request):
                return OPERATOR_CALLER
            request.facts.origin_accepted_by = self
        try:
            principal = self._credentials.authenticate(request)
        except Unauthenticated as error:
            text = _UNKNOWN if error.has_credentials else _MISSING
            raise Unauthenticated(text, has_credentials=error.has_credentials) from None
        principal.check_scope(Scope.TOOLS)
        # Only a host vouches for its agents; from others these headers are ignored claims.
        if not principal.is_host:
            return ToolCaller(principal.name, owner=principal.owner)
        agent_id = _read_header(request.headers, AGENT_HEADER)
        session_key = _read_header(request.headers, SESSION_HEADER)
        # The session counts as well: it may be another agent's.
        session = None if session_key is None else session_agent(SessionKey(session_key.lower()))
        if principal.agents is not None and not (
            agent_id in principal.agents and (session_key is None or session in principal.agents)
        ):
            raise InsufficientScope(
                f"the token of {principal.name} is not valid for this agent",
                scope=Scope.TOOLS.value,
            )
        return ToolCaller(
            principal.name,
            agent_id=AgentId(agent_id) if agent_id else None,
            session_key=SessionKey(session_key) if session_key else None,
            owner=principal.owner,
        )

    def _is_operator(self, request: ClientRequest) -> bool:
        """True for the operator, on this machine. Raises: NotAllowed, Unauthenticated."""
        is_local = is_loopback_client(request)
        if is_local or b"origin" in request.headers:
            shows_token = b"authorization" in request.headers or b"x-api-key" in request.headers
            self._own.check(request, shows_token=shows_token)
        # Only from this machine: elsewhere the admin token is not even compared.
        if self._operator is None or not is_local or is_proxied(request):
            return False
        text = read_bearer_token(request)
        return text is not None and hmac.compare_digest(token_digest(text), self._operator)

    @contextmanager
    def admit(self, caller: ToolCaller) -> Generator[None]:
        """Count a call while it lasts. Raises: Overloaded."""
        if self._active_calls[caller.name] >= self._max_calls:
            raise Overloaded(
                f"{caller.name} has {self._max_calls} calls under way; wait for one to end",
                retry_after_s=_RETRY_S,
                setting="tools.perTokenCalls",
            )
        self._active_calls[caller.name] += 1
        try:
            yield
        finally:
            self._active_calls[caller.name] -= 1
            if not self._active_calls[caller.name]:
                del self._active_calls[caller.name]


def _read_header(headers: Mapping[bytes, bytes], name: bytes) -> str | None:
    """A name that a host sends in a header, as UTF-8; None when it cannot be a name."""
    try:
        text = headers.get(name, b"").decode().strip()
    except UnicodeDecodeError:
        return None
    return text if text and len(text) <= _MAX_HEADER and not _CONTROLS.search(text) else None
