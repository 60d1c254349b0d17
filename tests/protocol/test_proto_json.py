"""Any ProtoJSON spelling of a 1.0 request decodes like its canonical one."""

import base64
import json
import re
from typing import Any

import pytest
from a2a import types as official
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.model.errors import InvalidParams
from openclaw_a2a.protocol import v1
from openclaw_a2a.protocol.v1 import (
    decode_get_query,
    decode_list_query,
    decode_push_list_query,
)

Json = Any

WORDS = st.text("abc_ -1", min_size=1, max_size=8).filter(str.strip)
IDS = WORDS.map(lambda text: f"id{text}")
# Names and values that look like ours, where they must stay as they are.
FREE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.just("ROLE_USER") | st.just("3"),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["task_id", "taskId", "history_length", "media_type", "role", "data"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=5,
)
OBJECTS = FREE.map(lambda value: value if isinstance(value, dict) else {"value": value})
BYTES = st.binary(max_size=12)
STATES = [value.name for value in official.TaskState.DESCRIPTOR.values if value.number]
SMALL = st.integers(0, 100)
MOMENTS = st.sampled_from(["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.250Z"])


def members(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries(required, optional=optional)


FILE = {"mediaType": st.just("text/plain"), "filename": WORDS, "metadata": OBJECTS}
PARTS = st.one_of(
    members({"text": st.text(max_size=8)}, FILE),
    members({"raw": BYTES.map(lambda raw: base64.b64encode(raw).decode())}, FILE),
    members({"url": st.just("https://files.example/a_b")}, FILE),
    members({"data": FREE.filter(lambda value: value is not None)}, FILE),
)
PUSH = {
    "id": IDS,
    "token": st.just("to_ken"),
    "authentication": members({"scheme": st.just("Bearer")}, {"credentials": st.just("task_id")}),
}
HOOK = {"url": st.just("https://hooks.example/a_b")}
MESSAGE = members(
    {
        "messageId": IDS,
        "role": st.just("ROLE_USER"),
        "parts": st.lists(PARTS, min_size=1, max_size=3),
    },
    {
        "contextId": IDS,
        "taskId": IDS,
        "metadata": OBJECTS,
        "extensions": st.lists(WORDS, max_size=2),
        "referenceTaskIds": st.lists(IDS, max_size=2),
    },
)
CONFIGURATION = members(
    {},
    {
        "acceptedOutputModes": st.lists(st.just("text/plain"), max_size=2),
        "historyLength": SMALL,
        "returnImmediately": st.booleans(),
        "taskPushNotificationConfig": members(HOOK, PUSH),
    },
)
TASK = {"id": IDS}
PAGES = {"pageSize": st.integers(1, 100), "pageToken": WORDS}
REQUESTS: list[Any] = [
    (
        v1.decode_send,
        official.SendMessageRequest,
        members({"message": MESSAGE}, {"configuration": CONFIGURATION, "metadata": OBJECTS}),
    ),
    (v1.decode_get, official.GetTaskRequest, members(TASK, {"historyLength": SMALL})),
    (
        v1.decode_list,
        official.ListTasksRequest,
        members(
            {},
            {
                **PAGES,
                "contextId": IDS,
                "status": st.sampled_from(STATES),
                "historyLength": SMALL,
                "statusTimestampAfter": MOMENTS,
                "includeArtifacts": st.booleans(),
            },
        ),
    ),
    (v1.decode_task_request, official.CancelTaskRequest, members(TASK, {})),
    (
        v1.decode_push_config,
        official.TaskPushNotificationConfig,
        members({"taskId": IDS, **HOOK}, PUSH),
    ),
    (
        v1.decode_push_request,
        official.GetTaskPushNotificationConfigRequest,
        members({"taskId": IDS, "id": IDS}, {}),
    ),
    (
        v1.decode_push_list,
        official.ListTaskPushNotificationConfigsRequest,
        members({"taskId": IDS}, PAGES),
    ),
]
UNTOUCHED = {"metadata", "data"}


def snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda found: "_" + found[0].lower(), name)


def respell(value: Json, draw: Any, name: str = "") -> Json:
    """The same value in another spelling that ProtoJSON allows."""
    if name in UNTOUCHED:
        return value
    if isinstance(value, dict):
        spelled = {
            draw(st.sampled_from([key, snake(key)])): respell(one, draw, key)
            for key, one in value.items()
        }
        return dict(draw(st.permutations(list(spelled.items()))))
    if isinstance(value, list):
        return [respell(one, draw) for one in value]
    if name == "role":
        return draw(st.sampled_from([value, 1]))
    if name == "status":
        return draw(st.sampled_from([value, official.TaskState.Value(value)]))
    if name in ("historyLength", "pageSize"):
        return draw(st.sampled_from([value, str(value), float(value)]))
    if name == "raw":
        safe = value.translate(str.maketrans("+/", "-_"))
        return draw(st.sampled_from([value, safe, safe.rstrip("=")]))
    return value


@pytest.mark.requirement("wire.v1.proto-json-read")
@pytest.mark.parametrize(("decode", "kind", "requests"), REQUESTS)
@given(data=st.data())
def test_any_spelling_decodes_like_the_canonical_one(decode, kind, requests, data) -> None:
    canonical = data.draw(requests)
    spelled = respell(canonical, data.draw)
    # The spelling is one that the official parser reads as the same message.
    parse = json_format.ParseDict
    assert parse(spelled, kind()) == parse(canonical, kind())
    unknown = {**spelled, "not_a_member": {"task_id": 1}, "notAMember": None}
    for one in (spelled, unknown):
        assert decode(json.dumps(one).encode()) == decode(json.dumps(canonical).encode())


@pytest.mark.requirement("wire.v1.proto-json-read")
def test_a_null_is_an_absent_member() -> None:
    message = {"messageId": "m", "role": 1, "parts": [{"text": "a", "media_type": None}]}
    hook = {"url": None, "task_id": None, "authentication": None}
    config = {"history_length": None, "task_push_notification_config": hook}
    given_nulls = {"message": {**message, "context_id": None}, "configuration": config}
    bare = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "a"}]}}
    assert v1.decode_send(json.dumps(given_nulls).encode()) == v1.decode_send(
        json.dumps(bare).encode()
    )


@pytest.mark.requirement("wire.v1.proto-json-read", "wire.v1.wrong-types")
@pytest.mark.parametrize(
    ("members", "path"),
    [
        ({"historyLength": "1.5"}, "historyLength"),
        ({"historyLength": 1.5}, "historyLength"),
        ({"history_length": "many"}, "historyLength"),
        ({"history_length": -1}, "historyLength"),
        ({"history_length": "9" * 400}, "historyLength"),
        ({"page_size": True}, "pageSize"),
        ({"status": 99}, "status"),
        ({"status": "working"}, "status"),
        ({"status": -1}, "status"),
        ({"status": True}, "status"),
        ({"context_id": 7}, "contextId"),
        ({"include_artifacts": "true"}, "includeArtifacts"),
        ({"contextId": "a", "context_id": "a"}, "contextId"),
        ({"contextId": "a", "context_id": "b"}, "contextId"),
    ],
)
def test_what_no_parser_accepts_is_refused_by_its_canonical_name(members, path) -> None:
    with pytest.raises(InvalidParams) as caught:
        v1.decode_list(json.dumps(members).encode())
    assert [problem.path for problem in caught.value.problems] == [path]


@pytest.mark.requirement("wire.v1.proto-json-read")
def test_queries_take_the_proto_names_too() -> None:
    query = {
        "context_id": "c_1",
        "page_size": "7",
        "history_length": "3",
        "status": "3",
        "status_timestamp_after": "2026-01-31T12:00:00Z",
        "include_artifacts": "true",
    }
    usual = {
        "contextId": "c_1",
        "pageSize": "7",
        "historyLength": "3",
        "status": "TASK_STATE_COMPLETED",
        "statusTimestampAfter": "2026-01-31T12:00:00Z",
        "includeArtifacts": "true",
    }
    assert decode_list_query(query) == decode_list_query(usual)
    assert decode_list_query({"status_timestamp_after": ""}) == decode_list_query({})
    assert decode_get_query({"history_length": "0"}, task_id="t").history_length == 0
    assert decode_push_list_query({"page_size": "7"}, task_id="t").page_size == 7
