"""Parsing the output of the command: an answer, or a failure with its reason."""

import json
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.agents.openclaw_cli.answer import (
    NO_OUTPUT,
    CliAnswer,
    CommandOutput,
    media_type_of,
    parse_answer,
    read_document,
)
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.message import Part

SPRING = {
    "payloads": [{"text": "echo: hello", "mediaUrl": None}],
    "meta": {
        "durationMs": 61276,
        "agentMeta": {"sessionId": "s1", "provider": "fake", "model": "fake-1"},
        "aborted": False,
    },
}
AUTUMN = {
    "payloads": [{"text": "echo: hello", "mediaUrl": None}],
    "meta": {
        "durationMs": 5271,
        "agentMeta": {
            "sessionId": "s2",
            "sessionFile": "agent:main:explicit:s2",
            "provider": "fake",
            "model": "fake-1",
            "usage": {"input": 2361, "output": 3, "total": 2364, "cost": {"total": 0}},
        },
        "aborted": False,
        "finalAssistantVisibleText": "echo: hello",
        "stopReason": "stop",
        "executionTrace": {"runner": "embedded", "attempts": [{"result": "success"}]},
        "completion": {"stopReason": "stop"},
    },
}
BY_GATEWAY = {"runId": "r-1", "status": "ok", "summary": "completed", "result": AUTUMN}
TIMED_OUT = {
    "payloads": [{"text": "Request timed out.", "isError": True, "mediaUrl": None}],
    "meta": {"durationMs": 15108, "aborted": False},
}


def read(output: object, *, errors: bytes = b"", exit_code: int = 0) -> CliAnswer:
    content = output if isinstance(output, bytes) else json.dumps(output).encode()
    return parse_answer(read_document(CommandOutput(exit_code, content, errors)))


@pytest.mark.parametrize("document", [SPRING, AUTUMN, BY_GATEWAY])
def test_every_shape_of_a_good_answer_is_read(document):
    assert read(document).parts == (Part(text="echo: hello"),)


def test_facts_of_the_run_are_kept():
    assert read(BY_GATEWAY).facts == {
        "provider": "fake",
        "model": "fake-1",
        "usage": {"input": 2361, "output": 3, "total": 2364, "cost": {"total": 0}},
        "sessionId": "s2",
        "durationMs": 5271,
        "stopReason": "stop",
    }


def test_answer_is_read_from_the_errors_when_the_output_is_blank():
    errors = b"[log] {noise}\n" + json.dumps(AUTUMN).encode()
    assert read(b" \n", errors=errors).parts == (Part(text="echo: hello"),)


def test_nothing_at_all_is_a_failure():
    with pytest.raises(AgentFailed, match="without any output"):
        read(b"\n", errors=b"  ")


NOISE = [
    b"[config] warnings: agents {} and {more}\n",
    b'\x1b[33mwarn\x1b[0m {"level": 1}\n',
    b"{\n",
    b"}}}} {{{ \n",
    b"\xff\xfe\x00 not utf-8 {\n",
    b'{"unfinished": "string \n',
    b"\x1b]0;title\x07 \x1b[2K\x1b[",
    b"\x1b]",
    b"\xef\xbb\xbf",
]


@pytest.mark.requirement("openclaw.command.noise")
@pytest.mark.parametrize("before", NOISE)
@pytest.mark.parametrize("after", NOISE)
@pytest.mark.parametrize("document", [SPRING, BY_GATEWAY])
def test_noise_around_a_document_does_not_matter(before, after, document):
    assert read(before + json.dumps(document, indent=1).encode() + b"\n" + after) == read(document)


@given(
    before=st.binary(max_size=200).filter(lambda noise: b"payloads" not in noise),
    after=st.binary(max_size=200),
)
def test_no_bytes_around_a_document_matter(before, after):
    if b'"' in before:  # an open string would swallow the line
        before += b"\n"
    assert read(before + json.dumps(AUTUMN).encode() + after).parts == (Part(text="echo: hello"),)


@given(st.binary(max_size=500), st.binary(max_size=100), st.integers(-20, 3))
def test_any_bytes_are_an_answer_or_a_failure(output, errors, exit_code):
    try:
        answer = read(output, errors=errors, exit_code=exit_code)
    except AgentFailed as error:
        assert error.message
    else:
        assert isinstance(answer, CliAnswer)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["payloads", "text", "mediaUrl", "mediaUrls", "meta", "error", "result", "isError"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["payloads", "meta", "result", "status", "ok"]), JSON))
def test_any_document_is_an_answer_or_a_failure_and_stays_as_it_was(document):
    before = deepcopy(document)
    try:
        parse_answer(document)
    except AgentFailed as error:
        assert error.message
    assert repr(document) == repr(before)


@pytest.mark.parametrize(
    "output",
    [
        json.dumps(AUTUMN).encode()[:-40],
        json.dumps(AUTUMN).encode()[:30],
        b'{"payloads": [{"text": "hi", "mediaUrl": null}], "meta": {"dur',
        b"plain text, no document",
        b"[1, 2]",
        b"{" * 1_000_000,
        b'{"a" ' * 1_000_000,
        b'{"a": "' * 100_000,
        b'{"a":' * 100_000,
        b'[{"a":' * 50_000 + b"1",
    ],
)
def test_output_that_is_cut_off_or_no_document_is_a_failure_that_quotes_little(output):
    with pytest.raises(AgentFailed, match="could not be read") as caught:
        read(output)
    assert len(caught.value.message) < 300


def test_first_object_counts_when_none_has_payloads():
    assert read(b'noise {"meta": {"stopReason": "stop"}} {"meta": {}}').remark == "stop"


def test_very_large_answer_is_read():
    text = "x{" * (10 * 1024 * 1024)
    assert read(b"noise {\n" + json.dumps({"payloads": [{"text": text}]}).encode()).parts == (
        Part(text=text),
    )


# ---------------------------------------------------------------- failures


@pytest.mark.requirement("openclaw.command.failure")
@pytest.mark.parametrize(
    "document",
    [
        {"error": "no way"},
        {"error_message": "no way"},
        {"message": "no way", "payloads": []},
        {"payloads": [{"text": "x"}], "meta": {"error": "no way"}},
        {"payloads": [], "meta": {"error_message": " no way "}},
        {"payloads": [], "meta": {"error": {"kind": "k", "message": "no way"}}},
        {"ok": False, "error": {"type": "cli_error", "message": "no way"}},
        {"status": "ok", "result": {"payloads": [], "meta": {"error": "no way"}}},
    ],
)
def test_explicit_failure_is_reported_with_openclaws_message(document):
    with pytest.raises(AgentFailed, match=r"^no way$"):
        read(document)


@pytest.mark.parametrize("blank", ["", "  ", None, 0, False])
def test_blank_error_is_no_failure(blank):
    assert read({"error": blank, "payloads": [{"text": "x"}]}).parts == (Part(text="x"),)


@pytest.mark.parametrize("status", ["error", "timeout", "in_flight"])
def test_gateway_run_that_did_not_end_well_is_a_failure(status):
    document = {"runId": "r", "status": status, "summary": "aborted", "result": {"payloads": []}}
    with pytest.raises(AgentFailed, match=f"{status}: aborted"):
        read(document)


def test_answer_with_only_error_payloads_is_a_failure():
    with pytest.raises(AgentFailed, match="Request timed out"):
        read(TIMED_OUT, exit_code=1)
    with pytest.raises(AgentFailed, match="Request timed out"):
        read(TIMED_OUT)


def test_error_beside_an_answer_is_part_of_it():
    payloads = [{"text": "Ask User failed", "isError": True}, {"text": "so I guessed"}]
    assert [part.text for part in read({"payloads": payloads}).parts] == [
        "Ask User failed",
        "so I guessed",
    ]


@pytest.mark.requirement("openclaw.command.exit")
@pytest.mark.parametrize(
    ("output", "errors", "exit_code", "sentence"),
    [
        (b'{"ok": false, "error": {"message": "Unknown agent id"}}', b"", 1, "Unknown agent id"),
        (b'log\n{"ok":false,"error":{"message":"bad level"}}', b"e", 1, "bad level"),
        (b"", b"Error: no such thing", 1, "exit code 1: Error: no such thing"),
        (b"not json", b"why", 7, "exit code 7: why"),
        (b"", b"", 3, "exit code 3 and gave no reason"),
        (b"", b"\xff\xfe", -9, "signal SIGKILL"),
    ],
)
def test_exit_code_other_than_zero_is_a_failure_with_its_reason(
    output, errors, exit_code, sentence
):
    with pytest.raises(AgentFailed) as caught:
        read(output, errors=errors, exit_code=exit_code)
    assert sentence in caught.value.message


# ---------------------------------------------------------------- content


@pytest.mark.requirement("openclaw.command.media")
def test_media_follow_the_text_of_their_payload_and_count_once():
    payloads = [
        {"text": "one", "mediaUrl": "https://x/a.png", "mediaUrls": ["https://x/b.PDF?q=1#f"]},
        {"text": "", "mediaUrl": "/etc/hostname", "mediaUrls": ["/etc/hostname", 7, "", None]},
        {"text": 5, "mediaUrl": None},
        "no payload",
    ]
    assert read({"payloads": payloads}).parts == (
        Part(text="one"),
        Part(url="https://x/b.PDF?q=1#f", media_type="application/pdf"),
        Part(url="https://x/a.png", media_type="image/png"),
        Part(url="/etc/hostname", media_type="application/octet-stream"),
    )


@pytest.mark.requirement("openclaw.command.media-type")
@pytest.mark.parametrize(
    ("url", "media_type"),
    [
        ("a.png", "image/png"),
        ("a.jpg", "image/jpeg"),
        ("a.JPEG", "image/jpeg"),
        ("a.gif", "image/gif"),
        ("a.webp", "image/webp"),
        ("a.svg", "image/svg+xml"),
        ("a.pdf", "application/pdf"),
        ("a.mp4", "video/mp4"),
        ("a.webm", "video/webm"),
        ("a.mp3", "audio/mpeg"),
        ("a.wav", "audio/wav"),
        ("https://x.png/path", "application/octet-stream"),
        ("https://x/a.png?name=b.pdf", "image/png"),
        ("https://x/a.png#b.pdf", "image/png"),
        ("a", "application/octet-stream"),
    ],
)
def test_media_type_goes_by_the_extension(url, media_type):
    assert media_type_of(url) == media_type


@pytest.mark.parametrize(
    ("meta", "remark"),
    [
        ({"stopReason": "stop", "warning": "w"}, "stop"),
        ({"stopReason": " ", "warning": "w"}, "w"),
        ({}, NO_OUTPUT),
    ],
)
def test_answer_without_output_has_a_remark(meta, remark):
    answer = read({"payloads": [{"text": "", "mediaUrl": None}], "meta": meta})
    assert (answer.parts, answer.remark) == ((), remark)


def test_lone_surrogates_are_replaced():
    answer = read(b'{"payloads": [{"text": "a\\ud800", "mediaUrl": "b\\ud800.png"}]}')
    assert answer.parts == (Part(text="a�"), Part(url="b�.png", media_type="image/png"))
