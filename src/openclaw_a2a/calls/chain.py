"""The chain of agents that a call came through, so that calls cannot go round in circles."""

from collections.abc import Mapping, Sequence
from typing import cast

from openclaw_a2a.model.chain import CHAIN_HOSTS_KEY as HOSTS_KEY
from openclaw_a2a.model.chain import CHAIN_KEY as METADATA_KEY
from openclaw_a2a.model.ids import AgentId, Json, JsonObject

_MOST_KEPT = 64
_MOST_NAME = 200
_AT = "@"


def read_chain(metadata: Mapping[str, Json] | None, own_host: str) -> tuple[AgentId, ...]:
    """The chain that came with a message; what is no chain is an empty one.

    Agents of other gateways are `<id>@<gateway>`. Where nothing is said about gateways, an id
    counts as one of ours.
    """
    given = metadata or {}
    names = _texts(given.get(METADATA_KEY))
    hosts = _texts(given.get(HOSTS_KEY))
    if len(hosts) != len(names):
        return tuple(AgentId(name) for name in names)
    return tuple(_qualified(*pair, own_host) for pair in zip(names, hosts, strict=True))


def chain_metadata(chain: Sequence[AgentId], own_host: str) -> JsonObject:
    """The chain as it travels with a message to another gateway."""
    if not chain:
        return {}
    parts = [one.partition(_AT) for one in chain]
    return {
        METADATA_KEY: [name for name, _, _ in parts],
        HOSTS_KEY: [host or own_host for _, _, host in parts],
    }


def why_not(chain: Sequence[AgentId], target: AgentId, *, max_depth: int) -> str | None:
    """Why the chain must not go on to the target; None when it may."""
    path = " -> ".join([*chain, target])
    if target in chain:
        return f"loop: {target} is in the chain of calls already ({path})"
    if len(chain) > max_depth:
        return f"depth: the chain of calls is longer than {max_depth} ({path})"
    return None


def _qualified(name: str, host: str, own_host: str) -> AgentId:
    plain = name.replace(_AT, "-")
    return AgentId(plain if host == own_host else f"{plain}{_AT}{host}")


def _texts(value: Json) -> list[str]:
    items = cast("list[Json]", value) if isinstance(value, list) else []
    texts = [item for item in items if isinstance(item, str) and 0 < len(item) <= _MOST_NAME]
    return texts[:_MOST_KEPT]
