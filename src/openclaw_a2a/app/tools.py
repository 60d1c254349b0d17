"""Joins the tools with the gateway: their doors, who may come in, and their beginning and end."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack

import structlog

from openclaw_a2a.app.call_tools import CallerChains, Callers, call_tools
from openclaw_a2a.app.calls import CallRoom
from openclaw_a2a.app.offer import Offer, Surrounding, open_offer
from openclaw_a2a.app.outbound_section import read_outbound
from openclaw_a2a.app.plan_tools import plan_tools
from openclaw_a2a.app.planning import PlanRoom
from openclaw_a2a.inbound.http import Exchange
from openclaw_a2a.inbound.identity import check_names, is_from_here, is_passed_on, loopback_hosts
from openclaw_a2a.inbound.operator_token import make_token
from openclaw_a2a.inbound.patience import Patience
from openclaw_a2a.inbound.router import Page, Router
from openclaw_a2a.model.errors import GatewayError, GatewayFault
from openclaw_a2a.outbound.keeper import RecordKeeper
from openclaw_a2a.ports import Clock
from openclaw_a2a.runtime.engine import Engine
from openclaw_a2a.settings import Settings, StoreSettings
from openclaw_a2a.tools.doorkeeper import Doorkeeper
from openclaw_a2a.tools.http import RESULTS, TOOLS, ToolPages, Visit, refuse
from openclaw_a2a.tools.mcp_http import PATH as MCP
from openclaw_a2a.tools.mcp_http import McpPages
from openclaw_a2a.tools.table import ToolCaller
from openclaw_a2a.tools.tokens import FILE_NAME, ToolTokens

log = structlog.get_logger(__name__)

Serve = Callable[[Exchange, Visit], Awaitable[None]]


class Tools:
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
        self._mcp: McpPages | None = None
        self._offer: Offer | None = None

    async def prepare(
        self,
        parts: AsyncExitStack,
        *,
        engines: Mapping[StoreSettings, Engine],
        calls: CallRoom | None,
        plans: PlanRoom | None = None,
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
        keeper = None if engine is None else RecordKeeper(engine.store)
        chains = None if calls is None else CallerChains(calls)
        around = Surrounding(self._clock, self._environment, keeper, chains)
        offer = await parts.enter_async_context(open_offer(self._settings, self._config, around))
        if calls is not None and offer.remote is not None:
            calls.add_targets(offer.remote, self._config.aliases)
        if calls is not None and wanted.agent_to_agent.enabled:
            offer = offer.beside(call_tools(calls))
        if calls is not None and plans is not None and self._settings.opt.tools:
            account = self._settings.default_account.id
            offer = offer.beside(plan_tools(plans.desk, Callers(calls), account=account))
        self._offer = offer

    def open(self, router: Router, parts: AsyncExitStack, *, own_hosts: Iterable[str]) -> None:
        """Offer the tools at their addresses; `parts` end that again."""
        wanted, offer = self._settings.tools, self._offer
        if offer is None:
            return
        self._log_state(offer)
        door = self._door(own_hosts)
        pages = ToolPages(
            offer.table,
            door.keeper,
            results=offer.results,
            heartbeat_s=self._settings.server.heartbeat_seconds,
        )
        if wanted.http:
            router.add_page("GET", TOOLS, door.page(pages.list_tools))
            router.add_prefix(f"{TOOLS}/", door.page(pages.call))
        router.add_prefix(RESULTS, door.page(pages.read_result))
        if wanted.mcp and len(offer.table):
            self._open_mcp(offer, door, router, parts)

    async def close_streams(self) -> None:
        """End what callers hold open without a call under way; they may come back later."""
        if self._mcp is not None:
            await self._mcp.close()

    def _open_mcp(
        self, offer: Offer, door: "ToolDoor", router: Router, parts: AsyncExitStack
    ) -> None:
        wanted = self._settings.tools
        pages = McpPages(
            offer.table,
            door.keeper,
            most_sessions=wanted.sessions,
            body_bytes=wanted.body_bytes,
        )
        parts.push_async_callback(self.close_streams)
        self._mcp = pages
        for method in ("GET", "POST", "DELETE"):
            router.add_page(method, MCP, door.page(pages.serve))

    def _log_state(self, offer: Offer) -> None:
        if len(offer.table):
            aliases = list(self._config.aliases)
            log.info("a2a.plugin.loaded", tools=list(offer.table.names), targets=aliases)
        elif self._settings.outbound:
            log.info("a2a.plugin.disabled", reason="outbound.enabled is not true")

    def _door(self, own_hosts: Iterable[str]) -> "ToolDoor":
        data, wanted = self._settings.data, self._settings.tools
        try:
            operator = make_token(data)
        except OSError:  # the operator's own door tells about it
            operator = None
        keeper = Doorkeeper(
            ToolTokens(data / FILE_NAME), most_calls=wanted.per_token_calls, operator=operator
        )
        patience = Patience(self._settings.server.body_seconds)
        return ToolDoor(keeper, own_hosts, patience=patience, body_bytes=wanted.body_bytes)


class ToolDoor:
    """Lets known callers in: names first, then the token, and only then the body."""

    def __init__(
        self, keeper: Doorkeeper, own_hosts: Iterable[str], *, patience: Patience, body_bytes: int
    ) -> None:
        self.keeper = keeper
        self._own_hosts = loopback_hosts(own_hosts)
        self._patience = patience
        self._body_bytes = body_bytes

    def page(self, serve: Serve) -> Page:
        """A page for known callers."""

        async def answer(exchange: Exchange) -> None:
            try:
                caller = self._identify(exchange)
                body = await self._body(exchange)
                await serve(exchange, Visit(caller, body, exchange.receive, exchange.send))
            except GatewayError as error:
                if isinstance(error, GatewayFault):
                    log.exception("tool-door-broken", path=exchange.path, reason=error.message)
                if exchange.is_begun:
                    raise
                await refuse(exchange, error)

        return answer

    def _identify(self, exchange: Exchange) -> ToolCaller:
        is_here = is_from_here(exchange)
        if is_here or exchange.header(b"origin"):
            check_names(exchange, self._own_hosts)
        is_own = is_here and not is_passed_on(exchange)
        return self.keeper.identify(exchange.headers, is_from_here=is_own)

    async def _body(self, exchange: Exchange) -> bytes:
        if not exchange.has_body():
            return b""
        return await exchange.body(self._body_bytes, self._patience)
