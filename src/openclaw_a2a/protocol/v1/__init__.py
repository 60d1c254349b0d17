"""A2A 1.0. Stored bytes are 1.0 already, so most of them are sent as they are."""

from openclaw_a2a.protocol.v1.decode import (
    decode_get,
    decode_list,
    decode_push_config,
    decode_push_list,
    decode_push_request,
    decode_send,
    decode_task_request,
)
from openclaw_a2a.protocol.v1.encode import (
    encode_message,
    encode_push_config,
    encode_push_list,
    encode_sent_message,
    encode_sent_task,
    encode_stream_body,
    encode_task,
    encode_task_list,
    encode_task_result,
    trim_task,
    wrap_message,
    wrap_task,
)
from openclaw_a2a.protocol.versions import METHODS_V1, ProtocolVersion

VERSION = ProtocolVersion.V1
METHODS = METHODS_V1
STREAMS_FINISHED_TASKS = False
STREAMS_EARLY_ERRORS = False

__all__ = [
    "METHODS",
    "STREAMS_EARLY_ERRORS",
    "STREAMS_FINISHED_TASKS",
    "VERSION",
    "decode_get",
    "decode_list",
    "decode_push_config",
    "decode_push_list",
    "decode_push_request",
    "decode_send",
    "decode_task_request",
    "encode_message",
    "encode_push_config",
    "encode_push_list",
    "encode_sent_message",
    "encode_sent_task",
    "encode_stream_body",
    "encode_task",
    "encode_task_list",
    "encode_task_result",
    "trim_task",
    "wrap_message",
    "wrap_task",
]
