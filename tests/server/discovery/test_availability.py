"""Unavailable agents are listed with the reason, and come back without a restart."""

import hashlib

from openclaw_a2a.agents.echo import EchoAgent

REASON = "OpenClaw at ws://127.0.0.1:1 cannot be reached; start its gateway: openclaw gateway run."
HELPER = {"channels.a2a.accounts.helper": {"defaultAgentId": "helper"}}


async def test_an_unavailable_agent_is_listed_with_the_reason_until_it_is_back(
    open_gateway, moody
) -> None:
    served = await open_gateway({"main": moody, "helper": EchoAgent()}, settings=HELPER)
    states = (await served.get("/agents"))["states"]
    assert [(one["account"], one["agent"], one["available"]) for one in states] == [
        ("default", "main", True),
        ("helper", "helper", True),
    ]
    moody.reason = REASON
    ready = await served.get("/readyz")
    assert ready["ready"] is True
    assert ready["agents"][0]["available"] is False
    assert ready["agents"][0]["reason"] == REASON
    assert (await served.get("/agents"))["states"] == ready["agents"]
    assert ready["agents"][1]["available"] is True
    moody.reason = None
    assert (await served.get("/readyz"))["agents"][0]["available"] is True


async def test_where_tokens_are_needed_the_reason_is_not_public(open_gateway, moody) -> None:
    digest = hashlib.sha256(b"a-token-of-alice").hexdigest()
    peers = {"channels.a2a.security.peers.alice": {"tokens": [f"sha256:{digest}"]}}
    served = await open_gateway({"main": moody}, settings=peers)
    moody.reason = REASON
    (state,) = (await served.get("/agents"))["states"]
    assert state["available"] is False
    assert "127.0.0.1" not in state["reason"]
    assert served.gateway.availability.unavailable_reasons() == (REASON,)


async def test_the_cards_of_all_agents_are_listed(open_gateway, moody, profile) -> None:
    served = await open_gateway({"main": moody, "helper": EchoAgent()}, settings=HELPER)
    moody.words = profile("Samantha")
    listed = await served.get("/agents")
    assert [card["name"] for card in listed["agents"]] == ["Samantha", "helper"]
    assert [state["name"] for state in listed["states"]] == ["Samantha", "helper"]
    assert "url" not in listed["agents"][0]
