"""Small clients of both protocol versions that check every response with the official types."""

import codecs
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec
from a2a import types as v1_types
from a2a.compat.v0_3 import types as v03_types
from google.protobuf import json_format
from tests.conformance.asgi_client import ActiveRequest, AsgiClient, Request, Response

Json = Any
Check = Callable[[str, Json], None]

_V1_RESULTS: dict[str, Any] = {
    "SendMessage": v1_types.SendMessageResponse,
    "SendStreamingMessage": v1_types.StreamResponse,
    "SubscribeToTask": v1_types.StreamResponse,
    "GetTask": v1_types.Task,
    "CancelTask": v1_types.Task,
    "ListTasks": v1_types.ListTasksResponse,
    "CreateTaskPushNotificationConfig": v1_types.TaskPushNotificationConfig,
    "GetTaskPushNotificationConfig": v1_types.TaskPushNotificationConfig,
    "ListTaskPushNotificationConfigs": v1_types.ListTaskPushNotificationConfigsResponse,
}
_V03_ANSWERS: dict[str, Any] = {
    "message/send": v03_types.SendMessageSuccessResponse,
    "message/stream": v03_types.SendStreamingMessageSuccessResponse,
    "tasks/resubscribe": v03_types.SendStreamingMessageSuccessResponse,
    "tasks/get": v03_types.GetTaskSuccessResponse,
    "tasks/cancel": v03_types.CancelTaskSuccessResponse,
    "tasks/pushNotificationConfig/set": v03_types.SetTaskPushNotificationConfigSuccessResponse,
    "tasks/pushNotificationConfig/get": v03_types.GetTaskPushNotificationConfigSuccessResponse,
    "tasks/pushNotificationConfig/list": v03_types.ListTaskPushNotificationConfigSuccessResponse,
    "tasks/pushNotificationConfig/delete": (
        v03_types.DeleteTaskPushNotificationConfigSuccessResponse
    ),
}


def check_v1(method: str, envelope: Json) -> None:
    """Fail unless the result parses strictly as the protocol's own type."""
    if envelope.get("result") is not None:
        json_format.ParseDict(envelope["result"], _V1_RESULTS[method]())


def check_v03(method: str, envelope: Json) -> None:
    """Fail unless the official 0.3 models accept the whole answer."""
    if "error" in envelope:
        v03_types.JSONRPCErrorResponse.model_validate(envelope)
    else:
        _V03_ANSWERS[method].model_validate(envelope)


_PAUSED = ("TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED")


@dataclass(frozen=True)
class Frame:
    """One event of a stream."""

    id: str | None
    event: str | None
    json: Json


@dataclass
class FrameReader:
    """Reads the frames of a stream as they come, and counts comments."""

    active: ActiveRequest
    check: Callable[[Json], None]
    comments: list[str] = field(default_factory=list[str])
    _buffer: str = ""
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=codecs.getincrementaldecoder("utf-8")
    )

    async def next(self) -> Frame | None:
        """The next event; None when the stream is over."""
        while True:
            block, mark, rest = self._buffer.partition("\n\n")
            if mark:
                self._buffer = rest
                if (frame := self._read_block(block)) is not None:
                    return frame
            elif not await self.read_chunk():
                return None

    async def take(self, count: int) -> list[Frame]:
        """Exactly so many events."""
        frames: list[Frame] = []
        for _ in range(count):
            frame = await self.next()
            assert frame is not None, f"the stream ended after {len(frames)} events: {frames}"
            frames.append(frame)
        return frames

    async def to_pause(self) -> list[Frame]:
        """All events up to one that says that the task waits."""
        frames = await self.take(1)
        while not any(state in str(frames[-1].json) for state in _PAUSED):
            frames += await self.take(1)
        return frames

    async def rest(self) -> list[Frame]:
        """All events until the stream ends."""
        frames: list[Frame] = []
        while (frame := await self.next()) is not None:
            frames.append(frame)
        return frames

    async def read_chunk(self) -> bool:
        """Read on; False at the end. Comments are counted at once, events wait for `next`."""
        chunk = await self.active.next_chunk()
        if chunk is None:
            assert self._buffer.strip() == "", f"half an event at the end: {self._buffer!r}"
            return False
        # A large frame comes in several pieces, which may end within a character.
        text = self._decoder.decode(chunk).replace("\r\n", "\n")
        self.comments += [line[1:].strip() for line in text.split("\n") if line.startswith(":")]
        self._buffer += text
        return True

    def _read_block(self, block: str) -> Frame | None:
        fields: dict[str, str] = {}
        for line in block.split("\n"):
            name, _, value = line.partition(":")
            if not name:
                continue
            assert name not in fields, f"two {name} lines in one event: {block!r}"
            fields[name] = value.removeprefix(" ")
        if "data" not in fields:
            return None
        body = msgspec.json.decode(fields["data"])
        self.check(body)
        return Frame(fields.get("id"), fields.get("event"), body)


class RpcFailed(Exception):
    """The call was answered with an error."""

    def __init__(self, error: Json) -> None:
        super().__init__(error)
        self.error = error

    @property
    def code(self) -> int:
        """The JSON-RPC code."""
        return self.error["code"]

    @property
    def message(self) -> str:
        """The sentence."""
        return self.error["message"]


class RpcClient:
    """JSON-RPC in one generation."""

    def __init__(self, http: AsgiClient, *, check: Check, path: str = "/a2a/jsonrpc") -> None:
        self.http = http
        self._check = check
        self._path = path

    def at(self, http: AsgiClient) -> "RpcClient":
        """The same client with another HTTP client (other headers)."""
        return RpcClient(http, check=self._check, path=self._path)

    def at_path(self, path: str) -> "RpcClient":
        """The same client at another path."""
        return RpcClient(self.http, check=self._check, path=path)

    async def post(self, method: str, params: Json) -> Response:
        """The raw answer."""
        return await self.http.post(self._path, encode_call(method, params))

    async def call(self, method: str, params: Json) -> Json:
        """The result. Raises RpcFailed."""
        response = await self.post(method, params)
        assert (response.status, response.media_type) == (200, "application/json"), response
        self._check(method, response.json)
        return unwrap(response.json)

    async def error(self, method: str, params: Json) -> RpcFailed:
        """The error that the call must give."""
        try:
            result = await self.call(method, params)
        except RpcFailed as failed:
            return failed
        raise AssertionError(f"{method} must fail, and gave {result}")

    @asynccontextmanager
    async def stream(
        self, method: str, params: Json, *, last_event_id: str | None = None, is_slow: bool = False
    ) -> AsyncGenerator[FrameReader]:
        """A stream under way. Frames hold whole JSON-RPC responses."""
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        if last_event_id is not None:
            headers["last-event-id"] = last_event_id
        request = Request("POST", self._path, headers, (encode_call(method, params),))
        async with self.http.open(request, is_slow=is_slow) as active:
            await active.wait_started()
            yield FrameReader(active, lambda body: self._check(method, body))

    async def events(
        self, method: str, params: Json, *, last_event_id: str | None = None
    ) -> list[Frame]:
        """All events of a stream that ends by itself."""
        async with self.stream(method, params, last_event_id=last_event_id) as frames:
            assert frames.active.headers["content-type"].startswith("text/event-stream")
            return await frames.rest()


def encode_call(method: str, params: Json, *, call_id: Json = 1) -> bytes:
    """A JSON-RPC request."""
    return msgspec.json.encode(
        {"jsonrpc": "2.0", "id": call_id, "method": method, "params": params}
    )


def unwrap(envelope: Json) -> Json:
    """The result in a JSON-RPC response. Raises RpcFailed."""
    assert envelope["jsonrpc"] == "2.0", envelope
    assert envelope["id"] == 1, envelope
    if "error" in envelope:
        raise RpcFailed(envelope["error"])
    return envelope["result"]


class V1Client(RpcClient):
    """The calls of 1.0 in a line each."""

    def __init__(self, http: AsgiClient, *, path: str = "/a2a/jsonrpc") -> None:
        super().__init__(http, check=check_v1, path=path)

    async def send(self, text: str = "hello", **members: Json) -> Json:
        """The result of SendMessage: `{"task": ...}` or `{"message": ...}`."""
        return await self.call("SendMessage", v1_message(text, **members))

    async def start(self, text: str = "hello", **members: Json) -> Json:
        """The task that SendMessage makes without waiting."""
        params = v1_message(text, **members)
        params.setdefault("configuration", {})["returnImmediately"] = True
        return (await self.call("SendMessage", params))["task"]

    async def get(self, task_id: str, **more: Json) -> Json:
        """The task."""
        return await self.call("GetTask", {"id": task_id, **more})

    async def cancel(self, task_id: str) -> Json:
        """The task after CancelTask."""
        return await self.call("CancelTask", {"id": task_id})

    async def list(self, **filters: Json) -> Json:
        """The page."""
        return await self.call("ListTasks", filters)


class V03Client(RpcClient):
    """The calls of 0.3 in a line each."""

    def __init__(self, http: AsgiClient, *, path: str = "/a2a/jsonrpc") -> None:
        super().__init__(http, check=check_v03, path=path)

    async def send(self, text: str = "hello", **members: Json) -> Json:
        """The result of message/send."""
        return await self.call("message/send", v03_message(text, **members))

    async def start(self, text: str = "hello", **members: Json) -> Json:
        """The task that message/send makes without waiting."""
        params = v03_message(text, **members)
        params.setdefault("configuration", {})["blocking"] = False
        return await self.call("message/send", params)

    async def get(self, task_id: str, **more: Json) -> Json:
        """The task."""
        return await self.call("tasks/get", {"id": task_id, **more})

    async def cancel(self, task_id: str) -> Json:
        """The task after tasks/cancel."""
        return await self.call("tasks/cancel", {"id": task_id})


_numbers = count(1)


def fresh_id(prefix: str = "m") -> str:
    """An id that no other test of this process uses."""
    return f"{prefix}-{next(_numbers)}"


def v1_message(text: str = "hello", **members: Json) -> dict[str, Json]:
    """Params of SendMessage. `configuration` stays outside the message."""
    return _params({"role": "ROLE_USER", "parts": [{"text": text}]}, members)


def v03_message(text: str = "hello", **members: Json) -> dict[str, Json]:
    """Params of message/send."""
    message = {"kind": "message", "role": "user", "parts": [{"kind": "text", "text": text}]}
    return _params(message, members)


def _params(message: dict[str, Json], members: Mapping[str, Json]) -> dict[str, Json]:
    rest = dict(members)
    params: dict[str, Json] = {}
    if "configuration" in rest:
        params["configuration"] = rest.pop("configuration")
    params["message"] = {"messageId": fresh_id(), **message, **rest}
    return params
