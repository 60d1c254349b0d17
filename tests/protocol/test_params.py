"""Parameters of both versions: decoding, and reporting every problem."""

import base64
import contextlib
import json
import sys
from datetime import UTC, datetime
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from openclaw_a2a.model.errors import GatewayError, InvalidParams, ParseFailed
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.protocol import v03, v1
from openclaw_a2a.protocol.requests import (
    GetRequest,
    ListRequest,
    NewPushConfig,
    PushConfigRequest,
    PushListRequest,
    SendRequest,
    TaskRequest,
)
from openclaw_a2a.protocol.versions import ProtocolVersion

DECODERS = [
    v1.decode_send,
    v1.decode_get,
    v1.decode_list,
    v1.decode_task_request,
    v1.decode_push_config,
    v1.decode_push_request,
    v1.decode_push_list,
    v03.decode_send,
    v03.decode_get,
    v03.decode_task_request,
    v03.decode_push_config,
    v03.decode_push_request,
    v03.decode_push_list,
]

MEMBERS = st.sampled_from(
    [
        *("message", "messageId", "role", "parts", "text", "raw", "url", "data", "file"),
        *("bytes", "uri", "kind", "metadata", "id", "taskId", "contextId", "configuration"),
        *("blocking", "historyLength", "pageSize", "status", "statusTimestampAfter", "scheme"),
        *("schemes", "authentication", "pushNotificationConfig", "extensions"),
    ]
)
TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
    | st.sampled_from(["ROLE_USER", "user", "text", "file", "data", "aGk="]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MEMBERS, inner, max_size=6),
    max_leaves=20,
)


def problems(decode, params) -> dict[str, str]:
    body = params if isinstance(params, bytes) else json.dumps(params).encode()
    with pytest.raises(InvalidParams) as caught:
        decode(body)
    return {problem.path: problem.message for problem in caught.value.problems}


def send(decode, message, **members):
    return decode(json.dumps({"message": message, **members}).encode())


def message_v1(**members):
    return {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hi"}], **members}


def message_v03(**members):
    return {
        "messageId": "m-1",
        "role": "user",
        "parts": [{"kind": "text", "text": "hi"}],
        **members,
    }


@settings(max_examples=200)
@given(st.sampled_from(DECODERS), TREES)
def test_arbitrary_json_is_read_or_refused_with_our_errors(decode, tree):
    try:
        decode(json.dumps(tree).encode())
    except InvalidParams as refusal:
        assert refusal.problems


@given(st.sampled_from(DECODERS), st.binary(max_size=40))
def test_arbitrary_bytes_are_read_or_refused_with_our_errors(decode, body):
    with contextlib.suppress(GatewayError):
        decode(body)


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("body", [b"[]", b"7", b"null", b'"x"'])
def test_params_that_are_no_object_are_refused(decode, body):
    assert problems(decode, body)["params"].startswith("must be an object")


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("body", [b"", b"{", b'{"metadata":' * 3000, b'{"x":"\xff"'])
def test_params_that_are_no_json_are_a_parse_error(decode, body):
    with pytest.raises(ParseFailed):
        decode(body)


def test_a_full_1_0_send_is_read():
    request = send(
        v1.decode_send,
        message_v1(
            parts=[{"text": "", "metadata": {"a": 1}}, {"data": None}, {"data": [1]}, {"url": "u"}],
            contextId="c",
            taskId="t",
            metadata={"k": "v"},
            extensions=["e"],
            referenceTaskIds=["r"],
            unknown={"x": 1},
        ),
        configuration={
            "acceptedOutputModes": ["text/plain"],
            "historyLength": 3,
            "returnImmediately": True,
            "taskPushNotificationConfig": {
                "url": "https://example.com",
                "token": "k",
                "authentication": {"scheme": "Bearer", "credentials": "c"},
            },
        },
        metadata={"m": 1},
        tenant="acme",
    )
    assert request == SendRequest(
        message=Message(
            "m-1",
            Role.USER,
            (Part(text="", metadata={"a": 1}), Part(data=None), Part(data=[1]), Part(url="u")),
            "c",
            "t",
            {"k": "v"},
            ("e",),
            ("r",),
        ),
        is_blocking=False,
        accepted_output_modes=("text/plain",),
        history_length=3,
        push=NewPushConfig(
            url="https://example.com",
            version=ProtocolVersion.V1,
            url_path="configuration.taskPushNotificationConfig.url",
            token="k",
            schemes=("Bearer",),
            credentials="c",
        ),
        metadata={"m": 1},
        tenant="acme",
    )


def test_a_full_0_3_send_is_read():
    request = send(
        v03.decode_send,
        message_v03(
            kind="message",
            parts=[
                {"text": "no kind"},
                {"kind": "data", "data": {"a": 1}},
                {"file": {"bytes": "aGk", "mimeType": "text/plain", "name": "a.txt"}},
                {"kind": "file", "file": {"uri": "https://example.com"}, "metadata": {"a": 1}},
            ],
            contextId="c",
            taskId="t",
            extensions=["e"],
            referenceTaskIds=["r"],
        ),
        configuration={
            "acceptedOutputModes": ["text/plain"],
            "historyLength": 0,
            "blocking": False,
            "pushNotificationConfig": {
                "id": "p",
                "url": "https://example.com",
                "authentication": {"schemes": ["Bearer", "Basic"], "credentials": "c"},
            },
        },
    )
    assert request == SendRequest(
        message=Message(
            "m-1",
            Role.USER,
            (
                Part(text="no kind"),
                Part(data={"a": 1}),
                Part(raw="aGk=", media_type="text/plain", filename="a.txt"),
                Part(url="https://example.com", metadata={"a": 1}),
            ),
            "c",
            "t",
            None,
            ("e",),
            ("r",),
        ),
        is_blocking=False,
        accepted_output_modes=("text/plain",),
        history_length=0,
        push=NewPushConfig(
            id="p",
            url="https://example.com",
            version=ProtocolVersion.V03,
            url_path="configuration.pushNotificationConfig.url",
            schemes=("Bearer", "Basic"),
            credentials="c",
        ),
    )


@pytest.mark.parametrize("configuration", [None, {}, {"blocking": True}, {"blocking": None}])
def test_a_0_3_send_blocks_unless_blocking_is_false(configuration):
    assert send(v03.decode_send, message_v03(), configuration=configuration).is_blocking
    assert send(v1.decode_send, message_v1(), configuration=None).is_blocking


def test_null_and_empty_are_absent():
    empty = dict.fromkeys(["contextId", "taskId", "metadata", "extensions", "referenceTaskIds"])
    plain = send(v1.decode_send, message_v1())
    assert send(v1.decode_send, message_v1(**empty), configuration=None, tenant=None) == plain
    assert send(v1.decode_send, message_v1(contextId="", taskId=""), tenant="") == plain
    nulls = {"text": "hi", "raw": None, "url": None, "data": None, "filename": None}
    assert send(v1.decode_send, message_v1(parts=[nulls])) == plain
    old = send(v03.decode_send, message_v03())
    assert send(v03.decode_send, message_v03(**empty), configuration=None) == old
    nulls = {"kind": "text", "text": "hi", "file": None, "data": None, "metadata": None}
    assert send(v03.decode_send, message_v03(parts=[nulls])) == old


@pytest.mark.parametrize("raw", ["aGk_", "aGk/", "+_8=", "-_8", "aGk", "aGk=", ""])
def test_file_content_is_normalised_to_standard_base64(raw):
    part = send(v1.decode_send, message_v1(parts=[{"raw": raw}])).message.parts[0]
    assert base64.b64encode(part.content).decode() == part.raw
    old = send(v03.decode_send, message_v03(parts=[{"file": {"bytes": raw}}])).message.parts[0]
    assert old == part


def test_every_problem_of_a_1_0_send_is_reported_at_once():
    found = problems(
        v1.decode_send,
        {
            "message": {
                "messageId": " ",
                "role": "ROLE_AGENT",
                "contextId": "a\nb",
                "taskId": "x" * 257,
                "referenceTaskIds": ["ok", "", 7],
                "parts": [{}, {"text": 1}, {"text": "a", "url": "b"}, {"raw": "*"}, 7],
                "metadata": [],
            },
            "configuration": {"historyLength": -1, "acceptedOutputModes": "text/plain"},
            "tenant": 5,
        },
    )
    assert found == snapshot(
        {
            "configuration.acceptedOutputModes": "must be an array, not a string",
            "configuration.historyLength": "must be at least 0",
            "message.contextId": "must have no control characters",
            "message.messageId": "must not be blank and must have no control characters",
            "message.metadata": "must be an object, not an array",
            "message.parts[0]": "must have exactly one of text, raw, url and data",
            "message.parts[1].text": "must be a string, not a number",
            "message.parts[2]": "must have exactly one of text, raw, url and data",
            "message.parts[3].raw": "must be base64",
            "message.parts[4]": "must be an object, not a number",
            "message.referenceTaskIds[1]": "must not be empty",
            "message.referenceTaskIds[2]": "must be a string, not a number",
            "message.role": "must be ROLE_USER",
            "message.taskId": "must have at most 256 characters",
            "tenant": "must be a string, not a number",
        }
    )


def test_every_problem_of_a_0_3_send_is_reported_at_once():
    found = problems(
        v03.decode_send,
        {
            "message": {
                "role": "robot",
                "kind": "task",
                "contextId": "a\u0007",
                "parts": [
                    {},
                    {"kind": "text"},
                    {"kind": "data", "data": [1]},
                    {"data": 5},
                    {"text": "a", "data": {}},
                    {"kind": "file", "file": {}},
                    {"kind": "file", "file": {"bytes": "*"}},
                    {"kind": "file", "file": 5},
                    {"kind": "video", "text": "x"},
                    "x",
                ],
            },
            "configuration": {"blocking": "yes"},
        },
    )
    assert found == snapshot(
        {
            "configuration.blocking": "must be a boolean, not a string",
            "message.contextId": "must have no control characters",
            "message.kind": "must be message",
            "message.messageId": "is required and must not be blank",
            "message.parts[0]": "must have exactly one of text, file and data, as its kind says",
            "message.parts[1]": "must have exactly one of text, file and data, as its kind says",
            "message.parts[2].data": "must be an object",
            "message.parts[3].data": "must be an object",
            "message.parts[4]": "must have exactly one of text, file and data, as its kind says",
            "message.parts[5].file": "must have exactly one of bytes and uri",
            "message.parts[6].file.bytes": "must be base64",
            "message.parts[7].file": "must be an object, not a number",
            "message.parts[8]": "must have exactly one of text, file and data, as its kind says",
            "message.parts[8].kind": "must be data or file or text",
            "message.parts[9]": "must be an object, not a string",
            "message.role": "must be agent or user",
        }
    )


@pytest.mark.parametrize(
    ("part", "path"),
    [
        ({}, ""),
        ({"text": None}, ""),
        ({"text": "a", "url": "b"}, ""),
        ({"text": "a", "data": 0}, ""),
        ({"raw": "a"}, ".raw"),
        ({"raw": "é"}, ".raw"),
        ({"raw": "aG k="}, ".raw"),
    ],
)
def test_a_1_0_part_of_the_right_types_and_the_wrong_content_is_refused(part, path):
    params = {"message": message_v1(parts=[{"text": "ok"}, part])}
    assert list(problems(v1.decode_send, params)) == [f"message.parts[1]{path}"]


@pytest.mark.parametrize(
    ("part", "path"),
    [
        ({}, ""),
        ({"kind": "text"}, ""),
        ({"kind": "text", "data": {}}, ""),
        ({"kind": "data", "data": None}, ""),
        ({"text": "a", "data": {}}, ""),
        ({"data": [1]}, ".data"),
        ({"kind": "data", "data": 0}, ".data"),
        ({"file": {}}, ".file"),
        ({"file": {"bytes": "", "uri": ""}}, ".file"),
        ({"kind": "file", "file": {"bytes": "*"}}, ".file.bytes"),
    ],
)
def test_a_0_3_part_of_the_right_types_and_the_wrong_content_is_refused(part, path):
    params = {"message": message_v03(parts=[{"text": "ok"}, part])}
    assert list(problems(v03.decode_send, params)) == [f"message.parts[1]{path}"]


def test_the_kind_of_a_0_3_part_decides_what_it_is():
    part = {"kind": "text", "text": "a", "data": 5, "file": {}}
    assert send(v03.decode_send, message_v03(parts=[part])).message.parts == (Part(text="a"),)


@pytest.mark.parametrize("decode", [v1.decode_send, v03.decode_send])
@pytest.mark.parametrize("params", [{}, {"message": None}, {"message": []}, {"message": "x"}])
def test_a_send_without_message_is_refused(decode, params):
    assert "message" in problems(decode, params)


def test_a_missing_message_id_is_named_in_the_message():
    for decode, message in ((v1.decode_send, message_v1()), (v03.decode_send, message_v03())):
        for wrong in ({}, {"messageId": None}, {"messageId": ""}, {"messageId": "  "}):
            given = {**{k: v for k, v in message.items() if k != "messageId"}, **wrong}
            with pytest.raises(InvalidParams, match=r"message\.messageId"):
                send(decode, given)


@pytest.mark.parametrize("given", [{}, {"messageId": None}, {"messageId": ""}])
def test_a_missing_0_3_message_id_is_made_when_there_is_a_maker(given):
    message = {"role": "user", "parts": [], **given}
    body = json.dumps({"message": message}).encode()
    assert v03.decode_send(body, make_message_id=lambda: "made").message.message_id == "made"
    kept = json.dumps({"message": message_v03()}).encode()
    assert v03.decode_send(kept, make_message_id=lambda: "made").message.message_id == "m-1"
    bad = json.dumps({"message": {"role": "user", "parts": [{}]}}).encode()
    assert list(problems(lambda body: v03.decode_send(body, make_message_id=str), bad)) == [
        "message.parts[0]"
    ]


@pytest.mark.parametrize("role", [None, "ROLE_UNSPECIFIED", "ROLE_AGENT", "user", 2])
def test_a_1_0_message_must_be_from_a_user(role):
    assert "message.role" in problems(v1.decode_send, {"message": message_v1(role=role)})


def test_empty_parts_are_refused_in_1_0_only():
    assert "message.parts" in problems(v1.decode_send, {"message": message_v1(parts=[])})
    assert send(v03.decode_send, message_v03(parts=[])).message.parts == ()
    assert "message.parts" in problems(v03.decode_send, {"message": message_v03(parts={})})


def test_ten_thousand_good_parts_are_read_and_of_bad_ones_fifty_are_listed():
    many = [{"text": "x"}] * 10_000
    assert len(send(v1.decode_send, message_v1(parts=many)).message.parts) == 10_000
    assert len(send(v03.decode_send, message_v03(parts=many)).message.parts) == 10_000
    for decode, message in ((v1.decode_send, message_v1), (v03.decode_send, message_v03)):
        with pytest.raises(InvalidParams) as caught:
            send(decode, message(parts=[{}] * 10_000))
        assert len(caught.value.problems) == 51
        assert "not listed" in caught.value.problems[-1].message
        assert len(caught.value.message) < 1000


@pytest.mark.parametrize("item", [1, {}, {"text": 1}, {"raw": "!"}, {"media_type": 1}])
@pytest.mark.parametrize("decode", [v1.decode_send, v03.decode_send])
def test_the_work_for_wrong_items_does_not_grow_with_their_number(decode, item):
    message = message_v1 if decode is v1.decode_send else message_v03
    limited = partial(decode, max_parts=100)

    def calls(**members) -> int:
        body = json.dumps({"message": message(**members)}).encode()
        return count_calls(lambda: problems_of(limited, body))

    for name in ("parts", "extensions", "referenceTaskIds"):
        calls(**{name: [item] * 100})  # what is made once is made by this one
        few, many = calls(**{name: [item] * 100}), calls(**{name: [item] * 50_000})
        assert many < 3 * few


def problems_of(decode, body: bytes) -> None:
    with pytest.raises(InvalidParams):
        decode(body)


def count_calls(function) -> int:
    """How many Python and C functions a call of this one calls."""
    counted = 0

    def count(_frame, event, _argument):
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return counted


@pytest.mark.parametrize("text", ["x", " ", "\n", "é"])
def test_a_mebibyte_of_id_is_refused_for_its_length(text):
    for decode, message in ((v1.decode_send, message_v1), (v03.decode_send, message_v03)):
        with pytest.raises(InvalidParams, match="at most 256 characters"):
            send(decode, message(messageId=text * 1024 * 1024, contextId=text * 1024 * 1024))


def test_a_mebibyte_of_text_is_read():
    text = "é:{[" * (1024 * 256)
    assert send(v1.decode_send, message_v1(parts=[{"text": text}])).message.text == text


def test_requests_about_tasks_are_read():
    assert v1.decode_get(b'{"id":"t","historyLength":0,"tenant":"a"}') == GetRequest(
        id="t", history_length=0, tenant="a"
    )
    assert v03.decode_get(b'{"id":"t","historyLength":2,"metadata":{}}') == GetRequest(
        id="t", history_length=2
    )
    for wire in (v1, v03):
        assert wire.decode_task_request(b'{"id":"t"}') == TaskRequest(id="t")
        assert problems(wire.decode_task_request, b"{}") == {"id": "is required"}
        assert problems(wire.decode_get, b'{"id":"","historyLength":-1}').keys() == {
            "id",
            "historyLength",
        }


def test_a_list_request_is_read():
    assert v1.decode_list(b"{}") == ListRequest()
    assert v1.decode_list(
        b'{"contextId":"c","status":"TASK_STATE_WORKING","pageSize":100,"pageToken":"p",'
        b'"historyLength":1,"statusTimestampAfter":"2026-01-01T01:00:00+01:00",'
        b'"includeArtifacts":true,"tenant":"a"}'
    ) == ListRequest(
        context_id="c",
        state=TaskState.WORKING,
        page_size=100,
        page_token="p",
        history_length=1,
        status_since=datetime(2026, 1, 1, tzinfo=UTC),
        include_artifacts=True,
        tenant="a",
    )
    assert v1.decode_list(b'{"status":"TASK_STATE_UNSPECIFIED"}').state is None


def test_every_problem_of_a_list_request_is_reported_at_once():
    found = problems(
        v1.decode_list,
        {
            "pageSize": 200,
            "statusTimestampAfter": "yesterday",
            "includeArtifacts": 1,
            "pageToken": 7,
            "historyLength": 1.5,
        },
    )
    assert found == snapshot(
        {
            "historyLength": "must be an integer, not a number",
            "includeArtifacts": "must be a boolean, not a number",
            "pageSize": "must be at most 100, which is the maximum",
            "pageToken": "must be a string, not a number",
            "statusTimestampAfter": "must be a time with its zone, such as 2026-01-31T12:00:00Z",
        }
    )
    assert "maximum" in found["pageSize"]
    assert "pageSize" in problems(v1.decode_list, b'{"pageSize":0}')
    assert "TASK_STATE_WORKING" in problems(v1.decode_list, b'{"status":"working"}')["status"]
    assert "statusTimestampAfter" in problems(
        v1.decode_list, b'{"statusTimestampAfter":"2026-01-01T00:00:00"}'
    )


def test_push_requests_are_read():
    assert v1.decode_push_config(b'{"taskId":"t","url":"u","id":"p"}') == NewPushConfig(
        id="p", url="u", task_id="t", version=ProtocolVersion.V1
    )
    assert v1.decode_push_config(b'{"url":"u"}', task_id="path").task_id == "path"
    assert problems(v1.decode_push_config, b'{"url":"u"}') == {"taskId": "is required"}
    assert v1.decode_push_request(b'{"taskId":"t","id":"p"}') == PushConfigRequest(
        task_id="t", id="p"
    )
    assert v1.decode_push_list(b'{"taskId":"t","pageSize":0}') == PushListRequest(task_id="t")
    assert v03.decode_push_config(
        b'{"taskId":"t","pushNotificationConfig":{"url":"u","token":"k"}}'
    ) == NewPushConfig(
        url="u",
        url_path="pushNotificationConfig.url",
        token="k",
        task_id="t",
        version=ProtocolVersion.V03,
    )
    assert v03.decode_push_request(
        b'{"id":"t","pushNotificationConfigId":"p"}'
    ) == PushConfigRequest(task_id="t", id="p")
    assert v03.decode_push_request(b'{"id":"t"}') == PushConfigRequest(task_id="t")
    assert v03.decode_push_list(b'{"id":"t"}').task_id == "t"


@pytest.mark.parametrize("hostile", ["a\r\nX-Evil: 1", "a\n", "\x00", "é", "x" * 4097])
def test_a_value_that_would_break_a_header_is_refused(hostile):
    flat = {"taskId": "t", "url": "u", "token": hostile}
    assert list(problems(v1.decode_push_config, flat)) == ["token"]
    secret = {"scheme": hostile, "credentials": hostile}
    flat = {"taskId": "t", "url": "u", "authentication": secret}
    assert set(problems(v1.decode_push_config, flat)) == {
        "authentication.scheme",
        "authentication.credentials",
    }
    nested = {"url": "u", "token": hostile, "authentication": {"schemes": ["Bearer", hostile]}}
    found = problems(v03.decode_push_config, {"taskId": "t", "pushNotificationConfig": nested})
    assert set(found) == {
        "pushNotificationConfig.token",
        "pushNotificationConfig.authentication.schemes[1]",
    }


def test_a_url_has_a_bounded_length():
    flat = {"taskId": "t", "url": "https://example.com/" + "x" * 2048}
    assert list(problems(v1.decode_push_config, flat)) == ["url"]


def test_a_problem_that_the_schema_misses_has_the_decoders_message():
    found = problems(v1.decode_list, b'{"statusTimestampAfter":"0000-01-01T00:00:00Z"}')
    assert list(found) == ["statusTimestampAfter"]
    assert list(problems(v03.decode_get, b'{"id":"t","historyLength":1.0}')) == ["historyLength"]
