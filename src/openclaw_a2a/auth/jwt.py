"""Verifies the JSON Web Tokens of OpenID Connect issuers that the operator trusts.

A token is an attacker's text until its signature is right. So it is taken apart by strict rules of
our own (sizes, exact base64url, no duplicate members), and nothing in it decides how it is checked:
the issuer is one of the settings, the key is one that this issuer publishes, and the algorithm must
be allowed there and fit the key. Keys that a token brings along or points to are refused.

Keys are fetched in the background, never for each request: when the gateway starts, at intervals,
and, at most every few seconds, when a token names a key that is not known (the issuer has changed
its keys).
"""

import asyncio
import base64
import json
import math
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
from joserfc.errors import JoseError
from joserfc.jwk import Key, import_key
from joserfc.jws import JWSRegistry

from openclaw_a2a.auth.principal import Principal, Scope
from openclaw_a2a.auth.tokens import token_digest
from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.model.errors import IssuerUnavailable, Unauthenticated
from openclaw_a2a.model.ids import Json, JsonObject, PeerName
from openclaw_a2a.model.validation import is_list, is_object
from openclaw_a2a.settings import OidcSettings

log = get_logger(__name__)

FetchDocument = Callable[[str], Awaitable[bytes]]
"""The bytes at a URL. Raises: FetchFailed."""

MAX_TOKEN_BYTES = 16 * 1024
_MAX_DOCUMENT_KEYS = 100
_MAX_NAME = 256
_RSA_BITS = range(2048, 8193)
_CURVES = {"EC": ("P-256", "P-384", "P-521", "secp256k1"), "OKP": ("Ed25519", "Ed448")}
_MAX_CACHED = 10_000
_LOG_S = 60.0
_REFRESH_S = 600.0
_REFETCH_S = 10.0
"""The shortest pause between two fetches that tokens with unknown keys cause."""
WAIT_S = 5.0
"""How long a request waits for keys that are being fetched."""
_RETRY = Backoff(first_s=1.0, max_s=60.0, jitter=0.0)

_KEY_MEMBERS = ("kty", "n", "e", "crv", "x", "y")
_FOREIGN_KEYS = ("jwk", "jku", "x5u", "x5c")
_TYPES = frozenset({"jwt", "at+jwt", "application/jwt", "application/at+jwt"})
_NOT_VALID = "this token is not valid here"


class FetchFailed(Exception):
    """A document of an issuer could not be fetched; the message says why."""


class _Rejected(Exception):
    """Why a token is not accepted. For the log only: the caller is not authenticated."""


class IssuerKeys:
    """The public keys of one issuer, by their ids.

    Invariant: at most one fetch is under way. Keys stay in use while the issuer is unreachable, and
    are replaced as a whole by the next set that can be read.
    """

    def __init__(
        self,
        settings: OidcSettings,
        *,
        fetch: FetchDocument,
        supervisor: Supervisor,
        on_change: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._fetch = fetch
        self._supervisor = supervisor
        self._on_change = on_change
        self._keys: dict[str | None, list[_PublishedKey]] = {}
        self._fetching: asyncio.Task[None] | None = None
        self._refetched_at = -math.inf
        self._failures = 0

    def start(self) -> None:
        """Fetch the keys now, and again at intervals; after a failure sooner."""
        self._start_fetch()  # start now, so that requests can wait for it
        self._supervisor.run_loop(f"oidc-{self._settings.name}", self._keep_fresh())

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.wait({self._start_fetch()})
            failed = self._failures
            await asyncio.sleep(_RETRY.delay_s(failed) if failed else _REFRESH_S)

    def find(self, key_id: str | None, algorithm: str) -> Key:
        """The key that a token names. Raises: IssuerUnavailable, _Rejected."""
        key = self._find(key_id, algorithm)
        if key is not None:
            return key
        if self._may_fetch():
            # All concurrent requests share one fetch. After it the key is known, or the pause has
            # begun: many unknown keys cause no more than one fetch in that time.
            fetching = self._start_fetch()

            async def wait() -> None:
                await asyncio.wait({fetching}, timeout=WAIT_S)

            raise IssuerUnavailable(self._message, wait=wait)
        if not self._keys:
            raise IssuerUnavailable(self._message, retry_after_s=WAIT_S)
        raise _Rejected("the issuer has no key with this id for this algorithm")

    @property
    def _message(self) -> str:
        issuer = self._settings.issuer
        return f"the keys of {issuer} are not here yet, so its tokens cannot be checked; try again"

    def _find(self, key_id: str | None, algorithm: str) -> Key | None:
        if key_id is None:  # without an id only if there is no choice
            keys = [one for group in self._keys.values() for one in group]
        else:
            keys = self._keys.get(key_id, [])
        fitting = [one.key for one in keys if one.fits(algorithm)]
        return fitting[0] if len(fitting) == 1 else None

    def _may_fetch(self) -> bool:
        if self._fetching is not None:
            return True
        now = time.monotonic()
        # Without keys the loop is between two attempts, and keeps its own pauses.
        if not self._keys or now - self._refetched_at < _REFETCH_S:
            return False
        self._refetched_at = now
        return True

    def _start_fetch(self) -> "asyncio.Task[None]":
        if self._fetching is None:
            self._fetching = self._supervisor.start("oidc-keys", self._refresh())
        return self._fetching

    async def _refresh(self) -> None:
        issuer = self._settings.issuer
        try:
            keys = await fetch_keys(self._settings, self._fetch)
        except FetchFailed as error:
            self._failures += 1
            log.warning("oidc.keys_unavailable", issuer=issuer, reason=str(error)[:300])
        else:
            self._failures = 0
            is_new = {key: [one.members for one in group] for key, group in keys.items()}
            known = {key: [one.members for one in group] for key, group in self._keys.items()}
            if is_new != known:
                self._keys = keys
                # Tokens of a key that the issuer has withdrawn must not live on in the cache.
                self._on_change()
                log.info("oidc.keys_changed", issuer=issuer, keys=len(keys))
        finally:
            self._fetching = None


async def fetch_keys(
    settings: OidcSettings, fetch: FetchDocument
) -> "dict[str | None, list[_PublishedKey]]":
    """The keys of an issuer, at the address that it publishes or the settings have.

    Raises: FetchFailed.
    """
    url = settings.jwks_url
    if not url:
        url = read_keys_url(await fetch(settings.discovery_url), settings)
    return read_keys(await fetch(url))


def read_keys_url(document: bytes, settings: OidcSettings) -> str:
    """The address of the keys in an issuer's configuration. Raises: FetchFailed."""
    place, issuer = settings.discovery_url, settings.issuer
    try:
        members = _parse_object(document)
    except ValueError as error:
        raise FetchFailed(f"{place} is no configuration: {error}") from None
    # Section 4.3: otherwise one issuer could impersonate another.
    if members.get("issuer") != issuer:
        raise FetchFailed(
            f"{place} says that its issuer is {str(members.get('issuer'))[:100]!r};"
            " write the issuer in the settings exactly as it is there"
        )
    url, own = members.get("jwks_uri"), urlsplit(issuer)
    try:
        parts = urlsplit(url) if isinstance(url, str) else urlsplit("")
    except ValueError:
        parts = urlsplit("")
    is_own = (parts.scheme, parts.netloc) == (own.scheme, own.netloc)
    if not isinstance(url, str) or not (is_own or (parts.scheme == "https" and parts.hostname)):
        raise FetchFailed(f"{place} has no jwks_uri with an https address")
    return url


def read_keys(document: bytes) -> "dict[str | None, list[_PublishedKey]]":
    """The keys of a JSON Web Key Set that can check signatures. Raises: FetchFailed."""
    try:
        entries = _parse_object(document).get("keys")
    except ValueError as error:
        raise FetchFailed(f"the key set cannot be read: {error}") from None
    if not is_list(entries) or len(entries) > _MAX_DOCUMENT_KEYS:
        raise FetchFailed(f"the key set has no list of at most {_MAX_DOCUMENT_KEYS} keys")
    keys: dict[str | None, list[_PublishedKey]] = {}
    for entry in entries:
        # A set may have keys for other purposes, and of kinds that we do not know: RFC 7517, 5.
        if is_object(entry) and (key := _read_key(entry)) is not None:
            key_id = entry.get("kid")
            keys.setdefault(key_id if isinstance(key_id, str) else None, []).append(key)
    if not keys:
        raise FetchFailed("the key set has no key that can check signatures")
    return keys


class _PublishedKey(NamedTuple):
    key: Key
    algorithm: str | None
    members: JsonObject

    def fits(self, algorithm: str) -> bool:
        """True when the key is meant for this algorithm."""
        if self.algorithm not in (None, algorithm):
            return False
        try:
            JWSRegistry.algorithms[algorithm].check_key(self.key)
        except JoseError:
            return False
        return True


def _read_key(entry: JsonObject) -> _PublishedKey | None:
    operations = entry.get("key_ops", ["verify"])
    is_for_signatures = entry.get("use", "sig") == "sig"
    is_for_verifying = is_list(operations) and "verify" in operations
    algorithm, kind = entry.get("alg"), entry.get("kty")
    # Never `oct`: everybody who can verify tokens with a shared secret can also forge them.
    if kind not in ("RSA", *_CURVES) or not (is_for_signatures and is_for_verifying):
        return None
    members: JsonObject = {name: entry[name] for name in _KEY_MEMBERS if name in entry}
    try:
        if kind == "RSA":
            # Small keys can be broken; verifying with huge ones takes too long.
            is_usable = _bit_length(entry.get("n")) in _RSA_BITS
        else:
            is_usable = entry.get("crv") in _CURVES[kind]
        if not is_usable:
            return None
        key = import_key(members)
    except (JoseError, ValueError, TypeError):
        return None
    return _PublishedKey(key, algorithm if isinstance(algorithm, str) else None, members)


def _bit_length(number: Json) -> int:
    text = number.encode("ascii") if isinstance(number, str) else b""
    return int.from_bytes(_decode_base64(text)).bit_length()


# -------------------------------------------------------------------- tokens


class ParsedToken(msgspec.Struct, frozen=True):
    """The parts of a token, of which nothing is proven yet."""

    algorithm: str
    key_id: str | None
    claims: JsonObject
    signing_input: bytes
    signature: bytes


class _Verified(NamedTuple):
    principal: Principal
    expires_at: float


class JwtVerifier:
    """Accepts the tokens of all configured issuers.

    Verified tokens are cached by their digest until they expire: a caller's token is checked once,
    not for each of its requests.
    """

    def __init__(
        self,
        issuers: Iterable[OidcSettings],
        *,
        fetch: FetchDocument,
        supervisor: Supervisor,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._now = now
        self._verified: dict[bytes, _Verified] = {}
        self._rejected = 0
        """How many tokens were rejected since the last line in the log."""
        self._next_line = -math.inf
        self._issuers = {
            one.issuer: (
                one,
                IssuerKeys(one, fetch=fetch, supervisor=supervisor, on_change=self._verified.clear),
            )
            for one in issuers
        }

    def start(self) -> None:
        """Fetch the keys of every issuer, now and at intervals."""
        for _, keys in self._issuers.values():
            keys.start()

    def find_verified(self, token: bytes) -> Principal | None:
        """The owner of a token that was verified before and is still valid; None otherwise."""
        known = self._verified.get(token_digest(token))
        return known.principal if known is not None and known.expires_at > self._now() else None

    def verify(self, token: bytes) -> Principal | None:
        """The owner of a token; None when it is no JWT.

        Raises: Unauthenticated, IssuerUnavailable.
        """
        if token.count(b".") != 2:
            return None
        known = self.find_verified(token)
        if known is not None:
            return known
        try:
            parsed = parse_token(token)
            settings, keys = self._issuer_of(parsed)
            _check_signature(parsed, settings, keys)
            expires_at = _check_claims(parsed.claims, settings, self._now())
            principal = _principal_of(parsed.claims, settings)
        except _Rejected as reason:
            self._log_rejection(str(reason))
            raise Unauthenticated(f"{_NOT_VALID}; get a new one from its issuer") from None
        while len(self._verified) >= _MAX_CACHED:
            del self._verified[next(iter(self._verified))]
        self._verified[token_digest(token)] = _Verified(principal, expires_at)
        return principal

    def _log_rejection(self, reason: str) -> None:
        """One line in a minute: a client that sends wrong tokens does not fill the log."""
        now = time.monotonic()
        self._rejected += 1
        if now >= self._next_line:
            before, self._rejected = self._rejected - 1, 0
            self._next_line = now + _LOG_S
            log.info("oidc.token_rejected", reason=reason, rejected_before=before)

    def _issuer_of(self, parsed: ParsedToken) -> tuple[OidcSettings, IssuerKeys]:
        issuer = parsed.claims.get("iss")
        found = self._issuers.get(issuer) if isinstance(issuer, str) else None
        if found is None:
            raise _Rejected(f"the issuer {str(issuer)[:100]!r} is not configured")
        return found


def parse_token(token: bytes) -> ParsedToken:
    """The parts of a token in the compact form. Raises: _Rejected."""
    if len(token) > MAX_TOKEN_BYTES:
        raise _Rejected(f"it has more than {MAX_TOKEN_BYTES} bytes")
    parts = token.split(b".")
    if len(parts) != 3:  # header, claims, signature
        raise _Rejected("it has not three parts")
    try:
        header, claims = (_parse_object(_decode_base64(part)) for part in parts[:2])
        signature = _decode_base64(parts[2])
    except ValueError as error:
        raise _Rejected(str(error)) from None
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str):
        raise _Rejected("its header names no algorithm")
    if key_id is not None and not (isinstance(key_id, str) and len(key_id) <= _MAX_NAME):
        raise _Rejected("its header has a key id that is no string")
    if found := [name for name in _FOREIGN_KEYS if name in header]:
        raise _Rejected(f"its header brings a key along: {', '.join(found)}")
    # RFC 7515, 4.1.11: what is critical must be understood, and we know no such extension. RFC
    # 8725, 3.11: tokens for other purposes (logout, DPoP, tokens within tokens) say so.
    if "crit" in header or "cty" in header:
        raise _Rejected("its header has crit or cty")
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise _Rejected("it is a token of another type")
    return ParsedToken(algorithm, key_id, claims, parts[0] + b"." + parts[1], signature)


def _check_signature(parsed: ParsedToken, settings: OidcSettings, keys: IssuerKeys) -> None:
    # The settings allow only algorithms with key pairs; no token can choose another.
    if parsed.algorithm not in settings.algorithms:
        raise _Rejected(f"the algorithm {parsed.algorithm[:20]!r} is not allowed")
    key = keys.find(parsed.key_id, parsed.algorithm)
    algorithm = JWSRegistry.algorithms[parsed.algorithm]
    try:
        is_right = algorithm.verify(parsed.signing_input, parsed.signature, key)
    except (JoseError, ValueError):
        is_right = False
    if not is_right:
        raise _Rejected("its signature is wrong")


def _check_claims(claims: JsonObject, settings: OidcSettings, now: float) -> float:
    """Check the times and the audience; until when the token is accepted. Raises: _Rejected."""
    skew = settings.clock_skew_seconds
    given = claims.get("aud")
    audience = [given] if isinstance(given, str) else given
    if not is_list(audience) or not all(isinstance(one, str) for one in audience):
        raise _Rejected("its audience is neither a string nor a list of strings")
    if not set(audience) & set(settings.audience):
        raise _Rejected("it is meant for another audience")
    expires_at = _time_of(claims, "exp")
    if expires_at is None:
        raise _Rejected("it has no time of expiry")
    if expires_at + skew <= now:
        raise _Rejected("it has expired")
    for name in ("nbf", "iat"):
        begins_at = _time_of(claims, name)
        if begins_at is not None and begins_at - skew > now:
            raise _Rejected(f"its {name} is in the future")
    return expires_at + skew


def _time_of(claims: JsonObject, name: str) -> float | None:
    value = claims.get(name)
    if value is None and name not in claims:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**53:
        raise _Rejected(f"its {name} is no time")
    return float(value)


def _principal_of(claims: JsonObject, settings: OidcSettings) -> Principal:
    subject = claims.get(settings.principal_claim)
    if not isinstance(subject, str) or not 0 < len(subject) <= _MAX_NAME:
        raise _Rejected(f"its {settings.principal_claim} is no string of 1 to {_MAX_NAME}")
    if not subject.isprintable() or subject.strip() != subject:
        raise _Rejected(f"its {settings.principal_claim} has characters that no name has")
    return Principal(
        # No configured name has a colon, and no issuer's name has one: so no subject can be taken
        # for a peer, for `local`, or for a subject of another issuer.
        name=PeerName(f"oidc:{settings.name}:{subject}"),
        scopes=_scopes_of(claims, settings),
        accounts=None if settings.accounts is None else frozenset(settings.accounts),
        agents=None if settings.agents is None else frozenset(settings.agents),
    )


def _scopes_of(claims: JsonObject, settings: OidcSettings) -> frozenset[Scope]:
    if not settings.scopes:
        return frozenset({Scope.A2A})
    value = claims.get(settings.scope_claim)
    # A string with spaces (RFC 9068), or a list, as other issuers have it.
    given = value.split(" ") if isinstance(value, str) else value if is_list(value) else []
    granted = (settings.scopes.get(one, ()) for one in given if isinstance(one, str))
    return frozenset(Scope(one) for group in granted for one in group)


# -------------------------------------------------------------------- strict decoding


def _decode_base64(text: bytes) -> bytes:
    """Raises ValueError for anything but exact base64url without padding."""
    decoded = base64.b64decode(text + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    # One spelling only: no padding, no other alphabet, no bits that are left over.
    if base64.urlsafe_b64encode(decoded).rstrip(b"=") != text:
        raise ValueError("a part of it is not exact base64url")
    return decoded


def _parse_object(document: bytes) -> JsonObject:
    """The JSON object. Raises ValueError, also for a member that comes twice."""
    try:
        value: Json = json.loads(
            document.decode("utf-8"),
            object_pairs_hook=_unique_members,
            parse_constant=_refuse_constant,
        )
        if b"\\u" in document:  # only an escape can make it, and no address or name can hold it
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("it has half a character (a lone surrogate)") from None
    if not is_object(value):
        raise ValueError("it is not a JSON object")
    return value


def _unique_members(pairs: list[tuple[str, Any]]) -> JsonObject:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member comes twice")
    return members


def _refuse_constant(text: str) -> Json:
    raise ValueError(f"{text} is not JSON")
