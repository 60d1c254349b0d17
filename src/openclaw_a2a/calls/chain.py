"""The chain of agents that a call came through, so that calls cannot go round in circles."""

from collections.abc import Sequence
from typing import cast

from openclaw_a2a.model.ids import AgentId, Json

METADATA_KEY = "openclaw/v1/chain"
"""Where the chain travels in the metadata of A2A messages."""

_MOST_KEPT = 64


def read_chain(value: Json) -> tuple[AgentId, ...]:
    """A chain that came with a message; what is no chain is an empty one."""
    items = cast("list[Json]", value) if isinstance(value, list) else []
    names = [item for item in items if isinstance(item, str) and 0 < len(item) <= 200]
    return tuple(AgentId(name) for name in names[:_MOST_KEPT])


def why_not(chain: Sequence[AgentId], target: AgentId, *, max_depth: int) -> str | None:
    """Why the chain must not go on to the target; None when it may."""
    path = " -> ".join([*chain, target])
    if target in chain:
        return f"loop: {target} is in the chain of calls already ({path})"
    if len(chain) > max_depth:
        return f"depth: the chain of calls is longer than {max_depth} ({path})"
    return None
