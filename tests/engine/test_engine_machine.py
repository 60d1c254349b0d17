"""The engine against a simple model: whatever callers, agents, disks and crashes do."""

import asyncio
import tempfile
from collections import defaultdict
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)
from tests.engine.controlled_agent import TIMEOUT_S, ControlledAgent, Run, Step
from tests.engine.event_lines import check_closed_once, check_journal
from tests.engine.harness import ALICE, HYBRID, RULES, Harness, yield_to_others

from openclaw_a2a.engine.tasks.active_task import DirectAnswer, TaskCreated
from openclaw_a2a.model.agent_event import (
    Failed,
    InputRequired,
    MessageEnd,
    Note,
    Reply,
    TextDelta,
    ToolPhase,
    ToolProgress,
)
from openclaw_a2a.model.errors import (
    Draining,
    MessageIdConflict,
    OutputNotAccepted,
    TaskNotCancelable,
    TaskNotWaiting,
    TaskTerminal,
)
from openclaw_a2a.model.ids import MessageId, OwnerId, TaskId
from openclaw_a2a.model.records import Entry
from openclaw_a2a.model.task import PAUSED, TERMINAL, TaskState, is_terminal
from openclaw_a2a.ports import Recovery

Result = TypeVar("Result")
EXAMPLES = settings().max_examples

says = st.sampled_from(
    [
        TextDelta("a"),
        TextDelta("b"),
        MessageEnd(),
        Reply.of_text("whole"),
        Note("note"),
        ToolProgress(ToolPhase.START, "tool", "1"),
        ToolProgress(ToolPhase.RESULT, "tool", "1"),
    ]
)
ends: st.SearchStrategy[tuple[Step, ...]] = st.sampled_from(
    [
        (),
        (Reply.of_text("done"),),
        (TextDelta("a"), Failed("no")),
        (RuntimeError("no"),),
        (TextDelta("b"), InputRequired("which?", resume="token")),
    ]
)


PLACES = st.integers(0, 999)
"""Where in a list a rule looks for what it is about: see `one_of`."""


def one_of(found: Sequence[Result], place: int) -> Result | None:
    """One of what is there now, or nothing.

    What is there depends on how far a real disk has come. The choice of rules and of their
    values must not: the same choices have to be possible when an example is repeated.
    """
    return found[place % len(found)] if found else None


class WatchedAgent(ControlledAgent):
    """Sees to it that no session has two runs at a time, and remembers the order."""

    def __init__(self, recovery: Recovery) -> None:
        super().__init__(recovery)
        self.active: list[Run] = []
        self.order: dict[str, list[str]] = defaultdict(list)

    def note(self, run: Run) -> None:
        self.active = [one for one in self.active if not one.stopped.is_set()]
        others = [one.turn.session_key for one in self.active]
        assert run.turn.session_key not in others, "two runs of one session at a time"
        self.active.append(run)
        self.order[run.turn.session_key].append(run.turn.message_id)


class EngineMachine(RuleBasedStateMachine):
    """Callers, an agent, a store that is slow at times, and crashes."""

    kind = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.body_of: dict[str, tuple[str, str | None, str | None]] = {}
        self.arrived: list[str] = []
        self.result_of: dict[str, str | bytes] = {}
        self.seen: dict[str, dict[int, Entry]] = defaultdict(dict)
        self.waiting: set[asyncio.Task[Any]] = set()
        self.problems: list[BaseException] = []

    @initialize(recovery=st.sampled_from(Recovery), is_hybrid=st.booleans(), joins=st.booleans())
    def open(self, recovery: Recovery, is_hybrid: bool, joins: bool) -> None:
        self.do(self._open(recovery, is_hybrid, joins))

    async def _open(self, recovery: Recovery, is_hybrid: bool, joins: bool) -> None:
        self.agent = WatchedAgent(recovery)
        folder = Path(self.folder.name)
        self.harness = Harness(self.kind, folder, self.agent, attempts=100, join_deltas=joins)
        self.harness.rules = HYBRID if is_hybrid else RULES
        await self.harness.open()

    def do(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do something, then let everybody else move."""

        async def all_of_it() -> Result:
            result = await work
            await self.harness.all_is_quiet()
            while not self.agent.is_idle:
                self.agent.note(await self.agent.next_run())
            return result

        return self.runner.run(all_of_it())

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self.waiting.add(task)
        task.add_done_callback(self._came_back)

    def _came_back(self, task: asyncio.Task[Any]) -> None:
        self.waiting.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            self.problems.append(problem)

    # ---------------------------------------------------------------- callers

    @rule(context=st.sampled_from("ab"))
    def send(self, context: str) -> None:
        self._say(context, None)

    @rule(place=PLACES)
    def send_to_task(self, place: int) -> None:
        if (task := one_of(self.tasks(), place)) is not None:
            self._say(None, task)

    def _say(self, context: str | None, task: str | None) -> None:
        message = f"m{len(self.body_of) + 1}"
        self.body_of[message] = f"body {message}", context, task
        self.do(self._send(message))

    @rule(place=PLACES)
    def send_again(self, place: int) -> None:
        if (message := one_of(sorted(self.body_of), place)) is not None:
            self.do(self._send(message))

    @rule(place=PLACES)
    def send_something_else_under_the_same_id(self, place: int) -> None:
        if (message := one_of(sorted(self.body_of), place)) is not None:
            self.do(self._send_other(message))

    def tasks(self) -> list[str]:
        """The tasks that callers know of."""
        return sorted({result for result in self.result_of.values() if isinstance(result, str)})

    async def _send(self, message: str) -> None:
        self.in_background(self._send_and_wait(message))

    async def _send_and_wait(self, message: str) -> None:
        body, context, task = self.body_of[message]
        await self._note_arrival(MessageId(message))
        try:
            run = await self.harness.send(
                body,
                message_id=message,
                context=context,
                task_id=task,
                waits=False,
            )
            first = await self.harness.first_of(run)
            self._note_result(message, first)
            if isinstance(first, TaskCreated):
                await self._follow(first.task.id, first.sequence)
            await self.harness.outcome_of(run)
        except (TaskTerminal, TaskNotWaiting, Draining, OutputNotAccepted):
            pass

    async def _note_arrival(self, message: MessageId) -> None:
        """A message that a crash swallowed arrives when it is sent again."""
        known = await self.harness.store.tasks.find_duplicate(ALICE, message)
        if known is None and (ALICE, message) not in self.harness.engine.pending_submissions:
            self.arrived = [one for one in self.arrived if one != message] + [message]

    def _note_result(self, message: str, first: TaskCreated | DirectAnswer) -> None:
        result = first.message if isinstance(first, DirectAnswer) else first.task.id
        assert self.result_of.setdefault(message, result) == result

    async def _send_other(self, message: str) -> None:
        _, context, task = self.body_of[message]
        known = await self.harness.store.tasks.find_duplicate(ALICE, MessageId(message))
        if known is None or self.harness.store.held:
            return
        try:
            run = await self.harness.send(
                "other", message_id=message, context=context, task_id=task
            )
            await self.harness.first(run)
        except MessageIdConflict:
            return
        raise AssertionError("another body was taken under a known message id")

    @rule(place=PLACES, start=st.integers(0, 10))
    def follow(self, place: int, start: int) -> None:
        if (task := one_of(self.tasks(), place)) is not None:
            self.do(self._follow(task, start))

    async def _follow(self, task: str, start: int) -> None:
        entries = await self.harness.entries(task)
        follower = await self.harness.follow(task, cursor=min(start, len(entries)))

        async def read() -> None:
            while not follower.is_over:
                before = follower.cursor
                for entry in await follower.next_events(60):
                    assert entry.sequence == before + 1
                    before = entry.sequence
                    assert self.seen[task].setdefault(entry.sequence, entry) == entry

        self.in_background(read())

    @rule(place=PLACES)
    def cancel(self, place: int) -> None:
        if (task := one_of(self.tasks(), place)) is not None:
            self.do(self._cancel(task))

    async def _cancel(self, task: str) -> None:
        async def wait() -> None:
            try:
                ended = await self.harness.cancel_of(task)
            except (TaskNotCancelable, Draining):
                return
            assert is_terminal(ended.status.state)
            if ended.status.state is TaskState.CANCELED:
                mine = [run for run in self.agent.active if run.turn.task_id == task]
                assert all(run.stopped.is_set() for run in mine)

        self.in_background(wait())

    # ---------------------------------------------------------------- the agent

    @rule(place=PLACES, step=says)
    def agent_says(self, place: int, step: Step) -> None:
        if (run := one_of(self.working(), place)) is not None:
            self.do(self._tell(run, step))

    async def _tell(self, run: Run, step: Step) -> None:
        run.tell(step)

    @rule(place=PLACES, steps=ends)
    def agent_ends(self, place: int, steps: tuple[Step, ...]) -> None:
        if (run := one_of(self.working(), place)) is not None:
            self.do(self._end(run, steps))

    async def _end(self, run: Run, steps: tuple[Step, ...]) -> None:
        run.end(*steps)

    def working(self) -> list[Run]:
        return [run for run in self.agent.active if not run.stopping.is_set()]

    # ---------------------------------------------------------------- the disk and the process

    @rule(writes=st.sampled_from([0, 1, 2, 1000]))
    def disk_is_slow(self, writes: int) -> None:
        """So many writes happen now; a thousand means that the disk is quick again."""
        self.do(self._write(writes))

    async def _write(self, writes: int) -> None:
        if writes == 1000:
            self.harness.store.release()
            return
        self.harness.store.hold()
        await self.harness.store.let_through(min(writes, len(self.harness.store.held)))

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        self.do(self._restart(is_clean))

    async def _restart(self, is_clean: bool) -> None:
        if is_clean:
            self.harness.store.release()
            await self.harness.all_is_quiet()
            await self.harness.engine.stop()
        else:
            self.harness.store.cut()
        for task in list(self.waiting):
            task.cancel()
        await asyncio.gather(*self.waiting, return_exceptions=True)
        await self.harness.crash()
        self.agent.forget_runs()
        self.agent.active = []
        self.agent.order.clear()
        await self.harness.start()

    # ---------------------------------------------------------------- what always holds

    @invariant()
    def nobody_met_a_contradiction(self) -> None:
        if self.problems:
            raise self.problems[0]

    @invariant()
    def sessions_are_answered_in_the_order_of_arrival(self) -> None:
        for order in self.agent.order.values() if hasattr(self, "agent") else ():
            assert order == sorted(set(order), key=self.arrived.index)

    def teardown(self) -> None:
        try:
            if hasattr(self, "harness"):
                self.runner.run(self._finish())
                self.nobody_met_a_contradiction()
        finally:
            self.runner.close()
            self.folder.cleanup()

    async def _finish(self) -> None:
        """Let everything end, and look at what is left."""
        self.harness.store.release()
        async with asyncio.timeout(TIMEOUT_S):
            while self.harness.engine.runs:
                while not self.agent.is_idle:
                    self.agent.note(await self.agent.next_run())
                for run in self.working():
                    run.end(Reply.of_text("done"))
                await yield_to_others()
            if self.waiting:
                await asyncio.wait(self.waiting)
        store, harness = self.harness.store, self.harness
        other = OwnerId("somebody-else")
        assert await store.tasks.claim_runs(other) == []
        for task_id in {result for result in self.result_of.values() if isinstance(result, str)}:
            await self._check(TaskId(task_id))
        await harness.close()

    async def _check(self, task_id: TaskId) -> None:
        entries, task = await self.harness.entries(task_id), await self.harness.task(task_id)
        check_journal(entries, task)
        assert task.status.state in TERMINAL | PAUSED
        for sequence, entry in self.seen[task_id].items():
            assert entries[sequence - 1] == entry
        if self.agent.recovery is Recovery.FAIL:
            check_closed_once([entry.event for entry in entries])


class SqliteEngineMachine(EngineMachine):
    """The same over a file."""

    kind = "sqlite"


TestEngineInMemory = EngineMachine.TestCase
TestEngineInMemory.settings = settings(
    settings.default, max_examples=4 * EXAMPLES, stateful_step_count=40
)
TestEngineInSqlite = SqliteEngineMachine.TestCase
TestEngineInSqlite.settings = settings(
    settings.default, max_examples=EXAMPLES, stateful_step_count=40
)
