"""The operator lists, shows, follows and cancels the tasks of every caller."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.conformance.asgi_client import AsgiClient, Request
from tests.conformance.conftest import peers, token_of
from tests.conformance.protocol_clients import V1Client
from tests.conformance.scripted_agent import ScriptedAgent
from tests.server.admin.conftest import OpenGateway

from openclaw_a2a.model.agent_event import Reply, TextDelta

Json = Any
SECOND = "/agents/second/a2a/jsonrpc"
STYLE = {"agentStyle": "task-generating"}


@dataclass(frozen=True)
class Setup:
    """A gateway with an account per agent and store, the peers alice and bob, and its operator."""

    http: AsgiClient
    operator: AsgiClient
    first: ScriptedAgent
    second: ScriptedAgent

    async def start(self, peer: str, path: str = "/a2a/jsonrpc") -> str:
        """A task of a peer, which goes on until the test ends it; its id."""
        http = self.http.with_headers(authorization=f"Bearer {token_of(peer)}")
        return (await V1Client(http, path=path).start("work"))["id"]

    async def list(self, query: str = "") -> list[Json]:
        response = await self.operator.get(f"/operator/tasks{query}")
        assert response.status == 200
        return response.json["tasks"]

    async def cancel(self, task_id: str) -> Json:
        response = await self.operator.post(f"/operator/tasks/{task_id}/cancel", b"")
        assert response.status == 200, response.body
        return response.json


@pytest.fixture
async def setup(open_gateway: OpenGateway, token: Callable[[], str], tmp_path) -> Setup:
    first, second = ScriptedAgent(), ScriptedAgent()
    store = {"kind": "sqlite", "path": str(tmp_path / "second.db")}
    accounts = {
        "channels.a2a.accounts.default": {"defaultAgentId": "main", **STYLE},
        "channels.a2a.accounts.second": {"defaultAgentId": "other", "taskStore": store, **STYLE},
    }
    settings = {**peers("alice", "bob"), **accounts}
    http = await open_gateway({"main": first, "other": second}, settings=settings)
    operator = http.with_headers(authorization=f"Bearer {token()}")
    return Setup(http, operator, first, second)


async def test_tasks_of_all_callers_and_stores_are_listed_with_whose_they_are(setup: Setup) -> None:
    ids = [await setup.start("alice"), await setup.start("bob"), await setup.start("bob", SECOND)]
    listed = await setup.list()
    assert [(one["id"], one["caller"], one["agent"], one["account"]) for one in listed] == [
        (ids[2], "bob", "other", "second"),
        (ids[1], "bob", "main", "default"),
        (ids[0], "alice", "main", "default"),
    ]
    assert "task" not in listed[0]


async def test_listed_tasks_are_chosen_by_caller_account_status_and_limit(setup: Setup) -> None:
    ids = [await setup.start("alice"), await setup.start("bob"), await setup.start("bob", SECOND)]
    await setup.cancel(ids[1])

    async def chosen(query: str) -> list[str]:
        return [one["id"] for one in await setup.list(query)]

    assert await chosen("?caller=bob") == [ids[2], ids[1]]
    assert await chosen("?account=default") == [ids[1], ids[0]]
    assert await chosen("?status=TASK_STATE_CANCELED") == [ids[1]]
    assert await chosen("?caller=bob&account=second") == [ids[2]]
    assert await chosen("?caller=nobody") == []
    response = await setup.operator.get("/operator/tasks?limit=1")
    assert [one["id"] for one in response.json["tasks"]] == [ids[2]]
    assert response.json["totalSize"] == 3


async def test_a_peers_task_is_shown_whole(setup: Setup) -> None:
    task_id = await setup.start("alice", SECOND)
    run = await setup.second.next_run()
    await run.finish(Reply.of_text("done"))
    await setup.operator.get(f"/operator/tasks/{task_id}/events")  # answered when the task ends
    shown = (await setup.operator.get(f"/operator/tasks/{task_id}")).json
    assert (shown["caller"], shown["account"], shown["agent"]) == ("alice", "second", "other")
    assert shown["task"]["status"]["state"] == shown["state"] == "TASK_STATE_COMPLETED"
    assert shown["task"]["history"][0]["parts"] == [{"text": "work"}]


async def test_a_peers_task_is_canceled_and_its_agent_has_stopped(setup: Setup) -> None:
    task_id = await setup.start("alice")
    run = await setup.first.next_run()
    canceled = await setup.cancel(task_id)
    assert run.has_stopped
    assert (canceled["state"], canceled["caller"]) == ("TASK_STATE_CANCELED", "alice")
    again = await setup.operator.post(f"/operator/tasks/{task_id}/cancel", b"")
    assert (again.status, again.json["error"]["code"]) == (400, "task-not-cancelable")


async def test_a_peers_task_is_followed_and_taken_up_again_after_an_event(setup: Setup) -> None:
    task_id = await setup.start("alice")
    run = await setup.first.next_run()
    path = f"/operator/tasks/{task_id}/events"
    async with setup.operator.open(Request("GET", path)) as stream:
        first = await stream.next_chunk()
        assert first is not None
        assert f'"task":{{"id":"{task_id}"'.encode() in first
        await run.finish(TextDelta("hello"))
        rest = b""
        while chunk := await stream.next_chunk():
            rest += chunk
    assert b"TASK_STATE_COMPLETED" in rest
    last = rest.rpartition(b"id: ")[2].partition(b"\n")[0]
    resumed = await setup.operator.get(path, last_event_id=str(int(last) - 1))
    assert resumed.body == rest[rest.rindex(b"id: ") :]


@pytest.mark.parametrize("path", ["", "/events"])
async def test_an_unknown_task_is_not_found(setup: Setup, path: str) -> None:
    response = await setup.operator.get(f"/operator/tasks/nothing{path}")
    assert (response.status, response.json["error"]["code"]) == (404, "task-not-found")
    canceled = await setup.operator.post("/operator/tasks/nothing/cancel", b"")
    assert (canceled.status, canceled.json["error"]["code"]) == (404, "task-not-found")
    assert "task not found" in response.json["error"]["message"]


@pytest.mark.parametrize("path", ["", "/{}", "/{}/events"])
async def test_peers_do_not_see_what_the_operator_sees(setup: Setup, path: str) -> None:
    task_id = await setup.start("alice")
    peer = setup.http.with_headers(authorization=f"Bearer {token_of('alice')}")
    response = await peer.get(f"/operator/tasks{path.format(task_id)}")
    assert (response.status, response.json["error"]["code"]) == (403, "insufficient-scope")
    canceled = await peer.post(f"/operator/tasks/{task_id}/cancel", b"")
    assert canceled.status == 403


async def test_a_cursor_that_is_no_number_is_refused(setup: Setup) -> None:
    task_id = await setup.start("alice")
    path = f"/operator/tasks/{task_id}/events"
    response = await setup.operator.get(path, last_event_id="x")
    assert (response.status, response.json["error"]["code"]) == (400, "invalid-params")
