"""Drive a gateway with the official a2a-sdk 1.x client and print what it saw as one JSON object.

Usage: client_1_0.py BASE_URL DIRECT_URL [JSONRPC|HTTP+JSON]
(the agent at DIRECT_URL answers with a message where it can)
"""

import asyncio
import json
import sys
import uuid

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import A2AError


def ask(text, *, context_id="", return_immediately=False):
    """A request to answer one text."""
    message = Message(
        message_id=uuid.uuid4().hex,
        role=Role.ROLE_USER,
        parts=[Part(text=text)],
        context_id=context_id,
    )
    request = SendMessageRequest(message=message)
    request.configuration.return_immediately = return_immediately
    return request


def state_of(status):
    """A task state as both generations can be compared by: `input-required`."""
    name = TaskState.Name(status.state).removeprefix("TASK_STATE_")
    return name.lower().replace("_", "-")


def text_of(parts):
    return "".join(part.text for part in parts)


def describe_task(task: Task):
    return {
        "id": task.id,
        "contextId": task.context_id,
        "state": state_of(task.status),
        "artifacts": [text_of(artifact.parts) for artifact in task.artifacts],
        "history": [text_of(message.parts) for message in task.history],
    }


def describe_event(event: StreamResponse):
    if event.HasField("task"):
        return {"kind": "task", **describe_task(event.task)}
    if event.HasField("message"):
        return {"kind": "message", "text": text_of(event.message.parts)}
    if event.HasField("status_update"):
        return {"kind": "status-update", "state": state_of(event.status_update.status)}
    update = event.artifact_update
    return {
        "kind": "artifact-update",
        "text": text_of(update.artifact.parts),
        "append": update.append,
        "lastChunk": update.last_chunk,
    }


class Session:
    """One conversation of the official client with the gateway."""

    def __init__(self, http, card, binding):
        def make(streaming):
            config = ClientConfig(
                httpx_client=http,
                streaming=streaming,
                supported_protocol_bindings=[binding],
                use_client_preference=True,
            )
            return ClientFactory(config).create(card)

        self.streaming = make(streaming=True)
        self.plain = make(streaming=False)

    async def send(self, text, **options):
        answers = self.plain.send_message(ask(text, **options))
        [answer] = [describe_event(event) async for event in answers]
        return answer

    async def stream(self, text):
        request = ask(text)
        return [describe_event(event) async for event in self.streaming.send_message(request)]

    async def get(self, task_id, **options):
        return describe_task(await self.plain.get_task(GetTaskRequest(id=task_id, **options)))

    async def list(self, context_id):
        page = await self.plain.list_tasks(ListTasksRequest(context_id=context_id))
        return {"ids": [task.id for task in page.tasks], "total": page.total_size}

    async def hold_and_cancel(self):
        """Follow a running task with two streams, cancel it, and see both of them end."""
        sent, subscribed, canceled = [], [], None
        task_id = None
        async with asyncio.TaskGroup() as group:

            async def subscribe():
                nonlocal canceled
                request = SubscribeToTaskRequest(id=task_id)
                async for event in self.streaming.subscribe(request):
                    subscribed.append(describe_event(event))
                    if canceled is None:
                        task = await self.plain.cancel_task(CancelTaskRequest(id=task_id))
                        canceled = describe_task(task)

            async for event in self.streaming.send_message(ask("hold:60")):
                sent.append(describe_event(event))
                if sent[-1]["kind"] == "task":
                    task_id = event.task.id
                if sent[-1].get("state") == "working":
                    group.create_task(subscribe())
        return {"stream": sent, "subscribe": subscribed, "cancel": canceled}


async def error_name(call):
    try:
        await call
    except A2AError as error:
        return type(error).__name__
    return None


async def drive(base_url, direct_url, binding):
    async with httpx.AsyncClient(timeout=240, headers={"A2A-Version": "1.0"}) as http:
        direct_card = await A2ACardResolver(http, direct_url).get_agent_card()
        direct = Session(http, direct_card, binding)
        card = await A2ACardResolver(http, base_url).get_agent_card()
        session = Session(http, card, binding)
        report = {
            "card": {
                "name": card.name,
                "interfaces": [
                    [i.protocol_binding, i.protocol_version] for i in card.supported_interfaces
                ],
            },
            "send": await session.send("echo:hello"),
            "stream": await session.stream("chunks:5:8"),
            "held": await session.hold_and_cancel(),
            "direct": [await direct.send("echo:hi"), *await direct.stream("echo:hi")],
        }
        task = report["send"]
        report["get"] = await session.get(task["id"])
        report["getWithoutHistory"] = await session.get(task["id"], history_length=0)
        report["list"] = await session.list(task["contextId"])
        report["followUp"] = await session.send("echo:again", context_id=task["contextId"])
        report["immediate"] = await session.send("echo:later", return_immediately=True)
        report["errors"] = {
            "getUnknown": await error_name(session.get("no-such-task")),
            "cancelEnded": await error_name(
                session.plain.cancel_task(CancelTaskRequest(id=task["id"]))
            ),
        }
        return report


if __name__ == "__main__":
    chosen = sys.argv[3] if len(sys.argv) > 3 else "JSONRPC"
    print(json.dumps(asyncio.run(drive(sys.argv[1], sys.argv[2], chosen))))
