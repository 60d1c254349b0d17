"""Authenticates A2A callers: a configured peer by its token, else this machine's own user."""

from collections.abc import Iterable

from openclaw_a2a.auth.bearer import match_token, read_bearer_token
from openclaw_a2a.auth.loopback import (
    ClientRequest,
    allowed_hosts,
    check_host_and_origin,
    is_loopback_client,
    is_proxied,
)
from openclaw_a2a.model.errors import NotAllowed, Unauthenticated
from openclaw_a2a.model.ids import LOCAL_PEER, PeerName
from openclaw_a2a.settings import PeerSettings


class PeerAuthenticator:
    """Knows the configured peers. Without any, only this machine may call, as `local`."""

    def __init__(self, peers: Iterable[PeerSettings], *, own_hosts: Iterable[str]) -> None:
        self._tokens = tuple((token.digest, peer.name) for peer in peers for token in peer.tokens)
        self._allowed_hosts = allowed_hosts(own_hosts)

    @property
    def needs_token(self) -> bool:
        """True when callers must show a token."""
        return bool(self._tokens)

    def identify(self, request: ClientRequest) -> PeerName:
        """The caller's name. Raises: Unauthenticated, NotAllowed."""
        if self._tokens:
            return self._identify_by_token(request)
        if not is_loopback_client(request):
            raise Unauthenticated("without tokens this gateway answers its own machine only")
        if is_proxied(request):
            raise NotAllowed(
                "this request was forwarded by a proxy, and without tokens its caller is unknown; "
                "configure channels.a2a.security.peers and send a token"
            )
        check_host_and_origin(request, self._allowed_hosts)
        return LOCAL_PEER

    def _identify_by_token(self, request: ClientRequest) -> PeerName:
        token = read_bearer_token(request.headers)
        if token is None:
            raise Unauthenticated("send your token as `Authorization: Bearer <token>`")
        name = match_token(token, self._tokens)
        if name is None:
            raise Unauthenticated("this token is not known here; ask the operator for one")
        return name
