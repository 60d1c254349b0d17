"""A2A 0.3 over JSON-RPC. Stored bytes are 1.0, so everything that is sent is transcoded."""

from openclaw_a2a.protocol.v03.decode import (
    decode_event,
    decode_get,
    decode_push_config,
    decode_push_list,
    decode_push_request,
    decode_send,
    decode_task,
    decode_task_request,
    message_from_v03,
)
from openclaw_a2a.protocol.v03.encode import (
    encode_event,
    encode_message,
    encode_push_config,
    encode_push_list,
    encode_sent_message,
    encode_sent_task,
    encode_stream_body,
    encode_task,
    encode_task_result,
    transcode,
)
from openclaw_a2a.protocol.v03.schema import MessageV03
from openclaw_a2a.protocol.versions import METHODS_V03, ProtocolVersion

VERSION = ProtocolVersion.V03
METHODS = METHODS_V03
STREAMS_FINISHED_TASKS = True
STREAMS_EARLY_ERRORS = True

__all__ = [
    "METHODS",
    "STREAMS_EARLY_ERRORS",
    "STREAMS_FINISHED_TASKS",
    "VERSION",
    "MessageV03",
    "decode_event",
    "decode_get",
    "decode_push_config",
    "decode_push_list",
    "decode_push_request",
    "decode_send",
    "decode_task",
    "decode_task_request",
    "encode_event",
    "encode_message",
    "encode_push_config",
    "encode_push_list",
    "encode_sent_message",
    "encode_sent_task",
    "encode_stream_body",
    "encode_task",
    "encode_task_result",
    "message_from_v03",
    "transcode",
]
