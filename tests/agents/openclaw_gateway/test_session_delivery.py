"""Messages delivered into sessions of a failing gateway: once each, and losses are detected."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import cast

import anyio
import msgspec
import pytest
from tests.agents.openclaw_gateway.conftest import Json, MakeAgent, make_turn_for, run_turn
from tests.agents.openclaw_gateway.scripted_gateway import (
    GatewayRequest,
    Refusal,
    ScriptedGateway,
    assistant_entry,
    text_block,
    user_entry,
)

from openclaw_a2a.agents.openclaw_gateway import OpenClawGatewayAgent
from openclaw_a2a.agents.openclaw_gateway.runs import Timeouts
from openclaw_a2a.model.agent_event import (
    BackgroundEvent,
    BackgroundReply,
    Failed,
    RecentTask,
    Reply,
)
from openclaw_a2a.model.errors import AgentUnavailable
from openclaw_a2a.model.ids import PeerName, SessionKey, TaskId
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.turn import Provenance
from openclaw_a2a.ports import (
    DeliveryFailed,
    MessageAccepted,
    SessionGone,
    SessionInbox,
    SessionMessage,
    SessionPresence,
)

KEY = SessionKey("agent:main:telegram:direct:7")
RUN = "session-note-n1"
AGAIN = "session-note-n1-again-1"
NOTE = SessionMessage(
    id="n1",
    session_key=KEY,
    text='{"kind":"skill_response"}',
    source_tool="agent_call",
    source_session=SessionKey("agent:helper:call:n1"),
    is_first_attempt=True,
)
REPEATED = msgspec.structs.replace(NOTE, is_first_attempt=False)
ROUTE: Json = {"channel": "telegram", "to": "7", "accountId": "default", "threadId": 3}


@pytest.fixture
def open_session(gateway: ScriptedGateway) -> None:
    """The session is there, and OpenClaw takes what is sent."""
    gateway.answers["sessions.describe"] = {"session": {"key": KEY}}
    gateway.answers["agent"] = {"status": "accepted", "runId": RUN}


pytestmark = pytest.mark.usefixtures("open_session")


def pending(**states: str) -> Json:
    """A history in which messages wait, or waited."""
    items = [{"runId": run.replace("_", "-"), "state": state} for run, state in states.items()]
    return {"messages": [], "pendingInputs": {"items": items}}


async def test_the_agent_is_a_session_inbox(agent: OpenClawGatewayAgent) -> None:
    assert isinstance(agent, SessionInbox)


# -------------------------------------------------------------------- whose sessions


@pytest.mark.parametrize(
    ("key", "is_held"),
    [
        ("agent:main:main", True),
        ("agent:MAIN:telegram:direct:7", True),
        ("agent:mainly:main", False),
        ("agent:helper:main", False),
        ("main", False),
        ("", False),
    ],
)
async def test_a_session_belongs_to_the_agent_that_its_key_names(
    make_agent: MakeAgent, key: str, is_held: bool
) -> None:
    assert make_agent(agent_id="Main").owns_session(SessionKey(key)) is is_held
    assert not make_agent(agent_id="Main", road="http").owns_session(SessionKey(key))


@pytest.mark.parametrize(
    ("key", "session", "is_active", "presence"),
    [
        (KEY, {"key": KEY, "status": "running"}, True, SessionPresence.ACTIVE),
        (KEY, {"key": KEY, "status": "running"}, False, SessionPresence.IDLE),
        (KEY, None, False, SessionPresence.ABSENT),
        (SessionKey("agent:main:main"), None, False, SessionPresence.IDLE),
        (SessionKey("agent:elsewhere:main"), None, False, SessionPresence.ABSENT),
    ],
)
async def test_a_session_is_located_only_where_openclaw_has_it(
    gateway: ScriptedGateway,
    agent: OpenClawGatewayAgent,
    key: SessionKey,
    session: Json,
    is_active: bool,
    presence: SessionPresence,
) -> None:
    gateway.answers["sessions.describe"] = {"session": session}
    gateway.answers["chat.history"] = {"sessionInfo": {"hasActiveRun": is_active}}
    assert await agent.locate_session(key) is presence


async def test_without_session_descriptions_a_session_is_located_by_its_agent(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("sessions.describe")
    async def refuse(request: GatewayRequest) -> None:
        raise Refusal("INVALID_REQUEST", "unknown method")

    assert await agent.locate_session(KEY) is SessionPresence.IDLE
    elsewhere = SessionKey("agent:elsewhere:telegram:direct:7")
    assert await agent.locate_session(elsewhere) is SessionPresence.ABSENT


async def test_an_unreachable_openclaw_does_not_say_that_a_session_is_absent(
    make_agent: MakeAgent, free_tcp_port: int
) -> None:
    agent = make_agent(url=f"ws://127.0.0.1:{free_tcp_port}", connect_seconds=0.2)
    with pytest.raises(AgentUnavailable):
        await agent.locate_session(KEY)


async def test_agents_of_one_openclaw_have_the_same_host(make_agent: MakeAgent) -> None:
    one = make_agent(url="http://Localhost:18789/", agent_id="main")
    other = make_agent(url="ws://localhost:18789", agent_id="helper")
    assert one.host == other.host
    assert one.host != make_agent(url="ws://localhost:18790").host


async def test_the_only_agent_of_openclaw_owns_its_sessions_once_it_is_known(
    gateway: ScriptedGateway, make_agent: MakeAgent
) -> None:
    agent = make_agent(agent_id="", road="websocket")
    ours = SessionKey("agent:bob:a2a:local:c")
    assert not agent.owns_session(KEY)
    assert agent.host_session_key(ours) is None
    gateway.answers["agent"] = {"status": "ok", "result": {"payloads": [{"text": "hi"}]}}
    await run_turn(agent, make_turn_for())
    assert agent.owns_session(KEY)
    assert agent.host_session_key(ours) == "agent:main:via-bob:a2a:local:c"
    assert agent.host_session_key(SessionKey("agent:bob:main")) == "agent:main:main"


# -------------------------------------------------------------------- giving


@pytest.mark.requirement("calls.routing.source", "calls.host.no-announce")
async def test_a_message_is_delivered_as_a_turn_of_the_session(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    assert await agent.deliver(NOTE) == MessageAccepted()
    (request,) = gateway.methods("agent")
    assert request.params == {
        "agentId": "main",
        "sessionKey": KEY,
        "message": NOTE.text,
        "idempotencyKey": RUN,
        "inputProvenance": {
            "kind": "inter_session",
            "sourceSessionKey": NOTE.source_session,
            "sourceTool": "agent_call",
        },
        "deliver": False,
    }
    assert gateway.methods("chat.history") == []


@pytest.mark.parametrize(
    ("context", "sent"),
    [
        (ROUTE, {**ROUTE, "threadId": "3", "deliver": True, "bestEffortDeliver": True}),
        ({"channel": "webchat", "to": "x"}, {"deliver": False}),
        ({"channel": "telegram"}, {"deliver": False}),
        ({"channel": 7}, {"deliver": False}),
        ("odd", {"deliver": False}),
        (None, {"deliver": False}),
    ],
)
async def test_the_reply_to_a_delivered_message_goes_to_the_chat_of_its_session(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent, context: Json, sent: Json
) -> None:
    gateway.answers["sessions.describe"] = {"session": {"deliveryContext": context}}
    assert await agent.deliver(NOTE) == MessageAccepted()
    (request,) = gateway.methods("agent")
    found = {name: request.params.get(name) for name in (*sent, "deliver", "channel")}
    assert found == {"channel": None, **sent}


async def test_a_delivered_message_is_never_a_command(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    await agent.deliver(msgspec.structs.replace(NOTE, text="/new"))
    assert not gateway.methods("agent")[0].params["message"].startswith("/")


@pytest.mark.parametrize("status", ["accepted", "in_flight", "ok", "timeout"])
async def test_any_success_response_means_that_the_message_is_accepted(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent, status: str
) -> None:
    gateway.answers["agent"] = {"status": status, "runId": RUN}
    assert await agent.deliver(NOTE) == MessageAccepted()


async def test_a_session_that_is_gone_gets_nothing(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    gateway.answers["sessions.describe"] = {"session": None}
    gone = await agent.deliver(NOTE)
    assert isinstance(gone, SessionGone)
    assert KEY in gone.reason
    assert gateway.methods("agent") == []


async def test_a_main_session_is_there_before_it_was_used(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    gateway.answers["sessions.describe"] = {"session": None}
    note = msgspec.structs.replace(NOTE, session_key=SessionKey("agent:main:main"))
    assert await agent.deliver(note) == MessageAccepted()


async def test_an_openclaw_without_session_descriptions_gets_the_message(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("sessions.describe")
    async def refuse(request: GatewayRequest) -> None:
        raise Refusal("INVALID_REQUEST", "unknown method: sessions.describe")

    assert await agent.deliver(NOTE) == MessageAccepted()


@pytest.mark.parametrize("method", ["sessions.describe", "agent"])
async def test_a_lost_connection_is_reported_as_a_failed_delivery(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent, method: str
) -> None:
    @gateway.on(method)
    async def break_off(request: GatewayRequest) -> None:
        gateway.drop()

    missed = await agent.deliver(NOTE)
    assert isinstance(missed, DeliveryFailed)
    assert not missed.is_final
    assert "OpenClaw" in missed.reason


async def test_a_refused_delivery_fails_with_the_reason(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def refuse(request: GatewayRequest) -> None:
        raise Refusal("INVALID_REQUEST", "the session is archived")

    missed = await agent.deliver(NOTE)
    assert isinstance(missed, DeliveryFailed)
    assert not missed.is_final
    assert "the session is archived" in missed.reason


async def test_delivery_to_an_unreachable_openclaw_fails_for_now(make_agent: MakeAgent) -> None:
    agent = make_agent(url="ws://127.0.0.1:9", connect_seconds=0.1)
    missed = await agent.deliver(NOTE)
    assert isinstance(missed, DeliveryFailed)
    assert not missed.is_final
    assert "ws://127.0.0.1:9" in missed.reason


# -------------------------------------------------------------------- once


@pytest.mark.requirement("calls.state.looked-up")
@pytest.mark.parametrize(
    "history",
    [
        {"messages": [user_entry(RUN)]},
        {"messages": [assistant_entry(RUN, text_block("seen"))]},
        {"messages": [user_entry(AGAIN)]},
        pending(session_note_n1="queued"),
        pending(session_note_n1="interrupted", session_note_n1_again_1="queued"),
        {"messages": [], "sessionInfo": {"hasActiveRun": True, "activeRunIds": [RUN]}},
    ],
)
async def test_a_message_that_was_accepted_is_not_delivered_again(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent, history: Json
) -> None:
    gateway.answers["chat.history"] = history
    assert await agent.deliver(REPEATED) == MessageAccepted()
    assert gateway.methods("agent") == []


@pytest.mark.parametrize(
    ("history", "run_id"),
    [
        ({"messages": [user_entry("session-note-n2")]}, RUN),
        (pending(session_note_n1="interrupted"), AGAIN),
        (
            pending(session_note_n1="interrupted", session_note_n1_again_1="interrupted"),
            "session-note-n1-again-2",
        ),
    ],
)
async def test_a_lost_message_is_delivered_again_under_a_new_run_id(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent, history: Json, run_id: str
) -> None:
    gateway.answers["chat.history"] = history
    assert await agent.deliver(REPEATED) == MessageAccepted()
    (request,) = gateway.methods("agent")
    assert request.params["idempotencyKey"] == run_id


async def test_a_repeated_delivery_needs_the_history(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    gateway.answers["chat.history"] = {"messages": "none"}
    assert isinstance(await agent.deliver(REPEATED), DeliveryFailed)
    assert gateway.methods("agent") == []


# -------------------------------------------------------------------- seeing


async def seen(agent: OpenClawGatewayAgent) -> bool:
    with anyio.fail_after(240):
        return await agent.wait_processed(REPEATED)


@pytest.mark.parametrize(
    "outcome",
    [{"status": "ok"}, {"status": "error", "error": "aborted", "stopReason": "rpc"}],
)
async def test_a_message_is_processed_when_its_turn_has_ended(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent, outcome: Json
) -> None:
    gateway.answers["agent.wait"] = outcome
    assert await seen(agent)
    assert gateway.methods("agent.wait")[0].params["runId"] == RUN


async def test_a_message_whose_turn_failed_counts_as_processed(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    gateway.answers["agent.wait"] = {"status": "error", "error": "the provider failed"}
    gateway.answers["chat.history"] = {"messages": [user_entry(RUN)]}
    assert await seen(agent)


@pytest.mark.parametrize(
    "history", [{"messages": []}, pending(session_note_n1="interrupted"), {"messages": "odd"}]
)
async def test_a_lost_message_is_reported_as_not_processed(
    gateway: ScriptedGateway, make_agent: MakeAgent, short_timeouts: Timeouts, history: Json
) -> None:
    gateway.answers["chat.history"] = history
    assert not await seen(make_agent(timeouts=short_timeouts))


async def test_a_queued_message_is_waited_for(
    gateway: ScriptedGateway, make_agent: MakeAgent, short_timeouts: Timeouts
) -> None:
    gateway.answers["chat.history"] = pending(session_note_n1="queued")

    @gateway.on("agent.wait")
    async def wait(request: GatewayRequest) -> None:
        has_ended = len(gateway.methods("agent.wait")) == 3
        await request.answer({"status": "ok" if has_ended else "timeout"})

    assert await seen(make_agent(timeouts=short_timeouts))
    waits = [one.params["timeoutMs"] for one in gateway.methods("agent.wait")]
    assert waits == [50, 200, 200]


async def test_a_delivered_message_is_followed_over_a_lost_connection(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent.wait")
    async def wait(request: GatewayRequest) -> None:
        if len(gateway.methods("agent.wait")) == 1:
            gateway.restart()
            return
        await request.answer({"status": "ok"})

    assert await seen(agent)


async def test_a_message_is_processed_when_its_turn_was_resumed_after_a_restart(
    gateway: ScriptedGateway, make_agent: MakeAgent, short_timeouts: Timeouts
) -> None:
    recovery: Json = {
        **user_entry("recovery-1", "[System] go on"),
        "provenance": {"sourceTool": "main_session_restart_recovery"},
    }
    later = assistant_entry("recovery-1", text_block("done"))
    gateway.answers["chat.history"] = {"messages": [user_entry(RUN), recovery]}

    @gateway.on("agent.wait")
    async def wait(request: GatewayRequest) -> None:
        if len(gateway.methods("agent.wait")) == 2:
            gateway.answers["chat.history"] = {"messages": [user_entry(RUN), recovery, later]}
        await request.answer({"status": "timeout"})

    patient = msgspec.structs.replace(short_timeouts, recovery_s=60)
    assert await seen(make_agent(timeouts=patient))
    assert len(gateway.methods("chat.history")) == 2


async def test_a_message_whose_turn_is_not_resumed_counts_as_processed(
    gateway: ScriptedGateway, make_agent: MakeAgent, short_timeouts: Timeouts
) -> None:
    gateway.answers["chat.history"] = {"messages": [user_entry(AGAIN)]}
    assert await seen(make_agent(timeouts=short_timeouts))
    assert gateway.methods("agent.wait")[-1].params["runId"] == AGAIN


async def test_a_message_is_not_processed_while_openclaw_is_unreachable(
    make_agent: MakeAgent, short_timeouts: Timeouts
) -> None:
    timeouts = msgspec.structs.replace(short_timeouts, reconnect_s=3)
    agent = make_agent(url="ws://127.0.0.1:9", connect_seconds=0.1, timeouts=timeouts)
    assert not await seen(agent)


async def test_a_message_is_not_processed_while_the_history_cannot_be_read(
    gateway: ScriptedGateway, make_agent: MakeAgent, short_timeouts: Timeouts
) -> None:
    @gateway.on("chat.history")
    async def refuse(request: GatewayRequest) -> None:
        await request.refuse({"code": "UNAVAILABLE", "message": "busy", "retryable": True})

    timeouts = msgspec.structs.replace(short_timeouts, reconnect_s=3)
    assert not await seen(make_agent(timeouts=timeouts))


# -------------------------------------------------------------------- turns beside notes


async def test_the_run_of_a_delivered_message_is_not_adopted_as_a_recovery(
    gateway: ScriptedGateway, make_agent: MakeAgent, short_timeouts: Timeouts
) -> None:
    answered = assistant_entry(RUN, text_block("to the note"))
    state = {"hasActiveRun": True, "activeRunIds": [RUN]}

    @gateway.on("agent")
    async def take(request: GatewayRequest) -> None:
        messages = [user_entry("a2a-r1"), user_entry(RUN), answered]
        gateway.answers["chat.history"] = {"messages": messages, "sessionInfo": state}
        gateway.restart()

    events = await run_turn(make_agent(timeouts=short_timeouts), make_turn_for())
    assert isinstance(events[-1], Failed)
    assert not any(isinstance(event, Reply) for event in events)


async def test_the_reply_to_a_delivered_message_is_a_background_reply_only_in_our_sessions(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    """In the main session somebody else talks; what they are told is nothing for a task."""
    now, ours = datetime(2026, 1, 1, tzinfo=UTC), SessionKey("agent:main:a2a:local:c-1")
    main = RecentTask(TaskId("t-main"), SessionKey("agent:main:main"), now)
    call = RecentTask(TaskId("t-call"), SessionKey("agent:main:call:n1"), now)
    answer = {**assistant_entry("a2a-r1", text_block("ours"))}
    late = assistant_entry(RUN, text_block("now I know"))
    late["__openclaw"]["id"] = "m9"
    messages = [user_entry("a2a-r1"), answer, user_entry(RUN), late]
    gateway.answers["chat.history"] = {"messages": messages}
    events = cast(
        "AsyncGenerator[BackgroundEvent]",
        agent.background_events([main, call, RecentTask(TaskId("t"), ours, now)]),
    )
    with anyio.fail_after(240):
        reply = await anext(events)
    await events.aclose()
    assert reply == BackgroundReply(ours, "m9", (Part.of_text("now I know"),))
    assert {one.params["sessionKey"] for one in gateway.methods("chat.history")} == {ours}


ASKER = Provenance("agent_call", SessionKey("agent:bob:main"), "research", "execute", "n1")


async def test_the_message_of_a_peer_names_its_sender_and_account(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    gateway.answers["agent"] = {"status": "ok", "result": {"payloads": [{"text": "hi"}]}}
    turn = make_turn_for("hello")
    await run_turn(agent, msgspec.structs.replace(turn, principal=PeerName("alice")))
    (request,) = gateway.methods("agent")
    line = 'Sender known to the gateway: peer "alice", account "default"'
    assert line in request.params["message"].splitlines()


@pytest.mark.requirement("calls.invocation.no-channel")
async def test_a_call_names_its_caller_and_is_sent_without_a_fence(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    gateway.answers["agent"] = {"status": "ok", "result": {"payloads": [{"text": "hi"}]}}
    await run_turn(
        agent, make_turn_for('{"kind":"skill_invocation"}', provenance=ASKER, untrusted=("x",))
    )
    (request,) = gateway.methods("agent")
    assert request.params["message"] == '{"kind":"skill_invocation"}'
    assert request.params["deliver"] is False
    assert request.params["inputProvenance"] == {
        "kind": "inter_session",
        "sourceSessionKey": "agent:bob:main",
        "sourceTool": "agent_call",
    }
    assert gateway.methods("sessions.describe") == []


@pytest.mark.requirement("calls.settings.dual")
async def test_the_answer_to_a_call_is_announced_where_the_agent_is_read(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("sessions.describe")
    async def describe(request: GatewayRequest) -> None:
        is_main = request.params["key"] == "agent:main:main"
        await request.answer({"session": {"deliveryContext": ROUTE} if is_main else None})

    gateway.answers["agent"] = {"status": "ok", "result": {"payloads": [{"text": "hi"}]}}
    asker = msgspec.structs.replace(ASKER, may_announce=True)
    await run_turn(agent, make_turn_for("{}", provenance=asker))
    (request,) = gateway.methods("agent")
    wanted = {"deliver": True, "bestEffortDeliver": True, "channel": "telegram", "to": "7"}
    assert wanted.items() <= request.params.items()


async def test_an_agent_that_is_read_nowhere_announces_by_openclaws_own_choice(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    gateway.answers["sessions.describe"] = {"session": None}
    gateway.answers["agent"] = {"status": "ok", "result": {"payloads": [{"text": "hi"}]}}
    asker = msgspec.structs.replace(ASKER, may_announce=True)
    await run_turn(agent, make_turn_for("{}", provenance=asker))
    (request,) = gateway.methods("agent")
    assert request.params["deliver"] is True
    assert "channel" not in request.params
