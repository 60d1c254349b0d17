"""Data of an older version: a gateway opens and continues it.

`stored_data` holds what a gateway of that version left behind when it was stopped: a finished task
whose webhook was not reachable, a paused task, an agent call whose callee was at work, and an
objective with one step done and one under way.
"""

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.conformance.asgi_client import AsgiClient
from tests.conformance.conftest import make_gateway
from tests.conformance.manual_clock import ManualClock
from tests.conformance.protocol_clients import RpcFailed, V1Client

from openclaw_a2a.app import Gateway
from openclaw_a2a.model.agent_event import AgentEvent, Reply
from openclaw_a2a.model.ids import SessionKey
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.planning.steps import EXTENSION_URI
from openclaw_a2a.ports import MessageAccepted, Recovery, SessionMessage, SessionPresence

Json = Any
DATA = Path(__file__).with_name("stored_data")
WAITING_CONTEXT = "c6edc4bf-575f-9fdf-c6c2-8ffd186109f8"
"""The context of the task whose webhook waits."""
WEBHOOK = ("127.77.31.9", 39417)
TIMEOUT_S = 240.0


class Worker:
    """An agent that answers at once; it also collects the messages to its sessions."""

    recovery = Recovery.REPEAT
    host = "the only one"

    def __init__(self, name: str) -> None:
        self.name = name
        self.messages: list[SessionMessage] = []
        self.has_message = asyncio.Event()

    async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        if turn.body.startswith("{"):
            yield Reply.of_text('{"output": "called"}')
        else:
            yield Reply.of_text(f"did {turn.body.splitlines()[0]}")

    async def close(self) -> None:
        """Nothing is held."""

    def owns_session(self, session_key: SessionKey) -> bool:
        return session_key.startswith(f"agent:{self.name}:")

    def host_session_key(self, session_key: SessionKey) -> SessionKey | None:
        return session_key

    async def locate_session(self, _: SessionKey) -> SessionPresence:
        return SessionPresence.IDLE

    async def deliver(self, message: SessionMessage) -> MessageAccepted:
        self.messages.append(message)
        self.has_message.set()
        return MessageAccepted()

    async def wait_processed(self, message: SessionMessage) -> bool:
        return message in self.messages


@asynccontextmanager
async def webhook() -> AsyncIterator["asyncio.Queue[Json]"]:
    """The webhook that the stored delivery names."""
    posts: asyncio.Queue[Json] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The gateway of another test may end in the middle of its request.
        with suppress(asyncio.IncompleteReadError, OSError):
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            posts.put_nowait(json.loads(await reader.readexactly(length)))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, *WEBHOOK)
    async with server:
        yield posts


class Restarted:
    """A gateway of today over the stored data, a little after it was stored."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.names = json.loads((folder / "names.json").read_bytes())
        written_at = datetime.fromisoformat(self.names["writtenAt"])
        ahead = written_at + timedelta(seconds=30) - datetime.now(UTC)
        self.agents = {name: Worker(name) for name in "ab"}
        self.gateway: Gateway = make_gateway(
            self.agents,
            data=folder,
            clock=ManualClock(ahead),
            settings={
                "store.kind": kind,
                "channels.a2a.accounts.default": {
                    "defaultAgentId": "a",
                    "agentStyle": "task-generating",
                },
                "tools.agentToAgent.enabled": True,
                "tools.agentToAgent.allow": ["*"],
                "opt.enabled": True,
                "push.allowPrivate": True,
            },
        )

    @property
    def v1(self) -> V1Client:
        return V1Client(AsgiClient(self.gateway.asgi))

    async def objective(self) -> Json:
        params = {"id": self.names["objective"]}
        body = {"jsonrpc": "2.0", "id": 1, "method": "objectives/get", "params": params}
        client = AsgiClient(self.gateway.asgi, {"a2a-extensions": EXTENSION_URI})
        answer = await client.post("/a2a/jsonrpc", json.dumps(body).encode())
        return answer.json["result"]["objective"]


@pytest.fixture(params=["sqlite", "json-file"])
async def restarted(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Restarted]:
    folder = tmp_path / "data"
    shutil.copytree(DATA / request.param, folder)
    monkeypatch.chdir(tmp_path)
    restarted = Restarted(folder, request.param)
    async with restarted.gateway:
        yield restarted


async def test_a_finished_task_is_served_as_it_was(restarted: Restarted) -> None:
    assert await restarted.v1.get(restarted.names["finished"]) == restarted.names["finishedTask"]


async def test_a_repeated_message_gives_the_stored_task(restarted: Restarted) -> None:
    hook = {"taskPushNotificationConfig": {"url": "http://127.77.31.9:39417/hook"}}
    again = await restarted.v1.send("finish this", messageId="m-finished", configuration=hook)
    assert again["task"]["id"] == restarted.names["finished"]
    with pytest.raises(RpcFailed, match="another body"):
        await restarted.v1.send("finish that", messageId="m-finished")


async def test_a_paused_task_continues_with_its_answer(restarted: Restarted) -> None:
    paused = restarted.names["paused"]
    assert (await restarted.v1.get(paused))["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    answered = (await restarted.v1.send("the blue one", taskId=paused))["task"]
    assert answered["id"] == paused
    assert answered["status"]["state"] == "TASK_STATE_COMPLETED"
    assert [message["parts"][0]["text"] for message in answered["history"]] == [
        "ask me",
        "Which one?",
        "the blue one",
        "did the blue one",
    ]


async def test_a_pending_call_is_answered_into_the_session_of_its_caller(
    restarted: Restarted,
) -> None:
    caller = restarted.agents["a"]
    with anyio.fail_after(TIMEOUT_S):
        await caller.has_message.wait()
    [message] = caller.messages
    assert message.session_key == "agent:a:main"
    outcome = json.loads(message.text)
    assert outcome["correlationId"] == restarted.names["call"]["correlationId"]
    assert outcome["output"] == "called"


async def test_an_open_objective_is_executed_to_its_end(restarted: Restarted) -> None:
    with anyio.fail_after(TIMEOUT_S):
        while (objective := await restarted.objective())["status"] != "completed":
            await anyio.lowlevel.checkpoint()
    [plan] = objective["plans"]
    assert [task["status"] for task in plan["tasks"]] == ["completed"] * 2
    assert objective["name"] == "Old goal"


@pytest.mark.skipif(sys.platform != "linux", reason="needs an address of its own on loopback")
async def test_a_waiting_webhook_gets_what_it_missed(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(DATA / "sqlite", folder)
    async with webhook() as posts, Restarted(folder, "sqlite").gateway:
        with anyio.fail_after(TIMEOUT_S):
            seen: list[Json] = []
            while not seen or "COMPLETED" not in json.dumps(seen[-1]):
                post = await posts.get()
                # A slow answer is a failure: the same post comes again. And gateways of other tests
                # have the same webhook at the same time, for this task and for others.
                if WAITING_CONTEXT in json.dumps(post) and post not in seen:
                    seen.append(post)
    assert len(seen) == 4
