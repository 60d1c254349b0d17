"""Which address is answered by whom."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import msgspec

from openclaw_a2a.http.asgi import HttpRequest, Receive, Scope, Send
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.server import jsonrpc, rest
from openclaw_a2a.server.account_endpoint import AccountEndpoint
from openclaw_a2a.server.health import Availability
from openclaw_a2a.settings import Account

log = get_logger(__name__)

STOPPING = "A2A_STOPPING"
Handler = Callable[[HttpRequest], Awaitable[None]]


class Router:
    """The ASGI application: account doors, the list of agents, and pages others add."""

    def __init__(self, doors: Iterable[AccountEndpoint], closed: Iterable[Account]) -> None:
        self._pages: dict[tuple[str, str], Handler] = {}
        self._prefixes: list[tuple[str, Handler]] = []
        self._doors = list(doors)
        self._default = self._doors[0].account.id if self._doors else "default"
        for account in closed:
            self._add_closed(account)
        for door in self._doors:
            self._add_door(door)
        self.availability = Availability(self._doors)
        self.add_route("GET", "/agents", self.availability.list_agents)

    def add_route(self, method: str, path: str, page: Handler) -> None:
        """Let a page answer at an exact path."""
        self._pages[method, path] = page

    def add_prefix(self, prefix: str, page: Handler) -> None:
        """Let a page answer at every path that begins so, unless another fits better."""
        self._prefixes.append((prefix, page))
        self._prefixes.sort(key=lambda one: len(one[0]), reverse=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        exchange: HttpRequest | None = None
        try:
            exchange = HttpRequest(scope, receive, send)
            page = self._pages.get((exchange.method, exchange.path)) or self._find(exchange.path)
            await page(exchange)
        except asyncio.CancelledError:
            await self._break_off(exchange)
        except Exception:  # the edge of the server: whatever broke is ours
            log.exception("route-broken", path=scope.get("path"))
            exchange = exchange or HttpRequest({**scope, "headers": ()}, receive, send)
            if exchange.has_started:
                raise
            text = "this address failed to answer; the log of the gateway says why"
            await _problem(exchange, 500, "A2A_INBOUND_ROUTE_ERROR", text, self._default)

    async def _break_off(self, exchange: HttpRequest | None) -> None:
        """The server leaves and does not wait for this request any longer."""
        if exchange is not None and not exchange.has_started:
            text = "the gateway is stopping; try again when it is back"
            await _problem(exchange, 503, STOPPING, text, self._default)

    def _find(self, path: str) -> Handler:
        for prefix, page in self._prefixes:
            if path.startswith(prefix):
                return page
        return self._not_found

    def _add_door(self, door: AccountEndpoint) -> None:
        account = door.account
        self.add_route("POST", account.json_rpc_path, partial(jsonrpc.serve, door=door))
        for path in (account.agent_card_path, account.agent_card_alias):
            if path is not None:
                self.add_route("GET", path, door.card.serve)
                self.add_route("HEAD", path, door.card.serve)
        prefix = account.rest_path.rstrip("/") + "/"

        async def serve_rest(exchange: HttpRequest) -> None:
            await rest.serve(exchange, door, exchange.path[len(prefix) - 1 :])

        self.add_prefix(prefix, serve_rest)

    def _add_closed(self, account: Account) -> None:
        async def refuse(exchange: HttpRequest) -> None:
            reason = account.not_running_reason or "it is not running"
            text = f"account {account.id} does not answer: {reason}"
            await _problem(exchange, 503, "A2A_ACCOUNT_NOT_RUNNING", text, account.id)

        self.add_route("POST", account.json_rpc_path, refuse)
        for path in (account.agent_card_path, account.agent_card_alias):
            if path is not None:
                self.add_route("GET", path, refuse)
        self.add_prefix(account.rest_path.rstrip("/") + "/", refuse)

    async def _not_found(self, exchange: HttpRequest) -> None:
        text = f"there is no {exchange.method} {exchange.path[:200]} here; see GET /agents"
        await _problem(exchange, 404, "A2A_ROUTE_NOT_FOUND", text, self._default)


async def _problem(exchange: HttpRequest, status: int, code: str, text: str, account: str) -> None:
    error: JsonObject = {
        "code": code,
        "message": text,
        "details": {"channel": "a2a", "accountId": account},
    }
    headers = [(b"retry-after", b"5")] if code == STOPPING else []
    await exchange.respond(status, msgspec.json.encode({"error": error}), headers=headers)
