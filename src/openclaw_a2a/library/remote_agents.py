"""Requests to `remote_agent` as scripts and people word them."""

import asyncio
import base64
import mimetypes
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self, TypedDict, Unpack
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec

from openclaw_a2a.model.errors import InvalidRequest, SettingsInvalid
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.remote.config import OutboundConfig
from openclaw_a2a.remote.config_section import read_outbound
from openclaw_a2a.remote.errors import ErrorCode, RemoteFailure
from openclaw_a2a.remote.handles.handle_store import FolderHandleStore
from openclaw_a2a.remote.handles.handles import TaskHandle
from openclaw_a2a.remote.request.request_builder import headers
from openclaw_a2a.remote.result.remote_result import RemoteAgentFailed, RemoteResult, RemoteTarget
from openclaw_a2a.remote.target_check import TargetCheck, check_target, with_access
from openclaw_a2a.remote.targets import TargetDirectory
from openclaw_a2a.remote.tool import TOOL_NAME, RemoteAgentTool
from openclaw_a2a.remote.transport.http_transport import TargetConnections
from openclaw_a2a.settings import Settings
from openclaw_a2a.settings.loading.environment import process_environment
from openclaw_a2a.settings.loading.load import read_outbound_section

_HANDLE = "rah_"
_AS_THEY_ARE = ("context_id", "message_id", "metadata", "accepted_output_modes")
_WEB = ("http://", "https://")

Recipient = str | JsonObject | RemoteResult | None
"""Whom a request is for: the alias or the address of a target, a task handle, an earlier result
or its continuation; None is the default target."""


class TaskOptions(TypedDict, total=False):
    """Which task is meant at the target, and how long to wait at most."""

    task_id: str
    timeout_s: float
    service_parameters: dict[str, str]


class SendOptions(TaskOptions, total=False):
    """What goes along with a message, and how it is sent.

    `files` are paths or web addresses. `require_task` wants a task and takes no direct answer.
    """

    files: list[Path | str]
    data: JsonObject
    context_id: str
    require_task: bool
    message_id: str
    metadata: JsonObject
    accepted_output_modes: list[str]


def build_send_request(to: Recipient, text: str, more: SendOptions) -> JsonObject:
    """The request that sends this. Raises: InvalidRequest (a file cannot be read)."""
    parts: list[JsonObject] = [{"kind": "text", "text": text}] if text else []
    parts += [_file(one) for one in more.get("files", [])]
    if "data" in more:
        parts.append({"kind": "data", "data": more["data"]})
    request: JsonObject = {"action": "send", **_subject(to, is_send=True), "parts": parts}
    if more.get("require_task"):
        request["task_requirement"] = "required"
    given: JsonObject = {**more}
    request |= {key: given[key] for key in _AS_THEY_ARE if key in given}
    return request | _naming(more)


def build_task_request(action: str, to: Recipient, more: TaskOptions) -> JsonObject:
    """The request that watches, asks for or cancels a task."""
    return {"action": action, **_subject(to, is_send=False), **_naming(more)}


def _subject(to: Recipient, *, is_send: bool) -> JsonObject:
    if to is None:
        return {}
    if isinstance(to, RemoteResult):
        return _going_on(to.continuation or {}, is_send=is_send)
    if isinstance(to, dict):
        return _going_on(to, is_send=is_send)
    if to.startswith(_HANDLE):
        return {"task_handle": to}
    return {"target_url" if is_address(to) else "target_alias": to}


def is_address(text: str) -> bool:
    """True for a web address."""
    return text.lower().startswith(_WEB)


def _going_on(continuation: JsonObject, *, is_send: bool) -> JsonObject:
    """An ended task takes no message, but its conversation does."""
    task: JsonObject = continuation.get("task", {})
    is_over = task.get("can_send") is False and "conversation" in continuation
    if is_send and is_over:
        continuation = {key: value for key, value in continuation.items() if key != "task"}
    return {"continuation": continuation}


def _naming(more: TaskOptions) -> JsonObject:
    request: JsonObject = {}
    if "task_id" in more:
        request["task_id"] = more["task_id"]
    if "timeout_s" in more:
        request["timeout_ms"] = max(1, round(more["timeout_s"] * 1000))
    if "service_parameters" in more:
        request["service_parameters"] = more["service_parameters"]
    return request


def _file(place: Path | str) -> JsonObject:
    if isinstance(place, str) and is_address(place):
        return _typed({"kind": "file", "uri": place}, Path(urlsplit(place).path).name)
    path = Path(place).expanduser()
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        message = f"cannot read {path}: {reason}"
        raise InvalidRequest(message, details={"code": "file-unreadable"}) from None
    return _typed({"kind": "file", "bytes": base64.b64encode(content).decode()}, path.name)


def _typed(part: JsonObject, name: str) -> JsonObject:
    kind: Json = mimetypes.guess_type(name)[0]
    named = {**part, "name": name} if name else part
    return {**named, "mime_type": kind} if kind else named


OnUpdate = Callable[[JsonObject], None]

_CANNOT_STREAM = frozenset({-32004, -32601})
"""What peers answer that cannot stream: the operation is not supported, or not known."""


class RemoteAgents:
    """Remote A2A agents, as the section `outbound` of the settings names them.

    `source` is that section as an object, the whole Settings, or the path of a settings file; left
    out, the settings of this machine. With `may_use_any_url` every address may be called, whatever
    the policy says. Without `raises`, failures are results whose `ok` is false. `folder` keeps the
    task handles; left out, they end with this object (continuations do not).

    Use it with `async with`. Raises: SettingsInvalid (the section cannot be read).
    """

    def __init__(
        self,
        source: JsonObject | Settings | Path | str | None = None,
        *,
        may_use_any_url: bool = False,
        raises: bool = True,
        folder: Path | None = None,
    ) -> None:
        section, self._environment = _section(source)
        self._config = _read_config(section, may_use_any_url=may_use_any_url)
        self._book = TargetDirectory(self._config, self._environment)
        self._raises = raises
        self._folder = None if folder is None else FolderHandleStore(folder)
        self._open: _Open | None = None

    async def __aenter__(self) -> Self:
        network = TargetConnections(self._config.policy)
        try:
            tool = self._make_tool(network)
            await tool.open()
        except RemoteFailure as failure:
            await network.close()
            raise SettingsInvalid(f"outbound.targets: {failure.message}") from None
        self._open = _Open(tool, network)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            await opened.tool.close()
            await opened.network.close()

    @property
    def config(self) -> OutboundConfig:
        """The section as it is in force here."""
        return self._config

    # ---------------------------------------------------------------- the tool itself

    async def execute(
        self,
        request: Json,
        on_update: OnUpdate | None = None,
        *,
        said_with: JsonObject | None = None,
        by_extension: Mapping[str, JsonObject] | None = None,
    ) -> JsonObject:
        """Do what a request of the tool `remote_agent` asks; its envelope. Raises nothing."""
        return await self._opened.tool.execute(
            request, on_update, said_with=said_with, by_extension=by_extension
        )

    async def follow(self, request: JsonObject, on_update: OnUpdate) -> JsonObject:
        """As `execute` for a send or a watch, with updates from all agents that give any.

        An agent that cannot stream answers in one piece. A task that has ended meanwhile, or that
        waits, is told as it is.
        """
        if request["action"] == "send":
            request = {"message_id": str(uuid4()), **request}
            envelope = await self.execute({**request, "follow_updates": True}, on_update)
            return await self.execute(request) if _was_not_sent(envelope) else envelope
        envelope = await self.execute(request, on_update)
        if envelope["ok"] or _details(envelope).get("suggested_action") != "status":
            return envelope
        now = await self.execute({**request, "action": "status"})
        task = RemoteResult.from_envelope(now).task
        return now if task and (task.is_over or task.is_waiting) else envelope

    # ---------------------------------------------------------------- what scripts say

    async def send(
        self, to: Recipient, text: str = "", **more: Unpack[SendOptions]
    ) -> RemoteResult:
        """Send a message and wait for the answer. Raises: RemoteAgentFailed, InvalidRequest."""
        return self._told(await self.execute(build_send_request(to, text, more)))

    def stream(
        self, to: Recipient, text: str = "", **more: Unpack[SendOptions]
    ) -> AsyncIterator[RemoteResult]:
        """Send a message; how far the answer has come, each time that more of it comes.

        The last one is the whole answer. Raises: RemoteAgentFailed, InvalidRequest.
        """
        return self._updates(build_send_request(to, text, more))

    def watch(self, to: Recipient, **more: Unpack[TaskOptions]) -> AsyncIterator[RemoteResult]:
        """Follow a task until it ends or waits. Raises: RemoteAgentFailed."""
        return self._updates(build_task_request("watch", to, more))

    async def status(self, to: Recipient, **more: Unpack[TaskOptions]) -> RemoteResult:
        """A task as it is now. Raises: RemoteAgentFailed."""
        return self._told(await self.execute(build_task_request("status", to, more)))

    async def cancel(self, to: Recipient, **more: Unpack[TaskOptions]) -> RemoteResult:
        """Have a task stopped. Raises: RemoteAgentFailed."""
        return self._told(await self.execute(build_task_request("cancel", to, more)))

    async def targets(self) -> list[RemoteTarget]:
        """The configured targets, each with what its card says now."""
        envelope = await self.execute({"action": "list_targets"})
        self._told(envelope)
        return [RemoteTarget.of(one) for one in envelope["summary"]["targets"]]

    async def check(self, to: str) -> TargetCheck:
        """What is found at a target, and whether it lets us in; nothing is sent to its agent.

        Raises: RemoteAgentFailed.
        """
        try:
            found = await self._look_at(to)
        except RemoteFailure as failure:
            raise RemoteAgentFailed(RemoteResult.from_envelope(_failed(failure))) from None
        naming: TaskOptions = {"task_id": str(uuid4())}
        return with_access(found, await self.execute(build_task_request("status", to, naming)))

    # ---------------------------------------------------------------- below

    @property
    def handles(self) -> tuple[TaskHandle, ...]:
        """The task handles that are alive, the one used last first."""
        return self._opened.tool.handles.all

    @property
    def _opened(self) -> "_Open":
        if self._open is None:
            raise RuntimeError(
                "RemoteAgents is not open; use it with: async with RemoteAgents() as"
            )
        return self._open

    def _make_tool(self, network: TargetConnections) -> RemoteAgentTool:
        return RemoteAgentTool(
            self._config,
            network,
            now=lambda: datetime.now(UTC),
            new_id=lambda: str(uuid4()),
            environment=self._environment,
            keeper=self._folder,
        )

    def _told(self, envelope: JsonObject) -> RemoteResult:
        result = RemoteResult.from_envelope(envelope)
        if self._raises and not result.ok:
            raise RemoteAgentFailed(result)
        return result

    async def _updates(self, request: JsonObject) -> AsyncIterator[RemoteResult]:
        # Without a bound: the tool keeps all events of a call, and an answer has its own bound.
        queue: asyncio.Queue[JsonObject | None] = asyncio.Queue()
        work = asyncio.create_task(self.follow(request, queue.put_nowait))
        work.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (update := await queue.get()) is not None:
                yield RemoteResult.from_envelope(update)
            envelope = await work
        finally:
            work.cancel()
            await asyncio.wait([work])
        last = self._told(envelope)
        # The end of a stream is what its last update said; everything else is said only here.
        if not last.ok or "events" not in last.raw:
            yield last

    async def _look_at(self, to: str) -> TargetCheck:
        target = self._book.at_url(to) if is_address(to) else self._book.named(to)
        defaults = self._config.defaults
        sent = headers(defaults.service_parameters, target.auth, self._environment)
        client = self._opened.network.connector_for(target).client
        try:
            async with asyncio.timeout(defaults.timeout_ms / 1000):
                return await check_target(target, client, sent)
        except TimeoutError:
            raise RemoteFailure(ErrorCode.PEER, "request timed out") from None


class _Open(msgspec.Struct, frozen=True):
    """What there is between entering and leaving."""

    tool: RemoteAgentTool
    network: TargetConnections


def _section(
    source: JsonObject | Settings | Path | str | None,
) -> tuple[JsonObject, Mapping[str, str]]:
    """The section `outbound`, and the environment that it refers to."""
    if isinstance(source, Settings):
        return source.outbound, process_environment(None)
    if isinstance(source, dict):
        return source, process_environment(None)
    found = read_outbound_section(None if source is None else Path(source))
    return found.values, found.variables


def _read_config(section: JsonObject, *, may_use_any_url: bool) -> OutboundConfig:
    config = read_outbound(section).config
    if not may_use_any_url:
        return config
    policy = msgspec.structs.replace(
        config.policy, allow_target_url_override=True, allow_private_targets=True
    )
    return msgspec.structs.replace(config, policy=policy)


def _was_not_sent(envelope: JsonObject) -> bool:
    """True when the agent took nothing because it cannot stream."""
    details = _details(envelope)
    is_refused = details.get("rpcCode") in _CANNOT_STREAM
    return is_refused and not {"task_id", "partial_event_count"} & details.keys()


def _details(envelope: JsonObject) -> JsonObject:
    return RemoteResult.from_envelope(envelope).details


def _failed(failure: RemoteFailure) -> JsonObject:
    error = failure.as_object()
    return {"ok": False, "operation": TOOL_NAME, "action": "check", "error": error}
