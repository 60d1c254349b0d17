"""Settles calls and brings what came of them to the callers, once each."""

from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from datetime import datetime, timedelta

import msgspec
import structlog

from openclaw_a2a.calls.book import CallBook
from openclaw_a2a.calls.line import Line, Lines
from openclaw_a2a.calls.outcome import decide, outcome_of, why_unanswered
from openclaw_a2a.calls.telling import told
from openclaw_a2a.model.call import KIND, Call, Caller, CallId, CallStatus, Route
from openclaw_a2a.model.delivery import Delivery, delivery_id
from openclaw_a2a.model.errors import AgentError, GatewayError
from openclaw_a2a.model.ids import JsonObject, SessionKey, TaskId
from openclaw_a2a.model.states import is_terminal
from openclaw_a2a.model.stored import StoredTask
from openclaw_a2a.ports import (
    Brought,
    Missed,
    NoteTaken,
    SessionGone,
    SessionNote,
    SessionSink,
)
from openclaw_a2a.runtime.engine import Engine
from openclaw_a2a.runtime.unanswered import end_unanswered, is_asking

log = structlog.get_logger(__name__)

SOURCE_TOOL = "agent_call"
_A_MOMENT = timedelta(milliseconds=20)
_BEFORE_AGAIN_S = 1.0
"""A host that takes a note and loses it over and over is not kept busy with it."""
FindSink = Callable[[SessionKey], SessionSink | None]
PostInbox = Callable[[Call, JsonObject], Awaitable[Missed | None]]
"""Tells a caller without a session that its outcome lies ready; None when it was told."""


class CallCourier:
    """Brings the outcomes of calls."""

    def __init__(
        self,
        engine: Engine,
        book: CallBook,
        *,
        find_sink: FindSink,
        post: PostInbox | None,
        look_at: Callable[[TaskId], None],
    ) -> None:
        """`look_at` has the outbox look at the deliveries of a task again."""
        self._engine = engine
        self._store = engine.store
        self._book = book
        self._find_sink = find_sink
        self._post = post
        self._now = engine.clock.now
        self._spawn = engine.spawn
        self._look_at = look_at
        self._clock = engine.clock
        self._lines = Lines(engine.clock.now)
        self._under_way: set[CallId] = set()
        """Calls whose outcome is being brought right now."""
        self._asking: set[TaskId] = set()
        """Tasks whose questions are being ended."""
        self._taken: list[CallId] = []
        """Calls whose outcome is being taken by who asked for it."""
        self._fresh: set[CallId] = set()
        """Calls whose outcome was decided in this life and never brought by anybody."""
        self.dealing: set[CallId] = set()
        """Calls whose outcome was brought, and whose callers are dealing with it."""

    def follow(self, call_id: CallId) -> Callable[[TaskId, int], Delivery]:
        """What makes the delivery of a call for its task."""

        def make(task_id: TaskId, cursor: int) -> Delivery:
            now = self._now()
            name = delivery_id(KIND, task_id, call_id)
            return Delivery(name, KIND, task_id, call_id.encode(), cursor, now, now, now)

        return make

    def can_reach(self, caller: Caller) -> bool:
        """True when the caller has a session that something can be put into."""
        return caller.session_key is not None and self._find_sink(caller.session_key) is not None

    # ---------------------------------------------------------------- as the outbox knows it

    def lane(self, delivery: Delivery) -> str:
        """The session that is to be told."""
        call = self._book.find(_call_id(delivery))
        return "" if call is None else call.caller.session_key or call.caller.name

    async def bring(self, delivery: Delivery) -> Brought | Missed | None:
        """Settle the call if its time has come, and bring what came of it."""
        stored = await self._store.read_task(None, delivery.task_id)
        self._answer_nothing(stored)
        is_ended = stored is None or is_terminal(stored.head.state)
        call = self._book.find(_call_id(delivery))
        if call is None:  # it was forgotten, and with it whom to tell
            return Brought(delivery.cursor, is_sent=False, is_over=is_ended)
        call = await self.settle(call, stored) or self._book.find(call.id) or call
        if not call.is_settled:
            return Brought(delivery.cursor, is_sent=False, again_at=call.deadline)
        again_at = await self._yield_to_caller(call)
        if again_at is not None:
            return Brought(delivery.cursor, is_sent=False, again_at=again_at)
        missed = await self._deliver_once(call.id, stored)
        if missed is not None:
            return missed
        self._fresh.discard(call.id)
        cursor = delivery.cursor if stored is None else stored.head.sequence
        return Brought(cursor, is_sent=cursor != delivery.cursor, is_over=is_ended)

    async def _yield_to_caller(self, call: Call) -> datetime | None:
        """When to look again, as long as the caller itself may hear or take the outcome."""
        if call.id in self._taken:
            return self._now() + _A_MOMENT
        if call.route is not Route.WAITED or not call.is_undelivered:
            return None
        told_by = self._lines.told_by(call.id)
        if self._lines.is_told(call.id):
            await self._book.change(call.id, self.seen)
        elif told_by is not None and told_by > self._now():
            return told_by
        else:  # it hung up, or it lost an earlier life of this gateway
            await self._book.change(call.id, self._unwaited)
            if told_by is not None:
                self._fresh.discard(call.id)  # it may have heard it in its last moment
        self._lines.forget(call.id)
        return None

    async def _deliver_once(self, call_id: CallId, stored: StoredTask | None) -> Missed | None:
        call = self._book.find(call_id)
        if call is None or not call.is_undelivered:
            return None
        self._under_way.add(call.id)
        try:
            return await self._deliver(call, stored)
        finally:
            self._under_way.discard(call.id)

    # ---------------------------------------------------------------- questions

    def _answer_nothing(self, stored: StoredTask | None) -> None:
        """A callee that asks back waits for nobody: its task ends with the question."""
        if stored is not None and is_asking(stored) and stored.head.id not in self._asking:
            self._asking.add(stored.head.id)
            self._spawn(self._end_question(stored.head.id))

    async def _end_question(self, task_id: TaskId) -> None:
        try:
            await end_unanswered(self._engine, task_id, why_unanswered)
        except GatewayError as error:
            log.warning("question-not-ended", task_id=task_id, reason=error.message)
            await self._clock.sleep(_BEFORE_AGAIN_S)
        finally:
            self._asking.discard(task_id)
            self._look_at(task_id)

    # ---------------------------------------------------------------- settling

    async def settle(self, call: Call, stored: StoredTask | None) -> Call | None:
        """Decide the outcome of a call, if it can be decided now; the call as it is then."""
        decided = None if call.is_settled else decide(call, stored, self._now())
        if decided is None:
            return None
        changed = await self._book.change(call.id, lambda known: self._settled(known, decided))
        if changed is not None:
            self._fresh.add(call.id)
            log.info("call-settled", call_id=call.id, callee=call.callee, status=decided.value)
        settled = changed or self._book.find(call.id)
        if settled is not None:
            self._lines.answer(settled)
        return settled

    def _settled(self, call: Call, status: CallStatus) -> Call | None:
        if call.is_settled:
            return None
        now, route = self._now(), call.route
        if route is not Route.NONE and self._lines.wants(call.id, status):
            route = Route.WAITED
        changed = msgspec.structs.replace(call, status=status, settled_at=now, route=route)
        if route is Route.INBOX and self._post is None:
            return msgspec.structs.replace(changed, delivered_at=now)
        return changed

    async def take(self, call: Call, stored: StoredTask | None) -> Call:
        """The caller has asked for the outcome itself: then it needs no message any more."""
        decided = decide(call, stored, self._now())
        is_ended = stored is None or is_terminal(stored.head.state)

        def edit(known: Call) -> Call | None:
            settled = known if decided is None else self._settled(known, decided) or known
            is_shown = is_ended or settled.status is CallStatus.TIMEOUT
            is_late = call.id in self._under_way or not settled.is_settled
            return None if is_late or not is_shown else self.seen(settled)

        self._taken.append(call.id)
        try:
            await self._book.change(call.id, edit)
        finally:
            self._taken.remove(call.id)
        taken = self._book.find(call.id) or call
        if taken.is_settled:
            self._lines.answer(taken)  # who waits for it at the same time hears it as well
        return taken

    def _unwaited(self, call: Call) -> Call:
        """The call as if nobody had waited for it."""
        route = Route.SESSION if self.can_reach(call.caller) else Route.INBOX
        brought_at = call.settled_at if route is Route.INBOX and self._post is None else None
        return msgspec.structs.replace(call, route=route, delivered_at=brought_at)

    @contextmanager
    def line(self, *, takes_timeouts: bool = False) -> Generator[Line]:
        """A line for one tool; `takes_timeouts`: its result tells these, too.

        Whoever leaves it by an exception has heard nothing of what was answered on it.
        """
        with self._lines.open(takes_timeouts=takes_timeouts) as line:
            try:
                yield line
            except BaseException:
                self._look_at_all(list(line.answered))
                raise

    async def wait(self, line: Line, call: Call) -> Call | None:
        """Stay on the line until the call is settled; None when the gateway stops before.

        While somebody does, an answer goes to them and to nobody else, unless they leave before
        it was written out to them (`note_told`).
        """
        known = self._book.find(call.id) or call
        return known if known.is_settled else await self._lines.wait(line, call.id)

    def note_told(self, call_ids: Iterable[CallId]) -> None:
        """The outcomes of these calls were written out to who waited for them."""
        self._look_at_all(self._lines.note_told(call_ids))

    def _look_at_all(self, call_ids: Iterable[CallId]) -> None:
        for call in filter(None, map(self._book.find, call_ids)):
            self._look_at(call.task_id)

    def hang_up(self) -> None:
        """The gateway stops: nobody waits any longer, and what comes is brought later."""
        self._lines.cut()

    # ---------------------------------------------------------------- bringing

    async def _deliver(self, call: Call, stored: StoredTask | None) -> Missed | None:
        message = told(call, outcome_of(stored))
        if call.route is Route.INBOX:
            missed = None if self._post is None else await self._post(call, message)
            if missed is None:
                await self._book.change(call.id, self._brought)
            return missed
        session_key = call.caller.session_key
        sink = None if session_key is None else self._find_sink(session_key)
        if sink is None or session_key is None:
            return Missed("no agent of this gateway reaches the caller's session")
        note = SessionNote(
            id=call.id,
            session_key=session_key,
            text=msgspec.json.encode(message).decode(),
            source_tool=SOURCE_TOOL,
            source_session=call.session_key,
            is_fresh=call.id in self._fresh,
        )
        self._fresh.discard(call.id)
        return await self._hand_over(call, sink, note)

    async def _hand_over(self, call: Call, sink: SessionSink, note: SessionNote) -> Missed | None:
        self.dealing.add(call.id)  # before it is there: the session may call at once
        try:
            result = await sink.hand_over(note)
        except AgentError as error:
            result = Missed(error.message)
        if not isinstance(result, NoteTaken):
            self.dealing.discard(call.id)
        if isinstance(result, NoteTaken):
            await self._book.change(call.id, self._brought)
            self._spawn(self._see(call.id, sink, note))
        elif isinstance(result, SessionGone):
            reason = result.reason
            await self._book.change(call.id, lambda known: self._discarded(known, reason))
            log.warning("call-discarded", call_id=call.id, callee=call.callee, reason=reason)
        else:
            return result
        return None

    def _brought(self, call: Call) -> Call | None:
        if call.delivered_at is not None:
            return None
        return msgspec.structs.replace(call, delivered_at=self._now(), reason=None)

    def _discarded(self, call: Call, reason: str) -> Call:
        return msgspec.structs.replace(
            call, status=CallStatus.DISCARDED, discarded_at=self._now(), reason=reason
        )

    # ---------------------------------------------------------------- seeing

    def watch_seen(self, call: Call) -> None:
        """Learn when a call that an earlier life brought has been dealt with."""
        session_key = call.caller.session_key
        sink = None if session_key is None else self._find_sink(session_key)
        if sink is not None and session_key is not None:
            note = SessionNote(
                call.id, session_key, "", SOURCE_TOOL, call.session_key, is_fresh=False
            )
            self._spawn(self._see(call.id, sink, note))

    async def _see(self, call_id: CallId, sink: SessionSink, note: SessionNote) -> None:
        self.dealing.add(call_id)
        try:
            is_seen = await self._learn(sink, note)
            while not await self._note_seen(call_id, is_seen=is_seen):
                await self._clock.sleep(_BEFORE_AGAIN_S)
        finally:
            self.dealing.discard(call_id)

    async def _learn(self, sink: SessionSink, note: SessionNote) -> bool:
        try:
            return await sink.until_seen(note)
        except AgentError as error:
            log.warning("note-not-followed", note_id=note.id, reason=error.message)
            return False

    async def _note_seen(self, call_id: CallId, *, is_seen: bool) -> bool:
        """Note that a call was seen, or lost by its host; False when that was not possible."""
        try:
            changed = await self._book.change(call_id, self.seen if is_seen else _lost)
        except GatewayError as error:
            log.warning("call-not-noted", call_id=call_id, reason=error.message)
            return False
        if changed is not None and not is_seen:
            await self._clock.sleep(_BEFORE_AGAIN_S)
            self._look_at(changed.task_id)
        return True

    def seen(self, call: Call) -> Call | None:
        """The call once its caller has seen what came of it."""
        if call.seen_at is not None:
            return None
        now = self._now()
        if call.discarded_at is not None:  # it was never brought: its caller came for it
            return msgspec.structs.replace(call, seen_at=now)
        return msgspec.structs.replace(call, seen_at=now, delivered_at=call.delivered_at or now)


def _lost(call: Call) -> Call | None:
    """The call when its host lost what it had taken: it is brought again."""
    if call.delivered_at is None or call.seen_at is not None:
        return None
    return msgspec.structs.replace(call, delivered_at=None)


def _call_id(delivery: Delivery) -> CallId:
    return CallId(delivery.body.decode())
