"""Replies and decisions in our sessions of a real OpenClaw outside our turns."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream
from tests.openclaw.a2a_client import A2AClient
from tests.openclaw.bare_client import BareClient
from tests.openclaw.conftest import Bare, OpenClient
from tests.openclaw.gateway_connection import open_connection_to
from tests.openclaw.openclaw_process import FakeModel, OpenClaw

from openclaw_a2a.agents.openclaw_gateway.agent_directory import OpenClawAgents
from openclaw_a2a.agents.openclaw_gateway.background_events import BackgroundWatcher
from openclaw_a2a.agents.openclaw_gateway.connection import GatewayConnection
from openclaw_a2a.agents.openclaw_gateway.runs import Pause, Timeouts
from openclaw_a2a.model.agent_event import (
    BackgroundEvent,
    BackgroundReply,
    PauseResolved,
    RecentTask,
)
from openclaw_a2a.model.ids import SessionKey, TaskId
from openclaw_a2a.model.message import Part

Json = Any


class Watching:
    """The events of a watcher, one after the other."""

    def __init__(self, events: MemoryObjectReceiveStream[BackgroundEvent]) -> None:
        self._events = events

    async def next(self) -> BackgroundEvent:
        with anyio.fail_after(240):
            return await self._events.receive()

    async def reply(self) -> BackgroundReply:
        event = await self.next()
        assert isinstance(event, BackgroundReply)
        return event


@asynccontextmanager
async def watching(
    connection: GatewayConnection, openclaw: OpenClaw, recent: Sequence[RecentTask] = ()
) -> AsyncGenerator[Watching]:
    """A watch that listens already."""
    is_connected = anyio.Event()

    class AgentsOfTheGateway(OpenClawAgents):
        async def refresh(self, connection: GatewayConnection) -> None:
            await super().refresh(connection)
            assert self.workspace("main") == str(openclaw.workspace("main"))
            is_connected.set()

    watch = BackgroundWatcher(connection, "main", AgentsOfTheGateway(), Timeouts())
    send, receive = anyio.create_memory_object_stream[BackgroundEvent](100)

    async def listen() -> None:
        async for event in watch.events(recent):
            await send.send(event)

    async with anyio.create_task_group() as group:
        with send, receive:
            group.start_soon(listen)
            await is_connected.wait()
            yield Watching(receive)
            group.cancel_scope.cancel()


def session_of(marker: str) -> SessionKey:
    return SessionKey(f"agent:main:a2a:local:{marker}")


def recent(marker: str, *, resume: Json = None) -> RecentTask:
    task_id = TaskId(f"task-{marker}")
    is_paused = resume is not None
    return RecentTask(task_id, session_of(marker), datetime.now(UTC), is_paused, resume)


async def own_turn(client: BareClient, marker: str, text: str = "hello") -> Json:
    return await client.agent("main", session_of(marker), text, idempotencyKey=f"a2a-{marker}")


def texts(reply: BackgroundReply) -> list[str | None]:
    return [part.text for part in reply.parts]


async def test_a_foreign_turn_in_our_session_is_reported_live(
    bare: Bare, openclaw: OpenClaw, marker: str
) -> None:
    async with (
        open_connection_to(openclaw) as connection,
        bare() as other,
        watching(connection, openclaw) as watch,
    ):
        await own_turn(other, marker)
        await other.agent("main", session_of(marker), f"news of {marker}")
        reply = await watch.reply()
    assert reply.session_key == session_of(marker)
    assert texts(reply) == [f"echo: news of {marker}"]


async def test_missed_replies_have_the_same_id_as_live_ones(
    bare: Bare, openclaw: OpenClaw, marker: str
) -> None:
    session = session_of(marker)
    async with open_connection_to(openclaw) as connection, bare() as other:
        async with watching(connection, openclaw) as watch:
            await own_turn(other, marker)
            await other.agent("main", session, f"one {marker}")
            live = await watch.reply()
        await other.agent("main", session, f"two {marker}")
        async with watching(connection, openclaw, [recent(marker)]) as watch:
            repeated, missed = await watch.reply(), await watch.reply()
    assert repeated == live
    assert texts(missed) == [f"echo: two {marker}"]


async def test_replies_before_our_last_turn_are_not_background_replies(
    bare: Bare, openclaw: OpenClaw, marker: str
) -> None:
    session = session_of(marker)
    async with open_connection_to(openclaw) as connection, bare() as other:
        await other.agent("main", session, f"early {marker}")
        await own_turn(other, marker)
        async with watching(connection, openclaw, [recent(marker)]) as watch:
            await other.call("chat.inject", {"sessionKey": session, "message": f"late {marker}"})
            reply = await watch.reply()
    assert texts(reply) == [f"late {marker}"]


async def test_a_cron_job_speaks_in_our_session(
    bare: Bare, openclaw: OpenClaw, marker: str
) -> None:
    session = session_of(marker)
    job: Json = {
        "name": f"job {marker}",
        "agentId": "main",
        "sessionTarget": f"session:{session}",
        "wakeMode": "now",
        "payload": {"kind": "agentTurn", "message": f"parrot:reminder {marker}"},
        "delivery": {"mode": "none"},
    }
    async with open_connection_to(openclaw) as connection, bare() as other:
        await own_turn(other, marker)
        async with watching(connection, openclaw) as watch:
            at = datetime.now(UTC) + timedelta(seconds=2)
            schedule = {"kind": "at", "at": at.isoformat()}
            await other.call("cron.add", {**job, "schedule": schedule})
            reply = await watch.reply()
        async with watching(connection, openclaw, [recent(marker)]) as watch:
            repeated = await watch.reply()
            await other.call("chat.inject", {"sessionKey": session, "message": "the end"})
            last = await watch.reply()
    assert (texts(reply)[0] or "").startswith(f"reminder {marker}")
    assert repeated == reply
    assert texts(last) == ["the end"]


async def test_media_and_errors_of_a_background_reply_are_in_its_data_part(
    bare: Bare, openclaw: OpenClaw, marker: str
) -> None:
    session = session_of(marker)
    (openclaw.workspace("main") / f"{marker}.txt").write_text("x", encoding="utf-8")
    async with (
        open_connection_to(openclaw) as connection,
        bare() as other,
        watching(connection, openclaw) as watch,
    ):
        await own_turn(other, marker)
        media = f"MEDIA:{openclaw.workspace('main')}/{marker}.txt\nMEDIA:/etc/hostname"
        await other.agent("main", session, f"parrot:[[audio_as_voice]] see\n{media}")
        wait_processed = await watch.reply()
        key = f"run-{marker}"
        failing = {"sessionKey": session, "message": "fail:400", "idempotencyKey": key}
        await other.call("chat.send", failing)
        failed = await watch.reply()
    assert texts(wait_processed)[0] == (
        "see\n\n[The file hostname is left out: it is not in the agent's workspace.]"
    )
    assert wait_processed.parts[1:] == (
        Part.of_data({"mediaUrls": [f"{marker}.txt"], "audioAsVoice": True}),
    )
    assert failed.parts[1].data == {"isError": True}


async def paused_run(client: BareClient, marker: str) -> Pause:
    """A turn of ours that waits for the answer to a question."""
    options = [{"label": "Blue"}, {"label": "Green"}]
    asked = {"id": "color", "header": "Color", "question": "Which?", "options": options}
    run_id = f"a2a-{marker}"
    params = {
        "agentId": "main",
        "sessionKey": session_of(marker),
        "message": f"tool:ask_user {json.dumps({'questions': [asked]})}",
        "idempotencyKey": run_id,
    }
    await client.call("agent", params)
    waiting = await client.wait_event("question.requested", runId=run_id)
    return Pause("question", waiting["id"], run_id)


async def answer(client: BareClient, pause: Pause) -> None:
    answers = {"answers": {"color": ["Blue"]}}
    await client.call("question.resolve", {"id": pause.id, "answers": answers})


async def test_a_question_that_is_answered_elsewhere_ends_the_pause(
    bare: Bare, openclaw: OpenClaw, marker: str
) -> None:
    async with open_connection_to(openclaw) as connection, bare() as other:
        pause = await paused_run(other, marker)
        paused = recent(marker, resume=pause.resume)
        async with watching(connection, openclaw, [paused]) as watch:
            await answer(other, pause)
            over = await watch.next()
    reason = "The agent's question was answered at OpenClaw."
    assert over == PauseResolved(paused.task_id, reason, pause.resume)


async def test_a_question_answered_while_disconnected_resolves_the_pause(
    bare: Bare, openclaw: OpenClaw, marker: str
) -> None:
    async with open_connection_to(openclaw) as connection, bare() as other:
        pause = await paused_run(other, marker)
        await other.call("question.resolve", {"id": pause.id, "cancel": True})
        async with watching(connection, openclaw, [recent(marker, resume=pause.resume)]) as watch:
            over = await watch.next()
        forgotten = Pause("approval", "nobody-knows", "a2a-x")
        async with watching(
            connection, openclaw, [recent(marker, resume=forgotten.resume)]
        ) as watch:
            gone = await watch.next()
    assert isinstance(over, PauseResolved)
    assert over.reason == "The agent's question was withdrawn."
    assert isinstance(gone, PauseResolved)
    assert gone.reason == "The approval does not wait for an answer any more."


async def test_an_answer_of_our_own_turn_is_not_a_background_event(
    bare: Bare, openclaw: OpenClaw, marker: str
) -> None:
    async with open_connection_to(openclaw) as connection, bare() as other:
        pause = await paused_run(other, marker)
        paused = recent(marker, resume=pause.resume)
        async with watching(connection, openclaw, [paused]) as watch:
            del connection.runs.pauses[paused.task_id]
            await answer(other, pause)
            await other.call("agent.wait", {"runId": pause.run_id, "timeoutMs": 240_000})
            params = {"sessionKey": session_of(marker), "message": "first news"}
            await other.call("chat.inject", params)
            first = await watch.next()
    assert isinstance(first, BackgroundReply)
    assert texts(first) == ["first news"]


async def test_a_recovery_of_our_turn_after_a_crash_is_not_a_background_reply(
    bare: Bare, killable_openclaw: OpenClaw, model: FakeModel, marker: str
) -> None:
    session = session_of(marker)
    async with (
        open_connection_to(killable_openclaw) as connection,
        watching(connection, killable_openclaw) as watch,
    ):
        async with bare(killable_openclaw) as other:
            await own_turn(other, marker)
            params = {"agentId": "main", "sessionKey": session, "message": f"hold:{marker} x"}
            await other.call("agent", {**params, "idempotencyKey": f"a2a-held-{marker}"})
            await anyio.to_thread.run_sync(lambda: model.wait_for(f"hold:{marker}"))
        killable_openclaw.kill()
        model.release(marker)
        await anyio.to_thread.run_sync(killable_openclaw.start)
        async with bare(killable_openclaw) as other:
            ended = await other.wait_event("chat", sessionKey=session, state="final")
            assert not ended["runId"].startswith("a2a-")
            await other.agent("main", session, f"news of {marker}")
        reply = await watch.reply()
    assert texts(reply) == [f"echo: news of {marker}"]


async def test_a_background_reply_reaches_its_task(
    our_gateway: Json, open_client: OpenClient, bare: Bare, marker: str
) -> None:
    client = await open_client(our_gateway)
    task = await client.send("hello", contextId=marker)
    assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
    async with bare() as other:
        await other.agent("main", session_of(marker), f"news of {marker}")
    late = await next_artifact(client, task)
    assert late["name"] == "Queued follow-up reply"
    assert [part["text"] for part in late["parts"]] == [f"echo: news of {marker}"]


async def next_artifact(client: A2AClient, task: Json) -> Json:
    """The artifact that an ended task gets next."""
    with anyio.fail_after(240):
        while True:
            artifacts = (await client.get(task["id"]))["artifacts"]
            if len(artifacts) > len(task["artifacts"]):
                return artifacts[-1]
            await anyio.sleep(0.2)  # an ended task has no stream to wait on
