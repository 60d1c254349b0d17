"""Authenticates users of the dashboard: browsers by a session, programs by a token.

A browser gets its session from a one-time link, on the gateway's own machine, or from a token with
the scope `dashboard` or `admin`. The session is a random name in a cookie that scripts cannot read
and that no request of another site carries; it lives in memory, so it ends with the gateway. A
session that began with a token ends with that token.
"""

import hmac
import secrets
import time
from collections.abc import Mapping

import msgspec

from openclaw_a2a.auth.peers import Credentials, read_bearer_token
from openclaw_a2a.auth.principal import Principal, Scope
from openclaw_a2a.auth.request_origin import (
    ClientRequest,
    OwnAddresses,
    is_loopback_client,
    is_proxied,
)
from openclaw_a2a.auth.tokens import token_digest
from openclaw_a2a.model.errors import InsufficientScope, NotAllowed, Unauthenticated
from openclaw_a2a.model.session_keys import OPERATOR_NAME

CSRF_HEADER = b"x-csrf-token"
CODE_SECONDS = 600.0
_BYTES = 32
_MAX_CODES = 16
_MAX_SESSIONS = 256
_SIGN_IN = "sign in first: run `openclaw-a2a dashboard open`, or show a token with the scope"


class DashboardUser(msgspec.Struct, frozen=True):
    """The authenticated user of a page. `may_act`: the user may also change something.

    `csrf_token` is what requests that change something must repeat; empty for programs, which send
    no cookie that a browser would add by itself.
    """

    name: str
    may_act: bool
    csrf_token: str = ""


class _Session(msgspec.Struct):
    """A browser that is signed in; `token` is empty when it came with a link."""

    csrf_token: str
    token: bytes
    used_at: float


class _UnknownHead:
    """The facts of a head that nothing is known about."""

    token_digest: bytes | None = None
    origin_accepted_by: object = None


class _TokenRequest:
    """A request as it would be with this token: the credentials of a session are checked again."""

    def __init__(self, request: ClientRequest, token: bytes) -> None:
        self.headers: Mapping[bytes, bytes] = {b"authorization": b"Bearer " + token}
        self.client_host = request.client_host
        self.server_port = request.server_port
        self.http_version = request.http_version
        self.facts = _UnknownHead()
        # Credentials are no lists. What is read from one is where the client of a proxy is.
        self.header_items = request.header_items

    def has_repeated(self, *names: bytes) -> bool:
        """Each header is there once."""
        return False


class DashboardAuthenticator:
    """Signs browsers in, and authenticates requests by session or token.

    Invariant: a code is valid once, for ten minutes; at most 16 codes and 256 sessions exist, and
    the oldest go first.
    """

    def __init__(
        self,
        admin_token: str | None,
        *,
        own: OwnAddresses,
        credentials: Credentials,
        is_read_only: bool = False,
        session_s: float = 12 * 3600.0,
    ) -> None:
        self._admin_digest = None if admin_token is None else token_digest(admin_token.encode())
        self._own = own
        self._credentials = credentials
        self._is_read_only = is_read_only
        self._session_s = session_s
        self._codes: dict[bytes, float] = {}
        self._sessions: dict[bytes, _Session] = {}

    # ---------------------------------------------------------------- signing in and out

    def new_code(self) -> str:
        """A code for one sign-in on this machine, within ten minutes."""
        code = secrets.token_urlsafe(_BYTES)
        while len(self._codes) >= _MAX_CODES:
            del self._codes[next(iter(self._codes))]
        # Only digests are kept, so the duration of a lookup reveals nothing about a code.
        self._codes[token_digest(code.encode())] = time.monotonic() + CODE_SECONDS
        return code

    def sign_in_with_code(self, request: ClientRequest, code: str) -> str:
        """The name of a new session. Raises: NotAllowed, Unauthenticated."""
        self._check_local(request)
        ends_at = self._codes.pop(token_digest(code.encode("utf-8", "replace")), None)
        if ends_at is None or ends_at < time.monotonic():
            raise Unauthenticated(
                "this link was used before or is older than ten minutes; get a new one with"
                " `openclaw-a2a dashboard open`"
            )
        return self._add_session(b"")

    def sign_in_with_token(self, request: ClientRequest, token: str) -> str:
        """The name of a new session. Raises: Unauthenticated, InsufficientScope, NotAllowed."""
        given = token.strip().encode("utf-8", "replace")
        self._own.check(request, shows_token=True)
        self._identify_token(_TokenRequest(request, given), given, is_local=_is_local(request))
        return self._add_session(given)

    def sign_out(self, request: ClientRequest) -> None:
        """End the session of a request."""
        self._sessions.pop(_session_digest(request), None)

    # ---------------------------------------------------------------- identifying

    def identify(self, request: ClientRequest) -> DashboardUser:
        """The user of a request.

        Raises: Unauthenticated, InsufficientScope, NotAllowed, CorruptRecord (the token file).
        """
        if b"authorization" in request.headers or b"x-api-key" in request.headers:
            self._own.check(request, shows_token=True)
            given = read_bearer_token(request) or b""
            return self._identify_token(request, given, is_local=_is_local(request))
        session = self._find_session(request)
        if session is None:
            raise Unauthenticated(f"{_SIGN_IN} `dashboard`", has_credentials=False)
        if session.token:
            self._own.check(request, shows_token=True)
            shown = _TokenRequest(request, session.token)
            user = self._identify_token(shown, session.token, is_local=_is_local(request))
        else:
            self._check_local(request)
            user = DashboardUser(OPERATOR_NAME, not self._is_read_only)
        session.used_at = time.monotonic()
        return msgspec.structs.replace(user, csrf_token=session.csrf_token)

    def check(self, request: ClientRequest) -> None:
        """Check the credentials of an open stream again. Raises: as `identify`."""
        self.identify(request)

    def check_action(self, request: ClientRequest, user: DashboardUser, form_token: str) -> None:
        """Refuse changes without permission or from another page. Raises: NotAllowed."""
        if not user.may_act:
            why = "the dashboard is read-only" if self._is_read_only else "your token may only look"
            raise NotAllowed(f"{why}; nothing was changed")
        self.check_same_site(request, user, form_token)

    def check_same_site(self, request: ClientRequest, user: DashboardUser, form_token: str) -> None:
        """Refuse requests that another page may have sent (CSRF). Raises: NotAllowed.

        The cookie stays away from requests of other sites, but programs on other ports of this
        host are of the same site.
        """
        if not user.csrf_token:
            return
        site = request.headers.get(b"sec-fetch-site", b"same-origin")
        given = request.headers.get(CSRF_HEADER) or form_token.encode()
        is_same = hmac.compare_digest(given, user.csrf_token.encode())
        if site not in (b"same-origin", b"none") or not is_same:
            raise NotAllowed("this did not come from a page of the dashboard; load the page again")

    # ---------------------------------------------------------------- details

    def _identify_token(
        self, request: ClientRequest, token: bytes, *, is_local: bool
    ) -> DashboardUser:
        is_admin = self._admin_digest is not None and hmac.compare_digest(
            token_digest(token), self._admin_digest
        )
        if is_admin and is_local:
            return DashboardUser(OPERATOR_NAME, not self._is_read_only)
        principal = self._credentials.authenticate(request)
        if Scope.ADMIN in principal.scopes:
            principal.check_scope(Scope.ADMIN)
            return DashboardUser(principal.name, not self._is_read_only)
        _check_may_look(principal)
        return DashboardUser(principal.name, may_act=False)

    def _check_local(self, request: ClientRequest) -> None:
        if not _is_local(request):
            raise NotAllowed(
                "a sign-in link works on the gateway's own machine only; elsewhere use a token"
                " with the scope `dashboard`"
            )
        self._own.check(request)

    def _add_session(self, token: bytes) -> str:
        name = secrets.token_urlsafe(_BYTES)
        while len(self._sessions) >= _MAX_SESSIONS:
            oldest = min(self._sessions.items(), key=lambda one: one[1].used_at)
            del self._sessions[oldest[0]]
        session = _Session(secrets.token_urlsafe(_BYTES), token, time.monotonic())
        self._sessions[token_digest(name.encode())] = session
        return name

    def _find_session(self, request: ClientRequest) -> _Session | None:
        digest = _session_digest(request)
        session = self._sessions.get(digest)
        if session is not None and session.used_at + self._session_s < time.monotonic():
            del self._sessions[digest]
            return None
        return session


def _check_may_look(principal: Principal) -> None:
    """Raises InsufficientScope, unless the credentials are for the dashboard, without limits."""
    try:
        principal.check_scope(Scope.DASHBOARD)
    except InsufficientScope as error:
        text = f"the token of {principal.name} is not for the dashboard; ask the operator for one"
        raise InsufficientScope(text, scope=error.scope) from None


def _is_local(request: ClientRequest) -> bool:
    return is_loopback_client(request) and not is_proxied(request)


def session_cookie(request: ClientRequest) -> str:
    """The name of the cookie with the session; cookies are shared by all ports of a host."""
    return f"openclaw_a2a_{request.server_port or 0}"


def _session_digest(request: ClientRequest) -> bytes:
    # Other programs on this host set cookies of any form: only our own is parsed.
    name = session_cookie(request).encode()
    for cookie in request.headers.get(b"cookie", b"").split(b";"):
        key, _, value = cookie.strip().partition(b"=")
        if key == name:
            return token_digest(value)
    return b""
