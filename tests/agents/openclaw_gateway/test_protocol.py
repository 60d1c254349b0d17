"""Frames of a gateway are decoded as untrusted input."""

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from openclaw_a2a.agents.openclaw_gateway.event_translator import MessageAssembler, ToolCallTracker
from openclaw_a2a.agents.openclaw_gateway.handshake import Hello
from openclaw_a2a.agents.openclaw_gateway.pending_input import (
    ApprovalRequest,
    ApprovalResolved,
    QuestionRequest,
    parse_answers,
    question_prompt,
)
from openclaw_a2a.agents.openclaw_gateway.protocol import (
    ErrorPayload,
    Item,
    RunOutcome,
    TextChunk,
    ToolStep,
    decode_as,
    decode_frame,
    decode_object,
    decode_origin,
    error_code,
    request_error,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(
    [
        *("type", "event", "id", "ok", "payload", "error", "runId", "sessionKey", "request"),
        *("stream", "data", "itemId", "delta", "text", "replace", "mediaUrls", "questions"),
        *("options", "label", "status", "result", "payloads", "meta", "phase", "toolCallId"),
        *("questionId", "code", "details", "message"),
    ]
)
NEARLY = st.recursive(JSON, lambda inner: st.dictionaries(NAMES, inner, max_size=6), max_leaves=20)
SHAPES = (
    *(
        ApprovalRequest,
        ApprovalResolved,
        Hello,
        QuestionRequest,
        Item,
        RunOutcome,
        TextChunk,
        ToolStep,
    ),
    *(list[ApprovalRequest], str, object),
)


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_bytes_that_are_no_frame_are_none_and_no_error(raw: bytes | str) -> None:
    frame = decode_frame(raw)
    assert frame is None or isinstance(frame.type, str)


@given(NEARLY)
def test_anything_in_a_frame_is_read_or_left(value: object) -> None:
    raw = Raw(msgspec.json.encode(value))
    frame = decode_frame(bytes(raw))
    if frame is not None:
        raw = frame.payload
    decode_origin(raw)
    decode_object(raw)
    for shape in SHAPES:
        decode_as(shape, raw)


@given(NEARLY, NEARLY)
def test_any_run_output_can_be_assembled(first: object, second: object) -> None:
    assembler, tools = MessageAssembler(), ToolCallTracker()
    for value in (first, second):
        raw = Raw(msgspec.json.encode(value))
        if (chunk := decode_as(TextChunk, raw)) is not None:
            assembler.starts_new_message(chunk)
            assembler.add_chunk(chunk)
        if (step := decode_as(ToolStep, raw)) is not None:
            tools.apply_step(step)
        if (item := decode_as(Item, raw)) is not None:
            tools.apply_item(item)
    assembler.end()


@given(NEARLY, st.text(max_size=40))
def test_any_question_can_be_rendered_and_answered(value: object, text: str) -> None:
    request = decode_as(QuestionRequest, msgspec.json.encode(value))
    if request is not None:
        question_prompt(request)
        answers = parse_answers(request.questions, text)
        assert set(answers) == {one.question_id for one in request.questions}


def test_deep_nesting_is_not_a_frame() -> None:
    raw = '{"type":"event","payload":' + "[" * 100_000 + "]" * 100_000 + "}"
    frame = decode_frame(raw)
    assert frame is None or decode_as(object, frame.payload) is None


def test_what_is_not_known_is_skipped() -> None:
    frame = decode_frame(json.dumps({"type": "event", "event": "x", "more": {"a": 1}, "seq": 3}))
    assert frame is not None
    assert frame.event == "x"


def test_the_session_of_an_approval_is_found_one_level_deeper() -> None:
    origin = decode_origin(Raw(b'{"id":"1","request":{"runId":"r","sessionKey":"s"}}'))
    assert (origin.run, origin.session) == ("r", "s")


def test_a_refusal_keeps_its_finer_code() -> None:
    by_code = ErrorPayload("A", "m", Raw(b'{"code":"FINER"}'))
    by_reason = ErrorPayload("A", "m", Raw(b'{"reason":"WHY"}'))
    codes = [error_code(request_error("x", one)) for one in (by_code, by_reason, ErrorPayload("A"))]
    assert codes == ["FINER", "WHY", "A"]
