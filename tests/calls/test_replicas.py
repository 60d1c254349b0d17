"""Calls between agents where several gateways share one database: still one outcome each."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest
from tests.calls.call_gateway import (
    CallGateway,
    HeldAnswer,
    ScriptedAgent,
    SessionHost,
    answers,
    main_session,
)
from tests.calls.unreliable_store import UnreliableStore
from tests.captured_logs import capture_logs
from tests.conformance.asgi_client import TIMEOUT_S
from tests.postgres_server import PostgresServer
from tests.replicas.cluster import repeat_until

from openclaw_a2a.model.call import CALL_KIND
from openclaw_a2a.model.errors import StoreUnavailable
from openclaw_a2a.store import create_store
from openclaw_a2a.store.rules import Lease

Json = Any
A = main_session("a")

StartReplica = Callable[..., Any]


class Replica(CallGateway):
    """One gateway of several; the host of the sessions is the same for all."""

    def pause(self) -> None:
        """Let the lease run out with the next write, as in a process that is stopped."""
        assert self.running is not None
        [engine] = self.running.engines.values()
        link = engine.store.link  # type: ignore[attr-defined]
        link.lease_time = -link.lease_time

    @property
    def store(self) -> Json:
        """The store as this replica has it."""
        assert self.running is not None
        [engine] = self.running.engines.values()
        return engine.store

    async def is_taken_for_dead(self) -> None:
        """Wait until others have taken its work, and let it go on under a new id."""
        before = self.store.link.name
        self.pause()

        async def has_new_id() -> bool:
            await self._write()
            return self.store.link.name != before

        assert await repeat_until(has_new_id, deadline_s=TIMEOUT_S)
        self.pause()  # the other way round

        async def is_alive() -> bool:
            await self._write()
            replicas = await self.store.replicas.list_replicas()
            return self.store.link.name in [one.id for one in replicas]

        assert await repeat_until(is_alive, deadline_s=TIMEOUT_S)

    async def _write(self) -> None:
        with suppress(StoreUnavailable):  # it learns from this that it was taken for dead
            await self.store.replicas.renew(runs=0, streams=0)

    async def list_calls(self) -> list[Json]:
        """What the operator sees at this replica."""
        return (await self.operator_client().get("/operator/calls")).json["calls"]


class AgentWithoutSessions(ScriptedAgent):
    """An agent into whose sessions nothing can be put: it is no `SessionInbox`."""

    deliver = None  # type: ignore[assignment]


@pytest.fixture
def host() -> SessionHost:
    """The host of all sessions, which never stops."""
    return SessionHost()


@pytest.fixture
async def start_replica(
    postgres: PostgresServer, tmp_path: Path, host: SessionHost
) -> AsyncIterator[StartReplica]:
    """Start one more gateway on the database: `await start_replica("left")`."""
    async with postgres.borrow_schema() as schema, AsyncExitStack() as running:

        async def start(
            name: str,
            at: SessionHost | None = None,
            kind: type[ScriptedAgent] = ScriptedAgent,
            *,
            is_unreliable: bool = False,
            **settings: Json,
        ) -> Replica:
            replica = Replica(tmp_path / name, "postgres")
            store = None
            if is_unreliable:
                lease = Lease(20, name)
                store = UnreliableStore(
                    create_store(
                        "postgres", path=None, url=postgres.url(), schema=schema, lease=lease
                    )
                )
            replica.host = at or host
            replica.agents = {one: kind(replica.host, one) for one in "abcd"}
            running.push_async_callback(replica.close)
            await replica.open(
                {
                    "store.url": postgres.url(),
                    "store.schema": schema,
                    "store.connections": 4,
                    "store.replicas": True,
                    "store.replicaName": name,
                    "lease.seconds": 20,  # a busy machine is not dead
                    **{key.replace("__", "."): value for key, value in settings.items()},
                },
                store=store,
            )
            return replica

        yield start


AT_LEFT: dict[str, Json] = {"agents__b__adapter": "echo", "agents__b__replicas": ["left"]}
"""Settings with which the agent `b` is at the replica `left` only."""


def hold(*replicas: Replica, agent: str = "b") -> HeldAnswer:
    """One answer for an agent at all replicas, when the test lets it go."""
    held = HeldAnswer()
    for one in replicas:
        one.agents[agent].answer = held
    return held


def asked(*replicas: Replica, agent: str = "b") -> int:
    """How often an agent was asked at these replicas."""
    return sum(len(one.agents[agent].invocations) for one in replicas)


async def is_asked(replica: Replica, agent: str = "b") -> None:
    """Wait until an agent is asked at this replica."""
    assert await repeat_until(lambda: _is_asked(replica, agent), deadline_s=TIMEOUT_S)


async def _is_asked(replica: Replica, agent: str) -> bool:
    return asked(replica, agent=agent) > 0


async def other_call_arrives(replica: Replica, count: int) -> None:
    """What was to be sent to the session before has arrived when this has."""
    replica.agents["d"].answer = answers("after all")
    await replica.call("a", "d")
    await replica.host.wait_messages(A, count)


async def is_polled(replica: Replica, call: Json, status: str) -> Json:
    """Poll a call at a replica until it has a status."""
    return await replica.poll("a", call, lambda polled: polled["status"] == status)


async def is_described(replica: Replica, call: Json, until: Callable[[Json], bool]) -> None:
    """Wait until the operator sees something of a call, which claims no outcome."""

    async def is_seen() -> bool:
        return until(await replica.describe(call))

    assert await repeat_until(is_seen, deadline_s=TIMEOUT_S)


# -------------------------------------------------------------------- any replica


async def test_a_call_is_polled_and_listed_at_every_replica(start_replica: StartReplica) -> None:
    left, right = await start_replica("left"), await start_replica("right")
    held = hold(left)
    call = await left.call("a", "b")
    await held.asked.wait()
    assert (await right.poll("a", call))["status"] == "working"
    by_task = await right.call_tool(right.client("a"), "agent_poll", {"taskId": call["taskId"]})
    assert by_task["correlationId"] == call["correlationId"]
    [shown] = await right.list_calls()
    assert (shown["correlationId"], shown["status"]) == (call["correlationId"], "pending")
    held.go.set()
    await left.host.wait_messages(A)
    assert (await is_polled(right, call, "completed"))["output"] == "at last"
    assert (await right.describe(call))["status"] == "completed"
    assert (await right.poll("c", call))["status"] == "error", "a call of another caller"


async def test_an_outcome_that_was_polled_at_another_replica_is_not_sent(
    start_replica: StartReplica, host: SessionHost
) -> None:
    left, right = await start_replica("left"), await start_replica("right")
    host.is_unavailable = True
    call = await left.call("a", "b")
    await host.wait_until(lambda: bool(host.attempts))
    # While an attempt is under way the poll does not claim it: the message may arrive.
    async with asyncio.timeout(TIMEOUT_S):
        while "seen" not in (await is_polled(right, call, "completed"))["times"]:
            pass
    host.is_unavailable = False
    await other_call_arrives(right, 1)
    await other_call_arrives(left, 2)  # and nothing of the first call before it
    assert {one["output"] for one in host.messages(A)} == {"after all"}


async def test_an_outcome_on_its_way_is_not_claimed_by_a_poll_at_another_replica(
    start_replica: StartReplica, host: SessionHost
) -> None:
    left, right = await start_replica("left"), await start_replica("right")
    host.slow = A
    call = await left.call("a", "b")
    await host.wait_messages(A)
    polled = await is_polled(right, call, "completed")
    assert "seen" not in polled["times"]
    host.go.set()
    await right.poll("a", call, lambda one: "seen" in one["times"])
    assert len(host.attempts) == 1


async def test_a_caller_waits_at_one_replica_for_a_callee_at_another(
    start_replica: StartReplica, host: SessionHost
) -> None:
    left, right = await start_replica("left"), await start_replica("right")
    held = hold(right)
    first = await right.call("c", "b", session="main")
    await held.asked.wait()
    waiting = asyncio.create_task(left.call("a", "b", session="main", wait=True))

    async def is_accepted() -> bool:
        return len(await right.list_calls()) == 2

    # Before the first call ends, or the session would not be in use any more.
    assert await repeat_until(is_accepted, deadline_s=TIMEOUT_S)
    held.go.set()
    result = await asyncio.wait_for(waiting, TIMEOUT_S)
    assert (result["status"], result["output"]) == ("completed", "at last")
    assert asked(right) == 2, "the session is in use at the second replica"
    assert asked(left) == 0
    await host.wait_messages(main_session("c"))
    await other_call_arrives(left, 1)
    assert first["correlationId"] != result["correlationId"]


@pytest.mark.parametrize("tool", ["agent_call", "agent_call_batch"])
async def test_a_result_that_was_stored_although_the_link_gave_up_is_not_sent_as_well(
    start_replica: StartReplica, tool: str
) -> None:
    replica = await start_replica("left", is_unreliable=True)
    held = hold(replica)
    call: Json = {"agent": "b", "skill": "work", "input": {}, "timeout": 240_000}
    arguments = {**call, "wait": True} if tool == "agent_call" else {"calls": [call]}
    waiting = asyncio.create_task(replica.call_tool(replica.client("a"), tool, arguments))
    await is_asked(replica)
    store = replica.store
    store.makes_refused, store.failing = True, ("update_record",)
    held.go.set()
    assert await repeat_until(lambda: _was_refused(store, "update_record"), deadline_s=TIMEOUT_S)
    store.failing = ()
    result = await waiting
    [result] = result.get("results", [result])
    assert result["status"] == "completed"
    await is_described(replica, result, lambda known: "seen" in known["times"])
    assert (await replica.describe(result))["route"] == "waited"
    assert replica.host.attempts == []


async def _was_refused(store: UnreliableStore, write: str) -> bool:
    return write in store.refused


async def test_the_chain_of_a_run_at_another_replica_is_known(start_replica: StartReplica) -> None:
    left, right = await start_replica("left"), await start_replica("right")
    held = hold(left)
    call = await left.call("a", "b")
    await held.asked.wait()
    callee = f"agent:b:call:{call['correlationId']}"
    back = {"agent": "a", "skill": "work", "input": {}}
    refused = await right.call_tool(right.client("b", callee), "agent_call", back)
    assert "loop" in refused["error"]
    held.go.set()


class RenamedAgent(ScriptedAgent):
    """An agent that its host has under another name."""

    def owns_session(self, session_key: Any) -> bool:
        return session_key.startswith(f"agent:x:via-{self._name}:")

    def host_session_key(self, session_key: Any) -> Any:
        _, name, rest = session_key.split(":", 2)
        return f"agent:x:via-{name}:{rest}"


async def test_the_chain_of_a_run_is_known_at_a_replica_without_its_agent(
    start_replica: StartReplica,
) -> None:
    """Also where the host has the agent under another name."""
    left = await start_replica("left", kind=RenamedAgent, **AT_LEFT)
    right = await start_replica("right", kind=AgentWithoutSessions, **AT_LEFT)
    held = hold(left)
    call = await left.call("a", "b")
    await asyncio.wait_for(held.asked.wait(), TIMEOUT_S)
    callee = f"agent:x:via-b:call:{call['correlationId']}"
    for target, reason in (("a", "loop: a is in the chain of calls"), ("b", "self-call")):
        back = {"agent": target, "skill": "work", "input": {}}
        refused = await right.call_tool(right.client("x", callee), "agent_call", back)
        assert reason in refused["error"]
    held.go.set()


async def test_answers_that_another_replica_delivered_count_against_loops(
    start_replica: StartReplica, host: SessionHost
) -> None:
    rules = {"tools__agentToAgent__maxPingPongTurns": 0}
    left, right = await start_replica("left", **rules), await start_replica("right", **rules)
    host.processed.clear()  # the session works on what it gets
    await left.call("a", "b")
    await host.wait_messages(A)
    again = await right.call("a", "b")
    assert "in answer to answers" in again["error"]
    host.processed.set()


# -------------------------------------------------------------------- run places

ONE_PLACE: dict[str, Json] = {"limits__runs": 1, **AT_LEFT}


async def run_agent(replica: Replica, agent: str) -> tuple[str, HeldAnswer]:
    """Have an agent work at a replica; the session of its run, and what lets it end."""
    held = hold(replica, agent=agent)
    call = await replica.call("c", agent)
    await asyncio.wait_for(held.asked.wait(), TIMEOUT_S)
    return f"agent:{agent}:call:{call['correlationId']}", held


def used_places(replica: Replica) -> int:
    """How many run places are taken."""
    assert replica.running is not None
    [engine] = replica.running.engines.values()
    return engine.queues.running


async def has_used_places(replica: Replica, count: int) -> bool:
    async def is_so() -> bool:
        return used_places(replica) == count

    return await repeat_until(is_so, deadline_s=TIMEOUT_S)


@pytest.mark.parametrize("tool", ["agent_call", "agent_call_batch", "debate_call"])
async def test_who_waits_at_one_replica_has_no_run_place_at_another(
    start_replica: StartReplica, tool: str
) -> None:
    """The agent it waits for needs the only one."""
    left = await start_replica("left", **ONE_PLACE)
    right = await start_replica("right", **ONE_PLACE)
    session, held = await run_agent(left, "a")
    call = {"agent": "b", "skill": "work", "input": {}, "timeout": 240_000}
    arguments: Json = {**call, "wait": True}
    if tool == "agent_call_batch":
        arguments = {"calls": [call, call]}
    if tool == "debate_call":
        arguments = {
            "topic": "tides",
            "proposer": {"agent": "b", "skill": "plan"},
            "critics": [{"agent": "d"}],
            "resolver": {"agent": "b", "skill": "decide"},
            "input": {},
            "rounds": 1,
            "wait": True,
            "timeout": 240_000,
        }
    client = right.client("a", session)
    result = await asyncio.wait_for(right.call_tool(client, tool, arguments), TIMEOUT_S)
    assert asked(left) >= 1, result
    assert asked(right) == 0
    assert "timeout" not in json.dumps(result)
    # It has its place again, and only one.
    assert await has_used_places(left, 1)
    held.go.set()
    assert await has_used_places(left, 0)


async def test_a_run_place_comes_back_when_the_replica_that_waits_is_gone(
    start_replica: StartReplica,
) -> None:
    left = await start_replica("left", **ONE_PLACE)
    right = await start_replica("right", **ONE_PLACE)
    session, held = await run_agent(left, "a")
    working = hold(left)
    waiting = asyncio.create_task(
        right.call_tool(
            right.client("a", session),
            "agent_call",
            {"agent": "b", "skill": "work", "input": {}, "wait": True, "timeout": 240_000},
        )
    )
    await asyncio.wait_for(working.asked.wait(), TIMEOUT_S)
    assert used_places(left) == 1, "the one of the callee"
    # As in a process that is killed: nobody says that it does not wait any more.
    [job] = [one for one in asyncio.all_tasks() if one.get_name() == "keep-slot-released"]
    job.cancel()
    # Past the limit, as whoever goes on is never stopped; not in vain, and not twice.
    assert await has_used_places(left, 2)
    working.go.set()
    await asyncio.wait_for(waiting, TIMEOUT_S)
    assert await has_used_places(left, 1)
    held.go.set()
    assert await has_used_places(left, 0)


async def test_a_call_waits_for_a_replica_that_has_its_callee(start_replica: StartReplica) -> None:
    queued = {**AT_LEFT, "agents__b__whenNoReplica": "queue"}
    right = await start_replica("right", **queued)
    call = await right.call("a", "b", session="main", timeout=240_000)
    assert call["status"] == "pending"
    waiting = asyncio.create_task(right.call("c", "b", wait=True, timeout=240_000))
    await other_call_arrives(right, 1)
    left = await start_replica("left", **queued)
    result = await asyncio.wait_for(waiting, TIMEOUT_S)
    assert result["status"] == "completed"
    await is_polled(right, call, "completed")
    assert (asked(left), asked(right)) == (2, 0)


# -------------------------------------------------------------------- replicas that die


async def test_a_call_of_a_replica_that_is_gone_has_its_outcome(
    start_replica: StartReplica, host: SessionHost
) -> None:
    left, right = await start_replica("left"), await start_replica("right")
    held = hold(left, right)
    call = await left.call("a", "b")
    await held.asked.wait()
    left.pause()
    await is_asked(right)
    held.go.set()
    [outcome] = await host.wait_messages(A)
    assert (outcome["correlationId"], outcome["output"]) == (call["correlationId"], "at last")
    await other_call_arrives(right, 2)
    assert len(host.accepted) == 2


async def test_the_outcome_that_a_replica_could_not_deliver_is_delivered_by_another(
    start_replica: StartReplica, host: SessionHost
) -> None:
    left, right = await start_replica("left"), await start_replica("right")
    host.is_unavailable = True
    call = await left.call("a", "b")
    await host.wait_until(lambda: bool(host.attempts))
    await left.close()  # it hands over
    host.is_unavailable = False
    [outcome] = await host.wait_messages(A)
    assert outcome["correlationId"] == call["correlationId"]
    await other_call_arrives(right, 2)
    assert len(host.accepted) == 2
    assert not host.attempts[-2].is_first_attempt


async def test_a_caller_that_waits_at_a_replica_taken_for_dead_gets_its_outcome_later(
    start_replica: StartReplica, host: SessionHost
) -> None:
    left, right = await start_replica("left"), await start_replica("right")
    held = hold(left, right)
    waiting = asyncio.create_task(left.call("a", "b", wait=True))
    await held.asked.wait()
    left.pause()
    result = await asyncio.wait_for(waiting, TIMEOUT_S)
    assert result["status"] == "pending"
    held.go.set()
    [outcome] = await host.wait_messages(A)
    assert outcome["correlationId"] == result["correlationId"]
    await other_call_arrives(right, 2)
    assert len(host.accepted) == 2


async def test_a_deadline_passes_while_the_replica_of_its_call_is_gone(
    start_replica: StartReplica, host: SessionHost
) -> None:
    left, right = await start_replica("left"), await start_replica("right")
    held = hold(left, right)
    call = await left.call("a", "b", timeoutSeconds=1)
    await held.asked.wait()
    left.pause()
    [outcome] = await host.wait_messages(A)
    assert (outcome["kind"], outcome["correlationId"]) == ("skill_timeout", call["correlationId"])
    await other_call_arrives(right, 2)
    assert len(host.accepted) == 2
    held.go.set()


async def test_a_replica_that_pauses_while_it_sends_delivers_nothing_twice(
    start_replica: StartReplica, host: SessionHost
) -> None:
    left, right = await start_replica("left"), await start_replica("right")
    host.slow = A
    call = await left.call("a", "b")
    await host.wait_messages(A)  # the host has it, and has not said so yet
    left.pause()
    await host.wait_until(lambda: len(host.attempts) == 2)  # the one that has taken over
    host.go.set()
    await is_polled(right, call, "completed")
    await other_call_arrives(right, 2)
    assert len(host.accepted) == 2
    assert not host.attempts[1].is_first_attempt


async def test_a_receipt_is_followed_by_the_replica_that_takes_over(
    start_replica: StartReplica, host: SessionHost
) -> None:
    left, right = await start_replica("left"), await start_replica("right")
    host.processed.clear()
    call = await left.call("a", "b")
    await is_described(right, call, lambda one: "delivered" in one["times"])
    await left.close()
    host.accepted.clear()  # the host restarted, and lost it
    host.processed.set()
    [outcome] = await host.wait_messages(A)
    assert outcome["correlationId"] == call["correlationId"]


async def test_a_debate_goes_on_at_another_replica_without_asking_again(
    start_replica: StartReplica, host: SessionHost
) -> None:
    left, right = await start_replica("left"), await start_replica("right")
    for one in (left, right):
        one.agents["b"].answer = answers(json.dumps({"output": "plan", "confidence": 0.5}))
        one.agents["d"].answer = answers(json.dumps({"output": "so be it", "confidence": 0.9}))
    held = hold(left, right, agent="c")
    debate = {
        "topic": "tides",
        "proposer": {"agent": "b", "skill": "plan"},
        "critics": [{"agent": "c"}],
        "resolver": {"agent": "d", "skill": "decide"},
        "input": {},
        "rounds": 1,
        "minConfidence": 0.4,
        "wait": False,
    }
    call = await left.call_tool(left.client("a"), "debate_call", debate)
    await held.asked.wait()
    left.pause()
    await is_asked(right, agent="c")
    held.go.set()
    [outcome] = await host.wait_messages(A)
    assert outcome["correlationId"] == call["correlationId"]
    assert outcome["output"]["conclusion"] == "so be it"
    assert asked(left, right, agent="b") == 1, "a step that was answered is not asked again"
    parts = (await right.describe(call))["parts"]
    assert {one["agent"] for one in parts} == {"b", "c", "d"}


# -------------------------------------------------------------------- hosts


async def test_an_outcome_waits_for_a_replica_that_reaches_the_session(
    start_replica: StartReplica, host: SessionHost
) -> None:
    left = await start_replica("left")
    elsewhere = await start_replica("right", at=SessionHost("another host"))
    held = hold(left, elsewhere)
    call = await left.call("a", "b")
    await held.asked.wait()
    left.pause()
    await is_asked(elsewhere)
    held.go.set()
    await is_described(elsewhere, call, lambda one: one["status"] != "pending")
    assert not elsewhere.host.attempts, "the session is not in this host"
    third = await start_replica("third")
    [outcome] = await host.wait_messages(A)
    assert outcome["correlationId"] == call["correlationId"]
    assert third.host is host


async def test_an_outcome_that_no_replica_can_deliver_is_retried_where_it_is(
    start_replica: StartReplica, host: SessionHost
) -> None:
    left = await start_replica("left")
    others = [await start_replica(one, at=SessionHost(one)) for one in ("second", "third")]
    held = hold(left, *others)
    call = await left.call("a", "b")
    await held.asked.wait()
    await left.close()
    held.go.set()
    with capture_logs() as logs:

        async def has_failed_twice() -> bool:
            deliveries = others[0].store.deliveries
            [delivery] = await deliveries.list_task_deliveries(None, call["taskId"])
            return delivery.attempts > 1 or any(one["event"] == "calls.passed_on" for one in logs)

        assert await repeat_until(has_failed_twice, deadline_s=TIMEOUT_S)
    assert not [one for one in logs if one["event"] == "calls.passed_on"]
    assert not any(one.host.attempts for one in others), "the session is in neither host"
    await start_replica("fourth")
    [outcome] = await host.wait_messages(A)
    assert outcome["correlationId"] == call["correlationId"]
    listed = (await others[0].operator_client().get("/operator/replicas")).json["replicas"]
    assert {tuple(one["agents"]) for one in listed} == {tuple("abcd")}


async def test_a_session_gets_what_it_called_at_a_replica_without_session_hosts(
    start_replica: StartReplica, host: SessionHost
) -> None:
    await start_replica("left")
    right = await start_replica("right", kind=AgentWithoutSessions)
    call = await right.call("a", "b")
    [outcome] = await host.wait_messages(A)
    assert outcome["correlationId"] == call["correlationId"]


async def test_a_session_whose_host_cannot_be_told_gets_no_outcome_of_another(
    start_replica: StartReplica, host: SessionHost
) -> None:
    await start_replica("left")
    other = await start_replica("other", at=SessionHost("another host"))
    right = await start_replica("right", kind=AgentWithoutSessions)
    call = await right.call("a", "b")

    async def has_failed() -> bool:
        [delivery] = await right.store.deliveries.list_task_deliveries(None, call["taskId"])
        return delivery.attempts > 0

    assert await repeat_until(has_failed, deadline_s=TIMEOUT_S)
    assert not host.attempts
    assert not other.host.attempts
    assert (await is_polled(right, call, "completed"))["output"] == "done"


async def test_an_outcome_that_was_offered_is_not_lost_at_a_replica_without_session_hosts(
    start_replica: StartReplica, host: SessionHost
) -> None:
    left = await start_replica("left")
    right = await start_replica("right", kind=AgentWithoutSessions)
    held = hold(left, right, agent="c")
    calls = [{"agent": one, "skill": "work", "input": {}} for one in "bc"]
    batch = asyncio.create_task(
        left.call_tool(left.client("a"), "agent_call_batch", {"calls": calls})
    )
    await held.asked.wait()

    async def is_offered() -> bool:
        return "completed" in [one["status"] for one in await right.list_calls()]

    assert await repeat_until(is_offered, deadline_s=TIMEOUT_S)
    left.pause()
    await asyncio.wait_for(batch, TIMEOUT_S)
    await is_asked(right, agent="c")
    await start_replica("third")
    held.go.set()
    outcomes = await host.wait_messages(A, 2)
    assert {one["output"] for one in outcomes} == {"done", "at last"}


# -------------------------------------------------------------------- one driver


async def test_a_replica_that_was_taken_for_dead_during_a_hand_off_does_not_send_the_outcome(
    start_replica: StartReplica, host: SessionHost, postgres: PostgresServer
) -> None:
    # They look for work of others so seldom that the second one takes the delivery, when told.
    left = await start_replica("left", lease__seconds=600)
    right = await start_replica("right", lease__seconds=600)
    held = hold(left, right)
    host.slow = A
    assert left.running is not None
    assert right.running is not None
    [taking] = right.running.engines.values()
    replication = taking.replication
    assert replication is not None
    path = {"search_path": left.running.settings.store.schema}
    connection = await asyncpg.connect(postgres.url(), server_settings=path)
    try:
        # A third one has the session, and answers no request.
        await connection.execute(
            "INSERT INTO writer (name, batch, instance, host, pid, lease_until)"
            " VALUES ('silent', 0, '', '', 0, now() + interval '1 hour')"
        )
        await connection.execute(
            "INSERT INTO session (key, owner, number) VALUES ('agent:b:main', 'silent', -7)"
        )
        calling = asyncio.create_task(left.call("a", "b", session="main"))

        async def is_handed_off() -> bool:
            return bool(await connection.fetchval("SELECT count(*) FROM handoff"))

        assert await repeat_until(is_handed_off, deadline_s=TIMEOUT_S)
        await left.is_taken_for_dead()
        await connection.execute("DELETE FROM session WHERE owner = 'silent'")
        await connection.execute("UPDATE handoff SET receiver = $1", right.store.link.name)
        call = await asyncio.wait_for(calling, TIMEOUT_S)

        async def is_taken_over() -> bool:
            await replication.take_over()
            owner = await connection.fetchval("SELECT owner FROM delivery")
            return owner == right.store.link.name

        assert await repeat_until(is_taken_over, deadline_s=TIMEOUT_S)
    finally:
        await connection.close()
    await is_asked(right)
    [engine] = left.running.engines.values()
    assert call["taskId"] not in engine.wakeups.subscribed, "it follows the task of this call"
    held.go.set()
    await host.wait_messages(A)
    # The first one does all that it has to do for the end of the task before it does this.
    await is_described(left, call, lambda one: one["status"] == "completed")
    left.agents["d"].answer = answers("after all")
    await left.call("c", "d")
    await host.wait_messages(main_session("c"))
    assert [one.id for one in host.attempts].count(call["correlationId"]) == 1
    host.go.set()


async def test_an_outcome_that_another_replica_is_sending_is_not_sent(
    start_replica: StartReplica, host: SessionHost
) -> None:
    left, right = await start_replica("left"), await start_replica("right")
    held = hold(left)
    call = await left.call("a", "b")
    await held.asked.wait()
    records = right.store.records
    record = await records.read_record(CALL_KIND, call["correlationId"])
    body = json.loads(record.body)
    now = body["acceptedAt"]
    body |= {"status": "completed", "settledAt": now, "sendingAt": now, "version": 1}
    assert await records.update_record(
        msgspec.structs.replace(record, body=json.dumps(body).encode(), version=1)
    )
    held.go.set()
    left.agents["d"].answer = answers("after all")
    await left.call("c", "d")
    await host.wait_messages(main_session("c"))
    assert call["correlationId"] not in [one.id for one in host.attempts]
    stored = await records.read_record(CALL_KIND, call["correlationId"])
    assert json.loads(stored.body)["sendingAt"] == now
