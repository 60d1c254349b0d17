"""What one rule of the gateway is: a stable id, a sentence, where it comes from."""

from dataclasses import dataclass
from enum import Enum


class Deferral(Enum):
    """The only parts of the contracts that this version leaves out on purpose."""

    GRPC = "gRPC is an extra binding of a later version"
    EXTENDED_CARD = "there is one card for everybody; an extended one comes later"
    SIGNATURES = "cards are not signed yet"


@dataclass(frozen=True)
class Requirement:
    """One rule. Tests claim it by its id; `deferred` says why nobody has to yet."""

    id: str
    text: str
    source: str
    deferred: Deferral | None = None


def rules(source: str, **areas: dict[str, str]) -> tuple[Requirement, ...]:
    """The rules of one source.

    Keyword names are areas (`inbound_card` becomes `inbound.card`, a double underscore a dash),
    their members are the last label of the id and the sentence.
    """
    return tuple(
        Requirement(id=f"{_dotted(area)}.{label}", text=text, source=source)
        for area, members in areas.items()
        for label, text in members.items()
    )


def _dotted(area: str) -> str:
    return area.replace("__", "-").replace("_", ".")


def deferred(reason: Deferral, source: str, **areas: dict[str, str]) -> tuple[Requirement, ...]:
    """Rules of one source that this version does not offer."""
    return tuple(
        Requirement(id=rule.id, text=rule.text, source=rule.source, deferred=reason)
        for rule in rules(source, **areas)
    )
