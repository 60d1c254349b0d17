"""Whatever an agent does, the streamed events add up to the stored task."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance.asgi_client import AsgiClient
from tests.conformance.conftest import make_gateway
from tests.conformance.protocol_clients import Frame, Json, V1Client, v1_message
from tests.conformance.scripted_agent import ScriptedAgent, Step
from tests.conformance.stream_outline import outline, split, state_of

from openclaw_a2a.model.agent_event import (
    Block,
    Failed,
    InputRequired,
    MessageEnd,
    Note,
    Reply,
    Started,
    TextDelta,
    TextPreview,
    ToolPhase,
    ToolProgress,
    ToolReply,
)
from openclaw_a2a.model.message import Part

ENDS = ("completed", "failed", "canceled")

_texts = st.sampled_from(["", " ", "a", "ab", "abc", "b\n", "\u00e9", "\U0001f600"])
_parts = st.lists(
    _texts.map(Part.of_text) | st.sampled_from([Part.of_data({"n": 1}), Part.of_data([1])]),
    max_size=2,
).map(tuple)
_payloads = st.sampled_from([None, {"n": 1}, "text", {"status": "needs_approval"}, float("nan")])
_steps: st.SearchStrategy[Step] = st.one_of(
    st.just(Started()),
    st.just(MessageEnd()),
    _texts.map(TextDelta),
    _texts.map(TextPreview),
    _texts.map(Block),
    _parts.map(Reply),
    _parts.map(ToolReply),
    _texts.map(Note),
    st.builds(
        ToolProgress,
        st.sampled_from(ToolPhase),
        st.sampled_from(["tool", "other tool", ""]),
        st.sampled_from(["c1", "c/2", ""]),
        _payloads,
        st.booleans(),
    ),
    st.sampled_from([InputRequired(" Which? "), InputRequired(""), Failed("no"), Failed(" ")]),
    st.builds(RuntimeError, st.just("broken")),
)

Play = Callable[[list[Step], str], "Story"]


class Story:
    """What one run looked like to a follower, and the task afterwards (None: direct)."""

    def __init__(self, frames: list[Frame], task: Json | None, resumed: list[list[Frame]]) -> None:
        self.frames = frames
        self.task = task
        self.resumed = resumed


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Play]:
    """Let an agent of a long-lived gateway go through the steps, in a style."""
    steps: list[Step] = []
    agent = ScriptedAgent(script=lambda _: list(steps))

    async def tell(v1: V1Client) -> Story:
        frames = await v1.events("SendStreamingMessage", v1_message())
        kind, first = split(frames[0].json["result"])
        if kind == "message":
            return Story(frames, None, [])
        task = await v1.get(first["id"])
        cursors = [frame.id for frame in frames]
        resumed = [await read_again(v1, first["id"], frames, cursor) for cursor in cursors]
        return Story(frames, task, resumed)

    async def read_again(
        v1: V1Client, task_id: str, frames: list[Frame], cursor: str | None
    ) -> list[Frame]:
        """What comes after the cursor: to the end of the task, or to where it waits."""
        missed = len(frames) - 1 - [frame.id for frame in frames].index(cursor)
        params = {"id": task_id}
        async with v1.stream("SubscribeToTask", params, last_event_id=cursor) as again:
            is_paused = outline(frames)[-1] == "status input-required"
            return await again.take(missed) if is_paused else await again.rest()

    with start_blocking_portal() as portal:
        data = tmp_path_factory.mktemp("replay")
        second = {"channels.a2a.accounts.tasks": {"agentStyle": "task-generating"}}

        async def make() -> Any:
            return make_gateway(agent, data=data, settings=second)

        gateway = portal.call(make)
        with portal.wrap_async_context_manager(gateway):
            clients = {
                "hybrid": V1Client(AsgiClient(gateway.asgi)),
                "task-generating": V1Client(
                    AsgiClient(gateway.asgi), path="/agents/tasks/a2a/jsonrpc"
                ),
            }

            def run(script: list[Step], style: str) -> Story:
                steps[:] = script
                return portal.call(tell, clients[style])

            yield run


def _fold(frames: list[Frame]) -> Json:
    """The task as a careful client builds it from the events alone."""
    task = split(frames[0].json["result"])[1]
    for frame in frames[1:]:
        kind, event = split(frame.json["result"])
        if kind == "status":
            task["status"] = event["status"]
            message = event["status"].get("message")
            known = [one["messageId"] for one in task.setdefault("history", [])]
            if message and message["messageId"] not in known:
                task["history"].append(message)
        else:
            _fold_artifact(task.setdefault("artifacts", []), event)
    return task


def _fold_artifact(artifacts: list[Json], event: Json) -> None:
    new = event["artifact"]
    for index, old in enumerate(artifacts):
        if old["artifactId"] == new["artifactId"]:
            if event.get("append"):
                merged = {**old, **new, "parts": old["parts"] + new["parts"]}
                if "metadata" in old and "metadata" in new:
                    merged["metadata"] = {**old["metadata"], **new["metadata"]}
                artifacts[index] = merged
            else:
                artifacts[index] = new
            return
    artifacts.append(new)


@pytest.mark.requirement(
    "promise.order.one-order",
    "promise.order.one-terminal",
    "promise.resume.missing-only",
    "runtime.transcript.closing-chunk",
    "runtime.promotion.once",
)
@given(script=st.lists(_steps, max_size=8), style=st.sampled_from(["hybrid", "task-generating"]))
def test_the_streamed_events_add_up_to_the_stored_task(
    play: Play, script: list[Step], style: str
) -> None:
    story = play(script, style)
    if story.task is None:
        assert len(story.frames) == 1
        return
    assert [int(frame.id or "-1") for frame in story.frames] == list(range(len(story.frames)))
    for number, resumed in enumerate(story.resumed):
        assert [(one.id, one.json) for one in resumed] == [
            (one.id, one.json) for one in story.frames[number + 1 :]
        ]
    _check_states(story.frames)
    _check_closings(story.frames)
    assert _fold(story.frames) == story.task


def _check_states(frames: list[Frame]) -> None:
    statuses = [split(frame.json["result"]) for frame in frames]
    states = [state_of(body) for kind, body in statuses if kind == "status"]
    assert states[:2] == ["submitted", "working"]
    assert sum(state in ENDS for state in states) == (states[-1] in ENDS)
    assert states[-1] in (*ENDS, "input-required")


def _check_closings(frames: list[Frame]) -> None:
    marks: dict[str, list[bool]] = {}
    for frame in frames:
        kind, event = split(frame.json["result"])
        if kind == "artifact":
            assert event["artifact"]["parts"]
            artifact_id = str(event["artifact"]["artifactId"])
            marks.setdefault(artifact_id, []).append(event.get("lastChunk", False))
    for artifact_id, closed in marks.items():
        if artifact_id.startswith("assistant-output-"):
            assert closed == [False] * (len(closed) - 1) + [True]
