"""Calls of one store: a write-through cache with optimistic locking on the record's version.

An outcome that follows from the callee's task is cached first and stored with the next change of
its call (`stage`): a crash in between takes nothing away that the task does not give again.

Where several replicas share the store, the cache has the calls that this one drives: it owns their
deliveries. Everything else is read from the store, and changed there by the same version.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.call import CALL_KIND, Call, Caller, CallId, CallStatus, OutcomeRoute
from openclaw_a2a.model.delivery import Delivery
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import AgentId, SessionKey, TaskId
from openclaw_a2a.model.records import encode_json
from openclaw_a2a.ports import DeliveryStore, Record, RecordStore

log = get_logger(__name__)

MAX_SETTLED = 10_000
_MAX_PURGED = 500
_MIN_RETENTION = timedelta(seconds=60)
_MAX_RETENTION = timedelta(hours=1)
_UNDELIVERED_RETENTION = timedelta(days=30)
"""How long an outcome waits for a host that does not accept it."""

_SESSION_KIND = "call-session"
"""The kind of the records that say which outcomes a session may be working on."""
_MAX_IN_SESSION = 16
_SESSION_RETENTION = timedelta(days=1)
_LOOK_S = 1.0
"""How often a call that another replica drives is read again while its outcome is awaited."""

_decoder = msgspec.json.Decoder(Call)
_ids_decoder = msgspec.json.Decoder(list[CallId])
_T = TypeVar("_T")


class CallRepository:
    """Finds and updates calls. Those that are delivered are purged after a while."""

    def __init__(
        self, store: RecordStore, deliveries: DeliveryStore, *, is_shared: bool = False
    ) -> None:
        """`is_shared`: other replicas drive calls in the same store."""
        self.is_shared = is_shared
        self._store = store
        self._deliveries = deliveries
        self._calls: dict[CallId, Call] = {}
        self._unsaved: set[CallId] = set()
        """Calls that are settled here and not in the store yet."""
        self._with_outcome: dict[CallId, None] = {}
        """The settled calls, so that `purge` need not go through the pending ones."""
        self._inherited: set[CallId] = set()
        """Calls that an earlier process accepted, and of which it may have sent the outcome."""
        self._by_task: dict[TaskId, CallId] = {}
        self._settled: dict[CallId, asyncio.Event] = {}
        self._queues: dict[SessionKey, dict[CallId, Call]] = {}
        """By session, the calls whose outcomes have still to be sent to it."""
        self._pending: dict[AgentId, set[CallId]] = {}
        """By calling agent, the calls without an outcome; a debate's own calls are left out."""
        self.pending_count = 0
        self.purged: deque[Call] = deque(maxlen=_MAX_PURGED)
        """The calls that were purged last, for the operator; only those of this process."""
        self.on_delivered: Callable[[SessionKey], None] = lambda _: None
        """Called when an outcome has left the queue of its session, and others are still in it."""

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[Call]:
        """All calls, in the order of their acceptance."""
        return iter(list(self._calls.values()))

    async def load(self, is_ours: Callable[[Call], bool] = lambda _: True) -> list[Call]:
        """Take the stored calls that an earlier process, or another replica, has left."""
        # Not those that are here: what is known of them is newer.
        found = [one for one in await self._read_all() if one.id not in self._calls]
        taken = [one for one in found if is_ours(one)]
        for call in taken:
            self._inherit(call)
        return taken

    async def adopt(self, call_id: CallId) -> Call | None:
        """The call with this id, to be driven here from now on."""
        call = await self.fetch(call_id)
        if call is not None and call_id not in self._calls:
            self._inherit(call)
        return call

    def _inherit(self, call: Call) -> None:
        self.add(call)
        self._inherited.add(call.id)

    async def _read_all(self) -> list[Call]:
        decoded = [_decode(_decoder, one) for one in await self._store.list_records(CALL_KIND)]
        return sorted(filter(None, decoded), key=lambda call: call.accepted_at)

    async def list_all(self) -> list[Call]:
        """All calls of the store, in the order of their acceptance."""
        if not self.is_shared:
            return list(self._calls.values())
        return [self._calls.get(call.id, call) for call in await self._read_all()]

    def find(self, call_id: CallId) -> Call | None:
        """The call with this id, whoever made it, if it is driven here."""
        return self._calls.get(call_id)

    async def fetch(self, call_id: CallId) -> Call | None:
        """The call with this id, whoever made it and drives it."""
        if (known := self._calls.get(call_id)) is not None or not self.is_shared:
            return known
        record = await self._store.read_record(CALL_KIND, call_id)
        # It may have been taken over meanwhile.
        return self._calls.get(call_id) or _decode(_decoder, record)

    async def fetch_owned(self, caller: Caller, call_id: CallId) -> Call | None:
        """The call with this id, if the caller made it or is the operator."""
        call = await self.fetch(call_id)
        is_visible = call is not None and (caller.is_operator or call.caller.is_same(caller))
        return call if is_visible else None

    async def fetch_by_task(self, caller: Caller, task_id: TaskId) -> Call | None:
        """As `fetch_owned`, the call that the callee works on in this task."""
        call_id = self._by_task.get(task_id)
        if call_id is None and self.is_shared:
            found = await self._deliveries.list_task_deliveries(None, task_id)
            ids = (CallId(one.body.decode()) for one in found if one.kind == CALL_KIND)
            call_id = next(ids, None)
        return None if call_id is None else await self.fetch_owned(caller, call_id)

    def to_record(self, call: Call) -> Record:
        """The stored form of a call."""
        return Record(CALL_KIND, call.id, encode_json(call), expires_at(call), call.version)

    def add(self, call: Call) -> None:
        """Cache a call that is stored, or being stored together with its task."""
        # Two commits may be reported in another order than they were made in.
        known = self._calls.get(call.id)
        if known is not None and known.version > call.version:
            return
        self._calls[call.id] = call
        is_settled = call.status is not CallStatus.PENDING
        was_pending = known is not None and known.status is CallStatus.PENDING
        if known is None:
            self._by_task[call.task_id] = call.id
        if is_settled:
            self._with_outcome[call.id] = None
        if was_pending is is_settled:
            self._count_pending(call, is_pending=not is_settled)
        session_key = call.caller.session_key
        if session_key is not None:
            if call.route is OutcomeRoute.SESSION and call.is_undelivered:
                self._queues.setdefault(session_key, {})[call.id] = call
            elif session_key in self._queues:
                self._unqueue(call.id, session_key)
        if is_settled and (settled := self._settled.pop(call.id, None)) is not None:
            settled.set()

    def remove(self, call: Call) -> None:
        """Drop a call from the cache: its record is deleted, or was never stored."""
        self._calls.pop(call.id, None)
        self._by_task.pop(call.task_id, None)
        self._with_outcome.pop(call.id, None)
        self._unsaved.discard(call.id)
        self._inherited.discard(call.id)
        self._count_pending(call, is_pending=False)
        if call.caller.session_key is not None:
            self._unqueue(call.id, call.caller.session_key)
        if (settled := self._settled.pop(call.id, None)) is not None:
            settled.set()

    def clear(self) -> None:
        """Drop all calls: other replicas drive them now."""
        for call in list(self._calls.values()):
            self.remove(call)

    def pending_of(self, agent_id: AgentId) -> int:
        """How many calls of an agent have no outcome yet."""
        return len(self._pending.get(agent_id, ()))

    def _count_pending(self, call: Call, *, is_pending: bool) -> None:
        if call.parent is not None:  # a step: its debate is counted
            return
        agent_id = call.caller.agent_id
        pending = self._pending.setdefault(agent_id, set())
        before = len(pending)
        (pending.add if is_pending else pending.discard)(call.id)
        self.pending_count += len(pending) - before
        if not pending:
            del self._pending[agent_id]

    def is_unsaved(self, call_id: CallId) -> bool:
        """True when a call is settled here and not in the store yet."""
        return call_id in self._unsaved

    def is_inherited(self, call_id: CallId) -> bool:
        """True when an earlier process accepted the call."""
        return call_id in self._inherited

    def stage(self, call_id: CallId, edit: Callable[[Call], Call | None]) -> Call | None:
        """Change a call here only, as `update` does; the next `update` stores this change, too.

        Only for what the next process would find out by itself.
        """
        known = self._calls.get(call_id)
        edited = None if known is None else edit(known)
        if edited is not None:
            self._unsaved.add(call_id)
            self.add(edited)
        return edited

    async def update(
        self, call_id: CallId, edit: Callable[[Call], Call | None], progress: Delivery | None = None
    ) -> Call | None:
        """Change a call; the changed call, or None when `edit` has nothing to change.

        `progress` of the call's delivery is stored in the same transaction. `edit` runs again when
        another replica changed the record first. Raises: StoreUnavailable.
        """
        while (known := self._calls.get(call_id)) is not None:
            edited = edit(known)
            if edited is None:
                return None
            changed = msgspec.structs.replace(edited, version=known.version + 1)
            # Both before anything is awaited: the store commits writes of one turn together. If
            # only the second one succeeds, the next start looks at the call again (`resume`).
            writing = self._store.update_record(self.to_record(changed))
            saving = None if progress is None else self._deliveries.update_delivery(progress)
            try:
                is_written = await writing
            except GatewayError:
                if saving is not None:
                    with suppress(GatewayError):
                        await saving
                raise
            if saving is not None:
                await saving
            if is_written:
                # After the commit only: what is in the cache is never taken back by a crash.
                self._unsaved.discard(call_id)
                self.add(changed)
                return changed
            # Another replica was faster. Its version is edited again, or the call is purged.
            record = await self._store.read_record(CALL_KIND, call_id)
            self._unsaved.discard(call_id)
            if record is None:
                if (gone := self._calls.get(call_id)) is not None:  # else `purge` was faster
                    self.remove(gone)
            elif (found := _decode(_decoder, record)) is not None:
                self.add(found)
            else:
                return None
        return None

    async def update_stored(self, call: Call, edit: Callable[[Call], Call | None]) -> Call | None:
        """As `update`, for a call that another replica drives; `call` is how it was read."""
        known: Call | None = call
        while known is not None and (edited := edit(known)) is not None:
            changed = msgspec.structs.replace(edited, version=known.version + 1)
            if await self._store.update_record(self.to_record(changed)):
                return changed
            known = _decode(_decoder, await self._store.read_record(CALL_KIND, call.id))
        return None

    # ---------------------------------------------------------------- sessions at work

    async def note_in_session(
        self, session_key: SessionKey, call_id: CallId, now: datetime
    ) -> None:
        """Store that a session may soon work on an outcome, for the other replicas to see."""
        while True:
            record = await self._store.read_record(_SESSION_KIND, session_key)
            known = _decode(_ids_decoder, record) or []
            ids = [*(one for one in known if one != call_id), call_id][-_MAX_IN_SESSION:]
            version = 0 if record is None else record.version + 1
            body, until = msgspec.json.encode(ids), now + _SESSION_RETENTION
            if await self._store.update_record(
                Record(_SESSION_KIND, session_key, body, until, version)
            ):
                return

    async def list_in_session(self, session_key: SessionKey) -> list[Call]:
        """The calls whose outcomes a session may be working on, whichever replica sent them."""
        record = await self._store.read_record(_SESSION_KIND, session_key)
        found = [await self.fetch(one) for one in _decode(_ids_decoder, record) or []]
        return [one for one in found if one is not None and (one.is_sending or one.is_unprocessed)]

    def first_undelivered(
        self, session_key: SessionKey, *, since: datetime, skip: Callable[[Call], bool]
    ) -> Call | None:
        """The first of a session's undelivered outcomes that were settled since then."""
        queue = self._queues.get(session_key)
        if queue is None:
            return None
        recent = (one for one in queue.values() if settled_at(one) >= since and not skip(one))
        return min(recent, key=settled_at, default=None)

    def has_other_undelivered(self, call: Call, session_key: SessionKey) -> bool:
        """True when a session has an undelivered outcome of another call, of whatever age."""
        queue = self._queues.get(session_key)
        return queue is not None and (len(queue) > 1 or call.id not in queue)

    async def wait_settled(self, call_id: CallId) -> Call | None:
        """The call once it is settled; None when it is removed before."""
        while True:
            call = await self.fetch(call_id)
            if call is None or call.is_settled:
                return call
            settled = self._settled.setdefault(call_id, asyncio.Event())
            # Another replica may drive it, which sets no event here; it may be ours at any time.
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S if self.is_shared else None):
                    await settled.wait()

    async def purge(self, now: datetime) -> int:
        """Delete calls that are delivered for long enough by `now`, and the oldest above the limit.

        How many there were. Raises: StoreUnavailable.
        """
        expired: list[Call] = []
        kept: list[Call] = []
        for call in [self._calls[call_id] for call_id in self._with_outcome]:
            # A debate that runs again after a restart looks for the answers of its steps.
            is_needed = call.parent is not None and call.parent in self._calls
            if not (is_needed or call.is_undelivered or call.is_unprocessed):
                is_expired = call.parent is not None or expires_at(call) <= now
                (expired if is_expired else kept).append(call)
        if (excess := len(kept) - MAX_SETTLED) > 0:
            kept.sort(key=settled_at)
            expired += kept[: max(excess, MAX_SETTLED // 10)]
        # First here, then in the store: a call that is being deleted must not be polled any more.
        # A crash in between leaves records that the next process loads and purges.
        for call in expired:
            self.remove(call)
        self.purged += expired
        # Together, so that the store deletes them in one transaction.
        await asyncio.gather(*(self._store.delete_record(CALL_KIND, call.id) for call in expired))
        return len(expired)

    def _unqueue(self, call_id: CallId, session_key: SessionKey) -> None:
        queue = self._queues.get(session_key, {})
        if queue.pop(call_id, None) is None:
            return
        if queue:
            self.on_delivered(session_key)
        else:
            del self._queues[session_key]


def _decode(decoder: msgspec.json.Decoder[_T], record: Record | None) -> _T | None:
    """What a record holds; None when there is no record, or it is not readable."""
    if record is None:
        return None
    try:
        return decoder.decode(record.body)
    except (ValueError, RecursionError) as error:
        log.warning("calls.record_unreadable", call_id=record.id, reason=str(error))
        return None


def expires_at(call: Call) -> datetime:
    """Until when the record of a call is kept."""
    if call.settled_at is None or call.parent or call.is_undelivered or call.is_unprocessed:
        return (call.deadline or call.accepted_at) + _UNDELIVERED_RETENTION
    timeout = timedelta(milliseconds=call.timeout_ms)
    # From when the caller got it: a gateway that dies between recording a poll and answering it
    # sends no message any more, so the poll must find the outcome when it is repeated.
    since = max(call.settled_at, call.seen_at or call.settled_at)
    return since + min(max(timeout, _MIN_RETENTION), _MAX_RETENTION)


def settled_at(call: Call) -> datetime:
    """When a call was settled, which is the order in which a session gets outcomes."""
    return call.settled_at or call.accepted_at
