"""Joins calls between agents with the gateway: its agents, its store, its outbox and its hosts."""

from collections.abc import Collection, Iterable, Mapping
from contextlib import AsyncExitStack, suppress

import msgspec

from openclaw_a2a.agents import AgentRegistry
from openclaw_a2a.app.wiring.push import PushWiring
from openclaw_a2a.calls.builtin_skills import BuiltInAgent
from openclaw_a2a.calls.debate.agent import DebateAgent
from openclaw_a2a.calls.identifiers import TARGET
from openclaw_a2a.calls.loop_guard import CallHistory, GuardRules, RunIndex
from openclaw_a2a.calls.outcome_delivery import OutcomeDelivery
from openclaw_a2a.calls.policy import CallPolicy
from openclaw_a2a.calls.repository import CallRepository
from openclaw_a2a.calls.service import (
    BUILT_IN_AGENT,
    DEBATE_AGENT,
    CallRules,
    CallService,
    Placing,
    RoutingRules,
)
from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.outbox.delivery_channel import DeliveryChannel, DeliveryPolicy
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.model.call import CALL_KIND, Call, OutcomeRoute
from openclaw_a2a.model.errors import GatewayError, SettingsInvalid
from openclaw_a2a.model.ids import AgentId, JsonObject, SessionKey
from openclaw_a2a.model.skill import Skill
from openclaw_a2a.ports import DeliveryFailed, SessionInbox
from openclaw_a2a.remote.agent_adapter.agent import RemoteTargetAgent
from openclaw_a2a.remote.agent_adapter.run import RemoteTimeouts, ToolExecutor
from openclaw_a2a.server.push.sender import WebhookSender
from openclaw_a2a.settings import Settings, WebhookSettings
from openclaw_a2a.settings.token_reference import resolve_token
from openclaw_a2a.tools.audit_log import FILE_NAME, AuditLog

log = get_logger(__name__)

RULES = DeliveryPolicy(
    max_attempts=10_000,
    backoff=Backoff(first_s=0.5, max_s=60.0),
    attempt_timeout_s=None,
    max_parallel=4096,
)
"""A host that is away is asked every minute, for about a week.

Calls wait for nobody to be settled, but take turns to be told, which has its own time.
"""

_SWEEP_S = 30.0


class CallsWiring:
    """The calls of one gateway."""

    def __init__(
        self, settings: Settings, agents: AgentRegistry, engine: Engine, *, host_id: str
    ) -> None:
        """`host_id` is how chains of calls name this gateway."""
        self._settings = settings
        self._engine = engine
        self.host_id = host_id
        self._book = CallRepository(engine.store.records, engine.clock.now)
        self._agents = agents
        self.hosts = SessionHosts(agents)
        self.directory = AgentDirectory(settings, agents.ids)
        self.rules = call_rules(settings)
        agents.add_internal(
            DEBATE_AGENT, DebateAgent(lambda debate, step: self.service.ask(debate, step))
        )
        skills = BuiltInAgent(lambda one: self.directory.skills(one) or (), engine.clock)
        agents.add_internal(BUILT_IN_AGENT, skills)

    async def open(
        self, push: PushWiring, engines: Collection[Engine], parts: AsyncExitStack
    ) -> None:
        """Read what an earlier life left; to be done before its tasks are taken up again."""
        engine, settings = self._engine, self._settings
        poster = push.trusted_sender(engine)
        parts.push_async_callback(poster.close)
        webhooks = settings.response_routing.webhooks
        is_routing = settings.response_routing.enabled  # otherwise all is left in the inbox
        self._look_at = push.outbox(engine).check_task
        self._courier = OutcomeDelivery(
            engine,
            self._book,
            find_sink=self.hosts.find_sink if is_routing else _nobody,
            post=Webhooks(webhooks, poster).post if webhooks and is_routing else None,
            look_at=self._look_at,
        )
        self.lineage = CallHistory(
            [RunIndex(one.runs, self.hosts.session_there) for one in engines],
            self._book,
            dealing=self._courier.seeing.dealing,
            own_host=self.host_id,
        )
        self.service = CallService(
            self._book,
            self._courier,
            placing=Placing(
                engine, self._book, self._courier, rules=self.rules, directory=self.directory
            ),
            lineage=self.lineage,
            audit=AuditLog(settings.data / FILE_NAME, engine.clock.now),
        )
        await self._book.load()
        push.add_channel(
            engine,
            CALL_KIND,
            DeliveryChannel(self._courier, RULES, final_states_only=True, is_cacheable=True),
        )

    def add_targets(self, remote: ToolExecutor, aliases: Iterable[str]) -> None:
        """Let remote targets be called as if they were agents of ours."""
        engine = self._engine
        # Before the engine gives a run up that it wants to stop, the remote task is asked to.
        timeouts = RemoteTimeouts(stop_s=0.8 * engine.limits.cancel_s)
        for alias in aliases:
            name = AgentId(f"{TARGET}{alias}")
            agent = RemoteTargetAgent(
                alias,
                remote,
                records=engine.store.records,
                clock=engine.clock,
                host_id=self.host_id,
                timeouts=timeouts,
            )
            self._agents.add_internal(name, agent)
            self.directory.add(name)

    def start(self) -> None:
        """Go on with what was under way, and forget what is over for long."""
        for call in self._book:
            is_brought = call.route is OutcomeRoute.SESSION and call.delivered_at is not None
            if is_brought and call.seen_at is None:
                self._courier.seeing.watch(call)
            elif call.is_undelivered:
                self._look_at(call.task_id)
        self._engine.supervisor.run_loop("calls-retention", self._sweep())

    def release_waiters(self) -> None:
        """The gateway stops: whoever waits is told that the answer comes later."""
        self._courier.hang_up()

    async def _sweep(self) -> None:
        while True:
            await self._engine.clock.sleep(_SWEEP_S)
            with suppress(GatewayError):  # the next one does it
                await self._book.sweep()


def _nobody(_session_key: SessionKey) -> None:
    """Who brings something into sessions where nothing is brought."""


class AgentDirectory:
    """Who can be called: the agents of the gateway, and remote targets by `target:<alias>`."""

    def __init__(self, settings: Settings, agents: Collection[AgentId]) -> None:
        self._declared = {name: one.skills for name, one in settings.agents.items()}
        self._names = set(agents)

    def add(self, agent_id: AgentId) -> None:
        """Let another agent be called as well."""
        self._names.add(agent_id)

    def skills(self, agent_id: AgentId) -> tuple[Skill, ...] | None:
        """What an agent declares; None when there is no such agent."""
        return self._declared.get(agent_id, ()) if agent_id in self._names else None

    def names(self) -> list[AgentId]:
        """Everybody there is."""
        return sorted(self._names)


class SessionHosts:
    """The agents whose hosts hold sessions that can be spoken to."""

    def __init__(self, agents: AgentRegistry) -> None:
        found = [(name, agents.find(name)) for name in agents.ids]
        self._sinks = {name: one for name, one in found if isinstance(one, SessionInbox)}

    def find_sink(self, session_key: SessionKey) -> SessionInbox | None:
        """Who can put something into a session: its own agent, else another in its host."""
        sinks = self._sinks.values()
        return next(
            (one for one in sinks if one.owns_session(session_key)), next(iter(sinks), None)
        )

    def agent_in(self, session_key: SessionKey) -> AgentId | None:
        """The agent of ours whose session in its host this is."""
        return next(
            (name for name, one in self._sinks.items() if one.owns_session(session_key)), None
        )

    def session_there(self, agent_id: AgentId, session_key: SessionKey) -> SessionKey | None:
        """How the host of an agent calls a session of ours; None before that is known."""
        sink = self._sinks.get(agent_id)
        return session_key if sink is None else sink.host_session_key(session_key)


class Webhooks:
    """Tells callers without a session that their answers are there, at the operator's addresses."""

    def __init__(self, webhooks: Mapping[str, WebhookSettings], poster: WebhookSender) -> None:
        self._webhooks = webhooks
        self._poster = poster

    async def post(self, call: Call, message: JsonObject) -> DeliveryFailed | None:
        """Post an outcome; None when it was taken, or when there is nowhere to post it."""
        webhook = self._webhooks.get(call.caller.name)
        if webhook is None:
            return None
        headers = {"Content-Type": "application/json"}
        if webhook.token:
            try:
                headers["Authorization"] = f"Bearer {resolve_token(webhook.token)}"
            except SettingsInvalid as error:
                return DeliveryFailed(error.message)
        return await self._poster.post(webhook.url, msgspec.json.encode(message), headers)


def call_rules(settings: Settings) -> CallRules:
    """What the settings say about calls."""
    between, routing = settings.tools.agent_to_agent, settings.response_routing
    reaches = {name: one.allowed_targets for name, one in settings.agents.items()}
    return CallRules(
        policy=CallPolicy(
            enabled=between.enabled,
            allow=between.allow,
            reaches={name: one for name, one in reaches.items() if one is not None},
        ),
        guard=GuardRules(between.max_depth, between.max_ping_pong_turns),
        routing=RoutingRules(
            is_enabled=routing.enabled,
            default_ms=routing.default_timeout_ms,
            max_ms=routing.max_timeout_ms,
            dual_delivery=routing.dual_delivery,
        ),
    )
