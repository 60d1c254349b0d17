"""Learns what became of outcomes that hosts have taken: seen by their callers, or lost."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from datetime import datetime, timedelta

import msgspec

from openclaw_a2a.calls.outcome import Work, decide, why_unanswered
from openclaw_a2a.calls.payloads import told
from openclaw_a2a.calls.repository import CallRepository, settled_at
from openclaw_a2a.calls.waiters import Waiters, WaitingCaller
from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.scheduling.fair_queue import FairSemaphore
from openclaw_a2a.engine.tasks.cancel import fail_paused_task, needs_input
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.call import CALL_KIND, Call, Caller, CallId, CallStatus, OutcomeRoute
from openclaw_a2a.model.delivery import Delivery, delivery_id
from openclaw_a2a.model.errors import AgentError, AgentFailed, GatewayError
from openclaw_a2a.model.ids import JsonObject, SessionKey, TaskId
from openclaw_a2a.model.records import StoredTask
from openclaw_a2a.ports import (
    Delivered,
    DeliveryFailed,
    MessageAccepted,
    SessionGone,
    SessionInbox,
    SessionMessage,
)

log = get_logger(__name__)

SOURCE_TOOL = "agent_call"
_BEFORE_AGAIN_S = 1.0
"""A host that takes a note and loses it over and over is not kept busy with it."""

FindSink = Callable[[SessionKey], SessionInbox | None]


class ReceiptTracker:
    """Follows notes in the sessions of callers, each until it was dealt with."""

    def __init__(
        self,
        engine: Engine,
        book: CallRepository,
        *,
        find_sink: FindSink,
        look_at: Callable[[TaskId], None],
    ) -> None:
        """`look_at` has the outbox look at the deliveries of a task again."""
        self._book = book
        self._store = engine.store.tasks
        self._now = engine.clock.now
        self._clock = engine.clock
        self._supervisor = engine.supervisor
        self._find_sink = find_sink
        self._look_at = look_at
        self.dealing: set[CallId] = set()
        """Calls whose outcome was brought, and whose callers are dealing with it."""

    def sink_of(self, call: Call) -> SessionInbox | None:
        """Who puts notes into the session that called."""
        session_key = call.caller.session_key
        return None if session_key is None else self._find_sink(session_key)

    def watch(self, call: Call) -> None:
        """Learn when a call that was brought has been dealt with."""
        sink = self.sink_of(call)
        if sink is not None:
            self._supervisor.spawn(
                "call-receipt", self._see(call.id, sink, note_of(call, "", is_fresh=False))
            )

    async def _see(self, call_id: CallId, sink: SessionInbox, note: SessionMessage) -> None:
        self.dealing.add(call_id)
        try:
            is_seen = await self._learn(sink, note)
            while not await self._note(call_id, is_seen=is_seen):
                await self._clock.sleep(_BEFORE_AGAIN_S)
        except BaseException:
            self.dealing.discard(call_id)
            raise

    async def _learn(self, sink: SessionInbox, note: SessionMessage) -> bool:
        try:
            return await sink.wait_processed(note)
        except AgentError as error:
            log.warning("note-not-followed", note_id=note.id, reason=error.message)
            return False

    async def _note(self, call_id: CallId, *, is_seen: bool) -> bool:
        """Note that a call was seen, or lost by its host; False when that was not possible."""
        try:
            edit = self.seen if is_seen else await self._when_lost(call_id)
            changed = await self._book.change(call_id, edit)
        except GatewayError as error:
            log.warning("call-not-noted", call_id=call_id, reason=error.message)
            return False
        self.dealing.discard(call_id)  # at once: lost, it may be brought again by somebody else
        if changed is not None and not is_seen:
            await self._clock.sleep(_BEFORE_AGAIN_S)
            self._look_at(changed.task_id)
        return True

    async def _when_lost(self, call_id: CallId) -> Callable[[Call], Call | None]:
        """What is noted of a lost outcome: it is brought again, as long as the answer is there."""
        call = self._book.find(call_id)
        if call is None or await self._store.read_task(None, call.task_id) is not None:
            return _lost
        return self._gone

    def _gone(self, call: Call) -> Call | None:
        if _lost(call) is None:
            return None
        reason = "its host lost it, and the callee's task is forgotten by now"
        log.warning("call-discarded", call_id=call.id, callee=call.callee, reason=reason)
        return discarded(call, self._now(), reason)

    def seen(self, call: Call) -> Call | None:
        """The call once its caller has seen what came of it."""
        if call.seen_at is not None:
            return None
        now = self._now()
        if call.discarded_at is not None:  # it was never brought: its caller came for it
            return msgspec.structs.replace(call, seen_at=now)
        return msgspec.structs.replace(call, seen_at=now, delivered_at=call.delivered_at or now)


def discarded(call: Call, now: datetime, reason: str) -> Call:
    """The call when its outcome is not brought at all."""
    return msgspec.structs.replace(
        call, status=CallStatus.DISCARDED, discarded_at=now, reason=reason
    )


def note_of(call: Call, text: str, *, is_fresh: bool) -> SessionMessage:
    """What is put into the session that called."""
    own = call.caller.session_key or call.return_to
    return SessionMessage(
        call.id, own, text, SOURCE_TOOL, call.session_key, is_first_attempt=is_fresh
    )


def _lost(call: Call) -> Call | None:
    """The call when its host lost what it had taken: it is brought again."""
    if call.delivered_at is None or call.seen_at is not None:
        return None
    return msgspec.structs.replace(call, delivered_at=None)


_A_MOMENT = timedelta(milliseconds=20)
_QUESTION_RETRY_S = 1.0
"""So long after it failed the end of a question is tried again."""
_BEHIND = timedelta(minutes=1)
"""Who waits for another outcome is woken when that is brought; at the latest it looks then."""
_IN_ORDER = timedelta(days=1)
"""An outcome that could not be brought for so long holds up no others."""
_TELLING_S = 30.0
_TOLD_AT_ONCE = 64
"""Calls are settled as their time comes; so many callers are told at the same time."""
PostInbox = Callable[[Call, JsonObject], Awaitable[DeliveryFailed | None]]
"""Tells a caller without a session that its outcome lies ready; None when it was told."""


class OutcomeDelivery:
    """Brings the outcomes of calls."""

    def __init__(
        self,
        engine: Engine,
        book: CallRepository,
        *,
        find_sink: FindSink,
        post: PostInbox | None,
        look_at: Callable[[TaskId], None],
    ) -> None:
        """`look_at` has the outbox look at the deliveries of a task again."""
        self._engine = engine
        self._store = engine.store.tasks
        self._book = book
        self._find_sink = find_sink
        self._post = post
        self._now = engine.clock.now
        self._supervisor = engine.supervisor
        self._look_at = look_at
        self._clock = engine.clock
        self._lines = Waiters(engine.clock.now)
        self._turns = FairSemaphore(_TOLD_AT_ONCE)
        self.seeing = ReceiptTracker(engine, book, find_sink=find_sink, look_at=look_at)
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
            name = delivery_id(CALL_KIND, task_id, call_id)
            return Delivery(name, CALL_KIND, task_id, call_id.encode(), cursor, now, now, now)

        return make

    def can_reach(self, caller: Caller) -> bool:
        """True when the caller has a session that something can be put into."""
        return caller.session_key is not None and self._find_sink(caller.session_key) is not None

    # ---------------------------------------------------------------- as the outbox knows it

    def receiver(self, delivery: Delivery) -> str:
        """The session that is to be told."""
        call = self._book.find(_call_id(delivery))
        return "" if call is None else _receiver(call)

    async def send(self, delivery: Delivery) -> Delivered | DeliveryFailed | None:
        """Settle the call if its time has come, and bring what came of it."""
        call = self._book.find(_call_id(delivery))
        work = await self._work_on(delivery.task_id, call)
        self._answer_nothing(work.stored)
        if call is None:  # it was forgotten, and with it whom to tell
            return self._looked(delivery, work)
        call = await self.settle(call, work) or self._book.find(call.id) or call
        if not call.is_settled:
            return Delivered(delivery.cursor, is_sent=False, next_check_at=call.deadline)
        if call.is_undelivered:
            result = await self._bring_outcome(call, work, is_again=delivery.attempts > 0)
            if isinstance(result, DeliveryFailed):
                return result
            if result is not None:
                return Delivered(delivery.cursor, is_sent=False, next_check_at=result)
        self._fresh.discard(call.id)
        return self._looked(delivery, work)

    def _looked(self, delivery: Delivery, work: Work) -> Delivered:
        """Nothing is to be brought now, and nothing ever once the task has ended."""
        if not work.is_ended or work.stored is None:  # it is looked at again when it ends
            return Delivered(delivery.cursor, is_sent=False, is_over=work.is_ended)
        cursor = work.stored.head.sequence
        return Delivered(cursor, is_sent=cursor != delivery.cursor, is_over=True)

    async def _work_on(self, task_id: TaskId, call: Call | None) -> Work:
        """The callee's task; it is not read where that could tell nothing but that it runs."""
        live = self._engine.active_tasks.get(task_id)
        needs_answer = call is None or call.status not in (CallStatus.PENDING, CallStatus.TIMEOUT)
        if needs_answer or live is None or not live.is_running:
            return Work(await self._store.read_task(None, task_id))
        return Work(None, is_running=True)

    async def _bring_outcome(
        self, call: Call, work: Work, *, is_again: bool
    ) -> DeliveryFailed | datetime | None:
        """Bring an outcome, once; why that failed, or when to look whether it is needed."""
        if self._is_behind(call):
            return self._now() + _BEHIND
        try:
            async with self._turns.slot(_receiver(call), is_retry=is_again):
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
        if call.route is not OutcomeRoute.SESSION or session_key is None:
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
        if call is None or call.route is not OutcomeRoute.WAITED or not call.is_undelivered:
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
        if stored is not None and needs_input(stored) and stored.head.id not in self._asking:
            self._asking.add(stored.head.id)
            self._supervisor.spawn("call-question", self._end_question(stored.head.id))

    async def _end_question(self, task_id: TaskId) -> None:
        try:
            await fail_paused_task(self._engine, task_id, why_unanswered)
        except GatewayError as error:
            log.warning("question-not-ended", task_id=task_id, reason=error.message)
            await self._clock.sleep(_QUESTION_RETRY_S)
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
        if route is not OutcomeRoute.NONE and self._lines.wants(call.id, status):
            route = OutcomeRoute.WAITED
        changed = msgspec.structs.replace(call, status=status, settled_at=now, route=route)
        if route is OutcomeRoute.INBOX and self._post is None:
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
        route = OutcomeRoute.SESSION if self.can_reach(call.caller) else OutcomeRoute.INBOX
        brought_at = call.settled_at if route is OutcomeRoute.INBOX and self._post is None else None
        return msgspec.structs.replace(call, route=route, delivered_at=brought_at)

    @contextmanager
    def line(self, *, takes_timeouts: bool = False) -> Generator[WaitingCaller]:
        """A line for one tool; `takes_timeouts`: its result tells these, too.

        Whoever leaves it by an exception has heard nothing of what was answered on it.
        """
        with self._lines.open(takes_timeouts=takes_timeouts) as line:
            try:
                yield line
            except BaseException:
                self._look_at_all(list(line.answered))
                raise

    async def wait(self, line: WaitingCaller, call: Call) -> Call | None:
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

    async def _tell_in_time(
        self, call: Call, work: Work
    ) -> DeliveryFailed | SessionGone | MessageAccepted:
        try:
            async with asyncio.timeout(_TELLING_S):
                return await self._tell(call, work)
        except TimeoutError:
            return DeliveryFailed(f"it took longer than {_TELLING_S:g} s")
        except AgentError as error:
            return DeliveryFailed(error.message, is_refused=isinstance(error, AgentFailed))

    async def _tell(self, call: Call, work: Work) -> DeliveryFailed | SessionGone | MessageAccepted:
        message = told(call, work)
        if call.route is OutcomeRoute.INBOX:
            missed = None if self._post is None else await self._post(call, message)
            return missed or MessageAccepted()
        sink = self.seeing.sink_of(call)
        if sink is None:
            return DeliveryFailed("no agent of this gateway reaches the caller's session")
        note = note_of(call, msgspec.json.encode(message).decode(), is_fresh=call.id in self._fresh)
        self._fresh.discard(call.id)
        self.seeing.dealing.add(call.id)  # before it is there: the session may call at once
        return await sink.deliver(note)

    async def _note_result(
        self, call: Call, result: DeliveryFailed | SessionGone | MessageAccepted
    ) -> DeliveryFailed | None:
        """Keep what came of a try; why it failed, if it did."""
        if not isinstance(result, MessageAccepted):
            self.seeing.dealing.discard(call.id)
        if isinstance(result, DeliveryFailed):
            self._set_aside(call, result)
            return result
        self._aside.discard(call.id)
        if isinstance(result, SessionGone):
            reason = result.reason
            await self._book.change(call.id, lambda known: discarded(known, self._now(), reason))
            log.warning("call-discarded", call_id=call.id, callee=call.callee, reason=reason)
            return None
        await self._book.change(call.id, self._brought)
        if call.route is not OutcomeRoute.INBOX:
            self.seeing.watch(call)
        return None

    def _set_aside(self, call: Call, missed: DeliveryFailed) -> None:
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
