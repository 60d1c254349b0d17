"""ListTasks: filters, order, pages."""

import base64
import json
from datetime import datetime, timedelta

import pytest
from tests.conformance.conftest import Start
from tests.conformance.protocol_clients import Json, V1Client
from tests.conformance.scripted_agent import ScriptedAgent, Step

from openclaw_a2a.model.agent_event import Failed, InputRequired, Reply, ToolPhase, ToolProgress

TASKS = {"agentStyle": "task-generating"}


def _agent() -> ScriptedAgent:
    """An agent that does as the message says."""
    responses: dict[str, list[Step]] = {
        "fail": [Failed("as wished")],
        "ask": [InputRequired("Which one?")],
        "tool": [ToolProgress(ToolPhase.RESULT, "lookup", "c1")],
        "raise": [RuntimeError("as wished")],
    }
    return ScriptedAgent(script=lambda turn: responses.get(turn.body, [Reply.of_text("hi")]))


async def _fill(v1: V1Client, count: int) -> list[str]:
    return [(await v1.send())["task"]["id"] for _ in range(count)]


@pytest.mark.requirement("wire.list.members")
async def test_empty_list_has_all_members(start: Start) -> None:
    v1 = V1Client(await start(_agent()))
    assert await v1.list() == {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}


@pytest.mark.requirement("wire.list.sorted")
async def test_the_list_is_ordered_by_newest_status(start: Start) -> None:
    v1 = V1Client(await start(_agent(), account=TASKS))
    ids = await _fill(v1, 5)
    page = await v1.list()
    times = [task["status"]["timestamp"] for task in page["tasks"]]
    assert times == sorted(times, reverse=True)
    assert {task["id"] for task in page["tasks"]} == set(ids)


@pytest.mark.requirement("wire.list.sorted")
async def test_task_whose_status_changes_moves_to_the_front(start: Start) -> None:
    v1 = V1Client(await start(_agent(), account=TASKS))
    paused = (await v1.send("ask"))["task"]["id"]
    await _fill(v1, 3)
    assert (await v1.list())["tasks"][-1]["id"] == paused
    await v1.cancel(paused)
    assert (await v1.list())["tasks"][0]["id"] == paused


@pytest.mark.requirement("wire.list.paging", "wire.list.members")
@pytest.mark.parametrize("page_size", [1, 2, 3, 7, 100])
async def test_the_pages_list_every_task_once(start: Start, page_size: int) -> None:
    v1 = V1Client(await start(_agent(), account=TASKS))
    ids = await _fill(v1, 7)
    found: list[str] = []
    token = ""
    for _ in range(8):
        page = await v1.list(pageSize=page_size, pageToken=token)
        assert (page["pageSize"], page["totalSize"]) == (page_size, 7)
        found += [task["id"] for task in page["tasks"]]
        token = page["nextPageToken"]
        if not token:
            break
    assert len(found) == 7
    assert set(found) == set(ids)


@pytest.mark.requirement("wire.list.filters")
async def test_tasks_are_filtered_by_context_and_state(start: Start) -> None:
    v1 = V1Client(await start(_agent(), account=TASKS))
    for text in ("ok", "fail", "ask", "raise"):
        await v1.send(text, contextId=f"context-{text}")
    await v1.send(contextId="context-ok")
    assert (await v1.list(contextId="context-ok"))["totalSize"] == 2
    assert (await v1.list(contextId="nobody's"))["tasks"] == []
    failed = await v1.list(status="TASK_STATE_FAILED")
    assert (failed["totalSize"], len(failed["tasks"])) == (2, 2)
    both = await v1.list(status="TASK_STATE_FAILED", contextId="context-raise")
    assert both["totalSize"] == 1
    assert (await v1.list(status="TASK_STATE_INPUT_REQUIRED"))["totalSize"] == 1
    assert (await v1.list(status="TASK_STATE_WORKING"))["totalSize"] == 0


@pytest.mark.requirement("wire.list.filters")
async def test_tasks_are_filtered_by_the_time_of_their_status(start: Start) -> None:
    v1 = V1Client(await start(_agent(), account=TASKS))
    await _fill(v1, 3)
    newest = (await v1.list())["tasks"][0]
    stamp: str = newest["status"]["timestamp"]
    since = await v1.list(statusTimestampAfter=stamp)
    assert newest["id"] in [task["id"] for task in since["tasks"]]
    later = datetime.fromisoformat(stamp) + timedelta(seconds=1)
    assert (await v1.list(statusTimestampAfter=later.isoformat()))["tasks"] == []
    assert (await v1.list(statusTimestampAfter="2020-01-01T00:00:00Z"))["totalSize"] == 3


@pytest.mark.requirement("wire.list.page-size")
@pytest.mark.parametrize("page_size", [0, -1, 101, 200, "x", 1.5])
async def test_page_size_out_of_range_is_refused(start: Start, page_size: Json) -> None:
    v1 = V1Client(await start(_agent()))
    failed = await v1.error("ListTasks", {"pageSize": page_size})
    assert (failed.code, "pageSize" in failed.message) == (-32602, True)


@pytest.mark.requirement("wire.list.artifacts")
async def test_artifacts_are_listed_only_when_requested_and_then_always(start: Start) -> None:
    v1 = V1Client(await start(_agent(), account=TASKS))
    await v1.send()
    await v1.send("ask")
    assert all("artifacts" not in task for task in (await v1.list())["tasks"])
    request, answered = (await v1.list(includeArtifacts=True))["tasks"]
    assert request["artifacts"] == []
    assert len(answered["artifacts"]) == 1


@pytest.mark.requirement("wire.history.length")
async def test_list_honours_history_length(start: Start) -> None:
    v1 = V1Client(await start(_agent(), account=TASKS))
    await v1.send()
    (all_of_it,) = (await v1.list())["tasks"]
    (none,) = (await v1.list(historyLength=0))["tasks"]
    (last,) = (await v1.list(historyLength=1))["tasks"]
    # ProtoJSON takes a whole number in any spelling, and as text too.
    for spelled in ("1", "1.0", "1e0", "10e-1", 1.0):
        assert (await v1.list(historyLength=spelled))["tasks"] == [last]
    assert len(all_of_it["history"]) == 2
    assert "history" not in none
    assert last["history"] == all_of_it["history"][-1:]


def _token(value: Json) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.requirement("wire.list.bad-token")
@pytest.mark.parametrize(
    "token",
    [
        "banana",
        "....",
        "\u00e9\u4e16",
        "A" * 5000,
        _token([]),
        _token(["2026-01-01T00:00:00Z"]),
        _token(["2026-01-01T00:00:00", "t"]),
        _token([1, 2]),
        _token({"a": 1}),
    ],
)
async def test_page_token_that_is_not_ours_is_refused(start: Start, token: str) -> None:
    v1 = V1Client(await start(_agent(), account=TASKS))
    await _fill(v1, 2)
    failed = await v1.error("ListTasks", {"pageToken": token})
    assert (failed.code, "pageToken" in failed.message) == (-32602, True)


@pytest.mark.requirement("wire.list.filters")
@pytest.mark.parametrize("status", ["completed", "TASK_STATE_DONE", 9])
async def test_unknown_status_is_refused(start: Start, status: Json) -> None:
    v1 = V1Client(await start(_agent()))
    failed = await v1.error("ListTasks", {"status": status})
    assert (failed.code, "status" in failed.message) == (-32602, True)


async def _pages(v1: V1Client, **filters: Json) -> list[list[Json]]:
    pages: list[list[Json]] = []
    token: str | None = ""
    while token is not None and len(pages) < 50:
        page = await v1.list(pageToken=token, **filters)
        pages.append(page["tasks"])
        token = page["nextPageToken"] or None
    return pages


@pytest.mark.requirement("wire.list.paging")
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_pages_of_huge_tasks_end_early_and_continue(start: Start, kind: str) -> None:
    agent = ScriptedAgent(script=lambda turn: [Reply.of_text("x" * int(turn.body))])
    settings = {"store.kind": kind, "limits.eventBytes": 20_000_000}
    v1 = V1Client(await start(agent, account=TASKS, settings=settings))
    sizes = [1_000_000, 1_000_000, 3_500_000, 10, 1_500_000, 10, 1_500_000, *[10] * 10]
    ids = [(await v1.send(str(size)))["task"]["id"] for size in sizes]
    pages = await _pages(v1, includeArtifacts=True)
    assert [task["id"] for page in pages for task in page] == ids[::-1]
    assert len(pages) > 2
    for page in pages:
        assert page
        assert len(page) == 1 or len(json.dumps(page)) < 9_000_000
    short = await _pages(v1, historyLength=0)
    assert [task["id"] for page in short for task in page] == ids[::-1]
    assert len(short) < len(pages)
