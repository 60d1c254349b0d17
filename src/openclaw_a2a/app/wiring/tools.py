"""Makes the tools that the settings turn on: today the calling of remote agents."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from openclaw_a2a.app.wiring.calls import CallsWiring
from openclaw_a2a.app.wiring.planning import PlanningWiring
from openclaw_a2a.auth.admin_token import ensure_admin_token
from openclaw_a2a.auth.tool_tokens import (
    TOOL_TOKENS_FILE,
    ToolAuthenticator,
    ToolCaller,
    ToolTokens,
)
from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.id_generator import new_id
from openclaw_a2a.http.asgi import Handler, HttpRequest
from openclaw_a2a.http.deadline import Deadline, body_deadline
from openclaw_a2a.http.router import ANY_METHOD, Router
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import GatewayError, GatewayFault, Problem, SettingsInvalid
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.ports import Clock
from openclaw_a2a.remote.config import SECTION, TOOL_NAME, OutboundConfig, read_outbound
from openclaw_a2a.remote.errors import RemoteFailure
from openclaw_a2a.remote.handles.handle_store import RecordHandleStore
from openclaw_a2a.remote.handles.handles import HandleStore
from openclaw_a2a.remote.result.result_truncation import ResultStore
from openclaw_a2a.settings import Settings, StoreSettings
from openclaw_a2a.settings.loading.environment import process_environment
from openclaw_a2a.tools.call_tools import CallerChains
from openclaw_a2a.tools.http import RESULTS, TOOLS, ToolEndpoints, ToolRequest, respond_error
from openclaw_a2a.tools.mcp.http import PATH as MCP
from openclaw_a2a.tools.mcp.http import McpEndpoint
from openclaw_a2a.tools.planning_tools import planning_tools
from openclaw_a2a.tools.progress_stream import cancel_and_wait
from openclaw_a2a.tools.registry import OnUpdate, Tool, ToolRegistry

if TYPE_CHECKING:
    from openclaw_a2a.remote.result.result_builder import StreamUpdate
    from openclaw_a2a.remote.tool import RemoteAgentTool
    from openclaw_a2a.remote.transport.http_transport import TargetConnections

log = get_logger(__name__)

FOLDER = "results"
_SWEEP_S = 3600.0
_TOO_FAR = (
    "answer with what is known already; tools.agentToAgent.maxDepth says how far calls may go"
)


class ToolSet(msgspec.Struct, frozen=True):
    """The tools there are, and what was too large to be told at once."""

    registry: ToolRegistry
    results: ResultStore
    remote: "RemoteAgentTool | None" = None
    """What calls remote agents, when that is on."""

    def with_tools(self, tools: Iterable[Tool]) -> "ToolSet":
        """The same, with more tools."""
        return msgspec.structs.replace(self, registry=ToolRegistry([*self.registry, *tools]))


class ToolDependencies(msgspec.Struct, frozen=True):
    """What tools need from around them; None: this process's own."""

    clock: Clock
    environment: Mapping[str, str] | None = None
    keeper: HandleStore | None = None
    chains: CallerChains | None = None


@asynccontextmanager
async def open_tool_set(
    settings: Settings, config: OutboundConfig, around: ToolDependencies
) -> AsyncGenerator[ToolSet]:
    """The tools of these settings, as long as the context lasts. Raises: SettingsInvalid."""
    results = ResultStore(
        settings.data / FOLDER,
        limit=config.policy.max_result_bytes,
        ttl=timedelta(milliseconds=config.task_handles.ttl_ms),
        now=around.clock.now,
    )
    if not config.enabled:
        yield ToolSet(ToolRegistry(), results)
        return
    # The client of A2A takes long to load, so it is loaded for those who use it.
    from openclaw_a2a.remote.transport.http_transport import TargetConnections

    sweeping = asyncio.create_task(_sweep(results, around.clock))
    try:
        async with TargetConnections(
            config.policy, limit=settings.limits.artifact_bytes
        ) as network:
            agent = _build(config, network, around)
            try:
                await agent.open()
                tool = _tool(agent, results, around.chains)
                yield ToolSet(ToolRegistry([tool]), results, agent)
            finally:
                await agent.close()
    finally:
        await cancel_and_wait(sweeping)


def _build(
    config: OutboundConfig, network: "TargetConnections", around: ToolDependencies
) -> "RemoteAgentTool":
    from openclaw_a2a.remote.tool import RemoteAgentTool

    try:
        return RemoteAgentTool(
            config,
            network,
            now=around.clock.now,
            new_id=new_id,
            environment=process_environment(around.environment),
            handle_store=around.keeper,
        )
    except RemoteFailure as failure:
        problem = Problem(f"{SECTION}.targets", failure.message, "unsupported")
        raise SettingsInvalid(f"{problem.path}: {problem.message}", problems=(problem,)) from None


def _tool(agent: "RemoteAgentTool", results: ResultStore, chains: CallerChains | None) -> Tool:
    from openclaw_a2a.remote.request.request_validation import requested_action
    from openclaw_a2a.remote.tool import TOOL_LABEL

    async def run(arguments: Json, caller: ToolCaller, tell: OnUpdate) -> JsonObject:
        reason = None if chains is None else chains.depth_violation(caller)
        if reason is not None and requested_action(arguments) == "send":
            return agent.refuse(arguments, reason, _TOO_FAR)
        metadata = None if chains is None else chains.message_metadata(caller)

        async def on_update(update: "StreamUpdate") -> None:
            tell(update.envelope())

        envelope = await agent.execute(arguments, on_update, message_metadata=metadata)
        try:
            return await asyncio.to_thread(results.truncate, envelope, caller.name)
        except OSError as error:  # the answer is too large for a model, but it is there
            log.warning("result-not-kept", tool=TOOL_NAME, reason=str(error))
            return envelope

    return Tool(TOOL_NAME, TOOL_LABEL, agent.description, agent.schema, run)


async def _sweep(results: ResultStore, clock: Clock) -> None:
    while True:
        try:
            await asyncio.to_thread(results.delete_expired)
        except OSError as error:
            log.warning("results-not-forgotten", reason=str(error))
        await clock.sleep(_SWEEP_S)


Serve = Callable[[HttpRequest, ToolRequest], Awaitable[None]]


class ToolsWiring:
    """The tools of a gateway."""

    def __init__(
        self, settings: Settings, *, clock: Clock, environment: Mapping[str, str] | None = None
    ) -> None:
        """Raises SettingsInvalid when the outbound section cannot be read."""
        self._settings = settings
        self._clock = clock
        self._environment = environment
        section = read_outbound(settings.outbound)
        self._config = section.config
        self._warnings = section.warnings
        self._mcp: McpEndpoint | None = None
        self._offer: ToolSet | None = None

    async def prepare(
        self,
        parts: AsyncExitStack,
        *,
        engines: Mapping[StoreSettings, Engine],
        calls: CallsWiring | None,
        plans: PlanningWiring | None = None,
    ) -> None:
        """Make the tools, before agents are asked that use them. Raises: SettingsInvalid.

        Remote tasks are kept in the gateway's store, or where there is none in another account's.
        """
        wanted = self._settings.tools
        if not (wanted.http or wanted.mcp):
            return
        for warning in self._warnings:
            log.warning("setting-warning", path=warning.path, reason=warning.message)
        engine = engines.get(self._settings.store) or next(iter(engines.values()), None)
        keeper = None if engine is None else RecordHandleStore(engine.store)
        chains = None if calls is None else calls.chains
        around = ToolDependencies(self._clock, self._environment, keeper, chains)
        offer = await parts.enter_async_context(open_tool_set(self._settings, self._config, around))
        if calls is not None and offer.remote is not None:
            calls.add_targets(offer.remote, self._config.aliases)
        if calls is not None and wanted.agent_to_agent.enabled:
            offer = offer.with_tools(calls.tools())
        if calls is not None and plans is not None and self._settings.opt.tools:
            account = self._settings.default_account.id
            offer = offer.with_tools(
                planning_tools(plans.service, calls.resolve_caller, account=account)
            )
        self._offer = offer

    def open(
        self, router: Router[Handler], parts: AsyncExitStack, *, own_hosts: Iterable[str]
    ) -> None:
        """Offer the tools at their addresses; `parts` end that again."""
        wanted, offer = self._settings.tools, self._offer
        if offer is None:
            return
        self._log_state(offer)
        door = self._door(own_hosts)
        pages = ToolEndpoints(
            offer.registry,
            door.keeper,
            results=offer.results,
            heartbeat_s=self._settings.server.heartbeat_seconds,
        )
        if wanted.http:
            router.add_route("GET", TOOLS, door.page(pages.list_tools))
            router.add_route(ANY_METHOD, f"{TOOLS}/{{*}}", door.page(pages.call))
        router.add_route(ANY_METHOD, RESULTS + "{*}", door.page(pages.read_result))
        if wanted.mcp and len(offer.registry):
            self._open_mcp(offer, door, router, parts)

    async def close_streams(self) -> None:
        """End what callers hold open without a call under way; they may come back later."""
        if self._mcp is not None:
            await self._mcp.close()

    def _open_mcp(
        self, offer: ToolSet, door: "ToolDoor", router: Router[Handler], parts: AsyncExitStack
    ) -> None:
        wanted = self._settings.tools
        pages = McpEndpoint(
            offer.registry,
            door.keeper,
            most_sessions=wanted.sessions,
            body_bytes=wanted.body_bytes,
        )
        parts.push_async_callback(self.close_streams)
        self._mcp = pages
        for method in ("GET", "POST", "DELETE"):
            router.add_route(method, MCP, door.page(pages.serve))

    def _log_state(self, offer: ToolSet) -> None:
        if len(offer.registry):
            aliases = list(self._config.aliases)
            log.info("a2a.plugin.loaded", tools=list(offer.registry.names), targets=aliases)
        elif self._settings.outbound:
            log.info("a2a.plugin.disabled", reason="outbound.enabled is not true")

    def _door(self, own_hosts: Iterable[str]) -> "ToolDoor":
        data, wanted = self._settings.data, self._settings.tools
        try:
            operator = ensure_admin_token(data)
        except OSError:  # the operator's own door tells about it
            operator = None
        keeper = ToolAuthenticator(
            ToolTokens(data / TOOL_TOKENS_FILE),
            max_calls=wanted.per_token_calls,
            operator=operator,
            own_hosts=own_hosts,
        )
        patience = body_deadline(self._settings.server.body_seconds)
        return ToolDoor(keeper, patience=patience, body_bytes=wanted.body_bytes)


class ToolDoor:
    """Lets known callers in: names first, then the token, and only then the body."""

    def __init__(
        self,
        keeper: ToolAuthenticator,
        *,
        patience: Deadline,
        body_bytes: int,
    ) -> None:
        self.keeper = keeper
        self._patience = patience
        self._body_bytes = body_bytes

    def page(self, serve: Serve) -> Handler:
        """A page for known callers."""

        async def answer(exchange: HttpRequest) -> None:
            try:
                caller = self.keeper.identify(exchange)
                body = await self._body(exchange)
                await serve(exchange, ToolRequest(caller, body, exchange.receive, exchange.send))
            except GatewayError as error:
                if isinstance(error, GatewayFault):
                    log.exception("tool-door-broken", path=exchange.path, reason=error.message)
                if exchange.has_started:
                    raise
                await respond_error(exchange, error)

        return answer

    async def _body(self, exchange: HttpRequest) -> bytes:
        if not exchange.has_body():
            return b""
        return await exchange.read_body(self._body_bytes, self._patience)
