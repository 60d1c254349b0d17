"""Joins objectives and plans with the gateway: its store, its outbox and its agents."""

from openclaw_a2a.agents import AgentRegistry
from openclaw_a2a.app.push import Push
from openclaw_a2a.inbound.opt_desk import plan_extension
from openclaw_a2a.model.ids import AccountId, AgentId
from openclaw_a2a.planning.book import ObjectiveBook
from openclaw_a2a.planning.desk import Planning
from openclaw_a2a.planning.mirror import KIND
from openclaw_a2a.planning.objects import Limits
from openclaw_a2a.planning.oversight import Oversight
from openclaw_a2a.planning.refused import REFUSED, RefusedAgent
from openclaw_a2a.planning.runner import Runner
from openclaw_a2a.planning.showing import Showing
from openclaw_a2a.planning.steps import RunRules
from openclaw_a2a.runtime.backoff import OutboxRules
from openclaw_a2a.runtime.engine import Engine
from openclaw_a2a.runtime.ids import new_id
from openclaw_a2a.runtime.rounds import Round
from openclaw_a2a.settings import Settings

_MOST_FOLLOWERS = 1000
RULES = OutboxRules(attempts=10_000, backoff_s=0.5, most_backoff_s=60.0, parallel=64)


class PlanRoom:
    """The objectives of one gateway."""

    def __init__(
        self, settings: Settings, engine: Engine, *, push: Push, agents: AgentRegistry
    ) -> None:
        opt = settings.opt
        agents.add_inner(REFUSED, RefusedAgent())
        self.engine = engine
        self._default_agents = {one.id: one.default_agent_id for one in settings.accounts}
        self._book = ObjectiveBook(
            engine.store,
            now=engine.clock.now,
            new_id=_short_id,
            limits=Limits(opt.max_plans_per_objective, opt.max_tasks_per_plan),
        )
        rules = RunRules(
            parallel=opt.parallel,
            retries=opt.retries,
            backoff_s=opt.backoff_seconds,
            planner=AgentId(opt.planner) if opt.planner else None,
            peers=frozenset(peer.name for peer in settings.peers.values()),
            peers_may_ask=opt.agents,
        )
        self._runner = Runner(engine, self._book, rules, default_agent=self._default_agent)
        outbox = push.add_round(engine, KIND, Round(self._runner.mirror, RULES))
        showing = Showing(rules)
        self.oversight = Oversight(engine, self._book, self._runner, showing)
        self.desk = Planning(
            engine,
            self._book,
            self._runner,
            showing,
            keep=lambda delivery: outbox.put(delivery, within=_MOST_FOLLOWERS),
        )

        self.extensions = (
            plan_extension(
                max_plans=opt.max_plans_per_objective,
                max_tasks=opt.max_tasks_per_plan,
                is_persistent=engine.store.is_durable,
            ),
        )
        """What cards say of it."""

    def desk_for(self, engine: Engine) -> Planning | None:
        """The desk, for the doors to tasks that lie in the same store as objectives."""
        return self.desk if engine is self.engine else None

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
