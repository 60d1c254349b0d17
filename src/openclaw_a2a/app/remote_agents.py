"""Remote agents for scripts: find them, send them work, follow it, and go on later."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack
from uuid import uuid4

import msgspec
import structlog

from openclaw_a2a.app.logs import configure_logs
from openclaw_a2a.app.outbound_section import read_outbound
from openclaw_a2a.app.remote_check import TargetCheck, check_target, with_access
from openclaw_a2a.app.remote_handles import HandleFolder
from openclaw_a2a.app.remote_requests import (
    Naming,
    Sending,
    To,
    is_address,
    send_request,
    task_request,
)
from openclaw_a2a.app.remote_results import RemoteAgentFailed, RemoteResult, RemoteTarget
from openclaw_a2a.model.errors import SettingsInvalid
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.outbound.config import OutboundConfig
from openclaw_a2a.outbound.failure import Code, RemoteFailure
from openclaw_a2a.outbound.handles import Handle
from openclaw_a2a.outbound.network import Network
from openclaw_a2a.outbound.outgoing import headers
from openclaw_a2a.outbound.remote_agent import NAME, RemoteAgent
from openclaw_a2a.outbound.targets import TargetBook
from openclaw_a2a.settings import LogSettings, Settings
from openclaw_a2a.settings.inherited import inherited_variables
from openclaw_a2a.settings.outbound import outbound_section

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
        self._book = TargetBook(self._config, self._environment)
        self._raises = raises
        self._folder = None if folder is None else HandleFolder(folder)
        self._open: _Open | None = None

    async def __aenter__(self) -> Self:
        if not structlog.is_configured():
            # Somebody's script: its standard output is its own.
            configure_logs(LogSettings(level="error"))
        network = Network(self._config.policy)
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
        task = RemoteResult.of(now).task
        return now if task and (task.is_over or task.is_waiting) else envelope

    # ---------------------------------------------------------------- what scripts say

    async def send(self, to: To, text: str = "", **more: Unpack[Sending]) -> RemoteResult:
        """Send a message and wait for the answer. Raises: RemoteAgentFailed, InvalidRequest."""
        return self._told(await self.execute(send_request(to, text, more)))

    def stream(
        self, to: To, text: str = "", **more: Unpack[Sending]
    ) -> AsyncIterator[RemoteResult]:
        """Send a message; how far the answer has come, each time that more of it comes.

        The last one is the whole answer. Raises: RemoteAgentFailed, InvalidRequest.
        """
        return self._updates(send_request(to, text, more))

    def watch(self, to: To, **more: Unpack[Naming]) -> AsyncIterator[RemoteResult]:
        """Follow a task until it ends or waits. Raises: RemoteAgentFailed."""
        return self._updates(task_request("watch", to, more))

    async def status(self, to: To, **more: Unpack[Naming]) -> RemoteResult:
        """A task as it is now. Raises: RemoteAgentFailed."""
        return self._told(await self.execute(task_request("status", to, more)))

    async def cancel(self, to: To, **more: Unpack[Naming]) -> RemoteResult:
        """Have a task stopped. Raises: RemoteAgentFailed."""
        return self._told(await self.execute(task_request("cancel", to, more)))

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
            raise RemoteAgentFailed(RemoteResult.of(_failed(failure))) from None
        naming: Naming = {"task_id": str(uuid4())}
        return with_access(found, await self.execute(task_request("status", to, naming)))

    # ---------------------------------------------------------------- below

    @property
    def handles(self) -> tuple[Handle, ...]:
        """The task handles that are alive, the one used last first."""
        return self._opened.tool.handles.all

    @property
    def _opened(self) -> "_Open":
        if self._open is None:
            raise RuntimeError(
                "RemoteAgents is not open; use it with: async with RemoteAgents() as"
            )
        return self._open

    def _make_tool(self, network: Network) -> RemoteAgent:
        return RemoteAgent(
            self._config,
            network,
            now=lambda: datetime.now(UTC),
            new_id=lambda: str(uuid4()),
            environment=self._environment,
            keeper=self._folder,
        )

    def _told(self, envelope: JsonObject) -> RemoteResult:
        result = RemoteResult.of(envelope)
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
                yield RemoteResult.of(update)
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
        client = self._opened.network.to(target).client
        try:
            async with asyncio.timeout(defaults.timeout_ms / 1000):
                return await check_target(target, client, sent)
        except TimeoutError:
            raise RemoteFailure(Code.PEER, "request timed out") from None


class _Open(msgspec.Struct, frozen=True):
    """What there is between entering and leaving."""

    tool: RemoteAgent
    network: Network


def _section(
    source: JsonObject | Settings | Path | str | None,
) -> tuple[JsonObject, Mapping[str, str]]:
    """The section `outbound`, and the environment that it refers to."""
    if isinstance(source, Settings):
        return source.outbound, inherited_variables(None)
    if isinstance(source, dict):
        return source, inherited_variables(None)
    found = outbound_section(None if source is None else Path(source))
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
    return RemoteResult.of(envelope).details


def _failed(failure: RemoteFailure) -> JsonObject:
    error = failure.as_object()
    return {"ok": False, "operation": NAME, "action": "check", "error": error}
