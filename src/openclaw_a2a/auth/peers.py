"""Authenticates peers: by their credentials, or as the user of this machine.

Wrong credentials are counted, logged and limited per address.
"""

import re
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

import msgspec

from openclaw_a2a.auth.principal import LOCAL_PRINCIPAL, Principal
from openclaw_a2a.auth.request_origin import (
    PROXY_HEADERS,
    ClientRequest,
    OwnAddresses,
    TrustedProxies,
    is_loopback_client,
)
from openclaw_a2a.auth.tokens import TokenStore, token_digest
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import (
    CorruptRecord,
    IssuerUnavailable,
    NotAllowed,
    TooManyAttempts,
    Unauthenticated,
)
from openclaw_a2a.model.url_policy import client_network
from openclaw_a2a.settings import PeerSettings

if TYPE_CHECKING:
    # Slow to import (cryptography), and most gateways verify no tokens of an issuer.
    from openclaw_a2a.auth.jwt import JwtVerifier

log = get_logger(__name__)

Request = TypeVar("Request", bound=ClientRequest)
Caller = TypeVar("Caller")

WINDOW_S = 60.0
MAX_ADDRESSES = 4096
_CHECK_S = 1.0
_DIGEST_NAME = re.compile(r"sha-?(1|256)[:=]", re.IGNORECASE)
_FINGERPRINT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
API_KEY_HEADER = b"x-api-key"
CERTIFICATE_SCHEME = "ClientCertificate"
"""Name of client certificates in challenges; there is no registered scheme for them."""
_HOW_TO_SEND = "send your token as `Authorization: Bearer <token>` or `X-API-Key: <token>`"
_MAKE_ONE = "make one (`openclaw-a2a token create NAME`, or channels.a2a.security.peers)"
# One message for all problems, so that an unknown caller learns nothing about tokens.
_NOT_VALID = "these credentials are not valid here; ask the operator for a token"


def read_bearer_token(request: ClientRequest) -> bytes | None:
    """The token of a request; None when it has none, or another kind of credentials.

    Raises: Unauthenticated (it has several).
    """
    header = _read_once(request, b"authorization")
    scheme, _, token = header.partition(b" ")
    return token.strip() or None if scheme.lower() == b"bearer" else None


def _read_once(request: ClientRequest, name: bytes) -> bytes:
    """The value of a header with credentials. Raises: Unauthenticated (it comes several times)."""
    value = request.headers.get(name, b"")
    # A proxy or a log may read one of them, and we another.
    if value and request.has_repeated(name):
        raise Unauthenticated(f"{name.decode()} comes several times; send your credentials once")
    return value


def normal_certificate(text: str) -> str:
    """A certificate as it is compared: a fingerprint in plain hexadecimal, or its subject."""
    fingerprint = _DIGEST_NAME.sub("", text.strip()).replace(":", "").lower()
    return fingerprint if _FINGERPRINT.fullmatch(fingerprint) else text.strip()


class _Window(msgspec.Struct):
    ends_at: float
    count: int = 0


class FailedAttempts:
    """Counts the wrong credentials of each address in a minute.

    Only failed attempts are counted and refused, so that no client can lock out an owner of valid
    credentials who calls from the same address. A minute of an address is one line in the log.
    """

    def __init__(self, per_minute: int, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._monotonic = monotonic
        self._windows: dict[str, _Window] = {}

    def is_exceeded(self, address: str | None) -> bool:
        """True when the next failed attempt of an address is past the limit."""
        window = self._windows.get(client_network(address or "unknown")[0])
        return (
            window is not None
            and window.count >= self._per_minute
            and window.ends_at > self._monotonic()
        )

    def count(self, address: str | None) -> None:
        """Count a failed attempt. Raises: TooManyAttempts (429), past the limit."""
        key, now = client_network(address or "unknown")[0], self._monotonic()
        window = self._windows.get(key)
        if window is None or window.ends_at <= now:
            before = 0 if window is None else window.count
            log.warning("auth.credentials_refused", address=key, refused_before=before)
            # Appended to the dict: the oldest window is removed first when the table is full.
            self._windows.pop(key, None)
            if len(self._windows) >= MAX_ADDRESSES:
                del self._windows[next(iter(self._windows))]
            window = self._windows[key] = _Window(now + WINDOW_S)
        window.count += 1
        if window.count > self._per_minute:
            raise TooManyAttempts(
                f"more than {self._per_minute} wrong credentials in a minute came from your"
                " address; wait, and send right ones",
                retry_after_s=window.ends_at - now,
                setting="limits.perAddressFailures",
            )


class Credentials:
    """All credentials that are valid: tokens of the settings and of the token file, and others."""

    def __init__(
        self,
        peers: Iterable[PeerSettings] = (),
        *,
        tokens: TokenStore | None = None,
        verifier: "JwtVerifier | None" = None,
        certificate_header: str = "",
        proxies: TrustedProxies | None = None,
        failures: FailedAttempts | None = None,
    ) -> None:
        """`certificate_header`: the header with the client certificate, set by trusted proxies."""
        peers = tuple(peers)
        # A peer may have several tokens: the next one can be issued before the old one is removed.
        # By digest, as in the token file: the cost does not grow with the peers.
        self._principals = {
            token.digest: Principal(peer.name) for peer in peers for token in peer.tokens
        }
        self._by_certificate = {
            normal_certificate(one): Principal(peer.name)
            for peer in peers
            for one in peer.certificates
        }
        self._certificate_header = certificate_header.lower().encode("latin-1")
        self._proxies = proxies or TrustedProxies()
        self._failures = failures
        self._tokens = tokens
        self._verifier = verifier
        self._are_configured = bool(peers or verifier)
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

    @property
    def accept_certificates(self) -> bool:
        """True when trusted proxies may name the certificates of peers."""
        return bool(self._by_certificate and self._certificate_header)

    def accept_tokens(self) -> bool:
        """True when peers may show tokens: there are some in the settings or in the token file."""
        try:
            has_file = self._tokens is not None and self._tokens.peers_need_tokens()
        except CorruptRecord:  # then only tokens of the settings are accepted
            has_file = True
        return has_file or bool(self._principals)

    def authenticate(self, request: ClientRequest) -> Principal:
        """The owner of the credentials of a request.

        Raises: Unauthenticated, TooManyAttempts, CorruptRecord (the token file).
        """
        digest = request.facts.token_digest
        if digest is None:
            try:
                token = read_bearer_token(request) or _read_once(request, API_KEY_HEADER).strip()
            except Unauthenticated as error:
                raise self._refusal(error.message) from None
            if not token:
                return self._identify_certificate(request)
            digest = request.facts.token_digest = token_digest(token)
        principal = self._principals.get(digest)
        if principal is None and self._tokens is not None:
            principal = self._tokens.identify(digest)
        return self._authenticate_bearer(request) if principal is None else principal

    def _authenticate_bearer(self, request: ClientRequest) -> Principal:
        """The owner of a token that is not kept here."""
        bearer = read_bearer_token(request)
        try:
            principal = self._verify(request, bearer) if bearer else None
        except Unauthenticated as error:
            self._count_failure(request)
            raise self._refusal(error.message) from None
        if principal is None:
            self._count_failure(request)
            raise self._refusal(_NOT_VALID)
        return principal

    def _refusal(self, text: str, *, has_credentials: bool = True) -> Unauthenticated:
        """The error for a request without valid credentials: it says which kinds there are."""
        schemes: list[str] = []
        if self._verifier or not self.accept_certificates or self.accept_tokens():
            schemes.append("Bearer")
        if self.accept_certificates:
            schemes.append(CERTIFICATE_SCHEME)
        return Unauthenticated(text, has_credentials=has_credentials, schemes=schemes)

    def _identify_certificate(self, request: ClientRequest) -> Principal:
        """The owner of the certificate that a trusted proxy has verified. Raises: as above."""
        name = self._certificate_header
        said = request.headers.get(name, b"").decode("latin-1").strip() if name else ""
        # From any other client the header proves nothing and is ignored. In several
        # lines, one of them may be the caller's.
        if (
            not said
            or not self._proxies.is_trusted(request.client_host)
            or request.has_repeated(name)
        ):
            raise self._refusal(_HOW_TO_SEND, has_credentials=False)
        principal = self._by_certificate.get(normal_certificate(said))
        if principal is None:
            self._count_failure(request)
            raise self._refusal(_NOT_VALID)
        return principal

    def _count_failure(self, request: ClientRequest) -> None:
        if self._failures is not None:
            self._failures.count(self._proxies.client_address(request))

    def _verify(self, request: ClientRequest, token: bytes) -> Principal | None:
        if self._verifier is None:
            return None
        principal = self._verifier.find_verified(token)
        if principal is not None:
            return principal
        # Past the limit no signature is verified any more, because that is expensive.
        if self._failures is not None and self._failures.is_exceeded(
            self._proxies.client_address(request)
        ):
            return None
        return self._verifier.verify(token)


async def await_identity(identify: Callable[[Request], Caller], request: Request) -> Caller:
    """The caller as `identify` says; waits a limited time for keys that are being fetched.

    Raises: as `identify`.
    """
    # Twice at most: for the first keys of an issuer, and for its changed keys.
    for _ in range(2):
        try:
            return identify(request)
        except IssuerUnavailable as pending:
            if pending.wait is None:
                raise
            await pending.wait()
    return identify(request)


class PeerAuthenticator:
    """Identifies peers. Without any credentials only this machine may call, as `local`."""

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
        if request.facts.origin_accepted_by is not self:
            self._check_own(request)
            request.facts.origin_accepted_by = self
        return LOCAL_PRINCIPAL

    def _check_own(self, request: ClientRequest) -> None:
        """Check that the request comes from this machine's user. Raises: as `identify`."""
        if not is_loopback_client(request):
            text = "without tokens this gateway answers its own machine only"
            raise Unauthenticated(text, has_credentials=False)
        # A proxy may send no proxy headers: then all its clients seem to be on this machine.
        if self._own.public_name is not None:
            text = f"other machines reach this gateway as {self._own.public_name}, so callers need"
            raise Unauthenticated(f"{text} tokens; {_MAKE_ONE}", has_credentials=False)
        # nginx uses HTTP/1.0 to a gateway unless it is configured otherwise; it sends nothing
        # about its client then.
        if not PROXY_HEADERS.isdisjoint(request.headers) or request.http_version == "1.0":
            raise NotAllowed(
                "this request was forwarded by a proxy (or came as HTTP/1.0, as from one), and "
                f"without a token its caller is unknown; {_MAKE_ONE}"
            )
        self._own.check(request)
