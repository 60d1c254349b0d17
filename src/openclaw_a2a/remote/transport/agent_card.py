"""The agent card of a peer: normalised, and in the forms that results show."""

import copy
from collections.abc import Callable, Iterable
from enum import Enum

import msgspec

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import is_list, is_object
from openclaw_a2a.remote.config import Transport, clean_text, clean_texts

_FLAGS = {
    "streaming": "streaming",
    "pushNotifications": "push_notifications",
    "stateTransitionHistory": "state_transition_history",
}


class Generation(Enum):
    """The protocol versions that we speak, as the version header names them."""

    V0_3 = "0.3"
    V1_0 = "1.0"


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
    def generation(self) -> Generation | None:
        """The protocol version there; None when we do not speak it."""
        if self.version.startswith("0."):
            return Generation.V0_3
        is_current = self.version in ("", "1") or self.version.startswith("1.")
        return Generation.V1_0 if is_current else None


class PeerSkill(msgspec.Struct, frozen=True):
    """A skill of a peer."""

    id: str
    name: str
    description: str
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()


class PeerCard(msgspec.Struct, frozen=True):
    """A card without blank strings, duplicates and values of the wrong type."""

    name: str | None = None
    description: str | None = None
    interfaces: tuple[Interface, ...] = ()
    """In the order of the card, which is its order of preference."""
    capabilities: dict[str, Json] = msgspec.field(default_factory=dict)
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()
    skills: tuple[PeerSkill, ...] = ()

    @property
    def streaming_supported(self) -> bool | None:
        """Whether the peer streams; None when its card does not say."""
        return self.capabilities.get("streaming")

    @property
    def extensions(self) -> frozenset[str]:
        """The URIs of the extensions that the peer declares."""
        declared: list[JsonObject] = self.capabilities.get("extensions", [])
        return frozenset(uri for one in declared if (uri := clean_text(one.get("uri"))) is not None)

    def summary(self) -> JsonObject:
        """The `peer_card` of a catalog entry."""
        shown: JsonObject = {
            "additional_interfaces": _addresses(self.interfaces[1:]),
            "capabilities": copy.deepcopy(self.capabilities),
            "default_input_modes": list(self.input_modes),
            "default_output_modes": list(self.output_modes),
            "skills": [_skill(skill, str) for skill in self.skills],
        }
        preferred = self.interfaces[0].transport if self.interfaces else None
        return {"preferred_transport": preferred, **shown} if preferred else shown

    def raw(self) -> JsonObject:
        """The `card` of a raw catalog entry."""
        names = {short: long for long, short in _FLAGS.items()}
        shown: JsonObject = {
            "displayName": self.name,
            "description": self.description,
            "preferredTransport": self.interfaces[0].transport if self.interfaces else None,
            "additionalInterfaces": _addresses(self.interfaces[1:]),
            "capabilities": {
                names.get(key, key): copy.deepcopy(value)
                for key, value in self.capabilities.items()
            },
            "defaultInputModes": list(self.input_modes),
            "defaultOutputModes": list(self.output_modes),
            "skills": [_skill(skill, _camel) for skill in self.skills],
        }
        return {key: value for key, value in shown.items() if value is not None}


EMPTY_CARD = PeerCard()
"""Nothing is known of the peer."""


def parse_peer_card(value: JsonObject) -> PeerCard:
    """The card in a JSON object of either protocol version."""
    capabilities = value.get("capabilities")
    return PeerCard(
        name=clean_text(value.get("name")),
        description=clean_text(value.get("description")),
        interfaces=_interfaces(value),
        capabilities=_capabilities(capabilities if is_object(capabilities) else {}),
        input_modes=clean_texts(value.get("defaultInputModes")),
        output_modes=clean_texts(value.get("defaultOutputModes")),
        skills=tuple(_skills(value.get("skills"))),
    )


def _interfaces(card: JsonObject) -> tuple[Interface, ...]:
    """1.0 has one list; 0.3 has the preferred one at the top level and a list of others."""
    found = [
        _interface(one, "protocolBinding") for one in object_list(card.get("supportedInterfaces"))
    ]
    if not any(found):
        version = clean_text(card.get("protocolVersion")) or "0.3.0"
        top: JsonObject = {
            "url": card.get("url"),
            "transport": card.get("preferredTransport") or Transport.JSONRPC.value,
        }
        old = [top, *object_list(card.get("additionalInterfaces"))]
        found = [_interface({**one, "protocolVersion": version}, "transport") for one in old]
    return tuple(dict.fromkeys(one for one in found if one is not None))


def _interface(value: JsonObject, transport_key: str) -> Interface | None:
    transport, url = clean_text(value.get(transport_key)), clean_text(value.get("url"))
    if transport is None or url is None:
        return None
    version, tenant = clean_text(value.get("protocolVersion")), clean_text(value.get("tenant"))
    return Interface(transport, url, version or "", tenant or "")


def _capabilities(value: JsonObject) -> JsonObject:
    flags = {short: value.get(long) for long, short in _FLAGS.items()}
    known: JsonObject = {key: flag for key, flag in flags.items() if isinstance(flag, bool)}
    extensions = [copy.deepcopy(one) for one in object_list(value.get("extensions")) if one]
    return {**known, "extensions": extensions} if extensions else known


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


def _skill(skill: PeerSkill, rename: Callable[[str], str]) -> JsonObject:
    shown: JsonObject = {
        "id": skill.id,
        "name": skill.name,
        "description": skill.description,
        "tags": list(skill.tags),
        "examples": list(skill.examples),
    }
    if skill.input_modes:
        shown[rename("input_modes")] = list(skill.input_modes)
    if skill.output_modes:
        shown[rename("output_modes")] = list(skill.output_modes)
    return shown


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _addresses(interfaces: Iterable[Interface]) -> list[JsonObject]:
    pairs = dict.fromkeys((one.transport, one.url) for one in interfaces)
    return [{"transport": transport, "url": url} for transport, url in pairs]


def object_list(value: Json) -> list[JsonObject]:
    """The objects of a list; empty for anything else."""
    return [one for one in value if is_object(one)] if is_list(value) else []
