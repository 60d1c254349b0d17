"""`RemoteAgents`: remote A2A agents for scripts and commands."""

import asyncio
import base64
import mimetypes
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Self, TypedDict, Unpack
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec

from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.model.errors import InvalidRequest, SettingsInvalid
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.remote.config import OutboundConfig, read_outbound
from openclaw_a2a.remote.handles import HANDLE_PREFIX, FolderHandleStore, TaskHandle
from openclaw_a2a.remote.request_builder import build_headers
from openclaw_a2a.remote.result import (
    ErrorCode,
    RemoteAgentFailed,
    RemoteFailure,
    RemoteResult,
    RemoteTarget,
    is_streaming_refused,
)
from openclaw_a2a.remote.result_builder import OnStreamUpdate, StreamUpdate, failure_envelope
from openclaw_a2a.remote.target_status import TargetCheck, check_target, with_access
from openclaw_a2a.remote.targets import TargetDirectory
from openclaw_a2a.remote.tool import RemoteAgentTool
from openclaw_a2a.remote.transport.http_transport import TargetConnections
from openclaw_a2a.settings import Settings
from openclaw_a2a.settings.load import read_outbound_section
from openclaw_a2a.settings.sources import process_environment

_TASK_KEYS = ("task_id", "service_parameters")
_MESSAGE_KEYS = ("context_id", "message_id", "metadata", "accepted_output_modes")

Recipient = str | JsonObject | RemoteResult | None
"""The alias or address of a target, a task handle, an earlier result, or its continuation; None is
the default target."""


class TaskOptions(TypedDict, total=False):
    """The task at the target, and how long to wait at most."""

    task_id: str
    timeout_s: float
    service_parameters: dict[str, str]


class SendOptions(TaskOptions, total=False):
    """The content of a message besides its text, and how it is sent.

    `files` are paths or web addresses. `require_task` accepts only a task as the answer.
    """

    files: list[Path | str]
    data: JsonObject
    context_id: str
    require_task: bool
    message_id: str
    metadata: JsonObject
    accepted_output_modes: list[str]


def build_send_request(to: Recipient, text: str, more: SendOptions) -> JsonObject:
    """The request for a send. Raises: InvalidRequest (a file cannot be read)."""
    request = build_task_request("send", to, more)
    parts: list[JsonObject] = [{"kind": "text", "text": text}] if text else []
    parts += [_file(one) for one in more.get("files", [])]
    if "data" in more:
        parts.append({"kind": "data", "data": more["data"]})
    if more.get("require_task"):
        request["task_requirement"] = "required"
    given: JsonObject = {**more}
    return request | {"parts": parts} | {key: given[key] for key in _MESSAGE_KEYS if key in given}


def build_task_request(action: str, to: Recipient, more: TaskOptions) -> JsonObject:
    """The request for a watch, status or cancel; for a send, all but its content."""
    given: JsonObject = {**more}
    request: JsonObject = {"action": action, **_recipient(to, is_send=action == "send")}
    request |= {key: given[key] for key in _TASK_KEYS if key in given}
    if "timeout_s" in more:
        request["timeout_ms"] = max(1, round(more["timeout_s"] * 1000))
    return request


def _recipient(to: Recipient, *, is_send: bool) -> JsonObject:
    if to is None:
        return {}
    if isinstance(to, str):
        if to.startswith(HANDLE_PREFIX):
            return {"task_handle": to}
        return {"target_url" if is_url(to) else "target_alias": to}
    continuation = (to.continuation or {}) if isinstance(to, RemoteResult) else to
    task: JsonObject = continuation.get("task", {})
    if is_send and task.get("can_send") is False and "conversation" in continuation:
        # A task that has ended accepts no message; its conversation does.
        continuation = {key: value for key, value in continuation.items() if key != "task"}
    return {"continuation": continuation}


def is_url(text: str) -> bool:
    """True for an http or https address."""
    return text.lower().startswith(("http://", "https://"))


def _file(source: Path | str) -> JsonObject:
    if isinstance(source, str) and is_url(source):
        name = Path(urlsplit(source).path).name
        part: JsonObject = {"kind": "file", "uri": source}
    else:
        path = Path(source).expanduser()
        try:
            content = path.read_bytes()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            message = f"cannot read {path}: {reason}"
            raise InvalidRequest(message, details={"code": "file-unreadable"}) from None
        name = path.name
        part = {"kind": "file", "bytes": base64.b64encode(content).decode()}
    known = {"name": name, "mime_type": mimetypes.guess_type(name)[0]}
    return part | {key: value for key, value in known.items() if value}


OnEnvelope = Callable[[JsonObject], None]
"""Called with the envelope of each update."""


class RemoteAgents:
    """Remote A2A agents, as the section `outbound` of the settings names them.

    `source` is that section as an object, the whole Settings, or the path of a settings file; left
    out, the settings of this machine. With `may_use_any_url` every address may be called, whatever
    the policy says. Without `raises`, failures are results whose `ok` is false. `folder` stores the
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
        if isinstance(source, Settings | dict):
            section = source.outbound if isinstance(source, Settings) else source
            self._environment = process_environment(None)
        else:
            found = read_outbound_section(None if source is None else Path(source))
            section, self._environment = found.values, found.variables
        config = read_outbound(section).config
        if may_use_any_url:
            policy = msgspec.structs.replace(
                config.policy, allow_target_url_override=True, allow_private_targets=True
            )
            config = msgspec.structs.replace(config, policy=policy)
        self._config = config
        self._targets = TargetDirectory(self._config, self._environment)
        self._raises = raises
        self._handle_store = None if folder is None else FolderHandleStore(folder)
        self._supervisor = Supervisor("remote-agents")
        self._connections: TargetConnections | None = None
        self._tool: RemoteAgentTool | None = None

    async def __aenter__(self) -> Self:
        connections = TargetConnections(self._config.policy)
        try:
            self._tool = RemoteAgentTool(
                self._config,
                connections,
                now=lambda: datetime.now(UTC),
                new_id=lambda: str(uuid4()),
                environment=self._environment,
                handle_store=self._handle_store,
            )
        except RemoteFailure as failure:
            await connections.close()
            raise SettingsInvalid(f"outbound.targets: {failure.message}") from None
        await self._tool.open()
        self._connections = connections
        return self

    async def __aexit__(self, *_: object) -> None:
        # Followers first: they use the tool, and the tool the connections.
        await self._supervisor.stop()
        if self._tool is not None:
            await self._tool.close()
        if self._connections is not None:
            await self._connections.close()
        self._tool = self._connections = None

    @property
    def config(self) -> OutboundConfig:
        """The section as it is in force here."""
        return self._config

    # ---------------------------------------------------------------- the tool itself

    async def execute(self, request: Json, on_update: OnEnvelope | None = None) -> JsonObject:
        """Carry out a request of the tool `remote_agent`; its envelope. Raises nothing."""
        build = None if on_update is None else _build_envelopes(on_update)
        return await self._opened_tool.execute(request, build)

    async def follow(self, request: JsonObject, on_update: OnEnvelope) -> JsonObject:
        """As `execute` for a send or a watch, with updates from all agents that give any.

        An agent that cannot stream answers in one piece. A task that has ended meanwhile, or that
        waits for input, is returned as it is.
        """
        return await self._follow(request, _build_envelopes(on_update))

    # ---------------------------------------------------------------- results instead of envelopes

    async def send(
        self, to: Recipient, text: str = "", **more: Unpack[SendOptions]
    ) -> RemoteResult:
        """Send a message and wait for the answer. Raises: RemoteAgentFailed, InvalidRequest."""
        return self._result(await self.execute(build_send_request(to, text, more)))

    def stream(
        self, to: Recipient, text: str = "", **more: Unpack[SendOptions]
    ) -> AsyncGenerator[RemoteResult]:
        """Send a message; the answer so far, each time that more of it arrives.

        The last one is the whole answer. Raises: RemoteAgentFailed, InvalidRequest.
        """
        return self._updates(build_send_request(to, text, more))

    def watch(self, to: Recipient, **more: Unpack[TaskOptions]) -> AsyncGenerator[RemoteResult]:
        """Follow a task until it ends or waits for input. Raises: RemoteAgentFailed."""
        return self._updates(build_task_request("watch", to, more))

    async def status(self, to: Recipient, **more: Unpack[TaskOptions]) -> RemoteResult:
        """A task as it is now. Raises: RemoteAgentFailed."""
        return self._result(await self.execute(build_task_request("status", to, more)))

    async def cancel(self, to: Recipient, **more: Unpack[TaskOptions]) -> RemoteResult:
        """Cancel a task. Raises: RemoteAgentFailed."""
        return self._result(await self.execute(build_task_request("cancel", to, more)))

    async def targets(self) -> list[RemoteTarget]:
        """The configured targets, each with what its card says now."""
        envelope = await self.execute({"action": "list_targets"})
        self._result(envelope)
        return [RemoteTarget.from_entry(one) for one in envelope["summary"]["targets"]]

    async def check(self, to: str) -> TargetCheck:
        """Check the card of a target and whether it accepts us; nothing is sent to its agent.

        Raises: RemoteAgentFailed.
        """
        if self._connections is None:
            raise RuntimeError("RemoteAgents is not open")
        defaults = self._config.defaults
        try:
            target = self._targets.by_url(to) if is_url(to) else self._targets.by_alias(to)
            headers = build_headers(defaults.service_parameters, target.auth, self._environment)
            http = self._connections.connector_for(target).http
            async with asyncio.timeout(defaults.timeout_ms / 1000):
                found = await check_target(target, http, headers)
        except RemoteFailure as error:
            failure = error
        except TimeoutError:
            failure = RemoteFailure(ErrorCode.PEER, "request timed out")
        else:
            options: TaskOptions = {"task_id": str(uuid4())}
            answer = await self.execute(build_task_request("status", to, options))
            return with_access(found, answer)
        raise RemoteAgentFailed(RemoteResult.from_envelope(failure_envelope("check", failure)))

    @property
    def handles(self) -> tuple[TaskHandle, ...]:
        """The live task handles, most recently used first."""
        return self._opened_tool.handles.all

    # ---------------------------------------------------------------- private

    @property
    def _opened_tool(self) -> RemoteAgentTool:
        if self._tool is None:
            raise RuntimeError(
                "RemoteAgents is not open; use it with: async with RemoteAgents() as"
            )
        return self._tool

    def _result(self, envelope: JsonObject) -> RemoteResult:
        result = RemoteResult.from_envelope(envelope)
        if self._raises and not result.ok:
            raise RemoteAgentFailed(result)
        return result

    async def _follow(self, request: JsonObject, on_update: OnStreamUpdate) -> JsonObject:
        tool = self._opened_tool
        if request["action"] == "send":
            # One id for both tries: an agent that accepted the first recognises the second.
            request = {"message_id": str(uuid4()), **request}
            envelope = await tool.execute({**request, "follow_updates": True}, on_update)
            is_refused = is_streaming_refused(RemoteResult.from_envelope(envelope).details)
            return await tool.execute(request) if is_refused else envelope
        envelope = await tool.execute(request, on_update)
        details = RemoteResult.from_envelope(envelope).details
        if envelope["ok"] or details.get("suggested_action") != "status":
            return envelope
        status = await tool.execute({**request, "action": "status"})
        task = RemoteResult.from_envelope(status).task
        return status if task and (task.is_over or task.is_waiting) else envelope

    async def _updates(self, request: JsonObject) -> AsyncGenerator[RemoteResult]:
        updates: asyncio.Queue[StreamUpdate | None] = asyncio.Queue()

        async def on_update(update: StreamUpdate) -> None:
            # Waits until the update is taken: the queue never holds more than one.
            updates.put_nowait(update)
            await updates.join()

        work = self._supervisor.start("follow", self._follow(request, on_update))
        work.add_done_callback(lambda _: updates.put_nowait(None))  # ends the loop below
        try:
            while (update := await updates.get()) is not None:
                result = RemoteResult.from_envelope(update.envelope())
                # Before the yield: the stream is read on while the caller looks at this update.
                updates.task_done()
                yield result
            envelope = await work
        finally:
            # A caller may leave the loop early. Awaited, so that nothing works on after `aclose`.
            work.cancel()
            await asyncio.wait([work])
        last = self._result(envelope)
        # The result of a stream repeats its last update; any other result is new.
        if not last.ok or "events" not in last.raw:
            yield last


def _build_envelopes(on_update: OnEnvelope) -> OnStreamUpdate:
    async def build(update: StreamUpdate) -> None:
        on_update(update.envelope())

    return build
