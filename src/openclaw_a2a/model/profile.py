"""How an agent describes itself, for its card."""

from openclaw_a2a.model.card import AgentSkill
from openclaw_a2a.model.message import Record


class AgentProfile(Record, frozen=True):
    """What an agent says about itself; empty where it says nothing."""

    name: str = ""
    description: str = ""
    skills: tuple[AgentSkill, ...] = ()
