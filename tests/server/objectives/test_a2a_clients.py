"""An official client without the extension sees plain, valid tasks."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types import (
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    Task,
    TaskState,
)
from google.protobuf import json_format
from tests.conformance.protocol_clients import V1Client, fresh_id
from tests.server.objectives.conftest import ObjectivesServer
from tests.server.objectives.scripted_planning import into_objective

from openclaw_a2a.planning.steps import EXTENSION_URI

WISH = {"opt/v1/objective": {"name": "Garden party"}}
BINDINGS = ["JSONRPC", "HTTP+JSON"]


@asynccontextmanager
async def _official(server: ObjectivesServer, binding: str) -> AsyncGenerator[Client]:
    transport = httpx.ASGITransport(app=server.client.app)  # pyright: ignore[reportArgumentType] - ASGI
    async with httpx.AsyncClient(transport=transport) as http:
        resolver = A2ACardResolver(http, "http://127.0.0.1:9900")
        card = await resolver.get_agent_card()
        assert [one.uri for one in card.capabilities.extensions] == [EXTENSION_URI]
        config = ClientConfig(
            streaming=False, httpx_client=http, supported_protocol_bindings=[binding]
        )
        yield ClientFactory(config).create(card)


def _message(text: str) -> SendMessageRequest:
    message = Message(message_id=fresh_id(), role=Role.ROLE_USER, parts=[Part(text=text)])
    message.metadata.update(WISH)
    request = SendMessageRequest(message=message)
    request.configuration.return_immediately = True
    return request


async def _send(client: Client, text: str) -> Task:
    [event] = [event async for event in client.send_message(_message(text))]
    return event.task


@pytest.mark.requirement("opt.plain.clients", "opt.activation.off-messages")
@pytest.mark.parametrize("binding", BINDINGS)
async def test_its_own_tasks_are_plain_whatever_metadata_it_sends(
    server: ObjectivesServer, binding: str
) -> None:
    server.planning.take = into_objective("obj-123")
    async with _official(server, binding) as client:
        task = await _send(client, "hello")
        assert task.context_id != "obj-123"
        assert not task.HasField("metadata")
        assert json_format.MessageToDict(task.history[0].metadata) == WISH
    assert server.planning.taken == []


@pytest.mark.requirement("opt.plain.clients")
@pytest.mark.parametrize("binding", BINDINGS)
async def test_tasks_of_objectives_are_tasks_with_metadata_to_it(
    server: ObjectivesServer, binding: str
) -> None:
    server.planning.take = into_objective("obj-123")
    planned = (await V1Client(server.activated).send(metadata=WISH))["task"]
    async with _official(server, binding) as client:
        task = await client.get_task(GetTaskRequest(id=planned["id"]))
        assert task.status.state == TaskState.TASK_STATE_COMPLETED
        assert task.artifacts[0].parts[0].text == "done"
        assert task.metadata["opt/v1/planId"] == "plan-1"
        page = await client.list_tasks(ListTasksRequest(context_id="obj-123"))
        assert [one.id for one in page.tasks] == [planned["id"]]
