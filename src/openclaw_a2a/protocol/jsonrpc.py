"""JSON-RPC 2.0 envelopes: decoding requests, encoding responses."""

from typing import cast

import msgspec

from openclaw_a2a.model.errors import GatewayError, InvalidRequest, ParseFailed
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import is_list
from openclaw_a2a.protocol.validation import parse_json

NO_ID = b"null"
"""The id of a response to a request whose own id is unknown."""
_MAX_ID_BYTES = 1024
"""Every event of a stream repeats the id."""


class Envelope(msgspec.Struct, frozen=True):
    """A request: the method, and the id and params as undecoded JSON.

    A notification has no id, and its sender wants no response.
    """

    id: bytes
    method: str
    params: bytes
    is_notification: bool = False


class EnvelopeError(Exception):
    """The body is not a request: `error` says why, `id` is the id for the response."""

    def __init__(self, error: GatewayError, id: bytes = NO_ID) -> None:
        super().__init__(error.message)
        self.error = error
        self.id = id


class _Slices(msgspec.Struct, frozen=True):
    id: msgspec.Raw = msgspec.Raw(NO_ID)
    params: msgspec.Raw = msgspec.Raw(b"{}")


_slices = msgspec.json.Decoder(_Slices)


def decode_envelope(body: bytes) -> Envelope:
    """The request in the body.

    Raises:
        EnvelopeError: with ParseFailed or InvalidRequest, and the id when it could be read.
    """
    try:
        value = parse_json(body)
    except ParseFailed as error:
        raise EnvelopeError(error) from None
    if not isinstance(value, dict):
        batch = "Batches are not served. Send each request on its own."
        other = "The body is no JSON-RPC request. Send one JSON object."
        raise EnvelopeError(InvalidRequest(batch if is_list(value) else other))
    members = cast("JsonObject", value)
    slices = _slices.decode(body)
    if type(members.get("id")) not in (str, int, type(None)):
        reason = "The id must be a string, an integer or null. Change it and send again."
        raise EnvelopeError(InvalidRequest(reason))
    request_id = bytes(slices.id)
    if len(request_id) > _MAX_ID_BYTES:
        reason = f"The id is longer than {_MAX_ID_BYTES} bytes. Send a shorter one."
        raise EnvelopeError(InvalidRequest(reason))
    if members.get("jsonrpc") != "2.0":
        reason = 'The member jsonrpc must be "2.0". Set it and send again.'
        raise EnvelopeError(InvalidRequest(reason), request_id)
    method: Json = members.get("method")
    if not isinstance(method, str) or not method:
        reason = "The member method must be a non-empty string. Name the method to call."
        raise EnvelopeError(InvalidRequest(reason), request_id)
    return Envelope(request_id, method, bytes(slices.params), "id" not in members)


def encode_result(id: bytes, result: bytes) -> bytes:
    """A response with a result."""
    return b'{"jsonrpc":"2.0","id":' + id + b',"result":' + result + b"}"


def around_result(id: bytes) -> tuple[bytes, bytes]:
    """What a response has before and after a result that is encoded already."""
    return b'{"jsonrpc":"2.0","id":' + id + b',"result":', b"}"


def encode_error(id: bytes, error: bytes) -> bytes:
    """A response with an error object."""
    return b'{"jsonrpc":"2.0","id":' + id + b',"error":' + error + b"}"
