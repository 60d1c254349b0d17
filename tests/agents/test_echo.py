"""The echo agent."""

import pytest

from openclaw_a2a.agents.echo import EchoAgent
from openclaw_a2a.model.agent_event import Reply, TextDelta
from openclaw_a2a.model.message import Part
from openclaw_a2a.ports import Recovery


async def test_text_is_echoed_word_by_word(answer, make_turn):
    events = await answer(EchoAgent(), make_turn("hello big\nworld"))
    assert events == [
        TextDelta("echo: "),
        TextDelta("hello "),
        TextDelta("big\n"),
        TextDelta("world"),
    ]


@pytest.mark.parametrize("message", ["", "  two  spaces ", "\n", "ü\u00a0𝄞", "w " * 100_000])
async def test_text_is_echoed_whole(text, make_turn, message):
    assert await text(EchoAgent(), make_turn(message)) == f"echo: {message}"


async def test_long_text_is_echoed_in_few_pieces(answer, make_turn):
    assert len(await answer(EchoAgent(), make_turn("w " * 100_000))) <= 64


async def test_message_of_data_alone_is_echoed_as_data(answer, make_turn):
    parts = (Part(data={"a": 1}, metadata={"secret": 1}), Part(text=" "), Part(data=None))
    events = await answer(EchoAgent(), make_turn("placeholder", parts=parts))
    assert events == [Reply((Part(data={"a": 1}), Part(data=None)))]


async def test_text_beside_data_is_echoed_alone(text, make_turn):
    parts = (Part(text="hello"), Part(data=1))
    assert await text(EchoAgent(), make_turn("hello", parts=parts)) == "echo: hello"


def test_interrupted_echo_may_be_repeated():
    assert EchoAgent().recovery is Recovery.REPEAT
