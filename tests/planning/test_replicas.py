"""Objectives on several gateways: every client sees the same plans, and one gateway executes."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest
from tests.conformance.asgi_client import AsgiClient
from tests.engine.controlled_agent import TIMEOUT_S, Run
from tests.engine.test_replication import Replica, next_run
from tests.engine.test_replication import start_replica as start_replica
from tests.replicas.cluster import repeat_until

from openclaw_a2a.model.agent_event import InputRequired, Reply
from openclaw_a2a.planning.steps import EXTENSION_URI
from openclaw_a2a.ports import Recovery

Json = Any
Start = Callable[..., Any]


class Planner:
    """A client of the objectives at one replica."""

    def __init__(self, replica: Replica) -> None:
        replica.client = AsgiClient(replica.gateway.asgi, {"a2a-extensions": EXTENSION_URI})
        self.replica = replica
        self.agent = replica.agent

    async def call(self, method: str, **params: Json) -> Json:
        answer = await self.replica.call(method, params)
        assert "result" in answer, answer
        return answer["result"]

    async def objective(self, name: str = "goal") -> str:
        return (await self.call("objectives/create", name=name))["objective"]["id"]

    async def plan(self, objective_id: str, *steps: Json, **more: Json) -> str:
        tasks = [{"name": one} if isinstance(one, str) else one for one in steps]
        made = {"objectiveId": objective_id, "name": "plan", "tasks": tasks, **more}
        return (await self.call("plans/create", **made))["plan"]["id"]

    async def get(self, objective_id: str) -> Json:
        return (await self.call("objectives/get", id=objective_id))["objective"]

    async def until(self, objective_id: str, condition: Callable[[Json], bool]) -> Json:
        with anyio.fail_after(TIMEOUT_S):
            while True:
                found = await self.get(objective_id)
                if condition(found):
                    return found
                await asyncio.sleep(0.02)  # it is asked again until then

    async def ends(self, objective_id: str, status: str = "completed") -> Json:
        return await self.until(objective_id, lambda one: one["status"] == status)


@pytest.fixture
async def start(start_replica: Start) -> AsyncIterator[Start]:
    # A long lease: a busy machine must not make one look dead that is only slow.
    async def begin(
        recovery: Recovery = Recovery.REPEAT, lease_s: float = 20, **settings: Json
    ) -> Planner:
        chosen = {"opt.enabled": True, "opt.backoffSeconds": 0.01, **settings}
        return Planner(await start_replica(recovery, lease_s, **chosen))

    return begin


def steps_of(objective: Json) -> dict[str, str]:
    return {step["name"]: step["status"] for plan in objective["plans"] for step in plan["tasks"]}


def asked(*replicas: Planner) -> Counter[str]:
    """How often each step was given to an agent."""
    turns = [turn for one in replicas for turn in one.agent.turns]
    return Counter(turn.body.partition("\n")[0] for turn in turns)


async def step_run(*replicas: Planner) -> tuple[Replica, Run]:
    async with asyncio.timeout(TIMEOUT_S):
        return await next_run(*(one.replica for one in replicas))


async def test_what_one_replica_creates_the_other_reads_lists_and_changes(start: Start) -> None:
    a, b = await start(), await start()
    first = await a.objective("first")
    assert (await b.get(first))["name"] == "first"
    plan = await b.plan(first, "one")
    assert (await a.call("plans/get", id=plan))["plan"]["tasks"][0]["name"] == "one"
    second = await b.objective("second")
    for one in (a, b, a):
        listed = (await one.call("objectives/list"))["objectives"]
        assert [item["id"] for item in listed] == [second, first]
    await b.call("objectives/update", id=first, name="renamed")
    assert (await a.get(first))["name"] == "renamed"
    await a.call("plans/addTasks", id=plan, tasks=[{"name": "two"}])
    assert steps_of(await b.get(first)).keys() == {"one", "two"}
    await b.call("objectives/delete", id=second)
    assert "error" in await a.replica.call("objectives/get", {"id": second})
    listed = (await a.call("objectives/list"))["objectives"]
    assert [item["id"] for item in listed] == [first]


async def test_the_owner_executes_what_another_replica_starts(start: Start) -> None:
    a, b = await start(), await start()
    goal = await a.objective()
    await b.plan(goal, "one", {"name": "two", "dependencies": ["task-0"]})
    await b.call("objectives/run", id=goal)
    for _ in range(2):
        where, run = await step_run(a, b)
        assert where is a.replica
        run.end(Reply.of_text("done"))
    done = await b.ends(goal)
    assert steps_of(done) == {"one": "completed", "two": "completed"}
    assert asked(a, b) == {"one": 1, "two": 1}
    # An archived one is in no memory; both read it.
    assert (await a.get(goal)) == done


async def test_a_subscriber_at_another_replica_gets_every_operation_once(start: Start) -> None:
    a, b = await start(), await start()
    goal = await a.objective()
    async with b.replica.stream("objectives/subscribe", {"id": goal}) as next_event:
        assert (await next_event())["objective"]["id"] == goal
        await a.plan(goal, "one")
        await a.call("objectives/run", id=goal)
        _, run = await step_run(a, b)
        run.end(Reply.of_text("done"))
        await a.ends(goal)
        seen = [(await next_event())["change"]]
        while seen[-1]["op"] != "archive":
            seen.append((await next_event())["change"])
    sequences = [one["seq"] for one in seen]
    assert sequences == list(range(2, 2 + len(seen)))
    # The same at the other one, from a cursor in the middle.
    cursor = {"last_event_id": str(sequences[2])}
    async with a.replica.stream("objectives/subscribe", {"id": goal}, **cursor) as next_event:
        rest = [(await next_event())["change"] for _ in sequences[3:]]
    assert rest == seen[3:]


async def test_a_question_is_answered_at_another_replica(start: Start) -> None:
    a, b = await start(), await start()
    goal = await a.objective()
    await a.plan(goal, "ask")
    await a.call("objectives/run", id=goal)
    _, run = await step_run(a)
    run.end(InputRequired("when?"))
    waiting = await b.until(goal, lambda one: steps_of(one)["ask"] == "input-required")
    task_id = waiting["plans"][0]["tasks"][0]["a2aTaskId"]
    answering = asyncio.create_task(b.replica.send("today", taskId=task_id))
    _, run = await step_run(a, b)
    assert run.turn.body == "today"
    run.end(Reply.of_text("booked"))
    assert (await answering)["status"]["state"] == "TASK_STATE_COMPLETED"
    await a.ends(goal)


async def test_a_cancellation_at_another_replica_stops_the_steps(start: Start) -> None:
    a, b = await start(), await start()
    goal = await a.objective()
    await a.plan(goal, "one")
    await a.call("objectives/run", id=goal)
    _, run = await step_run(a)
    canceled = (await b.call("objectives/update", id=goal, status="canceled"))["objective"]
    assert canceled["status"] == "canceled"
    await asyncio.wait_for(run.stopped.wait(), TIMEOUT_S)
    assert steps_of(await a.get(goal)) == {"one": "canceled"}
    await b.call("objectives/delete", id=goal, cancel=True)
    assert "error" in await a.replica.call("objectives/get", {"id": goal})


async def test_changes_at_two_replicas_at_once_are_both_there(start: Start) -> None:
    a, b = await start(), await start()
    goal = await a.objective()
    plan = await a.plan(goal, "first")
    names = [f"{number}" for number in range(20)]
    await asyncio.gather(
        *(
            (a, b)[number % 2].call("plans/addTasks", id=plan, tasks=[{"name": name}])
            for number, name in enumerate(names)
        )
    )
    for one in (a, b):
        assert steps_of(await one.get(goal)).keys() == {"first", *names}


async def test_of_two_conditional_changes_at_once_one_is_refused(start: Start) -> None:
    a, b = await start(), await start()
    goal = await a.objective()
    before = (await b.get(goal))["updatedAt"]
    change = {"id": goal, "ifUpdatedAt": before}
    answers = await asyncio.gather(
        a.replica.call("objectives/update", {**change, "name": "of a"}),
        b.replica.call("objectives/update", {**change, "name": "of b"}),
    )
    assert sorted("error" in one for one in answers) == [False, True]
    won = "of b" if "error" in answers[0] else "of a"
    assert {(await one.get(goal))["name"] for one in (a, b)} == {won}


async def test_the_plan_of_a_stopped_replica_goes_on_at_another_one(start: Start) -> None:
    a, b = await start(), await start()
    goal = await a.objective()
    await a.plan(goal, "one", {"name": "two", "dependencies": ["task-0"]})
    await a.call("objectives/run", id=goal)
    await step_run(a)
    await a.replica.stop()
    _, again = await step_run(b)
    assert again.turn.body.startswith("one")
    again.end(Reply.of_text("done"))
    _, second = await step_run(b)
    assert second.turn.body.startswith("two")
    second.end(Reply.of_text("done"))
    done = await b.ends(goal)
    assert steps_of(done) == {"one": "completed", "two": "completed"}
    assert asked(b) == {"one": 1, "two": 1}


async def test_a_retry_that_waits_is_made_by_the_replica_that_takes_over(start: Start) -> None:
    a, b = await start(), await start()
    goal = await a.objective()
    await a.plan(goal, {"name": "one", "metadata": {"retries": 1, "backoffSeconds": 20}})
    await a.call("objectives/run", id=goal)
    _, run = await step_run(a)
    run.end(RuntimeError("not the first time"))
    await b.until(goal, lambda one: "retrying" in one["progress"])
    await a.replica.stop()  # nothing runs: only the objective has an owner
    _, again = await step_run(b)
    again.end(Reply.of_text("done"))
    await b.ends(goal)
    assert asked(a, b) == {"one": 2}


async def test_a_replica_that_was_taken_for_dead_starts_no_more_steps(start: Start) -> None:
    a, b = await start(), await start()
    goal = await a.objective()
    await a.plan(goal, "one", {"name": "two", "dependencies": ["task-0"]})
    await a.call("objectives/run", id=goal)
    _, lost = await step_run(a)
    a.replica.pause()
    await a.objective("whose commit lets the lease run out")
    _, again = await step_run(b)
    lost.end(Reply.of_text("too late"))
    await asyncio.wait_for(lost.stopped.wait(), TIMEOUT_S)
    again.end(Reply.of_text("done"))
    where, second = await step_run(a, b)
    assert where is b.replica
    second.end(Reply.of_text("done"))
    done = await a.ends(goal)
    assert steps_of(done) == {"one": "completed", "two": "completed"}
    assert asked(a) == {"one": 1}
    assert asked(b) == {"one": 1, "two": 1}


async def test_messages_to_one_objective_at_two_replicas_run_one_after_the_other(
    start: Start,
) -> None:
    a, b = await start(), await start()
    goal = await a.objective()

    async def tell(one: Planner, text: str) -> Json:
        return await one.replica.send(text, metadata={"opt/v1/objective": {"id": goal}})

    first = asyncio.create_task(tell(a, "one"))
    run = await a.agent.next_run("one")
    second = asyncio.create_task(tell(b, "two"))
    run.end(Reply.of_text("first"))
    await first
    _, run = await step_run(a, b)
    assert run.turn.body == "two"
    run.end(Reply.of_text("second"))
    assert (await second)["contextId"] == goal


async def test_a_message_for_a_step_reports_to_the_plan_from_any_replica(start: Start) -> None:
    a, b = await start(), await start()
    goal = await a.objective()
    metadata = {"opt/v1/objective": {"id": goal}, "opt/v1/plan": {"name": "by message"}}
    sending = asyncio.create_task(b.replica.send("do it", metadata=metadata))
    _, run = await step_run(a, b)
    run.end(Reply.of_text("done"))
    await sending
    done = await a.ends(goal)
    assert steps_of(done) == {"do it": "completed"}


async def test_the_same_plan_id_is_given_to_one_of_two_objectives(start: Start) -> None:
    a, b = await start(), await start()
    goals = [await a.objective("left"), await b.objective("right")]

    async def tell(one: Planner, goal: str) -> None:
        metadata = {"opt/v1/objective": {"id": goal}, "opt/v1/plan": {"id": "plan-same"}}
        await one.replica.send("go", blocking=False, metadata=metadata)

    await asyncio.gather(tell(a, goals[0]), tell(b, goals[1]))
    for one in (a, b):
        (await one.agent.next_run()).end(Reply.of_text("done"))
    done = [await a.ends(goal) for goal in goals]
    plan_ids = [one["plans"][0]["id"] for one in done]
    assert len(set(plan_ids)) == 2
    assert "plan-same" in plan_ids


async def test_a_change_that_no_notification_told_of_is_found(start: Start) -> None:
    a, b = await start(), await start()
    goal = await a.objective()
    async with b.replica.stream("objectives/subscribe", {"id": goal}) as next_event:
        await next_event()
        a.replica.lose_notifications()
        await a.call("objectives/update", id=goal, name="renamed")
        assert (await next_event())["change"]["data"]["name"] == "renamed"
        await a.call("objectives/delete", id=goal)
        assert await next_event() is None


async def test_what_a_drained_replica_was_executing_goes_on_at_another_one(start: Start) -> None:
    a, b = await start(lease_s=600), await start(lease_s=600)
    goal = await a.objective()
    await a.plan(goal, "one", {"name": "two", "dependencies": ["task-0"]})
    await a.call("objectives/run", id=goal)
    _, run = await step_run(a)
    assert await b.replica.drain(a.replica)

    async def is_out() -> bool:
        return (await a.replica.client.get("/readyz")).status == 503

    assert await repeat_until(is_out, deadline_s=TIMEOUT_S)  # it looks at its row once a second
    run.end(Reply.of_text("done"))
    await b.until(goal, lambda one: steps_of(one)["one"] == "completed")
    await b.replica.take_over()
    where, second = await step_run(a, b)
    assert where is b.replica
    second.end(Reply.of_text("done"))
    await b.ends(goal)
    assert asked(a, b) == {"one": 1, "two": 1}


async def test_an_expired_objective_is_deleted_once_and_gone_at_every_replica(start: Start) -> None:
    keep = {"retention.objectiveSeconds": 1, "retention.sweepSeconds": 1}
    a, b = await start(), await start()
    goal = await a.objective()
    await a.call("objectives/update", id=goal, status="canceled")
    assert [one["id"] for one in (await b.call("objectives/list"))["objectives"]] == [goal]
    c = await start(**keep)

    async def is_swept() -> bool:
        return not (await c.call("objectives/list"))["totalSize"]

    assert await repeat_until(is_swept, deadline_s=TIMEOUT_S)
    for one in (a, b):
        assert (await one.call("objectives/list"))["objectives"] == []


async def test_a_step_waits_for_a_replica_that_has_its_agent(start: Start) -> None:
    placed = {"agents.main.replicas": ["home"], "agents.main.whenNoReplica": "queue"}
    a = await start(**placed, **{"store.replicaName": "left"})
    goal = await a.objective()
    await a.plan(goal, "one", {"name": "two", "dependencies": ["task-0"]})
    await a.call("objectives/run", id=goal)

    async def waits() -> bool:
        tasks = (await a.call("ListTasks"))["tasks"]
        return [one["status"]["state"] for one in tasks] == ["TASK_STATE_SUBMITTED"]

    assert await repeat_until(waits, deadline_s=TIMEOUT_S)
    home = await start(**placed, **{"store.replicaName": "home"})
    for _ in range(2):
        _, run = await step_run(home)
        run.end(Reply.of_text("done"))
    await a.ends(goal)
    assert asked(a, home) == {"one": 1, "two": 1}
    assert asked(a) == {}
