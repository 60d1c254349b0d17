"""Who may call whom."""

from collections.abc import Mapping

import msgspec

from openclaw_a2a.model.glob import matches_any
from openclaw_a2a.model.ids import AgentId


class CallPolicy(msgspec.Struct, frozen=True):
    """Which agents take part in calls; `reaches` limits single callers further."""

    enabled: bool = False
    allow: tuple[str, ...] = ()
    reaches: Mapping[AgentId, tuple[str, ...]] = {}


class Refusal(msgspec.Struct, frozen=True):
    """Why a call may not be made: its status for the caller, and a sentence.

    `noted` is what may be written down of it, where the sentence tells of the input.
    """

    status: str
    reason: str
    noted: str = ""


def refuse(policy: CallPolicy, caller: AgentId, target: AgentId) -> Refusal | None:
    """Why this caller may not call this target; None when it may."""
    if caller == target:
        return Refusal("error", f"self-call: agent {caller} cannot call itself")
    if not policy.enabled:
        return Refusal("forbidden", "calls between agents are off (tools.agentToAgent.enabled)")
    if not policy.allow:
        return Refusal("forbidden", "no agent may take part in calls (tools.agentToAgent.allow)")
    for agent_id, role in ((caller, "call others"), (target, "be called")):
        if not matches_any(policy.allow, agent_id):
            reason = f"agent {agent_id} may not {role} (tools.agentToAgent.allow)"
            return Refusal("forbidden", reason)
    reach = policy.reaches.get(caller)
    if reach is not None and not matches_any(reach, target):
        where = f"agents.{caller}.tools.agentToAgent.allow"
        return Refusal("forbidden", f"agent {caller} may not call {target} ({where})")
    return None
