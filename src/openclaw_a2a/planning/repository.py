"""Objectives from elsewhere: what must be true of them, and what becomes of their steps."""

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import datetime

import msgspec

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import GatewayError, StatusChangeNotAllowed, StoreUnavailable
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.planning.change_builder import Change, ChangeBuilder, CommandContext
from openclaw_a2a.planning.listing import ObjectiveIndex
from openclaw_a2a.planning.model import (
    OBJECTIVE_CLOSED,
    OBJECTIVE_PREFIX,
    ObjectiveId,
    PlanId,
    PlanLimits,
    PlanTaskId,
    PlanTaskStatus,
    Timestamp,
    is_valid_id,
    next_timestamp,
    to_datetime,
    to_timestamp,
)
from openclaw_a2a.planning.operations import (
    ObjectiveArchived,
    Operation,
    PlanTaskUpdated,
    decode_line,
    encode_line,
)
from openclaw_a2a.planning.rollup import running_tasks, settle
from openclaw_a2a.planning.state import ObjectiveState, not_found, replay
from openclaw_a2a.ports import LogAppend, LogLine, Store, StoredLog


def check_import_id(objective_id: ObjectiveId) -> None:
    """Make sure that files and sessions can be named for an objective.

    Raises: StatusChangeNotAllowed.
    """
    if not (objective_id.startswith(OBJECTIVE_PREFIX) and is_valid_id(objective_id)):
        raise StatusChangeNotAllowed(
            f"The id {objective_id[:80]!r} cannot be used: it must be {OBJECTIVE_PREFIX} and "
            "small letters and digits, with single hyphens between."
        )


def restart_lost_steps(
    state: ObjectiveState, steps: Sequence[PlanTaskId], occasion: CommandContext
) -> Change:
    """What follows from nobody doing these steps any more, which were under way."""
    draft = ChangeBuilder.for_state(state, occasion.now)
    for step in steps:
        draft.record(PlanTaskUpdated(step, status=PlanTaskStatus.CANCELED))
        draft.record(PlanTaskUpdated(step, status=PlanTaskStatus.PENDING))
    if steps:
        settle(draft)
    return draft.build()


log = get_logger(__name__)

LOG_KIND = "objective"
"""The kind of logs that hold the journals of objectives."""

_PAGE = 100
_TRIES = 3
Edit = Callable[[ObjectiveState, CommandContext], Change]
Heard = Callable[[Change], None]


class ObjectiveRepository:
    """The objectives of one store. Those that were reached are read when somebody asks for them."""

    def __init__(
        self,
        store: Store,
        *,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
        limits: PlanLimits,
    ) -> None:
        self._store = store
        self._now = now
        self._new_id = new_id
        self._limits = limits
        self._last_begun: Timestamp | None = None
        self._open: dict[ObjectiveId, ObjectiveState] = {}
        self._plans: dict[PlanId, ObjectiveId] = {}
        self._listing = ObjectiveIndex()
        self._listing_all = asyncio.Lock()
        self._is_all_listed = False
        """True when those that are not loaded are listed too: since somebody wanted to see all."""
        self._locks: weakref.WeakValueDictionary[ObjectiveId, asyncio.Lock] = (
            weakref.WeakValueDictionary()
        )
        self._listeners: list[Heard] = []
        self._news: weakref.WeakValueDictionary[ObjectiveId, asyncio.Event] = (
            weakref.WeakValueDictionary()
        )
        """What followers wait for; it goes with the last of them."""

    # ---------------------------------------------------------------- looking

    async def load(self) -> None:
        """Read the objectives that an earlier life left unfinished."""
        after = ""
        while page := await self._store.logs.list_open_logs(LOG_KIND, after=after, limit=_PAGE):
            for stored in page:
                state = _replayed(stored)
                if state is not None:
                    self._note(state)
            after = page[-1].id

    def open_objectives(self) -> Iterator[ObjectiveState]:
        """The objectives that are not archived, in the order of their making."""
        return iter(sorted(self._open.values(), key=lambda one: one.objective.created_at))

    async def find(self, objective_id: ObjectiveId) -> ObjectiveState:
        """An objective. Raises: PlanItemNotFound."""
        state = self._open.get(objective_id) or await self._read(objective_id)
        if state is None:
            raise not_found("objective", objective_id)
        return state

    async def find_plan(self, plan_id: PlanId) -> ObjectiveState:
        """The objective that a plan belongs to. Raises: PlanItemNotFound."""
        objective_id = self._plans.get(plan_id)
        if objective_id is None:
            await self._list_all()
            objective_id = self._plans.get(plan_id)
        if objective_id is None:
            raise not_found("plan", plan_id)
        return await self.find(objective_id)

    async def reserve_plan_id(self, plan_id: PlanId, objective_id: ObjectiveId) -> bool:
        """Have the id of a plan that is to be; False when another objective has it."""
        await self._list_all()
        return self._plans.setdefault(plan_id, objective_id) == objective_id

    async def release_plan_id(self, plan_id: PlanId, objective_id: ObjectiveId) -> None:
        """Let whoever wants the id of a plan have it, unless the plan came to be."""
        async with self._alone(objective_id):
            state = self._open.get(objective_id) or await self._read(objective_id)
            is_there = state is not None and plan_id in state.plans
            if not is_there and self._plans.get(plan_id) == objective_id:
                del self._plans[plan_id]

    async def load_index(self) -> ObjectiveIndex:
        """Every objective without its plans, in the order of lists."""
        await self._list_all()
        return self._listing

    async def read_log_lines(self, objective_id: ObjectiveId) -> list[bytes]:
        """The journal of an objective, line by line. Raises: PlanItemNotFound."""
        stored = await self._store.logs.read_log(LOG_KIND, objective_id)
        if stored is None:
            raise not_found("objective", objective_id)
        return [line.body for line in stored.lines]

    async def follow_operations(
        self, objective_id: ObjectiveId, after: int
    ) -> AsyncIterator[list[Operation]]:
        """What happens to an objective after a number, for as long as it is there."""
        while True:
            news = self._news.setdefault(objective_id, asyncio.Event())
            # Not between the writing of a change and its being known: whoever comes back with the
            # number of a line would seem to be ahead of the objective.
            async with self._alone(objective_id):
                stored = await self._store.logs.read_log(LOG_KIND, objective_id)
            if stored is None:
                return
            lines = [line for line in stored.lines if line.sequence > after]
            if lines:
                after = lines[-1].sequence
                yield [*filter(None, map(_numbered, lines))]
            await news.wait()

    # ---------------------------------------------------------------- changing

    def add_listener(self, heard: Heard) -> None:
        """Have somebody told of every change, when it is durable."""
        self._listeners.append(heard)

    @property
    def command_context(self) -> CommandContext:
        """What a change takes from outside, now."""
        return CommandContext(self._now(), self._new_id, self._limits)

    def creation_context(self) -> CommandContext:
        """As `occasion`, for a new objective: later than the one before, so that lists have an
        order also when the clock has not gone on."""
        now, last = to_timestamp(self._now()), self._last_begun
        self._last_begun = now if last is None else next_timestamp(last, now)
        return CommandContext(to_datetime(self._last_begun), self._new_id, self._limits)

    async def create(self, change: Change) -> ObjectiveState:
        """Keep a new objective. Raises: StatusChangeNotAllowed (its id is taken)."""
        if not await self._append(change, after=0):
            raise StatusChangeNotAllowed(f"There is an objective {change.state.id} already.")
        return self._tell(change)

    async def change(self, objective_id: ObjectiveId, edit: Edit) -> Change:
        """Change an objective as `edit` says, which sees its newest state.

        Raises: PlanItemNotFound, whatever `edit` raises, StoreUnavailable.
        """
        async with self._alone(objective_id):
            for _ in range(_TRIES):
                state = await self.find(objective_id)
                change = edit(state, self.command_context)
                if not change.operations:
                    return change
                change = _shelved_again(change)
                if await self._append(change, after=state.seq):
                    self._tell(change)
                    return change
                self._open.pop(objective_id, None)  # another process changed it: look again
        raise StoreUnavailable(f"objective {objective_id} is changed by others all the time")

    async def delete(
        self, objective_id: ObjectiveId, check: Callable[[ObjectiveState], Awaitable[None]]
    ) -> None:
        """Forget an objective, unless `check` raises about its newest state.

        Raises: PlanItemNotFound, whatever `check` raises.
        """
        async with self._alone(objective_id):
            state = await self.find(objective_id)
            await check(state)
            await self._store.logs.delete_log(LOG_KIND, objective_id)
            self._forget(state)

    async def import_log(self, lines: list[bytes]) -> ObjectiveState:
        """Keep an objective from its journal. Raises: StatusChangeNotAllowed, PlanItemNotFound.

        Steps that were under way elsewhere are to be begun again.
        """
        readable = [line for line in lines if _operation(line) is not None]
        numbered = [_renumbered(line, number) for number, line in enumerate(readable, 1)]
        state = replay(numbered).state
        if state is None:
            raise not_found("objective", "in these lines")
        await self._check_free(state)
        change = restart_lost_steps(state, await self._lost(state), self.command_context)
        bodies = [*numbered, *(_body(operation) for operation in change.operations)]
        is_kept = await self._store.logs.append_log(
            LogAppend(LOG_KIND, state.id, bodies, after=0, closes=state.is_archived)
        )
        if not is_kept:
            raise StatusChangeNotAllowed(f"There is an objective {state.id} already.")
        return self._tell(change)

    async def _check_free(self, state: ObjectiveState) -> None:
        """Make sure that an objective from elsewhere could be one of ours."""
        await self._list_all()
        check_import_id(state.id)
        taken = [one for one in state.plans if self._plans.get(one, state.id) != state.id]
        if taken:
            raise StatusChangeNotAllowed(f"There is a plan {taken[0][:80]} already.")

    async def _lost(self, state: ObjectiveState) -> list[PlanTaskId]:
        """The steps whose A2A tasks are under way, but not here."""
        if state.objective.status in OBJECTIVE_CLOSED:
            return []
        away = [
            task_id
            for task_id in running_tasks(state)
            if await self._store.tasks.read_task(None, task_id) is None
        ]
        return [task.id for task in state.tasks.values() if task.a2a_task_id in away]

    async def _append(self, change: Change, *, after: int) -> bool:
        bodies = [_body(operation) for operation in change.operations]
        archived = change.state.is_archived
        return await self._store.logs.append_log(
            LogAppend(
                LOG_KIND,
                change.state.id,
                bodies,
                after=after,
                closes=archived,
                reopens=not archived,
            )
        )

    def _tell(self, change: Change) -> ObjectiveState:
        self._note(change.state)
        for heard in self._listeners:
            heard(change)
        return change.state

    def _note(self, state: ObjectiveState) -> None:
        self._list(state)
        if state.is_archived:
            self._open.pop(state.id, None)
        else:
            self._open[state.id] = state
        self._ring(state.id)

    def _list(self, state: ObjectiveState) -> None:
        self._plans |= dict.fromkeys(state.plans, state.id)
        self._listing.put(state.objective, state.owner)

    def _ring(self, objective_id: ObjectiveId) -> None:
        news = self._news.pop(objective_id, None)
        if news is not None:
            news.set()

    def _forget(self, state: ObjectiveState) -> None:
        self._open.pop(state.id, None)
        self._listing.remove(state.id)
        for plan_id in state.plans:
            self._plans.pop(plan_id, None)
        self._ring(state.id)

    async def _read(self, objective_id: ObjectiveId) -> ObjectiveState | None:
        stored = await self._store.logs.read_log(LOG_KIND, objective_id)
        return None if stored is None else _replayed(stored)

    async def _list_all(self) -> None:
        """Read all that is not loaded, once."""
        async with self._listing_all:
            after = ""
            while not self._is_all_listed:
                heads = await self._store.logs.list_log_heads(LOG_KIND, after=after, limit=_PAGE)
                for head in heads:
                    if head.is_closed:
                        await self._list_closed(ObjectiveId(head.id))
                after = heads[-1].id if heads else after
                self._is_all_listed = not heads

    async def _list_closed(self, objective_id: ObjectiveId) -> None:
        async with self._alone(objective_id):  # it may just be deleted, or changed
            state = None if objective_id in self._open else await self._read(objective_id)
            if state is not None:
                self._list(state)

    def _alone(self, objective_id: ObjectiveId) -> asyncio.Lock:
        lock = self._locks.get(objective_id)
        if lock is None:
            lock = self._locks[objective_id] = asyncio.Lock()
        return lock


def _shelved_again(change: Change) -> Change:
    """The change; a journal that is archived ends so, whatever is noted in it later."""
    last = change.operations[-1]
    if not change.state.is_archived or isinstance(last.data, ObjectiveArchived):
        return change
    operation = Operation(last.seq + 1, last.at, ObjectiveArchived(change.state.id))
    state = msgspec.structs.replace(change.state, seq=operation.seq)
    return Change(state, (*change.operations, operation))


def find_a2a_task(state: ObjectiveState, task_id: str) -> TaskId | None:
    """The A2A task behind a plan task's id, or behind its own."""
    for task in state.tasks.values():
        if task_id in (task.id, task.a2a_task_id):
            return task.a2a_task_id
    return None


def _replayed(stored: StoredLog) -> ObjectiveState | None:
    replayed = replay(line.body for line in stored.lines)
    for problem in [*stored.problems, *(one.message for one in replayed.warnings)]:
        log.warning("objective-journal-odd", objective_id=stored.id, reason=problem)
    state = replayed.state
    if state is None:
        return None
    # Others may have numbered their lines in their own way; what counts is where ours go on.
    return msgspec.structs.replace(state, seq=stored.lines[-1].sequence)


def _operation(line: bytes) -> Operation | None:
    """The operation in a line; None when it cannot be read."""
    try:
        return decode_line(line)
    except GatewayError:
        return None


def _numbered(line: LogLine) -> Operation | None:
    """The operation in a line of the store, by the number that it has there."""
    operation = _operation(line.body)
    return None if operation is None else msgspec.structs.replace(operation, seq=line.sequence)


def _renumbered(line: bytes, number: int) -> bytes:
    return _body(msgspec.structs.replace(decode_line(line), seq=number))


def _body(operation: Operation) -> bytes:
    return encode_line(operation).rstrip(b"\n")
