"""JSON-RPC envelopes: what is a request, and the id of its response."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.model.errors import InvalidRequest, ParseFailed
from openclaw_a2a.protocol.jsonrpc import (
    Envelope,
    EnvelopeError,
    decode_envelope,
    encode_error,
    encode_result,
)


def refused(body: bytes) -> EnvelopeError:
    with pytest.raises(EnvelopeError) as caught:
        decode_envelope(body)
    return caught.value


def test_a_request_is_its_id_method_and_params_as_written():
    body = b'{"jsonrpc":"2.0","id": "a\\u00e9" ,"method":"SendMessage","params": {"x": [1, 2]} }'
    assert decode_envelope(body) == Envelope(b'"a\\u00e9"', "SendMessage", b'{"x": [1, 2]}')


def test_params_may_be_absent():
    assert decode_envelope(b'{"jsonrpc":"2.0","id":1,"method":"x"}').params == b"{}"


@pytest.mark.parametrize("identity", [b"1", b"-7", b'"abc"', b"null", b"1" * 30])
def test_an_id_is_echoed_as_written(identity: bytes):
    body = b'{"jsonrpc":"2.0","id":' + identity + b',"method":"x"}'
    assert decode_envelope(body).id == identity
    assert refused(b'{"id":' + identity + b"}").id == identity


def test_a_request_without_id_gets_id_null():
    assert decode_envelope(b'{"jsonrpc":"2.0","method":"x"}').id == b"null"


@pytest.mark.parametrize("identity", [b"1.5", b"1.0", b"true", b"[]", b"{}"])
def test_an_id_of_another_type_is_refused_with_id_null(identity: bytes):
    failure = refused(b'{"jsonrpc":"2.0","method":"x","id":' + identity + b"}")
    assert isinstance(failure.error, InvalidRequest)
    assert failure.id == b"null"


@pytest.mark.parametrize(
    "body",
    [
        b'[{"jsonrpc":"2.0","id":1,"method":"x"}]',
        b"[]",
        b"7",
        b'"x"',
        b"null",
        b"{}",
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":1,"method":""}',
        b'{"jsonrpc":"2.0","id":1,"method":7}',
        b'{"jsonrpc":"1.0","id":1,"method":"x"}',
        b'{"jsonrpc":2.0,"id":1,"method":"x"}',
        b'{"id":1,"method":"x"}',
    ],
)
def test_json_that_is_no_request_is_an_invalid_request(body: bytes):
    assert isinstance(refused(body).error, InvalidRequest)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x",
        b'{"jsonrpc":"2.0","id":1,"method":"x"',
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":NaN}}',
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\xff"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":1,"a":2}}',
        b'{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}',
    ],
)
def test_invalid_json_is_a_parse_error_with_id_null(body: bytes):
    failure = refused(body)
    assert isinstance(failure.error, ParseFailed)
    assert failure.id == b"null"


@given(st.binary(max_size=80))
def test_arbitrary_bytes_are_a_request_or_refused(body: bytes):
    with contextlib.suppress(EnvelopeError):
        decode_envelope(body)


def test_responses_have_the_id_of_the_request():
    assert json.loads(encode_result(b'"a"', b'{"x":1}')) == {
        "jsonrpc": "2.0",
        "id": "a",
        "result": {"x": 1},
    }
    assert json.loads(encode_error(b"null", b'{"code":1}')) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": 1},
    }
