"""Programs written for the package a2a-adapter run after a change of their import lines."""

import asyncio
import functools
import inspect
import subprocess
import sys
import textwrap
from importlib.metadata import version
from pathlib import Path

import pytest
from a2a.compat.v0_3 import types as old_sdk
from tests.cli.conftest import COMMAND, served
from tests.ports import free_port

import openclaw_a2a
from openclaw_a2a import (
    AgentAdapter,
    AgentCard,
    BaseA2AAdapter,
    BaseAgentAdapter,
    CallableAdapter,
    CancelledByAdapter,
    CancelledByAdapterError,
    OpenClawAdapter,
    OpenClawAgentAdapter,
    build_agent_app,
    build_agent_card,
    load_adapter,
)

# Each does what an example of the original does, with the same names and arguments; the import
# line is written for the original and changed by the test.
CUSTOM = """
    from a2a_adapter import AdapterMetadata, BaseA2AAdapter, serve_agent

    class Mood(BaseA2AAdapter):
        async def invoke(self, user_input: str, context_id: str | None = None, **kwargs) -> str:
            return "Positive" if "love" in user_input.lower() else "Neutral"

        def get_metadata(self) -> AdapterMetadata:
            skills = [{"id": "mood", "name": "Mood", "description": "Detects moods"}]
            return AdapterMetadata(name="Mood", description="Detects moods", skills=skills)

    serve_agent(Mood(), port=PORT)
"""
CALLABLE = """
    from a2a_adapter import CallableAdapter, serve_agent

    async def mood(inputs):
        return "Positive" if "love" in inputs.get("message", "").lower() else "Neutral"

    adapter = CallableAdapter(func=mood, name="Mood", description="Detects moods")
    serve_agent(adapter, port=PORT)
"""
STREAMING = """
    from a2a_adapter import CallableAdapter, serve_agent

    async def mood(inputs: dict):
        for piece in ("Posi", "tive"):
            yield piece

    serve_agent(CallableAdapter(func=mood, streaming=True, name="Mood"), port=PORT)
"""
FIRST_INTERFACE = """
    import asyncio

    from a2a_adapter import load_a2a_agent, serve_agent

    async def mood(inputs: dict) -> str:
        return {"response": "Positive"}

    adapter = asyncio.run(load_a2a_agent({"adapter": "callable", "func": mood, "name": "Mood"}))
    serve_agent(adapter=adapter, port=PORT)
"""
REGISTERED = """
    from a2a_adapter import BaseA2AAdapter, load_adapter, register_adapter, serve_agent

    @register_adapter("mood")
    class Mood(BaseA2AAdapter):
        async def invoke(self, user_input, context_id=None, **kwargs):
            context = kwargs.get("context")
            return "Positive" if context.message.parts[0].root.text else "Neutral"

    serve_agent(load_adapter({"adapter": "mood"}), port=PORT)
"""
WITHOUT_CONTEXT = """
    from a2a_adapter import AdapterMetadata, BaseA2AAdapter, serve_agent

    class Mood(BaseA2AAdapter):
        async def invoke(self, user_input, context_id=None):
            return "Positive" if context_id and "love" in user_input else "Neutral"

        def get_metadata(self):
            return AdapterMetadata(name="Mood", description="Detects moods")

    serve_agent(Mood(), port=PORT)
"""
STREAM_WITHOUT_CONTEXT = """
    from a2a_adapter import AdapterMetadata, BaseA2AAdapter, serve_agent

    class Mood(BaseA2AAdapter):
        async def invoke(self, user_input, context_id=None):
            return "".join([piece async for piece in self.stream(user_input, context_id)])

        async def stream(self, user_input, context_id=None):
            yield "Posi" if context_id and "love" in user_input else "Neutral"
            yield "tive"

        def get_metadata(self):
            return AdapterMetadata(name="Mood", description="Detects moods", streaming=True)

    serve_agent(Mood(), port=PORT)
"""
APPLICATION = """
    import uvicorn
    from a2a_adapter import AgentCard, CallableAdapter, build_agent_app

    async def mood(inputs):
        return "Positive"

    card = AgentCard(name="Mood", description="Detects moods", url="http://localhost:PORT")
    uvicorn.run(build_agent_app(card, CallableAdapter(func=mood)), port=PORT)
"""
OPENCLAW = """
    from a2a_adapter import OpenClawAdapter, serve_agent

    adapter = OpenClawAdapter(
        thinking="low", timeout=300, name="Mood", description="Does everything", openclaw_path=CLAW
    )
    serve_agent(adapter, port=PORT)
"""
CLAW = """#!/bin/sh
echo '{"payloads": [{"text": "Positive"}], "meta": {}}'
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "example",
    [
        pytest.param(CUSTOM, id="custom"),
        pytest.param(CALLABLE, id="callable"),
        pytest.param(STREAMING, id="streaming"),
        pytest.param(FIRST_INTERFACE, id="loaded"),
        pytest.param(REGISTERED, id="registered"),
        pytest.param(WITHOUT_CONTEXT, id="without-context"),
        pytest.param(STREAM_WITHOUT_CONTEXT, id="stream-without-context"),
        pytest.param(APPLICATION, id="application"),
        pytest.param(OPENCLAW, id="openclaw"),
    ],
)
def test_example_of_the_original_runs_after_one_changed_import(
    tmp_path: Path, example: str
) -> None:
    claw, script, port = tmp_path / "claw", tmp_path / "agent.py", free_port()
    claw.write_text(CLAW, encoding="utf-8")
    claw.chmod(0o755)
    source = textwrap.dedent(example).replace("from a2a_adapter import", "from openclaw_a2a import")
    source = source.replace("PORT", str(port)).replace("CLAW", repr(str(claw)))
    script.write_text(source, encoding="utf-8")
    with served([sys.executable, str(script)], tmp_path, port) as url:
        sent = subprocess.run(
            [*COMMAND, "send", "--url", url, "I love it"],
            capture_output=True,
            check=True,
            text=True,
        )
        card = subprocess.run(
            [*COMMAND, "card", url], capture_output=True, check=True, text=True
        ).stdout
    assert sent.stdout == "Positive\n"
    assert card.startswith("Mood ")


def test_names_of_the_original_are_ours():
    assert BaseA2AAdapter is AgentAdapter
    assert CancelledByAdapterError is CancelledByAdapter
    assert OpenClawAdapter is OpenClawAgentAdapter
    assert openclaw_a2a.__version__ == version("openclaw-a2a")
    with pytest.raises(AttributeError, match="N8nAdapter"):
        openclaw_a2a.N8nAdapter  # noqa: B018 - the look-up is the test


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("yes", "yes"),
        ({"answer": "yes", "other": 1}, "yes"),
        ({"other": 1}, '{"other":1}'),
        (7, "7"),
    ],
)
async def test_function_of_inputs_is_given_a_dict_and_may_answer_with_one(answer, text):
    given = []

    def plain(inputs):
        given.append(inputs)
        return answer

    async def awaited(inputs):
        return plain(inputs)

    for adapter in (CallableAdapter(plain), load_adapter({"adapter": "callable", "func": awaited})):
        assert not adapter.supports_streaming()
        (part,) = await adapter.invoke("hi", "c-1")
        assert part.text == text
    assert given == [{"message": "hi", "context_id": "c-1"}] * 2
    assert build_agent_card(CallableAdapter(plain)).name == "plain"


class AsyncCalled:
    """An object that is called like an async function."""

    async def __call__(self, inputs):
        return {"answer": inputs["message"].upper()}


class AsyncStreamed:
    """An object that is called like an async generator."""

    async def __call__(self, inputs):
        for piece in inputs["message"]:
            yield piece.upper()


async def asked(inputs):
    return inputs["message"].upper()


async def async_pieces(inputs):
    for piece in inputs["message"]:
        yield piece.upper()


def plain_pieces(inputs):
    yield from inputs["message"].upper()


@pytest.mark.parametrize(
    "func", [asked, AsyncCalled(), lambda inputs: asked(inputs), functools.partial(asked)]
)
async def test_function_that_gives_an_awaitable_is_awaited(func):
    adapter = CallableAdapter(func)
    assert not adapter.supports_streaming()
    (part,) = await adapter.invoke("hi")
    assert part.text == "HI"


@pytest.mark.parametrize(
    ("func", "streaming"),
    [
        (async_pieces, False),
        (plain_pieces, False),
        (AsyncStreamed(), False),
        (async_pieces, True),
        (plain_pieces, True),
        (lambda inputs: async_pieces(inputs), True),
        (lambda inputs: plain_pieces(inputs), True),
        (lambda inputs: map(str.upper, inputs["message"]), True),
    ],
)
async def test_function_streams_with_either_kind_of_generator(func, streaming):
    adapter = CallableAdapter(func, streaming=streaming)
    assert adapter.supports_streaming()
    assert [piece async for piece in adapter.stream("hi")] == ["H", "I"]


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_generator_of_inputs_is_closed_with_its_stream(kind):
    closed = []

    def plain(inputs):
        try:
            yield from "ab"
        finally:
            closed.append("plain")

    async def streamed(inputs):
        try:
            for piece in "ab":
                yield piece
        finally:
            closed.append("async")

    kept = {"plain": plain, "async": streamed}[kind]({})
    stream = CallableAdapter(lambda inputs: kept, streaming=True).stream("hi")
    assert await anext(stream) == "a"
    await stream.aclose()
    assert closed == [kind]


class Steps(BaseAgentAdapter):
    """The three steps of the first interface."""

    def __init__(self, answer):
        self.answer = answer

    async def to_framework(self, params):
        return " ".join(part.root.text for part in params.message.parts)

    async def call_framework(self, framework_input, params):
        return framework_input.upper()

    async def from_framework(self, framework_output, params):
        return self.answer(framework_output, params.message.context_id)


def old_message(text, context_id):
    parts = [old_sdk.Part(root=old_sdk.TextPart(text=text))]
    return old_sdk.Message(
        message_id="m", role=old_sdk.Role.agent, context_id=context_id, parts=parts
    )


def old_task(text, context_id):
    message = old_message(text, context_id)
    status = old_sdk.TaskStatus(state=old_sdk.TaskState.completed, message=message)
    return old_sdk.Task(id="t", context_id=context_id, status=status)


@pytest.mark.parametrize("answer", [old_message, old_task, lambda text, _context: text])
async def test_adapter_of_three_steps_is_served(serving, answer):
    async with serving(Steps(answer)) as client:
        task = await client.send("hi", contextId="c-1")
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["status"]["message"]["parts"] == [{"text": "HI"}]


async def test_answer_of_three_steps_that_is_none_fails(serving):
    async with serving(Steps(lambda _text, _context: 7)) as client:
        task = await client.send("hi")
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert "int" in task["status"]["message"]["parts"][0]["text"]


async def test_application_is_built_with_the_card_first(serving):
    card = AgentCard(name="First", description="d", url="http://test/")
    app = build_agent_app(card, CallableAdapter(lambda inputs: inputs["message"]))
    assert app.served.card.name == "First"


class WithoutContext(AgentAdapter):
    """Takes nothing but the text and the context id."""

    async def invoke(self, user_input, context_id=None):
        return f"{user_input} in {context_id}"


class StreamWithoutContext(WithoutContext):
    async def stream(self, user_input, context_id=None):
        yield f"{user_input} in "
        yield context_id


class DefaultStreamWithoutContext(WithoutContext):
    def supports_streaming(self):
        return True


def repeated(function):
    """A decorator that passes on what it is given."""

    @functools.wraps(function)
    async def call(*args, **kwargs):
        return await function(*args, **kwargs)

    return call


def with_task_id(function):
    """A decorator that takes the context itself."""

    @functools.wraps(function)
    async def call(self, user_input, context_id=None, *, context):
        assert context.task_id
        return await function(self, user_input, context_id)

    return call


class PassedOn(WithoutContext):
    invoke = repeated(WithoutContext.invoke)


class Consumed(WithoutContext):
    invoke = with_task_id(WithoutContext.invoke)


class OwnAttribute(WithoutContext):
    """Its `invoke` is a partial function that was set on the object."""

    def __init__(self):
        self.invoke = functools.partial(WithoutContext.invoke, self)


@pytest.mark.parametrize(
    "adapter",
    [
        WithoutContext,
        StreamWithoutContext,
        DefaultStreamWithoutContext,
        PassedOn,
        Consumed,
        OwnAttribute,
    ],
)
async def test_adapter_whose_methods_take_no_context_is_served(serving, text_of, adapter):
    async with serving(adapter()) as client:
        tasks = [await client.send("hi", contextId="c-1") for _ in range(2)]
    for task in tasks:
        assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
        assert text_of(task["artifacts"][0]) == "hi in c-1"


class Unsigned:
    """A callable whose signature cannot be found out."""

    __signature__ = "none"

    def __init__(self, answer):
        self.answer = answer

    def __call__(self, *args, **kwargs):
        return self.answer(*args, **kwargs)


async def test_context_is_passed_to_a_callable_without_a_signature(serving):
    given = []

    async def answer(*args, **kwargs):
        given.append(kwargs["context"].task_id)
        return "ok"

    adapter = WithoutContext()
    adapter.invoke = Unsigned(answer)
    async with serving(adapter) as client:
        task = await client.send("hi")
    assert given == [task["id"]]


class Working(AgentAdapter):
    """Works until it is cancelled."""

    def __init__(self):
        self.begun = asyncio.Event()
        self.cancelled = []

    async def invoke(self, user_input, context_id=None, **kwargs):
        self.begun.set()
        await asyncio.Event().wait()


class CancelOfContextId(Working):
    async def cancel(self, context_id=None):
        self.cancelled.append(context_id)


class CancelOfContext(Working):
    async def cancel(self, *, context):
        self.cancelled.append(context.context_id)


class CancelOfNothing(Working):
    async def cancel(self):
        self.cancelled.append("c-1")


@pytest.mark.parametrize("kind", [CancelOfContextId, CancelOfContext, CancelOfNothing])
async def test_cancel_is_given_what_it_takes(serving, kind):
    adapter = kind()
    async with serving(adapter) as client:
        task = await client.send("hi", wait=False, contextId="c-1")
        async with asyncio.timeout(240):
            await adapter.begun.wait()
        answer = await client.call("CancelTask", id=task["id"])
    assert answer["result"]["status"]["state"] == "TASK_STATE_CANCELED"
    assert adapter.cancelled == ["c-1"]


async def test_signatures_are_looked_up_once_for_each_adapter(serving, monkeypatch):
    looked_up = []
    signature = inspect.signature

    def count(function, **options):
        looked_up.append(getattr(function, "__name__", ""))
        return signature(function, **options)

    async with serving(WithoutContext()) as client:
        monkeypatch.setattr(inspect, "signature", count)
        states = {(await client.send("hi"))["status"]["state"] for _ in range(3)}
        monkeypatch.undo()
    assert states == {"TASK_STATE_COMPLETED"}
    # With and without the functions that are wrapped by it.
    assert looked_up.count("invoke") == 2
