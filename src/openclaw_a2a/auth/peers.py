"""Who a caller is: the owner of a bearer token, or else this machine's own user.

A web page can make the user's browser send requests to loopback. So without a token the address of
the client is not enough: the Host and Origin headers must name this gateway, and no proxy may be
in between.
"""

import functools
import hashlib
import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

from openclaw_a2a.auth.principal import LOCAL_PRINCIPAL, Principal
from openclaw_a2a.model.errors import NotAllowed, Unauthenticated
from openclaw_a2a.settings import PeerSettings

T = TypeVar("T")


def read_bearer_token(headers: Mapping[bytes, bytes]) -> bytes | None:
    """The token of a request; None when it has none, or another kind of credentials."""
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    return token.strip() or None if scheme.lower() == b"bearer" else None


def token_digest(token: bytes) -> bytes:
    """The SHA-256 of a token. Tokens are kept and compared as digests only."""
    return hashlib.sha256(token).digest()


def match_token(token: bytes, known: Iterable[tuple[bytes, T]]) -> T | None:
    """Whom a token belongs to, among (digest, owner) pairs.

    Every pair is compared, in constant time: how long it takes tells nothing about the tokens.
    """
    digest, owner = token_digest(token), None
    for candidate, candidate_owner in known:
        if hmac.compare_digest(candidate, digest):
            owner = candidate_owner
    return owner


_PROXY_HEADERS = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host"})
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class ClientRequest(Protocol):
    """What authentication needs of a request."""

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        """The headers, by their lower-case names."""
        ...

    def client_host(self) -> str | None:
        """The address of the client; None when the server does not know it."""
        ...


def allowed_hosts(own_hosts: Iterable[str]) -> frozenset[str]:
    """The names that a Host or Origin header may have at this gateway."""
    return _LOOPBACK_NAMES | {host.lower() for host in own_hosts if host}


def is_loopback_client(request: ClientRequest) -> bool:
    """True when the client is known to be on this machine.

    A client without an address (a socket file, an embedding application, a test client) may speak
    for anybody, so it counts as remote.
    """
    client = request.client_host()
    return client is not None and _is_loopback(client)


def is_proxied(request: ClientRequest) -> bool:
    """True when a proxy says that it forwards the request of somebody else."""
    # Behind a proxy on this machine every caller has a loopback address.
    return not _PROXY_HEADERS.isdisjoint(request.headers)


def check_host_and_origin(request: ClientRequest, allowed: frozenset[str]) -> None:
    """Refuse requests of web pages, by their Host and Origin headers. Raises: NotAllowed."""
    # A page can make its own name point to 127.0.0.1 (DNS rebinding); the browser then sends that
    # name as Host. Programs that send neither header are not browsers.
    host = _host_name(request.headers.get(b"host", b""))
    if host and host not in allowed:
        raise NotAllowed(f"the Host header says {host[:80]!r}, which is not this gateway")
    origin = request.headers.get(b"origin", b"").decode("latin-1")
    if not origin:
        return
    # "null" is the origin of sandboxed frames and local files.
    if origin == "null" or _origin_host(origin) not in allowed:
        raise NotAllowed(f"pages of {origin[:80]!r} may not call this gateway")


@functools.lru_cache(maxsize=1024)
def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


@functools.lru_cache(maxsize=1024)
def _host_name(header: bytes) -> str:
    authority = header.decode("latin-1")
    if authority.startswith("["):
        return authority[1:].partition("]")[0].lower()
    return authority.rpartition(":")[0].lower() if ":" in authority else authority.lower()


def _origin_host(origin: str) -> str:
    try:
        return (urlsplit(origin).hostname or "").lower()
    except ValueError:
        return ""


class BearerVerifier(Protocol):
    """Verifies bearer tokens that are not kept here, such as JWTs of an issuer."""

    def verify(self, token: bytes) -> Principal | None:
        """The owner of a token; None when it is of another kind. Raises: Unauthenticated."""
        ...


class PeerAuthenticator:
    """Knows the configured peers. Without any, only this machine may call, as `local`."""

    def __init__(
        self,
        peers: Iterable[PeerSettings],
        *,
        own_hosts: Iterable[str],
        verifiers: Iterable[BearerVerifier] = (),
    ) -> None:
        # Several tokens for a peer: the next one can be handed out before the old one is removed.
        # By digest, so that the cost does not grow with the peers. How long the lookup takes tells
        # nothing about a token: nobody can choose the digest of what he sends.
        self._principals = {
            token.digest: Principal(peer.name) for peer in peers for token in peer.tokens
        }
        self._verifiers = tuple(verifiers)
        self._allowed_hosts = allowed_hosts(own_hosts)

    @property
    def needs_token(self) -> bool:
        """True when callers must show a token."""
        return bool(self._principals or self._verifiers)

    def identify(self, request: ClientRequest) -> Principal:
        """The caller. Raises: Unauthenticated, NotAllowed."""
        if self._principals or self._verifiers:
            return self._identify_by_token(request)
        if not is_loopback_client(request):
            raise Unauthenticated("without tokens this gateway answers its own machine only")
        if is_proxied(request):
            raise NotAllowed(
                "this request was forwarded by a proxy, and without tokens its caller is unknown; "
                "configure channels.a2a.security.peers and send a token"
            )
        check_host_and_origin(request, self._allowed_hosts)
        return LOCAL_PRINCIPAL

    def _identify_by_token(self, request: ClientRequest) -> Principal:
        token = read_bearer_token(request.headers)
        if token is None:
            raise Unauthenticated("send your token as `Authorization: Bearer <token>`")
        principal = self._principals.get(token_digest(token))
        if principal is not None:
            return principal
        for verifier in self._verifiers:
            principal = verifier.verify(token)
            if principal is not None:
                return principal
        raise Unauthenticated("this token is not known here; ask the operator for one")
