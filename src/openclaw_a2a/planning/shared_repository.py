"""Objectives of several gateways on one store: every replica reads and changes all of them.

A change is an append to the log after the sequence that it was decided on, so any replica may make
it: one that lost the race decides again by the newest state. Only the *execution* of an objective
belongs to one replica, its owner, which the store names with the log: the one that created it,
later the one that took over the work of that one.

    a change elsewhere   found by a notification, or by comparing sequences
                         ──> `_refresh`: read the lines that are new, apply and publish them
    a read by id         reads the head of the log first: what was written at one replica is read
                         at every other one
    a take-over          `compare` finds that the owner is this replica now ──> it is adopted
    lease lost           this replica owns nothing any more; the store refuses late writes
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta

import msgspec

from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import GatewayError, QuotaExceeded
from openclaw_a2a.model.ids import OwnerId, PeerName
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.planning.listing import ObjectiveIndex
from openclaw_a2a.planning.model import ObjectiveId, PlanId
from openclaw_a2a.planning.operations import decode_operation
from openclaw_a2a.planning.repository import LOG_KIND, ObjectiveRepository, replay_log
from openclaw_a2a.planning.state import Change, CommandContext, ObjectiveState, apply
from openclaw_a2a.ports import LogStore, Record, RecordStore, ReplicaStore, SharedLog, StoredLog

log = get_logger(__name__)

PLAN_ID_KIND = "objective-plan-id"
_RESERVED_FOR = timedelta(minutes=10)
"""How long a reservation of a plan id lasts: long enough to create the plan."""
_ALL_S = 300.0
"""How often archived objectives are compared, too."""
_PAGE = 1000


class SharedObjectiveRepository(ObjectiveRepository):
    """The objectives of a store that several gateways use."""

    def __init__(
        self,
        logs: LogStore,
        records: RecordStore,
        supervisor: Supervisor,
        command_context: Callable[[], CommandContext],
        replicas: ReplicaStore,
    ) -> None:
        super().__init__(logs, records, supervisor, command_context)
        self._replicas = replicas
        self._own: set[ObjectiveId] = set()
        self._numbers: dict[ObjectiveId, int] = {}
        """The numbers of the logs in memory, as far as they are known; see `SharedLog`."""
        self._unreadable: dict[ObjectiveId, int] = {}
        """The sequences of logs that describe no objective, so that they are read only once."""
        self._notified: set[ObjectiveId] = set()
        self._must_compare = self._must_compare_all = False
        self._wake = asyncio.Event()
        self._compare_lock = asyncio.Lock()
        self._compares = 0
        """The number of the comparison that began last."""
        self._compared = 0
        """The number of the last one that succeeded."""

    # ---------------------------------------------------------------- from the other replicas

    def on_changed(self, log_ids: Iterable[str] | None) -> None:
        """Called when objectives changed elsewhere (None: any may have changed)."""
        if log_ids is None:
            self._must_compare = self._must_compare_all = True
        else:
            self._notified.update(map(ObjectiveId, log_ids))
        self._wake.set()

    def on_taken_over(self) -> None:
        """Called when this replica may have taken over objectives of another."""
        self._must_compare = True
        self._wake.set()

    def on_lost(self) -> None:
        """Called when this replica lost its lease: others execute its objectives."""
        self._own.clear()
        self.on_taken_over()

    async def follow(self) -> None:
        """Keep up with what other replicas write, as long as the gateway runs."""
        now = asyncio.get_running_loop().time
        compare_at, compare_all_at = now(), now() + _ALL_S
        while True:
            self._wake.clear()
            notified, self._notified = self._notified, set()
            is_read = False
            try:
                for objective_id in notified:
                    await self._follow_one(objective_id)
                if self._must_compare_all or now() >= compare_all_at:
                    # Before the comparison: a notification that comes meanwhile needs another one.
                    self._must_compare_all = False
                    try:
                        await self._compare_archived()
                    except GatewayError:
                        self._must_compare_all = True
                        raise
                    compare_all_at = now() + _ALL_S
                if self._must_compare or now() >= compare_at:
                    self._must_compare = False
                    compare_at = now() + self._replicas.poll_s
                    await self.compare()
                is_read = True
            except GatewayError as error:
                self._must_compare = True
                log.warning("planning.changes_not_read", reason=error.message)
            wait_s = compare_at - now() if is_read else self._replicas.poll_s
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, wait_s)):
                    await self._wake.wait()

    async def compare(self) -> None:
        """Find changes without a notification, and the owners of objectives."""
        # One comparison that begins after this, and succeeds, is enough for all callers.
        begun = self._compares
        async with self._compare_lock:
            if self._compared > begun:
                return
            self._compares += 1
            found = await self._replicas.list_shared_logs(LOG_KIND)
            changed = [head for head in found if not self._note(head)]
            for head in changed:
                await self._follow_one(ObjectiveId(head.id))
            listed = {head.id for head in found}
            for objective_id in [one for one in self._open if one not in listed]:
                await self._follow_one(objective_id)  # archived or deleted; or just created here
            for known in (self._numbers, self._unreadable):
                for objective_id in known.keys() - self._open.keys() - listed:
                    del known[objective_id]
            self._own &= self._open.keys()
            self._compared = self._compares

    def _note(self, head: SharedLog) -> bool:
        """Note the owner of an objective; False when memory is behind its log."""
        objective_id = ObjectiveId(head.id)
        state = self._open.get(objective_id)
        if state is None:
            return self._unreadable.get(objective_id) == head.sequence
        # Newer in memory than here: it was changed after the heads were read.
        is_same = self._numbers.get(objective_id, head.number) == head.number
        if not is_same or state.seq < head.sequence:
            return False
        self._numbers[objective_id] = head.number
        self._set_owner(objective_id, head.owner)
        return True

    async def _compare_archived(self) -> None:
        """Forget archived objectives that were deleted elsewhere."""
        if not self._is_index_complete:
            return
        known, after = self._index.ids() - self._open.keys(), ""
        while heads := await self._logs.list_log_heads(LOG_KIND, after=after, limit=_PAGE):
            known -= {ObjectiveId(head.id) for head in heads}
            after = heads[-1].id
        for objective_id in known:
            await self._follow_one(objective_id)

    async def _follow_one(self, objective_id: ObjectiveId) -> None:
        async with self._lock(objective_id):
            await self._read_newer(objective_id)

    def _set_owner(self, objective_id: ObjectiveId, owner: OwnerId) -> None:
        # Compared with the id of now: a name that this replica had before is not its own.
        if owner != self._replicas.id:
            self._own.discard(objective_id)
        elif objective_id not in self._own:
            state = self._open.get(objective_id)
            if state is not None:
                self._own.add(objective_id)
                for adopt in self._adopters:
                    adopt(state)

    # ---------------------------------------------------------------- reading

    def is_own(self, objective_id: ObjectiveId) -> bool:
        """True when this replica executes the plans of an objective."""
        return objective_id in self._own

    async def find_newest(self, objective_id: ObjectiveId) -> ObjectiveState | None:
        """An objective that is not archived, as it is in the log."""
        async with self._lock(objective_id):
            await self._refresh(objective_id)
        return self._open.get(objective_id)

    async def find(self, scope: Scope | None, objective_id: ObjectiveId) -> ObjectiveState | None:
        """An objective as it is in the log; None when there is none."""
        if objective_id in self._open:  # another one is read from its log anyway
            async with self._lock(objective_id):
                await self._refresh(objective_id)
        return await super().find(scope, objective_id)

    async def load_index(self) -> ObjectiveIndex:
        """The index, with everything that other replicas have written."""
        await self.compare()
        return await super().load_index()

    async def _refresh(self, objective_id: ObjectiveId) -> None:
        if objective_id in self._open or objective_id in self._subscriptions:
            await self._read_newer(objective_id)

    async def _read_newer(self, objective_id: ObjectiveId) -> None:
        """Apply and publish what others wrote; under the lock of the objective."""
        known = self._open.get(objective_id)
        found = await self._replicas.read_shared_log(
            LOG_KIND,
            objective_id,
            number=self._numbers.get(objective_id, 0),
            after=0 if known is None else known.seq,
        )
        if found is None:
            self._forget(objective_id)
            return
        is_same = self._numbers.setdefault(objective_id, found.number) == found.number
        if known is not None and (not is_same or found.sequence < known.seq):
            self._forget(objective_id)  # deleted, and this is a new one with its id
            known = None
            self._numbers[objective_id] = found.number
        if known is None or found.sequence > known.seq:
            change = self._read_change(objective_id, known, found)
            if change is None:
                self._unreadable[objective_id] = found.sequence
                return
            self._publish(change)
            if objective_id in self._own:
                for look in self._watchers:
                    look(change.state)
        if not found.is_closed:
            self._set_owner(objective_id, found.owner)

    def _read_change(
        self, objective_id: ObjectiveId, known: ObjectiveState | None, found: SharedLog
    ) -> Change | None:
        """What a log says beyond what is known; None when it describes no objective."""
        if known is None:
            stored = StoredLog(objective_id, found.lines, found.is_closed)
            state = replay_log(stored) if found.lines else None
            return None if state is None else Change(state, self.command_context())
        change = Change(known, self.command_context())
        for line in found.lines:
            try:
                operation = msgspec.structs.replace(decode_operation(line.body), seq=line.sequence)
            except GatewayError as error:
                reason = error.message
                log.warning("planning.log_line_skipped", objective_id=objective_id, reason=reason)
                continue
            apply(change.state, operation)
            change.operations.append(operation)
        change.state.seq = found.sequence
        return change

    async def _read(self, objective_id: ObjectiveId) -> ObjectiveState | None:
        state = await super()._read(objective_id)
        if state is None and objective_id not in self._open:
            self._forget(objective_id)  # an archived one that another replica deleted
        return state

    def _forget(self, objective_id: ObjectiveId) -> None:
        super()._forget(objective_id)
        self._numbers.pop(objective_id, None)
        self._own.discard(objective_id)

    # ---------------------------------------------------------------- changing

    async def _reload(self, objective_id: ObjectiveId) -> None:
        """Does nothing: the next attempt reads and publishes the new lines."""

    async def _create(self, change: Change, lines: Sequence[bytes]) -> ObjectiveState:
        owner = self._replicas.id
        state = await super()._create(change, lines)
        self._set_owner(state.id, owner)
        return state

    async def _check_room(self, peer: PeerName) -> None:
        try:
            await super()._check_room(peer)
        except QuotaExceeded:  # unless others have ended meanwhile
            await self.compare()
            await super()._check_room(peer)

    async def reserve_plan_id(self, plan_id: PlanId, objective_id: ObjectiveId) -> bool:
        """Reserve the id of a plan; False when another objective has it, at any replica."""
        if not await super().reserve_plan_id(plan_id, objective_id):
            return False
        # Another replica may reserve it at this moment, for another objective.
        now, body = self.command_context().now, objective_id.encode()
        record = Record(PLAN_ID_KIND, plan_id, body, now + _RESERVED_FOR)
        if await self._records.update_record(record):
            return True
        stored = await self._records.read_record(PLAN_ID_KIND, plan_id)
        is_free = stored is None or stored.expires_at <= now or stored.body == body
        if stored is not None and not is_free:
            is_free = await self._read(ObjectiveId(stored.body.decode())) is None
        if is_free:
            await self._records.put_record(record)
            return True
        self._index.release_plan(plan_id, objective_id)
        return False

    async def release_plan_id(self, plan_id: PlanId, objective_id: ObjectiveId) -> None:
        """Release a reserved plan id, unless the plan was created."""
        await super().release_plan_id(plan_id, objective_id)
        if self._index.find_plan(plan_id) is None:
            await self._records.delete_record(PLAN_ID_KIND, plan_id)
