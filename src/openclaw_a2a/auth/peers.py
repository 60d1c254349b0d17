"""Who is calling: a known peer by its token, or the machine's own user on loopback."""

import functools
import hashlib
import hmac
import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from openclaw_a2a.http.asgi import HttpRequest
from openclaw_a2a.model.errors import NotAllowed, Unauthenticated
from openclaw_a2a.model.ids import LOCAL_PEER, PeerName
from openclaw_a2a.settings import PeerSettings

BEARER_CHALLENGE = (b"www-authenticate", b'Bearer realm="openclaw-a2a"')
_OF_PROXIES = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host"})
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class PeerAuthenticator:
    """The peers we know. Without any, only this machine may call, as `local`."""

    def __init__(self, peers: Iterable[PeerSettings], *, own_hosts: Iterable[str]) -> None:
        self._by_digest: dict[bytes, PeerName] = {
            token.digest: peer.name for peer in peers for token in peer.tokens
        }
        self._own_hosts = allowed_hosts(own_hosts)

    @property
    def needs_token(self) -> bool:
        """True when callers must show a token."""
        return bool(self._by_digest)

    def identify(self, exchange: HttpRequest) -> PeerName:
        """The caller's name. Raises: Unauthenticated, NotAllowed."""
        if self._by_digest:
            return self._by_token(exchange)
        self._check_local(exchange)
        return LOCAL_PEER

    def _by_token(self, exchange: HttpRequest) -> PeerName:
        said = exchange.headers.get(b"authorization", b"")
        scheme, _, token = said.partition(b" ")
        if scheme.lower() != b"bearer" or not token.strip():
            raise Unauthenticated("send your token as `Authorization: Bearer <token>`")
        digest = hashlib.sha256(token.strip()).digest()
        name: PeerName | None = None
        for known, peer in self._by_digest.items():
            if hmac.compare_digest(known, digest):
                name = peer
        if name is None:
            raise Unauthenticated("this token is not known here; ask the operator for one")
        return name

    def _check_local(self, exchange: HttpRequest) -> None:
        """No token is needed on loopback, so a web page must not be able to reach it."""
        if not is_loopback_client(exchange):
            raise Unauthenticated("without tokens this gateway answers its own machine only")
        if is_proxied(exchange):
            raise NotAllowed(
                "this request was passed on by a proxy, and without tokens nobody knows for whom; "
                "configure channels.a2a.security.peers and send a token"
            )
        check_host_and_origin(exchange, self._own_hosts)


def allowed_hosts(own_hosts: Iterable[str]) -> frozenset[str]:
    """The names that a Host or Origin header of this machine may say."""
    return _LOOPBACK_NAMES | {host.lower() for host in own_hosts if host}


def is_loopback_client(exchange: HttpRequest) -> bool:
    """True when the other side of the connection is this machine."""
    client = exchange.client_host()
    return client is None or _is_loopback(client)


def is_proxied(exchange: HttpRequest) -> bool:
    """True when a proxy says that it speaks for somebody else."""
    return not _OF_PROXIES.isdisjoint(exchange.headers)


def check_host_and_origin(exchange: HttpRequest, own_hosts: frozenset[str]) -> None:
    """Refuse what a page of the web sends, by its Host and Origin. Raises: NotAllowed."""
    host, origin = _host_of(exchange.headers.get(b"host", b"")), exchange.header(b"origin")
    if host and host not in own_hosts:
        raise NotAllowed(f"the Host header says {host[:80]!r}, which is not this gateway")
    if origin and origin != "null" and _origin_host(origin) in own_hosts:
        return
    if origin:
        raise NotAllowed(f"pages of {origin[:80]!r} may not call this gateway")


@functools.lru_cache(maxsize=1024)
def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address in {"localhost", "testclient"} or address.startswith("/")


@functools.lru_cache(maxsize=1024)
def _host_of(header: bytes) -> str:
    authority = header.decode("latin-1")
    if authority.startswith("["):
        return authority[1:].partition("]")[0].lower()
    return authority.rpartition(":")[0].lower() if ":" in authority else authority.lower()


def _origin_host(origin: str) -> str:
    try:
        return (urlsplit(origin).hostname or "").lower()
    except ValueError:
        return ""
