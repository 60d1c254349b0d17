"""Agent cards: built from an account and its agent, served clean 1.0 or hybrid, with validators."""

from collections.abc import Callable

import msgspec

from openclaw_a2a.http.asgi import HttpRequest
from openclaw_a2a.model.card import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentProfile,
)
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.protocol.card import card_json, etag, hybrid_card_json
from openclaw_a2a.protocol.versions import ProtocolVersion
from openclaw_a2a.settings import Account

_CACHE = (b"cache-control", b"public, max-age=60")
_VARY = (b"vary", b"A2A-Version")
BEARER_SCHEMES: dict[str, JsonObject] = {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}
BEARER_REQUIREMENTS: tuple[JsonObject, ...] = ({"schemes": {"bearer": {"list": []}}},)


def apply_profiles(account: Account, *profiles: AgentProfile | None) -> Account:
    """The account in its agent's words where it has none of its own; the first profile wins."""
    known = [profile for profile in profiles if profile is not None]
    words: dict[str, object] = {
        "label": next((one.name for one in known if one.name), account.label),
        "description": next((one.description for one in known if one.description), None)
        or account.description,
        "skills": next((one.skills for one in known if one.skills), account.skills),
    }
    open_to_others = {key: word for key, word in words.items() if key not in account.said}
    return msgspec.structs.replace(account, **open_to_others)


def build_card(
    account: Account,
    *,
    version: str,
    needs_token: bool,
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
        security_schemes=BEARER_SCHEMES if needs_token else None,
        security_requirements=BEARER_REQUIREMENTS if needs_token else (),
    )


def account_url(account: Account, path: str) -> str:
    """The public address of one of an account's paths."""
    return (account.public_base_url or "").rstrip("/") + path


class LiveCard:
    """An account's card, ready to be served, that follows what its agent says of itself.

    `build` makes the card for a profile; it is asked again only when the profile is another one.
    """

    def __init__(
        self,
        account: Account,
        build: Callable[[AgentProfile | None], AgentCard],
        profile: Callable[[], AgentProfile | None],
    ) -> None:
        self._account = account
        self._build = build
        self._profile = profile
        self._shown: AgentProfile | None = None
        self._card: AgentCard | None = None
        self._pages: dict[bool, tuple[bytes, bytes]] = {}

    def current(self) -> AgentCard:
        """The card as it is now."""
        profile = self._profile()
        if self._card is None or profile != self._shown:
            self._shown, self._card = profile, self._build(profile)
            self._pages = self._encode(self._card)
        return self._card

    def clean(self) -> bytes:
        """The card as it is now in the shape of 1.0."""
        self.current()
        return self._pages[True][0]

    async def serve(self, exchange: HttpRequest) -> None:
        """Answer with the clean card when 1.0 is asked for, else with the hybrid one."""
        self.current()
        asked = (exchange.protocol_version() or "").strip()
        body, tag = self._pages[asked == ProtocolVersion.V1.value]
        headers = [(b"etag", tag), _CACHE, _VARY]
        if _knows(exchange.header(b"if-none-match"), tag.decode()):
            await exchange.start_response(304, headers)
            await exchange.send({"type": "http.response.body", "body": b""})
        else:
            await exchange.respond(200, body, headers=headers)

    def _encode(self, card: AgentCard) -> dict[bool, tuple[bytes, bytes]]:
        account = self._account
        url = account_url(account, account.json_rpc_path)
        clean = card_json(card)
        hybrid = hybrid_card_json(card, url=url, protocol_version=account.protocol_version)
        return {True: (clean, etag(clean).encode()), False: (hybrid, etag(hybrid).encode())}


def _knows(if_none_match: str | None, tag: str) -> bool:
    if not if_none_match:
        return False
    known = [candidate.strip().removeprefix("W/") for candidate in if_none_match.split(",")]
    return tag in known or "*" in known
