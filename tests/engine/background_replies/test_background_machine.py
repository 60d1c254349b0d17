"""The engine against a simple model, with an agent that also talks outside its runs."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule
from tests.engine.controlled_agent import TIMEOUT_S, Run
from tests.engine.event_lines import check_closed_once
from tests.engine.harness import ALICE, yield_to_others
from tests.engine.test_engine_machine import PLACES, EngineMachine, WatchedAgent, one_of

from openclaw_a2a.engine.background_replies import BackgroundListener
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.model.agent_event import (
    BackgroundEvent,
    BackgroundReply,
    PauseResolved,
    RecentTask,
)
from openclaw_a2a.model.ids import AgentId, ContextId, TaskId
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.session_keys import session_key
from openclaw_a2a.model.task import (
    PAUSED,
    TERMINAL,
    ArtifactUpdate,
    Task,
    TaskState,
    TaskStatus,
    apply_event,
)
from openclaw_a2a.ports import Recovery, TaskQuery

EXAMPLES = settings().max_examples
MAIN = AgentId("main")


class BackgroundWatchedAgent(WatchedAgent):
    """Tells later words again to who listens anew, as long as it does not know they were taken."""

    def __init__(self, recovery: Recovery) -> None:
        super().__init__(recovery)
        self._missed: list[BackgroundEvent] = []
        self._news = asyncio.Event()

    def note(self, run: Run) -> None:
        if run.turn.message_id.startswith("pause-over-"):
            assert run.turn.resume == "token"
            self.active.append(run)  # it arrived when its pause ended; no caller sent it
            return
        super().note(run)

    def say_later(self, event: BackgroundEvent) -> None:
        self._missed.append(event)
        self._news.set()

    async def background_events(
        self, recent: Sequence[RecentTask]
    ) -> AsyncGenerator[BackgroundEvent]:
        while True:
            self._news.clear()
            for event in list(self._missed):
                yield event
                self._missed.remove(event)
            await self._news.wait()

    @property
    def has_said_all(self) -> bool:
        return not self._missed


class BackgroundMachine(EngineMachine):
    """What the engine's own machine does, and an agent that speaks at any other time too."""

    agent: BackgroundWatchedAgent

    def __init__(self) -> None:
        super().__init__()
        self.sent_replies: dict[str, str] = {}
        """Late replies by id, with the context whose session they were said in."""
        self.must_be_kept: set[str] = set()

    async def _open(self, recovery: Recovery, is_hybrid: bool, joins: bool) -> None:
        await super()._open(recovery, is_hybrid, joins)
        self.agent = BackgroundWatchedAgent(recovery)
        self.harness.agents[MAIN] = self.agent
        self._listen()

    async def _restart(self, is_clean: bool) -> None:
        await super()._restart(is_clean)
        self._listen()

    def _listen(self) -> None:
        engine = self.harness.engine
        listener = BackgroundListener([engine], MAIN, self.agent)
        engine.supervisor.run_loop("background-events", listener.run())

    @rule(context=st.sampled_from("ab"))
    def agent_says_later(self, context: str) -> None:
        reply_id = f"r{len(self.sent_replies) + 1}"
        self.sent_replies[reply_id] = context
        self.do(self._say_later(reply_id))

    @rule(place=PLACES)
    def agent_says_later_again(self, place: int) -> None:
        if (reply_id := one_of(sorted(self.sent_replies), place)) is not None:
            self.do(self._say_later(reply_id))

    async def _say_later(self, reply_id: str) -> None:
        context = self.sent_replies[reply_id]
        tasks = [await self.harness.task(task_id) for task_id in self.tasks()]
        if context in [task.context_id for task in tasks]:
            self.must_be_kept.add(reply_id)
        key = session_key(MAIN, ALICE.principal, ContextId(context))
        self.agent.say_later(BackgroundReply(key, reply_id, (Part.of_text(reply_id),)))

    @rule(place=PLACES)
    def pause_is_over(self, place: int) -> None:
        if (task_id := one_of(self.tasks(), place)) is not None:
            self.do(self._end_wait(PauseResolved(TaskId(task_id), "allowed", "token")))

    async def _end_wait(self, over: PauseResolved) -> None:
        self.agent.say_later(over)

    async def _finish(self) -> None:
        self.harness.store.release()
        async with asyncio.timeout(TIMEOUT_S):
            while not self.agent.has_said_all:
                self.harness.clock.advance(60)
                await yield_to_others()
        page = await self.harness.store.tasks.list_tasks(TaskQuery(ALICE, limit=1000))
        tasks = [TaskProjection.from_stored(stored).task() for stored in page.tasks]
        kept = Counter(_said_later(tasks))
        assert all(count == 1 for count in kept.values()), kept
        assert kept.keys() >= self.must_be_kept
        for task in tasks:
            assert all(self.sent_replies[reply] == task.context_id for reply in _said_later([task]))
        await super()._finish()

    async def _check(self, task_id: TaskId) -> None:
        entries, task = await self.harness.entries(task_id), await self.harness.task(task_id)
        assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
        events = [entry.event for entry in entries]
        ends = [place for place, entry in enumerate(entries) if entry.state in TERMINAL]
        assert len(ends) <= 1
        for event in events[ends[0] + 1 :] if ends else ():
            assert isinstance(event, ArtifactUpdate)
            assert event.artifact.artifact_id.startswith("queued-reply-")
        replayed = Task(task.id, task.context_id, TaskStatus(TaskState.SUBMITTED))
        for event in events:
            replayed = apply_event(replayed, event)
        assert (replayed.artifacts, replayed.status) == (task.artifacts, task.status)
        assert task.status.state in TERMINAL | PAUSED
        for sequence, entry in self.seen[task_id].items():
            assert entries[sequence - 1] == entry
        if self.agent.recovery is Recovery.FAIL:
            check_closed_once(events)


def _said_later(tasks: list[Task]) -> list[str]:
    return [
        artifact.parts[0].text or ""
        for task in tasks
        for artifact in task.artifacts
        if artifact.artifact_id.startswith("queued-reply-")
    ]


class SqliteBackgroundMachine(BackgroundMachine):
    """The same over a file."""

    kind = "sqlite"


TestLateInMemory = BackgroundMachine.TestCase
TestLateInMemory.settings = settings(
    settings.default, max_examples=EXAMPLES, stateful_step_count=30
)
TestLateInSqlite = SqliteBackgroundMachine.TestCase
TestLateInSqlite.settings = settings(
    settings.default, max_examples=EXAMPLES // 2, stateful_step_count=30
)
