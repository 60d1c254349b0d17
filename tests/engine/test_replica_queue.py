"""Messages for an agent that no running gateway has wait for one, where the settings say so."""

import asyncio
import json
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.conformance.asgi_client import Response
from tests.conformance.conftest import peers
from tests.engine.controlled_agent import TIMEOUT_S, ControlledAgent
from tests.engine.test_replica_limits import decide, operator, state_of
from tests.engine.test_replication import (
    Replica,
    StartReplica,
    count_requests,
    next_run,
    start_replica,
    text_of,
)
from tests.postgres_server import PostgresServer
from tests.replicas.cluster import repeat_until

from openclaw_a2a.model.agent_event import InputRequired, Reply
from openclaw_a2a.model.errors import SettingsInvalid
from openclaw_a2a.model.ids import AgentId
from openclaw_a2a.ports import Recovery
from openclaw_a2a.settings import load_settings

__all__ = ["start_replica"]

Json = Any

SUBMITTED, CANCELED = "TASK_STATE_SUBMITTED", "TASK_STATE_CANCELED"
COMPLETED = "TASK_STATE_COMPLETED"


def placed(name: str, *having: str) -> dict[str, Json]:
    """Settings of a replica with this name, where the agent is at these only (default: `home`)."""
    return {
        "store.replicaName": name,
        "agents.main.replicas": list(having or ("home",)),
        "agents.main.whenNoReplica": "queue",
    }


def reason_of(task: Json) -> str:
    """What the status of a task says."""
    return "".join(part["text"] for part in task["status"].get("message", {}).get("parts", []))


async def get(replica: Replica, task: Json) -> Json:
    return (await replica.call("GetTask", {"id": task["id"]}))["result"]


def message_for(text: str) -> Json:
    message = {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]}
    return {"message": message, "configuration": {"returnImmediately": True}}


async def wait_for(replica: Replica, task: Json, state: str) -> Json:
    async def is_there() -> bool:
        return state_of(await get(replica, task)) == state

    assert await repeat_until(is_there, deadline_s=TIMEOUT_S)
    return await get(replica, task)


async def complete_next(replica: Replica, text: str) -> None:
    (await replica.agent.next_run(text)).end(Reply.of_text(f"{text} done"))


async def test_a_message_waits_with_its_reason_for_a_replica_that_has_its_agent(
    start_replica: StartReplica,
) -> None:
    a, b = await start_replica(**placed("left")), await start_replica(**placed("right"))
    task = await a.send("hello", blocking=False)
    assert state_of(task) == SUBMITTED
    for one in (a, b):
        found = await get(one, task)
        assert state_of(found) == SUBMITTED
        assert "main" in reason_of(found)
        assert "waits" in reason_of(found)
    home = await start_replica(**placed("home"))
    await complete_next(home, "hello")
    for one in (a, b, home):
        assert text_of(await wait_for(one, task, COMPLETED)) == "hello done"
    turns = [turn.body for one in (a, b, home) for turn in one.agent.turns]
    assert turns == ["hello"]


async def test_a_waiting_sender_and_a_stream_get_the_result_of_the_replica_that_came_later(
    start_replica: StartReplica,
) -> None:
    a = await start_replica(**placed("left"))
    blocking = asyncio.create_task(a.send("block"))
    message = {"messageId": "m-s", "role": "ROLE_USER", "parts": [{"text": "stream"}]}
    async with a.stream("SendStreamingMessage", {"message": message}) as next_event:
        assert reason_of((await next_event())["task"])
        home = await start_replica(**placed("home"))
        for _ in range(2):
            run = await home.agent.next_run()
            run.end(Reply.of_text(f"{run.turn.body} done"))
        states: list[str] = []
        while (event := await next_event()) is not None:
            if "statusUpdate" in event:
                states.append(state_of(event["statusUpdate"]))
    assert states[-1] == COMPLETED
    assert states.count(COMPLETED) == 1
    assert text_of(await blocking) == "block done"


async def test_messages_of_one_session_that_wait_at_several_replicas_keep_their_order(
    start_replica: StartReplica,
) -> None:
    a, b = await start_replica(**placed("left")), await start_replica(**placed("right"))
    sent = [
        await replica.send(str(number), blocking=False, contextId="c-1")
        for number, replica in enumerate((a, b, b, a, b))
    ]
    homes = [
        await start_replica(**{**placed(name, "home", "away"), "store.replicaName": name})
        for name in ("home", "away")
    ]
    for number in range(5):
        replica, run = await next_run(*homes)
        assert run.turn.body == str(number)
        if number == 2:  # whatever comes while they run is after them
            sent.append(await a.send("late", blocking=False, contextId="c-1"))
        assert all(one.agent.is_idle for one in homes if one is not replica)
        run.end(Reply.of_text("done"))
    _, run = await next_run(*homes)
    assert run.turn.body == "late"
    run.end(Reply.of_text("done"))
    for task in sent:
        await wait_for(b, task, COMPLETED)
    assert sum(len(one.agent.turns) for one in homes) == 6


class SlowPolicy:
    """Allows messages when the test says so."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_decide = asyncio.Event()

    async def check(self, *_: object, **__: object) -> None:
        self.asked += 1
        await self.may_decide.wait()


async def test_a_message_that_is_checked_while_its_session_goes_to_a_replica_follows_it(
    start_replica: StartReplica, postgres: PostgresServer
) -> None:
    """Else a second replica could run it beside the first."""
    others = ("north", "south")
    a = await start_replica(**placed("left", "home", *others))
    contexts = [f"c-{number}" for number in range(4)]
    for one in contexts:
        await a.send("first", blocking=False, contextId=one)
    policy = next(iter(a.gateway.engines.values())).policy = SlowPolicy()  # type: ignore[assignment]
    later = [asyncio.create_task(a.send("second", contextId=one)) for one in contexts]

    async def are_checked() -> bool:
        return policy.asked == len(contexts)

    assert await repeat_until(are_checked, deadline_s=TIMEOUT_S)
    home = await start_replica(**placed("home", "home", *others))
    runs = [await home.agent.next_run("first") for _ in contexts]
    away = [await start_replica(**placed(name, "home", *others)) for name in others]
    policy.may_decide.set()
    schema = a.gateway.settings.store.schema
    connection = await asyncpg.connect(postgres.url(), server_settings={"search_path": schema})

    async def are_there() -> bool:
        count = "SELECT count(*) FROM run WHERE owner = $1"
        return await connection.fetchval(count, home.name) == 2 * len(contexts)

    try:
        assert await repeat_until(are_there, deadline_s=TIMEOUT_S)
        # They were sent there, not left to whoever takes them: that raises the fence.
        fences = await connection.fetch("SELECT DISTINCT fence FROM run WHERE NOT is_started")
        assert [row[0] for row in fences] == [1]
    finally:
        await connection.close()
    for run in runs:
        run.end(Reply.of_text("done"))
    for _ in contexts:
        await complete_next(home, "second")
    for sending in later:
        assert text_of(await sending) == "second done"
    assert not any(one.agent.turns for one in away)
    assert policy.asked == len(contexts), "the policy decides once about each message"


async def test_a_message_that_comes_while_another_replica_checks_one_of_its_session_goes_there_once(
    start_replica: StartReplica,
) -> None:
    """The replica that checks has the session but not the agent, and the other one the agent."""
    a = await start_replica(**placed("left"))
    policy = next(iter(a.gateway.engines.values())).policy = SlowPolicy()  # type: ignore[assignment]
    first = asyncio.create_task(a.send("first", contextId="c-1"))

    async def is_checked() -> bool:
        return policy.asked == 1

    assert await repeat_until(is_checked, deadline_s=TIMEOUT_S)
    home = await start_replica(**placed("home"))
    connection = await a.link.address.connect()
    try:
        before = await count_requests(connection)
        second = asyncio.create_task(home.send("second", contextId="c-1"))

        async def is_handed_off() -> bool:
            return policy.asked == 2 or await count_requests(connection) > before + 1

        assert await repeat_until(is_handed_off, deadline_s=TIMEOUT_S)
        assert await count_requests(connection) == before + 1
    finally:
        await connection.close()
    policy.may_decide.set()
    for _ in range(2):
        run = await home.agent.next_run()
        run.end(Reply.of_text(f"{run.turn.body} done"))
    assert text_of(await first) == "first done"
    assert text_of(await second) == "second done"


async def test_messages_follow_a_session_that_went_to_a_replica_while_one_of_them_is_checked(
    start_replica: StartReplica,
) -> None:
    """At once, and to the replica that has it, although another one has the agent, too."""
    a = await start_replica(**placed("left", "home", "north"))
    await a.send("first", blocking=False, contextId="c-1")
    policy = next(iter(a.gateway.engines.values())).policy = SlowPolicy()  # type: ignore[assignment]
    second = asyncio.create_task(a.send("second", contextId="c-1"))

    async def is_checked() -> bool:
        return policy.asked == 1

    assert await repeat_until(is_checked, deadline_s=TIMEOUT_S)
    home = await start_replica(**placed("home", "home", "north"))
    run = await home.agent.next_run("first")
    north = await start_replica(**placed("north", "home", "north"))
    later = [await one.send("later", blocking=False, contextId="c-1") for one in (a, north, home)]
    assert policy.asked == 1
    policy.may_decide.set()
    run.end(Reply.of_text("done"))
    for _ in range(4):
        (await home.agent.next_run()).end(Reply.of_text("done"))
    assert text_of(await second) == "done"
    for task in later:
        await wait_for(a, task, COMPLETED)
    assert not north.agent.turns


async def test_a_waiting_message_is_canceled_at_any_replica(start_replica: StartReplica) -> None:
    a, b = await start_replica(**placed("left")), await start_replica(**placed("right"))
    tasks = [await a.send("hello", blocking=False) for _ in range(2)]
    for replica, task in zip((a, b), tasks, strict=True):
        canceled = (await replica.call("CancelTask", {"id": task["id"]}))["result"]
        assert state_of(canceled) == CANCELED
    home = await start_replica(**placed("home"))
    other = await a.send("other", blocking=False)
    await complete_next(home, "other")
    await wait_for(a, other, COMPLETED)
    assert [turn.body for turn in home.agent.turns] == ["other"]


async def test_a_cancellation_that_comes_while_a_replica_takes_the_message_counts_once(
    start_replica: StartReplica,
) -> None:
    a, b = await start_replica(**placed("left")), await start_replica(**placed("right"))
    tasks = [await a.send(f"{number}", blocking=False) for number in range(8)]
    starting = asyncio.create_task(start_replica(**placed("home")))
    await asyncio.sleep(0)
    answers = [await a.call("CancelTask", {"id": task["id"]}) for task in tasks[:2]]
    home = await starting
    answers += await asyncio.gather(
        *[
            one.call("CancelTask", {"id": task["id"]})
            for one, task in zip((a, b, home) * 2, tasks[2:], strict=True)
        ]
    )
    assert [state_of(one["result"]) if "result" in one else one for one in answers] == [
        CANCELED
    ] * 8

    async def are_over() -> bool:
        engines = [next(iter(one.gateway.engines.values())) for one in (a, b, home)]
        return not any(one.runs for one in engines)

    assert await repeat_until(are_over, deadline_s=TIMEOUT_S)


async def test_a_waiting_message_outlives_the_replica_that_accepted_it(
    start_replica: StartReplica,
) -> None:
    """Killed, stopped, and all of them at once."""
    settings: dict[str, Json] = {"lease_s": 3}
    a = await start_replica(**settings, **placed("left"))
    b = await start_replica(**settings, **placed("right"))
    first = await a.send("first", blocking=False, contextId="c-1")
    a.pause()  # and its next write lets its lease run out
    second = await b.send("second", blocking=False, contextId="c-1")
    assert (await get(b, second))["id"] == second["id"]
    await b.stop()
    await a.stop()
    c = await start_replica(**settings, **placed("third"))
    assert "waits" in reason_of(await get(c, first))
    await c.stop()
    home = await start_replica(**settings, **placed("home"))
    await complete_next(home, "first")
    await complete_next(home, "second")
    for task in (first, second):
        await wait_for(home, task, COMPLETED)
    assert len(home.agent.turns) == 2


async def test_work_that_its_only_replica_left_unstarted_waits_for_it_with_the_reason(
    start_replica: StartReplica,
) -> None:
    right = await start_replica(**placed("right"))
    home = await start_replica(Recovery.FAIL, **placed("home"))
    first = await right.send("first", blocking=False, contextId="c-1")
    await home.agent.next_run("first")
    second = await right.send("second", blocking=False, contextId="c-1")
    await home.stop()
    await wait_for(right, first, "TASK_STATE_FAILED")

    async def says_why() -> bool:
        return "waits" in reason_of(await get(right, second))

    assert await repeat_until(says_why, deadline_s=TIMEOUT_S)
    again = await start_replica(**placed("home"))
    await complete_next(again, "second")
    assert text_of(await wait_for(right, second, COMPLETED)) == "second done"


async def test_an_answer_to_a_pause_waits_for_the_agent_that_asked(
    start_replica: StartReplica,
) -> None:
    right, home = await start_replica(**placed("right")), await start_replica(**placed("home"))
    asking = asyncio.create_task(right.send("book"))
    (await home.agent.next_run("book")).end(InputRequired("when?"))
    task = await asking
    await home.stop()
    answered = await right.send("today", blocking=False, taskId=task["id"])
    assert state_of(answered) == SUBMITTED
    assert "waits" in reason_of(answered)
    again = await start_replica(**placed("home"))
    await complete_next(again, "today")
    assert text_of(await wait_for(right, task, COMPLETED)) == "today done"


class AskingAgent(ControlledAgent):
    """Knows which of its questions were ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[Json] = []

    async def cancel_pause(self, _: object, resume: Json) -> None:
        self.ended.append(resume)


async def test_an_answer_that_waits_for_its_agent_is_canceled_only_where_its_question_can_end(
    start_replica: StartReplica,
) -> None:
    right = await start_replica(agent=AskingAgent(), **placed("right"))
    home = await start_replica(agent=AskingAgent(), **placed("home"))
    asking = asyncio.create_task(right.send("book"))
    (await home.agent.next_run("book")).end(InputRequired("when?", resume="q-1"))
    task = await asking
    await home.stop()
    await right.send("today", blocking=False, taskId=task["id"])
    refused = (await right.call("CancelTask", {"id": task["id"]}))["error"]
    assert refused["data"][0]["metadata"]["code"] == "agent-unavailable"
    assert "agents.main.replicas" in refused["message"]
    assert state_of(await get(right, task)) == SUBMITTED
    again = await start_replica(agent=AskingAgent(), **placed("home"))
    await complete_next(again, "today")
    assert text_of(await wait_for(right, task, COMPLETED)) == "today done"
    assert right.agent.ended == again.agent.ended == []


async def test_a_follow_up_waits_with_the_message_that_waits(start_replica: StartReplica) -> None:
    a, b = await start_replica(**placed("left")), await start_replica(**placed("right"))
    task = await a.send("first", blocking=False)
    joined = await b.send("second", blocking=False, taskId=task["id"])
    assert joined["id"] == task["id"]
    home = await start_replica(**placed("home"))
    await complete_next(home, "first")
    await complete_next(home, "second")
    await wait_for(b, task, COMPLETED)


async def test_messages_that_wait_for_a_replica_are_bounded_by_the_limits_of_the_queue(
    start_replica: StartReplica,
) -> None:
    limits = {**peers("alice", "bob"), "limits.perPeerQueue": 3, "limits.sessionQueue": 1}
    a = await start_replica(**limits, **placed("left"))
    alice, bob = a.as_peer("alice"), a.as_peer("bob")

    async def refused(peer: Replica, **more: Json) -> Response:
        message = {"role": "ROLE_USER", "parts": [{"text": "more"}], "messageId": "x", **more}
        body = json.dumps({"message": message}).encode()
        return await peer.client.post("/a2a/rest/message:send", body, a2a_version="1.0")

    for _ in range(2):
        await alice.send("one", blocking=False, contextId="c-1")
    in_session = await refused(alice, contextId="c-1")
    assert in_session.status == 429
    assert "limits.sessionQueue" in in_session.json["error"]["message"]
    await alice.send("one", blocking=False)
    in_all = await refused(alice)
    assert in_all.status == 429
    assert "limits.perPeerQueue" in in_all.json["error"]["message"]
    await bob.send("hello", blocking=False)
    listed = (await alice.call("ListTasks", {}))["result"]["tasks"]
    assert len(listed) == 3


async def test_the_same_message_again_is_the_one_that_waits(start_replica: StartReplica) -> None:
    a, b = await start_replica(**placed("left")), await start_replica(**placed("right"))
    first = await a.send("hello", blocking=False, messageId="m-same")
    again = [await one.send("hello", blocking=False, messageId="m-same") for one in (a, b)]
    assert {one["id"] for one in again} == {first["id"]}
    home = await start_replica(**placed("home"))
    await complete_next(home, "hello")
    await wait_for(a, first, COMPLETED)
    assert len(home.agent.turns) == 1


async def test_a_held_message_is_decided_and_then_waits_for_its_agent(
    start_replica: StartReplica,
) -> None:
    ask = {**peers("alice"), "channels.a2a.security.policy.rules": [{"decision": "ask"}]}
    right = await start_replica(**ask, **placed("right"))
    alice = right.as_peer("alice")
    held = await alice.send("hello")
    assert state_of(held) == "TASK_STATE_AUTH_REQUIRED"
    assert (await decide(right, held)).status == 200
    assert "waits" in reason_of(await get(alice, held))
    home = await start_replica(**ask, **placed("home"))
    await complete_next(home, "hello")
    await wait_for(alice, held, COMPLETED)


async def test_a_replica_with_messages_that_wait_elsewhere_stops_at_once(
    start_replica: StartReplica,
) -> None:
    a = await start_replica(**placed("left"))
    await a.send("hello", blocking=False)
    async with asyncio.timeout(TIMEOUT_S):
        await a.gateway.drain(3600)


async def test_a_replica_that_is_about_to_stop_gets_no_new_work_of_the_others(
    start_replica: StartReplica,
) -> None:
    right, home = await start_replica(**placed("right")), await start_replica(**placed("home"))
    working = await right.send("first", blocking=False)
    run = await home.agent.next_run("first")
    draining = asyncio.create_task(home.gateway.drain(TIMEOUT_S))

    async def is_queued() -> bool:
        answer = await right.call("SendMessage", message_for("next"))
        return "waits" in reason_of(answer.get("result", {}).get("task", {"status": {}}))

    assert await repeat_until(is_queued, deadline_s=TIMEOUT_S)
    run.end(Reply.of_text("done"))
    await draining
    await wait_for(right, working, COMPLETED)
    await home.stop()
    again = await start_replica(**placed("home"))
    await complete_next(again, "next")


async def test_the_operator_sees_why_a_message_waits(start_replica: StartReplica) -> None:
    a = await start_replica(**placed("left"))
    task = await a.send("hello", blocking=False)
    page = (await operator(a).get(f"/dashboard/tasks/{task['id']}")).json
    assert "no gateway that has the agent main" in json.dumps(page)


def test_the_setting_is_refuse_or_queue(tmp_path: Path) -> None:
    values = {"data": str(tmp_path), "agents.main.adapter": "echo"}
    loaded = load_settings(overrides=values, environ={}).settings
    assert loaded.agents[AgentId("main")].when_no_replica == "refuse"
    with pytest.raises(SettingsInvalid, match="whenNoReplica"):
        load_settings(overrides={**values, "agents.main.whenNoReplica": "later"}, environ={})
