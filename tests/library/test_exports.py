"""What `import openclaw_a2a` gives."""

import typing

import openclaw_a2a
from openclaw_a2a import (
    AgentEvent,
    InputRequired,
    Note,
    PartDelta,
    Reply,
    TextDelta,
    ToolPhase,
    ToolProgress,
)


def test_everything_an_agent_can_say_is_at_the_top_level():
    events = {event.__name__ for event in typing.get_args(AgentEvent)}
    assert events | {"AgentEvent", "ToolPhase"} <= set(openclaw_a2a.__all__)


def test_every_exported_name_can_be_imported():
    for name in openclaw_a2a.__all__:
        assert getattr(openclaw_a2a, name) is not None
    assert sorted(openclaw_a2a.__all__) == list(openclaw_a2a.__all__)


async def test_agent_says_more_than_text_with_names_of_the_package_alone(serving):
    async def asks(text):
        yield Note("Looking around")
        yield ToolProgress(ToolPhase.START, "search", "call-1", {"query": text})
        yield TextDelta("Found: ")
        yield PartDelta(openclaw_a2a.Part.of_data({"rows": 3}))
        yield InputRequired("Delete all three?")

    async with serving(asks) as client:
        task = await client.send("old files")
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"

    async with serving(lambda text: Reply.of_text(text.upper())) as client:
        task = await client.send("loud")
    assert task["status"]["message"]["parts"] == [{"text": "LOUD"}]
