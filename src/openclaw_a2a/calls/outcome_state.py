"""State machine of one outcome on its way to the caller, and the callers that wait for one.

What the outcome is (an answer, a failure, a timeout) is decided by `outcome.decide_status`.

The stored `Call` is the truth, and `OutcomeStates` adds what only this process knows. Invariant:

- A stored call is PENDING, OFFERED, QUEUED, PROCESSING or DONE (`stored_state`). After a crash
  every delivery continues from there.
- WRITTEN, CLAIMED, SENDING and ACCEPTED exist in memory only and refine a stored state
  (`_REFINES`). An entry that does not refine the stored state is stale, because another replica was
  faster, and is ignored.
- Only SENDING talks to the caller's host, and only the end of the attempt leaves SENDING and
  ACCEPTED. So an outcome is either sent, or handed to a caller that waits or polls, never both.
- A durable step is committed first and taken here afterwards (`OutcomeDelivery`). A crash between
  the two repeats the step; the caller's host recognises a repeated message by its id.
- The exception is an answer that came in time: it settles the call in the repository's cache, and
  "stored" includes that. After a crash the same follows from the callee's task.
"""

import asyncio
from collections.abc import Generator, Mapping, Set
from contextlib import contextmanager, suppress
from datetime import datetime
from enum import Enum

from openclaw_a2a.calls.outcome import CalleeTask
from openclaw_a2a.model.call import Call, CallId, CallStatus, OutcomeRoute
from openclaw_a2a.model.ids import SessionKey

_RESULT_WAIT_S = 0.25  # how long an attempt waits for a result before it ends and is woken later
_SETTLE_GRACE_S = 5.0
"""How long after the deadline of its call a waiting caller is answered at the latest.

The attempt at the deadline answers it, also when the store fails. This is for a store that does
not answer at all.
"""

Settled = tuple[Call, CalleeTask]
Postponed = str
"""Why a waiting caller has to get the outcome later."""

_STOPPING: Postponed = "the gateway stops"
_UNSETTLED: Postponed = "the call is not lost, but the store has not taken its outcome in time"


class WaitingCaller:
    """One tool invocation that blocks until its calls are settled."""

    def __init__(self, *, accepts_timeouts: bool) -> None:
        self.accepts_timeouts = accepts_timeouts
        """True when the tool's result reports timeouts too; otherwise these are sent later."""
        self.offered: set[CallId] = set()
        """Calls whose outcome is part of the result, which is not written yet."""
        self.watched: set[CallId] = set()
        """Those of them whose delivery attempt waits for the result; the others need a wake-up."""
        self.write_deadline: datetime | None = None
        """When the result must have been written; None while the tool runs."""
        self.is_over = asyncio.Event()
        """Set when the result is written, or will never be."""

    async def wait_over(self, call_id: CallId) -> None:
        """Wait until the result is written or lost, but not for long.

        Most results are written at once, and then one attempt settles a call and records that its
        caller has the outcome. A batch may take minutes: its attempts end and are woken later.
        """
        self.watched.add(call_id)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_RESULT_WAIT_S):
                    await self.is_over.wait()
        finally:
            self.watched.discard(call_id)


class Waiters:
    """Callers blocked on `wait: true`.

    An outcome belongs to a waiting caller once the tool's result was written to its connection.
    Until then the call stays undelivered, so that a caller that disconnects, or a gateway that
    dies, loses nothing: the outcome is sent to the caller instead.
    """

    def __init__(self) -> None:
        self._waiting: dict[CallId, tuple[WaitingCaller, asyncio.Future[Settled | Postponed]]] = {}
        self._is_closed = False

    @contextmanager
    def expect(self, waiter: WaitingCaller, call_id: CallId) -> Generator[None]:
        """Offer the outcome of a call to a waiting caller only, within the block.

        Enter the block before the call is accepted, because its callee may answer at once. The
        outcome is delivered when the result is written (`OutcomeDelivery.mark_written`), and sent
        when the caller disconnects before.
        """
        if not self._is_closed:
            settled: asyncio.Future[Settled | Postponed]
            settled = asyncio.get_running_loop().create_future()
            self._waiting[call_id] = waiter, settled
        try:
            yield
        finally:
            self._waiting.pop(call_id, None)

    async def wait(self, call: Call) -> Settled | Postponed:
        """Wait until an expected call is settled, or its caller is released.

        A caller that is released counts as one that does not wait: `find` does not return it any
        more, so that the outcome is delivered to it by the route of its call.
        """
        _, settled = self._waiting.get(call.id, (None, None))
        if settled is None:
            return _STOPPING
        limit_s = call.timeout_ms / 1000 + _SETTLE_GRACE_S
        timer = asyncio.get_running_loop().call_later(limit_s, self.release, call.id, _UNSETTLED)
        try:
            return await settled
        finally:
            timer.cancel()

    def find(self, call_id: CallId, status: CallStatus) -> WaitingCaller | None:
        """The waiting caller whose result will report this outcome."""
        waiter, settled = self._waiting.get(call_id, (None, None))
        if waiter is None or settled is None or settled.done():
            return None
        return waiter if waiter.accepts_timeouts or status is not CallStatus.TIMEOUT else None

    def resolve(self, call: Call, task: CalleeTask) -> None:
        """Wake the caller that waits for a call which is settled now."""
        # Only for a durable outcome: the call is stored as settled, or its callee's stored task
        # determines it. A caller must not report an outcome that a crash takes back.
        _, settled = self._waiting.get(call.id, (None, None))
        if settled is not None and not settled.done():
            settled.set_result((call, task))

    def close(self) -> None:
        """Release all waiters: the gateway stops, and sends later outcomes after its restart."""
        self._is_closed = True
        self.release_all(_STOPPING)

    def release_all(self, reason: Postponed) -> None:
        """Answer all callers that wait now that the outcome comes later."""
        for call_id in self._waiting:
            self.release(call_id, reason)

    def release(self, call_id: CallId, reason: Postponed) -> None:
        """Answer the caller that waits for a call, if one does, that the outcome comes later."""
        _, settled = self._waiting.get(call_id, (None, None))
        if settled is not None and not settled.done():
            settled.set_result(reason)


class OutcomeState(Enum):
    """Where an outcome is.

    PENDING     the call has no outcome yet
    OFFERED     part of the result of a caller that waits; the result is not written yet
    WRITTEN     that result is written, which is not recorded yet
    CLAIMED     an `agent_poll` reports it, which is not recorded yet
    QUEUED      waits to be sent to the caller's session or webhook
    SENDING     an attempt to send it is under way
    ACCEPTED    the caller's host has it, which is not recorded yet
    PROCESSING  the caller's host has it; the caller's agent has not finished its turn about it
    DONE        the caller has it, or it is never delivered
    """

    PENDING = "pending"
    OFFERED = "offered"
    WRITTEN = "written"
    CLAIMED = "claimed"
    QUEUED = "queued"
    SENDING = "sending"
    ACCEPTED = "accepted"
    PROCESSING = "processing"
    DONE = "done"

    __hash__ = object.__hash__  # members are single objects; hashing their names costs a call


class OutcomeEvent(Enum):
    """What happens to an outcome on its way."""

    SETTLED = "settled"
    SETTLED_FOR_WAITER = "settled-for-waiter"
    SETTLED_UNROUTED = "settled-unrouted"
    RESULT_WRITTEN = "result-written"
    RESULT_RECORDED = "result-recorded"
    WAITER_LOST = "waiter-lost"
    CLAIM_STARTED = "claim-started"
    CLAIM_RECORDED = "claim-recorded"
    POLLED = "polled"
    ATTEMPT_STARTED = "attempt-started"
    ATTEMPT_FAILED = "attempt-failed"
    ACCEPTED_BY_HOST = "accepted-by-host"
    ACCEPTANCE_RECORDED = "acceptance-recorded"
    ACCEPTED_BY_WEBHOOK = "accepted-by-webhook"
    SESSION_GONE = "session-gone"
    PROCESSED = "processed"
    LOST_BY_HOST = "lost-by-host"
    LOST_WITH_ANSWER = "lost-with-answer"

    __hash__ = object.__hash__


_S, _E = OutcomeState, OutcomeEvent

TRANSITIONS: Mapping[tuple[OutcomeState, OutcomeEvent], OutcomeState] = {
    # The callee's task ended, or the deadline passed.
    (_S.PENDING, _E.SETTLED): _S.QUEUED,
    (_S.PENDING, _E.SETTLED_FOR_WAITER): _S.OFFERED,
    (_S.PENDING, _E.SETTLED_UNROUTED): _S.DONE,
    # The caller waits: it has the outcome when the result is written to its connection.
    (_S.OFFERED, _E.RESULT_WRITTEN): _S.WRITTEN,
    (_S.OFFERED, _E.WAITER_LOST): _S.QUEUED,
    (_S.WRITTEN, _E.RESULT_RECORDED): _S.DONE,
    # The caller polls: no attempt may start while that is being recorded.
    (_S.PENDING, _E.CLAIM_STARTED): _S.CLAIMED,
    (_S.OFFERED, _E.CLAIM_STARTED): _S.CLAIMED,
    (_S.QUEUED, _E.CLAIM_STARTED): _S.CLAIMED,
    (_S.CLAIMED, _E.RESULT_WRITTEN): _S.CLAIMED,
    (_S.CLAIMED, _E.CLAIM_RECORDED): _S.DONE,
    (_S.PROCESSING, _E.POLLED): _S.DONE,
    (_S.DONE, _E.POLLED): _S.DONE,
    # The outcome is sent.
    (_S.QUEUED, _E.ATTEMPT_STARTED): _S.SENDING,
    (_S.SENDING, _E.ATTEMPT_FAILED): _S.QUEUED,
    (_S.SENDING, _E.ACCEPTED_BY_HOST): _S.ACCEPTED,
    (_S.ACCEPTED, _E.ATTEMPT_FAILED): _S.QUEUED,
    (_S.ACCEPTED, _E.ACCEPTANCE_RECORDED): _S.PROCESSING,
    (_S.SENDING, _E.ACCEPTED_BY_WEBHOOK): _S.DONE,
    (_S.SENDING, _E.SESSION_GONE): _S.DONE,
    # The caller's agent works on it, or its host restarted and lost it.
    (_S.PROCESSING, _E.PROCESSED): _S.DONE,
    (_S.PROCESSING, _E.LOST_BY_HOST): _S.QUEUED,
    (_S.PROCESSING, _E.LOST_WITH_ANSWER): _S.DONE,
}

# Which stored states each state in memory may stand on. `state_of` ignores an entry that stands on
# another one: two replicas share the records, and the one that commits first is right.
_REFINES: Mapping[OutcomeState, Set[OutcomeState]] = {
    _S.WRITTEN: {_S.OFFERED},
    _S.CLAIMED: {_S.PENDING, _S.OFFERED, _S.QUEUED},
    _S.SENDING: {_S.QUEUED},
    _S.ACCEPTED: {_S.QUEUED},
}

_ATTEMPTING = (_S.SENDING, _S.ACCEPTED)
"""The states that the end of an attempt leaves."""


def stored_state(call: Call) -> OutcomeState:
    """The state by the stored call alone, as after a restart."""
    if call.status is CallStatus.PENDING:
        return _S.PENDING
    if call.route is OutcomeRoute.NONE or call.discarded_at is not None:
        return _S.DONE
    if call.delivered_at is None:
        return _S.OFFERED if call.route is OutcomeRoute.WAITED else _S.QUEUED
    is_unprocessed = call.route is OutcomeRoute.SESSION and call.seen_at is None
    return _S.PROCESSING if is_unprocessed else _S.DONE


class _Entry:
    __slots__ = (
        "before_claim",
        "is_unrecorded",
        "is_unsent",
        "session_key",
        "state",
        "waiter",
        "waits_for_earlier",
        "was_refused",
    )

    def __init__(self, state: OutcomeState, session_key: SessionKey | None) -> None:
        self.state = state
        self.session_key = session_key
        self.before_claim = state
        self.is_unsent = False
        self.waits_for_earlier = False
        """True when its last attempt ended because another outcome has to go first."""
        self.is_unrecorded = False
        """True when the host had it before, and the store could not take that."""
        self.was_refused = False
        self.waiter: WaitingCaller | None = None


class OutcomeStates:
    """The only owner of delivery state in memory."""

    def __init__(self) -> None:
        self._entries: dict[CallId, _Entry] = {}
        self.in_sessions: dict[SessionKey, set[CallId]] = {}
        """By session, the calls whose outcomes it may be working on right now."""

    def state_of(self, call: Call) -> OutcomeState:
        """The state of a call's outcome."""
        stored, entry = stored_state(call), self._entries.get(call.id)
        if entry is not None and stored in _REFINES.get(entry.state, ()):
            return entry.state
        return stored

    def next_state(self, call: Call, event: OutcomeEvent) -> OutcomeState | None:
        """Where an event leads; None when it changes nothing in the present state."""
        return TRANSITIONS.get((self.state_of(call), event))

    def advance(self, call: Call, event: OutcomeEvent) -> bool:
        """Take a step that needs no commit; False when the event does not apply now."""
        state = self.next_state(call, event)
        if state is not None:
            self.enter(call, state)
        return state is not None

    def enter(self, call: Call, state: OutcomeState) -> None:
        """Take a step that is committed."""
        if state in (_S.PENDING, _S.DONE) or stored_state(call) is _S.DONE:
            # Memory holds only outcomes that are on their way; everything else is in the record.
            self.forget(call.id)
            return
        session_key = call.caller.session_key
        entry = self._entries.get(call.id)
        if entry is None:
            entry = self._entries[call.id] = _Entry(state, session_key)
        entry.state = state
        is_sending = state in _ATTEMPTING and call.route is OutcomeRoute.SESSION
        # From before the message is sent: the session's agent may call others at once.
        if (is_sending or state is _S.PROCESSING) and session_key is not None:
            self.in_sessions.setdefault(session_key, set()).add(call.id)
        elif session_key in self.in_sessions:
            self._leave_session(call.id, session_key)

    def forget_all(self) -> None:
        """Go back to what is stored: other replicas deliver all of it now."""
        for call_id in list(self._entries):
            self.forget(call_id)

    def forget(self, call_id: CallId) -> None:
        """Go back to what is stored."""
        entry = self._entries.pop(call_id, None)
        if entry is not None:
            self._leave_session(call_id, entry.session_key)
            if entry.waiter is not None:
                entry.waiter.offered.discard(call_id)

    def _leave_session(self, call_id: CallId, session_key: SessionKey | None) -> None:
        working = None if session_key is None else self.in_sessions.get(session_key)
        if working is not None and session_key is not None:
            working.discard(call_id)
            if not working:
                del self.in_sessions[session_key]

    # ---------------------------------------------------------------- waiting callers

    def settle(
        self,
        call: Call,
        event: OutcomeEvent,
        waiter: WaitingCaller | None,
        *,
        is_unsent: bool = True,
    ) -> None:
        """This process has decided the outcome; `is_unsent`: no other can have sent it before."""
        self.enter(call, TRANSITIONS[_S.PENDING, event])
        entry = self._entries.get(call.id)
        if entry is not None:
            entry.is_unsent = is_unsent
            entry.waiter = waiter
            if waiter is not None:
                waiter.offered.add(call.id)

    def waiter_of(self, call: Call) -> WaitingCaller | None:
        """The caller whose result holds the outcome; None after a restart."""
        entry = self._entries.get(call.id)
        return None if entry is None else entry.waiter

    def mark_written(self, call: Call) -> bool:
        """The result with this outcome is written; True when its delivery has to be woken."""
        entry = self._entries.get(call.id)
        if entry is None or entry.waiter is None:
            return False
        if entry.state is _S.CLAIMED and entry.before_claim is _S.OFFERED:
            # A poll is being recorded. If that fails, the outcome must become WRITTEN.
            entry.before_claim = _S.WRITTEN
        # The state before the event: an attempt that the event wakes reads the state.
        is_written = self.advance(call, _E.RESULT_WRITTEN)
        entry.waiter.is_over.set()
        return is_written and call.id not in entry.waiter.watched

    # ---------------------------------------------------------------- polls

    def start_claim(self, call: Call) -> bool:
        """Keep the outcome from being sent while a poll is recorded; False when it is too late."""
        before = self.state_of(call)
        if not self.advance(call, _E.CLAIM_STARTED):
            return False
        self._entries[call.id].before_claim = before
        return True

    def abort_claim(self, call: Call) -> None:
        """The poll could not be recorded, if it still is not."""
        entry = self._entries.get(call.id)
        if entry is not None and entry.state is _S.CLAIMED:
            self.enter(call, entry.before_claim)

    # ---------------------------------------------------------------- attempts

    def start_sending(self, call: Call) -> bool:
        """Mark the outcome as sent from now on; True when no earlier attempt can have sent it."""
        entry = self._entries.get(call.id)
        if entry is None:
            return False
        # Only a first attempt may skip the search of the caller's history for the same message. An
        # outcome found after a restart has no entry: the process before may have sent it.
        is_first, entry.is_unsent = entry.is_unsent, False
        return is_first

    def end_attempt(self, call: Call, *, was_refused: bool = False) -> None:
        """The attempt failed, if it still runs; later outcomes may overtake a refused one."""
        entry = self._entries.get(call.id)
        if entry is not None and entry.state in _ATTEMPTING:
            entry.was_refused |= was_refused
            entry.is_unrecorded |= entry.state is _S.ACCEPTED
            self.enter(call, TRANSITIONS[entry.state, _E.ATTEMPT_FAILED])

    # ---------------------------------------------------------------- order within a session

    def may_be_overtaken(self, call: Call) -> bool:
        """True when later outcomes of its session need not wait: the host has it, or refused it.

        When the host had it before and that could not be recorded, they wait until it is: a store
        that fails must not have all of them sent again and again.
        """
        entry = self._entries.get(call.id)
        if entry is None:
            return False
        return entry.was_refused or (entry.state is _S.ACCEPTED and not entry.is_unrecorded)

    def mark_waits_for_earlier(self, call: Call) -> None:
        """Its attempt ended because an earlier outcome has to reach the session first."""
        entry = self._entries.get(call.id)
        if entry is None:
            entry = self._entries[call.id] = _Entry(_S.QUEUED, call.caller.session_key)
        entry.waits_for_earlier = True

    def end_wait_for_earlier(self, call: Call) -> bool:
        """True, once, when the outcome has to be woken because none is before it any more."""
        entry = self._entries.get(call.id)
        if entry is None or not entry.waits_for_earlier:
            return False
        entry.waits_for_earlier = False
        return True
