"""The process ends between any two writes of the store; afterwards everything is as it must be.

Every scenario is played once for each write it makes: so many writes reach the store, the rest
never happens, a new engine takes over, and the clients come back and go on where they were.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import msgspec
import pytest
from tests.engine.controlled_agent import TIMEOUT_S
from tests.engine.event_lines import artifact_texts, check_journal
from tests.engine.harness import HYBRID, Harness, in_time, read_all, yield_to_others

from openclaw_a2a.engine.tasks.active_task import DirectAnswer, TaskCreated
from openclaw_a2a.model.agent_event import (
    AgentEvent,
    Failed,
    InputRequired,
    MessageEnd,
    Note,
    Reply,
    TextDelta,
    ToolPhase,
    ToolProgress,
    ToolReply,
)
from openclaw_a2a.model.errors import (
    GatewayError,
    TaskNotCancelable,
    TaskNotLive,
    TaskNotWaiting,
    TaskTerminal,
)
from openclaw_a2a.model.ids import MessageId, OwnerId
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.records import Entry
from openclaw_a2a.model.task import Task, TaskState, is_paused, is_terminal
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Recovery


class Actor:
    """Answers as the text of the message says; the second time as well as the first."""

    def __init__(self, recovery: Recovery) -> None:
        self.recovery = recovery
        self.running: set[str] = set()

    async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        """Answer; no two answers of one session at a time."""
        assert turn.session_key not in self.running, "two runs of one session at a time"
        self.running.add(turn.session_key)
        try:
            async for event in self._answer(turn):
                await asyncio.sleep(0)
                yield event
        finally:
            self.running.discard(turn.session_key)

    async def _answer(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        match turn.body:
            case "plain":
                yield Reply.of_text("plain answer")
            case "stream":
                yield TextDelta("one ")
                yield ToolProgress(ToolPhase.START, "abacus", "1")
                yield TextDelta("two ")
                yield ToolProgress(ToolPhase.RESULT, "abacus", "1")
                yield ToolReply((Part.of_text("found"),))
                yield MessageEnd()
                yield TextDelta("three")
            case "note":
                yield TextDelta("well ")
                yield Note("looking")
                yield TextDelta("done")
            case "ask":
                yield TextDelta("hm")
                yield InputRequired("which one?", resume={"for": turn.message_id})
            case "fail":
                yield TextDelta("oh")
                yield Failed("no luck")
            case "hang" if turn.attempt == 1:
                yield TextDelta("hanging")
                await asyncio.Event().wait()
            case _:
                yield Reply.of_text(f"{turn.body} with {turn.resume}")

    async def close(self) -> None:
        """Nothing is held."""


class Client:
    """Sends messages and follows their tasks; after a crash it does the same again.

    It checks that what it is told never contradicts what it was told before.
    """

    def __init__(self, name: str, *steps: str, context: str | None = None) -> None:
        self.name = name
        self.steps = steps
        self.context = context or name
        self.task_of: dict[str, str] = {}
        self.answer_of: dict[str, bytes] = {}
        self.seen: dict[str, list[Entry]] = {}

    async def play(self, harness: Harness) -> None:
        """All steps. `>text` goes to the task of the step before, `!` cancels it."""
        task_id: str | None = None
        for number, step in enumerate(self.steps):
            if step == "!":
                assert task_id is not None
                await self._cancel(harness, task_id)
            else:
                task_id = await self._send(harness, step, f"{self.name}-{number}", task_id)

    async def _send(
        self, harness: Harness, step: str, message_id: str, task_id: str | None
    ) -> str | None:
        target = task_id if step.startswith((">", "+")) else None
        try:
            run = await harness.send(
                step.lstrip(">+"),
                message_id=message_id,
                context=self.context,
                task_id=target,
                waits=False,
            )
            first = await harness.first(run)
        except TaskTerminal:
            return task_id  # the task failed in the crash before it got this message
        except TaskNotWaiting:
            assert target is not None  # the message before this one has answered the pause
            await self._follow(harness, target)
            return task_id
        if isinstance(first, DirectAnswer):
            assert self.answer_of.setdefault(message_id, first.message) == first.message
            assert message_id not in self.task_of
            return None
        assert self.task_of.setdefault(message_id, first.task.id) == first.task.id
        assert target in (None, first.task.id)
        self._check_shown(first)
        if not step.startswith("+"):
            await self._follow(harness, first.task.id)
        return first.task.id

    def _check_shown(self, first: TaskCreated) -> None:
        """A task is shown as it was: with everything that this client saw before."""
        seen = self.seen.setdefault(first.task.id, [])
        assert first.sequence <= len(seen) or not seen or first.sequence >= seen[-1].sequence

    async def _follow(self, harness: Harness, task_id: str) -> None:
        """Read on where the last connection broke off."""
        seen = self.seen.setdefault(task_id, [])
        follower = await harness.follow(task_id, cursor=len(seen))
        async with asyncio.timeout(TIMEOUT_S):
            while not follower.is_over:
                for entry in await follower.next_events(TIMEOUT_S):
                    assert entry.sequence == len(seen) + 1
                    seen.append(entry)

    async def _cancel(self, harness: Harness, task_id: str) -> None:
        try:
            await harness.cancel(task_id)
        except (TaskNotCancelable, TaskNotLive):
            assert is_terminal(await harness.state(task_id))
        await self._follow(harness, task_id)


async def crash_after(harness: Harness, clients: Sequence[Client], writes: int) -> bool:
    """Let so many writes happen, then end the process; False when there were not so many."""
    harness.store.hold()
    plays = [asyncio.ensure_future(client.play(harness)) for client in clients]
    happened = 0
    while happened < writes:
        for _ in range(3):
            await yield_to_others()
        if not harness.store.held:
            break
        await harness.store.let_through()
        happened += 1
    await yield_to_others()
    harness.store.cut()
    for play in plays:
        play.cancel()
    for result in await asyncio.gather(*plays, return_exceptions=True):
        if isinstance(result, Exception):
            raise result
    await harness.crash()
    return happened == writes


async def come_back(harness: Harness, clients: Sequence[Client]) -> None:
    """The process starts again, everybody goes on, and everything must be well."""
    await harness.start()
    await asyncio.gather(*(in_time(client.play(harness)) for client in clients))
    await in_time(idle(harness))
    other = OwnerId("somebody-else")
    left = await harness.store.tasks.claim_runs(other)
    assert left == []
    for client in clients:
        for task_id, seen in client.seen.items():
            await check_task(harness, task_id, seen)
        for message_id, task_id in client.task_of.items():
            await check_message(harness, message_id, task_id)


async def idle(harness: Harness) -> None:
    """Wait until nothing runs any more."""
    while harness.engine.runs:
        await asyncio.wait(
            [run.task for run in harness.engine.runs.values() if run.task is not None]
        )


async def check_task(harness: Harness, task_id: str, seen: Sequence[Entry]) -> None:
    entries, task = await harness.entries(task_id), await harness.task(task_id)
    assert entries[: len(seen)] == seen
    assert await read_all(await harness.follow(task_id)) == entries
    check_journal(entries, task)
    assert is_terminal(task.status.state) or is_paused(task.status.state)
    assert msgspec.json.encode(task)
    check_content(task)


async def check_message(harness: Harness, message_id: str, task_id: str) -> None:
    """An accepted message is in its task, unless the task was canceled before its turn came."""
    task = await harness.task(task_id)
    if task.status.state is not TaskState.CANCELED:
        assert [message.message_id for message in task.history].count(MessageId(message_id)) == 1


def check_content(task: Task) -> None:
    texts = artifact_texts(task)
    ids = [message.message_id for message in task.history]
    assert len(set(ids)) == len(ids)
    assert not {"answer", "other answer"} <= {message.text for message in task.history}
    if task.status.state is TaskState.COMPLETED and "three" in texts.values():
        assert texts["assistant-output-0001"] == "one two "
        assert list(texts.values()).count("found") == 1


SCENARIOS: dict[str, list[tuple[str, ...]]] = {
    "a task": [("stream",)],
    "a failure": [("fail",)],
    "a direct answer": [("plain",)],
    "a direct run that becomes a task": [("note",)],
    "a pause and its answer": [("ask", ">answer")],
    "two answers to one pause": [("ask", "+answer", ">other answer")],
    "two pauses": [("ask", ">ask", ">answer")],
    "a message on a working task": [("+stream", ">more")],
    "two messages on a working task": [("+stream", "+more", ">and more")],
    "a message on a task that pauses": [("+ask", ">answer")],
    "a cancel": [("+hang", "!")],
    "a cancel of a pause": [("ask", "!")],
    "a cancel of a task with waiting messages": [("+hang", "+more", "!")],
    "two contexts": [("stream", "plain"), ("note", "ask")],
}
DIRECT = {"a direct answer", "a direct run that becomes a task", "two contexts"}


def make_clients(scenario: str) -> list[Client]:
    return [Client(f"client{number}", *steps) for number, steps in enumerate(SCENARIOS[scenario])]


def make_room(scenario: str, kind: str, folder: Path, recovery: Recovery) -> Harness:
    harness = Harness(kind, folder, Actor(recovery), attempts=10)
    harness.rules = HYBRID if scenario in DIRECT else harness.rules
    return harness


async def play_with_crashes(
    harness: Harness, clients: Sequence[Client], *, crashes: Sequence[int]
) -> bool:
    """Play, crashing after so many writes of each life; False when one life was longer."""
    await harness.open()
    is_done = False
    for number, writes in enumerate(crashes):
        if number > 0:
            await harness.start()
        is_done = not await crash_after(harness, clients, writes)
        if is_done:
            break
    await come_back(harness, clients)
    await harness.close()
    return not is_done


@pytest.mark.requirement(
    "promise.commit.before-show",
    "promise.order.one-order",
    "promise.resume.missing-only",
    "promise.recovery.no-zombie",
    "promise.idempotent.direct",
)
@pytest.mark.parametrize("recovery", list(Recovery), ids=lambda one: one.value)
@pytest.mark.parametrize("kind", ["memory", "sqlite", "json-file"])
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_crash_between_any_two_writes_contradicts_nothing_that_was_seen(
    scenario: str, kind: str, recovery: Recovery, tmp_path: Path
) -> None:
    writes, goes_on = 0, True
    while goes_on:
        harness = make_room(scenario, kind, tmp_path / str(writes), recovery)
        try:
            goes_on = await play_with_crashes(harness, make_clients(scenario), crashes=[writes])
        except (AssertionError, GatewayError, TimeoutError) as error:
            error.add_note(f"the crash came after {writes} writes")
            raise
        writes += 1
    assert writes > 2


@pytest.mark.parametrize("recovery", list(Recovery), ids=lambda one: one.value)
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_crash_while_recovering_from_a_crash_contradicts_nothing_either(
    scenario: str, recovery: Recovery, tmp_path: Path
) -> None:
    first, goes_on = 1, True
    while goes_on:
        second, again = 0, True
        while again:
            harness = make_room(scenario, "memory", tmp_path, recovery)
            try:
                again = await play_with_crashes(
                    harness, make_clients(scenario), crashes=[first, second]
                )
            except (AssertionError, GatewayError, TimeoutError) as error:
                error.add_note(f"crashes came after {first} and {second} writes")
                raise
            second += 1
        goes_on = second > 1
        first += 1
        if first > 40:
            break
