"""Checks whether a call may be made: the agents that may call each other, skills, inputs."""

from collections.abc import Collection, Mapping

import jsonschema_rs
import msgspec

from openclaw_a2a.calls.loop_guard import CallOrigin, LoopLimits, loop_violation
from openclaw_a2a.model.call import Caller
from openclaw_a2a.model.ids import TARGET_PREFIX, AgentId, JsonObject
from openclaw_a2a.model.skill import BUILT_IN_SKILLS, Skill, matches_any
from openclaw_a2a.model.validation import schema_errors

_MAX_REASON_CHARS = 300  # of a reason, which quotes the value that does not fit


class CallPolicy(msgspec.Struct, frozen=True):
    """Which agents take part in calls; `allowed_targets` limits single callers further."""

    enabled: bool = False
    allow: tuple[str, ...] = ()
    allowed_targets: Mapping[AgentId, tuple[str, ...]] = {}


class RoutingRules(msgspec.Struct, frozen=True):
    """How outcomes are delivered. `is_enabled` False: they have to be polled."""

    is_enabled: bool = True
    default_ms: int = 60_000
    max_ms: int = 300_000
    dual_delivery: bool = False


class CallRules(msgspec.Struct, frozen=True):
    """The settings of calls; `pending` calls may have no outcome yet, in all and of one agent."""

    policy: CallPolicy = CallPolicy()
    limits: LoopLimits = LoopLimits()
    routing: RoutingRules = RoutingRules()
    pending: int = 1000
    pending_per_agent: int = 250


class Refusal(msgspec.Struct, frozen=True):
    """Why a call may not be made.

    `audit_reason` is what the audit log may hold of it when `reason` quotes the input.
    """

    status: str
    reason: str
    audit_reason: str = ""


CALLS_OFF = Refusal("forbidden", "calls between agents are off (tools.agentToAgent.enabled)")
"""The refusal of every call, batch, debate and poll while the settings switch calls off."""


class AgentDirectory:
    """The agents that can be called, remote targets among them, and the skills they declare."""

    def __init__(
        self, agents: Collection[AgentId], skills: Mapping[AgentId, tuple[Skill, ...]]
    ) -> None:
        self._names = set(agents)
        self._skills = skills

    def add(self, agent_id: AgentId) -> None:
        """Add an agent that declares no skills."""
        self._names.add(agent_id)

    def skills(self, agent_id: AgentId) -> tuple[Skill, ...] | None:
        """The declared skills of an agent; None when there is no such agent."""
        return self._skills.get(agent_id, ()) if agent_id in self._names else None

    def find_skill(self, agent_id: AgentId, name: str) -> Skill | None:
        """A declared skill of an agent."""
        return next((skill for skill in self.skills(agent_id) or () if skill.name == name), None)

    def names(self) -> list[AgentId]:
        """The ids of all agents."""
        return sorted(self._names)


class CallChecker(msgspec.Struct, frozen=True):
    """Checks calls in the order of the contract: policy, agent, skill, input, loops."""

    rules: CallRules
    directory: AgentDirectory

    def check(
        self,
        caller: Caller,
        origin: CallOrigin,
        callee: AgentId,
        skill: str,
        given: JsonObject | None,
    ) -> Refusal | None:
        """Why a call may not be made; None when it may. Without an input that is not checked."""
        policy = self.rules.policy
        if caller.is_operator and policy.allow:
            # The operator's own calls need an entry for the callee only.
            allow = (*policy.allow, caller.agent_id)
            policy = msgspec.structs.replace(policy, allow=allow)
        refusal = check_policy(policy, caller.agent_id, callee)
        if refusal is not None:
            return refusal
        skills = self.directory.skills(callee)
        if skills is None:
            return Refusal("error", self._unknown_agent(policy, caller, callee))
        refusal = None if skill in BUILT_IN_SKILLS else _check_skill(callee, skills, skill, given)
        if refusal is not None:
            return refusal
        reason = loop_violation(origin, callee, self.rules.limits)
        return None if reason is None else Refusal("error", reason)

    def _unknown_agent(self, policy: CallPolicy, caller: Caller, callee: AgentId) -> str:
        if callee.startswith(TARGET_PREFIX):
            return f"there is no remote target {callee.removeprefix(TARGET_PREFIX)!r}"
        names = self.directory.names()
        allowed = [one for one in names if not check_policy(policy, caller.agent_id, one)]
        known = ", ".join(allowed) or "none"
        return f"there is no agent {callee}; agents that can be called: {known}"


def _check_skill(
    callee: AgentId, declared: tuple[Skill, ...], name: str, given: JsonObject | None
) -> Refusal | None:
    """An agent that declares no skills accepts any."""
    if not declared:
        return None
    skill = next((one for one in declared if one.name == name), None)
    if skill is None:
        known = [*(one.name for one in declared), *BUILT_IN_SKILLS]
        return Refusal("error", f"{callee} has no skill {name}; it has {', '.join(known)}")
    problems = [] if given is None else input_problems(skill, given)
    if not problems:
        return None
    reason = f"the input does not fit {name}"
    return Refusal("error", f"{reason}: {'; '.join(problems)}", reason)


def check_policy(policy: CallPolicy, caller: AgentId, target: AgentId) -> Refusal | None:
    """Why this caller may not call this target; None when it may."""
    if not policy.enabled:
        return CALLS_OFF
    if caller == target:
        return Refusal("error", f"self-call: agent {caller} cannot call itself")
    if not policy.allow:
        return Refusal("forbidden", "no agent may take part in calls (tools.agentToAgent.allow)")
    for agent_id, role in ((caller, "call others"), (target, "be called")):
        if not matches_any(policy.allow, agent_id):
            reason = f"agent {agent_id} may not {role} (tools.agentToAgent.allow)"
            return Refusal("forbidden", reason)
    allowed = policy.allowed_targets.get(caller)
    if allowed is not None and not matches_any(allowed, target):
        setting = f"agents.{caller}.tools.agentToAgent.allow"
        return Refusal("forbidden", f"agent {caller} may not call {target} ({setting})")
    return None


def input_problems(skill: Skill, given: JsonObject) -> list[str]:
    """The reasons why an input does not fit the declared schema of a skill."""
    errors = schema_errors(jsonschema_rs.Draft202012Validator(skill.input_schema()), given)
    found = [
        (".".join(map(str, error.instance_path)), error.message[:_MAX_REASON_CHARS])
        for error in errors
    ]
    return [f"{path}: {message}" if path else message for path, message in found]
