"""Drive a gateway with the official a2a-sdk 0.3 client and print what it saw as one JSON object.

Usage: client_0_3.py BASE_URL DIRECT_URL
(the agent at DIRECT_URL answers with a message where it can)
"""

import asyncio
import json
import sys
import uuid

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientJSONRPCError
from a2a.types import (
    Message,
    MessageSendConfiguration,
    Part,
    Role,
    TaskIdParams,
    TaskQueryParams,
    TextPart,
)


def ask(text, context_id=None):
    """A message that asks for an answer to one text."""
    return Message(
        message_id=uuid.uuid4().hex,
        role=Role.user,
        parts=[Part(root=TextPart(text=text))],
        context_id=context_id,
    )


def text_of(parts):
    return "".join(part.root.text for part in parts)


def describe_task(task):
    return {
        "id": task.id,
        "contextId": task.context_id,
        "state": task.status.state.value,
        "artifacts": [text_of(artifact.parts) for artifact in task.artifacts or []],
        "history": [text_of(message.parts) for message in task.history or []],
    }


def describe_event(event):
    if isinstance(event, Message):
        return {"kind": "message", "text": text_of(event.parts)}
    task, update = event
    if update is None:
        return {"kind": "task", **describe_task(task)}
    if update.kind == "status-update":
        return {"kind": update.kind, "state": update.status.state.value, "final": update.final}
    return {
        "kind": update.kind,
        "text": text_of(update.artifact.parts),
        "append": bool(update.append),
        "lastChunk": bool(update.last_chunk),
    }


class Session:
    """One conversation of the official client with the gateway."""

    def __init__(self, http, card):
        self.streaming = ClientFactory(ClientConfig(httpx_client=http)).create(card)
        self.plain = ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create(card)

    async def send(self, text, *, context_id=None, blocking=True):
        configuration = MessageSendConfiguration(blocking=blocking)
        message = ask(text, context_id)
        answers = self.plain.send_message(message, configuration=configuration)
        [answer] = [describe_event(event) async for event in answers]
        return answer

    async def stream(self, text):
        return [describe_event(event) async for event in self.streaming.send_message(ask(text))]

    async def get(self, task_id, **options):
        return describe_task(await self.plain.get_task(TaskQueryParams(id=task_id, **options)))

    async def cancel(self, task_id):
        return describe_task(await self.plain.cancel_task(TaskIdParams(id=task_id)))

    async def hold_and_cancel(self):
        """Follow a running task with two streams, cancel it, and see both of them end."""
        sent, subscribed, canceled = [], [], None
        async with asyncio.TaskGroup() as group:

            async def subscribe(task_id):
                nonlocal canceled
                async for event in self.streaming.resubscribe(TaskIdParams(id=task_id)):
                    subscribed.append(describe_event(event))
                    if canceled is None:
                        canceled = await self.cancel(task_id)

            async for event in self.streaming.send_message(ask("hold:60")):
                sent.append(describe_event(event))
                if sent[-1].get("state") == "working":
                    group.create_task(subscribe(event[0].id))
        return {"stream": sent, "subscribe": subscribed, "cancel": canceled}


async def error_code(call):
    try:
        await call
    except A2AClientJSONRPCError as error:
        return error.error.code
    return None


async def drive(base_url, direct_url):
    async with httpx.AsyncClient(timeout=240) as http:
        direct = Session(http, await A2ACardResolver(http, direct_url).get_agent_card())
        card = await A2ACardResolver(http, base_url).get_agent_card()
        session = Session(http, card)
        report = {
            "card": {
                "name": card.name,
                "protocolVersion": card.protocol_version,
                "preferredTransport": card.preferred_transport,
            },
            "send": await session.send("echo:hello"),
            "stream": await session.stream("chunks:5:8"),
            "held": await session.hold_and_cancel(),
            "direct": [await direct.send("echo:hi"), *await direct.stream("echo:hi")],
        }
        task = report["send"]
        report["get"] = await session.get(task["id"])
        report["getWithoutHistory"] = await session.get(task["id"], history_length=0)
        report["followUp"] = await session.send("echo:again", context_id=task["contextId"])
        report["immediate"] = await session.send("echo:later", blocking=False)
        report["errors"] = {
            "getUnknown": await error_code(session.get("no-such-task")),
            "cancelEnded": await error_code(session.cancel(task["id"])),
        }
        return report


if __name__ == "__main__":
    print(json.dumps(asyncio.run(drive(sys.argv[1], sys.argv[2]))))
