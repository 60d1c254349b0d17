"""The tool with real peers: official servers of both protocol versions, and our own."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.remote.tool_harness import ToolHarness, one_target, open_tool

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.ports import Store
from openclaw_a2a.store import create_store

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("peers")]

JSONRPC, REST, GRPC = "JSONRPC", "HTTP+JSON", "GRPC"
PEERS = [
    *(
        (name, transport)
        for name in ("a2a-sdk 1.0", "a2a-sdk 0.3", "a2a-js", "ours")
        for transport in (JSONRPC, REST)
    ),
    ("a2a-sdk 1.0", GRPC),
    ("a2a-sdk 1.0/0.3/", GRPC),  # the same peer as one of protocol 0.3
]
TELLS_NO_SNAPSHOT = {"a2a-sdk 0.3"}
"""A stream that is joined late begins with the next event there, and the cancelling of its task
ends it without a word."""
NAMES = {
    "a2a-sdk 1.0": "sdk 1.0",
    "a2a-sdk 1.0/0.3/": "sdk 1.0",
    "a2a-sdk 0.3": "sdk 0.3",
    "a2a-js": "js",
    "ours": "answer",
}


@pytest.fixture(params=PEERS, ids=lambda pair: f"{pair[0]} over {pair[1]}")
def peer(request: pytest.FixtureRequest, peers: Any) -> tuple[str, JsonObject]:
    """The peer's name, and a configuration with it as the only target."""
    name, transport = request.param
    server, _, path = name.partition("/")
    # gRPC has a port of its own.
    allowed = {"allowedHosts": ["127.0.0.1"]} if transport == GRPC else {}
    return name, one_target(peers.url(server) + path, preferredTransports=[transport], **allowed)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = create_store("sqlite", path=str(tmp_path / "state.db"))
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def harness(peer: tuple[str, JsonObject], store: Store) -> AsyncIterator[ToolHarness]:
    async with open_tool(peer[1], store=store) as harness:
        yield harness


async def reach(harness: ToolHarness, handle: str, *states: str) -> JsonObject:
    """Ask until the task is in one of the states."""
    async with asyncio.timeout(240):
        while True:
            asked = await harness.execute("status", task_handle=handle)
            assert asked["ok"], asked
            if asked["summary"]["continuation"]["task"]["status"] in states:
                return asked
            await asyncio.sleep(0.02)  # the peer is another process


async def begin(harness: ToolHarness, text: str) -> str:
    """Start a task and come back at once; its handle."""
    started = await harness.send(text, task_requirement="required")
    assert started["ok"], started
    return started["summary"]["continuation"]["task"]["task_handle"]


async def test_the_card_is_listed(harness: ToolHarness, peer: tuple[str, JsonObject]) -> None:
    listed = await harness.execute("list_targets")
    [entry] = listed["summary"]["targets"]
    assert entry["target_name"] == NAMES[peer[0]]
    assert entry["streaming_supported"] is True
    assert "last_refresh_error" not in entry
    [raw] = listed["raw"]
    assert raw["card"]["preferredTransport"] == (GRPC if peer[0].endswith("/") else JSONRPC)


@pytest.mark.requirement("remote.extension.versions")
async def test_a_message_is_answered_with_a_message(harness: ToolHarness) -> None:
    answer = await harness.send("hello")
    assert answer["ok"], answer
    summary = answer["summary"]
    assert (summary["response_kind"], summary["message_text"]) == ("message", "hello back")
    assert "task" not in summary["continuation"]
    again = await harness.send("hello", continuation=summary["continuation"])
    assert again["ok"], again
    assert again["raw"]["contextId"] == answer["raw"]["contextId"]


@pytest.mark.parametrize(
    "peer",
    [pair for pair in PEERS if pair[0] != "ours"],  # ours makes a task when asked not to wait
    ids=lambda pair: f"{pair[0]} over {pair[1]}",
    indirect=True,
)
async def test_a_message_is_an_error_when_a_task_is_required(harness: ToolHarness) -> None:
    required = await harness.fail_send("hello", task_requirement="required")
    assert required["code"] == "TASK_REQUIRED_BUT_MESSAGE_RETURNED"


@pytest.mark.requirement("remote.envelope.raw")
async def test_an_ended_task_can_be_read_and_not_canceled(
    harness: ToolHarness,
) -> None:
    answer = await harness.send("task:tea")
    assert answer["ok"], answer
    summary = answer["summary"]
    assert (summary["response_kind"], summary["message_text"]) == ("task", "tea")
    task = summary["continuation"]["task"]
    assert task["status"] == "completed"
    assert not task["can_cancel"] and not task["can_watch"] and not task["can_resume_send"]
    asked = await harness.execute("status", task_handle=task["task_handle"])
    assert asked["raw"]["id"] == task["task_id"]
    assert asked["raw"]["kind"] == "task"
    assert asked["summary"]["message_text"] == "tea"
    by_id = await harness.execute("status", task_id=task["task_id"], history_length=0)
    assert by_id["ok"], by_id
    missing = await harness.fail("status", task_id="no such task/../?x=1#y")
    assert missing["code"] == "A2A_SDK_ERROR"


@pytest.mark.parametrize(
    "peer",
    [pair for pair in PEERS if pair[1] == GRPC],  # the others have other words for it
    ids=lambda pair: f"{pair[0]} over {pair[1]}",
    indirect=True,
)
async def test_a_protocol_error_has_its_name_and_code(
    harness: ToolHarness,
) -> None:
    missing = await harness.fail("status", task_id="no-such-task")
    assert missing["details"]["errorName"] == "TaskNotFoundError"
    assert missing["details"]["rpcCode"] == -32001
    done = await harness.send("task:tea")
    handle = done["summary"]["continuation"]["task"]["task_handle"]
    late = await harness.fail("cancel", task_handle=handle)
    assert late["details"]["errorName"] == "TaskNotCancelableError"
    assert late["details"]["rpcCode"] == -32002


@pytest.mark.requirement("remote.stream.updates")
async def test_a_stream_is_followed_to_its_end(harness: ToolHarness) -> None:
    answer = await harness.send("chunks:5", follow_updates=True)
    assert answer["ok"], answer
    events = answer["raw"]["events"]
    assert [update["raw"] for update in harness.updates] == events
    assert all(update["phase"] == "update" for update in harness.updates)
    assert answer["raw"]["finalEvent"] == events[-1]
    assert events[-1]["kind"] in ("status-update", "task")
    assert events[-1]["status"]["state"] == "completed"
    assert answer["summary"]["message_text"] == "<0><1><2><3><4>"
    assert len(answer["summary"]["artifacts"]) == 1


async def test_a_required_task_is_followed_from_its_first_event(harness: ToolHarness) -> None:
    answer = await harness.send("task:tea", task_requirement="required", follow_updates=True)
    assert answer["ok"], answer
    events = answer["raw"]["events"]
    assert events[0]["kind"] == "task"
    assert answer["summary"]["continuation"]["task"]["status"] == "completed"
    assert answer["summary"]["message_text"] == "tea"


async def test_a_paused_task_is_resumed_after_a_restart_of_ours(
    harness: ToolHarness, peer: tuple[str, JsonObject], store: Store
) -> None:
    asked = await harness.send("ask")
    assert asked["ok"], asked
    task = asked["summary"]["continuation"]["task"]
    assert (task["status"], task["can_send"]) == ("input-required", True)
    assert asked["summary"]["message_text"] == "which colour?"
    await harness.tool.close()
    async with open_tool(peer[1], store=store) as later:
        await later.tool.open()
        [known] = later.tool.handles.all
        assert known.last_known.state == "input-required"
        assert known.last_known.text == "which colour?"
        answer = await later.send("blue", task_handle=task["task_handle"])
        assert answer["ok"], answer
        resumed = answer["summary"]["continuation"]["task"]
        assert resumed["task_id"] == task["task_id"]
        assert resumed["task_handle"] == task["task_handle"]
        assert resumed["status"] == "completed"
        assert answer["summary"]["message_text"] == "blue"
        assert later.tool.handles.all[0].last_known.state == "completed"


async def test_a_watch_of_a_paused_task_ends_with_its_question(
    harness: ToolHarness, peer: tuple[str, JsonObject]
) -> None:
    asked = await harness.send("ask")
    handle = asked["summary"]["continuation"]["task"]["task_handle"]
    watched = await harness.execute("watch", task_handle=handle)
    if peer[0].startswith("a2a-sdk 0.3"):  # that server has no stream for a task that waits
        assert not watched["ok"]
        return
    assert watched["ok"], watched
    assert watched["summary"]["continuation"]["task"]["status"] == "input-required"
    assert watched["summary"]["message_text"] == "which colour?"


@pytest.mark.requirement("remote.continuation.unchanged")
async def test_a_paused_task_is_resumed_by_a_continuation_without_a_handle(
    harness: ToolHarness, peer: tuple[str, JsonObject]
) -> None:
    asked = await harness.send("ask", follow_updates=True)
    assert asked["ok"], asked
    continuation = asked["summary"]["continuation"]
    assert continuation["task"]["status"] == "input-required"
    async with open_tool(peer[1]) as later:
        answer = await later.send("green", continuation=continuation, follow_updates=True)
        assert answer["ok"], answer
        resumed = answer["summary"]["continuation"]["task"]
        assert resumed["task_id"] == continuation["task"]["task_id"]
        assert resumed["task_handle"] != continuation["task"]["task_handle"]
        assert answer["summary"]["message_text"] == "green"


@pytest.mark.requirement("remote.durable.watch")
async def test_a_task_is_watched_to_its_end_after_a_restart_of_ours(
    harness: ToolHarness, peer: tuple[str, JsonObject], store: Store
) -> None:
    handle = await begin(harness, "slow")
    await harness.tool.close()
    async with open_tool(peer[1], store=store) as later:
        watched = await later.execute("watch", task_handle=handle)
        assert watched["ok"], watched
        assert watched["summary"]["continuation"]["task"]["status"] == "completed"
        assert watched["summary"]["message_text"] == "at last"
        assert [update["raw"] for update in later.updates] == watched["raw"]["events"]


@pytest.mark.parametrize(
    "peer",
    [pair for pair in PEERS if pair[0] not in TELLS_NO_SNAPSHOT],
    ids=lambda pair: f"{pair[0]} over {pair[1]}",
    indirect=True,
)
async def test_a_task_is_cancelled_while_it_is_watched(
    harness: ToolHarness, peer: tuple[str, JsonObject], store: Store
) -> None:
    handle = await begin(harness, "hold")
    async with open_tool(peer[1], store=store) as other, asyncio.timeout(240):
        watching = asyncio.create_task(other.execute("watch", task_handle=handle))
        await other.has_update.wait()
        canceled = await harness.execute("cancel", task_handle=handle)
        assert canceled["ok"], canceled
        assert canceled["raw"]["status"]["state"] == "canceled"
        watched = await watching
        assert watched["ok"], watched
        assert watched["summary"]["continuation"]["task"]["status"] == "canceled"
        assert watched["raw"]["finalEvent"]["status"]["state"] == "canceled"


async def test_a_deadline_ends_a_watch_and_reports_the_events_so_far(
    harness: ToolHarness, peer: tuple[str, JsonObject]
) -> None:
    handle = await begin(harness, "hold")
    await reach(harness, handle, "working")
    error = await harness.fail("watch", task_handle=handle, timeout_ms=4000)
    assert (error["code"], error["message"]) == ("A2A_SDK_ERROR", "request timed out")
    assert "timeout_ms" in error["details"]["hint"]
    if peer[0] not in TELLS_NO_SNAPSHOT:
        assert error["details"]["partial_event_count"] == 1
        latest = error["details"]["latest_event_summary"]
        assert latest["continuation"]["task"]["status"] == "working"
    await harness.execute("cancel", task_handle=handle)
