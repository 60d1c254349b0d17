"""An engine for tests: a controlled store, agents, a manual clock, and shortcuts."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import TypeVar

import msgspec
from tests.engine.controlled_agent import TIMEOUT_S, AgentTable
from tests.engine.controlled_store import ControlledStore

from openclaw_a2a.engine.engine import AccountRules, Engine, EngineLimits
from openclaw_a2a.engine.recovery import recover_runs
from openclaw_a2a.engine.scheduling.session_queue import QueueLimits, SessionQueues
from openclaw_a2a.engine.tasks import queries
from openclaw_a2a.engine.tasks.active_task import (
    DirectAnswer,
    DuplicateRun,
    TaskCreated,
    TaskFinished,
)
from openclaw_a2a.engine.tasks.cancel import cancel_task
from openclaw_a2a.engine.tasks.queries import Subscription
from openclaw_a2a.engine.tasks.results import wait_created, wait_final_result
from openclaw_a2a.engine.tasks.run import ActiveRun
from openclaw_a2a.engine.tasks.submit import SubmitRequest, submit
from openclaw_a2a.model.ids import AccountId, AgentId, ContextId, MessageId, PeerName, TaskId
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.records import Entry, decode_task
from openclaw_a2a.model.task import Task, TaskState
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import Agent, MeasuredTask, Store
from openclaw_a2a.store import create_store

Result = TypeVar("Result")
ALICE = Scope(PeerName("alice"), AccountId("default"))
BOB = Scope(PeerName("bob"), AccountId("default"))
RULES = AccountRules(AccountId("default"), AgentId("main"))
"""Every run is a task."""
HYBRID = AccountRules(AccountId("default"), AgentId("main"), is_task_generating=False)
"""A run is a task when a message cannot hold it."""
BEGINNING = datetime(2026, 11, 15, 6, tzinfo=UTC)


class ManualClock:
    """A clock that a test moves; every look at it is a millisecond later."""

    def __init__(self) -> None:
        self._now = BEGINNING
        self._sleepers: list[tuple[datetime, asyncio.Future[None]]] = []
        self._asleep = asyncio.Event()

    def now(self) -> datetime:
        self._now += timedelta(milliseconds=1)
        return self._now

    async def sleep(self, seconds: float) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._now + timedelta(seconds=seconds), waiter))
        self._asleep.set()
        await waiter

    def advance(self, seconds: float) -> None:
        """Let time pass; whose time has come wakes up."""
        self._now += timedelta(seconds=seconds)
        due = [sleeper for sleeper in self._sleepers if sleeper[0] <= self._now]
        self._sleepers = [sleeper for sleeper in self._sleepers if sleeper not in due]
        for _, waiter in due:
            if not waiter.done():
                waiter.set_result(None)

    async def one_round(self, seconds: float) -> None:
        """Let time pass for the one who sleeps, and wait until it sleeps again."""
        await in_time(self._asleep.wait())
        self._asleep.clear()
        self.advance(seconds)
        await in_time(self._asleep.wait())


class Harness:
    """One engine at a time over one store. A crash drops the engine, not what is stored."""

    def __init__(self, kind: str, folder: Path, agent: Agent, **limits: float) -> None:
        self.kind = kind
        self.agents = AgentTable(main=agent)
        self.clock = ManualClock()
        self.limits = EngineLimits(**limits)  # pyright: ignore[reportArgumentType] - counts too
        self.queues = SessionQueues(QueueLimits())
        self.rules = RULES
        self._path = folder / ("state.db" if kind == "sqlite" else "tasks")
        self._ids = count(1)
        self._disk: Store = self._make_store()
        self.store = ControlledStore(self._disk)
        self.engine = self._make_engine()

    def _make_store(self) -> Store:
        return create_store(self.kind, path=None if self.kind == "memory" else str(self._path))

    def _make_engine(self) -> Engine:
        engine = Engine(
            self.store,
            self.agents,
            queues=self.queues,
            clock=self.clock,
            limits=self.limits,
            new_id=lambda: f"id-{next(self._ids)}",
        )
        engine.accounts[RULES.account] = self.rules
        return engine

    # ---------------------------------------------------------------- life and death

    async def open(self) -> None:
        await self.store.open()

    async def close(self) -> None:
        self.store.release()
        await self.engine.stop()
        await self.store.close()

    async def crash(self) -> None:
        """Everything the process had in memory is gone; what the store took is there."""
        self.store.cut()
        self.engine.limits = msgspec.structs.replace(self.engine.limits, cancel_s=0.001)
        await self.engine.stop()
        await self._disk.close()

    async def start(self) -> int:
        """A new process over the same store: how many runs it had to take over."""
        await self.start_without_recovery()
        return await recover_runs(self.engine)

    async def start_without_recovery(self) -> None:
        """A new process that leaves alone what it finds."""
        if self.kind != "memory":
            self._disk = self._make_store()
        self.store = ControlledStore(self._disk)
        self.queues = SessionQueues(QueueLimits())
        await self.store.open()
        self.engine = self._make_engine()

    def use_queues(self, queues: SessionQueues) -> None:
        """Go on with an engine that has these queues."""
        self.queues = queues
        self.engine = self._make_engine()

    def another_engine(self) -> Engine:
        """One more engine over the same store, as a second process would have."""
        self.queues = SessionQueues(QueueLimits())
        return self._make_engine()

    async def store_is_quiet(self) -> None:
        """Wait until everything handed to the store so far is durable."""
        # Writes are committed in order, and this one changes nothing.
        await in_time(self.store.records.delete_record("none", "none"))

    async def all_is_quiet(self) -> None:
        """Wait until nobody moves any more, unless a test moves something."""
        await yield_to_others(50)
        while self.store.passing:
            await in_time(asyncio.wait(self.store.passing))
            await yield_to_others(50)

    async def restart(self) -> int:
        """Crash and start again."""
        await self.crash()
        return await self.start()

    # ---------------------------------------------------------------- what callers do

    async def send(
        self,
        text: str = "hello",
        *,
        message_id: str | None = None,
        context: str | None = None,
        task_id: str | None = None,
        scope: Scope = ALICE,
        is_blocking: bool = True,
        modes: tuple[str, ...] = (),
        references: tuple[str, ...] = (),
        waits: bool = True,
    ) -> ActiveRun | DuplicateRun:
        """Send a message to the agent (or on a task); `waits` until the store's word on it."""
        message = Message(
            MessageId(message_id or f"message-{next(self._ids)}"),
            Role.USER,
            (Part.of_text(text),),
            None if context is None else ContextId(context),
            None if task_id is None else TaskId(task_id),
            reference_task_ids=tuple(TaskId(reference) for reference in references),
        )
        run = await submit(
            self.engine, SubmitRequest(scope, message, is_blocking, modes), self.rules
        )
        if waits and isinstance(run, ActiveRun) and run.active_task is not None:
            await in_time(run.created.wait())
        return run

    async def first(self, run: ActiveRun | DuplicateRun) -> TaskCreated | DirectAnswer:
        return await in_time(self.first_of(run))

    async def first_of(self, run: ActiveRun | DuplicateRun) -> TaskCreated | DirectAnswer:
        return await wait_created(self.engine, run)

    async def shown(self, run: ActiveRun | DuplicateRun) -> Task:
        """The task that the run is first shown as."""
        first = await self.first(run)
        assert isinstance(first, TaskCreated)
        return first.task

    async def outcome(self, run: ActiveRun | DuplicateRun) -> TaskFinished | DirectAnswer:
        return await in_time(self.outcome_of(run))

    async def outcome_of(self, run: ActiveRun | DuplicateRun) -> TaskFinished | DirectAnswer:
        result = await wait_final_result(self.engine, run)
        if not isinstance(result, MeasuredTask):
            return result
        stored = await queries.get_task(self.engine, run.scope, result.head.id)
        return TaskFinished(stored.head.id, queries.task_json(stored))

    async def ended(self, run: ActiveRun | DuplicateRun) -> Task:
        """The task as the run left it."""
        outcome = await self.outcome(run)
        assert isinstance(outcome, TaskFinished)
        return decode_task(outcome.task)

    async def cancel(self, task_id: str, *, scope: Scope = ALICE) -> Task:
        return await in_time(self.cancel_of(task_id, scope=scope))

    async def cancel_of(self, task_id: str, *, scope: Scope = ALICE) -> Task:
        return decode_task(await cancel_task(self.engine, scope, TaskId(task_id)))

    async def task(self, task_id: str, *, scope: Scope = ALICE) -> Task:
        stored = await queries.get_task(self.engine, scope, TaskId(task_id))
        return decode_task(queries.task_json(stored))

    async def state(self, task_id: str) -> TaskState:
        return (await self.task(task_id)).status.state

    async def entries(self, task_id: str) -> list[Entry]:
        """Everything that was committed for a task."""
        return await self.store.tasks.read_events(None, TaskId(task_id), after=0, limit=1_000_000)

    async def follow(self, task_id: str, *, cursor: int | None = 0) -> Subscription:
        following = await queries.subscribe(self.engine, ALICE, TaskId(task_id), cursor=cursor)
        return following.subscription

    async def reach(self, task_id: str, is_reached: Callable[[list[Entry]], bool]) -> list[Entry]:
        """Follow a task, also past its pauses, until the committed events are as wanted."""
        follower, seen = await self.follow(task_id), list[Entry]()
        async with asyncio.timeout(TIMEOUT_S):
            while not is_reached(seen):
                seen += await follower.next_events(TIMEOUT_S)
                if follower.is_over:
                    await yield_to_others()
                    follower = await self.follow(task_id, cursor=follower.cursor)
        return seen


async def in_time(work: Awaitable[Result]) -> Result:
    """The result; a hang is a failure."""
    async with asyncio.timeout(TIMEOUT_S):
        return await work


async def read_all(follower: Subscription) -> list[Entry]:
    """Everything a follower gets, to its end."""
    seen: list[Entry] = []
    async with asyncio.timeout(TIMEOUT_S):
        while not follower.is_over:
            seen += await follower.next_events(TIMEOUT_S)
    return seen


async def yield_to_others(turns: int = 10) -> None:
    """Let everybody else do what they can do now."""
    for _ in range(turns):
        await asyncio.sleep(0)
