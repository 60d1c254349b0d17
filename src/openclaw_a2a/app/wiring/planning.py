"""Wires planning to the store, the outbox and the agents of a gateway."""

from collections.abc import Collection
from functools import partial

from openclaw_a2a.agents import AgentRegistry
from openclaw_a2a.app.wiring.push import PushWiring
from openclaw_a2a.auth.principal import Scope as CredentialScope
from openclaw_a2a.auth.tokens import TOOL_OWNER, TokenStore
from openclaw_a2a.engine.engine import Engine, new_id
from openclaw_a2a.engine.maintenance import RetentionClock
from openclaw_a2a.engine.outbox.delivery_tracking import DeliveryChannel, DeliveryPolicy
from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.model.errors import CorruptRecord
from openclaw_a2a.model.ids import LOCAL_PEER, AgentId, PeerName
from openclaw_a2a.model.session_keys import OPERATOR_NAME
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.planning.admin_service import AdminService
from openclaw_a2a.planning.executor import DENIED_AGENT, DeniedAgent, StepExecutor
from openclaw_a2a.planning.model import PlanLimits
from openclaw_a2a.planning.repository import LOG_KIND, ObjectiveRepository
from openclaw_a2a.planning.service import PlanningService
from openclaw_a2a.planning.shared_repository import SharedObjectiveRepository
from openclaw_a2a.planning.state import CommandContext, ObjectiveState
from openclaw_a2a.planning.steps import ExecutionPolicy
from openclaw_a2a.planning.task_sync import DELIVERY_KIND
from openclaw_a2a.planning.views import ObjectiveView
from openclaw_a2a.server.cards import objectives_extension
from openclaw_a2a.settings import Limits, Settings
from openclaw_a2a.tools.planning_tools import AGENT_OWNER

_MAX_SUBSCRIPTIONS_PER_TASK = 1000
# A state that is not copied to its step stops the plan: it is retried for as long as it takes.
_DELIVERY_POLICY = DeliveryPolicy(
    max_attempts=10_000, backoff=Backoff(first_s=0.5, max_s=60.0), max_parallel=64
)


def _is_peer(configured: Collection[PeerName], tokens: TokenStore, name: PeerName) -> bool:
    """True unless a name is known as one of this gateway's own users.

    Those are the operator, agents of this gateway, and programs with a token for tools only.
    Callers that an issuer vouches for are listed nowhere: an unknown name is a peer's.
    """
    if name in configured:
        return True
    if name in (LOCAL_PEER, OPERATOR_NAME) or name.startswith((AGENT_OWNER, TOOL_OWNER)):
        return False
    try:
        known = [one for one in tokens.list_tokens() if one.name == name]
    except (CorruptRecord, OSError):  # the damage is reported where callers are identified
        return True
    return not known or any(CredentialScope.A2A in one.principal.scopes for one in known)


def _credential_agents(settings: Settings, name: PeerName) -> frozenset[str] | None:
    """The agents for which the credentials of a caller are valid, all together; None: all."""
    limits: list[Collection[str] | None] = [None] if name in settings.peers else []
    limits += [one.agents for one in settings.oidc if name.startswith(f"oidc:{one.name}:")]
    try:
        found = [one.principal for one in TokenStore(settings.data).list_tokens()]
    except (CorruptRecord, OSError):  # the damage is reported where callers are identified
        found = []
    limits += [
        one.agents for one in found if one.name == name and CredentialScope.A2A in one.scopes
    ]
    known = [one for one in limits if one is not None]
    # Without credentials there is no limit to know: they were revoked, which ends no objective.
    return frozenset[str]().union(*known) if known and len(known) == len(limits) else None


def _make_repository(engine: Engine, limits: PlanLimits) -> ObjectiveRepository:
    store, replication = engine.store, engine.replication

    def new_name() -> str:
        return new_id().replace("-", "")[:16]

    def command_context() -> CommandContext:
        return CommandContext(engine.clock.now(), new_name, limits)

    parts = (store.logs, store.records, engine.supervisor, command_context)
    if replication is None or store.replicas is None:
        return ObjectiveRepository(*parts)
    shared = SharedObjectiveRepository(*parts, store.replicas)
    replication.log_listeners[LOG_KIND] = shared.on_changed
    replication.on_taken_over.append(shared.on_taken_over)
    replication.on_dropped.append(shared.on_lost)
    store.replicas.takes_logs = True
    return shared


class PlanningWiring:
    """The objectives of one gateway, in the store of one engine."""

    def __init__(
        self, settings: Settings, engine: Engine, *, push: PushWiring, agents: AgentRegistry
    ) -> None:
        opt = settings.opt
        agents.add_internal(DENIED_AGENT, DeniedAgent())
        self.engine = engine
        self._retention = settings.retention
        agent_ids = {one.id: one.default_agent_id for one in settings.accounts}
        limits = PlanLimits(
            opt.max_plans_per_objective,
            opt.max_tasks_per_plan,
            opt.max_objectives,
            Limits.share(opt.max_objectives_per_peer, opt.max_objectives),
        )
        self._repository = _make_repository(engine, limits)
        policy = ExecutionPolicy(
            parallel=opt.parallel,
            retries=opt.retries,
            backoff_s=opt.backoff_seconds,
            planner=AgentId(opt.planner) if opt.planner else None,
            is_peer=partial(_is_peer, settings.peers.keys(), TokenStore(settings.data)),
            peers_may_ask=opt.agents,
            credential_agents=partial(_credential_agents, settings),
            account_agents={
                one.id: one.allowed_agents
                for one in settings.accounts
                if one.allowed_agents is not None
            },
        )
        self._executor = StepExecutor(
            engine,
            self._repository,
            policy,
            default_agent=lambda one: agent_ids.get(one) or next(iter(agent_ids.values())),
        )
        channel = DeliveryChannel(self._executor.task_sync, _DELIVERY_POLICY, is_cacheable=True)
        outbox = push.add_channel(engine, DELIVERY_KIND, channel)
        view = ObjectiveView(policy)
        operator = Scope(PeerName(OPERATOR_NAME), settings.default_account.id)
        add_delivery = partial(outbox.add_delivery, max_per_task=_MAX_SUBSCRIPTIONS_PER_TASK)
        parts = (engine, self._repository, self._executor, view)
        self.admin = AdminService(*parts, owner=operator, add_delivery=add_delivery)
        self.service = PlanningService(*parts, add_delivery=add_delivery)
        self.extensions = (
            objectives_extension(
                max_plans=opt.max_plans_per_objective,
                max_tasks=opt.max_tasks_per_plan,
                is_persistent=engine.store.is_durable,
            ),
        )

    async def open(self) -> None:
        """Load the open objectives. Before the recovery of runs, which reports to them."""
        await self._repository.load()

    def start(self) -> None:
        """Start executing and purging."""
        supervisor = self.engine.supervisor
        self._executor.start()
        supervisor.spawn("planning.subscribe", self.admin.subscribe_missing())
        if isinstance(self._repository, SharedObjectiveRepository):
            self._repository.when_adopted(self._follow_tasks)
            # Its first look finds what this gateway has taken over.
            supervisor.run_loop("planning.replicas", self._repository.follow())
        # Not at the start: the archived objectives need not be known before the first request.
        clock = RetentionClock(self.engine.clock, self.engine.store)
        supervisor.run_every(
            "planning.retention",
            self._retention.sweep_seconds,
            partial(self._purge, clock),
            sleep=self.engine.clock.sleep,
        )

    async def _purge(self, clock: RetentionClock) -> None:
        await self.admin.purge(self._retention.objective_seconds, now=await clock.now())

    def _follow_tasks(self, state: ObjectiveState) -> None:
        self.engine.supervisor.spawn("planning.subscribe", self.admin.follow_tasks(state))

    def stop(self) -> None:
        """Start no more steps."""
        self._executor.stop()
