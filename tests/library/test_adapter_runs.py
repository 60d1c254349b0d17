"""How the answer of an adapter becomes a task with one artifact."""

import asyncio
import logging

import anyio
import pytest

from openclaw_a2a import AgentAdapter, CancelledByAdapter, Part
from openclaw_a2a.engine.transcript.single_artifact import FAILED, NO_TEXT
from openclaw_a2a.engine.transcript.transcript import NO_REPLY

PICTURE = Part.of_url("https://example.com/a.png", media_type="image/png")


class Answering(AgentAdapter):
    """Answers with what it was given; an exception is raised."""

    def __init__(self, answer):
        self.answer = answer
        self.calls = []
        self.is_closed = False

    async def invoke(self, user_input, context_id=None, **kwargs):
        self.calls.append((user_input, context_id, kwargs["context"]))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def close(self):
        self.is_closed = True


class Telling(AgentAdapter):
    """Streams what it was given; an exception is raised in its place."""

    def __init__(self, *pieces):
        self.pieces = pieces

    async def invoke(self, user_input, context_id=None, **kwargs):
        raise AssertionError("streaming adapters are asked to stream")

    async def stream(self, user_input, context_id=None, **kwargs):
        for piece in self.pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece


class Waiting(AgentAdapter):
    """Works until it is stopped, and notes how that happened."""

    def __init__(self, *, cancel_error=None, first=None):
        self.cancel_error = cancel_error
        self.first = first
        self.begun = asyncio.Event()
        self.ended = []
        self.cancelled = []

    async def invoke(self, user_input, context_id=None, **kwargs):
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.append(kwargs["context"].task_id)

    async def cancel(self, context_id=None, **kwargs):
        self.cancelled.append((context_id, kwargs["context"].task_id))
        if self.cancel_error is not None:
            raise self.cancel_error


def artifacts(events):
    return [event["artifactUpdate"] for event in events if "artifactUpdate" in event]


def states(events):
    return [
        event["statusUpdate"]["status"]["state"].removeprefix("TASK_STATE_").lower()
        for event in events
        if "statusUpdate" in event
    ]


def chunks(events):
    """Each chunk as (text, append, lastChunk)."""
    return [
        (
            "".join(part.get("text", "*") for part in one["artifact"]["parts"]),
            one.get("append", False),
            one.get("lastChunk", False),
        )
        for one in artifacts(events)
    ]


def last_words(events):
    return events[-1]["statusUpdate"]["status"]["message"]["parts"][0]["text"]


@pytest.mark.requirement("adapter.bridge.states")
async def test_request_is_submitted_then_working_then_completed(serving):
    async with serving(Answering("hello"), streaming=True) as client:
        events = await client.stream("hi")
    assert events[0]["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert states(events) == ["submitted", "working", "completed"]
    assert chunks(events) == [("hello", False, True)]
    assert last_words(events) == "hello"


@pytest.mark.requirement("adapter.bridge.response")
async def test_answer_is_one_artifact_named_response(serving):
    parts = [Part.of_text("one"), PICTURE, Part.of_text("two"), Part.of_data({"n": 1})]
    async with serving(Answering(parts)) as client:
        task = await client.send("hi")
    (artifact,) = task["artifacts"]
    assert artifact["name"] == "response"
    assert artifact["parts"] == [
        {"text": "one"},
        {"url": "https://example.com/a.png", "mediaType": "image/png"},
        {"text": "two"},
        {"data": {"n": 1}},
    ]
    assert task["status"]["message"]["parts"] == [{"text": "one two"}]


@pytest.mark.requirement("adapter.bridge.placeholder")
@pytest.mark.parametrize(
    ("answer", "words", "count"),
    [
        ([PICTURE], NO_TEXT, 1),
        ([], NO_REPLY, 0),
        ("", NO_REPLY, 0),
        ([Part.of_text("")], NO_REPLY, 0),
    ],
)
async def test_answer_without_text_completes_with_a_placeholder(serving, answer, words, count):
    async with serving(Answering(answer)) as client:
        task = await client.send("hi")
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["status"]["message"]["parts"] == [{"text": words}]
    assert len(task.get("artifacts", [])) == count


@pytest.mark.requirement("adapter.bridge.wrong-type")
@pytest.mark.parametrize("answer", [None, 7, {"text": "hi"}, ("hi",), [7], b"hi"])
async def test_answer_that_is_neither_text_nor_parts_fails(serving, answer):
    async with serving(Answering(answer)) as client:
        task = await client.send("hi")
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert "str" in task["status"]["message"]["parts"][0]["text"]


@pytest.mark.requirement("adapter.bridge.exception")
async def test_exception_fails_the_task_with_its_message_after_a_prefix(serving):
    async with serving(Answering(RuntimeError("the oven is cold"))) as client:
        task = await client.send("hi")
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert task["status"]["message"]["parts"] == [{"text": f"{FAILED}the oven is cold"}]
    assert "artifacts" not in task


async def test_adapter_is_given_text_context_and_the_whole_request(serving):
    adapter = Answering("ok")
    file = {"url": "https://example.com/b.pdf", "mediaType": "application/pdf"}
    async with serving(adapter) as client:
        task = await client.send("read this", file, {"data": {"page": 3}}, contextId="c-1")
    ((text, context_id, context),) = adapter.calls
    assert (text, context_id) == ("read this", "c-1")
    assert (context.task_id, context.context_id) == (task["id"], "c-1")
    assert [part.kind for part in context.message.parts] == ["text", "file", "data"]
    assert context.message.parts[1].url == "https://example.com/b.pdf"
    assert context.turn.principal == "local"


@pytest.mark.requirement("adapter.bridge.empty")
@pytest.mark.parametrize("part", [{"text": ""}, {"text": "  "}, {"data": {"a": 1}}])
async def test_message_without_text_is_still_given_to_the_adapter(serving, part, caplog):
    adapter = Answering("ok")
    with caplog.at_level(logging.INFO):
        async with serving(adapter) as client:
            task = await client.send(part)
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert adapter.calls[0][0] == ""
    assert "adapter.message_without_text" in caplog.text


@pytest.mark.requirement("adapter.bridge.chunks")
async def test_stream_is_one_artifact_whose_last_chunk_is_marked(serving):
    adapter = Telling("Hel", "", "lo", PICTURE, Part.of_text(""), " you", " ")
    async with serving(adapter) as client:
        events = await client.stream("hi")
    assert chunks(events) == [
        ("Hel", False, False),
        ("lo", True, False),
        ("*", True, False),
        (" you", True, False),
        (" ", True, True),
    ]
    assert len({one["artifact"]["artifactId"] for one in artifacts(events)}) == 1
    assert artifacts(events)[0]["artifact"]["name"] == "response"
    assert last_words(events) == "Hello you "
    assert states(events) == ["submitted", "working", "completed"]


async def test_stream_of_one_chunk_is_first_and_last_at_once(serving):
    async with serving(Telling("all")) as client:
        assert chunks(await client.stream("hi")) == [("all", False, True)]


async def test_stream_of_nothing_completes_without_artifact(serving):
    async with serving(Telling("", Part.of_text(""))) as client:
        task = await client.send("hi")
    assert "artifacts" not in task
    assert task["status"]["message"]["parts"] == [{"text": NO_REPLY}]


@pytest.mark.requirement("adapter.bridge.mid-stream")
async def test_error_in_mid_stream_closes_the_artifact_once_and_repeats_nothing(serving):
    async with serving(Telling("a", "b", RuntimeError("line cut"))) as client:
        events = await client.stream("hi")
        task = await client.send("again")
    assert chunks(events) == [("a", False, False), ("b", True, True)]
    assert states(events) == ["submitted", "working", "failed"]
    assert last_words(events) == f"{FAILED}line cut"
    assert task["artifacts"][0]["parts"] == [{"text": "a"}, {"text": "b"}]


async def test_error_before_the_first_chunk_fails_without_artifact(serving):
    async with serving(Telling(ValueError("no"))) as client:
        assert states(await client.stream("hi")) == ["submitted", "working", "failed"]


async def test_stream_may_be_returned_instead_of_yielded(serving):
    class Returning(Telling):
        async def stream(self, user_input, context_id=None, **kwargs):
            return Telling("a", "b").stream(user_input)

    async with serving(Returning()) as client:
        assert chunks(await client.stream("hi")) == [("a", False, False), ("b", True, True)]


@pytest.mark.requirement("adapter.bridge.cancelled")
@pytest.mark.parametrize("adapter", [Answering, Telling])
async def test_cancelled_by_adapter_ends_the_task_as_canceled(serving, adapter):
    async with serving(adapter(CancelledByAdapter("gone")), streaming=True) as client:
        events = await client.stream("hi")
    assert artifacts(events) == []
    assert states(events) == ["submitted", "working", "canceled"]


async def test_cancelled_by_adapter_in_mid_stream_closes_the_artifact(serving):
    async with serving(Telling("a", "b", CancelledByAdapter())) as client:
        events = await client.stream("hi")
    assert chunks(events) == [("a", False, False), ("b", True, True)]
    assert states(events)[-1] == "canceled"


@pytest.mark.requirement("adapter.bridge.cancel")
async def test_cancel_calls_the_adapter_and_waits_for_its_work(serving):
    adapter = Waiting()
    async with serving(adapter) as client:
        task = await client.send("hi", wait=False)
        with anyio.fail_after(240):
            await adapter.begun.wait()
        answer = await client.call("CancelTask", id=task["id"])
        assert answer["result"]["status"]["state"] == "TASK_STATE_CANCELED"
        assert adapter.cancelled == [(task["contextId"], task["id"])]
        assert adapter.ended == [task["id"]]


@pytest.mark.requirement("adapter.bridge.cancel")
async def test_error_while_cancelling_is_only_logged(serving, caplog):
    adapter = Waiting(cancel_error=RuntimeError("cannot hear you"))
    async with serving(adapter) as client:
        task = await client.send("hi", wait=False)
        with anyio.fail_after(240):
            await adapter.begun.wait()
        answer = await client.call("CancelTask", id=task["id"])
    assert answer["result"]["status"]["state"] == "TASK_STATE_CANCELED"
    assert "cannot hear you" in caplog.text


async def test_adapter_that_returns_after_cancel_is_canceled(serving):
    class Obedient(Waiting):
        def __init__(self):
            super().__init__()
            self.cancelled = asyncio.Event()

        async def invoke(self, user_input, context_id=None, **kwargs):
            self.begun.set()
            await self.cancelled.wait()
            raise CancelledByAdapter

        async def cancel(self, context_id=None, **kwargs):
            self.cancelled.set()

    adapter = Obedient()
    async with serving(adapter) as client:
        task = await client.send("hi", wait=False)
        with anyio.fail_after(240):
            await adapter.begun.wait()
        await client.call("CancelTask", id=task["id"])
        assert await client.state(task["id"]) == "TASK_STATE_CANCELED"


async def test_text_of_fifty_megabytes_arrives_whole(serving):
    text = "0123456789" * 5_000_000
    async with serving(Answering(text)) as client:
        task = await client.send("hi")
    assert "".join(part["text"] for part in task["artifacts"][0]["parts"]) == text


async def test_second_message_on_a_task_of_an_adapter_is_refused_once_it_ended(serving):
    async with serving(Answering("ok")) as client:
        task = await client.send("hi")
        message = client.message("more", taskId=task["id"], contextId=task["contextId"])
        answer = await client.call("SendMessage", message=message)
    assert "error" in answer


@pytest.mark.requirement("adapter.server.close")
async def test_stopping_closes_the_adapter(serving):
    adapter = Answering("ok")
    async with serving(adapter) as client:
        await client.send("hi")
        assert not adapter.is_closed
    assert adapter.is_closed
