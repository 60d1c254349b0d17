"""The stored form: what is written is read back, in the spelling of the 1.0 wire."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.model.strategies import events, messages, tasks

from openclaw_a2a.model.errors import CorruptRecord
from openclaw_a2a.model.ids import AccountId, AgentId, ContextId, SessionKey, TaskId
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.records import (
    Entry,
    decode_event,
    decode_task,
    encode_event,
    encode_json,
)
from openclaw_a2a.model.task import Event, StatusUpdate, Task, TaskState, TaskStatus
from openclaw_a2a.model.turn import Binding, Peer


@given(events)
def test_event_survives_the_store(event: Event) -> None:
    assert decode_event(encode_event(event)) == event


@given(events)
def test_event_is_stored_under_the_member_that_names_it(event: Event) -> None:
    stored = msgspec.json.decode(encode_event(event))
    member = "statusUpdate" if isinstance(event, StatusUpdate) else "artifactUpdate"
    assert list(stored) == [member]


@given(tasks)
def test_task_survives_the_store(task: Task) -> None:
    assert decode_task(encode_json(task)) == task


@given(messages)
def test_message_survives_the_store(message: Message) -> None:
    assert msgspec.json.decode(encode_json(message), type=Message) == message


@given(events)
def test_same_event_has_the_same_bytes(event: Event) -> None:
    assert encode_event(decode_event(encode_event(event))) == encode_event(event)


@given(st.sampled_from(TaskState))
def test_entry_gives_its_event_back(state: TaskState) -> None:
    event = StatusUpdate(TaskId("t"), ContextId("c"), TaskStatus(state))
    assert Entry(1, encode_event(event), state).event == event


@pytest.mark.parametrize("body", [b"{}", b'{"task":null}', b'{"statusUpdate":{}}', b"[]", b"{"])
def test_bytes_without_an_event_are_rejected(body: bytes) -> None:
    with pytest.raises(CorruptRecord):
        decode_event(body)


def test_stored_json_is_camel_case_without_defaults() -> None:
    status = TaskStatus(TaskState.WORKING, timestamp=datetime(2026, 11, 15, 6, tzinfo=UTC))
    event = StatusUpdate(TaskId("t-1"), ContextId("c-1"), status)
    assert encode_event(event) == (
        b'{"statusUpdate":{"taskId":"t-1","contextId":"c-1",'
        b'"status":{"state":"TASK_STATE_WORKING","timestamp":"2026-11-15T06:00:00Z"}}}'
    )


def test_binding_is_stored_whole() -> None:
    now = datetime(2026, 11, 15, 6, tzinfo=UTC)
    key = SessionKey("agent:main:a2a:alice:c-1")
    binding = Binding(
        AgentId("main"), AccountId("default"), key, key, Peer("alice", "context-id"), now, now
    )
    stored = msgspec.json.decode(encode_json(binding))
    assert stored["schemaVersion"] == 1
    assert stored["channel"] == "a2a"
    assert stored["matchedBy"] == "default"
    assert msgspec.json.decode(encode_json(binding), type=Binding) == binding
