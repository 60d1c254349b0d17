"""Wires the tools: the registry, its endpoints, and their authentication."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from openclaw_a2a.app.wiring.calls import CallsWiring
from openclaw_a2a.app.wiring.planning import PlanningWiring
from openclaw_a2a.auth.admin_token import ensure_admin_token
from openclaw_a2a.auth.peers import Credentials
from openclaw_a2a.auth.request_origin import OwnAddresses
from openclaw_a2a.auth.tool_tokens import ToolAuthenticator, ToolCaller
from openclaw_a2a.engine.audit_file import FAILED, OK
from openclaw_a2a.engine.audit_log import AuditLog
from openclaw_a2a.engine.engine import Engine, new_id
from openclaw_a2a.engine.maintenance import RetentionClock
from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.http.asgi import Handler
from openclaw_a2a.http.caller_checks import CallerChecks
from openclaw_a2a.http.rate_limit import RequestAdmission
from openclaw_a2a.http.request_limits import RequestBodies
from openclaw_a2a.http.router import ANY_METHOD, Router
from openclaw_a2a.http.sse_stream import SseStreams
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import Problem, SettingsInvalid
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import is_object
from openclaw_a2a.ports import Clock, Store
from openclaw_a2a.remote.config import SECTION, TOOL_NAME, OutboundConfig, read_outbound
from openclaw_a2a.remote.handles import RecordHandleStore
from openclaw_a2a.remote.result import RemoteFailure
from openclaw_a2a.remote.result_truncation import ResultStore
from openclaw_a2a.settings import Limits, Settings, StoreSettings
from openclaw_a2a.settings.sources import process_environment
from openclaw_a2a.tools.call_tools import CallerChains, RemoteOrigin, call_tools
from openclaw_a2a.tools.http import (
    MCP_PATH,
    RESULTS_PATH,
    TOOLS_PATH,
    McpEndpoint,
    SessionLimits,
    ToolEndpoints,
    ToolGuard,
)
from openclaw_a2a.tools.openclaw_plugin import write_tool_table
from openclaw_a2a.tools.planning_tools import planning_tools
from openclaw_a2a.tools.registry import OnUpdate, Tool, ToolRegistry

if TYPE_CHECKING:
    from openclaw_a2a.remote.result_builder import StreamUpdate
    from openclaw_a2a.remote.tool import RemoteAgentTool

log = get_logger(__name__)

_RESULTS_FOLDER = "results"
_NO_CHAIN = RemoteOrigin(None, None, nullcontext())
_TOO_FAR = (
    "answer with what is known already; tools.agentToAgent.maxDepth says how far calls may go"
)


class ToolSet(msgspec.Struct, frozen=True):
    """The tools, and the results that were too large to be returned whole."""

    registry: ToolRegistry
    results: ResultStore
    remote: "RemoteAgentTool | None" = None
    """The client of remote agents, when `outbound.enabled` is on."""


@asynccontextmanager
async def open_tool_set(
    settings: Settings,
    config: OutboundConfig,
    *,
    clock: Clock,
    supervisor: Supervisor,
    store: Store | None = None,
    audit: AuditLog | None = None,
    chains: CallerChains | None = None,
) -> AsyncGenerator[ToolSet]:
    """The tools of these settings, as long as the context lasts. Raises: SettingsInvalid.

    Handles of remote tasks are stored in `store`; without one they end with the process.
    """
    results = ResultStore(
        settings.data / _RESULTS_FOLDER,
        limit=config.policy.max_result_bytes,
        ttl=timedelta(milliseconds=config.task_handles.ttl_ms),
    )
    audit = audit or AuditLog(None, clock.now)
    if not config.enabled:
        yield ToolSet(ToolRegistry(), results)
        return
    # The HTTP client takes long to load, so it is loaded only when it is used.
    from openclaw_a2a.remote.tool import RemoteAgentTool
    from openclaw_a2a.remote.transport.http_transport import TargetConnections

    async with AsyncExitStack() as parts:
        loops = supervisor.child("tools")
        parts.push_async_callback(loops.stop)
        # Not at the start: a gateway that was started with a wrong clock can be stopped.
        loops.run_every(
            "tool-results-retention",
            settings.retention.sweep_seconds,
            partial(_purge_results, results, RetentionClock(clock, store), audit),
            sleep=clock.sleep,
        )
        connections = TargetConnections(config.policy, limit=settings.limits.artifact_bytes)
        await parts.enter_async_context(connections)
        try:
            agent = RemoteAgentTool(
                config,
                connections,
                now=clock.now,
                new_id=new_id,
                environment=process_environment(None),
                handle_store=None if store is None else RecordHandleStore(store),
            )
        except RemoteFailure as failure:
            problem = Problem(f"{SECTION}.targets", failure.message, "unsupported")
            text = f"{problem.path}: {problem.message}"
            raise SettingsInvalid(text, problems=(problem,)) from None
        parts.push_async_callback(agent.close)
        await agent.open()
        tool = _remote_tool(agent, results, chains, audit)
        yield ToolSet(ToolRegistry([tool]), results, agent)


def _remote_tool(
    agent: "RemoteAgentTool", results: ResultStore, chains: CallerChains | None, audit: AuditLog
) -> Tool:
    """The tool that calls remote agents, with an entry in the audit log for each call."""
    from openclaw_a2a.remote.request_validation import requested_action
    from openclaw_a2a.remote.tool import TOOL_LABEL

    async def run(arguments: Json, caller: ToolCaller, report: OnUpdate) -> JsonObject:
        result = await call(arguments, caller, report)
        given: JsonObject = arguments if is_object(arguments) else {}
        audit.record(
            "remote-call",
            caller.name,
            action=str(given.get("action", "")),
            # Not an address that the caller chose: it may hold a token.
            target=str(given.get("target_alias", "")),
            requester=caller.agent_id,
            address=caller.address,
            outcome=FAILED if result.get("ok") is False else OK,
        )
        return result

    async def call(arguments: Json, caller: ToolCaller, report: OnUpdate) -> JsonObject:
        origin = _NO_CHAIN if chains is None else await chains.to_remote(caller)
        if origin.violation is not None and requested_action(arguments) == "send":
            return agent.refuse(arguments, origin.violation, _TOO_FAR)

        async def on_update(update: "StreamUpdate") -> None:
            report(update.envelope)  # built only for those who are shown it

        # The peer may call an agent of this gateway before it answers.
        with origin.released_slot:
            envelope = await agent.execute(
                arguments, on_update, owner=caller.remote_owner, message_metadata=origin.metadata
            )
        if results.fits(envelope):
            return envelope
        try:
            # In a thread: it encodes and writes what may be many megabytes.
            return await asyncio.to_thread(results.truncate, envelope, caller.name)
        except OSError as error:  # the answer is too large for a model, but it is there
            log.warning("tools.result_not_stored", tool=TOOL_NAME, reason=str(error))
            return envelope

    return Tool(TOOL_NAME, TOOL_LABEL, agent.description, agent.schema, run)


async def _purge_results(results: ResultStore, clock: RetentionClock, audit: AuditLog) -> None:
    count = await asyncio.to_thread(results.delete_expired, await clock.now())
    if count:
        log.info("tools.results_purged", results=count)
    audit.record_expired("results", count)


class ToolsWiring:
    """The tools of a gateway."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock,
        supervisor: Supervisor,
        bodies: RequestBodies,
        admission: RequestAdmission,
        streams: SseStreams,
    ) -> None:
        """Raises SettingsInvalid when the outbound section cannot be read."""
        self._settings = settings
        self._clock = clock
        self._supervisor = supervisor
        self._bodies = bodies
        self._admission = admission
        self._streams = streams
        self._section = read_outbound(settings.outbound)
        self._mcp: McpEndpoint | None = None
        self._tools: ToolSet | None = None

    @property
    def remote(self) -> "RemoteAgentTool | None":
        """The client of remote agents, once the tools are made; None without one."""
        return None if self._tools is None else self._tools.remote

    async def prepare(
        self,
        parts: AsyncExitStack,
        *,
        engines: Mapping[StoreSettings, Engine],
        calls: CallsWiring | None,
        plans: PlanningWiring | None,
    ) -> None:
        """Make the tools, before recovery starts agents that use them. Raises: SettingsInvalid.

        Remote tasks are stored in the gateway's own store, else in that of an account.
        """
        settings, config = self._settings, self._section.config
        if not (settings.tools.http or settings.tools.mcp):
            return
        for warning in self._section.warnings:
            log.warning("settings.warning", path=warning.path, reason=warning.message)
        engine = engines.get(settings.store) or next(iter(engines.values()), None)
        opened = await parts.enter_async_context(
            open_tool_set(
                settings,
                config,
                clock=self._clock,
                supervisor=self._supervisor,
                store=None if engine is None else engine.store,
                audit=None if engine is None else engine.audit,
                chains=None if calls is None else calls.chains,
            )
        )
        tools = [*opened.registry]
        if calls is not None:
            if opened.remote is not None:
                calls.add_targets(opened.remote, config.aliases)
            tools += call_tools(calls.service, calls.resolve_caller)
            if plans is not None and settings.opt.tools:
                account = settings.default_account.id
                tools += planning_tools(plans.service, calls.resolve_caller, account=account)
        self._tools = msgspec.structs.replace(opened, registry=ToolRegistry(tools))

    def open(
        self,
        router: Router[Handler],
        parts: AsyncExitStack,
        *,
        credentials: Credentials,
        own: OwnAddresses,
    ) -> None:
        """Add the routes of the tools; `parts` close what they hold open."""
        settings, tools = self._settings.tools, self._tools
        if tools is None:
            return
        if len(tools.registry):
            targets = list(self._section.config.aliases)
            log.info("a2a.plugin.loaded", tools=list(tools.registry.names), targets=targets)
        elif self._settings.outbound:
            log.info("a2a.plugin.disabled", reason="outbound.enabled is not true")
        guard = self._guard(credentials, own)
        endpoints = ToolEndpoints(
            tools.registry,
            guard.authenticator,
            read_result=tools.results.read,
            heartbeat_s=self._settings.server.heartbeat_seconds,
            supervisor=self._supervisor.child("tool-calls"),
        )
        if settings.http:
            try:
                write_tool_table(self._settings.data, tools.registry.encode())
            except OSError as error:  # the plugin then asks the gateway, for its next run
                log.warning("tools.plugin_table_not_written", reason=str(error))
            router.add_route("GET", TOOLS_PATH, guard.protect(endpoints.list_tools))
            router.add_route(ANY_METHOD, f"{TOOLS_PATH}/{{*}}", guard.protect(endpoints.call))
        router.add_route(ANY_METHOD, RESULTS_PATH + "{*}", guard.protect(endpoints.read_result))
        if settings.mcp and len(tools.registry):
            self._mcp = McpEndpoint(
                tools.registry,
                guard.authenticator,
                limits=SessionLimits(
                    settings.sessions,
                    Limits.share(settings.per_token_sessions, settings.sessions),
                    settings.session_idle_seconds,
                    settings.body_bytes,
                ),
                supervisor=self._supervisor.child("mcp"),
            )
            parts.push_async_callback(self.close_streams)
            for method in ("GET", "POST", "DELETE"):
                router.add_route(method, MCP_PATH, guard.protect(self._mcp.serve))

    async def close_streams(self) -> None:
        """End the MCP sessions, which clients hold open without a call."""
        if self._mcp is not None:
            await self._mcp.close()

    def _guard(self, credentials: Credentials, own: OwnAddresses) -> ToolGuard:
        data, settings = self._settings.data, self._settings.tools
        try:
            operator = ensure_admin_token(data)
        except OSError:  # the admin endpoint reports it
            operator = None
        return ToolGuard(
            ToolAuthenticator(
                credentials,
                max_calls=settings.per_token_calls,
                operator=operator,
                own=own,
            ),
            bodies=self._bodies,
            max_body_bytes=settings.body_bytes,
            max_values=self._settings.limits.body_values,
            checks=CallerChecks(
                self._settings.server.heartbeat_seconds, self._supervisor.child("tool-callers")
            ),
            admission=self._admission,
            streams=self._streams,
        )
