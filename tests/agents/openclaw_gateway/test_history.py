"""Background replies in a session's history, and the session keys at OpenClaw."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.agents.openclaw_gateway.background_events import (
    ForeignReplies,
    ForeignReply,
    background_reply_parts,
    find_foreign_replies,
)
from openclaw_a2a.agents.openclaw_gateway.history import (
    RECOVERY,
    HistoryEntry,
    HistoryResponse,
    SessionHistory,
)
from openclaw_a2a.agents.openclaw_gateway.protocol import decode_as
from openclaw_a2a.agents.openclaw_gateway.runs import (
    Pause,
    RunRegistry,
    find_our_session,
    openclaw_session_key,
)
from openclaw_a2a.model.ids import AgentId, ContextId, PeerName, TaskId
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.session_keys import session_key

Json = Any


def input_entry(run_id: str, **more: Json) -> Json:
    return {"role": "user", "content": "do it", "idempotencyKey": f"{run_id}:user", **more}


def reply_entry(run_id: str, text: str = "done", **more: Json) -> Json:
    content = [{"type": "text", "text": text}]
    mark = {"id": f"id-of-{text}", "runId": run_id, "recordTimestampMs": 5}
    return {"role": "assistant", "content": content, "__openclaw": mark, **more}


RESUMED = {"provenance": {"kind": "internal_system", "sourceTool": RECOVERY}}
CRON = {"provenance": {"kind": "internal_system", "sourceTool": "cron"}, "role": "assistant"}


def entries_of(response: Json) -> list[HistoryEntry]:
    decoded = decode_as(HistoryResponse, msgspec.json.encode(response)) or HistoryResponse()
    return SessionHistory(decoded).entries


def replies(*messages: Json) -> ForeignReplies:
    return find_foreign_replies(entries_of({"messages": list(messages)}), RunRegistry().is_ours)


def texts(found: tuple[ForeignReply, ...] | None) -> list[str] | None:
    return None if found is None else [reply.entry.text for reply in found]


def test_a_reply_of_another_run_after_ours_is_a_background_reply() -> None:
    found = replies(
        input_entry("x"),
        reply_entry("x", "early"),
        input_entry("a2a-1"),
        reply_entry("a2a-1"),
        reply_entry("y", "late"),
    )
    assert texts(found.later) == ["late"]
    assert texts(found.all) == ["early", "late"]
    assert texts(found.of_run("y")) == ["late"]


def test_without_an_entry_of_ours_no_reply_counts_as_later() -> None:
    assert replies(input_entry("x"), reply_entry("x")).later is None


def test_an_injected_message_is_found_by_the_name_of_its_event() -> None:
    mark = {"id": "m-1"}
    injected = reply_entry("", "hello", provider="openclaw") | {"__openclaw": mark}
    found = replies(input_entry("a2a-1"), reply_entry("a2a-1"), injected)
    assert texts(found.later) == ["hello"]
    assert texts(found.of_run("inject-m-1")) == ["hello"]


def test_the_input_of_a_cron_job_is_not_a_reply() -> None:
    question = input_entry("c") | CRON | {"__openclaw": {"id": "q"}}
    assert texts(replies(input_entry("a2a-1"), question, reply_entry("c2", "the news")).later) == [
        "the news"
    ]


def test_a_recovery_of_our_turn_is_not_a_background_reply() -> None:
    found = replies(input_entry("a2a-1"), input_entry("r", **RESUMED), reply_entry("r", "resumed"))
    assert texts(found.all) == []
    twice = replies(
        input_entry("a2a-1"),
        input_entry("r", **RESUMED),
        input_entry("s", **RESUMED),
        reply_entry("s"),
    )
    assert texts(twice.all) == []


def test_a_recovery_of_a_foreign_turn_is_a_background_reply() -> None:
    found = replies(
        reply_entry("a2a-1"),
        input_entry("x"),
        input_entry("r", **RESUMED),
        reply_entry("r", "resumed"),
    )
    assert texts(found.later) == ["resumed"]


def test_a_recovery_of_a_turn_that_is_not_shown_counts_as_ours() -> None:
    assert texts(replies(input_entry("r", **RESUMED), reply_entry("r", "resumed")).all) == []


def test_a_run_that_a_turn_adopted_is_ours() -> None:
    registry = RunRegistry()
    registry.adopt("r")
    entries = entries_of({"messages": [input_entry("a2a-1"), reply_entry("r", "resumed")]})
    assert find_foreign_replies(entries, registry.is_ours).all == ()


def test_steps_and_stopped_messages_are_no_replies() -> None:
    call = {"type": "toolCall", "id": "c", "name": "exec", "arguments": {}}
    step = reply_entry("x", "let me see", stopReason="toolUse")
    calling = reply_entry("x") | {"content": [{"type": "text", "text": "so"}, call]}
    result = {"role": "toolResult", "content": [{"type": "text", "text": "out"}]}
    stopped = reply_entry("x", "half", openclawAbort={"aborted": True})
    found = replies(input_entry("a2a-1"), input_entry("x"), step, calling, result, stopped)
    assert texts(found.all) == []


def test_thinking_blocks_are_left_out() -> None:
    content = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "yes"}]
    assert texts(replies(reply_entry("x") | {"content": content}).all) == ["yes"]


def test_a_background_reply_has_its_text_and_a_data_part_with_the_rest() -> None:
    delivery = {"audioAsVoice": True, "replyToId": "abc", "channelData": {"k": 1}}
    message = reply_entry(
        "x", "look\nMEDIA:/w/a.png\nMEDIA:/etc/hostname", openclawDelivery=delivery
    )
    (reply,) = replies(message | {"stopReason": "error"}).all
    text, extras = background_reply_parts(reply.entry, "/w")
    assert (
        text.text == "look\n\n[The file hostname is left out: it is not in the agent's workspace.]"
    )
    assert extras == Part.of_data(
        {
            "mediaUrls": ["a.png"],
            "channelData": {"k": 1},
            "isError": True,
            "audioAsVoice": True,
            "replyToId": "abc",
        }
    )


def test_files_that_openclaw_keeps_or_lost_are_named() -> None:
    kept = {"type": "attachment", "attachment": {"url": "/api/chat/media/outgoing/x/full"}}
    lost = {"type": "attachment_error", "attachment": {"label": "i.svg"}}
    (reply,) = replies(reply_entry("x") | {"content": [kept, lost]}).all
    text, extras = background_reply_parts(reply.entry, "/w")
    assert text.text == "[The file i.svg is left out: OpenClaw could not deliver it.]"
    assert extras.data == {"mediaUrls": ["/api/chat/media/outgoing/x/full"]}


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(), st.text(max_size=6)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(
                [
                    "messages",
                    "role",
                    "content",
                    "type",
                    "text",
                    "__openclaw",
                    "id",
                    "runId",
                    "idempotencyKey",
                    "provenance",
                    "timestamp",
                    "stopReason",
                    "openclawDelivery",
                    "attachment",
                    "url",
                    "label",
                    "provider",
                ]
            ),
            inner,
            max_size=6,
        ),
    ),
    max_leaves=30,
)


@given(messages=st.lists(json_values, max_size=6))
def test_any_history_gives_valid_background_replies(messages: list[Json]) -> None:
    found = find_foreign_replies(entries_of({"messages": messages}), RunRegistry().is_ours)
    for reply in (*found.all, *(found.later or ())):
        parts = background_reply_parts(reply.entry, "/w")
        assert parts
        assert len(parts) <= 2
        assert reply.entry.id


@given(answer=json_values)
def test_any_answer_is_read(answer: Json) -> None:
    assert isinstance(entries_of(answer), list)


labels = st.text(min_size=1, max_size=12)


@given(
    own=st.from_regex(r"[a-z0-9_-]{1,12}", fullmatch=True),
    theirs=st.sampled_from(["main", "helper", "Main", "via-x"]),
    peer=labels,
    context=labels,
)
def test_a_session_is_found_back_from_its_name_at_openclaw(
    own: str, theirs: str, peer: str, context: str
) -> None:
    key = session_key(AgentId(own), PeerName(peer), ContextId(context))
    assert find_our_session(openclaw_session_key(key, theirs), theirs) == key


@pytest.mark.parametrize(
    "name", ["agent:main:main", "agent:helper:a2a:p:c", "agent:main:via-x:cron:1", "", "a2a:p:c"]
)
def test_foreign_sessions_are_not_ours(name: str) -> None:
    assert find_our_session(name, "main") is None


def test_the_registry_lists_the_pauses_of_tasks() -> None:
    registry = RunRegistry()
    pause = Pause("question", "ask_1", "a2a-1")
    registry.pauses[TaskId("t")] = pause.resume
    registry.pauses[TaskId("u")] = {"something": "else"}
    assert list(registry.list_pauses()) == [("t", pause)]
    assert Pause.from_resume(msgspec.json.decode(msgspec.json.encode(pause.resume))) == pause
    del registry.pauses[TaskId("t")]
    assert list(registry.list_pauses()) == []
