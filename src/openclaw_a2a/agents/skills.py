"""The skills in an adapter's metadata, as a card has them."""

from openclaw_a2a.agents.adapter import AdapterMetadata
from openclaw_a2a.model.card import AgentSkill
from openclaw_a2a.model.ids import JsonObject


def adapter_skills(metadata: AdapterMetadata) -> tuple[AgentSkill, ...]:
    """The skills; those without an id are called `skill-<i>`."""
    return tuple(_skill(skill, f"skill-{i}") for i, skill in enumerate(metadata.skills))


def _skill(skill: JsonObject, default_id: str) -> AgentSkill:
    skill_id = str(skill.get("id") or default_id)
    name = str(skill.get("name") or skill_id)
    return AgentSkill(
        id=skill_id,
        name=name,
        description=str(skill.get("description") or name),
        tags=tuple(skill.get("tags") or ()),
        examples=tuple(skill.get("examples") or ()),
        input_modes=tuple(skill.get("input_modes") or ()),
        output_modes=tuple(skill.get("output_modes") or ()),
    )
