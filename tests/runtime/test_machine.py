"""Anything at any time: messages, repeats, answers, cancels and crashes against a simple model.

The model knows three things: which message made which task, what was committed for each task when
it last looked (it may only grow), and how many runs each session has at this moment.
"""

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from openclaw_a2a.model.errors import TaskNotCancelable, TaskTerminal
from openclaw_a2a.model.reply import AgentEvent, InputRequired, Note, Reply, TextDelta
from openclaw_a2a.model.states import is_active, is_terminal
from openclaw_a2a.model.stored import Entry
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Recovery

from .outline import check_journal
from .room import Room, in_time, others_move, read_all

Result = TypeVar("Result")
CONTEXTS = ("a", "b", "c")
STEPS: list[AgentEvent | Exception | None] = [
    TextDelta("more "),
    Note("still at it"),
    Reply.of_text("done"),
    InputRequired("which?", "token"),
    ValueError("broken"),
    None,
]


PICK = st.integers(0, 999)
"""Which one of those there are: drawn without looking, for threads make what there is uncertain."""


def _picked(things: Collection[str], pick: int) -> str | None:
    return sorted(things)[pick % len(things)] if things else None


class _Agent:
    """Each run waits for what the machine lets it do; the agent counts who is at work where."""

    def __init__(self, recovery: Recovery) -> None:
        self.recovery = recovery
        self.at_work: dict[str, asyncio.Queue[AgentEvent | Exception | None]] = {}
        self.in_session: Counter[str] = Counter()
        self.most_in_session = 0

    async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        steps: asyncio.Queue[AgentEvent | Exception | None] = asyncio.Queue()
        self.at_work[turn.run_id] = steps
        self.in_session[turn.session_key] += 1
        self.most_in_session = max(self.most_in_session, *self.in_session.values())
        try:
            while (step := await steps.get()) is not None:
                if isinstance(step, Exception):
                    raise step
                yield step
        finally:
            self.in_session[turn.session_key] -= 1
            self.at_work.pop(turn.run_id, None)

    async def close(self) -> None:
        """Nothing is held."""


class EngineMachine(RuleBasedStateMachine):
    """One engine over one store, crashed and started again as often as it comes."""

    kind = "memory"
    recovery = Recovery.REPEAT

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._folder = tempfile.TemporaryDirectory()
        self._agent = _Agent(self.recovery)
        self._room = self._do(self._open())
        self._task_of: dict[str, str] = {}
        self._text_of: dict[str, tuple[str, str | None, str | None]] = {}
        self._seen: dict[str, list[Entry]] = {}

    async def _open(self) -> Room:
        room = Room(self.kind, Path(self._folder.name), self._agent)
        await room.open()
        return room

    def _do(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._loop.run_until_complete(work)

    # ---------------------------------------------------------------- what can happen

    @rule(context=st.sampled_from(CONTEXTS))
    def send(self, context: str) -> None:
        self._do(self._send(f"m-{len(self._text_of)}", "new", context, None))

    @rule(pick=PICK)
    def repeat(self, pick: int) -> None:
        if message_id := _picked(self._task_of, pick):
            self._do(self._send(message_id, *self._text_of[message_id]))

    @rule(pick=PICK)
    def go_on(self, pick: int) -> None:
        if task_id := _picked(self._seen, pick):
            self._do(self._send(f"m-{len(self._text_of)}", "more", None, task_id))

    async def _send(
        self, message_id: str, text: str, context: str | None, task_id: str | None
    ) -> None:
        try:
            run = await self._room.send(
                text, message_id=message_id, context=context, task_id=task_id, is_blocking=False
            )
            shown = await self._room.shown(run)
        except TaskTerminal:
            assert task_id is not None
            await self._room.store_is_quiet()  # the end may be on its way into the store
            assert is_terminal(await self._room.state(task_id))
            return
        assert self._task_of.setdefault(message_id, shown.id) == shown.id
        self._text_of[message_id] = (text, context, task_id)
        self._seen.setdefault(shown.id, [])

    @rule(pick=PICK, step=st.sampled_from(STEPS))
    def act(self, pick: int, step: AgentEvent | Exception | None) -> None:
        if run_id := _picked(self._agent.at_work, pick):
            self._agent.at_work[run_id].put_nowait(step)
            self._do(others_move())

    @rule(pick=PICK)
    def cancel(self, pick: int) -> None:
        if task_id := _picked(self._seen, pick):
            self._do(self._cancel(task_id))

    async def _cancel(self, task_id: str) -> None:
        try:
            task = await self._room.cancel(task_id)
        except TaskNotCancelable:
            task = await self._room.task(task_id)
        assert is_terminal(task.status.state)

    @rule()
    def crash(self) -> None:
        self._do(self._room.restart())
        self._agent.in_session.clear()
        self._do(others_move())

    # ---------------------------------------------------------------- what is always so

    @invariant()
    def sessions_have_one_run_at_a_time(self) -> None:
        assert self._agent.most_in_session <= 1

    @invariant()
    def what_was_committed_stays_and_has_one_end(self) -> None:
        for task_id, seen in self._seen.items():
            entries = self._do(self._room.entries(task_id))
            assert entries[: len(seen)] == seen
            assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
            ends = [entry for entry in entries if entry.state and is_terminal(entry.state)]
            assert ends in ([], entries[-1:])
            self._seen[task_id] = entries

    @rule(pick=PICK, place=PICK)
    def resume(self, pick: int, place: int) -> None:
        if task_id := _picked(self._seen, pick):
            self._do(self._resume(task_id, place))

    async def _resume(self, task_id: str, place: int) -> None:
        """Whoever resumes misses nothing and sees nothing twice."""
        entries = await self._room.entries(task_id)
        cursor = place % (len(entries) + 1)
        follower = await self._room.follow(task_id, cursor=cursor)
        read: list[Entry] = []
        while len(read) < len(entries) - cursor:
            read += await in_time(follower.take(1))
        assert read[: len(entries) - cursor] == entries[cursor:]

    # ---------------------------------------------------------------- the end

    def teardown(self) -> None:
        try:
            self._do(self._finish())
        finally:
            self._do(self._room.close())
            self._loop.close()
            self._folder.cleanup()

    async def _finish(self) -> None:
        """Let everything end: no task is left active, and every message still names its task."""
        while self._agent.at_work or self._room.engine.runs:
            for steps in list(self._agent.at_work.values()):
                steps.put_nowait(None)
            await asyncio.sleep(0)
        for message_id, task_id in self._task_of.items():
            task = await self._room.task(task_id)
            assert not is_active(task.status.state)
            check_journal(await self._room.entries(task_id), task)
            await read_all(await self._room.follow(task_id))
            await self._send(message_id, *self._text_of[message_id])


def _machine(kind: str, recovery: Recovery) -> type[EngineMachine]:
    name = f"{kind}_{recovery.value}"
    return type(name, (EngineMachine,), {"kind": kind, "recovery": recovery})


@pytest.mark.hypothesis
@pytest.mark.parametrize("recovery", [Recovery.REPEAT, Recovery.FAIL])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_engine_keeps_its_promises_whatever_happens_in_whatever_order(
    kind: str, recovery: Recovery
) -> None:
    examples = max(10, settings().max_examples // (1 if kind == "memory" else 3))
    run_state_machine_as_test(
        _machine(kind, recovery),
        settings=settings(max_examples=examples, stateful_step_count=30, deadline=None),
    )
