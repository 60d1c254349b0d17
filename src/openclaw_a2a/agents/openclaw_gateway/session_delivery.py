"""Sessions of an OpenClaw, and messages delivered into them: the outcome of a call, as a turn.

OpenClaw forgets its run ids when it restarts, and with them any message that was still queued for a
busy session. Each message therefore has a fixed series of run ids. The session's history shows
which of them was accepted; a message that was lost is sent again under the next id.
"""

from contextlib import suppress
from typing import Final

import anyio
from msgspec import Raw

from openclaw_a2a.agents.openclaw_gateway.agent_directory import list_agents
from openclaw_a2a.agents.openclaw_gateway.connection import (
    ConnectionLost,
    GatewayConnection,
    ResponseReceived,
)
from openclaw_a2a.agents.openclaw_gateway.history import SessionHistory, read_history
from openclaw_a2a.agents.openclaw_gateway.protocol import (
    ErrorPayload,
    RunOutcome,
    Wire,
    decode_as,
    request_error,
)
from openclaw_a2a.agents.openclaw_gateway.runs import (
    DELIVERY_PREFIX,
    MAX_RUN_IDS,
    Timeouts,
    session_agent_id,
)
from openclaw_a2a.agents.prompt import escape_command
from openclaw_a2a.model.errors import AgentError, AgentFailed, AgentUnavailable
from openclaw_a2a.model.ids import AgentId, JsonObject, SessionKey
from openclaw_a2a.model.session_keys import main_session_key
from openclaw_a2a.model.turn import Provenance
from openclaw_a2a.ports import MessageAccepted, SessionGone, SessionMessage, SessionPresence

_DESCRIBE_TIMEOUT_S: Final = 20.0
# For the first of the two responses to `agent`; a busy session accepts at once and queues.
_ACCEPT_TIMEOUT_S: Final = 30.0
# Beyond the time that OpenClaw itself waits in `agent.wait`.
_RESPONSE_GRACE_S: Final = 30.0
_RETRY_S: Final = 0.2
_INTERNAL_CHANNELS: Final = frozenset({"", "webchat", "internal", "none"})
"""Channels whose users see the session itself, so that replies need not be sent to them."""
_ANNOUNCE: Final[JsonObject] = {"deliver": True, "bestEffortDeliver": True}


# -------------------------------------------------------------------- sessions


class _ReplyRoute(Wire, frozen=True):
    channel: str = ""
    to: str = ""
    account_id: str | None = None
    thread_id: str | int | None = None


class SessionInfo(Wire, frozen=True):
    """A session as OpenClaw describes it."""

    delivery_context: Raw = Raw(b"null")

    @property
    def reply_params(self) -> JsonObject | None:
        """Parameters that also send a reply to the session's external chat; None without one."""
        route = decode_as(_ReplyRoute, self.delivery_context)
        if route is None or not route.to or route.channel in _INTERNAL_CHANNELS:
            return None
        named = {
            "channel": route.channel,
            "to": route.to,
            "accountId": route.account_id,
            "threadId": None if route.thread_id is None else str(route.thread_id),
        }
        return {**_ANNOUNCE, **{name: value for name, value in named.items() if value}}


class _DescribeResponse(Wire, frozen=True):
    session: SessionInfo | None


async def _describe(connection: GatewayConnection, session_key: str) -> SessionInfo | None:
    response = await connection.read(
        _DescribeResponse, "sessions.describe", {"key": session_key}, timeout_s=_DESCRIBE_TIMEOUT_S
    )
    return response.session


def _main_session(session_key: str) -> str:
    """The main session of the session's agent, which exists even before it was used."""
    return main_session_key(AgentId(session_agent_id(session_key)))


async def describe_session(connection: GatewayConnection, session_key: str) -> SessionInfo | None:
    """The session; None when OpenClaw has none under this key. Raises: AgentUnavailable.

    An OpenClaw without `sessions.describe` is assumed to have every session, and every agent to
    have a main session.
    """
    try:
        session = await _describe(connection, session_key)
    except AgentFailed:
        return SessionInfo()
    is_main = session_key == _main_session(session_key)
    return SessionInfo() if session is None and is_main else session


async def locate_session(connection: GatewayConnection, session_key: str) -> SessionPresence:
    """Whether this OpenClaw has the session, and whether a run is active in it.

    A main session exists as soon as its agent does. Raises: AgentUnavailable, AgentFailed.
    """
    with suppress(AgentFailed):  # an OpenClaw without `sessions.describe`
        if await _describe(connection, session_key) is not None:
            # The description only has a stored status, which a crash leaves at `running`.
            history = await read_history(connection, session_key, limit=1)
            return SessionPresence.ACTIVE if history.has_active_run else SessionPresence.IDLE
        if session_key != _main_session(session_key):
            return SessionPresence.ABSENT
    agents = {agent.id.lower() for agent in await list_agents(connection)}
    is_here = session_agent_id(session_key) in agents
    return SessionPresence.IDLE if is_here else SessionPresence.ABSENT


async def provenance_params(
    connection: GatewayConnection, session_key: str, caller: Provenance | None
) -> JsonObject:
    """The parameters of `agent` about the agent of ours that calls, if one does.

    A caller that may announce has the reply also sent to a chat of the agent: the chat of the
    session, else that of the agent's main session, else OpenClaw's default.
    """
    if caller is None:
        return {}
    provenance = _input_provenance(caller.tool, caller.session_key)
    if not caller.may_announce:
        return {"inputProvenance": provenance, "deliver": False}
    for key in dict.fromkeys((session_key, _main_session(session_key))):
        # Where the reply is announced is not worth a failed turn: the next choice is taken.
        with suppress(AgentUnavailable):
            found = await describe_session(connection, key)
            if found is not None and found.reply_params is not None:
                return {"inputProvenance": provenance, **found.reply_params}
    return {"inputProvenance": provenance, **_ANNOUNCE}


def _input_provenance(tool: str, session_key: SessionKey) -> JsonObject:
    """Where a message comes from, as OpenClaw stores it; it refuses any other member."""
    known = {"sourceSessionKey": session_key, "sourceTool": tool}
    return {"kind": "inter_session", **{name: value for name, value in known.items() if value}}


# -------------------------------------------------------------------- delivery


async def deliver_message(
    connection: GatewayConnection, message: SessionMessage
) -> MessageAccepted | SessionGone:
    """Put the message into its session; OpenClaw queues it while a turn is running there.

    In a session with an external chat the agent's reply is also sent there, as OpenClaw does with
    the results of its own sub-agents. Raises: AgentUnavailable, AgentFailed.
    """
    key = message.session_key.lower()
    session = await describe_session(connection, key)
    # Checked first: `agent` makes a new session under an unknown key, which no agent reads.
    if session is None:
        return SessionGone(f"OpenClaw has no session {key} any more.")
    run_id, is_accepted = _run_id(message, 0), False
    # A crash between OpenClaw's acceptance and our commit repeats the delivery: the history tells
    # whether this message is in the session already.
    if not message.is_first_attempt:
        run_id, is_accepted = _find_attempt(message, await read_history(connection, key))
    if not is_accepted:
        params: JsonObject = {
            "agentId": session_agent_id(key),
            "sessionKey": key,
            "message": escape_command(message.text),
            "idempotencyKey": run_id,
            "inputProvenance": _input_provenance(message.source_tool, message.source_session),
            **(session.reply_params or {"deliver": False}),
        }
        # A crash after this: the delivery is repeated with `is_first_attempt` false and found in
        # the history.
        await _send(connection, params)
    return MessageAccepted()


async def _send(connection: GatewayConnection, params: JsonObject) -> None:
    """Send a message and wait until OpenClaw accepts it, not for the end of its turn.

    Raises: AgentUnavailable (it may have been accepted), AgentFailed (it was refused).
    """
    # A subscription without events: it receives the responses, and the loss of the connection.
    with connection.subscribe(frozenset()) as subscription:
        request_id = await connection.post("agent", params, subscription)
        with anyio.move_on_after(_ACCEPT_TIMEOUT_S):
            while not isinstance(item := await subscription.next(), ConnectionLost):
                if isinstance(item, ResponseReceived) and item.request_id == request_id:
                    if item.frame.ok:
                        return
                    raise request_error("the answer to a call", item.frame.error or ErrorPayload())
            raise AgentUnavailable(
                connection.unavailable_reason() or "The connection to OpenClaw broke; try again."
            )
    raise AgentUnavailable(
        f"OpenClaw at {connection.address.url} did not accept the answer to a call within"
        f" {_ACCEPT_TIMEOUT_S:g} seconds; look at its log."
    )


def _run_id(message: SessionMessage, losses: int) -> str:
    """The run id of the message after it was lost so many times."""
    return f"{DELIVERY_PREFIX}{message.id}" + (f"-again-{losses}" if losses else "")


def _find_attempt(message: SessionMessage, history: SessionHistory) -> tuple[str, bool]:
    """The run id under which the message is in its session (True), or is to be sent (False)."""
    return history.find_attempt([_run_id(message, losses) for losses in range(MAX_RUN_IDS)])


# -------------------------------------------------------------------- the turn of a message


async def wait_processed(
    connection: GatewayConnection, message: SessionMessage, timeouts: Timeouts
) -> bool:
    """Wait until the message's turn has ended, however often the connection breaks.

    False: the message is not in its session (any more) and may be delivered again, or OpenClaw
    stayed out of reach.
    """
    receipt = _Receipt(message, timeouts)
    reconnect_deadline: float | None = None
    try:
        while True:
            await connection.wait_connected(timeouts.reconnect_s)
            wait_s = receipt.wait_s
            params: JsonObject = {"runId": receipt.run_id, "timeoutMs": int(wait_s * 1000)}
            try:
                outcome = await connection.read(
                    RunOutcome, "agent.wait", params, timeout_s=wait_s + _RESPONSE_GRACE_S
                )
                if outcome.status == "ok" or outcome.is_stopped:
                    return True
                # The wait is over and the turn is not: only the history knows it after a restart.
                history = await read_history(connection, message.session_key.lower())
            except AgentUnavailable:  # the connection broke, or OpenClaw is too busy
                now, receipt.wait_s = anyio.current_time(), timeouts.lookup_poll_s
                reconnect_deadline = reconnect_deadline or now + timeouts.reconnect_s
                if now >= reconnect_deadline:
                    return False
                await anyio.sleep(_RETRY_S)
                continue
            reconnect_deadline = None
            is_processed = receipt.evaluate(history, has_failed=outcome.status == "error")
            if is_processed is not None:
                return is_processed
            # A moment for OpenClaw to write the message, before it counts as lost.
            if receipt.is_missing:
                await anyio.sleep(_RETRY_S)
    # Out of reach, or a request was refused. False only makes the outbox deliver again, and
    # `_find_attempt` then keeps the message from being sent twice.
    except AgentError:
        return False


class _Receipt:
    """What is known of a delivered message: its run, and how long to wait for it next."""

    def __init__(self, message: SessionMessage, timeouts: Timeouts) -> None:
        self.run_id: str = _run_id(message, 0)
        self.wait_s = timeouts.lookup_poll_s
        self.is_missing = False
        """True when the last lookup did not find it: a message shows a moment after it was sent."""
        self._message = message
        self._timeouts = timeouts
        self._recovery_deadline: float | None = None

    def evaluate(self, history: SessionHistory, *, has_failed: bool) -> bool | None:
        """True when the turn has ended, False when the message is lost, None: look again."""
        run_id, is_accepted = _find_attempt(self._message, history)
        has_failed = has_failed and run_id == self.run_id
        self.run_id, self.wait_s = run_id, self._timeouts.lookup_poll_s
        was_missing, self.is_missing = self.is_missing, not is_accepted
        if not is_accepted:
            # Twice in a row: the first lookup may run before OpenClaw has written the message.
            return False if was_missing else None
        # OpenClaw may have resumed the turn under a run id of its own.
        resumed = history.find_recovery(run_id) or run_id
        has_answer = history.has_answer(run_id) or history.has_answer(resumed)
        if has_failed or has_answer or history.failure_reason(run_id) is not None:
            return True
        if history.is_live(run_id) or history.has_unnamed_run:
            self.wait_s, self._recovery_deadline = self._timeouts.run_poll_s, None
            return None
        now = anyio.current_time()
        self._recovery_deadline = self._recovery_deadline or now + self._timeouts.recovery_s
        # It is in the transcript, so the agent reads it in its next turn at the latest.
        return True if now >= self._recovery_deadline else None
