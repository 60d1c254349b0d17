"""Events of a peer accumulate into a summary."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.remote.result import TERMINAL_STATES
from openclaw_a2a.remote.result_builder import EventAccumulator, continuation_task


def message(text: str, role: str = "agent", **more: object) -> JsonObject:
    parts = [{"kind": "text", "text": one} for one in text.split("|")]
    return {"kind": "message", "messageId": "m", "role": role, "parts": parts, **more}


def artifact(artifact_id: str, text: str, **more: object) -> JsonObject:
    return {"artifactId": artifact_id, "parts": [{"kind": "text", "text": text}], **more}


def task(state: str, **more: object) -> JsonObject:
    return {"kind": "task", "id": "t", "contextId": "c", "status": {"state": state}, **more}


def status(state: str, text: str | None = None, role: str = "agent") -> JsonObject:
    task: JsonObject = {"state": state}
    if text is not None:
        task["message"] = message(text, role)
    return {"kind": "status-update", "taskId": "t", "contextId": "c", "status": task}


def update(artifact_: JsonObject, *, append: bool = False) -> JsonObject:
    event: JsonObject = {"kind": "artifact-update", "taskId": "t", "contextId": "c"}
    return {**event, "artifact": artifact_, "append": append}


def after(*events: JsonObject) -> EventAccumulator:
    received = EventAccumulator()
    for event in events:
        received.add(event)
    return received


@pytest.mark.requirement("remote.summary.message", "remote.summary.kind")
def test_the_parts_of_a_message_are_paragraphs() -> None:
    received = after(message("one|two", contextId="c-9"))
    assert received.response_kind == "message"
    assert received.message_text == "one\n\ntwo"
    assert (received.context_id, received.task_id) == ("c-9", None)


@pytest.mark.requirement("remote.summary.kind", "remote.summary.other-text")
def test_several_messages_have_no_kind_and_the_text_of_the_last() -> None:
    received = after(message("one"), message("two"))
    assert received.response_kind is None
    assert received.message_text == "two"


@pytest.mark.requirement("remote.summary.artifacts-text")
def test_the_texts_of_artifacts_come_in_order() -> None:
    received = after(task("completed", artifacts=[artifact("a", "one"), artifact("b", "two")]))
    assert received.response_kind == "task"
    assert received.message_text == "one\n\ntwo"


@pytest.mark.requirement("remote.summary.attention")
@pytest.mark.parametrize(
    "state", ["input-required", "auth-required", "failed", "rejected", "canceled"]
)
def test_the_text_of_a_paused_or_failed_status_comes_first(state: str) -> None:
    received = after(update(artifact("a", "so far")), status(state, "Look!"))
    assert received.message_text == "Look!\n\nso far"


@pytest.mark.requirement("remote.summary.other-text")
def test_the_text_of_other_statuses_is_used_only_without_artifacts() -> None:
    assert after(status("working", "busy")).message_text == "busy"
    assert after(status("completed", "done"), update(artifact("a", "x"))).message_text == "x"


@pytest.mark.requirement("remote.summary.other-text")
def test_without_artifact_and_status_the_last_agent_message_of_the_history_is_used() -> None:
    history = [message("question", "user"), message("answer"), message("thanks", "user")]
    assert after(task("completed", history=history)).message_text == "answer"


@pytest.mark.requirement("remote.summary.not-ours")
def test_text_of_the_user_is_never_used() -> None:
    received = after(
        task("working", history=[message("secret", "user")]), status("working", "mine", "user")
    )
    assert not received.message_text


@pytest.mark.requirement("remote.summary.pieces")
def test_appended_parts_join_and_replace_names() -> None:
    received = after(
        update(artifact("a", "one ")),
        update(artifact("a", "two", name="Report"), append=True),
        update(artifact("b", "other"), append=True),
    )
    assert received.message_text == "one two\n\nother"
    assert received.artifacts[0]["name"] == "Report"
    assert len(received.artifacts[0]["parts"]) == 2


@pytest.mark.requirement("remote.summary.pieces")
def test_a_task_event_replaces_the_artifacts() -> None:
    received = after(
        update(artifact("a", "old")), task("completed", artifacts=[artifact("b", "new")])
    )
    assert [one["artifactId"] for one in received.artifacts] == ["b"]


@pytest.mark.requirement("remote.summary.artifacts")
def test_returned_artifacts_are_copies() -> None:
    event = update(artifact("a", "one"))
    kept = copy.deepcopy(event)
    received = after(event, update(artifact("a", "two"), append=True))
    received.artifacts[0]["parts"].clear()
    assert event == kept
    assert received.message_text == "onetwo"


@pytest.mark.requirement("remote.go-on.open", "remote.go-on.no-stream")
@pytest.mark.parametrize("state", [None, "submitted", "working", "input-required", "auth-required"])
def test_an_open_task_can_be_continued(state: str | None) -> None:
    task = continuation_task("t", "rah_1", state=state, streams=True)
    flags = {key: value for key, value in task.items() if key.startswith("can_")}
    assert flags == dict.fromkeys(
        ["can_resume_send", "can_send", "can_status", "can_cancel", "can_watch"], True
    )
    assert task.get("status") == state
    assert ("status" in task) is (state is not None)
    assert continuation_task("t", "h", state=state, streams=False)["can_watch"] is False


@pytest.mark.requirement("remote.go-on.ended")
@pytest.mark.parametrize("state", sorted(TERMINAL_STATES))
def test_an_ended_task_allows_only_status(state: str) -> None:
    task = continuation_task("t", "rah_1", state=state, streams=True)
    assert task["can_status"] is True
    assert not any(task[f"can_{what}"] for what in ("resume_send", "send", "cancel", "watch"))


_TEXT = st.text(max_size=5)
_EVENT = st.one_of(
    st.builds(lambda text: message(text), _TEXT),
    st.builds(
        lambda state, text: status(state, text), st.sampled_from(["working", "completed"]), _TEXT
    ),
    st.builds(
        lambda name, text, append: update(artifact(name, text), append=append),
        st.sampled_from("ab"),
        _TEXT,
        st.booleans(),
    ),
    st.just({"kind": "something-new"}),
)


@given(st.lists(_EVENT, max_size=12))
def test_any_order_of_events_is_accumulated(events: list[JsonObject]) -> None:
    received = after(*events)
    assert received.events == events
    for one in received.artifacts:
        streamed: list[str] = []
        for event in events:
            if (
                event["kind"] == "artifact-update"
                and event["artifact"]["artifactId"] == one["artifactId"]
            ):
                text = event["artifact"]["parts"][0]["text"]
                streamed = [*streamed, text] if event["append"] and streamed else [text]
        assert [part["text"] for part in one["parts"]] == streamed


def parts_of(*texts: str) -> JsonObject:
    return {"artifactId": "a", "parts": [{"kind": "text", "text": one} for one in texts]}


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([task("completed", artifacts=[parts_of("one", "two")])], "one\n\ntwo"),
        ([update(parts_of("one", "two"))], "one\n\ntwo"),
        ([update(parts_of("on")), update(parts_of("e"), append=True)], "one"),
        ([update(parts_of("o")), update(parts_of("ne", "two"), append=True)], "one\n\ntwo"),
        # What was streamed in chunks is often stored in chunks.
        ([task("completed", artifacts=[parts_of("on", "e tw", "o ", "three")])], "one two three"),
        (
            [
                update(parts_of("on")),
                update(parts_of("e"), append=True),
                task("completed", artifacts=[parts_of("on", "e")]),
            ],
            "one",
        ),
        ([update(parts_of("one")), update(parts_of("two", "three"))], "two\n\nthree"),
        ([update(parts_of("one", "", "two"))], "one\n\ntwo"),
        # Without blanks nothing tells chunks from paragraphs, unless they were streamed.
        ([task("completed", artifacts=[parts_of("你好", "世界")])], "你好\n\n世界"),
        ([update(parts_of("你好")), update(parts_of("世界"), append=True)], "你好世界"),
    ],
    ids=[
        *("task", "event", "chunks", "both", "stored chunks", "repeated", "replaced", "empty"),
        *("stored without blanks", "streamed without blanks"),
    ],
)
def test_separate_parts_are_paragraphs_and_chunks_are_not(
    events: list[JsonObject], text: str
) -> None:
    assert after(*events).message_text == text
