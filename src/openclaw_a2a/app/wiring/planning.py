"""Joins objectives and plans with the gateway: its store, its outbox and its agents."""

from openclaw_a2a.agents import AgentRegistry
from openclaw_a2a.app.wiring.push import PushWiring
from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.id_generator import new_id
from openclaw_a2a.engine.outbox.delivery_channel import DeliveryChannel, DeliveryPolicy
from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.model.ids import AccountId, AgentId
from openclaw_a2a.planning.admin_service import AdminService
from openclaw_a2a.planning.executor import DENIED_AGENT, DeniedAgent, StepExecutor
from openclaw_a2a.planning.model import PlanLimits
from openclaw_a2a.planning.repository import ObjectiveRepository
from openclaw_a2a.planning.service import PlanningService
from openclaw_a2a.planning.step_message import ExecutionPolicy
from openclaw_a2a.planning.task_sync import DELIVERY_KIND
from openclaw_a2a.planning.views import ObjectiveView
from openclaw_a2a.server.objectives_extension import objectives_extension
from openclaw_a2a.settings import Settings

_MOST_FOLLOWERS = 1000
RULES = DeliveryPolicy(
    max_attempts=10_000, backoff=Backoff(first_s=0.5, max_s=60.0), max_parallel=64
)


class PlanningWiring:
    """The objectives of one gateway."""

    def __init__(
        self, settings: Settings, engine: Engine, *, push: PushWiring, agents: AgentRegistry
    ) -> None:
        opt = settings.opt
        agents.add_internal(DENIED_AGENT, DeniedAgent())
        self.engine = engine
        self._default_agents = {one.id: one.default_agent_id for one in settings.accounts}
        self._book = ObjectiveRepository(
            engine.store,
            now=engine.clock.now,
            new_id=_short_id,
            limits=PlanLimits(opt.max_plans_per_objective, opt.max_tasks_per_plan),
        )
        rules = ExecutionPolicy(
            parallel=opt.parallel,
            retries=opt.retries,
            backoff_s=opt.backoff_seconds,
            planner=AgentId(opt.planner) if opt.planner else None,
            peers=frozenset(peer.name for peer in settings.peers.values()),
            peers_may_ask=opt.agents,
        )
        self._runner = StepExecutor(engine, self._book, rules, default_agent=self._default_agent)
        outbox = push.add_channel(
            engine, DELIVERY_KIND, DeliveryChannel(self._runner.task_sync, RULES)
        )
        showing = ObjectiveView(rules)
        self.admin = AdminService(engine, self._book, self._runner, showing)
        self.service = PlanningService(
            engine,
            self._book,
            self._runner,
            showing,
            keep=lambda delivery: outbox.add_delivery(delivery, within=_MOST_FOLLOWERS),
        )

        self.extensions = (
            objectives_extension(
                max_plans=opt.max_plans_per_objective,
                max_tasks=opt.max_tasks_per_plan,
                is_persistent=engine.store.is_durable,
            ),
        )
        """What cards say of it."""

    def service_for(self, engine: Engine) -> PlanningService | None:
        """The desk, for the doors to tasks that lie in the same store as objectives."""
        return self.service if engine is self.engine else None

    async def open(self) -> None:
        """Read what an earlier life left; to be done before its tasks are taken up again."""
        await self._book.load()

    def start(self) -> None:
        """Go on with what was being run."""
        self._runner.start()

    def stop(self) -> None:
        """Begin nothing more."""
        self._runner.stop()

    def _default_agent(self, account: AccountId) -> AgentId:
        return self._default_agents.get(account) or next(iter(self._default_agents.values()))


def _short_id() -> str:
    return new_id().replace("-", "")[:16]
