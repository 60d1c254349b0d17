"""Agent cards: built from an account and its agent, served as 1.0 or hybrid, with ETags."""

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import msgspec

from openclaw_a2a.http.asgi import HttpRequest
from openclaw_a2a.model.card import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentProfile,
)
from openclaw_a2a.model.errors import VersionNotSupported
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.planning.steps import EXTENSION_URI
from openclaw_a2a.protocol.card import card_json, etag, hybrid_card_json
from openclaw_a2a.protocol.versions import ProtocolVersion, read_version
from openclaw_a2a.settings import Account, OidcSettings

_CACHE = (b"cache-control", b"public, max-age=60")
_VARY = (b"vary", b"A2A-Version, Host, X-Forwarded-Proto")
_TOKEN_SCHEMES: dict[str, JsonObject] = {
    "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
    "apiKey": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
}


def security_schemes(
    issuers: Iterable[OidcSettings] = (), *, has_tokens: bool, has_certificates: bool = False
) -> dict[str, JsonObject]:
    """The security schemes of a card; any of them is enough."""
    oidc: dict[str, JsonObject] = {
        f"oidc-{one.name}": {"openIdConnectSecurityScheme": {"openIdConnectUrl": one.discovery_url}}
        for one in issuers
    }
    tokens = _TOKEN_SCHEMES if has_tokens else {}
    certificates: dict[str, JsonObject] = (
        {"mtls": {"mtlsSecurityScheme": {}}} if has_certificates else {}
    )
    return {**tokens, **certificates, **oidc}


def apply_profiles(account: Account, *profiles: AgentProfile | None) -> Account:
    """The account, completed from the profiles where it says nothing itself; the first one wins."""
    known = [profile for profile in profiles if profile is not None]
    described: dict[str, object] = {
        "label": next((one.name for one in known if one.name), account.label),
        "description": next((one.description for one in known if one.description), None)
        or account.description,
        "skills": next((one.skills for one in known if one.skills), account.skills),
    }
    missing = {key: value for key, value in described.items() if key not in account.customized}
    return msgspec.structs.replace(account, **missing)


def build_card(
    account: Account,
    *,
    version: str,
    schemes: Mapping[str, JsonObject] = MappingProxyType({}),
    extensions: tuple[AgentExtension, ...] = (),
) -> AgentCard:
    """The card of an account."""
    rpc_url, rest_url = (
        account_url(account, account.json_rpc_path),
        account_url(account, account.rest_path),
    )
    skills = tuple(
        msgspec.structs.replace(
            skill,
            description=skill.description or skill.name,
            input_modes=account.default_input_modes,
            output_modes=account.default_output_modes,
        )
        for skill in account.skills
    )
    return AgentCard(
        name=account.label,
        description=account.description,
        version=version,
        supported_interfaces=(
            AgentInterface(rpc_url, "JSONRPC", ProtocolVersion.V1.value),
            AgentInterface(rest_url, "HTTP+JSON", ProtocolVersion.V1.value),
            AgentInterface(rpc_url, "JSONRPC", ProtocolVersion.V03.value),
        ),
        capabilities=AgentCapabilities(
            streaming=True,
            push_notifications=account.push_notifications,
            extensions=extensions,
        ),
        default_input_modes=account.default_input_modes,
        default_output_modes=account.default_output_modes,
        skills=skills,
        security_schemes=dict(schemes) or None,
        security_requirements=security_requirements(schemes),
    )


def security_requirements(schemes: Iterable[str]) -> tuple[JsonObject, ...]:
    """The requirements of a card: any one of the schemes."""
    return tuple({"schemes": {name: {"list": []}}} for name in schemes)


def objectives_extension(*, max_plans: int, max_tasks: int, is_persistent: bool) -> AgentExtension:
    """The extension for objectives in an agent card."""
    params: JsonObject = {
        "maxPlansPerObjective": max_plans,
        "maxTasksPerPlan": max_tasks,
        "persistenceEnabled": is_persistent,
    }
    return AgentExtension(EXTENSION_URI, required=False, params=params)


def account_url(account: Account, path: str) -> str:
    """The public address of one of an account's paths."""
    return (account.public_base_url or "").rstrip("/") + path


class LiveCard:
    """The card of an account, kept up to date with the profile of its agent.

    `build` makes the card for a profile; it is called again only when the profile has changed, or
    whether tokens are accepted.
    """

    def __init__(
        self,
        account: Account,
        build: Callable[[AgentProfile | None], AgentCard],
        profile: Callable[[], AgentProfile | None],
        accepts_tokens: Callable[[], bool] = lambda: False,
    ) -> None:
        self._account = account
        self._build = build
        self._profile = profile
        self._accepts_tokens = accepts_tokens
        self._built_for: tuple[AgentProfile | None, bool] | None = None
        self._card: AgentCard | None = None
        self._encoded: dict[str, _EncodedCard] = {}
        """The card by the address that it names."""

    def current(self) -> AgentCard:
        """The card for the current profile."""
        profile = self._profile()
        built_for = (profile, self._accepts_tokens())
        if self._card is None or built_for != self._built_for:
            self._built_for, self._card = built_for, self._build(profile)
            self._encoded.clear()
        return self._card

    def v1_json(self, request: HttpRequest) -> bytes:
        """The current card in 1.0."""
        return self._encode(request)[True][0]

    async def serve(self, request: HttpRequest) -> None:
        """Respond with the 1.0 card when 1.0 is requested, otherwise with the hybrid one."""
        body, tag = self._encode(request)[_asks_for_v1(request)]
        headers = [(b"etag", tag), _CACHE, _VARY]
        if _matches(request.header(b"if-none-match"), tag.decode()):
            await request.start_response(304, headers)
            await request.send({"type": "http.response.body", "body": b""})
        else:
            await request.respond(200, body, headers=headers)

    def _encode(self, request: HttpRequest) -> "_EncodedCard":
        card, account = self.current(), self._account
        own = (account.public_base_url or "").rstrip("/")
        base = (_requested_base(request) if account.follows_host else None) or own
        if base not in self._encoded:
            if len(self._encoded) >= _MAX_HOSTS:  # limited: clients can send any hosts
                self._encoded.clear()
            if base != own:
                interfaces = tuple(
                    msgspec.structs.replace(one, url=base + one.url.removeprefix(own))
                    for one in card.supported_interfaces
                )
                card = msgspec.structs.replace(card, supported_interfaces=interfaces)
            self._encoded[base] = _encode(card, account.protocol_version)
        return self._encoded[base]


_EncodedCard = dict[bool, tuple[bytes, bytes]]
"""The bytes and the tag of a card, in 1.0 (True) and hybrid."""

_MAX_HOSTS = 16
# A name or an IPv4 address, or an IPv6 address, and a port: nothing that could mean something else
# in a URL. It comes from the client, and the card goes back to that client only.
_HOST = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{1,5}))?"
)
_HTTP_PORT = 80
_MAX_PORT = 65535


def _requested_base(request: HttpRequest) -> str | None:
    """The address by which a client asks for the card; None without a valid Host header."""
    host = request.header(b"host") or ""
    found = _HOST.fullmatch(host)
    if found is None or ".." in host or not 0 < int(found[1] or _HTTP_PORT) <= _MAX_PORT:
        return None
    # A proxy that ends TLS says so. A client that invents the header misleads only itself.
    forwarded = (request.header(b"x-forwarded-proto") or "").partition(",")[0].strip().lower()
    return f"{'https' if forwarded == 'https' else 'http'}://{host.lower()}"


def _asks_for_v1(request: HttpRequest) -> bool:
    try:
        return read_version(request.protocol_version()) is ProtocolVersion.V1
    except VersionNotSupported:
        return False  # the hybrid card says which versions there are


def _encode(card: AgentCard, v03_version: str) -> _EncodedCard:
    clean = card_json(card)
    hybrid = hybrid_card_json(card, url=card.url, protocol_version=v03_version)
    return {True: (clean, etag(clean).encode()), False: (hybrid, etag(hybrid).encode())}


def _matches(if_none_match: str | None, tag: str) -> bool:
    if not if_none_match:
        return False
    known = [candidate.strip().removeprefix("W/") for candidate in if_none_match.split(",")]
    return tag in known or "*" in known
