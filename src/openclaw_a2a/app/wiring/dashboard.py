"""Builds the dashboard: its readers, its pages, its actions."""

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from openclaw_a2a.app.wiring.calls import CallsWiring
from openclaw_a2a.app.wiring.planning import PlanningWiring
from openclaw_a2a.app.wiring.remote_source import RemoteToolSource, find_remote_tasks
from openclaw_a2a.auth.dashboard_sessions import DashboardAuthenticator
from openclaw_a2a.dashboard.actions import MAX_UPLOAD_BYTES, Actions
from openclaw_a2a.dashboard.agents_page import AgentReader, AgentView
from openclaw_a2a.dashboard.callers_page import AuditReader, Callers, CallerUsageReader
from openclaw_a2a.dashboard.calls_page import CallReader
from openclaw_a2a.dashboard.endpoint import DASHBOARD_PREFIX, Dashboard
from openclaw_a2a.dashboard.now_page import NowReader
from openclaw_a2a.dashboard.objectives_page import Objectives
from openclaw_a2a.dashboard.remote_page import RemoteAgentReader
from openclaw_a2a.dashboard.requests import ReadPage
from openclaw_a2a.dashboard.system_page import Deliveries, SystemReader
from openclaw_a2a.dashboard.task_content import TaskDownloads
from openclaw_a2a.dashboard.task_list import TaskReader
from openclaw_a2a.dashboard.task_page import TaskDetailsReader
from openclaw_a2a.dashboard.wire_page import WireReader
from openclaw_a2a.engine.approvals import ApprovalCache, ApprovalService
from openclaw_a2a.engine.audit_log import AuditLog
from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.outbox.delivery_view import DeliveryReader
from openclaw_a2a.engine.replica_view import ReplicaReader
from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.http.rate_limit import RequestAdmission, RequestLimit
from openclaw_a2a.http.request_limits import RefusalCounts, RequestBodies
from openclaw_a2a.http.sse_stream import SseStreams
from openclaw_a2a.http.wire_log import WireLog
from openclaw_a2a.model.call import Call
from openclaw_a2a.model.ids import AccountId, AgentId
from openclaw_a2a.model.turn import Binding
from openclaw_a2a.ports import Clock, SupportsAvailability
from openclaw_a2a.server.account_endpoint import AccountEndpoint
from openclaw_a2a.server.cards import account_url
from openclaw_a2a.settings import LoadedSettings, Settings, StoreKind, StoreSettings

if TYPE_CHECKING:  # the HTTP client takes long to load
    from openclaw_a2a.remote.tool import RemoteAgentTool

_MAX_CALLS = 1000


class DashboardWiring:
    """The dashboard of a gateway. `authenticator` also makes the links with which one signs in.

    `stores` are those of the gateway, each with its engine; `loaded` is where the settings come
    from, None when a program made them.
    """

    def __init__(
        self,
        settings: Settings,
        authenticator: DashboardAuthenticator,
        *,
        loaded: LoadedSettings | None,
        stores: Mapping[StoreSettings, Engine],
        endpoints: Sequence[AccountEndpoint],
        supplied_agents: Collection[AgentId],
        approvals: ApprovalService,
        calls: CallsWiring | None,
        plans: PlanningWiring | None,
        deliveries: DeliveryReader,
        remote: "RemoteAgentTool | None",
        clock: Clock,
        supervisor: Supervisor,
        admission: RequestAdmission,
        streams: SseStreams,
        bodies: RequestBodies,
        wire_log: WireLog | None,
        rate_limit: RequestLimit,
        refusals: RefusalCounts,
        audit: AuditLog,
        version: str,
    ) -> None:
        engines = stores.values()
        self.authenticator = authenticator
        self._settings = settings
        self._endpoints = endpoints
        self._supplied_agents = supplied_agents
        self._calls = calls
        self._plans = plans
        self._call_pages = CallReader(None if calls is None else calls.service)
        self._tasks = TaskReader(engines)
        cache = ApprovalCache(approvals, supervisor)
        self._task = TaskDetailsReader(
            engines,
            cache,
            list_calls=self._list_calls,
            deliveries=deliveries,
            find_remote=find_remote_tasks,
            objective_name=self._find_objective_name,
            rpc_url=self._rpc_url,
            session_url=self._session_url,
        )
        self._downloads = TaskDownloads(engines)
        self._wire = WireReader(self._task, wire_log, started_at=clock.now())
        self._agents = AgentReader(self._list_agents, self._tasks, self._task)
        self._now = NowReader(
            engines,
            self._tasks,
            cache,
            agents=self._list_agents,
            count_streams=lambda: len(streams),
            refusals=refusals,
            clock=clock,
        )
        self.dashboard = Dashboard(
            authenticator,
            engines,
            supervisor,
            admission=admission,
            streams=streams,
            bodies=bodies,
            audit=audit,
            version=version,
            is_https=settings.server.public_base_url.startswith("https://"),
        )
        self._objectives = Objectives(None if plans is None else plans.admin)
        self._deliveries = Deliveries(deliveries)
        source = None if remote is None else RemoteToolSource(remote)
        self._remote = RemoteAgentReader(source, supervisor)
        self._system = SystemReader(
            settings,
            loaded,
            stores=stores,
            agents=self._list_agents,
            find_schema=_find_schema,
            replicas=ReplicaReader(engines),
            version=version,
        )
        self._callers = Callers(
            settings.data,
            settings.peers,
            CallerUsageReader(
                engines, settings.limits, rate=rate_limit, streams=streams, refusals=refusals
            ),
        )
        self._audit = AuditReader(settings.data)
        self._add_pages()
        self._add_actions(Actions(engines, approvals, cache))

    def _add_pages(self) -> None:
        def add(path: str, template: str, section: str, read: ReadPage) -> None:
            is_task = template in ("task.html", "wire.html")
            place = f"{DASHBOARD_PREFIX}{path}"
            self.dashboard.add_page(place, template, section, read, is_task=is_task)

        add("", "now.html", "now", self._now.read)
        add("/tasks", "tasks.html", "tasks", self._tasks.list_page)
        add("/tasks/{}", "task.html", "tasks", self._task.read)
        add("/tasks/{}/wire", "wire.html", "tasks", self._wire.read)
        add("/calls", "calls.html", "calls", self._call_pages.list)
        add("/calls/{}", "call.html", "calls", self._call_pages.show)
        add("/objectives", "objectives.html", "objectives", self._objectives.list)
        add("/objectives/{}", "objective.html", "objectives", self._objectives.show)
        self.dashboard.add_page(
            f"{DASHBOARD_PREFIX}/objectives/{{}}/edit/{{}}",
            "edit.html",
            "objectives",
            self._objectives.read_form,
            is_live=False,
        )
        add("/agents", "agents.html", "agents", self._agents.list)
        add("/agents/{}", "agent.html", "agents", self._agents.show)
        add("/remote", "remote.html", "remote", self._remote.list)
        add("/deliveries", "deliveries.html", "deliveries", self._deliveries.list)
        add("/callers", "callers.html", "callers", self._callers.list)
        add("/audit", "audit.html", "audit", self._audit.read)
        add("/system", "system.html", "system", self._system.read)
        downloads, tasks = self._downloads, f"{DASHBOARD_PREFIX}/tasks"
        self.dashboard.add_download(f"{tasks}/{{}}/events.jsonl", downloads.read_journal)
        self.dashboard.add_download(f"{tasks}/{{}}/files/{{}}", downloads.read_file)

    def _add_actions(self, actions: Actions) -> None:
        add = self.dashboard.add_action
        add(f"{DASHBOARD_PREFIX}/tasks/{{}}/cancel", actions.cancel)
        add(f"{DASHBOARD_PREFIX}/tasks/{{}}/answer", actions.answer)
        add(f"{DASHBOARD_PREFIX}/tasks/{{}}/retry", actions.retry)
        add(f"{DASHBOARD_PREFIX}/approvals/{{}}", actions.decide)
        add(f"{DASHBOARD_PREFIX}/agents/{{}}/send", actions.send, max_bytes=MAX_UPLOAD_BYTES)
        add(f"{DASHBOARD_PREFIX}/objectives/{{}}/{{}}", self._objectives.act)
        add(
            f"{DASHBOARD_PREFIX}/objectives/{{}}/edit/{{}}",
            self._objectives.edit,
            read_conflict=self._objectives.read_conflict,
            template="edit.html",
        )
        add(f"{DASHBOARD_PREFIX}/deliveries/{{}}/redeliver", self._deliveries.redeliver)
        add(f"{DASHBOARD_PREFIX}/remote/{{}}/check", self._remote.check)
        add(f"{DASHBOARD_PREFIX}/remote/{{}}/send", self._remote.send)
        add(f"{DASHBOARD_PREFIX}/callers", self._callers.create)
        add(f"{DASHBOARD_PREFIX}/callers/{{}}/revoke", self._callers.revoke)

    async def _list_calls(self) -> Sequence[Call]:
        if self._calls is None:
            return ()
        return await self._calls.service.list_calls(limit=_MAX_CALLS, with_purged=True)

    async def _find_objective_name(self, objective_id: str) -> str:
        admin = None if self._plans is None else self._plans.admin
        return "" if admin is None else await admin.find_name(objective_id)

    def _rpc_url(self, account_id: AccountId) -> tuple[str, bool]:
        if not self._endpoints:
            return "", False
        found = (one for one in self._endpoints if one.account.id == account_id)
        endpoint = next(found, self._endpoints[0])
        url = account_url(endpoint.account, endpoint.account.json_rpc_path)
        return url, endpoint.authenticator.needs_token

    def _session_url(self, binding: Binding) -> str:
        """The session in the Control UI of an OpenClaw gateway; empty for other agents."""
        known = self._settings.agents.get(binding.agent_id)
        is_supplied = binding.agent_id in self._supplied_agents
        if known is None or is_supplied or known.adapter != "openclaw-gateway":
            return ""
        address = urlsplit(str(known.options.get("url", "ws://127.0.0.1:18789")))
        scheme = "https" if address.scheme in ("wss", "https") else "http"
        # Without what may stand before the host: credentials.
        place = f"{scheme}://{address.netloc.rpartition('@')[2]}{address.path.rstrip('/')}"
        return f"{place}/chat?{urlencode({'session': binding.session_key})}"

    def _list_agents(self) -> list[AgentView]:
        return [self._view_agent(endpoint) for endpoint in self._endpoints]

    def _view_agent(self, endpoint: AccountEndpoint) -> AgentView:
        account, agent_id = endpoint.account, endpoint.account.default_agent_id
        agent = endpoint.engine.agents[agent_id]
        reason = agent.unavailable_reason() if isinstance(agent, SupportsAvailability) else None
        is_supplied = agent_id in self._supplied_agents
        known = None if is_supplied else self._settings.agents.get(agent_id)
        return AgentView(
            account=account.id,
            agent=agent_id,
            adapter="python" if known is None else known.adapter,
            is_available=reason is None,
            card=endpoint.card.current(),
            card_url=account_url(account, account.agent_card_path),
            reason=reason or "",
            needs_token=endpoint.authenticator.needs_token,
        )


@cache
def _find_schema(kind: StoreKind) -> int | None:
    """The version of the tables of a store that is open: opening it has upgraded them."""
    if kind not in (StoreKind.SQLITE, StoreKind.POSTGRES):
        return None
    from openclaw_a2a.store.sqlite.migrate import load_migrations

    return load_migrations(f"openclaw_a2a.store.{kind.value}")[-1].version
