"""Joins the parts: settings, stores, agents, engines and endpoints."""

import asyncio
import hashlib
import time
from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import TYPE_CHECKING, Self

import msgspec

from openclaw_a2a.agents import AgentRegistry, ElsewhereAgent, build_agent
from openclaw_a2a.app.wiring.calls import CallsWiring
from openclaw_a2a.app.wiring.dashboard import DashboardWiring
from openclaw_a2a.app.wiring.engines import EnginesWiring, MakeChannel
from openclaw_a2a.app.wiring.planning import PlanningWiring
from openclaw_a2a.app.wiring.policy import PolicyWiring
from openclaw_a2a.app.wiring.push import PushWiring
from openclaw_a2a.app.wiring.tools import ToolsWiring
from openclaw_a2a.auth.admin_token import AdminAuthenticator, ensure_admin_token
from openclaw_a2a.auth.dashboard_sessions import DashboardAuthenticator
from openclaw_a2a.auth.peers import Credentials, FailedAttempts, PeerAuthenticator
from openclaw_a2a.auth.request_origin import OwnAddresses, TrustedProxies
from openclaw_a2a.auth.tokens import WRITE_USE_S, TokenStore
from openclaw_a2a.dashboard.endpoint import DASHBOARD_PREFIX
from openclaw_a2a.engine.approvals import ApprovalService
from openclaw_a2a.engine.audit_file import AUDIT_FILE, AuditFile
from openclaw_a2a.engine.audit_log import AuditLog
from openclaw_a2a.engine.background_replies import BackgroundListener
from openclaw_a2a.engine.engine import AccountRules, SystemClock, new_id
from openclaw_a2a.engine.outbox.delivery_view import DeliveryReader
from openclaw_a2a.engine.replica_view import ReplicaReader
from openclaw_a2a.engine.scheduling.fair_queue import CallerPacer
from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.engine.tasks.submit_policy import PolicyCallable
from openclaw_a2a.http.rate_limit import RateLimit, RequestAdmission
from openclaw_a2a.http.request_limits import RequestBodies
from openclaw_a2a.http.router import ANY_METHOD
from openclaw_a2a.http.shared_rate_limit import SharedRateLimit
from openclaw_a2a.http.sse_stream import SseStreams
from openclaw_a2a.http.wire_log import WireLog
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.call import Call, CallId
from openclaw_a2a.model.card import AgentCard, AgentExtension, AgentProfile
from openclaw_a2a.model.errors import SettingsInvalid
from openclaw_a2a.model.ids import AgentId, Json
from openclaw_a2a.ports import (
    Agent,
    Clock,
    Store,
    SupportsApprovals,
    SupportsBackgroundEvents,
    SupportsProfile,
)
from openclaw_a2a.server import queued_replies
from openclaw_a2a.server.account_endpoint import AccountEndpoint, Authenticator, ChainLimits
from openclaw_a2a.server.admin.endpoint import ADMIN_PREFIX, AdminEndpoint
from openclaw_a2a.server.admin.metrics import METRICS_PATH, MetricsAdmin
from openclaw_a2a.server.admin.objectives import ObjectivesAdmin
from openclaw_a2a.server.admin.routes import (
    ApprovalsAdmin,
    CallsAdmin,
    DashboardAdmin,
    DeliveriesAdmin,
    PairingAdmin,
    ReplicasAdmin,
    login_path,
)
from openclaw_a2a.server.admin.tasks import TasksAdmin
from openclaw_a2a.server.application import ServerApplication
from openclaw_a2a.server.cards import LiveCard, apply_profiles, build_card, security_schemes
from openclaw_a2a.server.health import Availability, Health
from openclaw_a2a.server.large_answers import LargeAnswers
from openclaw_a2a.settings import Account, AgentStyle, LoadedSettings, OriginRoutingPolicy, Settings
from openclaw_a2a.settings.files import make_private_folder

if TYPE_CHECKING:
    from openclaw_a2a.auth.jwt import JwtVerifier

log = get_logger(__name__)

VERSION = version("openclaw-a2a")


class Embedding(msgspec.Struct, frozen=True, kw_only=True):
    """What Python code that embeds a gateway supplies instead of settings, for its one account.

    `channels` make further delivery channels of the engine, by kind of delivery. An embedded
    gateway has no admin token: the program around it is the operator.
    """

    rules: AccountRules
    authenticator: Authenticator
    card: LiveCard
    channels: Mapping[str, MakeChannel] = {}


class Gateway:
    """A whole gateway. `async with` it, and serve its `asgi` application meanwhile."""

    def __init__(
        self,
        settings: Settings,
        agents: AgentRegistry,
        clock: Clock,
        given: Collection[AgentId],
        embedding: Embedding | None = None,
        policy: PolicyCallable | None = None,
        store: Store | None = None,
    ) -> None:
        """`policy` decides about messages of peers, in place of the function of the settings.

        `store` is used instead of those of the settings.
        """
        self.settings = settings
        self.loaded: LoadedSettings | None = None
        """Where the settings come from, for the dashboard; set before the start, if it is known."""
        self._policy = PolicyWiring(settings, policy)
        self._embedding = embedding
        self.supplied_agents = given
        """Agents that the program passed in, instead of those in the settings."""
        self._agents = agents
        self._clock = clock
        # The program around an embedded gateway is its operator, and there is no data folder.
        file = None
        if embedding is None:
            path, audit = settings.data / AUDIT_FILE, settings.audit
            file = AuditFile(path, max_bytes=audit.max_bytes, keep=audit.keep_files)
        self.audit = AuditLog(file, clock.now)
        self._parts = AsyncExitStack()
        self.asgi = ServerApplication((), ())
        """The ASGI application; it has its routes once the gateway is started."""
        self.availability = Availability(())
        """Which agents can answer now; filled when the endpoints are built."""
        self.supervisor = Supervisor()
        """The background work outside the engines; `/readyz` asks it for loops that have died."""
        limits, server = settings.limits, settings.server
        rate_limit = RateLimit(
            per_second=limits.per_peer_rate,
            per_minute=limits.per_peer_requests,
            monotonic=time.monotonic,
        )
        self._rate_limit = SharedRateLimit(
            rate_limit, self.supervisor.child("rate-limit"), monotonic=time.monotonic
        )
        self._admission = RequestAdmission(self._rate_limit)
        self._bodies = RequestBodies(
            server.body_seconds, limits.bodies_bytes, supervisor=self.supervisor
        )
        self.streams = SseStreams(
            limits.streams,
            server.heartbeat_seconds,
            per_caller=limits.share(limits.per_peer_streams, limits.streams),
            supervisor=self.supervisor.child("sse"),
            write_timeout_s=2 * server.send_seconds,
        )
        self._large_answers = LargeAnswers(limits.answer_bytes)
        shown = settings.dashboard
        # An embedded gateway has no dashboard.
        is_held = embedding is None and shown.enabled and shown.wire_exchanges > 0
        self._wire_log = WireLog(shown.wire_exchanges) if is_held else None
        self._body_pacer = CallerPacer()
        self.push = PushWiring(settings.push, version=VERSION, stop_s=server.stop_seconds)
        self._engine_wiring = EnginesWiring(
            settings,
            agents,
            clock=clock,
            audit=self.audit,
            push=self.push,
            rate_limit=self._rate_limit,
            count_streams=lambda: len(self.streams),
            store=store,
            channels=None if embedding is None else embedding.channels,
        )
        self.engines = self._engine_wiring.engines
        self._tools = ToolsWiring(
            settings,
            clock=clock,
            supervisor=self.supervisor,
            bodies=self._bodies,
            admission=self._admission,
            streams=self.streams,
        )
        self._calls: CallsWiring | None = None
        self._plans: PlanningWiring | None = None
        self._dashboard: DashboardWiring | None = None
        self._admin_token: str | None = None
        self._host_id = ""
        urls = [account.public_base_url or "" for account in settings.accounts]
        self._own = OwnAddresses(server.host, [server.public_base_url, *urls])
        # An embedding program decides who its callers are.
        self._tokens = (
            TokenStore(settings.data, peers=settings.peers) if embedding is None else None
        )
        self._credentials = Credentials()
        self._proxies = TrustedProxies(server.trusted_proxies)

    async def __aenter__(self) -> Self:
        """Open the stores, recover what a crash left behind, then build the endpoints."""
        # Parts close in the reverse order of this: first what uses a store, then the store, then
        # the agents. If a step fails, what was opened before it is closed again.
        async with AsyncExitStack() as parts:
            self._parts = parts
            # Closed last (`parts` go in reverse): what the others do at their end is logged.
            parts.callback(self.audit.close)
            self.audit.open()
            parts.push_async_callback(self.supervisor.stop)
            parts.push_async_callback(self._agents.close)
            self._admin_token = self._ensure_admin_token()
            # By what other gateways know this one in chains of calls; the same after each start.
            secret = f"gateway:{self._admin_token or new_id()}"
            self._host_id = hashlib.sha256(secret.encode()).hexdigest()[:16]
            # Planning and calls load their state before the engines recover runs: a recovered run
            # may end at once and report to them.
            if self.settings.opt.enabled:
                engine = await self._engine_wiring.open(self.settings.store, parts)
                self._plans = PlanningWiring(
                    self.settings, engine, push=self.push, agents=self._agents
                )
                parts.callback(self._plans.stop)
                await self._plans.open()
            self._credentials = Credentials(
                self.settings.peers.values(),
                tokens=self._tokens,
                verifier=self._open_verifier(),
                certificate_header=self.settings.client_certificate_header,
                proxies=self._proxies,
                failures=FailedAttempts(self.settings.limits.per_address_failures),
            )
            running = [account for account in self.settings.accounts if account.is_running]
            endpoints = [await self._open_account(account) for account in running]
            await self._open_calls()
            await self._policy.open(self._engine_wiring, self.audit, parts)
            await self._tools.prepare(
                parts, engines=self.engines, calls=self._calls, plans=self._plans
            )
            # From here on agents run: recovered runs are started before anything is served.
            for engine in self.engines.values():
                await self._engine_wiring.start(engine, parts)
            # After all engines: an outcome or a plan step may belong to a recovered run.
            for part in (self._calls, self._plans):
                if part is not None:
                    part.start()
            self.asgi = self._build_application(endpoints)
            self._tools.open(self.asgi.router, parts, credentials=self._credentials, own=self._own)
            if self._tokens is not None:
                parts.push_async_callback(self._tokens.write_use)
                self.supervisor.run_every("token-use", WRITE_USE_S, self._tokens.write_use)
            # Last: a late reply or a resolved pause may start a run.
            self._start_background_listeners()
            # Started in full: `__aexit__` closes the parts from now on, not the end of this block.
            self._parts = parts.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close streams and parts; unfinished work stays in the store."""
        # First what waits from outside: blocked callers and streams hold requests open.
        if self._calls is not None:
            self._calls.release_waiters()
        self.streams.close_all()
        await self._parts.aclose()

    async def deliver_queued_reply(
        self,
        to: Json,
        thread_id: Json,
        payload: Json,
        *,
        account_id: Json = None,
        session_key: Json = None,
    ) -> queued_replies.QueuedResult:
        """Append a reply that a host sends after a run to the task `thread_id`, in any state."""
        reply = queued_replies.QueuedReply(to, thread_id, payload, account_id, session_key)
        return await queued_replies.deliver_queued_reply(self.engines.values(), reply)

    @property
    def run_count(self) -> int:
        """Runs that are queued or in progress."""
        return sum(len(engine.runs) for engine in self.engines.values())

    async def drain(self, seconds: float) -> int:
        """Accept nothing new, let runs finish, then interrupt the rest; how many were left.

        Callers that wait for one of those get a retryable error, and every stream ends.
        """
        engines = self.engines.values()
        # Before the runs are awaited: a caller that waits for an outcome may be one of them.
        if self._calls is not None:
            self._calls.release_waiters()
        # All at once: the time is for the whole gateway, not for each store.
        left = sum(await asyncio.gather(*[engine.drain(seconds) for engine in engines]))
        await asyncio.gather(*[engine.stop() for engine in engines])
        # After the runs: a stream shows the end of its run before it is closed.
        self.streams.close_all()
        await self._tools.close_streams()
        return left

    # ---------------------------------------------------------------- opening the parts

    async def _open_calls(self) -> None:
        """Calls between agents, in the gateway's own store.

        Calls from before a restart are completed even when new ones are disabled.
        """
        engine = self.engines.get(self.settings.store)
        if self.settings.tools.agent_to_agent.enabled:
            engine = await self._engine_wiring.open(self.settings.store, self._parts)
        if engine is not None:
            self._calls = CallsWiring(self.settings, self._agents, engine, host_id=self._host_id)
            await self._calls.open(self.push, self.engines.values(), self._parts)

    async def _open_account(self, account: Account) -> AccountEndpoint:
        settings, plans = self.settings, self._plans
        engine = await self._engine_wiring.open(account.task_store or settings.store, self._parts)
        if plans is not None and plans.engine is not engine:
            plans = None  # objectives are served where the account's tasks are in the same store
        if self._embedding is not None:
            embedded = self._embedding
            rules, authenticator, card = embedded.rules, embedded.authenticator, embedded.card
        else:
            rules = _account_rules(account, settings)
            authenticator = PeerAuthenticator(self._credentials, self._own)
            extensions = () if plans is None else plans.extensions
            card = self._card(account, extensions)
        engine.accounts[account.id] = rules
        return AccountEndpoint(
            account=account,
            engine=engine,
            rules=rules,
            card=card,
            authenticator=authenticator,
            admission=self._admission,
            streams=self.streams,
            bodies=self._bodies,
            new_id=new_id,
            large_answers=self._large_answers,
            body_pacer=self._body_pacer,
            push=self.push.config_service(engine),
            streaming=card.current().capabilities.streaming,
            # An embedded gateway has no settings.
            body_setting=""
            if self._embedding is not None
            else f"channels.a2a.accounts.{account.id}.maxBodyBytes",
            chain_limits=ChainLimits(self._host_id, settings.tools.agent_to_agent.max_depth),
            planning=None if plans is None else plans.service,
            requires_activation=settings.opt.require_activation,
            wire_log=self._wire_log,
        )

    def _open_verifier(self) -> "JwtVerifier | None":
        if not self.settings.oidc:
            return None
        # Slow to import (cryptography, httpx2), and most gateways have no issuer.
        from openclaw_a2a.app.wiring.oidc import open_verifier

        return open_verifier(self.settings.oidc, self.supervisor.child("oidc"))

    def _card(self, account: Account, extensions: tuple[AgentExtension, ...]) -> LiveCard:
        """The card: texts of the account, else of its agent, else those of the settings."""
        agent_id = account.default_agent_id
        agent = self._agents[agent_id]
        is_given = agent_id in self.supplied_agents
        known = None if is_given else self.settings.agents[agent_id].profile
        credentials, issuers = self._credentials, self.settings.oidc

        def build(profile: AgentProfile | None) -> AgentCard:
            described = apply_profiles(account, profile, known)
            schemes = security_schemes(
                issuers,
                has_tokens=credentials.accept_tokens(),
                has_certificates=credentials.accept_certificates,
            )
            return build_card(described, version=VERSION, schemes=schemes, extensions=extensions)

        own = agent.profile if isinstance(agent, SupportsProfile) else lambda: None
        return LiveCard(account, build, own, credentials.accept_tokens)

    def _build_application(self, endpoints: list[AccountEndpoint]) -> ServerApplication:
        accounts = self.settings.accounts
        closed = [account for account in accounts if account.enabled and not account.is_running]
        application = ServerApplication(
            endpoints,
            closed,
            audit=self.audit,
            proxies=self._proxies,
            supervisor=self.supervisor,
        )
        self.availability = application.availability
        health = Health(
            self.engines.values(),
            self.availability,
            version=VERSION,
            supervisors=[self.supervisor],
        )
        add_route = application.router.add_route
        add_route("GET", "/healthz", health.healthz)
        add_route("GET", "/readyz", health.readyz)
        calls, plans = self._calls, self._plans
        deliveries = DeliveryReader(self.push.outboxes, self._find_call)
        authenticator = AdminAuthenticator(
            self._admin_token, own=self._own, credentials=self._credentials
        )
        admin = AdminEndpoint(authenticator, bodies=self._bodies, audit=self.audit)
        approvals = ApprovalService(self._approval_agents)
        self._open_dashboard(application, endpoints, approvals, deliveries)
        dashboard = self._dashboard
        DashboardAdmin(None if dashboard is None else dashboard.authenticator).add_to(admin)
        ApprovalsAdmin(approvals).add_to(admin)
        PairingAdmin(self._policy.paired).add_to(admin)
        DeliveriesAdmin(deliveries).add_to(admin)
        ObjectivesAdmin(None if plans is None else plans.admin).add_to(admin)
        CallsAdmin(None if calls is None else calls.service).add_to(admin)
        TasksAdmin(self.engines.values(), self.streams).add_to(admin)
        ReplicasAdmin(ReplicaReader(self.engines.values())).add_to(admin)
        MetricsAdmin(self.engines.values(), self.streams).add_to(admin)
        add_route(ANY_METHOD, ADMIN_PREFIX + "{*}", admin.serve)
        add_route("GET", METRICS_PATH, admin.serve)
        return application

    async def _find_call(self, call_id: CallId) -> Call | None:
        return None if self._calls is None else await self._calls.service.find(call_id)

    def _open_dashboard(
        self,
        application: ServerApplication,
        endpoints: list[AccountEndpoint],
        approvals: ApprovalService,
        deliveries: DeliveryReader,
    ) -> None:
        """The pages for browsers; an embedded gateway has none."""
        settings = self.settings.dashboard
        if not settings.enabled or self._embedding is not None:
            return
        authenticator = DashboardAuthenticator(
            self._admin_token,
            own=self._own,
            credentials=self._credentials,
            is_read_only=settings.read_only,
            session_s=settings.session_seconds,
        )
        self._dashboard = DashboardWiring(
            self.settings,
            authenticator,
            loaded=self.loaded,
            stores=self.engines,
            endpoints=endpoints,
            supplied_agents=self.supplied_agents,
            approvals=approvals,
            calls=self._calls,
            plans=self._plans,
            deliveries=deliveries,
            remote=self._tools.remote,
            clock=self._clock,
            supervisor=self.supervisor.child("dashboard"),
            admission=self._admission,
            streams=self.streams,
            bodies=self._bodies,
            wire_log=self._wire_log,
            rate_limit=self._rate_limit,
            refusals=application.refusals,
            audit=self.audit,
            version=VERSION,
        )
        dashboard = self._dashboard.dashboard
        application.browser_home = dashboard.redirect_home
        for path in (DASHBOARD_PREFIX, f"{DASHBOARD_PREFIX}/{{*}}"):
            application.router.add_route(ANY_METHOD, path, dashboard.serve)

    def dashboard_link(self) -> str | None:
        """The path of a link that opens the dashboard, once; None without one."""
        found = self._dashboard
        return None if found is None else login_path(found.authenticator)

    def _start_background_listeners(self) -> None:
        """Start one listener per agent that sends events outside its runs, for all engines."""
        engines = list(self.engines.values())
        for agent_id in self._agents.ids if engines else ():
            agent = self._agents[agent_id]
            if isinstance(agent, SupportsBackgroundEvents):
                listener = BackgroundListener(engines, agent_id, agent)
                engines[0].supervisor.run_loop(f"background-events-{agent_id}", listener.run())

    def _ensure_admin_token(self) -> str | None:
        if self._embedding is not None:
            return None
        try:
            # First of all: what is stored there is as safe as the folder.
            repaired = make_private_folder(self.settings.data)
            if repaired is not None:
                log.warning("gateway.folder_made_private", reason=repaired)
        except PermissionError as error:
            if error.errno is None:  # every user may write there, and it is not ours to change
                raise SettingsInvalid(str(error)) from error
        except OSError:
            pass  # said below
        try:
            return ensure_admin_token(self.settings.data)
        except OSError as error:  # peers are served without it; only admin commands fail
            log.warning(
                "gateway.admin_token_unavailable", folder=str(self.settings.data), reason=str(error)
            )
            return None

    def _approval_agents(self) -> dict[AgentId, SupportsApprovals]:
        agents = {agent_id: self._agents[agent_id] for agent_id in self._agents.ids}
        asking = {name: one for name, one in agents.items() if isinstance(one, SupportsApprovals)}
        return {**asking, **self._policy.held}


def build_app(
    settings: Settings,
    *,
    agents: Mapping[AgentId, Agent] | None = None,
    clock: Clock | None = None,
    embedding: Embedding | None = None,
    policy: PolicyCallable | None = None,
    store: Store | None = None,
) -> Gateway:
    """A gateway from settings; `agents` replace or extend those of the settings.

    `policy` decides about messages of peers, where no rule of the settings does. `store` is used
    instead of those of the settings.

    Raises: SettingsInvalid.
    """
    given = agents or {}
    place = settings.store
    elsewhere = {
        agent_id: ElsewhereAgent(agent_id)
        for agent_id, one in settings.agents.items()
        if place.replicas and one.replicas and place.replica_name not in one.replicas
    }
    built = {
        agent_id: build_agent(
            one.adapter,
            one.options,
            environment=None,
            path=f"agents.{agent_id}",
            folder=one.folder,
        )
        for agent_id, one in settings.agents.items()
        if agent_id not in given and agent_id not in elsewhere
    }
    registry = AgentRegistry({**built, **given, **elsewhere})
    return Gateway(
        settings, registry, clock or SystemClock(), given.keys(), embedding, policy, store
    )


def _account_rules(account: Account, settings: Settings) -> AccountRules:
    return AccountRules(
        account=account.id,
        agent_id=account.default_agent_id,
        is_task_generating=account.agent_style is AgentStyle.TASK_GENERATING,
        input_modes=account.default_input_modes,
        output_modes=account.default_output_modes,
        keeps_origin=account.origin_routing_policy is OriginRoutingPolicy.LEGACY_ORIGIN_ROUTING,
        store_path=account.session_store or "",
        max_parts=settings.limits.parts,
        max_values=settings.limits.body_values,
        max_part_bytes=settings.limits.part_bytes,
        approvers=frozenset(peer.name for peer in settings.peers.values() if peer.may_approve),
    )
