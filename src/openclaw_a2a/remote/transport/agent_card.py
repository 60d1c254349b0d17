"""The agent card of a peer: normalised, in the forms that results show, and its interfaces."""

import copy
import importlib.util
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

import msgspec

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import as_list, camel_case, drop_none, is_object, object_at
from openclaw_a2a.protocol.versions import ProtocolVersion
from openclaw_a2a.remote.config import Transport, clean_text, clean_texts
from openclaw_a2a.remote.result import ErrorCode, RemoteFailure
from openclaw_a2a.remote.targets import Target

_FLAGS = ("streaming", "push_notifications", "state_transition_history")


class Interface(msgspec.Struct, frozen=True):
    """An address of a peer, with its transport and protocol version."""

    transport: str
    url: str
    version: str = ""
    tenant: str = ""

    def speaks(self, transport: Transport) -> bool:
        """True for this transport; cards differ in upper and lower case."""
        return self.transport.upper() == transport.value

    @property
    def protocol(self) -> ProtocolVersion | None:
        """The protocol version there; None when it is not supported."""
        if self.version.startswith("0."):
            return ProtocolVersion.V03
        is_current = self.version in ("", "1") or self.version.startswith("1.")
        return ProtocolVersion.V1 if is_current else None

    @property
    def has_generations(self) -> bool:
        """True when tasks there count their changes, as in 1.1 (a draft); not over gRPC."""
        return self.version.startswith("1.1") and not self.speaks(Transport.GRPC)


class PeerSkill(msgspec.Struct, frozen=True, omit_defaults=True):
    """A skill of a peer."""

    id: str
    name: str
    description: str
    tags: tuple[str, ...]
    examples: tuple[str, ...]
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()


class TokenEndpoint(msgspec.Struct, frozen=True):
    """Where access tokens for a peer are issued, and the scopes that its card requires."""

    url: str
    scopes: tuple[str, ...] = ()


class PeerCard(msgspec.Struct, frozen=True):
    """A card without blank strings, duplicates and values of the wrong type."""

    name: str | None = None
    description: str | None = None
    interfaces: tuple[Interface, ...] = ()
    """In the order of the card, which is its order of preference."""
    other_interfaces: tuple[Interface, ...] = ()
    """The interfaces besides the preferred one, which cards of 0.3 may repeat here."""
    capabilities: dict[str, Json] = msgspec.field(default_factory=dict)
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()
    skills: tuple[PeerSkill, ...] = ()

    streaming_supported: bool | None = None
    """Whether the peer streams; None when its card does not say."""
    extensions: frozenset[str] = frozenset()
    """The URIs of the extensions that the peer declares."""
    token_endpoints: tuple[TokenEndpoint, ...] = ()
    """Those of its OAuth 2 schemes for programs, as they are written."""

    def summary(self) -> JsonObject:
        """The `peer_card` of a catalog entry."""
        others = dict.fromkeys((one.transport, one.url) for one in self.other_interfaces)
        shown: JsonObject = {
            "additional_interfaces": [{"transport": kind, "url": url} for kind, url in others],
            "capabilities": copy.deepcopy(self.capabilities),
            "default_input_modes": list(self.input_modes),
            "default_output_modes": list(self.output_modes),
            "skills": [msgspec.json.decode(msgspec.json.encode(one)) for one in self.skills],
        }
        if self.interfaces:
            shown["preferred_transport"] = self.interfaces[0].transport
        return shown

    def raw(self) -> JsonObject:
        """The `card` of a raw catalog entry."""
        shown = _to_camel(self.summary())
        shown["capabilities"] = _to_camel(shown["capabilities"])
        shown["skills"] = [_to_camel(skill) for skill in shown["skills"]]
        return drop_none({"displayName": self.name, "description": self.description, **shown})


EMPTY_CARD = PeerCard()
"""Nothing is known of the peer."""


def _to_camel(members: JsonObject) -> JsonObject:
    return {camel_case(key): value for key, value in members.items()}


def parse_peer_card(value: JsonObject) -> PeerCard:
    """The card in a JSON object of either protocol version."""
    declared = object_at(value, "capabilities")
    flags = {name: declared.get(camel_case(name)) for name in _FLAGS}
    capabilities: JsonObject = {key: flag for key, flag in flags.items() if isinstance(flag, bool)}
    extensions = [one for one in object_list(declared.get("extensions")) if one]
    if extensions:
        capabilities["extensions"] = copy.deepcopy(extensions)
    interfaces, others = _interfaces(value)
    return PeerCard(
        name=clean_text(value.get("name")),
        description=clean_text(value.get("description")),
        interfaces=interfaces,
        other_interfaces=others,
        capabilities=capabilities,
        input_modes=clean_texts(value.get("defaultInputModes")),
        output_modes=clean_texts(value.get("defaultOutputModes")),
        skills=tuple(_skills(value.get("skills"))),
        streaming_supported=capabilities.get("streaming"),
        extensions=frozenset(filter(None, (clean_text(one.get("uri")) for one in extensions))),
        token_endpoints=tuple(_token_endpoints(value)),
    )


def _token_endpoints(card: JsonObject) -> Iterable[TokenEndpoint]:
    schemes = object_at(card, "securitySchemes")
    for name in schemes:
        # 1.0 has the scheme as the only member of its object, 0.3 has its type beside it.
        scheme = object_at(schemes, name)
        is_old = "oauth2SecurityScheme" not in scheme and scheme.get("type") == "oauth2"
        inner = scheme if is_old else object_at(scheme, "oauth2SecurityScheme")
        url = clean_text(object_at(inner, "flows", "clientCredentials").get("tokenUrl"))
        if url is not None:
            yield TokenEndpoint(url, _required_scopes(card, name))


def _required_scopes(card: JsonObject, scheme: str) -> tuple[str, ...]:
    for one in object_list(card.get("securityRequirements")):
        if scheme in (schemes := object_at(one, "schemes")):
            return clean_texts(object_at(schemes, scheme).get("list"))
    for one in object_list(card.get("security")):
        if scheme in one:
            return clean_texts(one[scheme])
    return ()


def _interfaces(card: JsonObject) -> tuple[tuple[Interface, ...], tuple[Interface, ...]]:
    """All interfaces, and those besides the preferred one.

    1.0 has one list; 0.3 has the preferred one at the top level and a list of others.
    """
    entries = object_list(card.get("supportedInterfaces"))
    found = list(filter(None, (_interface(one, one.get("protocolBinding")) for one in entries)))
    others = found[1:]
    if not found:
        version = clean_text(card.get("protocolVersion")) or "0.3.0"
        transport = card.get("preferredTransport") or Transport.JSONRPC.value
        top: JsonObject = {"url": card.get("url"), "transport": transport}
        preferred, *old = (
            _interface({**one, "protocolVersion": version}, one.get("transport"))
            for one in (top, *object_list(card.get("additionalInterfaces")))
        )
        others = list(filter(None, old))
        found = [preferred, *others] if preferred else others
    return tuple(dict.fromkeys(found)), tuple(others)


def _interface(value: JsonObject, named_transport: Json) -> Interface | None:
    transport, url = clean_text(named_transport), clean_text(value.get("url"))
    if transport is None or url is None:
        return None
    version, tenant = clean_text(value.get("protocolVersion")), clean_text(value.get("tenant"))
    return Interface(transport, url, version or "", tenant or "")


def _skills(value: Json) -> Iterable[PeerSkill]:
    for one in object_list(value):
        skill_id = clean_text(one.get("id"))
        name = clean_text(one.get("name")) or skill_id
        if skill_id is None or name is None:
            continue
        yield PeerSkill(
            id=skill_id,
            name=name,
            description=clean_text(one.get("description")) or name,
            tags=clean_texts(one.get("tags")),
            examples=clean_texts(one.get("examples")),
            input_modes=clean_texts(one.get("inputModes")),
            output_modes=clean_texts(one.get("outputModes")),
        )


def object_list(value: Json) -> list[JsonObject]:
    """The objects of a list; empty for anything else."""
    return [one for one in as_list(value) if is_object(one)]


# -------------------------------------------------------------------- which interfaces are used

_HAS_GRPC = all(importlib.util.find_spec(name) is not None for name in ("grpc", "a2a"))
SUPPORTED_TRANSPORTS = (
    Transport.JSONRPC,
    Transport.HTTP_JSON,
    *((Transport.GRPC,) if _HAS_GRPC else ()),
)
"""The transports that this build supports."""


def check_supported(transports: tuple[Transport, ...]) -> None:
    """Raises RemoteFailure when this build does not support one of the transports."""
    unsupported = [one.value for one in transports if one not in SUPPORTED_TRANSPORTS]
    if unsupported:
        names = ", ".join(unsupported)
        supported = [one.value for one in SUPPORTED_TRANSPORTS]
        raise RemoteFailure(
            ErrorCode.PEER,
            f"this installation does not speak {names}{_install_hint(unsupported)}",
            {"unsupported": unsupported, "supported": supported},
        )


def _install_hint(transports: Iterable[str]) -> str:
    is_missing = not _HAS_GRPC and Transport.GRPC.value in transports
    return "; install openclaw-a2a[grpc] to have gRPC" if is_missing else ""


def select_interfaces(card: PeerCard, target: Target) -> tuple[Interface, ...]:
    """The interfaces to use: by our preference, then in the card's order. Raises: RemoteFailure.

    Interfaces on other hosts or ports are left out: the author of a card must not decide where our
    messages and credentials go, nor which servers of our network are connected to.
    """
    spoken = _order(card, target.preferred_transports)
    if not spoken:
        offered = dict.fromkeys(f"{one.transport} {one.version}".strip() for one in card.interfaces)
        raise RemoteFailure.peer(
            "NoTransport",
            "the peer offers no transport that this build speaks; it offers: "
            + (", ".join(offered) or "none"),
            "the peer must offer one of the supported transports in version 0.3 or 1.0"
            + _install_hint(one.transport.upper() for one in card.interfaces),
            available=list(dict.fromkeys(one.transport for one in card.interfaces)),
            supported=[one.value for one in SUPPORTED_TRANSPORTS],
        )
    allowed = tuple(one for one in spoken if may_lead_to(one.url, target))
    if not allowed:
        url = spoken[0].url[:200]
        host, port = _host_and_port(spoken[0].url, target)
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        raise RemoteFailure.peer(
            "CardPointsElsewhere",
            f"the card of {target.base_url} points to another address, {url}, which is not used",
            "use the address the card names as the target's baseUrl, "
            f'or add "{(place if host else url)[:200]}" to the target\'s allowedHosts '
            "(and keep https)",
            interfaceUrl=url,
        )
    if not target.base_url.startswith("https:"):
        return allowed
    # An address without a scheme uses TLS when the target's own address does.
    return tuple(
        one if "://" in one.url else msgspec.structs.replace(one, url=f"grpcs://{one.url}")
        for one in allowed
    )


def _order(card: PeerCard, preferred: tuple[Transport, ...]) -> list[Interface]:
    spoken = [
        one
        for one in card.interfaces
        if one.protocol is not None and any(map(one.speaks, SUPPORTED_TRANSPORTS))
    ]
    found: dict[tuple[str, str], Interface] = {}
    for transport in preferred:
        matching = [one for one in spoken if one.speaks(transport)]
        for one in sorted(matching, key=lambda one: one.version.startswith("0.")):
            found.setdefault((one.transport.upper(), one.url), one)
    for one in spoken:
        found.setdefault((one.transport.upper(), one.url), one)
    return list(found.values())


def may_lead_to(url: str, target: Target) -> bool:
    """True when the card of a target may name this address: its own or an allowed one."""
    base, scheme = urlsplit(target.base_url), _split(url).scheme
    host, port = _host_and_port(url, target)
    own_host, own_port = _host_and_port(target.base_url, target)
    is_own_host = host == own_host or (is_local(own_host) and is_local(host))
    # If any address is allowed, any port is, too.
    is_own_port = port == own_port or target.is_caller_named
    is_named = not {host, f"{host}:{port}", f"[{host}]:{port}"}.isdisjoint(target.allowed_hosts)
    is_as_secure = base.scheme != "https" or scheme in ("https", "grpcs", "")
    return bool(host) and ((is_own_host and is_own_port) or is_named) and is_as_secure


def is_local(host: str) -> bool:
    """True for loopback addresses and the names of this machine."""
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost"
    return address.is_loopback or address.is_unspecified


_DEFAULT_PORTS = {"http": 80, "grpc": 80, "https": 443, "grpcs": 443}
_NOWHERE = urlsplit("")


def _split(url: str) -> SplitResult:
    """The parts of an address, which may have no scheme; all empty when it is not valid."""
    try:
        parts = urlsplit(url if "://" in url else f"//{url}")
        _ = parts.port  # raises when it is not a number
    except ValueError:
        return _NOWHERE
    return parts


def _host_and_port(url: str, target: Target) -> tuple[str, int]:
    """Where an address of the target is; the host is empty when it is not valid."""
    parts = _split(url)
    scheme = parts.scheme or urlsplit(target.base_url).scheme
    return (parts.hostname or "").lower(), parts.port or _DEFAULT_PORTS.get(scheme, 0)
