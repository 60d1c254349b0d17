"""Wires what decides about messages of peers: rules, a function of the operator, pairing."""

from contextlib import AsyncExitStack

from openclaw_a2a.agents.function import import_function
from openclaw_a2a.agents.registry import add_import_folder
from openclaw_a2a.app.wiring.engines import EnginesWiring
from openclaw_a2a.engine.audit_log import AuditLog
from openclaw_a2a.engine.tasks.held_tasks import HeldTasks
from openclaw_a2a.engine.tasks.submit_policy import (
    Decision,
    PairedPeers,
    PolicyCallable,
    PolicyRule,
    SubmitPolicy,
)
from openclaw_a2a.model.errors import Problem, SettingsInvalid
from openclaw_a2a.model.ids import AgentId
from openclaw_a2a.ports import SupportsApprovals
from openclaw_a2a.settings import PolicyRuleSettings, Settings


class PolicyWiring:
    """The policy of a gateway, and the tasks that wait for the operator."""

    def __init__(self, settings: Settings, decide: PolicyCallable | None) -> None:
        """`decide` replaces the function of the settings. Raises: SettingsInvalid."""
        self._settings = settings
        self._decide = decide or _import_callable(settings)
        self.paired: PairedPeers | None = None
        """The approved peers; None while pairing is off."""
        self.held: dict[AgentId, SupportsApprovals] = {}
        """The held tasks of each engine, listed like the approvals of an agent."""

    async def open(self, engines: EnginesWiring, audit: AuditLog, parts: AsyncExitStack) -> None:
        """Give the policy to all engines; call when all of them are open."""
        settings = self._settings
        if settings.pairing:
            # In the gateway's own store, for all accounts.
            engine = await engines.open(settings.store, parts)
            self.paired = PairedPeers(
                engine.store.records, engine.clock.now, is_shared=engine.replication is not None
            )
            await self.paired.load()
        rules = [_policy_rule(one) for one in settings.policy.rules]
        accounts = settings.accounts
        skills = {one.id: one.allowed_skills for one in accounts if one.allowed_skills is not None}
        is_set = rules or skills or self.paired is not None or self._decide is not None
        policy = SubmitPolicy(
            audit, rules=rules, decide=self._decide, skills=skills, paired=self.paired
        )
        for number, engine in enumerate(engines.engines.values()):
            engine.policy = policy if is_set else None
            # Also without a policy: tasks that were held before it was removed are still decided.
            name = AgentId("gateway" if not number else f"gateway-{number + 1}")
            self.held[name] = HeldTasks(engine, self.paired)


def _policy_rule(rule: PolicyRuleSettings) -> PolicyRule:
    start, _, end = rule.hours.partition("-")
    return PolicyRule(
        Decision(rule.decision),
        callers=rule.callers,
        accounts=rule.accounts,
        agents=rule.agents,
        skills=rule.skills,
        min_bytes=rule.min_bytes,
        hours=(int(start), int(end)) if end else None,
        days=rule.days,
        reason=rule.reason,
    )


def _import_callable(settings: Settings) -> PolicyCallable | None:
    """The function that the settings name. Raises: SettingsInvalid."""
    place = settings.policy.callable
    if not place:
        return None
    add_import_folder(settings.folder)
    try:
        return import_function(place)
    except Exception as error:  # one broad catch: the import runs code of the operator
        path = "channels.a2a.security.policy.callable"
        problem = Problem(path, f"{place} cannot be imported: {error}", "callable")
        raise SettingsInvalid(f"{path}: {problem.message}", problems=(problem,)) from error
