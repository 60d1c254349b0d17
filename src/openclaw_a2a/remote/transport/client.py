"""A client of one remote agent, over the official client of A2A.

Requests are JSON in the A2A 1.0 format. Answers are returned in one format for all protocol
versions: `kind` names the type of an object, and states are lower-case words. Peers differ in what
they leave out: only what a caller cannot do without is required.
"""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, nullcontext
from typing import cast
from urllib.parse import quote

from a2a.client.client import ClientCallContext
from a2a.client.transports.base import ClientTransport
from a2a.client.transports.jsonrpc import JsonRpcTransport
from a2a.client.transports.rest import RestTransport
from a2a.client.transports.tenant_decorator import TenantTransportDecorator
from a2a.compat.v0_3.jsonrpc_transport import CompatJsonRpcTransport
from a2a.compat.v0_3.rest_transport import CompatRestTransport
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.remote.config import Transport
from openclaw_a2a.remote.errors import RemoteFailure
from openclaw_a2a.remote.request_builder import invalid_request
from openclaw_a2a.remote.result.remote_result import TERMINAL_STATES
from openclaw_a2a.remote.transport.agent_card import (
    SUPPORTED_TRANSPORTS,
    Generation,
    Interface,
    PeerCard,
)
from openclaw_a2a.remote.transport.grpc_transport import GrpcConnection, grpc_metadata
from openclaw_a2a.remote.transport.http_transport import AnswerTooLarge, AnswerUnreadable, Connector
from openclaw_a2a.remote.transport.peer_errors import JsonRpcFailure, to_failure

_MAX_EXACT_FLOAT = 2**53


_Answer = pb.SendMessageResponse | pb.StreamResponse | pb.Task | None


def decode_peer_answer(answer: _Answer) -> JsonObject:
    """The message, task or event in an answer.

    Raises: RemoteFailure (there is none), AnswerUnreadable (gRPC could not parse it).
    """
    if answer is None:
        raise AnswerUnreadable("the answer cannot be read")
    members: JsonObject = MessageToDict(answer)
    if isinstance(answer, pb.Task):
        members = {"task": members}
    if "task" in members:
        return _task(members["task"])
    if "message" in members:
        return _message(members["message"], role="agent")
    for member, kind in (("statusUpdate", "status-update"), ("artifactUpdate", "artifact-update")):
        if member in members:
            return _update(members[member], kind)
    raise _unreadable("it holds neither a message nor a task")


def _task(task: JsonObject) -> JsonObject:
    if not task.get("id"):
        raise _unreadable("its task has no id")
    decoded: JsonObject = {"kind": "task", "id": task["id"], "status": _status(task)}
    if "artifacts" in task:
        decoded["artifacts"] = [_artifact(one) for one in task["artifacts"]]
    if "history" in task:
        # A message without a role must not pass for one of the agent.
        decoded["history"] = [_message(one, role="user") for one in task["history"]]
    return _copy(task, decoded, "contextId", "metadata")


def _update(event: JsonObject, kind: str) -> JsonObject:
    decoded: JsonObject = {"kind": kind, "taskId": event.get("taskId", "")}
    if kind == "status-update":
        decoded["status"] = _status(event)
        decoded["final"] = decoded["status"]["state"] in TERMINAL_STATES
    else:
        decoded["artifact"] = _artifact(event.get("artifact", {}))
        decoded["append"] = event.get("append", False)
        decoded["lastChunk"] = event.get("lastChunk", False)
    return _copy(event, decoded, "contextId", "metadata")


def _status(holder: JsonObject) -> JsonObject:
    """The status of a task or an event."""
    status: JsonObject = holder.get("status", {})
    name: str = status.get("state", "TASK_STATE_UNSPECIFIED")
    state = name.removeprefix("TASK_STATE_").lower().replace("_", "-")
    decoded: JsonObject = {"state": "unknown" if state == "unspecified" else state}
    if "message" in status:
        decoded["message"] = _message(status["message"], role="agent")
    if status.get("timestamp"):
        decoded["timestamp"] = status["timestamp"]
    return decoded


def _message(message: JsonObject, *, role: str) -> JsonObject:
    """A message; `role` is the default for one without a role."""
    named: str = message.get("role", "")
    known_role = {"ROLE_USER": "user", "ROLE_AGENT": "agent"}.get(named, role)
    decoded: JsonObject = {
        "kind": "message",
        "messageId": message.get("messageId", ""),
        "role": known_role,
        "parts": [_part(one) for one in message.get("parts", ())],
    }
    keys = ("contextId", "taskId", "referenceTaskIds", "metadata", "extensions")
    return _copy(message, decoded, *keys)


def _artifact(artifact: JsonObject) -> JsonObject:
    decoded: JsonObject = {
        "artifactId": artifact.get("artifactId", ""),
        "parts": [_part(one) for one in artifact.get("parts", ())],
    }
    return _copy(artifact, decoded, "name", "description", "metadata", "extensions")


def _part(part: JsonObject) -> JsonObject:
    decoded: JsonObject
    if "url" in part or "raw" in part:
        file: JsonObject = {"uri": part["url"]} if "url" in part else {"bytes": part["raw"]}
        if part.get("filename"):
            file["name"] = part["filename"]
        if part.get("mediaType"):
            file["mimeType"] = part["mediaType"]
        decoded = {"kind": "file", "file": file}
    elif "data" in part:
        decoded = {"kind": "data", "data": _whole_numbers(part["data"])}
    else:
        decoded = {"kind": "text", "text": part.get("text", "")}
    if part.get("metadata"):
        decoded["metadata"] = _whole_numbers(part["metadata"])
    return decoded


def _copy(source: JsonObject, target: JsonObject, *keys: str) -> JsonObject:
    """Copy the members that have a value."""
    for key in keys:
        if source.get(key):
            target[key] = _whole_numbers(source[key]) if key == "metadata" else source[key]
    return target


def _whole_numbers(value: Json) -> Json:
    """Free-form JSON with whole numbers as integers: protobuf makes floats of all numbers."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _MAX_EXACT_FLOAT else value
    if isinstance(value, dict):
        members = cast("JsonObject", value)
        return {
            key: member if isinstance(member, str) else _whole_numbers(member)
            for key, member in members.items()
        }
    if isinstance(value, list):
        items = cast("list[Json]", value)
        return [item if isinstance(item, str) else _whole_numbers(item) for item in items]
    return value


def _unreadable(reason: str) -> RemoteFailure:
    hint = "the peer does not keep to the protocol: tell its operator"
    return RemoteFailure.peer("InvalidAnswer", f"the peer's answer cannot be read: {reason}", hint)


_VERSION_HEADER = "a2a-version"


class _KeepsErrors:
    """Raises JSON-RPC errors with everything the peer said: the official ones drop most of it."""

    def _create_jsonrpc_error(self, error_dict: JsonObject) -> Exception:
        return JsonRpcFailure(error_dict)


class _JsonRpcTransport(_KeepsErrors, JsonRpcTransport):
    pass


class _CompatJsonRpcTransport(_KeepsErrors, CompatJsonRpcTransport):
    pass


_TRANSPORTS = {
    (Transport.JSONRPC, Generation.V1_0): _JsonRpcTransport,
    (Transport.JSONRPC, Generation.V0_3): _CompatJsonRpcTransport,
    (Transport.HTTP_JSON, Generation.V1_0): RestTransport,
    (Transport.HTTP_JSON, Generation.V0_3): CompatRestTransport,
}


class RemoteClient:
    """A client of one remote agent at one interface of its card."""

    def __init__(self, card: PeerCard, interface: Interface, connector: Connector) -> None:
        """The interface must be one of a supported transport and version."""
        self.card = card
        self._tenant = interface.tenant
        self._max_bytes = connector.max_response_bytes
        self._generation = interface.generation or Generation.V1_0
        transport = next(one for one in SUPPORTED_TRANSPORTS if interface.speaks(one))
        self._is_rest = transport is Transport.HTTP_JSON
        self._grpc: GrpcConnection | None = None
        if transport is Transport.GRPC:
            self._grpc = GrpcConnection(interface.url, self._generation, connector)
        else:
            # Without this flag the official client would not stream, whatever the peer can do.
            card_stub = pb.AgentCard(capabilities=pb.AgentCapabilities(streaming=True))
            kind = _TRANSPORTS[transport, self._generation]
            self._http = kind(connector.client, card_stub, interface.url, is_shared_httpx=True)

    def send(self, request: JsonObject, headers: Mapping[str, str]) -> Awaitable[JsonObject]:
        """Send a message; the Message or Task that the peer answers with."""
        message = _build_message(request)
        return self._call(headers, lambda one, call: one.send_message(message, context=call))

    def stream(self, request: JsonObject, headers: Mapping[str, str]) -> AsyncGenerator[JsonObject]:
        """Send a message and follow the answer."""
        message = _build_message(request)
        return self._stream(
            headers, lambda one, call: one.send_message_streaming(message, context=call)
        )

    def subscribe(self, task_id: str, headers: Mapping[str, str]) -> AsyncGenerator[JsonObject]:
        """Follow an existing task."""
        request = pb.SubscribeToTaskRequest(id=self._task_id(task_id))
        return self._stream(headers, lambda one, call: one.subscribe(request, context=call))

    def get(
        self, task_id: str, history_length: int | None, headers: Mapping[str, str]
    ) -> Awaitable[JsonObject]:
        """The task as it is now."""
        try:
            # To JSON, 3.0 is a whole number too.
            length = None if history_length is None else int(history_length)
            request = pb.GetTaskRequest(id=self._task_id(task_id), history_length=length)
        except ValueError as error:
            raise invalid_request(str(error)) from error
        return self._call(headers, lambda one, call: one.get_task(request, context=call))

    def cancel(self, task_id: str, headers: Mapping[str, str]) -> Awaitable[JsonObject]:
        """Cancel a task; the task as it is after that."""
        request = pb.CancelTaskRequest(id=self._task_id(task_id))
        return self._call(headers, lambda one, call: one.cancel_task(request, context=call))

    async def close(self) -> None:
        """Close connections that nobody else uses."""
        if self._grpc is not None:  # the HTTP connections are shared
            await self._grpc.close()

    async def _call(
        self,
        headers: Mapping[str, str],
        request: Callable[[ClientTransport, ClientCallContext], Awaitable[_Answer]],
    ) -> JsonObject:
        async with self._open(headers) as (transport, context):
            return decode_peer_answer(await request(transport, context))

    async def _stream(
        self,
        headers: Mapping[str, str],
        request: Callable[[ClientTransport, ClientCallContext], AsyncGenerator[pb.StreamResponse]],
    ) -> AsyncGenerator[JsonObject]:
        left = self._max_bytes
        async with (
            self._open(headers) as (transport, context),
            aclosing(request(transport, context)) as events,
        ):
            async for event in events:
                # The HTTP client bounds the whole answer; gRPC only each event of it.
                left -= event.ByteSize() if self._grpc and event else 0
                if left < 0:
                    raise AnswerTooLarge(f"the answer is larger than {self._max_bytes} bytes")
                yield decode_peer_answer(event)

    @asynccontextmanager
    async def _open(
        self, headers: Mapping[str, str]
    ) -> AsyncGenerator[tuple[ClientTransport, ClientCallContext]]:
        """The official transport and call context for one request with these headers.

        Every error in the context is a RemoteFailure.
        """
        try:
            if self._grpc:  # the official client sends the version itself
                own = {name: value for name, value in headers.items() if name != _VERSION_HEADER}
                context = ClientCallContext(service_parameters=grpc_metadata(own))
            else:
                sent = {**headers, _VERSION_HEADER: self._generation.value}
                context = ClientCallContext(service_parameters=sent)
            async with self._grpc.use() if self._grpc else nullcontext(self._http) as transport:
                tenant = self._tenant
                named = TenantTransportDecorator(transport, tenant) if tenant else transport
                yield named, context
        except RemoteFailure:
            raise
        except Exception as error:  # the official client raises many kinds
            raise to_failure(error) from error

    def _task_id(self, task_id: str) -> str:
        """The id for the official client, which puts it into REST addresses without quoting."""
        if not self._is_rest:
            return task_id
        # Dots alone would be a relative path.
        return quote(task_id, safe="") if task_id.strip(".") else "%2E" * len(task_id)


def _build_message(request: JsonObject) -> pb.SendMessageRequest:
    try:
        # Values that JSON cannot hold would fail only while the request is being sent.
        json.dumps(request, allow_nan=False)
        return ParseDict(request, pb.SendMessageRequest())
    except (ParseError, ValueError, OverflowError, RecursionError) as error:
        raise invalid_request(str(error)) from error
