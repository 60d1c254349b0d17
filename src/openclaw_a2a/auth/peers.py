"""Who a caller is: the owner of credentials, or else this machine's own user."""

import time
from collections.abc import Iterable, Mapping
from typing import Protocol

from openclaw_a2a.auth.principal import LOCAL_PRINCIPAL, Principal
from openclaw_a2a.auth.request_origin import (
    PROXY_HEADERS,
    ClientRequest,
    OwnAddresses,
    is_loopback_client,
)
from openclaw_a2a.auth.tokens import TokenStore, token_digest
from openclaw_a2a.model.errors import CorruptRecord, NotAllowed, Unauthenticated
from openclaw_a2a.settings import PeerSettings

_CHECK_S = 1.0
API_KEY_HEADER = b"x-api-key"
_HOW_TO_SEND = "send your token as `Authorization: Bearer <token>` or `X-API-Key: <token>`"
# The same for whatever is wrong with them: a stranger does not learn which tokens there were.
_NOT_VALID = "these credentials are not valid here; ask the operator for a token"


def read_bearer_token(headers: Mapping[bytes, bytes]) -> bytes | None:
    """The token of a request; None when it has none, or another kind of credentials."""
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    return token.strip() or None if scheme.lower() == b"bearer" else None


class BearerVerifier(Protocol):
    """Verifies bearer tokens that are not kept here, such as JWTs of an issuer."""

    def verify(self, token: bytes) -> Principal | None:
        """The owner of a token; None when it is of another kind. Raises: Unauthenticated."""
        ...


class Credentials:
    """All credentials that are valid: tokens of the settings and of the token file, and others."""

    def __init__(
        self,
        peers: Iterable[PeerSettings] = (),
        *,
        tokens: TokenStore | None = None,
        verifiers: Iterable[BearerVerifier] = (),
    ) -> None:
        # Several tokens for a peer: the next one can be handed out before the old one is removed.
        # By digest, as in the token file: the cost does not grow with the peers.
        self._principals = {
            token.digest: Principal(peer.name) for peer in peers for token in peer.tokens
        }
        self._tokens = tokens
        self._verifiers = tuple(verifiers)
        self._are_configured = bool(self._principals or self._verifiers)
        self._are_required = True
        self._next_check = float("-inf")

    def are_required(self) -> bool:
        """True when peers must show credentials."""
        # Asked for every request, also where there are no tokens: the file is not looked at each
        # time.
        now = time.monotonic()
        if now >= self._next_check:
            self._are_required = self._are_configured or self.accept_tokens()
            self._next_check = now + _CHECK_S
        return self._are_required

    def accept_tokens(self) -> bool:
        """True when peers may show tokens: there are some in the settings or in the token file."""
        try:
            has_file = self._tokens is not None and self._tokens.peers_need_tokens()
        except CorruptRecord:  # then nobody gets in without a token of the settings
            has_file = True
        return has_file or bool(self._principals)

    def authenticate(self, request: ClientRequest) -> Principal:
        """The owner of the credentials of a request.

        Raises: Unauthenticated, CorruptRecord (the token file).
        """
        headers = request.headers
        bearer = read_bearer_token(headers)
        token = bearer or headers.get(API_KEY_HEADER, b"").strip()
        if not token:
            raise Unauthenticated(_HOW_TO_SEND, has_credentials=False)
        principal = self._principals.get(token_digest(token))
        if principal is None and self._tokens is not None:
            principal = self._tokens.identify(token)
        if principal is None and bearer:
            principal = self._verify(bearer)
        if principal is None:
            raise Unauthenticated(_NOT_VALID)
        return principal

    def _verify(self, token: bytes) -> Principal | None:
        for verifier in self._verifiers:
            principal = verifier.verify(token)
            if principal is not None:
                return principal
        return None


class PeerAuthenticator:
    """Identifies peers. Where no credentials exist, only this machine may call, as `local`."""

    def __init__(self, credentials: Credentials, own: OwnAddresses) -> None:
        self._credentials = credentials
        self._own = own

    @property
    def needs_token(self) -> bool:
        """True when callers must show a token."""
        return self._credentials.are_required()

    def identify(self, request: ClientRequest) -> Principal:
        """The caller. Raises: Unauthenticated, NotAllowed, CorruptRecord (the token file)."""
        if self._credentials.are_required():
            return self._credentials.authenticate(request)
        if not is_loopback_client(request):
            text = "without tokens this gateway answers its own machine only"
            raise Unauthenticated(text, has_credentials=False)
        if not PROXY_HEADERS.isdisjoint(request.headers):
            raise NotAllowed(
                "this request was forwarded by a proxy, and without tokens its caller is unknown; "
                "make a token (`openclaw-a2a token create NAME`, or channels.a2a.security.peers)"
            )
        self._own.check(request)
        return LOCAL_PRINCIPAL
