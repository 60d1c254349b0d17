"""A plan goes on although an answer between two gateways is lost."""

import asyncio
from typing import Any

from tests.engine.controlled_agent import TIMEOUT_S
from tests.engine.test_replication import start_replica as start_replica
from tests.planning.test_replicas import Start, asked, step_run, steps_of
from tests.planning.test_replicas import start as start

from openclaw_a2a.model.agent_event import Reply
from openclaw_a2a.model.errors import StoreUnavailable

AT_RIGHT: dict[str, Any] = {"agents.main.replicas": ["right"]}


async def test_a_plan_is_completed_although_the_answer_to_a_step_at_another_replica_is_lost(
    start: Start,
) -> None:
    left = await start(**{"store.replicaName": "left"}, **AT_RIGHT)
    right = await start(**{"store.replicaName": "right"}, **AT_RIGHT)
    gateway = left.replica.gateway
    engine: Any = gateway.engines[gateway.settings.store]
    engine.replication.search_polls = 10_000  # which would find it, too
    replicas = engine.store.replicas
    take_answer, is_lost = replicas.take_answer, asyncio.Event()

    async def lose_answer(number: int) -> bytes | None:
        answer = await take_answer(number)
        if answer is not None and not is_lost.is_set():
            is_lost.set()
            raise StoreUnavailable("the answer is lost")
        return answer

    replicas.take_answer = lose_answer
    goal = await left.objective()
    await left.plan(goal, "one")
    await left.call("objectives/run", id=goal)
    async with asyncio.timeout(TIMEOUT_S):
        await is_lost.wait()
    _, run = await step_run(right)
    await left.until(goal, lambda one: steps_of(one)["one"] in {"submitted", "working"})
    run.end(Reply.of_text("done"))
    assert steps_of(await left.ends(goal)) == {"one": "completed"}
    assert asked(left, right) == {"one": 1}
