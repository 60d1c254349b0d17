"""Wires calls between agents to the gateway's agents, store, outbox and webhooks."""

from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from functools import partial
from socket import gethostname
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from openclaw_a2a.agents import AgentRegistry
from openclaw_a2a.app.wiring.push import PushWiring
from openclaw_a2a.calls.builtin_skills import BuiltInAgent
from openclaw_a2a.calls.debate import DebateAgent
from openclaw_a2a.calls.loop_guard import CallHistory, LoopLimits, RunIndex
from openclaw_a2a.calls.outcome_delivery import OutcomeDelivery
from openclaw_a2a.calls.policy import AgentDirectory, CallPolicy, CallRules, RoutingRules
from openclaw_a2a.calls.repository import CallRepository
from openclaw_a2a.calls.service import CallService
from openclaw_a2a.calls.session_hosts import SessionHosts
from openclaw_a2a.calls.submission import BUILT_IN_AGENT, DEBATE_AGENT
from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.maintenance import RetentionClock
from openclaw_a2a.engine.outbox.delivery_tracking import DeliveryChannel, DeliveryPolicy
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.model.call import CALL_KIND, Call
from openclaw_a2a.model.errors import GatewayError, SettingsInvalid
from openclaw_a2a.model.ids import TARGET_PREFIX, AgentId, JsonObject, SessionKey
from openclaw_a2a.model.records import RunRecord
from openclaw_a2a.ports import DeliveryFailed, SessionInbox
from openclaw_a2a.remote.agent_adapter import RemoteTargetAgent
from openclaw_a2a.remote.run import RemoteTimeouts
from openclaw_a2a.server.push.sender import WebhookSender
from openclaw_a2a.settings import Settings, WebhookSettings
from openclaw_a2a.settings.files import is_loopback
from openclaw_a2a.settings.tokens import resolve_token
from openclaw_a2a.tools.call_tools import CallerChains, CallerResolver

if TYPE_CHECKING:  # the HTTP client takes long to load
    from openclaw_a2a.remote.tool import RemoteAgentTool

log = get_logger(__name__)

DELIVERY_POLICY = DeliveryPolicy(
    max_attempts=10_000,
    backoff=Backoff(first_s=0.5, max_s=60.0),
    attempt_timeout_s=None,
    max_parallel=4096,
)
"""A host that is down is tried every minute for about a week.

No timeout and many in parallel, because settling must never wait: `OutcomeDelivery` limits the
attempts itself.
"""

_PURGE_S = 30.0
_TAKE_OVER_RETRY_S = 1.0


class CallsWiring:
    """The calls of one gateway."""

    def __init__(
        self, settings: Settings, agents: AgentRegistry, engine: Engine, *, host_id: str
    ) -> None:
        """`host_id` names this gateway in chains of calls."""
        self._settings = settings
        self._engine = engine
        self._agents = agents
        self._host_id = host_id
        self._replication = engine.replication
        is_shared = self._replication is not None
        self._calls = CallRepository(
            engine.store.records, engine.store.deliveries, is_shared=is_shared
        )
        self._directory = AgentDirectory(
            agents.ids, {name: one.skills for name, one in settings.agents.items()}
        )
        found = ((name, agents[name]) for name in agents.ids)
        self._hosts = SessionHosts(
            {name: agent for name, agent in found if isinstance(agent, SessionInbox)},
            name_host=_name_host if is_shared else None,
            list_shared=None if self._replication is None else self._replication.store.list_hosts,
            elsewhere=agents.ids_elsewhere,
        )
        if self._replication is not None and settings.response_routing.enabled:
            self._replication.hosts = self._hosts.names
        self.resolve_caller = CallerResolver(self._hosts)
        agents.add_internal(
            DEBATE_AGENT, DebateAgent(lambda debate, step: self.service.ask_step(debate, step))
        )
        skills = BuiltInAgent(lambda one: self._directory.skills(one) or (), engine.clock)
        agents.add_internal(BUILT_IN_AGENT, skills)

    async def open(
        self, push: PushWiring, engines: Collection[Engine], parts: AsyncExitStack
    ) -> None:
        """Load the stored calls; before recovery starts their tasks again."""
        engine, settings = self._engine, self._settings
        sender = push.make_sender(engine, allow_private=True)  # the operator names the webhooks
        parts.push_async_callback(sender.close)
        rules = _call_rules(settings)
        webhooks = settings.response_routing.webhooks
        is_routing = rules.routing.is_enabled
        self._delivery = OutcomeDelivery(
            engine,
            self._calls,
            hosts=self._hosts if is_routing else SessionHosts({}),
            post_webhook=partial(_post, webhooks, sender) if webhooks and is_routing else None,
            wake=push.outbox(engine).check_task,
        )
        history = CallHistory(
            [RunIndex(one.runs, self._hosts.host_session_key) for one in engines],
            self._calls,
            in_sessions=self._delivery.states.in_sessions,
            own_host=self._host_id,
            find_run_elsewhere=self._find_run_elsewhere if self._replication else None,
            release_elsewhere=self._release_elsewhere if self._replication else None,
        )
        self.chains = CallerChains(
            history, self.resolve_caller, host_id=self._host_id, max_depth=rules.limits.max_depth
        )
        self.service = CallService(
            engine,
            self._calls,
            self._delivery,
            rules=rules,
            directory=self._directory,
            hosts=self._hosts,
            history=history,
        )
        if self._replication is not None:
            # Other replicas drive the stored calls, unless one is gone: then it is taken over.
            self._replication.on_taken_over.append(self._on_taken_over)
            self._replication.on_dropped.append(self._delivery.drop)
        else:
            # Loaded before the outbox knows the channel: an outcome needs its call.
            await self._delivery.settle_ended(await self._calls.load())
        channel = DeliveryChannel(
            self._delivery, DELIVERY_POLICY, final_states_only=True, is_cacheable=True
        )
        push.add_channel(engine, CALL_KIND, channel)

    def add_targets(self, remote: "RemoteAgentTool", aliases: Iterable[str]) -> None:
        """Let remote targets be called like agents of this gateway."""
        engine = self._engine
        # Shorter than the engine waits for a run to stop, so that the remote task is cancelled.
        timeouts = RemoteTimeouts(stop_s=0.8 * engine.limits.cancel_s)
        for alias in aliases:
            name = AgentId(f"{TARGET_PREFIX}{alias}")
            agent = RemoteTargetAgent(
                alias,
                remote,
                records=engine.store.records,
                clock=engine.clock,
                host_id=self._host_id,
                timeouts=timeouts,
            )
            self._agents.add_internal(name, agent)
            self._directory.add(name)

    def start(self) -> None:
        """Continue deliveries, and purge calls that are over."""
        self._delivery.resume(self._calls)
        if self._replication is not None:
            self._on_taken_over()  # what recovery has taken over at the start
        clock = RetentionClock(self._engine.clock, self._engine.store)
        self._engine.supervisor.run_every(
            "calls-retention", _PURGE_S, partial(self._purge, clock), sleep=self._engine.clock.sleep
        )

    async def _find_run_elsewhere(self, session_key: SessionKey) -> RunRecord | None:
        if self._replication is None:
            return None
        return await self._replication.store.find_run(self._hosts.own_session_keys(session_key))

    def _release_elsewhere(self, session_key: SessionKey) -> AbstractContextManager[None]:
        if self._replication is None:
            return nullcontext()
        return self._replication.requests.released_slot(
            partial(self._find_run_elsewhere, session_key)
        )

    def _on_taken_over(self) -> None:
        self._engine.supervisor.spawn("calls-take-over", self._take_over())

    async def _take_over(self) -> None:
        """Continue the calls of replicas that are gone."""
        taken = self._replication.store.pop_taken(CALL_KIND) if self._replication else ()
        owner = self._engine.owner
        while taken:
            try:
                await self._delivery.take_over(taken, owner)
                break
            except GatewayError as error:
                log.warning("calls.take_over_failed", reason=error.message)
                await self._engine.clock.sleep(_TAKE_OVER_RETRY_S)

    def release_waiters(self) -> None:
        """The gateway stops: answer waiting callers that the outcome comes later."""
        self._delivery.waiters.close()

    async def _purge(self, clock: RetentionClock) -> None:
        count = await self._calls.purge(await clock.now())
        if count:
            log.info("calls.purged", calls=count)
        self._engine.audit.record_expired("calls", count)


def _name_host(address: str) -> str:
    """A loopback address is that of another host on each machine."""
    is_local = is_loopback(urlsplit(address).hostname or "")
    return f"{address} on {gethostname()}" if is_local else address


async def _post(
    webhooks: Mapping[str, WebhookSettings], sender: WebhookSender, call: Call, message: JsonObject
) -> DeliveryFailed | None:
    """Post an outcome to its caller's webhook; None when it was accepted, or there is none."""
    webhook = webhooks.get(call.caller.name)
    if webhook is None:
        return None
    headers = {"Content-Type": "application/json"}
    if webhook.token:
        try:
            headers["Authorization"] = f"Bearer {resolve_token(webhook.token)}"
        except SettingsInvalid as error:
            return DeliveryFailed(error.message)
    return await sender.post(webhook.url, msgspec.json.encode(message), headers)


def _call_rules(settings: Settings) -> CallRules:
    between, routing = settings.tools.agent_to_agent, settings.response_routing
    allowed = {name: one.allowed_targets for name, one in settings.agents.items()}
    return CallRules(
        policy=CallPolicy(
            enabled=between.enabled,
            allow=between.allow,
            allowed_targets={name: one for name, one in allowed.items() if one is not None},
        ),
        limits=LoopLimits(between.max_depth, between.max_ping_pong_turns),
        routing=RoutingRules(
            is_enabled=routing.enabled,
            default_ms=routing.default_timeout_ms,
            max_ms=routing.max_timeout_ms,
            dual_delivery=routing.dual_delivery,
        ),
        pending=settings.limits.pending_calls,
        pending_per_agent=settings.limits.share(
            settings.limits.per_agent_calls, settings.limits.pending_calls
        ),
    )
