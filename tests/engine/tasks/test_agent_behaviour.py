"""Whatever an agent says, in whatever order: the promises of a task hold."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.controlled_agent import ScriptedAgent, Step
from tests.engine.event_lines import artifact_texts, check_closed_once, check_journal
from tests.engine.harness import ALICE, HYBRID, RULES, Harness, read_all

from openclaw_a2a.engine.engine import AccountRules
from openclaw_a2a.engine.tasks.active_task import TaskFinished
from openclaw_a2a.engine.transcript.assistant_message import replace_lone_surrogates
from openclaw_a2a.engine.transcript.transcript import NO_REPLY
from openclaw_a2a.model.agent_event import (
    Block,
    Failed,
    InputRequired,
    MessageEnd,
    Note,
    Reply,
    Report,
    Started,
    TextDelta,
    TextPreview,
    ToolPhase,
    ToolProgress,
    ToolReply,
)
from openclaw_a2a.model.errors import OutputNotAccepted
from openclaw_a2a.model.ids import Json
from openclaw_a2a.model.message import Message, Part
from openclaw_a2a.model.records import decode_task
from openclaw_a2a.model.task import PAUSED, TERMINAL, Task, TaskState
from openclaw_a2a.ports import TaskQuery

texts = st.text(st.sampled_from("ab \n\u00e4\U0001f600\ud83d\udc00"), max_size=6)
names = st.text(st.sampled_from("a1 /\u00e4\ud800"), max_size=3)
values: st.SearchStrategy[Json] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats()
    | texts
    | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=3,
)
approvals: st.SearchStrategy[Json] = st.sampled_from(
    [
        {"status": "approval-pending"},
        {"status": "needs_approval", "requiresApproval": {"prompt": " May I? "}},
        {"requiresApproval": {"type": "approval_request"}},
        {"status": {"code": 1}, "requiresApproval": "x"},
    ]
)
text_parts = st.builds(Part, text=texts)
parts = (
    text_parts
    | st.builds(Part, data=values)
    | st.builds(
        Part,
        url=st.just("https://example.com/a"),
        media_type=st.sampled_from([None, "image/png", "text/html; charset=x"]),
    )
    | st.sampled_from(
        [
            Part(),
            Part(text="x", metadata={"odd": object()}),
            Part(url="https://example.com/\ud800", media_type="text/plain"),
        ]
    )
)
part_lists = st.lists(parts, max_size=2).map(tuple)
text_events = (
    st.builds(TextDelta, texts)
    | st.builds(TextPreview, texts)
    | st.builds(Block, texts)
    | st.builds(Reply, st.lists(text_parts, max_size=1).map(tuple))
    | st.just(MessageEnd())
)
other_events = (
    st.just(Started())
    | st.builds(Reply, part_lists)
    | st.builds(ToolReply, part_lists)
    | st.builds(
        ToolProgress,
        st.sampled_from(ToolPhase),
        names,
        names,
        values | approvals,
        is_error=st.booleans(),
    )
    | st.builds(Note, texts)
    | st.builds(Report, st.dictionaries(names, values, max_size=2))
)
ends = (
    st.builds(Failed, texts)
    | st.builds(InputRequired, texts, values)
    | st.builds(RuntimeError, texts)
    | st.just(StopAsyncIteration("odd"))
)
scripts: st.SearchStrategy[list[Step]] = st.tuples(
    st.lists(text_events | other_events, max_size=12),
    st.lists(ends | text_events, max_size=2),
).map(lambda halves: [*halves[0], *halves[1]])


async def run_script(
    steps: Sequence[Step], rules: AccountRules, **limits: float
) -> Task | Message | None:
    """Let an agent say this; what its caller gets (None: a refusal), checked from every side."""
    harness = Harness("memory", Path(), ScriptedAgent(*steps), **limits)
    harness.rules = rules
    sent = await harness.send(context="c")
    try:
        try:
            outcome = await harness.outcome(sent)
        except OutputNotAccepted:
            outcome = None
        if not isinstance(outcome, TaskFinished):
            page = await harness.store.tasks.list_tasks(TaskQuery(ALICE, limit=1))
            assert page.total == 0
            return outcome and msgspec.json.decode(outcome.message, type=Message)
        task = decode_task(outcome.task)
        assert await harness.task(task.id) == task
        entries = await harness.entries(task.id)
        assert await read_all(await harness.follow(task.id)) == entries
        check_journal(entries, task)
        check_closed_once([entry.event for entry in entries])
        assert task.status.state in TERMINAL | PAUSED
        assert len(harness.engine.runs) == len(harness.engine.active_tasks) == 0
        return task
    finally:
        await harness.close()


@given(
    scripts,
    st.sampled_from([RULES, HYBRID]),
    st.booleans(),
    st.sampled_from([1 << 30, 700, 1500]),
)
def test_caller_gets_one_consistent_answer_for_any_agent_events(
    steps: list[Step], rules: AccountRules, join_deltas: bool, event_bytes: int
) -> None:
    result = asyncio.run(run_script(steps, rules, join_deltas=join_deltas, event_bytes=event_bytes))
    assert isinstance(result, Task) or rules is HYBRID
    if isinstance(result, Message):
        assert (result.context_id, result.task_id) == ("c", None)
        assert result.parts


def said(steps: Sequence[Step]) -> list[str]:
    """The texts of the messages, by the plainest reading of the rules."""
    messages: list[str] = []
    streamed, blocks = "", list[str]()
    for step in [*steps, MessageEnd()]:
        if isinstance(step, TextDelta):
            streamed += replace_lone_surrogates(step.text)
        elif isinstance(step, TextPreview):
            text = replace_lone_surrogates(step.text)
            streamed = text if text.startswith(streamed) else streamed + text
        elif isinstance(step, Block) and step.text:
            blocks.append(replace_lone_surrogates(step.text))
        elif isinstance(step, Reply | MessageEnd):
            parts = step.parts if isinstance(step, Reply) else ()
            final = replace_lone_surrogates(parts[0].text or "") if parts else ""
            forms = (final, streamed, "\n\n".join(blocks))
            messages.append(next((form for form in forms if form.strip()), ""))
            streamed, blocks = "", []
    return [message for message in messages if message.strip()]


@given(st.lists(text_events, max_size=10), st.booleans())
def test_published_events_add_up_to_the_messages_of_the_agent(
    steps: list[Step], join_deltas: bool
) -> None:
    task = asyncio.run(run_script(steps, RULES, join_deltas=join_deltas))
    assert isinstance(task, Task)
    texts = [text for text in artifact_texts(task).values() if text.strip()]
    assert texts == said(steps)
    assert task.status.state is TaskState.COMPLETED
    assert task.status.message is not None
    assert task.status.message.text == (said(steps) or [NO_REPLY])[-1]


@given(st.lists(text_events, max_size=10))
def test_one_message_is_a_direct_answer_and_anything_else_a_task(steps: list[Step]) -> None:
    result = asyncio.run(run_script(steps, HYBRID))
    assert isinstance(result, Message) == (len(said(steps)) == 1)
    if isinstance(result, Message):
        assert [result.text] == said(steps)
