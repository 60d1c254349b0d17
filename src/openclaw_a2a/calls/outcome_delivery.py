"""Settles calls and delivers each outcome to its caller once.

The outbox wakes `OutcomeDelivery.send` when the callee's task ends, at the deadline, and when an
attempt is due again. `calls/outcome_state.py` says which step is possible when.

What a crash leaves behind: the call record and the callee's task. A step is committed before it
changes anything in memory, except one: that the callee's end settles the call. This follows from
the task, which is durable, so it is stored together with the next step, or when the attempt ends.
The next process decides the same from the task, or finds the outcome undelivered and sends it
again, or finds it delivered and asks the caller's host whether it was processed. A message that is
sent twice has the same id, by which the host drops the second one. So the next outcome of a session
is sent as soon as the host has the one before, without waiting until that is stored.

Where several replicas share the store, the one that owns a call's delivery drives the call, and
another one continues with the calls of a replica that died (`take_over`). The others only poll
(`_claim_stored`). They do not see what is in the memory of the driver, so it commits two more
steps before it takes them: that it starts to send, and that a waiting caller is to get the outcome.
A driver that was taken for dead is refused there by the store, and drops its calls (`drop`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Set
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta

import msgspec

from openclaw_a2a.calls.outcome import CalleeTask, decide_status, outcome_message, question_error
from openclaw_a2a.calls.outcome_state import (
    OutcomeEvent,
    OutcomeState,
    OutcomeStates,
    Waiters,
    WaitingCaller,
)
from openclaw_a2a.calls.repository import CallRepository, settled_at
from openclaw_a2a.calls.session_hosts import SessionHosts
from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.scheduling.fair_queue import FairSemaphore
from openclaw_a2a.engine.tasks.cancel import fail_paused_task
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.call import CALL_KIND, Call, CallId, CallStatus, OutcomeRoute
from openclaw_a2a.model.delivery import Delivery, DeliveryId, delivered_up_to, delivery_id
from openclaw_a2a.model.errors import AgentError, AgentFailed, GatewayError
from openclaw_a2a.model.ids import JsonObject, OwnerId, SessionKey, TaskId
from openclaw_a2a.model.task import TERMINAL, TaskState
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
_CLAIM_RECHECK = timedelta(milliseconds=20)
_ORDER_RECHECK = timedelta(minutes=1)
"""An outcome behind another is woken when the host has that one; this is the fallback."""
_ORDER_LIMIT = timedelta(days=1)
"""An outcome that is undelivered for this long no longer holds up later ones."""
_WRITE_TIMEOUT = timedelta(seconds=30)
"""A result that is not written this long after its tool returned never will be."""
_SEND_TIMEOUT_S = 30.0
_MAX_SENDING = 64
_RETRY_S = 1.0
_WITHOUT_ANSWER = (CallStatus.PENDING, CallStatus.TIMEOUT)

PostWebhook = Callable[[Call, JsonObject], Awaitable[DeliveryFailed | None]]
"""Posts an outcome to the webhook of a caller without a session; None when it was accepted."""

SendResult = DeliveryFailed | SessionGone | MessageAccepted


class OutcomeDelivery:
    """Delivers the outcomes of calls. It is the outbox's sender for deliveries of calls."""

    def __init__(
        self,
        engine: Engine,
        calls: CallRepository,
        *,
        hosts: SessionHosts,
        post_webhook: PostWebhook | None,
        wake: Callable[[TaskId], None],
    ) -> None:
        """`wake` has the outbox check the deliveries of a task now."""
        self._engine = engine
        self._calls = calls
        self._hosts = hosts
        self._post_webhook = post_webhook
        self._wake = wake
        self._clock = engine.clock
        self._now = engine.clock.now
        self.waiters = Waiters()
        self._slots = FairSemaphore(_MAX_SENDING)
        self._open_questions: set[TaskId] = set()
        self.states = OutcomeStates()
        self._is_shared = calls.is_shared
        calls.on_delivered = self._wake_next

    async def settle_ended(self, calls: Iterable[Call]) -> None:
        """Settle the calls whose callees have ended, where the previous process did not store it.

        Call it before anything is sent, so that each outcome has its place in its session.
        """
        tasks = self._engine.store.tasks
        for call in [one for one in calls if not one.is_settled]:
            # What is damaged is reported by the attempt to deliver it.
            with suppress(GatewayError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                measured = await tasks.measure_task(None, call.task_id)
                if measured is not None and measured.head.state in TERMINAL:
                    task = CalleeTask.from_stored(await tasks.read_task(None, call.task_id))
                    await self._settle(call, task)

    def resume(self, calls: Iterable[Call]) -> None:
        """Continue with what the previous process left."""
        # Recovery runs the tasks of calls again, and the outbox finds nearly all deliveries; not
        # those that were stored as delivered while the record of their call was not.
        for call in calls:
            known = self._calls.find(call.id)
            if known is None:
                continue
            if known.is_unprocessed:
                self._watch_receipt(known)
            elif known.is_undelivered or not known.is_settled or self._calls.is_unsaved(known.id):
                self._wake(known.task_id)

    async def take_over(self, deliveries: Set[DeliveryId], owner: OwnerId) -> None:
        """Continue with the calls of these deliveries, which a replica that is gone has left.

        `owner`: the id of this replica when it took them. Raises: StoreUnavailable.
        """

        def is_ours(call: Call) -> bool:
            # With another id this replica was taken for dead since: they are another one's.
            is_owner = self._engine.owner == owner
            return is_owner and delivery_id(CALL_KIND, call.task_id, call.id) in deliveries

        taken = await self._calls.load(is_ours)
        await self.settle_ended(taken)
        self.resume(taken)

    def drop(self) -> None:
        """Release waiting callers and clear all state: other replicas own these calls."""
        self.waiters.release_all("another gateway has taken the call over")
        self.states.forget_all()
        self._calls.clear()

    # ---------------------------------------------------------------- called by the outbox

    def receiver(self, delivery: Delivery) -> str:
        """The session or program that the outcome is for."""
        call = self._calls.find(CallId(delivery.body.decode()))
        return "" if call is None else _receiver(call)

    async def send(self, delivery: Delivery) -> Delivered | DeliveryFailed | None:
        """Settle the call if that is possible now, and deliver its outcome."""
        call_id = CallId(delivery.body.decode())
        try:
            return await self._settle_and_deliver(call_id, delivery)
        except GatewayError as error:
            call = self._calls.find(call_id)
            if call is not None and call.deadline is not None and self._now() >= call.deadline:
                # The call stays pending. From here on nobody waits for it, so that the attempt that
                # settles it delivers the outcome by the route of the call.
                reason = f"the call is not lost, but cannot be settled yet ({error.message})"
                self.waiters.release(call_id, reason)
            raise

    async def _settle_and_deliver(
        self, call_id: CallId, delivery: Delivery
    ) -> Delivered | DeliveryFailed | None:
        call = self._calls.find(call_id)
        if call is None and self._is_shared:  # it was taken over, or handed to this replica
            call = await self._calls.adopt(call_id)
        task = await self._find_callee_task(delivery.task_id, call)
        if task.head is not None and task.head.state is TaskState.INPUT_REQUIRED:
            self._end_question(delivery.task_id)
        if call is None:  # purged, and with it the receiver
            self.states.forget(call_id)
            return _finished(delivery, task)
        call = await self._settle(call, task)
        if call.status is CallStatus.PENDING:
            is_claimed = self.states.state_of(call) is OutcomeState.CLAIMED
            due_at = self._now() + _CLAIM_RECHECK if is_claimed else call.deadline
            return Delivered(delivery.cursor, is_sent=False, next_check_at=due_at)
        if self._is_shared and await self._pass_on(call, delivery):
            return Delivered(delivery.cursor, is_sent=False, is_over=True)
        attempt = _Attempt(delivery, task, self._now())
        result = await self._deliver(call, attempt) if call.is_undelivered else None
        if self._calls.is_unsaved(call.id):
            # Nothing was sent, or it has no receiver.
            progress = attempt.progress if result is None else None
            if await self._calls.update(call.id, lambda known: known, progress) is not None:
                attempt.saved = progress
        if isinstance(result, DeliveryFailed):
            return result
        if result is not None:
            return Delivered(delivery.cursor, is_sent=False, next_check_at=result)
        return _finished(delivery, task, attempt.saved)

    async def _find_callee_task(self, task_id: TaskId, call: Call | None) -> CalleeTask:
        """The callee's task; not read while it is in memory and the call needs no more of it."""
        active = self._engine.find_active(task_id)
        known = None if active is None else CalleeTask.from_active(active)
        needs_only_end = call is not None and call.status in _WITHOUT_ANSWER
        if known is not None and (known.is_ended or needs_only_end):
            return known
        return CalleeTask.from_stored(await self._engine.store.tasks.read_task(None, task_id))

    # ---------------------------------------------------------------- settling

    async def _settle(self, call: Call, task: CalleeTask) -> Call:
        """Decide the outcome if that is possible now; the call as it is then."""
        decided = None if call.is_settled else decide_status(call, task, self._now())
        if decided is None or self.states.state_of(call) is OutcomeState.CLAIMED:
            return self._calls.find(call.id) or call
        is_waited = self._is_shared and self.waiters.find(call.id, decided) is not None
        if decided is CallStatus.TIMEOUT or task.ended_at is None or is_waited:
            # Answer, deadline and poll may come at once, also in two replicas: the record's
            # version decides which one settles the call. And a replica that was taken for dead
            # must not answer a waiting caller: another one sends the outcome.
            changed = await self._calls.update(
                call.id, lambda known: self._settled(known, decided, task)
            )
        else:
            # The end is durable and came in time: every process decides the same by it, so that
            # the commit of this can wait for the next step.
            changed = self._calls.stage(call.id, lambda known: self._settled(known, decided, task))
        if changed is not None:
            event, waiter = OutcomeEvent.SETTLED_UNROUTED, None
            if changed.route is OutcomeRoute.WAITED:
                # None when the caller disconnected during the commit: then it is sent at once.
                event = OutcomeEvent.SETTLED_FOR_WAITER
                waiter = self.waiters.find(call.id, changed.status)
            elif changed.is_undelivered:
                event = OutcomeEvent.SETTLED
            # The process that accepted it may have sent the outcome before it stored that.
            is_unsent = decided is CallStatus.TIMEOUT or not self._calls.is_inherited(call.id)
            self.states.settle(changed, event, waiter, is_unsent=is_unsent)
            log.info("calls.settled", call_id=call.id, callee=call.callee, status=decided.value)
        settled = changed or self._calls.find(call.id)
        if settled is not None:
            if changed is None:
                self._offer_again(settled)
            self.waiters.resolve(settled, task)
        return settled or call

    def _offer_again(self, settled: Call) -> None:
        # An attempt before this one has settled the call, and its write was reported as failed
        # although it was made. Without an entry the result would be sent as a message, too.
        waiter = self.waiters.find(settled.id, settled.status)
        if waiter is not None and self.states.state_of(settled) is OutcomeState.OFFERED:
            self.states.settle(settled, OutcomeEvent.SETTLED_FOR_WAITER, waiter)

    def _settled(self, call: Call, status: CallStatus, task: CalleeTask) -> Call | None:
        if call.status is not CallStatus.PENDING:
            return None
        # An answer counts from the end of the callee's task: the same in every process, so that
        # a restart does not change the order of outcomes in a session.
        ended_at = None if status is CallStatus.TIMEOUT else task.ended_at
        now, route = ended_at or self._now(), call.route
        if route is not OutcomeRoute.NONE and self.waiters.find(call.id, status) is not None:
            route = OutcomeRoute.WAITED
        changed = msgspec.structs.replace(call, status=status, settled_at=now, route=route)
        if route is OutcomeRoute.INBOX and self._post_webhook is None:
            return msgspec.structs.replace(changed, delivered_at=now)  # it is there to be polled
        return changed

    # ---------------------------------------------------------------- a callee that asks back

    def _end_question(self, task_id: TaskId) -> None:
        """Fail the task of a callee that asks: nothing answers the questions of a call."""
        if task_id not in self._open_questions:
            self._open_questions.add(task_id)
            # In a task of its own: `fail_paused_task` waits until the asking run has ended, and the
            # end of that run may wait for this delivery attempt. Awaiting it would be a deadlock.
            self._engine.supervisor.spawn("calls-end-question", self._fail_question(task_id))

    async def _fail_question(self, task_id: TaskId) -> None:
        try:
            await fail_paused_task(self._engine, task_id, question_error)
        except GatewayError as error:
            log.warning("calls.question_not_ended", task_id=task_id, reason=error.message)
            await self._clock.sleep(_RETRY_S)
        finally:
            self._open_questions.discard(task_id)
            self._wake(task_id)

    # ---------------------------------------------------------------- callers that poll

    async def claim(self, call: Call, task: CalleeTask) -> Call:
        """Record that the caller gets the outcome by polling; no message is sent afterwards.

        Raises: StoreUnavailable (the caller has the outcome, and a message may still follow).
        """
        decided = decide_status(call, task, self._now())

        # Settles the call in the same commit when nothing has settled it before, so that the
        # outcome that is polled is also the one that is recorded.
        def edit(known: Call) -> Call | None:
            settled = (self._settled(known, decided, task) if decided else None) or known
            is_final = task.is_ended or settled.status is CallStatus.TIMEOUT
            return self._mark_seen(settled) if settled.is_settled and is_final else None

        known = self._calls.find(call.id)
        if known is None and self._is_shared:
            return await self._claim_stored(call, edit)
        known = known or call
        if self.states.start_claim(known):
            try:
                await self._record(call.id, OutcomeEvent.CLAIM_RECORDED, edit)
            finally:
                # Also when the caller disconnects: the outcome must not stay claimed for ever.
                self.states.abort_claim(self._calls.find(call.id) or known)
        else:
            await self._record(call.id, OutcomeEvent.POLLED, edit)
        claimed = self._calls.find(call.id) or call
        if claimed.is_settled:
            self.waiters.resolve(claimed, task)
        return claimed

    async def _claim_stored(self, call: Call, edit: Callable[[Call], Call | None]) -> Call:
        """Claim an outcome of a call that another replica drives."""
        newest = call

        def guarded(known: Call) -> Call | None:
            nonlocal newest
            newest = known
            # Too late for one that is on its way: the caller polls what it also gets as a message.
            return None if known.is_sending else edit(known)

        return await self._calls.update_stored(call, guarded) or newest

    # ---------------------------------------------------------------- callers that wait

    @contextmanager
    def open_waiter(self, *, accepts_timeouts: bool = False) -> Generator[WaitingCaller]:
        """A waiting caller for one tool; `accepts_timeouts`: its result reports timeouts too.

        When the block ends with an exception, what it was offered is sent instead.
        """
        waiter = WaitingCaller(accepts_timeouts=accepts_timeouts)
        try:
            yield waiter
        except BaseException:
            self._give_up(waiter)
            raise
        waiter.write_deadline = self._now() + _WRITE_TIMEOUT

    def mark_written(self, call_ids: Iterable[CallId]) -> None:
        """Results with the outcomes of these calls were written to the callers' connections."""
        for call in filter(None, map(self._calls.find, call_ids)):
            if self.states.mark_written(call):
                self._wake(call.task_id)

    def mark_lost(self, call_ids: Iterable[CallId]) -> None:
        """A result with the outcomes of these calls cannot be written: its caller is gone."""
        for call in filter(None, map(self._calls.find, call_ids)):
            waiter = self.states.waiter_of(call)
            if waiter is not None:
                self._give_up(waiter)

    def _give_up(self, waiter: WaitingCaller) -> None:
        """Send everything that a waiting caller was offered as messages instead."""
        # The deadline before the wake-ups: an attempt that finds it passed sends the outcome.
        waiter.write_deadline = self._now()
        for call in filter(None, map(self._calls.find, waiter.offered - waiter.watched)):
            self._wake(call.task_id)
        waiter.is_over.set()  # wakes the attempts that wait for the result

    async def _resolve_offer(self, call: Call, attempt: "_Attempt") -> datetime | None:
        """Record if an offered outcome was written; returns when to check again while unknown."""
        state = self.states.state_of(call)
        # None: the caller waited when the previous process ended, and its connection is gone.
        waiter = self.states.waiter_of(call)
        if state is OutcomeState.OFFERED and waiter is not None:
            await waiter.wait_over(call.id)
            call = self._calls.find(call.id) or call
            state = self.states.state_of(call)
        if state is OutcomeState.CLAIMED:
            return self._now() + _CLAIM_RECHECK
        if state is OutcomeState.WRITTEN:
            await self._record(call.id, OutcomeEvent.RESULT_RECORDED, self._mark_seen, attempt)
        elif state is OutcomeState.OFFERED:
            now = self._now()
            deadline = now if waiter is None else waiter.write_deadline or now + _WRITE_TIMEOUT
            if deadline > now:
                return deadline
            hosts = await self._hosts.list_hosts(call.caller, call.host)
            route = OutcomeRoute.SESSION if hosts else OutcomeRoute.INBOX
            await self._record(
                call.id, OutcomeEvent.WAITER_LOST, lambda known: self._reroute(known, route)
            )
            if waiter is not None:
                # The caller may have received the result just before it disconnected. So the
                # message is not sent as a first attempt: the host then searches the session's
                # history for it before it adds the message.
                self.states.start_sending(call)
        return None

    # ---------------------------------------------------------------- sending

    async def _deliver(self, call: Call, attempt: "_Attempt") -> DeliveryFailed | datetime | None:
        """Send an outcome; why the attempt failed, or when to check again whether to send it."""
        recheck_at = await self._resolve_offer(call, attempt)
        call = self._calls.find(call.id) or call
        if recheck_at is not None or not call.is_undelivered:
            return recheck_at
        if self._waits_for_earlier(call):
            self.states.mark_waits_for_earlier(call)
            return self._now() + _ORDER_RECHECK
        async with self._slots.slot(_receiver(call), is_retry=attempt.is_retry):
            # Again, because the slot may have been waited for.
            known = self._calls.find(call.id)
            if known is None or not known.is_undelivered:
                return None
            if self._waits_for_earlier(known):
                self.states.mark_waits_for_earlier(known)
                return self._now() + _ORDER_RECHECK
            # No await since the checks: a poll or a second attempt cannot come in between.
            if not self.states.advance(known, OutcomeEvent.ATTEMPT_STARTED):
                return self._now() + _CLAIM_RECHECK
            try:
                if self._is_shared and not await self._mark_sending(known):
                    self.states.forget(known.id)
                    newest = self._calls.find(call.id)
                    is_sending = newest is not None and newest.is_sending
                    # Another replica is sending it: check again when its attempt must be over.
                    return self._now() + timedelta(seconds=_SEND_TIMEOUT_S) if is_sending else None
                known = self._calls.find(call.id) or known
                known, result = await self._send(known, attempt.task)
            except BaseException:
                self.states.end_attempt(known)
                raise
            if isinstance(result, MessageAccepted) and known.route is OutcomeRoute.SESSION:
                self._pass_next(known)
        try:
            # The attempt that got the released slot starts its request first, so that it does not
            # wait for the commit of this one.
            await asyncio.sleep(0)
            return await self._record_result(known, result, attempt)
        finally:
            # Does nothing once the result is recorded. Otherwise the store failed, and the attempt
            # counts as failed.
            self.states.end_attempt(known)

    async def _mark_sending(self, call: Call) -> bool:
        """Store that the outcome is being sent; False when the caller has it, or another sends it.

        Raises: StoreUnavailable (also when another replica drives the call by now).
        """
        if call.route is OutcomeRoute.SESSION and call.caller.session_key is not None:
            # First, as a session may call others as soon as it has the message.
            await self._calls.note_in_session(call.caller.session_key, call.id, self._now())

        def edit(known: Call) -> Call | None:
            # The `sending_at` of `call` may be left over from a replica that is gone. Any other
            # one appeared after a conflict: another replica is sending now.
            if not known.is_undelivered or known.sending_at not in (None, call.sending_at):
                return None
            return msgspec.structs.replace(known, sending_at=self._now())

        return await self._calls.update(call.id, edit) is not None

    async def _unmark_sending(self, call: Call) -> None:
        """The attempt failed: until the next one the caller may poll the outcome anywhere."""

        def edit(known: Call) -> Call | None:
            return msgspec.structs.replace(known, sending_at=None) if known.is_sending else None

        with suppress(GatewayError):  # the next attempt finds it as after a crash
            await self._calls.update(call.id, edit)

    async def _pass_on(self, call: Call, delivery: Delivery) -> bool:
        """Give an outcome to a replica that reaches the caller's session, if this one cannot."""
        replication = self._engine.replication
        is_sendable = call.is_undelivered and call.route is OutcomeRoute.SESSION
        if replication is None or not is_sendable or self._hosts.find_inbox(call) is not None:
            return False
        if self._calls.is_unsaved(call.id):
            await self._calls.update(call.id, lambda known: known)
        # Only to a replica that reaches all of these hosts: it can find out which of them has the
        # session, and does not pass the outcome on again.
        hosts = {call.host} if call.host else await self._hosts.list_hosts(call.caller)
        if not hosts or not await replication.store.pass_on(delivery.id, hosts):
            return False  # none does now: it waits here
        self.states.forget(call.id)
        self._calls.remove(call)
        log.info("calls.passed_on", call_id=call.id, callee=call.callee)
        return True

    async def _send(self, call: Call, task: CalleeTask) -> tuple[Call, SendResult]:
        """Make one attempt; what came of it, and the call with the host it was sent to."""
        try:
            async with asyncio.timeout(_SEND_TIMEOUT_S):
                message = outcome_message(call, task)
                if call.route is OutcomeRoute.INBOX:
                    post = self._post_webhook
                    failed = None if post is None else await post(call, message)
                    return call, failed or MessageAccepted()
                inbox = await self._hosts.locate_inbox(call)
                if isinstance(inbox, SessionGone | DeliveryFailed):
                    return call, inbox
                # Remembered with the delivery: its receipt is asked of the same host, also after
                # a restart.
                call = msgspec.structs.replace(call, host=self._hosts.host_of(inbox))
                text = msgspec.json.encode(message).decode()
                is_first = self.states.start_sending(call)
                sent = _session_message(call, text, is_first_attempt=is_first)
                return call, await inbox.deliver(sent)
        except TimeoutError:
            return call, DeliveryFailed(f"it took longer than {_SEND_TIMEOUT_S:g} s")
        except AgentError as error:
            return call, DeliveryFailed(error.message, is_refused=isinstance(error, AgentFailed))

    async def _record_result(
        self, call: Call, result: SendResult, attempt: "_Attempt"
    ) -> DeliveryFailed | None:
        if isinstance(result, DeliveryFailed):
            self.states.end_attempt(call, was_refused=result.is_refused)
            if self._is_shared:
                await self._unmark_sending(call)
            # `was_refused` takes this outcome out of the order of its session: a message that the
            # host never accepts must not block the later ones. The next of them is woken.
            if result.is_refused and call.caller.session_key is not None:
                self._wake_next(call.caller.session_key)
            return result
        if isinstance(result, SessionGone):
            await self._discard(call, OutcomeEvent.SESSION_GONE, result.reason, attempt)
            return None

        def edit(known: Call) -> Call:
            now = self._now()
            return msgspec.structs.replace(
                known, delivered_at=now, sending_at=None, reason=None, host=call.host
            )

        if call.route is OutcomeRoute.INBOX:
            await self._record(call.id, OutcomeEvent.ACCEPTED_BY_WEBHOOK, edit, attempt)
        else:
            await self._record(call.id, OutcomeEvent.ACCEPTANCE_RECORDED, edit, attempt)
            self._watch_receipt(call)
        return None

    # ---------------------------------------------------------------- order within a session

    def _waits_for_earlier(self, call: Call) -> bool:
        """True when an earlier outcome has to reach the same session first."""
        session_key = call.caller.session_key
        if call.route is not OutcomeRoute.SESSION or session_key is None:
            return False
        if not self._calls.has_other_undelivered(call, session_key):
            return False
        # No other outcome would wake one that may be overtaken, so it must not wait.
        if self.states.may_be_overtaken(call):
            return False
        # Not `first is call`: two outcomes that were settled at the same instant may go together.
        first = self._first_undelivered(session_key)
        return first is not None and settled_at(first) < settled_at(call)

    def _first_undelivered(self, session_key: SessionKey) -> Call | None:
        since = self._now() - _ORDER_LIMIT
        skip = self.states.may_be_overtaken
        return self._calls.first_undelivered(session_key, since=since, skip=skip)

    def _pass_next(self, call: Call) -> None:
        """The session has the outcome: let the next one follow, before this is recorded.

        What a crash leaves unrecorded is sent again; the host drops what it knows.
        """
        session_key = call.caller.session_key
        self.states.advance(call, OutcomeEvent.ACCEPTED_BY_HOST)
        if session_key is not None and self._calls.has_other_undelivered(call, session_key):
            self._wake_next(session_key)

    def _wake_next(self, session_key: SessionKey) -> None:
        # Only the first: it wakes the next one in turn. And only one whose attempt found another
        # before it: any other has an attempt of its own under way, or waits for its next one.
        first = self._first_undelivered(session_key)
        if first is not None and self.states.end_wait_for_earlier(first):
            self._wake(first.task_id)

    # ---------------------------------------------------------------- receipts

    def _watch_receipt(self, call: Call) -> None:
        """Follow a delivered outcome until the caller's agent has processed it."""
        inbox = self._hosts.find_inbox(call)
        if inbox is not None:
            self.states.enter(call, OutcomeState.PROCESSING)
            self._engine.supervisor.spawn("calls-receipt", self._follow_receipt(call, inbox))

    async def _follow_receipt(self, call: Call, inbox: SessionInbox) -> None:
        lost = None
        try:
            is_processed = await self._wait_processed(call, inbox)
            while True:
                try:
                    if is_processed:
                        await self._record(call.id, OutcomeEvent.PROCESSED, self._mark_seen)
                    else:
                        lost = await self._record_loss(call.id)
                    break
                except GatewayError as error:
                    reason = error.message
                    log.warning("calls.receipt_not_recorded", call_id=call.id, reason=reason)
                # Retried with the host's first answer (`is_processed`): asked again, the host may
                # have forgotten the message.
                await self._clock.sleep(_RETRY_S)
        finally:
            # Before the sleep below, during which the outcome may be sent again (by another
            # replica, or because a poll woke the outbox): a later `forget` would delete the state
            # of that new attempt.
            self.states.forget(call.id)
        if lost is not None:
            await self._clock.sleep(_RETRY_S)  # a host that keeps losing it is not kept busy
            self._wake(lost.task_id)

    async def _wait_processed(self, call: Call, inbox: SessionInbox) -> bool:
        message = _session_message(call, "", is_first_attempt=False)
        try:
            return await inbox.wait_processed(message)
        except AgentError as error:
            log.warning("calls.receipt_not_followed", call_id=call.id, reason=error.message)
            return False

    async def _record_loss(self, call_id: CallId) -> Call | None:
        """A lost outcome is sent again, as long as the callee's answer can be read."""
        call = self._calls.find(call_id)
        if call is None:
            return None
        if await self._engine.store.tasks.read_task(None, call.task_id) is not None:
            return await self._record(
                call_id,
                OutcomeEvent.LOST_BY_HOST,
                lambda known: msgspec.structs.replace(known, delivered_at=None),
            )
        reason = "its host lost it, and the callee's task is purged"
        await self._discard(call, OutcomeEvent.LOST_WITH_ANSWER, reason)
        return None

    # ---------------------------------------------------------------- recording steps

    async def _record(
        self,
        call_id: CallId,
        event: OutcomeEvent,
        edit: Callable[[Call], Call | None],
        attempt: "_Attempt | None" = None,
    ) -> Call | None:
        """Commit a step and then take it; None when it does not apply (any more).

        A step that leaves an `attempt` nothing to send is stored with the end of its delivery.
        Raises: StoreUnavailable (the state is as before).
        """
        target: OutcomeState | None = None

        # Asked again for each version that is edited: after a conflict with another replica the
        # step may not be possible any more.
        def guarded(known: Call) -> Call | None:
            nonlocal target
            target = self.states.next_state(known, event)
            return None if target is None else edit(known)

        progress = None if attempt is None else attempt.progress
        changed = await self._calls.update(call_id, guarded, progress)
        if changed is not None and target is not None:
            self.states.enter(changed, target)
            if attempt is not None:
                attempt.saved = progress
        return changed

    async def _discard(
        self, call: Call, event: OutcomeEvent, reason: str, attempt: "_Attempt | None" = None
    ) -> None:
        def edit(known: Call) -> Call:
            return msgspec.structs.replace(
                known, status=CallStatus.DISCARDED, discarded_at=self._now(), reason=reason
            )

        if await self._record(call.id, event, edit, attempt) is not None:
            log.warning("calls.discarded", call_id=call.id, callee=call.callee, reason=reason)

    def _mark_seen(self, call: Call) -> Call | None:
        """The call once its caller has the outcome."""
        if call.seen_at is not None:
            return None
        now = self._now()
        if call.discarded_at is not None:  # never delivered: the caller polled it
            return msgspec.structs.replace(call, seen_at=now)
        return msgspec.structs.replace(call, seen_at=now, delivered_at=call.delivered_at or now)

    def _reroute(self, call: Call, route: OutcomeRoute) -> Call:
        """The call with another route, because its caller waits no longer."""
        is_ready = route is OutcomeRoute.INBOX and self._post_webhook is None
        delivered_at = call.settled_at if is_ready else None
        return msgspec.structs.replace(call, route=route, delivered_at=delivered_at)


class _Attempt:
    """One attempt of the outbox."""

    __slots__ = ("is_retry", "progress", "saved", "task")

    def __init__(self, delivery: Delivery, task: CalleeTask, now: datetime) -> None:
        self.task = task
        self.is_retry = delivery.attempts > 0
        self.progress: Delivery | None = None
        """The delivery when nothing is left to send; None while the callee works on."""
        if task.head is not None and task.is_ended:
            self.progress = delivered_up_to(delivery, task.head.sequence, now=now)
        self.saved: Delivery | None = None
        """`progress`, once it is stored."""


def _finished(delivery: Delivery, task: CalleeTask, saved: Delivery | None = None) -> Delivered:
    """The result for the outbox when there is nothing to send.

    The delivery is over once the callee's task has ended; until then the outbox keeps it.
    """
    if not task.is_ended or task.head is None:
        return Delivered(delivery.cursor, is_sent=False, is_over=task.is_ended)
    cursor = task.head.sequence
    return Delivered(cursor, is_sent=cursor != delivery.cursor, is_over=True, saved=saved)


def _session_message(call: Call, text: str, *, is_first_attempt: bool) -> SessionMessage:
    receiver = call.caller.session_key or call.return_to
    return SessionMessage(
        call.id, receiver, text, SOURCE_TOOL, call.session_key, is_first_attempt=is_first_attempt
    )


def _receiver(call: Call) -> str:
    return call.caller.session_key or call.caller.name
