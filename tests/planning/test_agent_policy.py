"""Which agents steps may name: remote callers cannot use every agent."""

import json
from typing import Any

import anyio
import pytest
from tests.conformance.asgi_client import TIMEOUT_S
from tests.conformance.conftest import peers, token_of
from tests.planning.gateway_harness import PlanningHarness

from openclaw_a2a.auth.tokens import TokenKind, TokenStore

Json = Any


async def run_step(harness: PlanningHarness, agent: str, token: str = token_of("alice")) -> Json:
    """How the step ends with which a peer, alice, names an agent."""
    client = harness.client.with_headers(authorization=f"Bearer {token}")

    async def call(method: str, **params: Json) -> Json:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return (await client.post("/a2a/jsonrpc", json.dumps(body).encode())).json["result"]

    objective_id = (await call("objectives/create", name="hers"))["objective"]["id"]
    step = {"name": "step", "metadata": {"agent": agent}}
    await call("plans/create", objectiveId=objective_id, name="plan", tasks=[step])
    await call("objectives/run", id=objective_id)
    with anyio.fail_after(TIMEOUT_S):
        while True:
            found = (await call("objectives/get", id=objective_id))["objective"]
            if found["status"] in ("completed", "failed"):
                return found
            await anyio.sleep(0.02)  # a peer that asks again at once is beyond its rate


@pytest.mark.parametrize("agent", ["helper", "target:ops", "gateway:debate", "gateway:skills"])
async def test_a_peer_cannot_use_agents_other_than_that_of_its_account(
    harness: PlanningHarness, agent: str
) -> None:
    await harness.reopen(peers("alice"))
    ended = await run_step(harness, agent)
    assert ended["status"] == "failed"
    assert harness.workers["helper"].turns == []


async def test_a_peer_whose_token_a_command_made_cannot_either(harness: PlanningHarness) -> None:
    """Only peers of the settings file were known as peers; all others could name every agent."""
    await harness.reopen({})
    token = TokenStore(harness.folder).create("carol", TokenKind.PEER)
    ended = await run_step(harness, "helper", token)
    assert ended["status"] == "failed"
    assert harness.workers["helper"].turns == []
    assert (await run_step(harness, "main", token))["status"] == "completed"


@pytest.mark.parametrize("allowed", [["main"], []])
async def test_steps_at_an_account_name_only_the_agents_of_its_list(
    harness: PlanningHarness, allowed: list[str]
) -> None:
    key = "channels.a2a.accounts.default.allowedAgents"
    await harness.reopen({**peers("alice"), "opt.agents": ["*"], key: allowed})
    assert (await run_step(harness, "helper"))["status"] == "failed"
    assert (await run_step(harness, "main"))["status"] == "completed"


@pytest.mark.parametrize("agent", ["main", "helper"])
async def test_a_peer_can_use_its_own_agent_and_those_of_the_settings(
    harness: PlanningHarness, agent: str
) -> None:
    await harness.reopen({**peers("alice"), "opt.agents": ["help*"]})
    ended = await run_step(harness, agent)
    assert ended["status"] == "completed"
    assert len(harness.workers[agent].turns) == 1


async def test_no_caller_can_use_internal_agents_of_the_gateway(harness: PlanningHarness) -> None:
    objective_id = await harness.objective(metadata={"agent": "gateway:skills"})
    await harness.plan(objective_id, [{"name": "step"}])
    await harness.call("objectives/run", id=objective_id)
    ended = await harness.ends(objective_id, "failed")
    task = await harness.call("GetTask", id=ended["plans"][0]["tasks"][0]["a2aTaskId"])
    assert "opt.agents" in task["status"]["message"]["parts"][0]["text"]
