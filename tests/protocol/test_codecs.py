"""Both codecs round-trip, and the official types accept what they encode."""

import base64
from datetime import UTC, datetime

import msgspec
import pytest
from a2a.compat.v0_3 import types as official_v03
from a2a.types import a2a_pb2 as official_v1
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.records import decode_event, decode_task, encode_event, encode_json
from openclaw_a2a.model.task import (
    Artifact,
    ArtifactUpdate,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
    is_terminal,
)
from openclaw_a2a.protocol import v03, v1

slow_data = settings(max_examples=40)

texts = st.text(max_size=20)
ids = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20).filter(
    str.strip
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, values, max_size=3)
metadata = st.none() | objects
media_types = st.sampled_from([None, "text/plain", "application/pdf"])
raws = st.binary(max_size=20).map(lambda content: base64.b64encode(content).decode())
times = st.none() | st.datetimes(
    min_value=datetime(1970, 1, 2), max_value=datetime(2200, 1, 1), timezones=st.just(UTC)
)
strings = st.lists(texts.filter(bool), max_size=2).map(tuple)

shared_parts = (
    st.builds(Part, text=texts, metadata=metadata)
    | st.builds(Part, raw=raws, media_type=media_types, filename=st.none() | ids, metadata=metadata)
    | st.builds(Part, url=ids, media_type=media_types, filename=st.none() | ids, metadata=metadata)
    | st.builds(Part, data=objects, metadata=metadata)
)
any_parts = shared_parts | st.builds(
    Part, data=values, media_type=media_types, filename=st.none() | ids, metadata=metadata
)


both_roles = st.sampled_from([Role.USER, Role.AGENT])


def messages(parts, role=both_roles):
    return st.builds(
        Message,
        message_id=ids,
        role=role,
        parts=st.lists(parts, min_size=1, max_size=3).map(tuple),
        context_id=st.none() | ids,
        task_id=st.none() | ids,
        metadata=metadata,
        extensions=strings,
        reference_task_ids=st.lists(ids, max_size=2).map(tuple),
    )


def statuses(parts):
    return st.builds(
        TaskStatus,
        state=st.sampled_from(TaskState),
        message=st.none() | messages(parts),
        timestamp=times,
    )


def artifacts(parts):
    return st.builds(
        Artifact,
        artifact_id=ids,
        parts=st.lists(parts, min_size=1, max_size=3).map(tuple),
        name=st.none() | ids,
        description=st.none() | texts,
        metadata=metadata,
        extensions=strings,
    )


def tasks(parts):
    return st.builds(
        Task,
        id=ids,
        context_id=ids,
        status=statuses(parts),
        artifacts=st.lists(artifacts(parts), max_size=2).map(tuple),
        history=st.lists(messages(parts), max_size=3).map(tuple),
        metadata=metadata,
    )


def events(parts):
    return st.builds(
        StatusUpdate, task_id=ids, context_id=ids, status=statuses(parts), metadata=metadata
    ) | st.builds(
        ArtifactUpdate,
        task_id=ids,
        context_id=ids,
        artifact=artifacts(parts),
        append=st.booleans(),
        last_chunk=st.booleans(),
        metadata=metadata,
    )


def parse_v1(body: bytes, kind):
    return json_format.Parse(body, kind(), ignore_unknown_fields=False)


@slow_data
@given(tasks(any_parts))
def test_a_1_0_task_round_trips_and_the_official_type_accepts_it(task: Task):
    body = encode_json(task)
    assert decode_task(body) == task
    assert parse_v1(body, official_v1.Task).id == task.id
    assert parse_v1(v1.wrap_task(body), official_v1.SendMessageResponse).task.id == task.id


@slow_data
@given(events(any_parts))
def test_a_1_0_event_round_trips_and_the_official_type_accepts_it(event: StatusUpdate):
    body = encode_event(event)
    assert decode_event(body) == event
    assert parse_v1(body, official_v1.StreamResponse).WhichOneof("payload")


@slow_data
@given(messages(any_parts, st.just(Role.USER)))
def test_a_1_0_message_round_trips(message: Message):
    body = encode_json(message)
    assert v1.decode_send(v1.wrap_message(body)).message == message
    assert parse_v1(body, official_v1.Message).message_id == message.message_id


@slow_data
@given(messages(shared_parts))
def test_a_0_3_message_round_trips(message: Message):
    body = v03.encode_message(message)
    assert v03.decode_send(b'{"message":' + body + b"}").message == message
    assert official_v03.Message.model_validate_json(body).message_id == message.message_id


@slow_data
@given(tasks(shared_parts))
def test_a_0_3_task_round_trips_and_the_official_type_accepts_it(task: Task):
    body = v03.encode_task(task)
    assert v03.decode_task(body) == task
    assert official_v03.Task.model_validate_json(body).kind == "task"


@slow_data
@given(events(shared_parts))
def test_a_0_3_event_round_trips(event: StatusUpdate):
    assert v03.decode_event(v03.encode_event(event)) == event


@slow_data
@given(events(any_parts))
def test_a_stored_event_becomes_a_0_3_event_with_every_boolean(event: StatusUpdate):
    body = v03.transcode(encode_event(event))
    members = msgspec.json.decode(body)
    if isinstance(event, StatusUpdate):
        official_v03.TaskStatusUpdateEvent.model_validate_json(body)
        assert members["kind"] == "status-update"
        assert members["final"] is is_terminal(event.status.state)
    else:
        official_v03.TaskArtifactUpdateEvent.model_validate_json(body)
        assert members["kind"] == "artifact-update"
        assert (members["append"], members["lastChunk"]) == (event.append, event.last_chunk)


@slow_data
@given(tasks(any_parts), messages(any_parts))
def test_stored_tasks_and_messages_become_bare_0_3_objects(task: Task, message: Message):
    as_task = v03.transcode(v1.wrap_task(encode_json(task)))
    assert as_task == v03.encode_task(task) == v03.encode_task_result(encode_json(task))
    official_v03.Task.model_validate_json(as_task)
    as_message = v03.transcode(v1.wrap_message(encode_json(message)))
    assert as_message == v03.encode_message(message)
    official_v03.Message.model_validate_json(as_message)


@slow_data
@given(st.lists(tasks(any_parts), max_size=3), texts)
def test_a_page_of_tasks_is_accepted_by_the_official_type(page: list[Task], token: str):
    before, after = v1.around_task_list(token, page_size=50, total=1000)
    body = before + b",".join(encode_json(task) for task in page) + after
    parsed = parse_v1(body, official_v1.ListTasksResponse)
    assert [task.id for task in parsed.tasks] == [task.id for task in page]
    assert (parsed.next_page_token, parsed.page_size, parsed.total_size) == (token, 50, 1000)


@slow_data
@given(tasks(any_parts), st.none() | st.integers(0, 5), st.sampled_from([None, True, False]))
def test_a_trimmed_task_has_the_wanted_history_and_artifacts(task, length, with_artifacts):
    body = v1.trim_task(encode_json(task), history_length=length, with_artifacts=with_artifacts)
    trimmed = decode_task(body)
    wanted = task.history if length is None else task.history[len(task.history) - length :]
    if length is not None and length >= len(task.history):
        wanted = task.history
    assert trimmed.history == wanted
    assert trimmed.artifacts == (() if with_artifacts is False else task.artifacts)
    assert (trimmed.id, trimmed.status, trimmed.metadata) == (task.id, task.status, task.metadata)
    members = msgspec.json.decode(body)
    assert ("artifacts" in members) is (
        bool(task.artifacts) if with_artifacts is None else with_artifacts
    )
    if length == 0:
        assert "history" not in members


@pytest.fixture
def task() -> Task:
    question = Message("m-1", Role.USER, (Part(text="hi"),), "c-1", "t-1")
    answer = Message("m-2", Role.AGENT, (Part(text="done"),), "c-1", "t-1")
    file = Part.of_bytes(b"pdf", media_type="application/pdf", filename="a.pdf")
    return Task(
        "t-1",
        "c-1",
        TaskStatus(TaskState.COMPLETED, answer, datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)),
        artifacts=(Artifact("a-1", (Part(text="x"), file, Part(data=[1])), name="out"),),
        history=(question, answer),
    )


def test_a_task_in_1_0(task: Task):
    assert encode_json(task).decode() == snapshot(
        '{"id":"t-1","contextId":"c-1","status":{"state":"TASK_STATE_COMPLETED","message":{"messageId":"m-2","role":"ROLE_AGENT","parts":[{"text":"done"}],"contextId":"c-1","taskId":"t-1"},"timestamp":"2026-01-02T03:04:05.678000Z"},"artifacts":[{"artifactId":"a-1","parts":[{"text":"x"},{"raw":"cGRm","filename":"a.pdf","mediaType":"application/pdf"},{"data":[1]}],"name":"out"}],"history":[{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"hi"}],"contextId":"c-1","taskId":"t-1"},{"messageId":"m-2","role":"ROLE_AGENT","parts":[{"text":"done"}],"contextId":"c-1","taskId":"t-1"}]}'
    )


def test_a_task_in_0_3(task: Task):
    assert v03.encode_task(task).decode() == snapshot(
        '{"kind":"task","id":"t-1","contextId":"c-1","status":{"state":"completed","message":{"messageId":"m-2","role":"agent","parts":[{"kind":"text","text":"done"}],"kind":"message","contextId":"c-1","taskId":"t-1"},"timestamp":"2026-01-02T03:04:05.678000Z"},"artifacts":[{"artifactId":"a-1","parts":[{"kind":"text","text":"x"},{"kind":"file","file":{"bytes":"cGRm","mimeType":"application/pdf","name":"a.pdf"}},{"kind":"data","data":{"value":[1]}}],"name":"out"}],"history":[{"messageId":"m-1","role":"user","parts":[{"kind":"text","text":"hi"}],"kind":"message","contextId":"c-1","taskId":"t-1"},{"messageId":"m-2","role":"agent","parts":[{"kind":"text","text":"done"}],"kind":"message","contextId":"c-1","taskId":"t-1"}]}'
    )


def test_events_in_0_3(task: Task):
    status = StatusUpdate("t-1", "c-1", TaskStatus(TaskState.WORKING))
    artifact = ArtifactUpdate("t-1", "c-1", Artifact("a-1", (Part(text="x"),)), last_chunk=True)
    assert v03.encode_event(status).decode() == snapshot(
        '{"kind":"status-update","taskId":"t-1","contextId":"c-1","status":{"state":"working"},"final":false}'
    )
    assert v03.encode_event(artifact).decode() == snapshot(
        '{"kind":"artifact-update","taskId":"t-1","contextId":"c-1","artifact":{"artifactId":"a-1","parts":[{"kind":"text","text":"x"}]},"append":false,"lastChunk":true}'
    )


def test_history_is_cut_from_its_old_end(task: Task):
    body = encode_json(task)
    last = v1.trim_task(body, history_length=1, with_artifacts=False)
    assert [message.message_id for message in decode_task(last).history] == ["m-2"]
    assert v1.trim_task(body, history_length=None, with_artifacts=None) is body
    assert [m.message_id for m in v03.decode_task(v03.encode_task_result(body, 1)).history] == [
        "m-2"
    ]
    assert v03.decode_task(v03.encode_task_result(body, 0)).history == ()


def test_requested_artifacts_are_an_empty_list_when_there_are_none():
    body = encode_json(Task("t-1", "c-1", TaskStatus(TaskState.WORKING)))
    shown = v1.trim_task(body, history_length=None, with_artifacts=True)
    assert msgspec.json.decode(shown)["artifacts"] == []


def test_data_that_is_no_object_is_wrapped_for_0_3():
    message = Message("m", Role.AGENT, (Part(data=[1, 2]), Part(data=None), Part(data={"a": 1})))
    parts = msgspec.json.decode(v03.encode_message(message))["parts"]
    assert [part["data"] for part in parts] == [{"value": [1, 2]}, {"value": None}, {"a": 1}]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"[]",
        b'{"id":"t","contextId":"c","status":{"state":"working"}}',
        b'{"kind":"message","id":"t","contextId":"c","status":{"state":"working"}}',
        b'{"kind":"task","id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}',
        b'{"kind":"task","id":"t","contextId":"c","status":{"state":"working"},"artifacts":'
        b'[{"artifactId":"a","parts":[{"kind":"text"}]}]}',
        b'{"kind":"task","id":"\xff"}',
        b'{"kind":"task","metadata":' + b"[" * 5000,
    ],
)
def test_a_stored_0_3_record_that_is_no_task_is_refused(body: bytes):
    with pytest.raises(msgspec.ValidationError):
        v03.decode_task(body)
    with pytest.raises(msgspec.ValidationError):
        v03.decode_event(body)


def test_a_stored_time_without_zone_is_read_as_utc():
    body = (
        b'{"kind":"task","id":"t","contextId":"c",'
        b'"status":{"state":"working","timestamp":"2026-01-02T03:04:05"}}'
    )
    assert v03.decode_task(body).status.timestamp == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_a_stored_body_without_content_cannot_be_transcoded():
    with pytest.raises(msgspec.ValidationError):
        v03.transcode(b"{}")
