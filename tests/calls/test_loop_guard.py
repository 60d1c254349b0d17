"""Loop guard and policy of calls."""

import json
from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from tests.calls.call_gateway import TIMEOUT_S, Answer, CallGateway, main_session

Json = Any
A = main_session("a")


def passes_on(gateway: CallGateway, name: str, to: str) -> Answer:
    """An agent that calls another one before it answers, and answers with what that said."""

    async def answer(invocation: Json) -> str:
        session = f"agent:{name}:call:{invocation['correlationId']}"
        arguments = {"agent": to, "skill": "work", "input": {}, "wait": True}
        result = await gateway.call_tool(gateway.client(name, session), "agent_call", arguments)
        return json.dumps({"output": result})

    return answer


@pytest.mark.requirement("calls.state.hops", "calls.loop.chain")
async def test_each_call_of_a_cascade_has_an_id_of_its_own(gateway: CallGateway) -> None:
    gateway.agents["b"].answer = passes_on(gateway, "b", "c")
    answer = await gateway.call("a", "b", wait=True)
    inner = answer["output"]
    assert (inner["status"], inner["output"]) == ("completed", "done")
    assert inner["correlationId"] != answer["correlationId"]
    [turn] = gateway.agents["c"].turns
    assert turn.provenance is not None
    assert turn.provenance.chain == ("a", "b")
    assert turn.provenance.session_key == f"agent:b:call:{answer['correlationId']}"


@pytest.mark.requirement("calls.loop.loop")
async def test_a_triangle_ends_where_it_began(gateway: CallGateway) -> None:
    for name, to in (("b", "c"), ("c", "a")):
        gateway.agents[name].answer = passes_on(gateway, name, to)
    answer = await gateway.call("a", "b", wait=True)
    refused = answer["output"]["output"]
    assert refused["status"] == "error"
    assert "loop" in refused["error"]
    assert gateway.agents["a"].invocations == []


@pytest.mark.requirement("calls.loop.depth")
async def test_a_chain_ends_at_the_depth_of_the_settings(gateway: CallGateway) -> None:
    await gateway.reopen({"tools.agentToAgent.maxDepth": 2})
    for name, to in (("b", "c"), ("c", "d")):
        gateway.agents[name].answer = passes_on(gateway, name, to)
    answer = await gateway.call("a", "b", wait=True)
    refused = answer["output"]["output"]
    assert "depth" in refused["error"]
    assert gateway.agents["d"].invocations == []


@pytest.mark.requirement("calls.loop.ping-pong")
async def test_two_sessions_that_answer_each_other_for_ever_are_stopped(
    gateway: CallGateway,
) -> None:
    gateway.host.processed.clear()  # the caller's turn goes on: it calls in answer to the answer
    for count in range(1, 7):
        assert (await gateway.call("a", "b"))["status"] == "pending"
        await gateway.host.wait_messages(A, count)
    refused = await gateway.call("a", "b")
    assert refused["status"] == "error"
    assert "loop" in refused["error"]
    assert (await gateway.call("a", "c"))["status"] == "pending"
    gateway.host.processed.set()


async def test_calls_that_without_a_cause_are_not_counted(gateway: CallGateway) -> None:
    for count in range(1, 10):
        call = await gateway.call("a", "b")
        assert call["status"] == "pending"
        await gateway.host.wait_messages(A, count)
        await gateway.poll("a", call, lambda polled: "seen" in polled["times"])


@pytest.mark.requirement(
    "calls.result.forbidden",
    "calls.policy.nobody",
    "calls.policy.caller",
    "calls.policy.target",
    "calls.policy.reach",
)
@pytest.mark.parametrize(
    ("settings", "target", "words"),
    [
        ({"tools.agentToAgent.allow": []}, "b", "tools.agentToAgent.allow"),
        ({"tools.agentToAgent.allow": ["b"]}, "b", "agent a may not call others"),
        ({"tools.agentToAgent.allow": ["a"]}, "b", "agent b may not be called"),
        ({"agents.a.tools.agentToAgent.allow": ["c"]}, "b", "agent a may not call b"),
        ({"agents.a.tools.agentToAgent.allow": []}, "c", "agent a may not call c"),
    ],
)
async def test_a_refusal_names_the_setting(
    gateway: CallGateway, settings: Mapping[str, Json], target: str, words: str
) -> None:
    await gateway.reopen(settings)
    result = await gateway.call("a", target)
    assert result["status"] == "forbidden"
    assert words in result["error"]


@pytest.mark.requirement("calls.policy.disabled")
async def test_without_the_setting_no_such_tools_are_offered(gateway: CallGateway) -> None:
    await gateway.reopen({"tools.agentToAgent.enabled": False})
    answer = await gateway.client("a").get("/tools")
    assert answer.json == {"tools": []}


B = {"agent": "b", "skill": "work"}
CALL = {**B, "input": {}}


@pytest.mark.requirement("calls.policy.disabled")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("agent_call", CALL),
        ("agent_call", {**CALL, "wait": True}),
        ("agent_call", {**CALL, "agent": "a"}),
        ("agent_call", {"agent": "b", "input": 1}),
        ("agent_call_batch", {"calls": "many"}),
        ("debate_call", {}),
        ("agent_call_batch", {"calls": [CALL, {**CALL, "agent": "c"}]}),
        (
            "debate_call",
            {"topic": "tides", "input": {}, "proposer": B, "critics": [B], "resolver": B},
        ),
        ("agent_poll", {"correlationId": "6a0e"}),
    ],
)
async def test_without_the_setting_every_tool_answers_that_it_is_forbidden(
    gateway: CallGateway, tool: str, arguments: Json
) -> None:
    await gateway.reopen({"tools.agentToAgent.enabled": False})
    for client in (gateway.client("a"), gateway.program_client("ann")):
        answer = await gateway.call_tool(client, tool, arguments)
        assert answer["status"] == "forbidden"
        assert "tools.agentToAgent.enabled" in answer["error"]
    assert gateway.agents["b"].invocations == []
    refused = await gateway.read_audit()
    assert [one["event"] for one in refused] == ["call-refused"] * 2


@pytest.mark.requirement("calls.policy.disabled")
async def test_a_call_from_before_is_delivered_and_not_polled_once_calls_are_off(
    gateway: CallGateway,
) -> None:
    call = await gateway.call("a", "b")
    await gateway.reopen({"tools.agentToAgent.enabled": False})
    assert (await gateway.poll("a", call))["status"] == "forbidden"
    with anyio.fail_after(TIMEOUT_S):
        while (shown := await gateway.describe(call))["status"] == "pending":
            pass
    assert shown["status"] in {"completed", "error"}


SKILLS = [
    {
        "name": "research",
        "description": "Looks things up.",
        "input": {"q": {"type": "string", "required": True}, "limit": {"type": "integer"}},
        "timeoutSeconds": 7,
    }
]


@pytest.mark.requirement(
    "calls.skills.unknown-skill",
    "calls.skills.problems",
    "calls.request.timeout-skill",
)
async def test_an_agent_that_declares_skills_is_called_for_those_only(gateway: CallGateway) -> None:
    await gateway.reopen({"agents.b.skills": SKILLS})
    unknown = await gateway.call("a", "b", "dance")
    assert unknown["error"] == "b has no skill dance; it has research, ping, list_skills"
    wrong = await gateway.call("a", "b", "research", input={"limit": "many"})
    assert "q" in wrong["error"]
    assert "limit" in wrong["error"]
    assert (await gateway.call("a", "b", "research", input={"q": "tides", "x": 1}))["status"]
    await gateway.host.wait_messages(A)
    assert gateway.agents["b"].invocations[0]["timeout"] == 7000


@pytest.mark.requirement("calls.skills.no-run", "calls.skills.list")
async def test_the_gateway_answers_what_every_agent_can(gateway: CallGateway) -> None:
    await gateway.reopen({"agents.b.skills": SKILLS})
    pong = await gateway.call("a", "b", "ping", wait=True)
    assert pong["output"]["status"] == "pong"
    listed = await gateway.call("a", "b", "list_skills", wait=True)
    names = [skill["name"] for skill in listed["output"]["skills"]]
    assert names == ["research", "ping", "list_skills"]
    assert gateway.agents["b"].invocations == []


@pytest.mark.requirement("calls.settings.off")
async def test_routing_that_is_off_delivers_nothing(gateway: CallGateway) -> None:
    await gateway.reopen({"responseRouting.enabled": False})
    call = await gateway.call("a", "b")
    assert call["status"] == "working"
    await gateway.poll("a", call, lambda polled: polled["status"] == "completed")
    assert gateway.host.attempts == []


# -------------------------------------------------------------------- many calls at once


async def batch(gateway: CallGateway, calls: list[Json], **more: Json) -> Json:
    return await gateway.call_tool(
        gateway.client("a"), "agent_call_batch", {"calls": calls, **more}
    )


@pytest.mark.requirement("calls.batch.order", "calls.batch.counts", "calls.batch.errors")
async def test_a_batch_answers_in_the_order_it_was_asked(gateway: CallGateway) -> None:
    calls = [
        {"agent": "b", "skill": "work", "input": {}},
        {"agent": "a", "skill": "work", "input": {}},
        {"agent": "c", "skill": "work", "input": {}, "timeoutSeconds": 5},
        {"agent": "c"},
    ]
    result = await batch(gateway, calls)
    assert [one["index"] for one in result["results"]] == [0, 1, 2, 3]
    statuses = [one["status"] for one in result["results"]]
    assert statuses == ["completed", "error", "completed", "error"]
    assert result["aggregateConfidence"] == pytest.approx(0.9)
    counts = (result["completedCount"], result["errorCount"], result["totalCount"])
    assert counts == (2, 2, 4)
    assert gateway.host.attempts == []


@pytest.mark.requirement("calls.batch.empty")
async def test_an_empty_batch_is_all_zeros(gateway: CallGateway) -> None:
    assert await batch(gateway, []) == {
        "results": [],
        "aggregateConfidence": 0,
        "completedCount": 0,
        "errorCount": 0,
        "totalCount": 0,
    }


@pytest.mark.requirement("calls.batch.bounds")
@pytest.mark.parametrize(
    ("calls", "more"), [([{}] * 51, {}), ([], {"concurrency": 0}), ([], {"concurrency": "all"})]
)
async def test_a_batch_that_is_too_much_is_refused(
    gateway: CallGateway, calls: list[Json], more: Json
) -> None:
    assert (await batch(gateway, calls, **more))["status"] == "error"


@pytest.mark.requirement("calls.batch.bounds")
async def test_no_more_calls_of_a_batch_run_at_once_than_asked_for(gateway: CallGateway) -> None:
    running, most = set[str](), 0

    async def answer(invocation: Json) -> str:
        nonlocal most
        running.add(invocation["correlationId"])
        most = max(most, len(running))
        await gateway.call_tool(gateway.program_client("other"), "agent_poll", {"taskId": "x"})
        running.discard(invocation["correlationId"])
        return "done"

    gateway.agents["b"].answer = answer
    calls = [{"agent": "b", "skill": "work", "input": {}}] * 12
    result = await batch(gateway, calls, concurrency=3)
    assert result["completedCount"] == 12
    assert 1 <= most <= 3
