"""Notes for sessions of an OpenClaw: what another agent answered, as a turn of the asking one.

OpenClaw forgets the names of its runs when it restarts, and with them any note that still waited
for a busy session. So each note's runs have names made from its id, by which the session's
history tells what became of it, and one that was lost is given again under its next name.
"""

from collections.abc import Callable
from typing import Final

import anyio
import msgspec

from openclaw_a2a.agents.openclaw_gateway.connection import GatewayConnection
from openclaw_a2a.agents.openclaw_gateway.protocol import ErrorPayload, RunOutcome, request_error
from openclaw_a2a.agents.openclaw_gateway.run_lookup import RunHistory, read_run_history
from openclaw_a2a.agents.openclaw_gateway.run_registry import DELIVERY_PREFIX
from openclaw_a2a.agents.openclaw_gateway.run_request import Timeouts, escape_command
from openclaw_a2a.agents.openclaw_gateway.sessions import (
    SessionInfo,
    announce_params,
    find_session,
    session_agent_id,
)
from openclaw_a2a.agents.openclaw_gateway.subscription import (
    ConnectionLost,
    EventFilter,
    ResponseReceived,
)
from openclaw_a2a.model.errors import AgentError, AgentFailed, AgentUnavailable
from openclaw_a2a.model.ids import JsonObject, SessionKey
from openclaw_a2a.model.turn import Provenance
from openclaw_a2a.ports import DeliveryFailed, MessageAccepted, SessionGone, SessionMessage

_TAKE_S: Final = 30.0
_ASK_S: Final = 30.0
_BREATH_S: Final = 0.2
_MOST_LOSSES: Final = 20
"""So often a note may be lost before we stop giving it a new name."""


async def provenance_params(
    link: GatewayConnection, session_key: str, asker: Provenance | None
) -> JsonObject:
    """What `agent` is told of the agent of ours that asks, and whether to announce the answer."""
    if asker is None:
        return {}
    route = await announce_params(link, session_key) if asker.may_announce else {"deliver": False}
    return {"inputProvenance": _source(asker.tool, asker.session_key), **route}


class _Place(msgspec.Struct, frozen=True):
    """The run under which a note is in its session, or may be put there."""

    run_id: str
    is_there: bool


class SessionDelivery:
    """Puts notes into sessions, each once, and tells when they were dealt with."""

    def __init__(
        self, use: Callable[[], GatewayConnection], *, connect_s: float, patience: Timeouts
    ) -> None:
        self._use = use
        self._connect_s = connect_s
        self._patience = patience

    # ---------------------------------------------------------------- giving

    async def deliver(self, note: SessionMessage) -> MessageAccepted | SessionGone | DeliveryFailed:
        """Put the note into its session; OpenClaw queues it while a turn is under way there."""
        try:
            link = self._use()
            await link.wait_connected(self._connect_s)
            return await self._hand_over(link, note)
        except AgentError as error:
            return DeliveryFailed(error.message, is_refused=isinstance(error, AgentFailed))

    async def _hand_over(
        self, link: GatewayConnection, note: SessionMessage
    ) -> MessageAccepted | SessionGone:
        key = note.session_key.lower()
        session = await find_session(link, key)
        if session is None:
            return SessionGone(f"OpenClaw has no session {key} any more.")
        place = _Place(_run_of(note, 0), is_there=False)
        if not note.is_first_attempt:
            place = _place_of(note, await read_run_history(link, key))
        if not place.is_there:
            await _give(link, _params(note, place.run_id, session))
        return MessageAccepted()

    # ---------------------------------------------------------------- waiting

    async def wait_processed(self, note: SessionMessage) -> bool:
        """Wait until the note's turn has ended, however often the connection breaks.

        False: the note is not in its session (any more), so that it may be given again; or
        OpenClaw stayed out of reach.
        """
        watch = _Watch(self._use(), note, self._patience)
        try:
            while watch.is_seen is None:
                await watch.look()
        except AgentError:
            return False
        return watch.is_seen


class _Watch:
    """Looks after one note: `look` until `is_seen` is known."""

    def __init__(self, link: GatewayConnection, note: SessionMessage, patience: Timeouts) -> None:
        self.is_seen: bool | None = None
        self._link = link
        self._note = note
        self._patience = patience
        self._run_id = _run_of(note, 0)
        self._wait_s = patience.lookup_poll_s
        self._gives_up_at: float | None = None
        self._recovers_until: float | None = None
        self._is_missing = False
        """True when it was not found the last time: one that was just given may take a moment."""

    async def look(self) -> None:
        """Wait for the turn for a while, and see where it is when it has not ended.

        Raises: AgentUnavailable (OpenClaw stays out of reach), AgentFailed.
        """
        if self._is_missing:
            await anyio.sleep(_BREATH_S)
        await self._link.wait_connected(self._patience.reconnect_s)
        try:
            outcome = await self._outcome()
            if outcome.status == "ok" or outcome.is_stopped:
                self.is_seen = True
                return
            history = await read_run_history(self._link, self._note.session_key.lower())
        except AgentUnavailable:
            await self._bear_with()
            return
        self._gives_up_at = None
        self._judge(history, has_failed=outcome.status == "error")

    async def _outcome(self) -> RunOutcome:
        params: JsonObject = {"runId": self._run_id, "timeoutMs": int(self._wait_s * 1000)}
        return await self._link.read(
            RunOutcome, "agent.wait", params, timeout_s=self._wait_s + _ASK_S
        )

    async def _bear_with(self) -> None:
        """The connection broke, or OpenClaw is too busy: after a while it is asked again."""
        now, self._wait_s = anyio.current_time(), self._patience.lookup_poll_s
        self._gives_up_at = self._gives_up_at or now + self._patience.reconnect_s
        if now >= self._gives_up_at:
            raise AgentUnavailable("OpenClaw does not tell what became of a note; look at its log.")
        await anyio.sleep(_BREATH_S)

    def _judge(self, history: RunHistory, *, has_failed: bool) -> None:
        place = _place_of(self._note, history)
        is_here = place.run_id == self._run_id
        self._run_id, self._wait_s = place.run_id, self._patience.lookup_poll_s
        is_missed, self._is_missing = self._is_missing, not place.is_there
        if not place.is_there:
            self.is_seen = False if is_missed else None
        elif (has_failed and is_here) or _is_over(history, place.run_id):
            self.is_seen = True
        elif history.is_live(place.run_id) or history.is_vague:
            self._wait_s, self._recovers_until = self._patience.run_poll_s, None
        else:  # OpenClaw was restarted, and goes on with the turn under a name of its own
            self._await_recovery()

    def _await_recovery(self) -> None:
        now = anyio.current_time()
        self._recovers_until = self._recovers_until or now + self._patience.recovery_s
        if now >= self._recovers_until:  # it is in the transcript: the next turn has it before it
            self.is_seen = True


async def _give(link: GatewayConnection, params: JsonObject) -> None:
    """Have OpenClaw take a message, and leave it to that; the answer to it comes much later.

    Raises: AgentUnavailable (it may have been taken), AgentFailed (it was refused).
    """
    with link.subscribe(EventFilter(frozenset())) as listening:
        asked = await link.post("agent", params, listening)
        with anyio.move_on_after(_TAKE_S):
            while not isinstance(heard := await listening.next(), ConnectionLost):
                if isinstance(heard, ResponseReceived) and heard.request_id == asked:
                    if heard.frame.ok:
                        return
                    raise request_error("the answer to a call", heard.frame.error or ErrorPayload())
            raise AgentUnavailable(
                link.unavailable_reason() or "The connection to OpenClaw broke; try again."
            )
    raise AgentUnavailable(
        f"OpenClaw at {link.address.url} did not take the answer to a call within {_TAKE_S:g}"
        " seconds; look at its log."
    )


def _params(note: SessionMessage, run_id: str, session: SessionInfo) -> JsonObject:
    """What `agent` is asked for.

    Whoever talks with the session in a chat reads there what its agent says to the note, as they
    do with the results of OpenClaw's own sub-agents; other sessions have nobody to send it to.
    """
    key = note.session_key.lower()
    route = session.route
    return {
        "agentId": session_agent_id(key),
        "sessionKey": key,
        "message": escape_command(note.text),
        "idempotencyKey": run_id,
        "inputProvenance": _source(note.source_tool, note.source_session),
        **({"deliver": False} if route is None else route.params),
    }


def _source(tool: str, session_key: SessionKey) -> JsonObject:
    """Where a message comes from, as OpenClaw keeps it; it refuses whatever else one may add."""
    known = {"sourceSessionKey": session_key, "sourceTool": tool}
    return {"kind": "inter_session", **{name: value for name, value in known.items() if value}}


def _run_of(note: SessionMessage, losses: int) -> str:
    """The name of the note's run after it was lost so often."""
    return f"{DELIVERY_PREFIX}{note.id}" + (f"-again-{losses}" if losses else "")


def _place_of(note: SessionMessage, history: RunHistory) -> _Place:
    names = [_run_of(note, losses) for losses in range(_MOST_LOSSES)]
    for run_id in reversed(names):
        if history.is_taken(run_id) or history.is_live(run_id):
            return _Place(run_id, is_there=True)
    kept = (run_id for run_id in names if not history.is_dropped(run_id))
    return _Place(next(kept, names[-1]), is_there=False)


def _is_over(history: RunHistory, run_id: str) -> bool:
    """True when the session's agent has answered, or failed to, also after a restart."""
    other = history.recovery_of(run_id)
    answers = [run_id, *([other] if other else [])]
    return history.failure_of(run_id) is not None or any(map(history.has_answer, answers))
