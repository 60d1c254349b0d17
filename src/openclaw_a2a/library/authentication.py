"""Authentication of callers of an embedded agent: none, by token, or by a function."""

import inspect
import ipaddress
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import cast

from openclaw_a2a.auth.loopback import allowed_hosts, check_host_and_origin
from openclaw_a2a.auth.peers import PeerAuthenticator
from openclaw_a2a.http.asgi import AsgiScope, HttpRequest
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import Unauthenticated
from openclaw_a2a.model.ids import LOCAL_PEER, Json, PeerName
from openclaw_a2a.settings import PeerSettings, Secret

log = get_logger(__name__)

CallerFunction = Callable[[dict[str, str]], "str | bool | Awaitable[str | bool | None] | None"]
"""From the headers of a request to its caller: a name, True for an unnamed one, None to refuse."""

Tokens = str | Iterable[str] | Mapping[str, str | Iterable[str]]
"""One token, several, or the tokens of each caller by name."""

_UNNAMED = "peer"
_CALLER_KEY = "openclaw_a2a.caller"


class OpenAuthenticator:
    """Lets every caller in; on a loopback address it keeps out web pages."""

    needs_token = False

    def __init__(self, own_hosts: Iterable[str]) -> None:
        self._allowed_hosts = allowed_hosts(own_hosts)

    def identify(self, request: HttpRequest) -> PeerName:
        """Always the same caller. Raises: NotAllowed."""
        if _is_on_loopback(request.scope):
            check_host_and_origin(request, self._allowed_hosts)
        return LOCAL_PEER


class FunctionAuthenticator:
    """Identifies callers by a function of the developer."""

    needs_token = False

    def identify(self, request: HttpRequest) -> PeerName:
        """The name that the function returned. Raises: Unauthenticated."""
        name = request.scope.get(_CALLER_KEY)
        if name is None:
            raise Unauthenticated("these credentials are not accepted here; send known ones")
        return name


def token_authenticator(tokens: Tokens) -> PeerAuthenticator:
    """Identifies callers by token. Raises: ValueError (no tokens), TypeError."""
    named = _by_name(tokens)
    peers = [
        PeerSettings(
            PeerName(name), tuple(Secret.from_text("auth", token) for token in _token_list(held))
        )
        for name, held in named.items()
    ]
    if not peers or not all(peer.tokens for peer in peers):
        raise ValueError("auth has no token; give one, or leave auth out.")
    return PeerAuthenticator(peers, own_hosts=())


async def identify_caller(function: CallerFunction, scope: AsgiScope) -> None:
    """Put the caller that the function returns into the scope; an exception refuses the request."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    try:
        answer: Json = function(headers)
        if inspect.isawaitable(answer):
            answer = await answer
    except Exception:
        log.warning("auth.function_failed", exc_info=True)
        return
    if answer:
        scope[_CALLER_KEY] = PeerName(answer if isinstance(answer, str) else _UNNAMED)


def _by_name(tokens: Tokens) -> Mapping[str, str | Iterable[str]]:
    if isinstance(tokens, Mapping):
        return cast("Mapping[str, str | Iterable[str]]", tokens)
    listed = _token_list(tokens)
    if len(listed) == 1:
        return {_UNNAMED: listed}
    return {f"{_UNNAMED}-{number}": token for number, token in enumerate(listed, 1)}


def _token_list(tokens: str | Iterable[str]) -> list[str]:
    given: Json = [tokens] if isinstance(tokens, str) else tokens
    held = list(cast("Iterable[Json]", given)) if isinstance(given, Iterable) else [None]
    if not all(isinstance(one, str) for one in held):
        raise TypeError(
            "auth must be a token, several, a dict of tokens by the caller's name, or a function"
            " of the headers."
        )
    return [token.strip() for token in cast("list[str]", held) if token.strip()]


def _is_on_loopback(scope: AsgiScope) -> bool:
    """True when the request came in at an address that only this machine reaches."""
    server = cast("tuple[str, int | None] | None", scope.get("server"))
    try:
        return server is not None and ipaddress.ip_address(server[0]).is_loopback
    except ValueError:
        return False
