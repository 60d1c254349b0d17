"""The ASGI application: routes of all accounts, and the response when a handler fails."""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

import msgspec

from openclaw_a2a.auth.request_origin import TrustedProxies
from openclaw_a2a.engine.audit_log import AuditLog
from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.http.asgi import (
    AsgiRequest,
    AsgiScope,
    Handler,
    HttpRequest,
    Receive,
    Send,
    error_headers,
)
from openclaw_a2a.http.request_limits import EventBursts, RefusalCounts
from openclaw_a2a.http.router import ANY_METHOD, Router, method_not_allowed
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import (
    AccountNotRunning,
    Draining,
    RouteNotFound,
    TooManyAttempts,
)
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.server import jsonrpc, rest
from openclaw_a2a.server.account_endpoint import AccountEndpoint
from openclaw_a2a.server.health import Availability
from openclaw_a2a.settings import Account

log = get_logger(__name__)

STOPPING = "A2A_STOPPING"
_HOME_METHODS = ("GET", "HEAD")


class ServerApplication:
    """Serves the endpoints of accounts, the list of agents, and what is added to its router.

    `stopped` are accounts that are enabled and cannot run; their addresses say why.
    """

    def __init__(
        self,
        endpoints: Iterable[AccountEndpoint],
        stopped: Iterable[Account],
        *,
        audit: AuditLog | None = None,
        proxies: TrustedProxies | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        self._audit = audit
        self._proxies = proxies or TrustedProxies()
        self._bursts = EventBursts(supervisor=supervisor)
        self.router = Router[Handler]()
        served = list(endpoints)
        self._default_account = served[0].account.id if served else "default"
        self.availability = Availability(served)
        self.browser_home: Handler | None = None
        """The redirect target for browsers that open `/`; other clients are not redirected."""
        # Stopped accounts first: where paths collide, the route of a running one replaces theirs.
        for account in stopped:
            self._add_stopped(account)
        for endpoint in served:
            self._add_endpoint(endpoint)
        self.router.add_route("GET", "/agents", self.availability.list_agents)

    @property
    def refusals(self) -> RefusalCounts:
        """How often requests were answered with errors."""
        return self._bursts.refusals

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Respond to one request of an ASGI server."""
        if scope["type"] != "http":
            return
        try:
            request = AsgiRequest(scope, receive, send)
        except Exception:  # a server with another form of requests
            log.exception("http.handler_failed", path=scope.get("path"))
            request = AsgiRequest({**scope, "headers": ()}, receive, send)
            await self._respond_failed(request)
        else:
            await self.respond(request)

    async def respond(self, request: HttpRequest) -> None:
        """Respond to one request."""
        request.bursts = self._bursts
        try:
            if self._proxies.are_configured:
                request.client_address = self._proxies.client_address(request) or ""
            await (request.facts.handler or self._find_handler(request))(request)
            if request.rest is not None:
                await request.rest()
        except asyncio.CancelledError:
            # The server is stopping and no longer waits for this request.
            # Not raised again: uvicorn cancels what outlasts its graceful shutdown, and a client is
            # better off with a 503 than with a broken connection.
            if not request.has_started:
                text = "the gateway is stopping; try again when it is back"
                request.log_refusal(Draining(text))
                # The rest of the body is read for a moment after the response, and the end of
                # the event loop cancels that, too.
                with suppress(asyncio.CancelledError):
                    await _respond_problem(request, 503, STOPPING, text, self._default_account)
        except Exception:  # the edge of the server: nothing but our own faults gets here
            log.exception("http.handler_failed", path=request.path)
            # The server closes the connection: the client sees that the response is incomplete.
            if request.has_started:
                raise
            await self._respond_failed(request)
        finally:
            if request.held_by is not None:
                request.release_body()
            # Of every endpoint: tools, operator, peers.
            if self._audit is not None and (request.status >= 400) and _is_refused(request):
                who, address = request.caller or "", request.client_address
                self._audit.count_refusal(request.status, who, address)
            # The access log. Its fields are made only when it is written.
            if log.is_enabled(logging.DEBUG):
                log.debug("http.request", status=request.status, **request.log_fields())

    def _find_handler(self, request: HttpRequest) -> Handler:
        found = self.router.find(request.method, request.path)
        handler = request.facts.handler = self._not_found if found is None else found[0]
        return handler

    async def _respond_failed(self, request: HttpRequest) -> None:
        text = "this address failed to answer; the log of the gateway says why"
        code = "A2A_INBOUND_ROUTE_ERROR"
        await _respond_problem(request, 500, code, text, self._default_account)

    def _add_endpoint(self, endpoint: AccountEndpoint) -> None:
        account = endpoint.account
        add = self.router.add_route
        for path in _rpc_paths(account):
            add("POST", path, partial(jsonrpc.serve, endpoint=endpoint))
        for path in _card_paths(account):
            add("GET", path, endpoint.card.serve)
            add("HEAD", path, endpoint.card.serve)
        prefix = account.rest_path.rstrip("/") + "/"
        add(ANY_METHOD, prefix + "{*}", partial(rest.serve, endpoint=endpoint, prefix=prefix))

    def _add_stopped(self, account: Account) -> None:
        async def refuse(request: HttpRequest) -> None:
            reason = account.not_running_reason or "it is not running"
            text = f"account {account.id} does not answer: {reason}"
            request.log_refusal(AccountNotRunning(text), account=account.id)
            await _respond_problem(request, 503, "A2A_ACCOUNT_NOT_RUNNING", text, account.id)

        for path in _rpc_paths(account):
            self.router.add_route("POST", path, refuse)
        for path in _card_paths(account):
            self.router.add_route("GET", path, refuse)
            self.router.add_route("HEAD", path, refuse)
        self.router.add_route(ANY_METHOD, account.rest_path.rstrip("/") + "/{*}", refuse)

    async def _not_found(self, request: HttpRequest) -> None:
        error = self.router.method_error(request.method, request.path)
        is_browser = "text/html" in (request.header(b"accept") or "")
        if self.browser_home is not None and is_browser and request.path == "/":
            if request.method in _HOME_METHODS:
                await self.browser_home(request)
                return
            # An account may have its JSON-RPC path here.
            allowed = {*_HOME_METHODS, *(() if error is None else error.allowed)}
            error = method_not_allowed(request.method, request.path, allowed)
        if error is not None:
            request.log_refusal(error)
            request.response_headers.extend(error_headers(error))
            code = "A2A_METHOD_NOT_ALLOWED"
            await _respond_problem(request, 405, code, error.message, self._default_account)
            return
        text = f"there is no {request.method} {request.path[:200]} here; see GET /agents"
        request.log_refusal(RouteNotFound(text))
        await _respond_problem(request, 404, "A2A_ROUTE_NOT_FOUND", text, self._default_account)


def _rpc_paths(account: Account) -> list[str]:
    """The JSON-RPC path without and with a slash at its end: clients join addresses either way."""
    bare = account.json_rpc_path.rstrip("/")
    return [bare, f"{bare}/"] if bare else ["/"]


def _card_paths(account: Account) -> list[str]:
    return [path for path in (account.agent_card_path, account.agent_card_alias) if path]


def _is_refused(request: HttpRequest) -> bool:
    """True when a request was refused because of its credentials."""
    # Any other 429 is for a known caller that sent too many requests.
    return request.status in (401, 403) or request.error_code == TooManyAttempts.code


async def _respond_problem(
    request: HttpRequest, status: int, code: str, text: str, account: str
) -> None:
    error: JsonObject = {
        "code": code,
        "message": text,
        "details": {"channel": "a2a", "accountId": account},
    }
    headers = [(b"retry-after", b"5")] if code == STOPPING else []
    await request.respond(status, msgspec.json.encode({"error": error}), headers=headers)
