"""An official client without the extension sees the tasks of an executed objective."""

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import GetTaskRequest, ListTasksRequest, TaskState
from tests.planning.gateway_harness import PlanningHarness


@pytest.mark.requirement("opt.plain.clients")
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_steps_are_plain_tasks_to_a_client_that_knows_no_plans(
    harness: PlanningHarness, binding: str
) -> None:
    objective_id = await harness.objective("Blog post")
    steps = [{"name": "write"}, {"name": "review", "dependencies": ["task-0"]}]
    await harness.plan(objective_id, steps)
    await harness.call("objectives/run", id=objective_id)
    ended = await harness.ends(objective_id)
    linked = [task["a2aTaskId"] for task in ended["plans"][0]["tasks"]]
    transport = httpx.ASGITransport(app=harness.client.app)  # pyright: ignore[reportArgumentType] - ASGI
    async with httpx.AsyncClient(transport=transport) as http:
        card = await A2ACardResolver(http, "http://127.0.0.1:9900").get_agent_card()
        config = ClientConfig(
            streaming=False, httpx_client=http, supported_protocol_bindings=[binding]
        )
        client = ClientFactory(config).create(card)
        page = await client.list_tasks(ListTasksRequest(context_id=objective_id))
        assert {task.id for task in page.tasks} == set(linked)
        for task_id, word in zip(linked, ("write", "review"), strict=True):
            task = await client.get_task(GetTaskRequest(id=task_id))
            assert task.status.state == TaskState.TASK_STATE_COMPLETED
            assert task.artifacts[0].parts[0].text == f"did {word}"
            assert task.history[0].parts[0].text.startswith(word)
