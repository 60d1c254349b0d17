"""Commands of agents that need the operator's approval."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.conformance.asgi_client import AsgiClient, Response
from tests.conformance.conftest import peers, token_of
from tests.conformance.protocol_clients import V1Client
from tests.conformance.scripted_agent import ScriptedAgent
from tests.server.admin.asking_agent import AskingAgent, approval
from tests.server.admin.conftest import OpenGateway

from openclaw_a2a.engine.approvals import ApprovalService
from openclaw_a2a.model.ids import AgentId

Token = Callable[[], str]


async def decide(http: AsgiClient, approval_id: str, *, allow: bool) -> Response:
    body = msgspec.json.encode({"allow": allow})
    headers = {"content_length": str(len(body))}
    return await http.post(f"/operator/approvals/{approval_id}", body, **headers)


@pytest.fixture
def open_as_operator(open_gateway: OpenGateway, token: Token) -> OpenGateway:
    async def open_one(agents: dict[str, AskingAgent]) -> AsgiClient:
        http = await open_gateway(agents)
        return http.with_headers(authorization=f"Bearer {token()}")

    return open_one


async def test_approvals_of_all_agents_are_listed_the_oldest_first(
    open_as_operator: OpenGateway,
) -> None:
    first, second = approval("a-1", minute=2), approval("b-1", minute=1)
    http = await open_as_operator({"main": AskingAgent(first), "other": AskingAgent(second)})
    listed = (await http.get("/operator/approvals")).json
    assert [(one["id"], one["agent"]) for one in listed["approvals"]] == [
        ("b-1", "other"),
        ("a-1", "main"),
    ]
    assert listed["approvals"][0]["command"] == "ls -la"
    assert listed["approvals"][0]["cwd"] == "/srv/project"
    assert listed["approvals"][0]["taskId"] == "task-1"
    assert listed["troubles"] == []


async def test_an_unavailable_agent_does_not_hide_the_approvals_of_others(
    open_as_operator: OpenGateway,
) -> None:
    down = AskingAgent(trouble="the gateway of OpenClaw does not answer; start it")
    http = await open_as_operator({"main": AskingAgent(approval("a-1")), "down": down})
    listed = (await http.get("/operator/approvals")).json
    assert [one["id"] for one in listed["approvals"]] == ["a-1"]
    assert listed["troubles"] == [
        {"agent": "down", "reason": "the gateway of OpenClaw does not answer; start it"}
    ]
    assert (await decide(http, "a-1", allow=True)).status == 200


async def test_an_agent_that_does_not_answer_hides_no_other() -> None:
    agents = {AgentId("slow"): AskingAgent(hangs=True), AgentId("main"): AskingAgent(approval("a"))}
    service = ApprovalService(lambda: agents, timeout_s=0.01)
    async with asyncio.timeout(240):
        listed = await service.list()
    assert [one.id for one in listed.approvals] == ["a"]
    assert [one.agent for one in listed.troubles] == ["slow"]


@pytest.mark.parametrize("allow", [True, False])
async def test_a_decision_reaches_the_agent_that_waits_for_it(
    open_as_operator: OpenGateway, allow: bool
) -> None:
    asking = AskingAgent(approval("a-1"))
    http = await open_as_operator({"first": AskingAgent(), "main": asking})
    response = await decide(http, "a-1", allow=allow)
    assert (response.status, response.json) == (
        200,
        {"id": "a-1", "agent": "main", "allowed": allow},
    )
    assert asking.decided == {"a-1": allow}


async def test_a_decision_counts_once(open_as_operator: OpenGateway) -> None:
    asking = AskingAgent(approval("a-1"))
    http = await open_as_operator({"main": asking})
    await decide(http, "a-1", allow=False)
    response = await decide(http, "a-1", allow=True)
    assert (response.status, response.json["error"]["code"]) == (409, "approval-over")
    assert asking.decided == {"a-1": False}


async def test_an_unknown_approval_is_not_found(
    open_as_operator: OpenGateway,
) -> None:
    http = await open_as_operator({"main": AskingAgent()})
    response = await decide(http, "nobody", allow=True)
    assert (response.status, response.json["error"]["code"]) == (404, "approval-not-found")


async def test_an_approval_is_not_called_unknown_while_an_agent_is_unavailable(
    open_as_operator: OpenGateway,
) -> None:
    http = await open_as_operator({"main": AskingAgent(), "down": AskingAgent(trouble="no luck")})
    response = await decide(http, "somewhere", allow=True)
    assert (response.status, response.json["error"]["code"]) == (503, "agent-unavailable")
    assert "no luck" in response.json["error"]["message"]


async def test_a_decision_must_be_true_or_false(open_as_operator: OpenGateway) -> None:
    asking = AskingAgent(approval("a-1"))
    http = await open_as_operator({"main": asking})
    for body in (b'{"allow": "yes"}', b"{}", b'{"allow": null}', b'{"allow": 1}'):
        response = await http.post("/operator/approvals/a-1", body, content_length=str(len(body)))
        assert (response.status, response.json["error"]["code"]) == (400, "invalid-params")
    assert asking.decided == {}


async def test_a_caller_is_approved_where_every_account_has_a_store_of_its_own(
    open_gateway: OpenGateway, token: Token, tmp_path: Path
) -> None:
    store = {"kind": "sqlite", "path": str(tmp_path / "own.db")}
    account = {"defaultAgentId": "main", "agentStyle": "task-generating", "taskStore": store}
    settings = {
        **peers("alice"),
        "channels.a2a.security.pairing": True,
        "channels.a2a.accounts.default": account,
    }
    # Approved callers are in the gateway's own store, which has no tasks here.
    http = await open_gateway({"main": ScriptedAgent()}, settings=settings)
    alice = http.with_headers(authorization=f"Bearer {token_of('alice')}")
    operator = http.with_headers(authorization=f"Bearer {token()}")
    held = (await V1Client(alice).send("work"))["task"]
    assert held["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"
    assert (await decide(operator, held["id"], allow=True)).status == 200
    known = (await operator.get("/operator/peers")).json["peers"]
    assert [one["id"] for one in known] == ["alice"]
