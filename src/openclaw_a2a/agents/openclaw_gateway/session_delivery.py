"""Delivers messages into sessions of an OpenClaw: the outcome of a call, as a turn of its caller.

OpenClaw forgets its run ids when it restarts, and with them any message that was still queued for a
busy session. Each message therefore has a fixed series of run ids. The session's history shows
which of them was accepted; a message that was lost is sent again under the next id.
"""

from typing import Final

import anyio
import msgspec

from openclaw_a2a.agents.openclaw_gateway.connection import GatewayConnection
from openclaw_a2a.agents.openclaw_gateway.history import SessionHistory, read_history
from openclaw_a2a.agents.openclaw_gateway.protocol import ErrorPayload, RunOutcome, request_error
from openclaw_a2a.agents.openclaw_gateway.runs import DELIVERY_PREFIX, Timeouts, escape_command
from openclaw_a2a.agents.openclaw_gateway.sessions import (
    SessionInfo,
    announce_params,
    describe_session,
    session_agent_id,
)
from openclaw_a2a.agents.openclaw_gateway.subscription import (
    ConnectionLost,
    EventFilter,
    ResponseReceived,
)
from openclaw_a2a.model.errors import AgentError, AgentUnavailable
from openclaw_a2a.model.ids import JsonObject, SessionKey
from openclaw_a2a.model.turn import Provenance
from openclaw_a2a.ports import (
    MessageAccepted,
    SessionGone,
    SessionMessage,
)

_ACCEPT_TIMEOUT_S: Final = 30.0
_RESPONSE_GRACE_S: Final = 30.0
_RETRY_S: Final = 0.2
_MAX_RUN_IDS: Final = 20


async def provenance_params(
    connection: GatewayConnection, session_key: str, caller: Provenance | None
) -> JsonObject:
    """The parameters of `agent` about the agent of ours that calls, if one does."""
    if caller is None:
        return {}
    announce = caller.may_announce
    route = await announce_params(connection, session_key) if announce else {"deliver": False}
    return {"inputProvenance": _input_provenance(caller.tool, caller.session_key), **route}


class _Attempt(msgspec.Struct, frozen=True):
    """The run id under which a message is in its session, or is to be sent next."""

    run_id: str
    is_accepted: bool


async def deliver_message(
    connection: GatewayConnection, message: SessionMessage
) -> MessageAccepted | SessionGone:
    """Put the message into its session; OpenClaw queues it while a turn is running there.

    Raises: AgentUnavailable, AgentFailed.
    """
    key = message.session_key.lower()
    session = await describe_session(connection, key)
    if session is None:
        return SessionGone(f"OpenClaw has no session {key} any more.")
    attempt = _Attempt(_run_id(message, 0), is_accepted=False)
    # A crash between OpenClaw's acceptance and our commit repeats the delivery: the history tells
    # whether this message is in the session already.
    if not message.is_first_attempt:
        attempt = _find_attempt(message, await read_history(connection, key))
    if not attempt.is_accepted:
        await _send(connection, _agent_params(message, attempt.run_id, session))
    return MessageAccepted()


async def wait_processed(
    connection: GatewayConnection, message: SessionMessage, timeouts: Timeouts
) -> bool:
    """Wait until the message's turn has ended, however often the connection breaks.

    False: the message is not in its session (any more) and may be delivered again, or OpenClaw
    stayed out of reach.
    """
    receipt = _ReceiptWait(connection, message, timeouts)
    try:
        while receipt.is_processed is None:
            await receipt.poll()
    except AgentError:
        return False
    return receipt.is_processed


class _ReceiptWait:
    """Waits for the turn of one message: `poll` until `is_processed` is known."""

    def __init__(
        self, connection: GatewayConnection, message: SessionMessage, timeouts: Timeouts
    ) -> None:
        self.is_processed: bool | None = None
        self._connection = connection
        self._message = message
        self._timeouts = timeouts
        self._run_id = _run_id(message, 0)
        self._wait_s = timeouts.lookup_poll_s
        self._reconnect_deadline: float | None = None
        self._recovery_deadline: float | None = None
        self._is_missing = False
        """True when the last poll did not find it: a message shows a moment after it was sent."""

    async def poll(self) -> None:
        """Wait for the turn for a while; if it has not ended, look it up in the history.

        Raises: AgentUnavailable (OpenClaw stays out of reach), AgentFailed.
        """
        if self._is_missing:
            await anyio.sleep(_RETRY_S)
        await self._connection.wait_connected(self._timeouts.reconnect_s)
        try:
            params: JsonObject = {"runId": self._run_id, "timeoutMs": int(self._wait_s * 1000)}
            outcome = await self._connection.read(
                RunOutcome, "agent.wait", params, timeout_s=self._wait_s + _RESPONSE_GRACE_S
            )
            if outcome.status == "ok" or outcome.is_stopped:
                self.is_processed = True
                return
            history = await read_history(self._connection, self._message.session_key.lower())
        except AgentUnavailable:
            await self._handle_unavailable()
            return
        self._reconnect_deadline = None
        self._evaluate(history, has_failed=outcome.status == "error")

    async def _handle_unavailable(self) -> None:
        """The connection broke, or OpenClaw is too busy: poll again after a moment."""
        now, self._wait_s = anyio.current_time(), self._timeouts.lookup_poll_s
        self._reconnect_deadline = self._reconnect_deadline or now + self._timeouts.reconnect_s
        if now >= self._reconnect_deadline:
            raise AgentUnavailable(
                "OpenClaw does not say whether a delivered message was processed; look at its log."
            )
        await anyio.sleep(_RETRY_S)

    def _evaluate(self, history: SessionHistory, *, has_failed: bool) -> None:
        attempt = _find_attempt(self._message, history)
        is_same_run = attempt.run_id == self._run_id
        self._run_id, self._wait_s = attempt.run_id, self._timeouts.lookup_poll_s
        was_missing, self._is_missing = self._is_missing, not attempt.is_accepted
        if not attempt.is_accepted:
            # Twice in a row: the first poll may run before OpenClaw has written the message.
            self.is_processed = False if was_missing else None
        elif (has_failed and is_same_run) or _is_over(history, attempt.run_id):
            self.is_processed = True
        elif history.is_live(attempt.run_id) or history.has_unnamed_run:
            self._wait_s, self._recovery_deadline = self._timeouts.run_poll_s, None
        else:  # OpenClaw was restarted, and resumes the turn under a run id of its own
            now = anyio.current_time()
            self._recovery_deadline = self._recovery_deadline or now + self._timeouts.recovery_s
            if now >= self._recovery_deadline:
                # It is in the transcript, so the agent reads it in its next turn at the latest.
                self.is_processed = True


async def _send(connection: GatewayConnection, params: JsonObject) -> None:
    """Send a message and wait until OpenClaw accepts it, not for the end of its turn.

    Raises: AgentUnavailable (it may have been accepted), AgentFailed (it was refused).
    """
    # A subscription without events: it receives the responses, and the loss of the connection.
    with connection.subscribe(EventFilter(frozenset())) as subscription:
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


def _agent_params(message: SessionMessage, run_id: str, session: SessionInfo) -> JsonObject:
    """The parameters of `agent`.

    In a session with an external chat the agent's reply is also sent there, as OpenClaw does with
    the results of its own sub-agents.
    """
    key = message.session_key.lower()
    route = session.route
    return {
        "agentId": session_agent_id(key),
        "sessionKey": key,
        "message": escape_command(message.text),
        "idempotencyKey": run_id,
        "inputProvenance": _input_provenance(message.source_tool, message.source_session),
        **({"deliver": False} if route is None else route.params),
    }


def _input_provenance(tool: str, session_key: SessionKey) -> JsonObject:
    """Where a message comes from, as OpenClaw stores it; it refuses any other member."""
    known = {"sourceSessionKey": session_key, "sourceTool": tool}
    return {"kind": "inter_session", **{name: value for name, value in known.items() if value}}


def _run_id(message: SessionMessage, losses: int) -> str:
    """The run id of the message after it was lost so many times."""
    return f"{DELIVERY_PREFIX}{message.id}" + (f"-again-{losses}" if losses else "")


def _find_attempt(message: SessionMessage, history: SessionHistory) -> _Attempt:
    run_ids = [_run_id(message, losses) for losses in range(_MAX_RUN_IDS)]
    # The last accepted one counts: earlier ids belong to deliveries that were lost.
    for run_id in reversed(run_ids):
        if history.is_accepted(run_id) or history.is_live(run_id):
            return _Attempt(run_id, is_accepted=True)
    usable = (run_id for run_id in run_ids if not history.is_dropped(run_id))
    return _Attempt(next(usable, run_ids[-1]), is_accepted=False)


def _is_over(history: SessionHistory, run_id: str) -> bool:
    """True when the session's agent has answered or failed, also in a resumed run."""
    resumed = history.find_recovery(run_id)
    runs = [run_id, *([resumed] if resumed else [])]
    return history.failure_reason(run_id) is not None or any(map(history.has_answer, runs))
