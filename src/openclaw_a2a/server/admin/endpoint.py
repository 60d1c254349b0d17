"""The operator's HTTP endpoint: `/operator/...`, from the gateway's own machine, with its token.

A handler gets the request decoded. What it returns is the JSON response (or a `RawResponse`), what
it raises is sent as `{"error": {code, message}}`.
"""

from collections.abc import Awaitable, Callable, Collection, Coroutine
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from openclaw_a2a.auth.admin_token import AdminAuthenticator
from openclaw_a2a.engine.audit_log import AuditLog, acting, audit_outcome
from openclaw_a2a.http.asgi import JSON, NO_STORE, HttpRequest, error_body
from openclaw_a2a.http.request_limits import RequestBodies
from openclaw_a2a.http.router import Router
from openclaw_a2a.http.sse_stream import (
    EventStream,
    SseStreams,
    StoredFrames,
    encode_frame,
    last_event_id,
)
from openclaw_a2a.model.errors import (
    GatewayError,
    InvalidParams,
    ParseFailed,
    Problem,
    RouteNotFound,
)
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import is_object

ADMIN_PREFIX = "/operator/"
DEFAULT_LIMIT = 20
MAX_LIMIT = 1000
Status = TypeVar("Status", bound=Enum)
_MAX_BODY_BYTES = 64 * 1024


class AdminRequest(msgspec.Struct, frozen=True):
    """A request to a handler: the placeholders of its path, the query, and the body.

    `content` is the undecoded body, for handlers that take any media type; `cursor` the last event
    that the client of a stream has seen.
    """

    segments: tuple[str, ...]
    query: dict[str, str]
    body: JsonObject
    content: bytes = b""
    cursor: int | None = None


class RawResponse(msgspec.Struct, frozen=True):
    """A response that is sent as it is."""

    content: bytes
    media_type: bytes


def invalid_param(name: str, reason: str) -> InvalidParams:
    """The error for one parameter of a request."""
    return InvalidParams(f"{name}: {reason}", problems=(Problem(name, reason),))


def read_limit(request: AdminRequest) -> int:
    """How many items a list may have. Raises: InvalidParams."""
    text = request.query.get("limit", str(DEFAULT_LIMIT))
    if text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= MAX_LIMIT:
        return int(text)
    raise invalid_param("limit", f"must be a whole number from 1 to {MAX_LIMIT}")


def read_status(request: AdminRequest, known: type[Status]) -> Status | None:
    """The status that the items of a list must have; None for any. Raises: InvalidParams."""
    text = request.query.get("status")
    try:
        return None if text is None else known(text)
    except ValueError:
        names = ", ".join(one.value for one in known)
        raise invalid_param("status", f"must be one of {names}") from None


AdminHandler = Callable[[AdminRequest], Awaitable[Json]]


class _Route(NamedTuple):
    handler: AdminHandler
    max_content_bytes: int | None = None
    event: str = ""


class _StreamRoute(NamedTuple):
    open_stream: Callable[[AdminRequest], Coroutine[Any, Any, EventStream]]
    streams: SseStreams


class _Frames(StoredFrames):
    def error_frame(self, error: GatewayError) -> bytes:
        return encode_frame(error_body(error, show_faults=True), event=b"error")


class AdminEndpoint:
    """Authenticates the operator, and calls the handler that was added for the path."""

    def __init__(
        self,
        authenticator: AdminAuthenticator,
        *,
        bodies: RequestBodies,
        audit: AuditLog | None = None,
    ) -> None:
        self._audit = audit
        self._authenticator = authenticator
        self._bodies = bodies
        self._router = Router[_Route | _StreamRoute]()

    def add_route(
        self,
        method: str,
        path: str,
        handler: AdminHandler,
        *,
        max_content_bytes: int | None = None,
        event: str = "operator-action",
    ) -> None:
        """Add a handler at `/operator/...`, where `{}` is any one segment.

        With `max_content_bytes` the body may be of any media type, up to this size. What a route
        that is no GET does is in the audit log, as `event`.
        """
        self._router.add_route(method, path, _Route(handler, max_content_bytes, event))

    @property
    def routes(self) -> Collection[tuple[str, str]]:
        """The method and pattern of every route."""
        return self._router.routes.keys()

    def add_stream(
        self,
        path: str,
        open_stream: Callable[[AdminRequest], Coroutine[Any, Any, EventStream]],
        streams: SseStreams,
    ) -> None:
        """Add a stream of server-sent events at `/operator/...`, which `GET` opens."""
        self._router.add_route("GET", path, _StreamRoute(open_stream, streams))

    async def serve(self, request: HttpRequest) -> None:
        """Respond to one request."""
        try:
            request.caller = self._authenticator.identify(request)
            found = self._router.find(request.method, request.path)
            if found is None:
                text = f"there is no {request.method} {request.path[:200]} here"
                error = self._router.method_error(request.method, request.path)
                raise error or RouteNotFound(text)
            route, segments = found
            if isinstance(route, _StreamRoute):
                asked = AdminRequest(segments, request.query(), {}, cursor=last_event_id(request))
                open_stream = partial(route.open_stream, asked)
                check = self._authenticator.check
                await route.streams.serve(request, open_stream, _Frames(), check=check)
                return
            response = await self._call_handler(request, route, segments)
        except GatewayError as error:
            await request.respond_error(error, show_faults=True)
            return
        await request.respond(
            200, response.content, media_type=response.media_type, headers=[NO_STORE]
        )

    async def _audited(
        self, http: HttpRequest, route: _Route, request: AdminRequest
    ) -> "Json | RawResponse":
        if self._audit is None or http.method == "GET":
            return await route.handler(request)
        acting.set((http.caller or "", http.client_address))
        try:
            result = await route.handler(request)
        except Exception as error:  # any exception: something may have been changed
            self._record(http, route, request, error=error)
            await self._audit.flush(sync=True)
            raise
        except BaseException as error:  # cancelled: there is no time to wait
            self._record(http, route, request, error=error)
            raise
        made = ""
        if not isinstance(result, RawResponse) and is_object(result):
            made = str(result.get("id", ""))
        self._record(http, route, request, made=made)
        # Before the response: a crash must not lose the entry of a confirmed action.
        await self._audit.flush(sync=True)
        return result

    def _record(
        self,
        http: HttpRequest,
        route: _Route,
        request: AdminRequest,
        *,
        made: str = "",
        error: BaseException | None = None,
    ) -> None:
        if self._audit is None:
            return
        allow = request.body.get("allow")
        action = http.path.removeprefix(ADMIN_PREFIX)
        if isinstance(allow, bool):  # what the operator decided is in the body
            action = "allow" if allow else "deny"
        target = request.segments[0] if request.segments else made
        self._audit.record(
            route.event,
            http.caller or "",
            action=action,
            target=target,
            task=target if route.event.startswith("task-") else "",
            address=http.client_address,
            **audit_outcome(error),
        )

    async def _call_handler(
        self, request: HttpRequest, route: _Route, segments: tuple[str, ...]
    ) -> RawResponse:
        body, content = JsonObject(), b""
        if route.max_content_bytes is not None:
            content = await request.read_body(route.max_content_bytes, self._bodies)
        elif request.has_body():
            request.require_json()
            text = await request.read_body(_MAX_BODY_BYTES, self._bodies)
            try:
                body = msgspec.json.decode(text, type=JsonObject)
            except (ValueError, RecursionError):
                raise ParseFailed("the body is no JSON object; send one") from None
        request.release_body()
        decoded = AdminRequest(segments, request.query(), body, content)
        result = await self._audited(request, route, decoded)
        if isinstance(result, RawResponse):
            return result
        return RawResponse(msgspec.json.encode(result), JSON)
