"""Questions and approvals in the middle of a turn, and who may answer them."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from itertools import pairwise
from typing import cast

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agents.openclaw_gateway.conftest import Json, MakeAgent, make_turn_for, run_turn
from tests.agents.openclaw_gateway.scripted_gateway import (
    GatewayRequest,
    Refusal,
    ScriptedGateway,
    assistant_entry,
    run_event,
    text_block,
    user_entry,
)

from openclaw_a2a.agents.openclaw_gateway import OpenClawGatewayAgent
from openclaw_a2a.agents.openclaw_gateway.redaction import ApprovalRedactor
from openclaw_a2a.agents.openclaw_gateway.runs import Timeouts
from openclaw_a2a.model.agent_event import (
    AgentEvent,
    BackgroundEvent,
    BackgroundReply,
    Failed,
    InputRequired,
    MessageEnd,
    Note,
    PauseResolved,
    RecentTask,
    Reply,
    TextDelta,
)
from openclaw_a2a.model.errors import ApprovalNotFound, ApprovalOver, TaskNotCancelable
from openclaw_a2a.model.ids import SessionKey, TaskId
from openclaw_a2a.model.message import Part

KEY = "agent:main:a2a:local:c-1"
RUN = "a2a-r1"
QUESTION: Json = {
    "id": "ask-1",
    "questions": [
        {
            "questionId": "color",
            "header": "Color",
            "question": "Which color?",
            "options": [{"label": "Red"}, {"label": "Blue"}],
        }
    ],
    "runId": RUN,
    "sessionKey": KEY,
    "status": "pending",
}
COMMAND: Json = {
    "id": "approval-1",
    "request": {
        "command": "echo hi",
        "cwd": "/w",
        "agentId": "main",
        "runId": RUN,
        "sessionKey": KEY,
    },
    "createdAtMs": 1794744168730,
    "expiresAtMs": 1794745968730,
}
TOOL = {"name": "ask_user", "toolCallId": "c1"}
RESULT: Json = {
    "role": "toolResult",
    "toolCallId": "c1",
    "toolName": "ask_user",
    "content": [text_block("Blue")],
    "__openclaw": {"runId": RUN},
}
CALL = {"type": "toolCall", "id": "c1", "name": "ask_user", "arguments": {}}


def last(events: list[AgentEvent]) -> InputRequired:
    assert isinstance(events[-1], InputRequired)
    return events[-1]


def over(*messages: Json) -> Json:
    """The history of a run that has ended."""
    request = assistant_entry(RUN, text_block("I must ask."), CALL)
    return {"messages": [user_entry(RUN), request, RESULT, *messages]}


def ended(gateway: ScriptedGateway, text: str) -> None:
    """The run ends with this message."""
    gateway.answers["chat.history"] = over(assistant_entry(RUN, text_block(text)))
    gateway.answers["agent.wait"] = {"status": "ok", "terminalReply": {"text": text}}


@pytest.fixture
def asking(gateway: ScriptedGateway) -> ScriptedGateway:
    """A gateway whose agent asks a question."""

    @gateway.on("agent")
    async def ask(request: GatewayRequest) -> None:
        text = {"text": "I must ask.", "delta": "I must ask.", "itemId": "u:1"}
        await request.agent("assistant", text)
        await request.agent("tool", {"phase": "start", **TOOL})
        gateway.answers["question.list"] = {"questions": [QUESTION]}
        await request.event("question.requested", QUESTION)

    @gateway.on("question.resolve")
    async def resolve(request: GatewayRequest) -> None:
        gateway.answers["question.list"] = {"questions": []}
        await request.answer({"status": "answered"})
        ended(gateway, "So be it.")

    return gateway


@pytest.fixture
def guarded(gateway: ScriptedGateway) -> ScriptedGateway:
    """A gateway whose agent wants to run a command."""

    @gateway.on("agent")
    async def ask(request: GatewayRequest) -> None:
        await request.agent("tool", {"phase": "start", **TOOL})
        gateway.answers["exec.approval.list"] = [COMMAND]
        await request.event("exec.approval.requested", COMMAND)

    @gateway.on("approval.resolve")
    async def resolve(request: GatewayRequest) -> None:
        decision = request.params["decision"]
        gateway.answers["exec.approval.list"] = []
        ended(gateway, f"It was {decision}.")
        status = "denied" if decision == "deny" else "allowed"
        await request.answer({"applied": True, "approval": {"status": status}})
        for run in gateway.methods("agent"):
            resolved = {"decision": decision, "resolvedBy": "somebody", **COMMAND}
            await request.event("exec.approval.resolved", resolved)
            await run.end(f"It was {decision}.")

    return gateway


# -------------------------------------------------------------------- questions


async def test_a_question_pauses_the_task_and_the_next_message_continues_its_run(
    asking: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    pause = last(await run_turn(agent, make_turn_for()))
    assert pause.prompt == "Which color?\n- Red\n- Blue"
    assert asking.methods("chat.abort") == []
    events = await run_turn(agent, make_turn_for("blue", run="r2", resume=pause.resume))
    answers = asking.methods("question.resolve")[0].params
    assert answers == {"id": "ask-1", "answers": {"answers": {"color": ["Blue"]}}}
    assert [event for event in events if isinstance(event, Reply)] == [Reply.of_text("So be it.")]
    assert len(asking.methods("agent")) == 1


async def test_output_before_the_pause_is_not_emitted_again(
    asking: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    pause = last(await run_turn(agent, make_turn_for()))
    events = await run_turn(agent, make_turn_for("blue", run="r2", resume=pause.resume))
    assert not any(isinstance(event, Reply) and "ask" in str(event) for event in events)


async def test_a_question_asked_while_disconnected_is_found(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    gateway.answers["chat.history"] = {
        "messages": [user_entry(RUN)],
        "sessionInfo": {"hasActiveRun": True, "activeRunIds": [RUN]},
    }
    gateway.answers["question.list"] = {"questions": [{**QUESTION, "runId": "other"}, QUESTION]}

    @gateway.on("agent.wait")
    async def wait(request: GatewayRequest) -> None:
        if request.params["timeoutMs"] == 1:
            await request.answer({"status": "timeout"})

    events = await run_turn(agent, make_turn_for(attempt=2))
    assert last(events).resume["id"] == "ask-1"


async def test_a_refused_answer_asks_again(
    asking: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    pause = last(await run_turn(agent, make_turn_for()))

    @asking.on("question.resolve")
    async def refuse(request: GatewayRequest) -> None:
        raise Refusal("INVALID_REQUEST", "too long", reason="QUESTION_INVALID_ANSWER")

    again = last(await run_turn(agent, make_turn_for("blue", run="r2", resume=pause.resume)))
    assert "too long" in again.prompt
    assert again.resume == pause.resume


async def test_an_answer_to_a_question_that_is_over_becomes_a_turn_of_its_own(
    asking: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    pause = last(await run_turn(agent, make_turn_for()))
    asking.answers["question.list"] = {"questions": []}
    ended(asking, "I chose myself.")

    @asking.on("agent")
    async def answer(request: GatewayRequest) -> None:
        await request.end(f"echo: {request.params['message']}")

    events = await run_turn(agent, make_turn_for("blue", run="r2", resume=pause.resume))
    assert any("was over before" in note.text for note in events if isinstance(note, Note))
    texts = [event.parts[0].text for event in events if isinstance(event, Reply)]
    assert texts == ["I chose myself.", "echo: blue"]
    assert asking.methods("agent")[1].params["idempotencyKey"] == "a2a-r2"


async def test_a_pause_resolved_elsewhere_continues_without_a_message(
    asking: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    pause = last(await run_turn(agent, make_turn_for()))
    asking.answers["question.list"] = {"questions": []}
    ended(asking, "Answered elsewhere.")
    from_engine = make_turn_for(
        "The question was answered.", run="r2", resume=pause.resume, message_id="pause-over-1"
    )
    events = await run_turn(agent, from_engine)
    assert not any(isinstance(event, Note) for event in events)
    assert Reply.of_text("Answered elsewhere.") in events
    assert len(asking.methods("agent")) == 1


async def test_the_state_of_a_pause_is_requested_again_after_a_temporary_error(
    asking: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    pause = last(await run_turn(agent, make_turn_for()))

    @asking.on("question.get")
    async def get(request: GatewayRequest) -> None:
        if len(asking.methods("question.get")) == 1:
            await request.refuse({"code": "UNAVAILABLE", "message": "busy", "retryable": True})
        else:
            await request.answer({"question": {**QUESTION, "status": "answered"}})

    events = cast("AsyncGenerator[BackgroundEvent]", agent.background_events([]))
    with anyio.fail_after(240):
        over = await anext(events)
    await events.aclose()
    assert isinstance(over, PauseResolved)
    assert (over.task_id, over.resume) == ("task-c-1", pause.resume)
    assert asking.entries == 1


async def test_a_question_answered_before_its_request_is_handled_continues_the_task(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("agent")
    async def ask(request: GatewayRequest) -> None:
        # The run and the watcher have a queue each, so the watcher may be ahead of the run.
        await request.event("question.resolved", {"id": "ask-1", "status": "answered"})
        await request.event("question.requested", QUESTION)

    gateway.answers["question.get"] = {"question": {**QUESTION, "status": "answered"}}
    events = cast("AsyncGenerator[BackgroundEvent]", agent.background_events([]))
    reported: list[BackgroundEvent] = []

    async def watch() -> None:
        reported.append(await anext(events))

    with anyio.fail_after(240):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await gateway.wait_for("agents.list")
            last(await run_turn(agent, make_turn_for()))
    await events.aclose()
    [over] = reported
    assert isinstance(over, PauseResolved)
    assert over.task_id == "task-c-1"


async def test_a_question_whose_answer_was_reported_to_nobody_continues_the_task(
    asking: ScriptedGateway, make_agent: MakeAgent
) -> None:
    agent = make_agent(road="websocket", connect_seconds=60, timeouts=Timeouts(pause_check_s=0.01))
    pause = last(await run_turn(agent, make_turn_for()))
    asking.answers["question.get"] = {"question": {**QUESTION, "status": "pending"}}
    events = cast("AsyncGenerator[BackgroundEvent]", agent.background_events([]))
    with anyio.fail_after(240):
        async with anyio.create_task_group() as tasks:

            async def answer() -> None:
                await asking.wait_for("question.get")
                # Without an event: it came before the run had handled the request.
                asking.answers["question.get"] = {"question": {**QUESTION, "status": "answered"}}

            tasks.start_soon(answer)
            over = await anext(events)
    await events.aclose()
    assert isinstance(over, PauseResolved)
    assert (over.task_id, over.resume) == ("task-c-1", pause.resume)
    assert len(asking.methods("question.get")) > 1


async def test_the_answer_to_a_pause_whose_run_is_gone_starts_a_new_run(
    asking: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    pause = last(await run_turn(agent, make_turn_for()))
    asking.answers["question.list"] = {"questions": []}

    @asking.on("agent")
    async def answer(request: GatewayRequest) -> None:
        await request.end("fresh")

    events = await run_turn(agent, make_turn_for("blue", run="r2", resume=pause.resume))
    assert Reply.of_text("fresh") in events


async def test_an_unknown_run_without_a_message_fails(
    asking: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    pause = last(await run_turn(agent, make_turn_for()))
    asking.answers["question.list"] = {"questions": []}
    events = await run_turn(
        agent, make_turn_for(resume=pause.resume, run="r2", message_id="pause-over-1")
    )
    assert isinstance(events[-1], Failed)


async def test_a_restart_after_the_answer_continues_without_a_note(
    asking: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    pause = last(await run_turn(agent, make_turn_for()))
    asking.answers["question.list"] = {"questions": []}
    ended(asking, "So be it.")
    events = await run_turn(agent, make_turn_for("blue", run="r2", resume=pause.resume, attempt=2))
    assert not any(isinstance(event, Note) for event in events)
    assert Reply.of_text("So be it.") in events
    assert len(asking.methods("agent")) == 1


@pytest.mark.parametrize("resume", [7, "x", {"kind": "other"}, [], {"kind": "question"}])
async def test_a_token_that_is_not_ours_begins_a_new_turn(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent, resume: Json
) -> None:
    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        await request.end("new")

    assert (await run_turn(agent, make_turn_for(resume=resume)))[0] == Reply.of_text("new")


async def test_cancelling_a_paused_task_stops_the_run_that_waits(
    asking: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    turn = make_turn_for()
    pause = last(await run_turn(agent, turn))

    @asking.on("chat.abort")
    async def abort(request: GatewayRequest) -> None:
        await request.answer({"aborted": True})
        settled = {"phase": "error", "executionSettled": True}
        await request.event("agent", run_event(RUN, KEY, "lifecycle", settled))

    await agent.cancel_pause(turn.binding, pause.resume)
    assert asking.methods("chat.abort")[0].params == {"sessionKey": KEY, "runId": RUN}


async def test_a_pause_that_cannot_be_ended_is_not_cancelled(
    asking: ScriptedGateway, make_agent: MakeAgent, short_timeouts: Timeouts
) -> None:
    agent = make_agent(timeouts=short_timeouts, connect_seconds=1)
    turn = make_turn_for()
    pause = last(await run_turn(agent, turn))
    asking.answers["chat.history"] = {
        "messages": [],
        "sessionInfo": {"hasActiveRun": True, "activeRunIds": [RUN]},
    }
    with pytest.raises(TaskNotCancelable):
        await agent.cancel_pause(turn.binding, pause.resume)


# -------------------------------------------------------------------- approvals


async def test_the_operator_decides_by_default_and_the_status_names_the_command(
    guarded: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    events: list[AgentEvent] = []
    async for event in agent.run(make_turn_for()):
        events.append(event)
        if isinstance(event, Note) and "Waits for the operator" in event.text:
            (waiting,) = await agent.approvals()
            assert (waiting.command, waiting.cwd, waiting.task_id) == ("echo hi", "/w", "task-c-1")
            assert waiting.id not in event.text
            assert "echo hi" in event.text
            await agent.decide(waiting.id, allow=True)
    assert Note("The command was allowed by the operator.") in events
    assert Reply.of_text("It was allow-once.") in events
    assert guarded.methods("approval.resolve")[0].params["decision"] == "allow-once"


async def test_a_peer_that_may_approve_is_asked_until_its_answer_is_clear(
    guarded: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    pause = last(await run_turn(agent, make_turn_for(may_approve=True)))
    assert "echo hi" in pause.prompt
    assert "/w" in pause.prompt
    (waiting,) = await agent.approvals()
    assert waiting.task_id == "task-c-1"
    again = last(
        await run_turn(
            agent, make_turn_for("why?", run="r2", resume=pause.resume, may_approve=True)
        )
    )
    assert guarded.methods("approval.resolve") == []
    events = await run_turn(
        agent, make_turn_for("No.", run="r3", resume=again.resume, may_approve=True)
    )
    assert guarded.methods("approval.resolve")[0].params["decision"] == "deny"
    assert Reply.of_text("It was deny.") in events


async def test_a_peer_that_may_not_approve_changes_nothing(
    guarded: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    pause = last(await run_turn(agent, make_turn_for(may_approve=True)))
    guarded.answers["chat.history"] = {
        "messages": [user_entry(RUN)],
        "sessionInfo": {"hasActiveRun": True, "activeRunIds": [RUN]},
    }
    events: list[AgentEvent] = []
    async for event in agent.run(make_turn_for("approve", run="r2", resume=pause.resume)):
        events.append(event)
        assert isinstance(event, Note)
        assert "operator" in event.text
        assert guarded.methods("approval.resolve") == []
        break
    assert events


async def test_decisions_on_unknown_or_resolved_approvals_are_errors(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    @gateway.on("approval.resolve")
    async def resolve(request: GatewayRequest) -> None:
        if request.params["id"] == "unknown":
            raise Refusal("INVALID_REQUEST", "approval not found", reason="APPROVAL_NOT_FOUND")
        record = {"status": "expired", "reason": "timeout"}
        await request.answer({"applied": False, "approval": record})

    with pytest.raises(ApprovalNotFound, match="approvals list"):
        await agent.decide("unknown", allow=True)
    with pytest.raises(ApprovalOver, match="it expired"):
        await agent.decide("old", allow=True)


async def test_an_approval_requested_while_disconnected_is_reported(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    gateway.answers["exec.approval.list"] = [COMMAND]
    gateway.answers["chat.history"] = {
        "messages": [user_entry(RUN)],
        "sessionInfo": {"hasActiveRun": True, "activeRunIds": [RUN]},
    }

    @gateway.on("agent.wait")
    async def wait(request: GatewayRequest) -> None:
        if request.params["timeoutMs"] == 1:
            await request.answer({"status": "timeout"})
            return
        # The event may arrive after all; the approval is not reported twice.
        await request.event("exec.approval.requested", COMMAND)
        text = {"text": "Done.", "delta": "Done.", "itemId": "u:1"}
        await request.event("agent", run_event(RUN, KEY, "assistant", text))
        gateway.script.pop("agent.wait")
        ended(gateway, "Done.")
        await request.answer({"status": "ok"})

    events = await run_turn(agent, make_turn_for(attempt=2))
    waits = [one for one in events if isinstance(one, Note) and "Waits for" in one.text]
    assert len(waits) == 1
    assert "Done." in str([one for one in events if isinstance(one, Reply | TextDelta)])


# -------------------------------------------------------------------- what only the operator sees

ID = "3f0c9a7e-52b1-4d0e-9c11-8a6f2b7d4e90"
FOLDER = "/srv/op/.openclaw/workspace"
CWD = "/srv/op/shop"


def check_hidden(event: AgentEvent | BackgroundEvent) -> None:
    shown = msgspec.json.encode(event).decode()
    assert [one for one in (ID[:8], ID[-8:], FOLDER, CWD) if one in shown] == [], shown


async def test_a_peer_that_may_not_approve_sees_neither_folders_nor_approval_ids(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    known = {"id": "main", "workspace": FOLDER}
    gateway.answers["agents.list"] = {"defaultId": "main", "agents": [known]}
    command = {**COMMAND["request"], "command": f"cd {CWD} && ls {FOLDER} {ID}", "cwd": CWD}
    pieces = ["The id is 3f0c", ID[4:20], f"{ID[20:]} in /srv/op/.ope", "nclaw/workspace/a. 3"]

    @gateway.on("agent")
    async def work(request: GatewayRequest) -> None:
        await request.event("exec.approval.requested", {**COMMAND, "id": ID, "request": command})
        await request.agent("run_status", {"message": f"Waits for {ID} in {FOLDER}"})
        await request.agent("tool", {"phase": "start", **TOOL, "args": {"workdir": f"{CWD}/a"}})
        for number, piece in enumerate(pieces, 1):
            text = {"text": "".join(pieces[:number]), "delta": piece, "itemId": "u:1"}
            await request.agent("assistant", text)
        details = {"approvalId": ID, "approvalSlug": ID[:8], "cwd": CWD, ID: 1}
        content = [f"Approval {ID[:8]}", {FOLDER: "is there"}]
        result = {"details": details, "content": content}
        await request.agent("tool", {"phase": "result", **TOOL, "result": result})
        await request.end("".join(pieces))

    events = await run_turn(agent, make_turn_for())
    for event in events:
        check_hidden(event)
    (waits, status) = [one.text for one in events if isinstance(one, Note)]
    assert waits.startswith("Waits for the operator to allow: cd ... && ls ... ...;")
    assert status == "Waits for ... in ..."
    deltas = [one.text for one in events if isinstance(one, TextDelta)]
    assert "".join(deltas) == "The id is ... in .../a. 3"


async def test_background_replies_show_neither_folders_nor_approval_ids(
    gateway: ScriptedGateway, agent: OpenClawGatewayAgent
) -> None:
    known = {"id": "main", "workspace": FOLDER}
    gateway.answers["agents.list"] = {"defaultId": "main", "agents": [known]}
    text = f"Exec denied (gateway id={ID}, user-denied): ls {FOLDER}"
    ours = assistant_entry(RUN, text_block("ours"))
    late = assistant_entry("cron-7", text_block(text))
    late["__openclaw"] = {"runId": "cron-7", "id": "m1"}
    gateway.answers["chat.history"] = {"messages": [user_entry(RUN), ours, late]}
    recent = RecentTask(TaskId("t"), SessionKey(KEY), datetime(2026, 1, 1, tzinfo=UTC))
    events = cast("AsyncGenerator[BackgroundEvent]", agent.background_events([recent]))
    with anyio.fail_after(240):
        reply = await anext(events)
    await events.aclose()
    check_hidden(reply)
    assert isinstance(reply, BackgroundReply)
    assert reply.parts[0].text == "Exec denied (gateway id=..., user-denied): ls ..."


words = st.sampled_from([ID, ID[:8], FOLDER, CWD, "3f", "/srv/op", "gateway id=", ID[3:], " ", "a"])


@given(st.lists(words, max_size=6).map("".join), st.lists(st.integers(0, 200), max_size=6))
def test_streamed_text_hides_the_same_wherever_it_is_cut(text: str, cuts: list[int]) -> None:
    whole = ApprovalRedactor(FOLDER, {ID: CWD}).redact_parts((Part(text=text),))[0].text or ""
    redactor = ApprovalRedactor(FOLDER, {ID: CWD})
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    steps = [TextDelta(text[start:end]) for start, end in pairwise(places)]
    events = [event for step in [*steps, MessageEnd()] for event in redactor.redact_event(step)]
    assert events.pop() == MessageEnd()
    shown = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert [one for one in (ID[:8], FOLDER, CWD) if one in shown] == []
    assert shown == whole
