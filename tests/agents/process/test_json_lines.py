"""Programs that answer in JSON lines."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.agents.process.command_agent import CommandAgent, CommandOptions, parse_line
from openclaw_a2a.model.agent_event import (
    AgentEvent,
    Failed,
    InputRequired,
    MessageEnd,
    Note,
    Reply,
    Report,
    TextDelta,
    ToolPhase,
    ToolProgress,
)
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.message import Part

PARTS = [
    {"text": "see"},
    {"data": None},
    {"raw": "aGk=", "mediaType": "image/png", "filename": "x.png"},
    {"url": "https://example.org/x", "metadata": {"a": 1}},
]
ROWS = {
    '"more"': TextDelta("more"),
    '{"delta": "more"}': TextDelta("more"),
    '{"messageEnd": true}': MessageEnd(),
    '{"reply": "all"}': Reply.of_text("all"),
    json.dumps({"reply": {"parts": PARTS}}): Reply(
        (
            Part(text="see"),
            Part(data=None),
            Part(raw="aGk=", media_type="image/png", filename="x.png"),
            Part(url="https://example.org/x", metadata={"a": 1}),
        )
    ),
    '{"tool": {"phase": "start", "name": "read", "callId": "1"}}': ToolProgress(
        ToolPhase.START, "read", "1"
    ),
    '{"tool": {"phase": "result", "name": "n", "callId": "1", "payload": [1], "isError": true}}': (
        ToolProgress(ToolPhase.RESULT, "n", "1", [1], True)
    ),
    '{"note": "thinking"}': Note("thinking"),
    '{"inputRequired": "sure?"}': InputRequired("sure?"),
    '{"inputRequired": "sure?", "resume": {"step": 2}}': InputRequired("sure?", {"step": 2}),
    '{"error": "no"}': Failed("no"),
    '{"report": {"model": "m"}}': Report({"model": "m"}),
}
UNREADABLE = [
    "plain text",
    "[]",
    "7",
    "null",
    "{}",
    '{"detla": "x"}',
    '{"delta": 1}',
    '{"delta": "x", "note": "y"}',
    '{"delta": "x", "resume": 1}',
    '{"resume": 1}',
    '{"messageEnd": false}',
    '{"reply": {"parts": [{}]}}',
    '{"reply": {"parts": [{"text": "a", "url": "b"}]}}',
    '{"reply": {"parts": [{"raw": "not base64!"}]}}',
    '{"tool": {"phase": "middle", "name": "n", "callId": "1"}}',
    '{"tool": {"phase": "start", "name": "n"}}',
    '{"report": []}',
    '{"delta": "\\ud800"}',
    '{"report": ' + '{"a":' * 5000 + "1" + "}" * 5001,
    '{"delta": NaN}',
]


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def speaker():
    """An agent that says its message: the lines of the test."""
    return CommandAgent(CommandOptions(("cat",), input="stdin", output="jsonl"))


@pytest.mark.parametrize("line", ROWS)
async def test_each_kind_of_line_is_one_event(speaker, answer, make_turn, line):
    assert await answer(speaker, make_turn(line + "\n")) == [ROWS[line]]


@pytest.mark.parametrize("line", UNREADABLE)
async def test_invalid_line_fails_the_turn_and_is_quoted(speaker, answer, make_turn, line):
    with pytest.raises(AgentFailed) as caught:
        await answer(speaker, make_turn(line))
    assert line[:200] in caught.value.message
    assert len(caught.value.message) < 600


async def test_lines_become_events_in_order(speaker, answer, make_turn):
    lines = '{"delta":"a"}\r\n\n  \n"b"\n{"note":"ü"}'
    assert await answer(speaker, make_turn(lines)) == [TextDelta("a"), TextDelta("b"), Note("ü")]


async def test_events_before_an_invalid_line_come_first(speaker, make_turn):
    seen = []
    with pytest.raises(AgentFailed):
        async for event in speaker.run(make_turn('"a"\nwhat?\n"b"\n')):
            seen.append(event)
    assert seen == [TextDelta("a")]


async def test_long_line_is_read_whole(speaker, answer, make_turn):
    long = "x" * 1_000_000
    assert await answer(speaker, make_turn(json.dumps(long))) == [TextDelta(long)]


async def test_invalid_utf_8_in_a_line_is_replaced(serve, answer, make_turn):
    agent = serve(r"""import os; os.write(1, b'"a\xffb"\n')""", output="jsonl")
    assert await answer(agent, make_turn()) == [TextDelta("a\ufffdb")]


async def test_pause_takes_effect_when_the_program_has_ended(serve, make_turn, tmp_path):
    """Whoever answers at once must find what the program wrote down before it ended."""
    state = tmp_path / "state"
    agent = serve(
        """
        import sys
        print('{"inputRequired": "sure?"}', flush=True)
        print("anything", flush=True)
        open(sys.argv[1], "w").write("saved")
        """,
        str(state),
        output="jsonl",
    )
    events = agent.run(make_turn())
    assert await anext(events) == InputRequired("sure?")
    assert state.read_text() == "saved"
    await events.aclose()


async def test_error_line_takes_precedence_over_the_exit_code(serve, answer, make_turn):
    agent = serve('import sys; print(\'{"error": "no"}\'); sys.exit(2)', output="jsonl")
    assert await answer(agent, make_turn()) == [Failed("no")]


async def test_pause_of_a_program_that_fails_is_a_failure(serve, answer, make_turn):
    agent = serve('import sys; print(\'{"inputRequired": "?"}\'); sys.exit(2)', output="jsonl")
    with pytest.raises(AgentFailed, match="exit code 2"):
        await answer(agent, make_turn())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
WORDS = st.sampled_from(
    ["delta", "messageEnd", "reply", "tool", "note", "inputRequired", "resume", "error", "report"]
)
ROW = st.dictionaries(WORDS | st.text(), JSON, max_size=3).map(json.dumps)


@given(st.text() | ROW | JSON.map(json.dumps) | ROW.map(lambda row: row[: len(row) // 2]))
def test_any_line_is_an_event_or_a_failure(line):
    try:
        event = parse_line(line)
    except AgentFailed as failure:
        assert len(failure.message) < 600
    else:
        assert isinstance(event, AgentEvent)
