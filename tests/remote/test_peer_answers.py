"""Answers of peers are decoded into one form, or are a failure."""

from collections.abc import Iterator
from functools import partial

import msgspec
import pytest
from a2a.types import a2a_pb2 as pb
from hypothesis import given
from hypothesis import strategies as st
from tests.remote.scripted_peer import Answer, card_of, respond, result, scripted
from tests.remote.tool_harness import one_target, open_tool

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import is_list, is_object
from openclaw_a2a.remote.event_translator import RemoteEventTranslator
from openclaw_a2a.remote.result import RemoteFailure
from openclaw_a2a.remote.result_builder import EventAccumulator
from openclaw_a2a.remote.target_secrets import EventRedactor
from openclaw_a2a.remote.transport.codec import AnswerUnreadable, WireFormat, decode_peer_answer
from openclaw_a2a.remote.transport.peer_errors import read_rest_error, read_rpc_error, to_failure


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


SPOKEN = {"messageId": "m", "parts": [{"text": "hi"}]}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"content": "hi"}, {}),
        ({"parts": [{"text": "hi", "file": "x", "url": {}, "raw": 1, "filename": 1}]}, {}),
        ({"metadata": None, "extensions": [], "contextId": "", "taskId": False}, {}),
        ({"contextId": "c", "context_id": 5}, {"contextId": "c"}),
        ({"context_id": 5, "contextId": "c"}, {"contextId": "c"}),
        ({"contextId": "", "context_id": "c"}, {"contextId": "c"}),
    ],
)
def test_members_that_are_empty_or_of_another_form_do_not_count(
    message: JsonObject, expected: JsonObject
) -> None:
    plain = {"kind": "message", "role": "agent", "messageId": "m"}
    plain["parts"] = [{"kind": "text", "text": "hi"}]
    assert read({"message": {**SPOKEN, **message}}) == {**plain, **expected}


def test_alternatives_that_are_not_used_may_have_any_type() -> None:
    file = {"uri": "https://x.example/y", "bytes": 1234}
    status = {"state": "completed", "message": SPOKEN, "update": "x"}
    task = {"id": "t", "history": {}, "artifacts": "", "status": status}
    assert read({"task": task})["status"]["message"]["messageId"] == "m"
    [part] = read({"message": {**SPOKEN, "parts": [{"file": file}]}})["parts"]
    assert part == {"kind": "file", "file": {"uri": "https://x.example/y"}}


@pytest.mark.parametrize("member", ["contextId", "context_id", "metadata", "extensions", "parts"])
def test_a_member_of_a_wrong_type_makes_the_answer_unreadable(member: str) -> None:
    with pytest.raises(RemoteFailure, match="cannot be read"):
        read({"message": {**SPOKEN, member: [5]}})


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


# -------------------------------------------------------------------- wrong types everywhere

FULL_WORDS: JsonObject = {
    "kind": "message",
    "messageId": "m",
    "role": "agent",
    "contextId": "c",
    "taskId": "t",
    "referenceTaskIds": ["t"],
    "extensions": ["e"],
    "metadata": {"k": 1},
    "parts": [
        {"kind": "text", "text": "hi", "metadata": {"k": 1}},
        {"kind": "file", "file": {"bytes": "aGk=", "name": "f", "mimeType": "text/plain"}},
        {"kind": "file", "file": {"fileWithBytes": "aGk="}},
        {"raw": "aGk=", "filename": "f.txt", "mediaType": "text/plain"},
        {"url": "https://x.example/y"},
        {"kind": "data", "data": {"data": 1, "value": 2}, "metadata": {"data_part_compat": True}},
    ],
}
FULL_ARTIFACT: JsonObject = {
    "artifactId": "a",
    "name": "n",
    "description": "d",
    "parts": FULL_WORDS["parts"],
    "metadata": {"source": "tool"},
    "extensions": ["e"],
}
FULL_STATUS: JsonObject = {
    "state": "working",
    "message": FULL_WORDS,
    "timestamp": "2026-01-01T00:00:00Z",
}
FULL_TASK: JsonObject = {
    "kind": "task",
    "id": "t",
    "contextId": "c",
    "status": FULL_STATUS,
    "artifacts": [FULL_ARTIFACT],
    "history": [FULL_WORDS],
    "generation": 1,
    "metadata": {},
}
FULL_EVENT: JsonObject = {"taskId": "t", "contextId": "c", "metadata": {}}
FULL_UPDATE: JsonObject = {
    **FULL_EVENT,
    "kind": "status-update",
    "status": FULL_STATUS,
    "final": True,
}
FULL_CHUNK: JsonObject = {
    **FULL_EVENT,
    "kind": "artifact-update",
    "artifact": FULL_ARTIFACT,
    "append": True,
}
ANSWERS = [
    *(FULL_WORDS, FULL_TASK, FULL_UPDATE, {**FULL_CHUNK, "lastChunk": True}),
    *(
        {"message": FULL_WORDS},
        {"task": FULL_TASK},
        {"statusUpdate": FULL_UPDATE},
        {"artifactUpdate": FULL_CHUNK},
    ),
]
WRONG: list[Json] = [None, True, 7, -1, 1.5, "", "x", [], [1], [[]], [{}], {}, {"a": []}]


def with_wrong_types(value: Json) -> Iterator[Json]:
    """The value with each of its members, in turn, replaced by each wrong value."""
    yield from WRONG
    if is_object(value):
        for key, member in value.items():
            yield from ({**value, key: wrong} for wrong in with_wrong_types(member))
    elif is_list(value):
        for index, member in enumerate(value):
            after = value[index + 1 :]
            yield from ([*value[:index], wrong, *after] for wrong in with_wrong_types(member))


@pytest.mark.parametrize("wire", list(WireFormat))
@pytest.mark.parametrize("answer", ANSWERS, ids=range(len(ANSWERS)))
def test_a_wrong_type_anywhere_in_an_answer_is_at_most_a_failure(
    answer: JsonObject, wire: WireFormat
) -> None:
    for wrong in with_wrong_types(answer):
        try:
            decoded = decode_peer_answer(wrong, wire)
        except RemoteFailure:
            continue
        received, translator = EventAccumulator(), RemoteEventTranslator()
        redactor = EventRedactor(is_stream=True)
        redactor.add_secrets(["secret-1", "working"])
        for event in redactor.redact(decoded):
            received.add(event)
            translator.translate(event)
        assert isinstance(received.message_text, str | None)


ERRORS: list[JsonObject] = [
    {"code": -32001, "message": "no", "data": [{"reason": "TASK_NOT_FOUND", "metadata": {}}]},
    {"type": "TaskNotFoundError", "message": "no", "status": 404},
    {"error": {"code": 5, "message": "no", "details": [{"reason": "TASK_NOT_FOUND"}]}},
]


@pytest.mark.parametrize("status", [0, 400, 404])
@pytest.mark.parametrize("error", ERRORS, ids=range(len(ERRORS)))
def test_a_wrong_type_anywhere_in_an_error_is_at_most_a_failure(
    error: JsonObject, status: int
) -> None:
    for wrong in with_wrong_types(error):
        for read_error in (read_rpc_error, partial(read_rest_error, status=status)):
            try:
                found = read_error(wrong)
            except AnswerUnreadable:
                continue
            if found is not None:
                msgspec.json.encode(to_failure(found).as_object())


@pytest.mark.parametrize(
    ("binding", "answer"),
    [
        ("JSONRPC", result({"kind": []})),
        ("HTTP+JSON", respond({"kind": {}})),
        ("HTTP+JSON", respond({"type": []}, status="400 No")),
        ("HTTP+JSON", respond({"error": {"type": {}}}, status="500 No")),
    ],
)
@pytest.mark.parametrize("version", ["0.3", "1.0"])
async def test_an_answer_of_wrong_types_is_no_fault_of_ours(
    version: str, binding: str, answer: Answer
) -> None:
    async with scripted(answer) as peer:
        peer.card = card_of(peer.url, version=version, binding=binding)
        async with open_tool(one_target(peer.url)) as harness:
            error = await harness.fail_send()
    assert error["code"] == "A2A_SDK_ERROR"
