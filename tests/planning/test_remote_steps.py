"""Steps on remote agents: another gateway, with or without the extension."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.conftest import make_gateway
from tests.planning.gateway_harness import PlanningHarness, ScriptedWorker, asks, first_line
from tests.tools.tool_gateway import free_socket, serve_app

from openclaw_a2a.planning.steps import EXTENSION_URI

Json = Any
KEYS = ("opt/v1/objectiveId", "opt/v1/planId", "opt/v1/taskIndex")


class Peer:
    """Another gateway on a port of its own, and what it was asked."""

    def __init__(self, url: str, worker: ScriptedWorker) -> None:
        self.url = url
        self.worker = worker
        self.activated: list[str | None] = []
        """What each request named as extensions."""

    @property
    def metadata(self) -> list[Json]:
        """What came along with each message."""
        return [turn.message.metadata for turn in self.worker.turns]


@asynccontextmanager
async def peer_in(folder: Path, settings: Json, *, port: int = 0) -> AsyncGenerator[Peer]:
    """A gateway with one agent, on a socket of its own."""
    listener, url = free_socket(port)
    worker = ScriptedWorker()
    port = listener.getsockname()[1]
    gateway = make_gateway(
        worker,
        data=folder,
        account={"agentStyle": "task-generating"},
        settings={"server.port": port, **settings},
    )
    peer = Peer(url, worker)

    async def app(scope: Json, receive: Json, send: Json) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            found = [value for name, value in scope["headers"] if name == b"a2a-extensions"]
            peer.activated.append(found[0].decode() if found else None)
        await gateway.asgi(scope, receive, send)

    async with gateway, serve_app(app, listener):
        yield peer


def calls(peer: Peer, **outbound: Json) -> Json:
    """Settings with the peer as target `far`."""
    targets = [{"alias": "far", "baseUrl": peer.url}]
    return {"outbound": {"enabled": True, "targets": targets, **outbound}}


FAR = {"agent": "target:far"}


async def run_two_steps(harness: PlanningHarness) -> Json:
    """An objective whose second step waits for the first; both are done far away."""
    objective_id = await harness.objective("Move", metadata=FAR)
    steps = [{"name": "pack"}, {"name": "go", "dependencies": ["task-0"]}]
    await harness.plan(objective_id, steps)
    await harness.call("objectives/run", id=objective_id)
    return await harness.ends(objective_id)


@pytest.mark.requirement("opt.run.target", "opt.key.no-dependencies")
async def test_a_peer_that_declares_the_extension_gets_the_step_metadata(
    harness: PlanningHarness, tmp_path: Path
) -> None:
    async with peer_in(tmp_path / "peer", {"opt.enabled": True}) as peer:
        await harness.reopen(calls(peer))
        ended = await run_two_steps(harness)
        await harness.close()
    plan = ended["plans"][0]
    assert [first_line(turn) for turn in peer.worker.turns] == ["pack", "go"]
    assert "did pack" in peer.worker.turns[1].body
    wanted = [(ended["id"], plan["id"], index) for index in (0, 1)]
    assert [tuple(said[key] for key in KEYS) for said in peer.metadata] == wanted
    assert "opt/v1/dependencies" not in peer.metadata[0]
    assert peer.metadata[1]["opt/v1/dependencies"] == [plan["tasks"][0]["id"]]
    assert peer.activated == [EXTENSION_URI, EXTENSION_URI]


@pytest.mark.requirement("opt.run.target")
async def test_a_peer_that_does_not_gets_plain_messages(
    harness: PlanningHarness, tmp_path: Path
) -> None:
    async with peer_in(tmp_path / "peer", {"opt.enabled": False}) as peer:
        await harness.reopen(calls(peer))
        await run_two_steps(harness)
        await harness.close()
    assert [first_line(turn) for turn in peer.worker.turns] == ["pack", "go"]
    assert not any(key.startswith("opt/") for said in peer.metadata for key in said or {})
    assert peer.activated == [None, None]


async def test_extensions_that_the_operator_names_are_activated_too(
    harness: PlanningHarness, tmp_path: Path
) -> None:
    defaults = {"serviceParameters": {"A2A-Extensions": "urn:mine"}}
    async with peer_in(tmp_path / "peer", {"opt.enabled": True}) as peer:
        await harness.reopen(calls(peer, defaults=defaults))
        await run_two_steps(harness)
        await harness.close()
    assert peer.activated == [f"urn:mine, {EXTENSION_URI}"] * 2


async def test_a_remote_question_waits_and_its_answer_finishes_the_step(
    harness: PlanningHarness, tmp_path: Path
) -> None:
    async def work(turn: Any) -> Any:
        return asks("which house?") if turn.body.startswith("pack") else "packed"

    async with peer_in(tmp_path / "peer", {"opt.enabled": True}) as peer:
        peer.worker.work = work
        await harness.reopen(calls(peer))
        objective_id = await harness.objective("Move", metadata=FAR)
        await harness.plan(objective_id, [{"name": "pack"}])
        await harness.call("objectives/run", id=objective_id)
        waiting = await harness.until(objective_id, lambda one: "oldestWaiting" in one["progress"])
        answer = {
            "messageId": "answer-1",
            "role": "ROLE_USER",
            "parts": [{"text": "the old one"}],
            "contextId": objective_id,
            "metadata": {"opt/v1/taskId": waiting["progress"]["oldestWaiting"]["taskId"]},
        }
        await harness.call("SendMessage", message=answer)
        await harness.ends(objective_id)
        await harness.close()
    assert [first_line(turn) for turn in peer.worker.turns] == ["pack", "the old one"]


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_an_answer_to_a_peer_that_is_down_is_sent_until_it_is_heard(
    harness: PlanningHarness, tmp_path: Path, is_restarted: bool
) -> None:
    async def work(turn: Any) -> Any:
        return asks("which house?") if turn.body.startswith("pack") else "packed"

    durable = {"opt.enabled": True, "store.kind": "sqlite"}
    async with peer_in(tmp_path / "peer", durable) as peer:
        peer.worker.work = work
        await harness.reopen(calls(peer))
        objective_id = await harness.objective("Move", metadata=FAR)
        await harness.plan(objective_id, [{"name": "pack"}])
        await harness.call("objectives/run", id=objective_id)
        waiting = await harness.until(objective_id, lambda one: "oldestWaiting" in one["progress"])
        step = waiting["progress"]["oldestWaiting"]
    answer = {"messageId": "answer-1", "role": "ROLE_USER", "parts": [{"text": "the old one"}]}
    sent = await harness.call(
        "SendMessage",
        message={**answer, "taskId": step["a2aTaskId"]},
        configuration={"returnImmediately": True},
    )
    # The peer is down: whoever follows the task is told that the answer is sent again.
    await harness.until_task(sent["task"]["id"], lambda one: "sent again" in status_text(one))
    if is_restarted:
        await harness.reopen(calls(peer))
    port = int(peer.url.rpartition(":")[2])
    async with peer_in(tmp_path / "peer", durable, port=port) as again:
        again.worker.work = work
        ended = await harness.ends(objective_id)
        await harness.close()
    assert [first_line(turn) for turn in again.worker.turns] == ["the old one"]
    assert "oldestWaiting" not in ended["progress"]


def status_text(task: Json) -> str:
    parts = task["status"].get("message", {}).get("parts", [])
    return "".join(part.get("text", "") for part in parts)


@pytest.mark.requirement("opt.run.cancel")
async def test_cancelling_stops_the_step_at_the_peer(
    harness: PlanningHarness, tmp_path: Path
) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work(_turn: Any) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    async with peer_in(tmp_path / "peer", {"opt.enabled": True}) as peer:
        peer.worker.work = work
        await harness.reopen(calls(peer))
        objective_id = await harness.objective("Move", metadata=FAR)
        await harness.plan(objective_id, [{"name": "pack"}])
        await harness.call("objectives/run", id=objective_id)
        await begun.wait()
        await harness.call("objectives/update", id=objective_id, status="canceled")
        await asyncio.wait_for(ended.wait(), 240)
        found = await harness.until(
            objective_id, lambda one: one["plans"][0]["tasks"][0]["status"] == "canceled"
        )
        await harness.close()
    assert found["status"] == "canceled"


async def test_a_step_of_a_peer_continues_after_a_restart(
    harness: PlanningHarness, tmp_path: Path
) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def work(turn: Any) -> str:
        begun.set()
        await go.wait()
        return f"did {first_line(turn)}"

    async with peer_in(tmp_path / "peer", {"opt.enabled": True}) as peer:
        peer.worker.work = work
        await harness.reopen(calls(peer))
        objective_id = await harness.objective("Move", metadata=FAR)
        steps = [{"name": "pack"}, {"name": "go", "dependencies": ["task-0"]}]
        await harness.plan(objective_id, steps)
        await harness.call("objectives/run", id=objective_id)
        await begun.wait()
        await harness.close()
        go.set()
        await harness.open(calls(peer))
        await harness.ends(objective_id)
        await harness.close()
    assert [first_line(turn) for turn in peer.worker.turns] == ["pack", "go"]


async def test_an_unknown_target_fails_the_step(harness: PlanningHarness, tmp_path: Path) -> None:
    async with peer_in(tmp_path / "peer", {"opt.enabled": True}) as peer:
        await harness.reopen(calls(peer))
        objective_id = await harness.objective("Move", metadata={"agent": "target:nowhere"})
        await harness.plan(objective_id, [{"name": "pack"}])
        await harness.call("objectives/run", id=objective_id)
        await harness.ends(objective_id, "failed")
        await harness.close()
    assert peer.worker.turns == []
