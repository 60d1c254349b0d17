"""Pages for the person who runs the gateway: from its own machine, with the operator's token.

A page is registered with its path (`{}` stands for one segment) and gets the request decoded;
what it returns is the JSON answer (or a `Plain` one), what it raises is told as
`{"error": {code, message}}`.
"""

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from openclaw_a2a.inbound.http import JSON, Exchange
from openclaw_a2a.inbound.identity import (
    CHALLENGE,
    check_names,
    is_from_here,
    is_passed_on,
    loopback_hosts,
)
from openclaw_a2a.inbound.patience import Patience
from openclaw_a2a.model.errors import (
    GatewayError,
    NotAllowed,
    ParseFailed,
    RouteNotFound,
    Unauthenticated,
)
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.wire.errors import http_status

PREFIX = "/operator/"
_MOST_BYTES = 64 * 1024


class OperatorRequest(msgspec.Struct, frozen=True):
    """What a page is asked: the segments that its path leaves open, the query, and the body.

    `content` is the body of a page that takes anything, as it came.
    """

    segments: tuple[str, ...]
    query: dict[str, str]
    body: JsonObject
    content: bytes = b""


class Plain(msgspec.Struct, frozen=True):
    """An answer that is sent as it is."""

    content: bytes
    media_type: bytes


class _Listed(msgspec.Struct, frozen=True):
    pattern: tuple[str, ...]
    page: "OperatorPage"
    takes: int | None


OperatorPage = Callable[[OperatorRequest], Awaitable[Json]]


class OperatorDoor:
    """The operator's pages. Without a token the door stays shut."""

    def __init__(self, token: str | None, *, own_hosts: Iterable[str], patience: Patience) -> None:
        self._digest = None if token is None else hashlib.sha256(token.encode()).digest()
        self._own_hosts = loopback_hosts(own_hosts)
        self._patience = patience
        self._pages: dict[tuple[str, int], list[_Listed]] = {}

    def add_page(
        self, method: str, path: str, page: OperatorPage, *, takes: int | None = None
    ) -> None:
        """Let a page answer at `/operator/...`, where `{}` is any one segment.

        `takes` is for a page whose body need be no JSON: so many bytes at most.
        """
        pattern = tuple(path.removeprefix(PREFIX).split("/"))
        self._pages.setdefault((method, len(pattern)), []).append(_Listed(pattern, page, takes))

    async def serve(self, exchange: Exchange) -> None:
        """Answer one request."""
        try:
            self._check(exchange)
            status, answer = 200, await self._answer(exchange)
        except GatewayError as error:
            status, answer = http_status(error, for_rpc=False), _fault(error)
        headers = [CHALLENGE] if status == http_status(Unauthenticated(""), for_rpc=False) else []
        await exchange.answer(
            status,
            answer.content,
            media_type=answer.media_type,
            headers=[(b"cache-control", b"no-store"), *headers],
        )

    async def _answer(self, exchange: Exchange) -> Plain:
        listed, segments = self._find(exchange)
        if listed.takes is None:
            request = OperatorRequest(segments, exchange.query(), await self._body(exchange))
        else:
            content = await exchange.body(listed.takes, self._patience)
            request = OperatorRequest(segments, exchange.query(), {}, content)
        found = await listed.page(request)
        return found if isinstance(found, Plain) else Plain(msgspec.json.encode(found), JSON)

    def _check(self, exchange: Exchange) -> None:
        if not is_from_here(exchange) or is_passed_on(exchange):
            raise NotAllowed("the operator's pages answer the gateway's own machine only")
        check_names(exchange, self._own_hosts)
        if self._digest is None:
            raise NotAllowed("the operator's pages are shut; the log of the gateway says why")
        scheme, _, token = exchange.headers.get(b"authorization", b"").partition(b" ")
        shown = hashlib.sha256(token.strip()).digest()
        if scheme.lower() != b"bearer" or not hmac.compare_digest(shown, self._digest):
            raise Unauthenticated(
                "this is not the operator's token; it is in the data folder of the gateway"
            )

    def _find(self, exchange: Exchange) -> tuple[_Listed, tuple[str, ...]]:
        asked = exchange.path.removeprefix(PREFIX).split("/")
        for listed in self._pages.get((exchange.method, len(asked)), ()):
            if all(want in ("{}", said) for want, said in zip(listed.pattern, asked, strict=True)):
                pairs = zip(listed.pattern, asked, strict=True)
                return listed, tuple(said for want, said in pairs if want == "{}")
        raise RouteNotFound(f"there is no {exchange.method} {exchange.path[:200]} here")

    async def _body(self, exchange: Exchange) -> JsonObject:
        if not exchange.has_body():
            return {}
        exchange.check_json()
        body = await exchange.body(_MOST_BYTES, self._patience)
        try:
            return msgspec.json.decode(body, type=JsonObject)
        except (msgspec.MsgspecError, RecursionError):
            raise ParseFailed("the body is no JSON object; send one") from None


def _fault(error: GatewayError) -> Plain:
    told: JsonObject = {"code": error.code, "message": error.message}
    if error.details:
        told["details"] = error.details
    return Plain(msgspec.json.encode({"error": told}), JSON)
