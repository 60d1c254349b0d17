"""Two OpenClaws with sessions of the same key: an outcome goes to the one that called."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.calls.call_gateway import (
    CallGateway,
    Json,
    ScriptedAgent,
    SessionHost,
    call_gateway_in,
    main_session,
)

from openclaw_a2a.model.ids import SessionKey

MAIN = main_session("main")


class MainAgent(ScriptedAgent):
    """An agent of ours that is called `main` inside its host, as most are."""

    def owns_session(self, session_key: SessionKey) -> bool:
        return session_key.startswith("agent:main:")


class TwoHosts:
    """A gateway with one agent in each of two hosts."""

    def __init__(self, gateway: CallGateway) -> None:
        self.gateway = gateway
        self.first, self.second = SessionHost("first"), SessionHost("second")
        gateway.agents = {
            "a": MainAgent(self.first, "a"),
            "b": ScriptedAgent(self.first, "b"),
            "c": MainAgent(self.second, "c"),
        }

    async def call(self, session: str = MAIN, **more: Json) -> Json:
        """A session in one of the hosts calls agent b."""
        arguments = {"agent": "b", "skill": "work", "input": {}, **more}
        client = self.gateway.client("main", session)
        return await self.gateway.call_tool(client, "agent_call", arguments)


@pytest.fixture
async def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TwoHosts]:
    monkeypatch.chdir(tmp_path)
    async with call_gateway_in(tmp_path) as gateway:
        two = TwoHosts(gateway)
        await gateway.open()
        yield two


@pytest.mark.parametrize("caller", ["first", "second"])
async def test_an_outcome_goes_to_the_host_whose_session_called(
    hosts: TwoHosts, caller: str
) -> None:
    right, wrong = hosts.first, hosts.second
    if caller == "second":
        right, wrong = wrong, right
    right.active.add(MAIN)
    call = await hosts.call()
    [message] = await right.wait_messages(MAIN)
    assert message["correlationId"] == call["correlationId"]
    assert wrong.attempts == []


@pytest.mark.parametrize(("host", "agent_id"), [("first", "a"), ("second", "c")])
async def test_a_caller_is_the_agent_of_the_host_whose_session_called(
    hosts: TwoHosts, host: str, agent_id: str
) -> None:
    active = hosts.first if host == "first" else hosts.second
    active.active.add(MAIN)
    call = await hosts.call(wait=True)
    assert (await hosts.gateway.describe(call))["caller"] == agent_id
    assert hosts.gateway.agents["b"].turns[0].provenance.chain == (agent_id,)


async def test_an_outcome_is_not_discarded_because_the_other_host_has_no_such_session(
    hosts: TwoHosts,
) -> None:
    session = "agent:other:chat"  # of an agent that this gateway does not serve
    hosts.first.gone.add(session)
    await hosts.call(session)
    assert len(await hosts.second.wait_messages(session)) == 1
    assert hosts.first.attempts == []


async def test_an_outcome_waits_for_its_own_host_and_survives_a_restart(hosts: TwoHosts) -> None:
    hosts.second.active.add(MAIN)
    hosts.second.refuses_messages = True
    call = await hosts.call()
    await hosts.second.wait_until(lambda: bool(hosts.second.attempts))
    hosts.second.active.clear()
    await hosts.gateway.close()
    hosts.second.refuses_messages = False
    await hosts.gateway.open()
    [message] = await hosts.second.wait_messages(MAIN)
    assert message["correlationId"] == call["correlationId"]
    assert hosts.first.attempts == []


async def test_an_outcome_that_could_go_to_either_host_goes_to_none_and_can_be_polled(
    hosts: TwoHosts,
) -> None:
    call = await hosts.call()  # the session is in both, and neither says that it is active
    described: Json = {}
    while "delivery" not in described:
        described = await hosts.gateway.describe(call)
    assert "exists in first and second" in described["delivery"]["reason"]
    assert hosts.first.attempts == hosts.second.attempts == []
    polled = await hosts.gateway.call_tool(
        hosts.gateway.client("main", MAIN),
        "agent_poll",
        {"correlationId": call["correlationId"]},
    )
    assert polled["output"] == "done"


async def test_a_session_is_not_guessed_while_one_host_does_not_answer(hosts: TwoHosts) -> None:
    hosts.second.is_unavailable = True
    call = await hosts.call()
    described: Json = {}
    while "delivery" not in described:
        described = await hosts.gateway.describe(call)
    assert "second is not reachable" in described["delivery"]["reason"]
    assert hosts.first.attempts == []


async def test_a_session_that_no_host_has_discards_its_outcome(hosts: TwoHosts) -> None:
    for host in (hosts.first, hosts.second):
        host.gone.add(MAIN)
    call = await hosts.call()
    described = await hosts.gateway.describe(call)
    while described["status"] != "discarded":
        described = await hosts.gateway.describe(call)
    assert MAIN in json.dumps(described["reason"])
