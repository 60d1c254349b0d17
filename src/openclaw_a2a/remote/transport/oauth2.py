"""OAuth 2 for programs: gets access tokens with client credentials (RFC 6749, section 4.4)."""

import base64
import hashlib
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from urllib.parse import quote_plus, urlencode

import httpx2
import msgspec

from openclaw_a2a.model.errors import SettingsInvalid
from openclaw_a2a.model.ids import Json
from openclaw_a2a.model.validation import as_object, is_object
from openclaw_a2a.remote.config import OAuth2Client, clean_text
from openclaw_a2a.remote.result import ErrorCode, RemoteFailure
from openclaw_a2a.remote.targets import Target
from openclaw_a2a.remote.transport.agent_card import (
    PeerCard,
    TokenEndpoint,
    is_local,
    may_lead_to,
)
from openclaw_a2a.remote.transport.codec import AnswerUnreadable, decode_json
from openclaw_a2a.remote.transport.http_transport import PeerHttp
from openclaw_a2a.settings.tokens import resolve_token

_MAX_ANSWER_BYTES = 64 * 1024
_MAX_TEXT_CHARS = 200
_TOKEN = re.compile(r"[\x21-\x7e]{1,16384}")
"""RFC 6750, 2.1, and nothing that could end a header."""
_DEFAULT_LIFETIME_S = 300.0
_MAX_LIFETIME_S = 24 * 3600.0
_EARLY_S = 60.0


class ClientCredentials(msgspec.Struct, frozen=True):
    """A client with its secret."""

    client: OAuth2Client
    secret: str

    def __repr__(self) -> str:
        """Never the secret."""
        return f"ClientCredentials({self.client.client_id!r})"

    @property
    def digest(self) -> bytes:
        """Tells secrets apart: a changed one needs a new token."""
        return hashlib.sha256(self.secret.encode()).digest()

    @property
    def basic(self) -> str:
        """Id and secret as HTTP Basic credentials (RFC 6749, 2.3.1)."""
        pair = f"{quote_plus(self.client.client_id)}:{quote_plus(self.secret)}"
        return base64.b64encode(pair.encode()).decode()

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be shown in results and logs."""
        return (self.secret, quote_plus(self.secret), self.basic)


class AccessToken(msgspec.Struct, frozen=True):
    """A token, and when to get the next one."""

    value: str
    renew_at: datetime

    def __repr__(self) -> str:
        """Never the token."""
        return f"AccessToken(renew_at={self.renew_at})"


def read_client_credentials(
    client: OAuth2Client, environment: Mapping[str, str]
) -> ClientCredentials:
    """The client with the secret that its reference leads to now. Raises: RemoteFailure."""
    try:
        secret = resolve_token(client.client_secret, environ=environment)
    except SettingsInvalid as error:
        raise RemoteFailure(
            ErrorCode.TARGET_RESOLUTION,
            f"the client secret of the target cannot be read: {error.message}",
            {"reason": "missing_client_secret", "suggested_action": "list_targets"},
        ) from None
    return ClientCredentials(client, secret)


def select_token_endpoint(card: PeerCard, target: Target) -> TokenEndpoint:
    """The token endpoint of a card that our secret may be sent to. Raises: RemoteFailure.

    It must be where the target itself is, or at one of its allowed hosts: the author of a card must
    not decide who gets the secret. And it must be https, except on this machine.
    """
    for one in card.token_endpoints:
        try:
            # As it will be connected to: two parsers could see two hosts in one text.
            parsed = httpx2.URL(one.url)
        except httpx2.InvalidURL:
            continue
        is_safe = parsed.scheme == "https" or (parsed.scheme == "http" and is_local(parsed.host))
        is_plain = bool(parsed.host) and not parsed.userinfo and not parsed.fragment
        if is_safe and is_plain and may_lead_to(str(parsed), target):
            return msgspec.structs.replace(one, url=str(parsed))
    offered = ", ".join(one.url[:200] for one in card.token_endpoints)
    raise RemoteFailure.peer(
        "NoTokenEndpoint",
        f"the card of {target.base_url} names no token endpoint that our secret may be sent to; "
        f"it names: {offered or 'none'}",
        "set auth.oauth2.tokenUrl of this target, or add the host to its allowedHosts (https)",
    )


async def request_token(
    http: PeerHttp, endpoint: TokenEndpoint, credentials: ClientCredentials, *, now: datetime
) -> AccessToken:
    """Request a token. Raises: RemoteFailure."""
    asked = {"grant_type": "client_credentials"}
    if endpoint.scopes:
        asked["scope"] = " ".join(endpoint.scopes)
    headers = {
        "authorization": f"Basic {credentials.basic}",
        "content-type": "application/x-www-form-urlencoded",
        "accept": "application/json",
    }
    try:
        response, body = await http.request(
            "POST", endpoint.url, headers, urlencode(asked).encode(), limit=_MAX_ANSWER_BYTES
        )
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        raise _no_token(endpoint, f"it cannot be reached: {reason[:_MAX_TEXT_CHARS]}") from error
    try:
        answer = decode_json(body)
    except AnswerUnreadable:
        answer = None
    if not response.is_success or not is_object(answer):
        raise _no_token(endpoint, _refusal(response.status_code, answer))
    value, kind = answer.get("access_token"), answer.get("token_type")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise _no_token(endpoint, "it does not issue bearer tokens")
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        raise _no_token(endpoint, "its answer has no token that can be sent")
    lifetime_s = _lifetime_s(answer.get("expires_in"))
    return AccessToken(value, now + timedelta(seconds=lifetime_s - min(_EARLY_S, lifetime_s / 2)))


def _lifetime_s(value: Json) -> float:
    # Some servers send it as a string.
    if isinstance(value, str) and value.isdecimal() and len(value) <= 10:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        return _DEFAULT_LIFETIME_S
    return float(min(value, _MAX_LIFETIME_S))


def _refusal(status: int, answer: Json) -> str:
    said = [clean_text(as_object(answer).get(key)) for key in ("error", "error_description")]
    reason = ": ".join(one[:_MAX_TEXT_CHARS] for one in said if one)
    return f"it answered with HTTP status {status}" + (f" ({reason})" if reason else "")


def _no_token(endpoint: TokenEndpoint, reason: str) -> RemoteFailure:
    return RemoteFailure.peer(
        "NoAccessToken",
        f"there is no access token from {endpoint.url}: {reason}",
        "check clientId, clientSecret and scopes of the target's auth.oauth2",
    )
