"""Stands in for agents that the owner of a step may not ask: the step fails and says why."""

from collections.abc import AsyncGenerator

from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import AgentId
from openclaw_a2a.model.reply import AgentEvent, Note
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Recovery

REFUSED = AgentId("gateway:refused")
"""Under what name it is known."""

_WHY = "This step names an agent that its owner may not ask. The setting opt.agents says which."


class RefusedAgent:
    """Refuses."""

    recovery: Recovery = Recovery.REPEAT

    async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        """Fail. Raises: AgentFailed."""
        yield Note("not begun")
        raise AgentFailed(_WHY)

    async def close(self) -> None:
        """Nothing is held."""
