"""What replicas hand to each other arrives as it was."""

from datetime import UTC, datetime

import msgspec
from tests.engine.harness import ALICE

from openclaw_a2a.engine.replica_request_codec import (
    InternalRequest,
    MessageRequest,
    decode_request,
    describe_message,
    restore_message,
)
from openclaw_a2a.engine.tasks.submit import SubmitRequest
from openclaw_a2a.model.delivery import new_delivery
from openclaw_a2a.model.ids import AgentId, MessageId, OwnerId, SessionKey, TaskId
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.records import Hold
from openclaw_a2a.ports import Record

NOW = datetime(2026, 11, 15, 6, tzinfo=UTC)
MESSAGE = Message(MessageId("m-1"), Role.USER, (Part.of_data({"a": [1, None]}),))
REQUEST = SubmitRequest(
    ALICE,
    MESSAGE,
    is_blocking=False,
    accepted_output_modes=("text/plain",),
    original_message=msgspec.structs.replace(MESSAGE, parts=(Part.of_text("first"),)),
    is_answer=True,
    address="192.0.2.1",
    is_from_peer=True,
    is_decided=True,
    hold=Hold("because", pairs=True),
    metadata={"key": {"of": "a caller"}},
    new_task_id=TaskId("t-1"),
)


def hand_over(internal: InternalRequest | None) -> SubmitRequest:
    """The request as another replica has it."""
    body = msgspec.json.encode(describe_message(REQUEST, internal))
    received = decode_request(body, OwnerId("b"))
    assert isinstance(received, MessageRequest)
    return restore_message(received)


def test_a_message_arrives_with_all_its_members() -> None:
    members = set(MessageRequest.__struct_fields__) - {"internal"}
    assert members <= set(SubmitRequest.__struct_fields__)
    defaults = SubmitRequest(ALICE, MESSAGE)
    unset = {one for one in members if getattr(REQUEST, one) == getattr(defaults, one)}
    assert unset == {"scope", "message"}  # the others are all tested
    assert hand_over(None) == REQUEST


def test_a_message_of_the_gateway_itself_arrives_with_its_record_and_delivery() -> None:
    task_id = TaskId("t-1")
    record = Record("call", "c-1", b"{}", NOW)
    delivery = new_delivery("call", task_id, "c-1", b"c-1", cursor=0, now=NOW)
    session = SessionKey("agent:main:main")
    internal = InternalRequest(
        AgentId("main"), session, record=record, delivery=delivery, sender=OwnerId("a")
    )
    restored = hand_over(internal)
    origin = restored.internal_origin
    assert origin is not None
    assert origin.session_key == session
    assert origin.make_record is not None
    assert origin.make_record(task_id) == record
    assert restored.make_delivery is not None
    assert restored.make_delivery(task_id, 0) == delivery
    assert restored.delivery_owner == "a"


def test_a_message_of_the_gateway_without_a_record_arrives_without_one() -> None:
    restored = hand_over(InternalRequest(AgentId("main"), SessionKey("agent:main:main")))
    assert restored.internal_origin is not None
    assert restored.internal_origin.make_record is None
    assert restored.make_delivery is None
