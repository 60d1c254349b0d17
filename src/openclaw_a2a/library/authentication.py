"""Who may ask an adapter that Python code serves: all, holders of tokens, or whom it lets in."""

import inspect
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import cast

from openclaw_a2a.auth.loopback import allowed_hosts, check_host_and_origin
from openclaw_a2a.auth.peers import PeerAuthenticator
from openclaw_a2a.http.asgi import HttpRequest, Scope
from openclaw_a2a.model.errors import Unauthenticated
from openclaw_a2a.model.ids import LOCAL_PEER, Json, PeerName
from openclaw_a2a.settings import PeerSettings, Secret

CallerFunction = Callable[[dict[str, str]], "str | bool | Awaitable[str | bool | None] | None"]
"""Given the headers of a request: who is it? A name, True for somebody, nothing for nobody."""

Tokens = str | Iterable[str] | Mapping[str, str | Iterable[str]]
"""One token, several, or the tokens of each caller by name."""

_SOMEBODY = "peer"
_NAME = "openclaw_a2a.caller"
_log = logging.getLogger(__name__)


class OpenAuthenticator:
    """Everybody may ask; only a door on loopback makes sure that no page of the web does."""

    needs_token = False

    def __init__(self, own_hosts: Iterable[str]) -> None:
        self._own = allowed_hosts(own_hosts)

    def identify(self, request: HttpRequest) -> PeerName:
        """Always the same caller. Raises: NotAllowed."""
        if _is_on_loopback(request.scope):
            check_host_and_origin(request, self._own)
        return LOCAL_PEER


class FunctionAuthenticator:
    """Whoever the function of the developer let in."""

    needs_token = False

    def identify(self, request: HttpRequest) -> PeerName:
        """The name that the function gave. Raises: Unauthenticated."""
        name = request.scope.get(_NAME)
        if name is None:
            raise Unauthenticated("you are not let in here; send credentials that are known")
        return name


def token_authenticator(tokens: Tokens) -> PeerAuthenticator:
    """Holders of tokens. Raises: ValueError when there are none, TypeError for what is none."""
    named = _by_name(tokens)
    peers = [
        PeerSettings(
            PeerName(name), tuple(Secret.from_text("auth", token) for token in _several(held))
        )
        for name, held in named.items()
    ]
    if not peers or not all(peer.tokens for peer in peers):
        raise ValueError("auth has no token; give one, or leave auth out.")
    return PeerAuthenticator(peers, own_hosts=())


async def identify_caller(question: CallerFunction, scope: Scope) -> None:
    """Note on a request who the function says it is; whatever it raises lets nobody in."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    try:
        answer: Json = question(headers)
        if inspect.isawaitable(answer):
            answer = await answer
    except Exception:
        _log.warning("The function that says who calls failed.", exc_info=True)
        return
    if answer:
        scope[_NAME] = PeerName(answer if isinstance(answer, str) else _SOMEBODY)


def _by_name(tokens: Tokens) -> Mapping[str, str | Iterable[str]]:
    if isinstance(tokens, Mapping):
        return cast("Mapping[str, str | Iterable[str]]", tokens)
    several = _several(tokens)
    if len(several) == 1:
        return {_SOMEBODY: several}
    return {f"{_SOMEBODY}-{number}": token for number, token in enumerate(several, 1)}


def _several(tokens: str | Iterable[str]) -> list[str]:
    given: Json = [tokens] if isinstance(tokens, str) else tokens
    held = list(cast("Iterable[Json]", given)) if isinstance(given, Iterable) else [None]
    if not all(isinstance(one, str) for one in held):
        raise TypeError(
            "auth must be a token, several, a dict of tokens by the caller's name, or a function"
            " of the headers."
        )
    return [token.strip() for token in cast("list[str]", held) if token.strip()]


def _is_on_loopback(scope: Scope) -> bool:
    """True when the request came in at an address that only this machine reaches."""
    server = cast("tuple[str, int | None] | None", scope.get("server"))
    try:
        return server is not None and ipaddress.ip_address(server[0]).is_loopback
    except ValueError:
        return False
