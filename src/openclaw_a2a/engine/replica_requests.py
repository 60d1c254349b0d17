"""Sends requests to other replicas and handles requests from them.

A message, a cancellation or a decision of the operator for a session of another replica is stored
as a request for that one, and its answer beside it. The formats are in `replica_request_codec`.

    submit    hand off ──> `submit` there ──> follow the task here
              what the gateway itself submits (a call, a step) is handed off with its record and its
              delivery, which this replica goes on to send
    cancel    hand off ──> `cancel_task` there ──> read the task here
    release   the operator has allowed a held task: `HeldTasks.decide` there
    wait      the agent of a run there waits for an agent here, and holds no run slot meanwhile
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import msgspec

from openclaw_a2a.engine.engine import AccountRules, Engine
from openclaw_a2a.engine.replica_request_codec import (
    CancelRequest,
    InternalRequest,
    MessageRequest,
    ReleaseRequest,
    ReplicaRequest,
    RequestAnswer,
    WaitRequest,
    decode_request,
    decode_request_answer,
    describe_error,
    describe_message,
    restore_message,
)
from openclaw_a2a.engine.supervisor import wait_event
from openclaw_a2a.engine.tasks.active_task import DuplicateRun
from openclaw_a2a.engine.tasks.cancel import cancel_task
from openclaw_a2a.engine.tasks.held_tasks import HeldTasks
from openclaw_a2a.engine.tasks.run import ActiveRun
from openclaw_a2a.engine.tasks.submit import InternalOrigin, SubmitRequest, submit
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import (
    GatewayError,
    GatewayFault,
    Overloaded,
    StoreUnavailable,
    TaskNotCancelable,
)
from openclaw_a2a.model.ids import OwnerId, RunId, SessionKey, TaskId
from openclaw_a2a.model.records import RunRecord
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import NOBODY, Duplicate, Handoff, ReplicaStore

if TYPE_CHECKING:
    from openclaw_a2a.engine.replication import Replication

log = get_logger(__name__)

CLAIM_POLL_S = 0.1
"""How often to look whether a run that was given up has been claimed."""
_ANSWER_S = 120.0
"""The timeout of a request to another replica; covers a take-over if that one dies."""
_ANSWER_AGAIN_S = 0.5
_SHORT_WAIT_S = 0.25
"""A wait for another agent that is over sooner is not reported to the replica that has the run."""
_MAX_WAIT_S = 600.0

FindRun = Callable[[], Awaitable[RunRecord | None]]
"""Finds a run that another replica works on."""


class _ReleasedSlot:
    """The run slot of a run that waits elsewhere, and when it is taken back at the latest."""

    def __init__(self, run: ActiveRun) -> None:
        self._released = ExitStack()
        self._released.enter_context(run.slot.released())
        self.timer: asyncio.TimerHandle | None = None

    def retake(self) -> None:
        """The run goes on."""
        if self.timer is not None:
            self.timer.cancel()
        self._released.close()


class ReplicaRequests:
    """Sends the requests of one replica, and handles those of the others."""

    def __init__(self, engine: Engine, replication: "Replication") -> None:
        self._engine = engine
        self._replication = replication
        self._answers: dict[int, asyncio.Event] = {}
        """Set when the request of this number is answered."""
        self._in_progress: set[int] = set()
        """The requests that are being handled, and those of `_answered`."""
        self._answered: set[int] = set()
        """Those that ended since the last read began."""
        self._released_slots: dict[tuple[RunId, str], _ReleasedSlot] = {}
        """Of the runs here whose agents wait at other replicas, by who waits."""
        self._has_requests = asyncio.Event()

    @property
    def _store(self) -> ReplicaStore:
        return self._replication.store

    # ---------------------------------------------------------------- to others

    async def hand_off(
        self, owner: OwnerId, request: SubmitRequest, rules: AccountRules
    ) -> DuplicateRun:
        """Have another replica accept a message. Raises: why it does not."""
        if request.is_released:
            raise Overloaded("the session is in use on another replica; try again shortly")
        internal, origin = None, request.internal_origin
        if origin is not None:
            if request.message.task_id is None:  # what goes with the task names it
                task_id = request.new_task_id or TaskId(self._engine.new_id())
                request = msgspec.structs.replace(request, new_task_id=task_id)
            internal = self._describe_internal(request, origin, rules)
        answer = await self._request(owner, describe_message(request, internal))
        # Not one that was handed off to this replica; nor after this one was taken for dead while
        # it waited: then another one takes it over.
        is_ours = internal is not None and internal.sender == self._store.id
        delivery = None if internal is None else internal.delivery
        if delivery is not None and is_ours and request.delivery_owner is None:
            if delivery.task_id == answer.task_id:
                self._engine.wakeups.add_delivery(delivery)
            # It may have ended already. Or the same message was accepted before, whose delivery is
            # in the store, and is not known here if the answer to that was lost.
            self._engine.wakeups.notify(answer.task_id)
        duplicate = Duplicate(answer.run_id, answer.task_id, answer.answer)
        return DuplicateRun(duplicate, request.scope, request.message.message_id)

    def _describe_internal(
        self, request: SubmitRequest, origin: InternalOrigin, rules: AccountRules
    ) -> InternalRequest:
        is_new = request.message.task_id is None
        task_id = (request.new_task_id if is_new else request.message.task_id) or TaskId("")
        make_record, make_delivery = origin.make_record, request.make_delivery
        return InternalRequest(
            rules.agent_id,
            origin.session_key,
            origin.provenance,
            origin.metadata,
            None if make_record is None else make_record(task_id),
            None if make_delivery is None else make_delivery(task_id, 0 if is_new else -1),
            request.delivery_owner or self._store.id,
        )

    async def cancel_elsewhere(
        self, scope: Scope | None, task_id: TaskId, session_key: SessionKey | None
    ) -> bool:
        """Have the replica that works on a task stop it; False when no other one does any more."""
        owner = await self._store.find_owner(task_id)
        while owner == NOBODY:  # given up, and not claimed by a replica yet
            await self._engine.clock.sleep(CLAIM_POLL_S)
            owner = await self._store.find_owner(task_id)
        if owner is None:
            return False
        if owner == self._store.id:
            # This replica owns the task: it is still recovering its run, or could not continue it.
            if session_key is not None:
                await self._engine.recoveries.wait(session_key)
            await self._engine.clock.sleep(CLAIM_POLL_S)
            return False
        await self.cancel_at(owner, scope, task_id)
        return True

    async def cancel_at(self, owner: OwnerId, scope: Scope | None, task_id: TaskId) -> None:
        """Have a replica stop a task. Raises: as `cancel_task`."""
        try:
            await self._request(owner, CancelRequest(scope, task_id))
        except TaskNotCancelable:
            # If the owner dies before it stores its answer, another replica repeats the request and
            # finds the task canceled: that is success.
            measured = await self._engine.store.tasks.measure_task(scope, task_id)
            if measured is None or measured.head.state is not TaskState.CANCELED:
                raise

    async def release_elsewhere(self, owner: OwnerId, task_id: TaskId) -> None:
        """Have another replica release a held task. Raises: as `HeldTasks.decide`."""
        await self._request(owner, ReleaseRequest(task_id))

    async def _request(self, owner: OwnerId, request: ReplicaRequest) -> RequestAnswer:
        number = await self._store.hand_off(owner, msgspec.json.encode(request))
        answered = self._answers[number] = asyncio.Event()
        give_up_at = self._engine.loop.time() + _ANSWER_S
        try:
            while True:
                answered.clear()  # before the read: what comes while it lasts is not lost
                if (found := await self._store.take_answer(number)) is not None:
                    break
                if self._engine.loop.time() > give_up_at:
                    # Withdrawn, so that a replica cannot start it after we gave up.
                    await self._store.withdraw(number)
                    raise StoreUnavailable(
                        f"replica {owner} did not answer within {_ANSWER_S:g} s; ask again"
                    )
                await wait_event(answered, self._store.poll_s)
        finally:
            del self._answers[number]
        return decode_request_answer(found, owner)

    def on_answer(self, number: int) -> None:
        """A request of this replica is answered."""
        answered = self._answers.get(number)
        if answered is not None:
            answered.set()

    # ---------------------------------------------------------------- runs that wait for an agent

    @contextmanager
    def released_slot(self, find_run: FindRun) -> Generator[None]:
        """Within the block a run at another replica waits, and holds no run slot there.

        The block is entered at once; the other replica is notified in the background.
        """
        is_over = asyncio.Event()
        job = self._keep_released(find_run, self._engine.new_id(), is_over)
        self._engine.supervisor.spawn("keep-slot-released", job)
        try:
            yield
        finally:
            is_over.set()

    async def _keep_released(self, find_run: FindRun, waiter: str, is_over: asyncio.Event) -> None:
        lease_s = self._store.lease_s
        await wait_event(is_over, _SHORT_WAIT_S)
        run: RunRecord | None = None
        while not is_over.is_set():
            try:
                run = await find_run() or run  # which this replica itself may have taken over
                if run is None:
                    return
                await self._report_waiting(WaitRequest(run.id, waiter, lease_s), run.task_id)
            except GatewayError as error:  # the run keeps its slot until the next report
                log.warning("replica.slot_not_released", reason=error.message)
            await wait_event(is_over, lease_s / 3)
        if run is not None:
            try:
                await self._report_waiting(WaitRequest(run.id, waiter, 0), run.task_id)
            except GatewayError as error:  # it has its slot again when the time is over
                log.warning("replica.slot_not_released", reason=error.message)

    async def _report_waiting(self, request: WaitRequest, task_id: TaskId) -> None:
        owner = await self._store.find_owner(task_id)
        if owner is not None:
            await self._request(owner, request)

    def _set_waiting(self, request: WaitRequest) -> None:
        """Release the run slot of a run here, for some time, or let the run go on."""
        key = request.run_id, request.waiter
        released, run = self._released_slots.get(key), self._engine.runs.get(request.run_id)
        if request.seconds <= 0 or run is None:
            self._retake_slot(key)
            return
        if released is None:
            released = self._released_slots[key] = _ReleasedSlot(run)
        elif released.timer is not None:
            released.timer.cancel()
        seconds = min(request.seconds, _MAX_WAIT_S)
        released.timer = self._engine.loop.call_later(seconds, self._retake_slot, key)

    def _retake_slot(self, key: tuple[RunId, str]) -> None:
        released = self._released_slots.pop(key, None)
        if released is not None:
            released.retake()

    # ---------------------------------------------------------------- from others

    def read_soon(self) -> None:
        """There may be requests for this replica."""
        self._has_requests.set()

    async def serve(self) -> None:
        """Handle the requests of others, until cancelled."""
        while True:
            self._has_requests.clear()
            after = 0
            try:
                while requests := await self._read_requests(after):
                    for request in requests:
                        after = request.number
                        if request.number not in self._in_progress:
                            self._in_progress.add(request.number)
                            # Each by itself: one may wait for a session, or for an agent to stop.
                            self._engine.supervisor.spawn("request", self._handle(request))
            except GatewayError as error:
                log.warning("replica.requests_not_read", reason=error.message)
            await wait_event(self._has_requests, self._store.poll_s)

    async def _read_requests(self, after: int) -> list[Handoff]:
        # What was answered before this read is not found by it. What is answered while it lasts
        # may be, and must not be handled again: a task that was canceled "is canceled already".
        self._in_progress -= self._answered
        self._answered.clear()
        return await self._store.take_handoffs(after)

    async def _handle(self, handoff: Handoff) -> None:
        try:
            try:
                answer = await self._perform(handoff)
            except GatewayError as error:
                answer = describe_error(error)
            except Exception as error:  # top of the task: the requester always gets an answer
                log.exception("replica.request_failed", number=handoff.number)
                answer = describe_error(GatewayFault(f"the request broke: {type(error).__name__}"))
            await self._answer(handoff.number, msgspec.json.encode(answer))
        finally:
            self._answered.add(handoff.number)

    async def _answer(self, number: int, answer: bytes) -> None:
        # Until it is stored: handled again, what has succeeded would fail. When the request is
        # gone, or another replica's by now, the store does nothing, and this ends.
        while True:
            try:
                return await self._store.answer_handoff(number, answer)
            except GatewayError as error:
                log.warning("replica.request_not_answered", reason=error.message)
            await self._engine.clock.sleep(_ANSWER_AGAIN_S)

    async def _perform(self, handoff: Handoff) -> RequestAnswer:
        request = decode_request(handoff.body, self._store.id)
        if isinstance(request, CancelRequest):
            await cancel_task(self._engine, request.scope, request.task_id)
            return RequestAnswer()
        if isinstance(request, ReleaseRequest):
            # Its peer was approved where the operator decided.
            await HeldTasks(self._engine, None).decide(request.task_id, allow=True)
            return RequestAnswer()
        if isinstance(request, WaitRequest):
            self._set_waiting(request)
            return RequestAnswer()
        accepted = await submit(self._engine, restore_message(request), self._rules(request))
        if isinstance(accepted, ActiveRun):
            duplicate = await accepted.wait_stored()
        else:
            duplicate = accepted.duplicate
        return RequestAnswer(duplicate.run_id, duplicate.task_id, duplicate.answer)

    def _rules(self, request: MessageRequest) -> AccountRules:
        account = request.scope.account
        if request.internal is not None:  # it names its agent, and its account may be none of ours
            agent_id = request.internal.agent_id
            rules = self._engine.rules_of(account, agent_id)
            return msgspec.structs.replace(rules, agent_id=agent_id)
        if account not in self._engine.accounts:
            raise Overloaded(
                f"replica {self._store.id} has no account {account}; give all replicas the same "
                "settings"
            )
        return self._engine.accounts[account]
