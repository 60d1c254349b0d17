"""Pages for the person who runs the gateway: from its own machine, with the operator's token.

A page is registered with its path (`{}` stands for one segment) and gets the request decoded;
what it returns is the JSON answer (or a `RawResponse` one), what it raises is told as
`{"error": {code, message}}`.
"""

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from openclaw_a2a.auth.peers import (
    BEARER_CHALLENGE,
    allowed_hosts,
    check_host_and_origin,
    is_loopback_client,
    is_proxied,
)
from openclaw_a2a.http.asgi import JSON, HttpRequest
from openclaw_a2a.http.body_deadline import BodyDeadline
from openclaw_a2a.model.errors import (
    GatewayError,
    NotAllowed,
    ParseFailed,
    RouteNotFound,
    Unauthenticated,
)
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.protocol.errors import http_status

ADMIN_PREFIX = "/operator/"
_MOST_BYTES = 64 * 1024


class AdminRequest(msgspec.Struct, frozen=True):
    """What a page is asked: the segments that its path leaves open, the query, and the body.

    `content` is the body of a page that takes anything, as it came.
    """

    segments: tuple[str, ...]
    query: dict[str, str]
    body: JsonObject
    content: bytes = b""


class RawResponse(msgspec.Struct, frozen=True):
    """An answer that is sent as it is."""

    content: bytes
    media_type: bytes


class _Listed(msgspec.Struct, frozen=True):
    pattern: tuple[str, ...]
    page: "AdminHandler"
    takes: int | None


AdminHandler = Callable[[AdminRequest], Awaitable[Json]]


class AdminEndpoint:
    """The operator's pages. Without a token the door stays shut."""

    def __init__(
        self, token: str | None, *, own_hosts: Iterable[str], patience: BodyDeadline
    ) -> None:
        self._digest = None if token is None else hashlib.sha256(token.encode()).digest()
        self._own_hosts = allowed_hosts(own_hosts)
        self._patience = patience
        self._pages: dict[tuple[str, int], list[_Listed]] = {}

    def add_route(
        self, method: str, path: str, page: AdminHandler, *, takes: int | None = None
    ) -> None:
        """Let a page answer at `/operator/...`, where `{}` is any one segment.

        `takes` is for a page whose body need be no JSON: so many bytes at most.
        """
        pattern = tuple(path.removeprefix(ADMIN_PREFIX).split("/"))
        self._pages.setdefault((method, len(pattern)), []).append(_Listed(pattern, page, takes))

    async def serve(self, exchange: HttpRequest) -> None:
        """Answer one request."""
        try:
            self._check(exchange)
            status, answer = 200, await self._answer(exchange)
        except GatewayError as error:
            status, answer = http_status(error, for_rpc=False), _fault(error)
        headers = (
            [BEARER_CHALLENGE] if status == http_status(Unauthenticated(""), for_rpc=False) else []
        )
        await exchange.respond(
            status,
            answer.content,
            media_type=answer.media_type,
            headers=[(b"cache-control", b"no-store"), *headers],
        )

    async def _answer(self, exchange: HttpRequest) -> RawResponse:
        listed, segments = self._find(exchange)
        if listed.takes is None:
            request = AdminRequest(segments, exchange.query(), await self._body(exchange))
        else:
            content = await exchange.read_body(listed.takes, self._patience)
            request = AdminRequest(segments, exchange.query(), {}, content)
        found = await listed.page(request)
        return (
            found
            if isinstance(found, RawResponse)
            else RawResponse(msgspec.json.encode(found), JSON)
        )

    def _check(self, exchange: HttpRequest) -> None:
        if not is_loopback_client(exchange) or is_proxied(exchange):
            raise NotAllowed("the operator's pages answer the gateway's own machine only")
        check_host_and_origin(exchange, self._own_hosts)
        if self._digest is None:
            raise NotAllowed("the operator's pages are shut; the log of the gateway says why")
        scheme, _, token = exchange.headers.get(b"authorization", b"").partition(b" ")
        shown = hashlib.sha256(token.strip()).digest()
        if scheme.lower() != b"bearer" or not hmac.compare_digest(shown, self._digest):
            raise Unauthenticated(
                "this is not the operator's token; it is in the data folder of the gateway"
            )

    def _find(self, exchange: HttpRequest) -> tuple[_Listed, tuple[str, ...]]:
        asked = exchange.path.removeprefix(ADMIN_PREFIX).split("/")
        for listed in self._pages.get((exchange.method, len(asked)), ()):
            if all(want in ("{}", said) for want, said in zip(listed.pattern, asked, strict=True)):
                pairs = zip(listed.pattern, asked, strict=True)
                return listed, tuple(said for want, said in pairs if want == "{}")
        raise RouteNotFound(f"there is no {exchange.method} {exchange.path[:200]} here")

    async def _body(self, exchange: HttpRequest) -> JsonObject:
        if not exchange.has_body():
            return {}
        exchange.require_json()
        body = await exchange.read_body(_MOST_BYTES, self._patience)
        try:
            return msgspec.json.decode(body, type=JsonObject)
        except (msgspec.MsgspecError, RecursionError):
            raise ParseFailed("the body is no JSON object; send one") from None


def _fault(error: GatewayError) -> RawResponse:
    told: JsonObject = {"code": error.code, "message": error.message}
    if error.details:
        told["details"] = error.details
    return RawResponse(msgspec.json.encode({"error": told}), JSON)
