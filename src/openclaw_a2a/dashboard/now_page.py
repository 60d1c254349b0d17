"""Read model of the first page: what waits for a person, what is worked on, what has ended."""

import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from statistics import median

from openclaw_a2a.dashboard.agents_page import AgentView
from openclaw_a2a.dashboard.requests import PageRequest
from openclaw_a2a.dashboard.task_list import TABS, TaskReader, TaskSummary, tab_counts
from openclaw_a2a.engine.approvals import ApprovalCache, WaitingApproval
from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.http.request_limits import RefusalCounts
from openclaw_a2a.model.delivery import DeliveryId, DeliveryState
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.model.records import TaskHead
from openclaw_a2a.model.task import PAUSED, TERMINAL, TaskState
from openclaw_a2a.ports import ALL_TASKS, Clock, RecentHead, StatusQuery

_COLUMN = 12
_WAITING = 50
_WINDOW_MINUTES = 30
_MEASURED = 500
"""How many ended tasks the figures are made of at most."""
_ENDED_STEP = 50
_REREAD_S = 60.0
_BUSY_REREAD_S = 2.0
_MAX_DELIVERIES = 1000
_FAILED_READ = 50
_MAX_FAILURES = 8
_REASON_CHARS = 120
_NUMBERS = re.compile(r"\b[0-9a-f-]*\d[0-9a-f-]*\b")


class GatewayHealth(JsonStruct, frozen=True, omit_defaults=False):
    """The state of the gateway in a few figures; `store` is empty while it takes writes.

    `openclaw` agents are run by an OpenClaw, `openclaw_linked` of them can be reached.
    """

    agents: int
    agents_available: int
    openclaw: int
    openclaw_linked: int
    store: str
    deliveries_waiting: int
    deliveries_dead: int
    streams: int
    runs: int
    loops_dead: tuple[str, ...] = ()


class Activity(JsonStruct, frozen=True, omit_defaults=False):
    """Tasks that ended in each of the last minutes, the oldest first, and how long they took.

    `seconds` is the median of each minute, None when none ended. `is_cut`: there were more than
    are counted here.
    """

    ended: tuple[int, ...]
    failed: tuple[int, ...]
    seconds: tuple[float | None, ...]
    median_seconds: float | None
    slowest_seconds: float | None
    is_cut: bool = False


class FailureCount(JsonStruct, frozen=True, omit_defaults=False):
    """How often something failed in the last half an hour.

    `kind` is `request` (`what` is the code of the error it was answered with) or `task` (`what` is
    the reason, in which numbers do not count).
    """

    kind: str
    what: str
    count: int


class NowPage(JsonStruct, frozen=True, omit_defaults=False):
    """The first page. `waiting_since`: the oldest of what waits for a person does since then."""

    approvals: tuple[WaitingApproval, ...]
    waiting: tuple[TaskSummary, ...]
    working: tuple[TaskSummary, ...]
    recent: tuple[TaskSummary, ...]
    counts: dict[str, int]
    health: GatewayHealth
    activity: Activity
    failures: tuple[FailureCount, ...]
    waiting_since: datetime | None
    troubles: tuple[str, ...] = ()


class NowReader:
    """Makes the first page."""

    def __init__(
        self,
        engines: Collection[Engine],
        tasks: TaskReader,
        approvals: ApprovalCache,
        *,
        agents: Callable[[], Sequence[AgentView]],
        count_streams: Callable[[], int],
        refusals: RefusalCounts,
        clock: Clock,
    ) -> None:
        self._engines = engines
        self._tasks = tasks
        self._ended = _EndedTasks(tasks)
        self._approvals = approvals
        self._agents = agents
        self._count_streams = count_streams
        self._refusals = refusals
        self._clock = clock

    async def read(self, _: PageRequest) -> NowPage:
        """The page as it is now."""
        now, asked = self._clock.now(), await self._approvals.current()
        # A task that an approval is about is listed once, as the approval.
        decided = {one.task_id for one in asked.approvals}
        waiting = await self._tasks.list_rows(StatusQuery(_WAITING, PAUSED))
        counts = await self._tasks.count_states(ALL_TASKS)
        newest, ended = await self._ended.read()
        recent = tuple([await self._tasks.row(*one) for one in newest[:_COLUMN]])
        since = [one.asked_at for one in asked.approvals] + [row.status_at for row in waiting]
        return NowPage(
            approvals=asked.approvals,
            waiting=tuple([row for row in waiting if row.id not in decided]),
            working=await self._tasks.list_rows(StatusQuery(_COLUMN, TABS["working"])),
            recent=recent,
            counts=tab_counts(counts),
            health=await self._health(),
            activity=_measure_activity(ended, now),
            failures=await self._failures(now),
            waiting_since=min(since, default=None),
            troubles=tuple([f"{one.agent}: {one.reason}" for one in asked.troubles]),
        )

    async def _health(self) -> GatewayHealth:
        agents, store = self._agents(), ""
        for engine in self._engines:
            try:
                await engine.store.check()
            except GatewayError as error:
                store = error.message
        hosted = [one for one in agents if one.adapter.startswith("openclaw")]
        return GatewayHealth(
            agents=len(agents),
            agents_available=sum(one.is_available for one in agents),
            openclaw=len(hosted),
            openclaw_linked=sum(one.is_available for one in hosted),
            store=store,
            deliveries_waiting=await self._count_deliveries(DeliveryState.WAITING),
            deliveries_dead=await self._count_deliveries(DeliveryState.DEAD),
            streams=self._count_streams(),
            runs=sum(len(engine.runs) for engine in self._engines),
            loops_dead=tuple(
                [name for engine in self._engines for name in engine.supervisor.dead_loops]
            ),
        )

    async def _count_deliveries(self, state: DeliveryState) -> int:
        stores = [engine.store.deliveries for engine in self._engines]
        first = DeliveryId("")
        found = [
            await one.list_deliveries(state, after=first, limit=_MAX_DELIVERIES) for one in stores
        ]
        return sum(map(len, found))

    async def _failures(self, now: datetime) -> tuple[FailureCount, ...]:
        """What failed most: requests by their codes, and tasks by their reasons."""
        reasons: Counter[str] = Counter()
        since = now - timedelta(minutes=_WINDOW_MINUTES)
        for row in await self._tasks.list_rows(StatusQuery(_FAILED_READ, TABS["failed"])):
            if row.status_at >= since:
                # Ids and numbers differ each time: with them every reason would be one of its own.
                reason = _NUMBERS.sub("…", " ".join(row.note.split()))[:_REASON_CHARS]
                reasons[reason or row.state] += 1
        found = [FailureCount("task", reason, count) for reason, count in reasons.items()]
        codes = self._refusals.by_code().items()
        found += [FailureCount("request", code, count) for code, count in codes]
        return tuple(sorted(found, key=lambda one: -one.count)[:_MAX_FAILURES])


class _EndedTasks:
    """The tasks that ended last, kept from one look to the next: an end never changes.

    Only what has ended since is read, unless that is more than a few: then a look within two
    seconds does without the others.
    """

    def __init__(self, tasks: TaskReader) -> None:
        self._tasks = tasks
        self._kept: list[TaskHead] = []
        self._read_at = float("-inf")

    async def read(self) -> tuple[list[tuple[Engine, RecentHead]], list[TaskHead]]:
        """The last few, and all that are measured; both the last one first."""
        newest = await self._tasks.list_heads(StatusQuery(_ENDED_STEP, TERMINAL))
        heads = [one.head for _, one in newest]
        last = self._kept[0] if self._kept else None
        added = [one for one in heads if last is None or _end_key(one) > _end_key(last)]
        has_all = len(added) < _ENDED_STEP
        age_s = time.monotonic() - self._read_at
        if age_s > (_REREAD_S if has_all else _BUSY_REREAD_S):
            # Also now and then: tasks are deleted, and clocks are set back.
            whole = await self._tasks.list_heads(StatusQuery(_MEASURED, TERMINAL))
            self._kept, self._read_at = [one.head for _, one in whole], time.monotonic()
            return newest, self._kept
        ended = [*added, *self._kept][:_MEASURED]
        if has_all:
            self._kept = ended
        return newest, ended


def _end_key(head: TaskHead) -> tuple[datetime, TaskId]:
    return head.status_at, head.id


def _measure_activity(ended_tasks: Sequence[TaskHead], now: datetime) -> Activity:
    start = now.replace(second=0, microsecond=0) - timedelta(minutes=_WINDOW_MINUTES - 1)
    ended, failed = [0] * _WINDOW_MINUTES, [0] * _WINDOW_MINUTES
    by_minute: list[list[float]] = [[] for _ in range(_WINDOW_MINUTES)]
    for head in ended_tasks:
        minute = int((head.status_at - start).total_seconds() // 60)
        if not 0 <= minute < _WINDOW_MINUTES:
            continue
        ended[minute] += 1
        failed[minute] += head.state in (TaskState.FAILED, TaskState.REJECTED)
        by_minute[minute].append((head.status_at - head.created_at).total_seconds())
    seconds = [one for minute in by_minute for one in minute]
    return Activity(
        ended=tuple(ended),
        failed=tuple(failed),
        seconds=tuple([round(median(one), 6) if one else None for one in by_minute]),
        median_seconds=round(median(seconds), 6) if seconds else None,
        slowest_seconds=round(max(seconds), 3) if seconds else None,
        is_cut=len(seconds) == _MEASURED,
    )
