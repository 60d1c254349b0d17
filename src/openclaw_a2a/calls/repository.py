"""The calls that are known: each change is durable before it is believed, and made by one only."""

import asyncio
from collections.abc import Callable, Collection, Iterator
from datetime import datetime, timedelta

import msgspec

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.call import CALL_KIND, Call, CallId, OutcomeRoute
from openclaw_a2a.model.ids import SessionKey, TaskId
from openclaw_a2a.model.records import encode_json
from openclaw_a2a.ports import Record, RecordStore

log = get_logger(__name__)

MOST_SETTLED = 10_000
_SHORTEST_KEEP = timedelta(seconds=60)
_LONGEST_KEEP = timedelta(hours=1)
_UNDELIVERED_KEEP = timedelta(days=30)
"""An outcome that cannot be brought waits so long for its caller's host."""

_decoder = msgspec.json.Decoder(Call)


class CallRepository:
    """The calls of one store. Those that are over are forgotten after a while."""

    def __init__(self, store: RecordStore, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now
        self._calls: dict[CallId, Call] = {}
        self._by_task: dict[TaskId, CallId] = {}
        self._settled: dict[CallId, asyncio.Event] = {}
        """Rung when a call is settled, for those that somebody awaits."""
        self._queues: dict[SessionKey, dict[CallId, Call]] = {}
        """By session, the calls whose outcomes are still to be put into it."""
        self.on_brought: Callable[[SessionKey], None] = lambda _: None
        """Called when an outcome need not be put into a session any more."""

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[Call]:
        """All calls, in the order of their acceptance."""
        return iter(list(self._calls.values()))

    async def load(self) -> None:
        """Read the calls that an earlier life left."""
        found: list[Call] = []
        for record in await self._store.list_records(CALL_KIND):
            try:
                found.append(_decoder.decode(record.body))
            except msgspec.MsgspecError as error:
                log.warning("call-not-read", call_id=record.id, reason=str(error))
        for call in sorted(found, key=lambda call: call.accepted_at):
            self._keep(call)

    def find(self, call_id: CallId) -> Call | None:
        """The call with this id."""
        return self._calls.get(call_id)

    def of_task(self, task_id: TaskId) -> Call | None:
        """The call whose callee works on this task."""
        call_id = self._by_task.get(task_id)
        return None if call_id is None else self._calls.get(call_id)

    def record_of(self, call: Call) -> Record:
        """The call in its stored form."""
        return Record(CALL_KIND, call.id, encode_json(call), expires_at(call), call.version)

    def add(self, call: Call) -> None:
        """Take up a call that is being kept together with its task."""
        self._keep(call)

    def forget(self, call: Call) -> None:
        """The call was not kept after all."""
        self._drop(call)

    async def change(self, call_id: CallId, edit: Callable[[Call], Call | None]) -> Call | None:
        """Change a call; as it is then, or None when `edit` sees nothing to change.

        `edit` may be asked again, when another was faster. Raises: StoreUnavailable.
        """
        while (known := self._calls.get(call_id)) is not None:
            edited = edit(known)
            if edited is None:
                return None
            changed = msgspec.structs.replace(edited, version=known.version + 1)
            if await self._store.update_record(self.record_of(changed)):
                self._keep(changed)
                return changed
            await self._read_again(call_id)
        return None

    def first_for(
        self, session_key: SessionKey, *, since: datetime, besides: Collection[CallId]
    ) -> Call | None:
        """Of the calls settled since, the first whose outcome is to be put into a session."""
        queue = self._queues.get(session_key, {})
        waiting = (call for call in queue.values() if call.id not in besides)
        recent = (call for call in waiting if settled_at(call) >= since)
        return min(recent, key=settled_at, default=None)

    async def wait(self, call_id: CallId) -> Call | None:
        """The call once it is settled; None when it is not known any more."""
        while (call := self._calls.get(call_id)) is not None and not call.is_settled:
            await self._settled.setdefault(call_id, asyncio.Event()).wait()
        return call

    async def sweep(self) -> None:
        """Forget what is over for long enough, and the oldest when there is too much of it."""
        now = self._now()
        over = [call for call in self if self._is_over(call)]
        gone: list[Call] = []
        left: list[Call] = []
        for call in over:
            is_old = call.parent is not None or expires_at(call) <= now
            (gone if is_old else left).append(call)
        if (excess := len(left) - MOST_SETTLED) > 0:
            left.sort(key=settled_at)
            gone += left[: max(excess, MOST_SETTLED // 10)]
        for call in gone:
            self._drop(call)
        # Together, so that the store writes them in one go.
        await asyncio.gather(*(self._store.delete_record(CALL_KIND, call.id) for call in gone))

    def _is_over(self, call: Call) -> bool:
        """True when nobody needs the call for something that is under way."""
        if call.parent is not None and call.parent in self._calls:
            return False  # a debate that is held again after a restart looks for its answers
        return call.is_settled and not call.is_undelivered and not _is_unseen(call)

    async def _read_again(self, call_id: CallId) -> None:
        """Another changed the call: what it made of it is the truth."""
        record = await self._store.read_record(CALL_KIND, call_id)
        if record is None:
            self._drop(self._calls[call_id])
        else:
            self._keep(_decoder.decode(record.body))

    def _keep(self, call: Call) -> None:
        known = self._calls.get(call.id)
        if known is not None and known.version > call.version:
            return  # a later change was noted meanwhile
        self._calls[call.id] = call
        self._by_task[call.task_id] = call.id
        self._queue(call)
        if call.is_settled and (settled := self._settled.pop(call.id, None)) is not None:
            settled.set()

    def _queue(self, call: Call) -> None:
        """Have the call wait for its session, or wait no more."""
        session_key = call.caller.session_key
        if session_key is None:
            return
        if call.route is OutcomeRoute.SESSION and call.is_undelivered:
            self._queues.setdefault(session_key, {})[call.id] = call
        else:
            self._unqueue(call.id, session_key)

    def _unqueue(self, call_id: CallId, session_key: SessionKey) -> None:
        queue = self._queues.get(session_key, {})
        if queue.pop(call_id, None) is not None:
            if not queue:
                del self._queues[session_key]
            self.on_brought(session_key)

    def _drop(self, call: Call) -> None:
        self._calls.pop(call.id, None)
        self._by_task.pop(call.task_id, None)
        if call.caller.session_key is not None:
            self._unqueue(call.id, call.caller.session_key)
        if (settled := self._settled.pop(call.id, None)) is not None:
            settled.set()


def expires_at(call: Call) -> datetime:
    """Until when a call is kept."""
    is_needed = call.is_undelivered or _is_unseen(call) or call.parent is not None
    if call.settled_at is None or is_needed:
        return (call.deadline or call.accepted_at) + _UNDELIVERED_KEEP
    timeout = timedelta(milliseconds=call.timeout_ms)
    return call.settled_at + min(max(timeout, _SHORTEST_KEEP), _LONGEST_KEEP)


def _is_unseen(call: Call) -> bool:
    """True when its caller's host has the outcome and may yet lose it: then it is brought again."""
    is_brought = call.route is OutcomeRoute.SESSION and call.delivered_at is not None
    return is_brought and call.seen_at is None and call.discarded_at is None


def settled_at(call: Call) -> datetime:
    """When a call was settled, by which outcomes are told one after the other."""
    return call.settled_at or call.accepted_at
