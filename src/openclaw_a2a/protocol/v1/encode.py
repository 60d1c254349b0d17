"""Encodes results of A2A 1.0 methods from stored bytes and model objects."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.push_config import PushConfig
from openclaw_a2a.model.task import Task

_encode = msgspec.json.Encoder().encode


def encode_task(task: Task) -> bytes:
    """The task."""
    return _encode(task)


def encode_message(message: Message) -> bytes:
    """The message."""
    return _encode(message)


def wrap_task(task: bytes) -> bytes:
    """An encoded task as the result of a send, or as the first event of a stream."""
    return b'{"task":' + task + b"}"


def wrap_message(message: bytes) -> bytes:
    """An encoded message as the result of a send, or as the only event of a stream."""
    return b'{"message":' + message + b"}"


def encode_task_result(task: bytes, history_length: int | None = None) -> bytes:
    """A stored task as the result of a get or cancel."""
    return trim_task(task, history_length=history_length)


def encode_sent_task(task: bytes, history_length: int | None) -> bytes:
    """A stored task as the result of a send."""
    if history_length is not None:
        task = trim_task(task, history_length=history_length)
    return b'{"task":' + task + b"}"


def encode_sent_message(message: bytes) -> bytes:
    """A stored message as the result of a send."""
    return wrap_message(message)


def encode_stream_body(body: bytes) -> bytes:
    """A stored stream body as an event: it is one already."""
    return body


def encode_task_list(
    tasks: Sequence[bytes], next_page_token: str, *, page_size: int, total: int
) -> bytes:
    """A page of encoded tasks."""
    return b'{"tasks":[%b],"nextPageToken":%b,"pageSize":%d,"totalSize":%d}' % (
        b",".join(tasks),
        _encode(next_page_token),
        page_size,
        total,
    )


def encode_push_config(config: PushConfig) -> bytes:
    """A push configuration, for its owner."""
    return _encode(_push_config_json(config))


def encode_push_list(configs: Sequence[PushConfig], next_page_token: str) -> bytes:
    """A page of push configurations."""
    encoded = [_push_config_json(config) for config in configs]
    return _encode({"configs": encoded, "nextPageToken": next_page_token})


def _push_config_json(config: PushConfig) -> JsonObject:
    members: JsonObject = {"id": config.id, "taskId": config.task_id, "url": config.url}
    if config.token is not None:
        members["token"] = config.token
    if config.schemes:
        authentication: JsonObject = {"scheme": config.schemes[0]}
        if config.credentials is not None:
            authentication["credentials"] = config.credentials
        members["authentication"] = authentication
    return members


class _StoredTask(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A task whose members stay encoded."""

    id: msgspec.Raw
    context_id: msgspec.Raw
    status: msgspec.Raw
    artifacts: msgspec.Raw | UnsetType = UNSET
    history: tuple[msgspec.Raw, ...] | UnsetType = UNSET
    metadata: msgspec.Raw | UnsetType = UNSET


_stored_task = msgspec.json.Decoder(_StoredTask)


def trim_task(
    body: bytes, *, history_length: int | None, with_artifacts: bool | None = None
) -> bytes:
    """A stored task with less in it.

    History: None keeps it, 0 removes the member, n keeps the last n messages. Artifacts: None
    keeps them, False removes the member, True makes sure that it is there, even empty.
    """
    if history_length is None and with_artifacts is None:
        return body
    task = _stored_task.decode(body)
    history, artifacts = task.history, task.artifacts
    if history_length is not None and history is not UNSET:
        history = history[-history_length:] if history_length else UNSET
    if with_artifacts is False:
        artifacts = UNSET
    elif with_artifacts and artifacts is UNSET:
        artifacts = msgspec.Raw(b"[]")
    return _encode(msgspec.structs.replace(task, history=history, artifacts=artifacts))
