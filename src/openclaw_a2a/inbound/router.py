"""Which address is answered by whom."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import msgspec
import structlog

from openclaw_a2a.inbound import jsonrpc, rest
from openclaw_a2a.inbound.door import Door
from openclaw_a2a.inbound.http import Exchange, Receive, Scope, Send
from openclaw_a2a.inbound.presence import Presences
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.settings import Account

log = structlog.get_logger(__name__)

STOPPING = "A2A_STOPPING"
Page = Callable[[Exchange], Awaitable[None]]


class Router:
    """The ASGI application: account doors, the list of agents, and pages others add."""

    def __init__(self, doors: Iterable[Door], closed: Iterable[Account]) -> None:
        self._pages: dict[tuple[str, str], Page] = {}
        self._prefixes: list[tuple[str, Page]] = []
        self._doors = list(doors)
        self._default = self._doors[0].account.id if self._doors else "default"
        for account in closed:
            self._add_closed(account)
        for door in self._doors:
            self._add_door(door)
        self.presences = Presences(self._doors)
        self.add_page("GET", "/agents", self.presences.list_agents)

    def add_page(self, method: str, path: str, page: Page) -> None:
        """Let a page answer at an exact path."""
        self._pages[method, path] = page

    def add_prefix(self, prefix: str, page: Page) -> None:
        """Let a page answer at every path that begins so, unless another fits better."""
        self._prefixes.append((prefix, page))
        self._prefixes.sort(key=lambda one: len(one[0]), reverse=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        exchange: Exchange | None = None
        try:
            exchange = Exchange(scope, receive, send)
            page = self._pages.get((exchange.method, exchange.path)) or self._find(exchange.path)
            await page(exchange)
        except asyncio.CancelledError:
            await self._break_off(exchange)
        except Exception:  # the edge of the server: whatever broke is ours
            log.exception("route-broken", path=scope.get("path"))
            exchange = exchange or Exchange({**scope, "headers": ()}, receive, send)
            if exchange.is_begun:
                raise
            text = "this address failed to answer; the log of the gateway says why"
            await _problem(exchange, 500, "A2A_INBOUND_ROUTE_ERROR", text, self._default)

    async def _break_off(self, exchange: Exchange | None) -> None:
        """The server leaves and does not wait for this request any longer."""
        if exchange is not None and not exchange.is_begun:
            text = "the gateway is stopping; try again when it is back"
            await _problem(exchange, 503, STOPPING, text, self._default)

    def _find(self, path: str) -> Page:
        for prefix, page in self._prefixes:
            if path.startswith(prefix):
                return page
        return self._not_found

    def _add_door(self, door: Door) -> None:
        account = door.account
        self.add_page("POST", account.json_rpc_path, partial(jsonrpc.serve, door=door))
        for path in (account.agent_card_path, account.agent_card_alias):
            if path is not None:
                self.add_page("GET", path, door.card.serve)
                self.add_page("HEAD", path, door.card.serve)
        prefix = account.rest_path.rstrip("/") + "/"

        async def serve_rest(exchange: Exchange) -> None:
            await rest.serve(exchange, door, exchange.path[len(prefix) - 1 :])

        self.add_prefix(prefix, serve_rest)

    def _add_closed(self, account: Account) -> None:
        async def refuse(exchange: Exchange) -> None:
            reason = account.not_running_reason or "it is not running"
            text = f"account {account.id} does not answer: {reason}"
            await _problem(exchange, 503, "A2A_ACCOUNT_NOT_RUNNING", text, account.id)

        self.add_page("POST", account.json_rpc_path, refuse)
        for path in (account.agent_card_path, account.agent_card_alias):
            if path is not None:
                self.add_page("GET", path, refuse)
        self.add_prefix(account.rest_path.rstrip("/") + "/", refuse)

    async def _not_found(self, exchange: Exchange) -> None:
        text = f"there is no {exchange.method} {exchange.path[:200]} here; see GET /agents"
        await _problem(exchange, 404, "A2A_ROUTE_NOT_FOUND", text, self._default)


async def _problem(exchange: Exchange, status: int, code: str, text: str, account: str) -> None:
    error: JsonObject = {
        "code": code,
        "message": text,
        "details": {"channel": "a2a", "accountId": account},
    }
    headers = [(b"retry-after", b"5")] if code == STOPPING else []
    await exchange.answer(status, msgspec.json.encode({"error": error}), headers=headers)
