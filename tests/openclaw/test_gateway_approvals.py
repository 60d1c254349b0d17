"""Commands of a real OpenClaw's agent that need an approval."""

import json
from contextlib import aclosing

import pytest
from tests.openclaw.gateway_agents import find_pause, gateway_agent, make_turn, run_turn, texts
from tests.openclaw.openclaw_process import OpenClaw

from openclaw_a2a.agents.openclaw_gateway import OpenClawGatewayAgent
from openclaw_a2a.model.agent_event import AgentEvent, Approval, Note
from openclaw_a2a.model.errors import ApprovalOver
from openclaw_a2a.model.turn import Turn


def run(command: str) -> str:
    return f"tool:exec {json.dumps({'command': command})}"


async def decided(
    agent: OpenClawGatewayAgent, turn: Turn, *, allow: bool
) -> tuple[list[AgentEvent], Approval]:
    """The turn, with its approval decided by the operator as soon as it is told."""
    heard: list[AgentEvent] = []
    found: list[Approval] = []
    async with aclosing(agent.run(turn)) as events:  # pyright: ignore[reportArgumentType] - a generator
        async for event in events:
            heard.append(event)
            if isinstance(event, Note) and "Waits for the operator" in event.text:
                waiting = [one for one in await agent.approvals() if one.task_id == turn.task_id]
                found += waiting
                await agent.decide(waiting[0].id, allow=allow)
    return heard, found[0]


async def test_the_operator_allows_a_command(openclaw: OpenClaw, marker: str) -> None:
    async with gateway_agent(openclaw) as agent:
        events, approval = await decided(
            agent, make_turn(run(f"echo {marker}"), marker), allow=True
        )
        assert approval.command == f"echo {marker}"
        assert approval.cwd == str(openclaw.workspace("main"))
        with pytest.raises(ApprovalOver):
            await agent.decide(approval.id, allow=False)
    assert texts(events) == [f"The tool said: {marker}"]
    assert Note("The command was allowed by the operator.") in events


async def test_the_operator_denies_a_command(openclaw: OpenClaw, marker: str) -> None:
    async with gateway_agent(openclaw) as agent:
        events, _ = await decided(agent, make_turn(run(f"echo {marker}"), marker), allow=False)
    assert "denied" in texts(events)[0]


async def test_a_peer_with_the_right_allows_a_command(openclaw: OpenClaw, marker: str) -> None:
    command = run(f"echo {marker}")
    async with gateway_agent(openclaw) as agent:
        asked = make_turn(command, marker, run="1", may_approve=True)
        pause = find_pause(await run_turn(agent, asked))
        assert f"echo {marker}" in pause.prompt
        unclear = make_turn("hm", marker, run="2", resume=pause.resume, may_approve=True)
        repeated = find_pause(await run_turn(agent, unclear))
        clear = make_turn("Allow", marker, run="3", resume=repeated.resume, may_approve=True)
        events = await run_turn(agent, clear)
    assert texts(events) == [f"The tool said: {marker}"]


async def test_a_peer_that_may_not_approve_changes_nothing(openclaw: OpenClaw, marker: str) -> None:
    async with gateway_agent(openclaw) as agent:
        asked = make_turn(run(f"echo {marker}"), marker, run="1", may_approve=True)
        pause = find_pause(await run_turn(agent, asked))
        turn = make_turn("approve", marker, run="2", resume=pause.resume)
        async with aclosing(agent.run(turn)) as events:  # pyright: ignore[reportArgumentType] - a generator
            async for event in events:
                assert isinstance(event, Note)
                break
            waiting = [one.id for one in await agent.approvals()]
    assert pause.resume["id"] in waiting


async def test_a_pending_approval_is_found_by_another_process_of_ours(
    openclaw: OpenClaw, marker: str
) -> None:
    turn = make_turn(run(f"echo {marker}"), marker)
    async with gateway_agent(openclaw) as agent, aclosing(agent.run(turn)) as events:  # pyright: ignore[reportArgumentType] - a generator
        async for event in events:
            if isinstance(event, Note):
                agent.detach()
                break
    async with gateway_agent(openclaw) as agent:
        repeated = make_turn(run(f"echo {marker}"), marker, attempt=2)
        events, _ = await decided(agent, repeated, allow=True)
    assert texts(events) == [f"The tool said: {marker}"]
