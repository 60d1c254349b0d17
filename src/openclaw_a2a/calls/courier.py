"""Settles calls and brings what came of them to the callers, once each."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from datetime import datetime, timedelta

import msgspec
import structlog

from openclaw_a2a.calls.book import CallBook, settled_at
from openclaw_a2a.calls.line import Line, Lines
from openclaw_a2a.calls.outcome import Work, decide, why_unanswered
from openclaw_a2a.calls.seeing import FindSink, Seeing, discarded, note_of
from openclaw_a2a.calls.telling import told
from openclaw_a2a.model.call import KIND, Call, Caller, CallId, CallStatus, Route
from openclaw_a2a.model.delivery import Delivery, delivery_id
from openclaw_a2a.model.errors import AgentError, AgentFailed, GatewayError
from openclaw_a2a.model.ids import JsonObject, SessionKey, TaskId
from openclaw_a2a.model.stored import StoredTask
from openclaw_a2a.ports import (
    Brought,
    Missed,
    NoteTaken,
    SessionGone,
)
from openclaw_a2a.runtime.engine import Engine
from openclaw_a2a.runtime.fair import FairTurns
from openclaw_a2a.runtime.unanswered import end_unanswered, is_asking

log = structlog.get_logger(__name__)

_A_MOMENT = timedelta(milliseconds=20)
_BEFORE_AGAIN_S = 1.0
"""So long after it failed the end of a question is tried again."""
_BEHIND = timedelta(minutes=1)
"""Who waits for another outcome is woken when that is brought; at the latest it looks then."""
_IN_ORDER = timedelta(days=1)
"""An outcome that could not be brought for so long holds up no others."""
_TELLING_S = 30.0
_TOLD_AT_ONCE = 64
"""Calls are settled as their time comes; so many callers are told at the same time."""
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
        self._turns = FairTurns(_TOLD_AT_ONCE)
        self.seeing = Seeing(engine, book, find_sink=find_sink, look_at=look_at)
        """What becomes of outcomes that were brought."""
        self._aside: set[CallId] = set()
        """Calls whose outcomes a host refuses: others need not wait for them."""
        book.on_brought = self._wake_next
        self._under_way: set[CallId] = set()
        """Calls whose outcome is being brought right now."""
        self._asking: set[TaskId] = set()
        """Tasks whose questions are being ended."""
        self._taken: list[CallId] = []
        """Calls whose outcome is being taken by who asked for it."""
        self._fresh: set[CallId] = set()
        """Calls whose outcome was decided in this life and never brought by anybody."""

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
        return "" if call is None else _receiver(call)

    async def bring(self, delivery: Delivery) -> Brought | Missed | None:
        """Settle the call if its time has come, and bring what came of it."""
        call = self._book.find(_call_id(delivery))
        work = await self._work_on(delivery.task_id, call)
        self._answer_nothing(work.stored)
        if call is None:  # it was forgotten, and with it whom to tell
            return self._looked(delivery, work)
        call = await self.settle(call, work) or self._book.find(call.id) or call
        if not call.is_settled:
            return Brought(delivery.cursor, is_sent=False, again_at=call.deadline)
        if call.is_undelivered:
            result = await self._bring_outcome(call, work, is_again=delivery.attempts > 0)
            if isinstance(result, Missed):
                return result
            if result is not None:
                return Brought(delivery.cursor, is_sent=False, again_at=result)
        self._fresh.discard(call.id)
        return self._looked(delivery, work)

    def _looked(self, delivery: Delivery, work: Work) -> Brought:
        """Nothing is to be brought now, and nothing ever once the task has ended."""
        if not work.is_ended or work.stored is None:  # it is looked at again when it ends
            return Brought(delivery.cursor, is_sent=False, is_over=work.is_ended)
        cursor = work.stored.head.sequence
        return Brought(cursor, is_sent=cursor != delivery.cursor, is_over=True)

    async def _work_on(self, task_id: TaskId, call: Call | None) -> Work:
        """The callee's task; it is not read where that could tell nothing but that it runs."""
        live = self._engine.live.get(task_id)
        needs_answer = call is None or call.status not in (CallStatus.PENDING, CallStatus.TIMEOUT)
        if needs_answer or live is None or not live.is_at_work:
            return Work(await self._store.read_task(None, task_id))
        return Work(None, is_running=True)

    async def _bring_outcome(
        self, call: Call, work: Work, *, is_again: bool
    ) -> Missed | datetime | None:
        """Bring an outcome, once; why that failed, or when to look whether it is needed."""
        if self._is_behind(call):
            return self._now() + _BEHIND
        try:
            async with self._turns.turn(_receiver(call), is_again=is_again):
                again_at = await self._yield_to_caller(call.id)
                known = self._book.find(call.id)
                if again_at is not None or known is None or not known.is_undelivered:
                    return again_at
                if self._is_behind(known):  # it may have come to its session only now
                    return self._now() + _BEHIND
                self._under_way.add(call.id)
                result = await self._tell_in_time(known, work)
            await asyncio.sleep(0)  # who is to be told comes before what is to be written down
            return await self._note_result(known, result)
        finally:
            self._under_way.discard(call.id)

    def _is_behind(self, call: Call) -> bool:
        """True when another outcome comes first into the same session: the one that was first."""
        session_key = call.caller.session_key
        if call.route is not Route.SESSION or session_key is None:
            return False
        first = self._first_for(session_key)
        return first is not None and settled_at(first) < settled_at(call)

    def _first_for(self, session_key: SessionKey) -> Call | None:
        since = self._now() - _IN_ORDER
        return self._book.first_for(session_key, since=since, besides=self._aside)

    def _wake_next(self, session_key: SessionKey) -> None:
        first = self._first_for(session_key)
        if first is not None:
            self._look_at(first.task_id)

    async def _yield_to_caller(self, call_id: CallId) -> datetime | None:
        """When to look again, as long as the caller itself may hear or take the outcome."""
        if call_id in self._taken:
            return self._now() + _A_MOMENT
        call = self._book.find(call_id)
        if call is None or call.route is not Route.WAITED or not call.is_undelivered:
            return None
        told_by = self._lines.told_by(call.id)
        if self._lines.is_told(call.id):
            await self._book.change(call.id, self.seeing.seen)
        elif told_by is not None and told_by > self._now():
            return told_by
        else:  # it hung up, or it lost an earlier life of this gateway
            await self._book.change(call.id, self._unwaited)
            if told_by is not None:
                self._fresh.discard(call.id)  # it may have heard it in its last moment
        self._lines.forget(call.id)
        return None

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

    async def settle(self, call: Call, work: Work) -> Call | None:
        """Decide the outcome of a call, if it can be decided now; the call as it is then."""
        decided = None if call.is_settled else decide(call, work, self._now())
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

    async def take(self, call: Call, work: Work) -> Call:
        """The caller has asked for the outcome itself: then it needs no message any more."""
        decided = decide(call, work, self._now())

        def edit(known: Call) -> Call | None:
            settled = known if decided is None else self._settled(known, decided) or known
            is_shown = work.is_ended or settled.status is CallStatus.TIMEOUT
            is_late = call.id in self._under_way or not settled.is_settled
            return None if is_late or not is_shown else self.seeing.seen(settled)

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

    async def _tell_in_time(self, call: Call, work: Work) -> Missed | SessionGone | NoteTaken:
        try:
            async with asyncio.timeout(_TELLING_S):
                return await self._tell(call, work)
        except TimeoutError:
            return Missed(f"it took longer than {_TELLING_S:g} s")
        except AgentError as error:
            return Missed(error.message, is_refused=isinstance(error, AgentFailed))

    async def _tell(self, call: Call, work: Work) -> Missed | SessionGone | NoteTaken:
        message = told(call, work)
        if call.route is Route.INBOX:
            missed = None if self._post is None else await self._post(call, message)
            return missed or NoteTaken()
        sink = self.seeing.sink_of(call)
        if sink is None:
            return Missed("no agent of this gateway reaches the caller's session")
        note = note_of(call, msgspec.json.encode(message).decode(), is_fresh=call.id in self._fresh)
        self._fresh.discard(call.id)
        self.seeing.dealing.add(call.id)  # before it is there: the session may call at once
        return await sink.hand_over(note)

    async def _note_result(
        self, call: Call, result: Missed | SessionGone | NoteTaken
    ) -> Missed | None:
        """Keep what came of a try; why it failed, if it did."""
        if not isinstance(result, NoteTaken):
            self.seeing.dealing.discard(call.id)
        if isinstance(result, Missed):
            self._set_aside(call, result)
            return result
        self._aside.discard(call.id)
        if isinstance(result, SessionGone):
            reason = result.reason
            await self._book.change(call.id, lambda known: discarded(known, self._now(), reason))
            log.warning("call-discarded", call_id=call.id, callee=call.callee, reason=reason)
            return None
        await self._book.change(call.id, self._brought)
        if call.route is not Route.INBOX:
            self.seeing.watch(call)
        return None

    def _set_aside(self, call: Call, missed: Missed) -> None:
        """Let others go before an outcome that its host would not have."""
        session_key = call.caller.session_key
        if missed.is_refused and session_key is not None:
            self._aside.add(call.id)
            self._wake_next(session_key)

    def _brought(self, call: Call) -> Call | None:
        if call.delivered_at is not None:
            return None
        return msgspec.structs.replace(call, delivered_at=self._now(), reason=None)


def _receiver(call: Call) -> str:
    return call.caller.session_key or call.caller.name


def _call_id(delivery: Delivery) -> CallId:
    return CallId(delivery.body.decode())
