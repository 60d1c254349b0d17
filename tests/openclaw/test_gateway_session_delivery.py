"""Messages delivered into sessions of a real OpenClaw are processed once, whatever happens."""

import json
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeVar, cast

import anyio
import anyio.to_thread
import msgspec
from tests.openclaw.bare_client import BareClient
from tests.openclaw.conftest import Bare
from tests.openclaw.gateway_agents import TIMEOUT_S, gateway_agent, make_turn, run_turn, texts
from tests.openclaw.openclaw_process import FakeModel, OpenClaw

from openclaw_a2a.agents.openclaw_gateway import OpenClawGatewayAgent
from openclaw_a2a.model.agent_event import BackgroundEvent, BackgroundReply
from openclaw_a2a.model.ids import SessionKey, TaskId
from openclaw_a2a.model.turn import Provenance
from openclaw_a2a.ports import MessageAccepted, SessionGone, SessionMessage, SessionPresence

Json = Any
_Result = TypeVar("_Result")


def key_of(marker: str) -> SessionKey:
    """A session that is nobody's but the test's."""
    return SessionKey(f"agent:main:chat:{marker}")


def message_for(
    marker: str, key: str = "", *, words: str = "", is_fresh: bool = True
) -> SessionMessage:
    """An answer for a session; the model's log has it under `answer-<marker>`."""
    answer = {"kind": "skill_response", "correlationId": marker, "output": f"answer-{marker}"}
    return SessionMessage(
        id=marker,
        session_key=SessionKey(key) if key else key_of(marker),
        text=json.dumps({**answer, "words": words}),
        source_tool="agent_call",
        source_session=SessionKey(f"agent:helper:call:{marker}"),
        is_first_attempt=is_fresh,
    )


def repeated(note: SessionMessage) -> SessionMessage:
    return msgspec.structs.replace(note, is_first_attempt=False)


async def run_in_thread(work: Callable[[], _Result]) -> _Result:
    return await anyio.to_thread.run_sync(work)


async def entries(client: BareClient, note: SessionMessage) -> list[Json]:
    """The places of a session's transcript that are a note."""
    history = await client.call("chat.history", {"sessionKey": note.session_key, "limit": 100})
    return [one for one in history["messages"] if one["content"] == note.text]


async def occupy(client: BareClient, model: FakeModel, marker: str) -> None:
    """A turn in the session, which lasts until the marker is released."""
    params = {"agentId": "main", "sessionKey": key_of(marker), "message": f"hold:{marker} busy"}
    await client.call("agent", {**params, "idempotencyKey": f"busy-{marker}"})
    await run_in_thread(lambda: model.wait_for(f"hold:{marker}", outcome="active"))


async def wait_processed(agent: OpenClawGatewayAgent, note: SessionMessage) -> bool:
    with anyio.fail_after(TIMEOUT_S):
        return await agent.wait_processed(note)


async def test_an_idle_session_processes_a_message_once(
    openclaw: OpenClaw, model: FakeModel, bare: Bare, marker: str
) -> None:
    note = message_for(marker)
    async with gateway_agent(openclaw) as agent, bare() as other:
        await other.agent("main", note.session_key, "hello")
        for one in (note, note, repeated(note)):
            assert await agent.deliver(one) == MessageAccepted()
        assert await wait_processed(agent, note)
        assert await agent.deliver(repeated(note)) == MessageAccepted()
        await other.agent("main", note.session_key, f"and now {marker}")
        (entry,) = await entries(other, note)
    assert entry["content"] == note.text
    source = entry["provenance"]
    assert source == {
        "kind": "inter_session",
        "sourceSessionKey": note.source_session,
        "sourceTool": "agent_call",
    }
    (asked,) = model.requests(f"answer-{marker}")
    assert asked["last_user"] == note.text


async def test_a_busy_session_processes_a_delivered_message_after_its_turn(
    openclaw: OpenClaw, model: FakeModel, bare: Bare, marker: str
) -> None:
    note = message_for(marker)
    async with gateway_agent(openclaw) as agent, bare() as other:
        await occupy(other, model, marker)
        assert await agent.deliver(note) == MessageAccepted()
        assert await agent.deliver(repeated(note)) == MessageAccepted()
        assert model.requests(f"answer-{marker}") == []
        model.release(marker)
        assert await wait_processed(agent, note)
        await other.call("agent.wait", {"runId": f"busy-{marker}", "timeoutMs": 10_000})
    busy, noted = model.requests(marker)
    assert busy["last_user"] == f"hold:{marker} busy"
    assert busy["outcome"] == "done"
    assert noted["last_user"] == note.text


async def test_a_session_is_located_with_its_active_run(
    openclaw: OpenClaw, model: FakeModel, bare: Bare, marker: str
) -> None:
    key = message_for(marker).session_key
    async with gateway_agent(openclaw) as agent, bare() as other:
        assert await agent.locate_session(key) is SessionPresence.ABSENT
        await occupy(other, model, marker)
        assert await agent.locate_session(key) is SessionPresence.ACTIVE
        model.release(marker)
        await other.call("agent.wait", {"runId": f"busy-{marker}", "timeoutMs": 10_000})
        assert await agent.locate_session(key) is SessionPresence.IDLE
        assert await agent.locate_session(SessionKey("agent:main:main")) is not (
            SessionPresence.ABSENT
        )
        assert await agent.locate_session(SessionKey("agent:other:main")) is SessionPresence.ABSENT


async def test_an_unused_main_session_accepts_a_message(
    openclaw: OpenClaw, model: FakeModel, marker: str
) -> None:
    note = message_for(marker, "agent:helper:main")
    async with gateway_agent(openclaw, agent_id="helper") as agent:
        assert agent.owns_session(note.session_key)
        assert await agent.deliver(note) == MessageAccepted()
        assert await wait_processed(agent, note)
    assert len(model.requests(f"answer-{marker}")) == 1


async def test_a_session_that_was_deleted_is_gone(
    openclaw: OpenClaw, model: FakeModel, bare: Bare, marker: str
) -> None:
    note = message_for(marker)
    async with gateway_agent(openclaw) as agent, bare() as other:
        await other.agent("main", note.session_key, "hello")
        await other.call("sessions.delete", {"key": note.session_key})
        gone = await agent.deliver(note)
    assert isinstance(gone, SessionGone)
    assert note.session_key in gone.reason
    assert model.requests(f"answer-{marker}") == []


async def test_a_message_that_was_never_delivered_is_not_processed(
    openclaw: OpenClaw, marker: str
) -> None:
    async with gateway_agent(openclaw) as agent:
        assert not await wait_processed(agent, message_for(marker))


async def test_a_message_whose_turn_was_interrupted_by_a_crash_is_not_delivered_twice(
    killable_openclaw: OpenClaw, model: FakeModel, bare: Bare, marker: str
) -> None:
    note = message_for(marker, words=f"hold:{marker}")
    async with gateway_agent(killable_openclaw) as agent:
        async with bare(killable_openclaw) as other:
            await other.agent("main", note.session_key, "hello")
            assert await agent.deliver(note) == MessageAccepted()
            await run_in_thread(lambda: model.wait_for(f"answer-{marker}", outcome="active"))
        await run_in_thread(killable_openclaw.kill)
        model.release(marker)
        await run_in_thread(killable_openclaw.start)
        assert await agent.deliver(repeated(note)) == MessageAccepted()
        assert await wait_processed(agent, repeated(note))
        async with bare(killable_openclaw) as other:
            assert len(await entries(other, note)) == 1
    assert len(model.requests(f'"output": "answer-{marker}"')) == 1


async def test_a_message_queued_during_a_crash_is_reported_lost_and_delivered_once(
    killable_openclaw: OpenClaw, model: FakeModel, bare: Bare, marker: str
) -> None:
    note = message_for(marker)
    async with gateway_agent(killable_openclaw) as agent:
        async with bare(killable_openclaw) as other:
            await other.agent("main", note.session_key, "hello")
            await occupy(other, model, marker)
            assert await agent.deliver(note) == MessageAccepted()
        await run_in_thread(killable_openclaw.kill)
        model.release(marker)
        await run_in_thread(killable_openclaw.start)
        assert not await wait_processed(agent, note)
        # As the outbox does: on a busy machine OpenClaw shows a message late, and it counts as
        # missing until then.
        with anyio.fail_after(TIMEOUT_S):
            is_processed = False
            while not is_processed:
                assert await agent.deliver(repeated(note)) == MessageAccepted()
                is_processed = await agent.wait_processed(repeated(note))
        assert await agent.deliver(repeated(note)) == MessageAccepted()
        async with bare(killable_openclaw) as other:
            assert len(await entries(other, note)) == 1
    assert len(model.requests(f'"output": "answer-{marker}"')) == 1


async def test_the_reply_to_a_delivered_message_in_our_session_is_a_background_reply(
    openclaw: OpenClaw, marker: str
) -> None:
    """And what is said in our own turns is none."""
    turn = make_turn("hello", marker)
    note = message_for(marker, turn.session_key)
    async with gateway_agent(openclaw) as agent:
        events = cast("AsyncGenerator[BackgroundEvent]", agent.background_events([]))
        late: list[BackgroundEvent] = []

        async def listen() -> None:
            async for event in events:
                late.append(event)
                if len(late) == 2:
                    return

        with anyio.fail_after(TIMEOUT_S):
            async with anyio.create_task_group() as group:
                group.start_soon(listen)
                await run_turn(agent, turn)
                assert await agent.deliver(note) == MessageAccepted()
                assert await wait_processed(agent, note)
                await run_turn(agent, make_turn("and now", marker, run="2"))
                assert await agent.deliver(message_for(f"{marker}-b", turn.session_key))
        await events.aclose()
    replies = [cast("BackgroundReply", event) for event in late]
    assert {reply.session_key for reply in replies} == {turn.session_key}
    said = [str(reply.parts[0].text) for reply in replies]
    assert said[0].startswith("echo: {")
    assert [f"answer-{marker}-b" in text for text in said] == [False, True]


async def test_a_call_names_its_caller_and_reaches_the_model_unchanged(
    openclaw: OpenClaw, model: FakeModel, bare: Bare, marker: str
) -> None:
    caller = SessionKey("agent:helper:main")
    asker = Provenance("agent_call", caller, "research", "execute", marker, may_announce=True)
    text = json.dumps({"kind": "skill_invocation", "correlationId": marker})
    turn = make_turn(text, marker, provenance=asker, task_id=TaskId(marker))
    async with gateway_agent(openclaw) as agent, bare() as other:
        assert texts(await run_turn(agent, turn)) == [f"echo: {text}"]
        params = {"sessionKey": turn.session_key, "limit": 10}
        first = (await other.call("chat.history", params))["messages"][0]
    assert first["provenance"]["sourceSessionKey"] == caller
    assert first["provenance"]["sourceTool"] == "agent_call"
    (asked,) = model.requests(marker)
    assert asked["last_user"] == text


async def test_an_archived_session_refuses_a_message_with_the_reason(
    openclaw: OpenClaw, bare: Bare, marker: str
) -> None:
    note = message_for(marker)
    async with gateway_agent(openclaw) as agent, bare() as other:
        await other.agent("main", note.session_key, "hello")
        found = await other.call("sessions.describe", {"key": note.session_key})
        session_id = found["session"]["sessionId"]
        change = {"key": note.session_key, "expectedSessionId": session_id}
        await other.call("sessions.patch", {**change, "archived": True})
        missed = await agent.deliver(note)
    assert not isinstance(missed, MessageAccepted | SessionGone)
    assert "archived" in missed.reason
    assert not missed.is_final
