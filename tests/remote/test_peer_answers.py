"""Answers of peers are decoded into one form, or are a failure."""

import pytest
from a2a.types import a2a_pb2 as pb
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.remote.errors import RemoteFailure
from openclaw_a2a.remote.result.result_builder import EventAccumulator
from openclaw_a2a.remote.transport.codec import decode_peer_answer


def read(outcome: JsonObject) -> JsonObject:
    return decode_peer_answer(outcome)


@pytest.mark.requirement("remote.envelope.kinds")
def test_a_task_with_all_fields_is_decoded() -> None:
    words = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hi"}]}
    outcome = read(
        {
            "task": {
                "id": "t",
                "contextId": "c",
                "status": {
                    "state": "TASK_STATE_INPUT_REQUIRED",
                    "message": words,
                    "timestamp": "2026-01-01T00:00:00Z",
                },
                "history": [{**words, "role": "ROLE_USER", "taskId": "t", "contextId": "c"}],
                "artifacts": [
                    {
                        "artifactId": "a",
                        "name": "n",
                        "parts": [
                            {"raw": "aGk=", "filename": "f.txt", "mediaType": "text/plain"},
                            {"url": "https://x.example/y"},
                            {"data": {"n": 1, "x": 1.5}, "metadata": {"k": [2]}},
                        ],
                        "extensions": ["e"],
                    }
                ],
                "metadata": {"big": 12345678901},
            }
        }
    )
    said = {"kind": "message", "messageId": "m", "parts": [{"kind": "text", "text": "hi"}]}
    file = {"bytes": "aGk=", "name": "f.txt", "mimeType": "text/plain"}
    assert outcome == {
        "kind": "task",
        "id": "t",
        "contextId": "c",
        "status": {
            "state": "input-required",
            "message": {**said, "role": "agent"},
            "timestamp": "2026-01-01T00:00:00Z",
        },
        "history": [{**said, "role": "user", "taskId": "t", "contextId": "c"}],
        "artifacts": [
            {
                "artifactId": "a",
                "name": "n",
                "parts": [
                    {"kind": "file", "file": file},
                    {"kind": "file", "file": {"uri": "https://x.example/y"}},
                    {"kind": "data", "data": {"n": 1, "x": 1.5}, "metadata": {"k": [2]}},
                ],
                "extensions": ["e"],
            }
        ],
        "metadata": {"big": 12345678901},
    }


@pytest.mark.requirement("remote.envelope.kinds")
def test_events_are_decoded() -> None:
    status = {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_FAILED"}}
    assert read({"statusUpdate": status}) == {
        "kind": "status-update",
        "taskId": "t",
        "contextId": "c",
        "status": {"state": "failed"},
        "final": True,
    }
    artifact = {"artifactId": "a", "parts": [{"text": "x"}]}
    assert read({"artifactUpdate": {"taskId": "t", "artifact": artifact, "append": True}}) == {
        "kind": "artifact-update",
        "taskId": "t",
        "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": "x"}]},
        "append": True,
        "lastChunk": False,
    }


def test_optional_fields_may_be_missing() -> None:
    assert read({"task": {"id": "t"}}) == {
        "kind": "task",
        "id": "t",
        "status": {"state": "unknown"},
    }
    assert read({"message": {"parts": [{}]}}) == {
        "kind": "message",
        "messageId": "",
        "role": "agent",
        "parts": [{"kind": "text", "text": ""}],
    }
    history = [{"parts": [{"text": "whose?"}]}]
    assert read({"task": {"id": "t", "history": history}})["history"][0]["role"] == "user"


@pytest.mark.parametrize("outcome", [{}, {"task": {"contextId": "c"}}])
def test_an_answer_without_a_task_id_is_a_failure(outcome: JsonObject) -> None:
    with pytest.raises(RemoteFailure) as raised:
        read(outcome)
    assert raised.value.details["hint"]


_TEXTS = st.text(max_size=5)
_PARTS = st.lists(
    st.one_of(
        st.fixed_dictionaries({"text": _TEXTS}),
        st.fixed_dictionaries({"url": _TEXTS}),
        st.fixed_dictionaries({"raw": st.just("aGk=")}),
        st.fixed_dictionaries({"data": st.dictionaries(_TEXTS, st.integers() | _TEXTS)}),
        st.just({}),
    ),
    max_size=3,
)
_MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "messageId": _TEXTS,
        "role": st.sampled_from(["ROLE_USER", "ROLE_AGENT", "ROLE_UNSPECIFIED"]),
        "parts": _PARTS,
        "taskId": _TEXTS,
        "contextId": _TEXTS,
    },
)
_STATUS = st.fixed_dictionaries(
    {},
    optional={"state": st.sampled_from(list(pb.TaskState.keys())), "message": _MESSAGES},
)
_ARTIFACT = st.fixed_dictionaries({}, optional={"artifactId": _TEXTS, "parts": _PARTS})
_EVENTS = st.one_of(
    st.fixed_dictionaries({"message": _MESSAGES}),
    st.fixed_dictionaries(
        {
            "task": st.fixed_dictionaries(
                {"id": _TEXTS},
                optional={
                    "status": _STATUS,
                    "artifacts": st.lists(_ARTIFACT, max_size=2),
                    "history": st.lists(_MESSAGES, max_size=2),
                },
            )
        }
    ),
    st.fixed_dictionaries(
        {"statusUpdate": st.fixed_dictionaries({}, optional={"status": _STATUS})}
    ),
    st.fixed_dictionaries(
        {
            "artifactUpdate": st.fixed_dictionaries(
                {}, optional={"artifact": _ARTIFACT, "append": st.booleans()}
            )
        }
    ),
)


@given(st.lists(_EVENTS, max_size=6))
def test_any_events_give_a_summary(events: list[JsonObject]) -> None:
    received = EventAccumulator()
    for event in events:
        try:
            received.add(read(event))
        except RemoteFailure:
            continue
    assert received.message_text is None or isinstance(received.message_text, str)
    assert isinstance(received.artifacts, list)
    assert received.state != "unknown"
