"""Availability of agents, the list of agents, and the health endpoints."""

from collections.abc import Iterable

import anyio
import msgspec

from openclaw_a2a.auth.request_origin import is_loopback_client, is_proxied
from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.engine_state import EngineState
from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.http.asgi import HttpRequest
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import AccountId, AgentId
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.ports import Agent, SupportsAvailability
from openclaw_a2a.server.account_endpoint import AccountEndpoint

_POLL_S = 0.01
_NO_NOTIFICATIONS = (
    "no notifications of the database arrive, so changes at other replicas are seen late; connect "
    "to PostgreSQL itself, or to a pooler in session mode"
)
_STORE_FAILS = "the store takes no writes; the log of the gateway says why"


class AgentAvailability(JsonStruct, frozen=True):
    """Whether the agent of an account is available; `reason` says why it is not."""

    account: AccountId
    agent: AgentId
    name: str
    is_available: bool = msgspec.field(name="available")
    reason: str | None = None


class Availability:
    """The availability of every account's agent."""

    def __init__(self, endpoints: Iterable[AccountEndpoint]) -> None:
        self._endpoints = list(endpoints)

    def current(self) -> list[AgentAvailability]:
        """The agent of each account now, in the order of the accounts."""
        found: list[AgentAvailability] = []
        for endpoint in self._endpoints:
            account, reason = endpoint.account, _unavailable_reason(_agent(endpoint))
            is_available = reason is None
            # Reasons name addresses of this machine; not shown where callers need a token.
            if reason and endpoint.authenticator.needs_token:
                reason = "it is not available"
            name, agent_id = endpoint.card.current().name, account.default_agent_id
            found.append(AgentAvailability(account.id, agent_id, name, is_available, reason))
        return found

    def unavailable_reasons(self) -> tuple[str, ...]:
        """Why agents are unavailable now, each reason once."""
        found = [_unavailable_reason(_agent(endpoint)) for endpoint in self._endpoints]
        return tuple(dict.fromkeys(reason for reason in found if reason))

    async def wait_settled(self, within_s: float) -> None:
        """Wait shortly, so that agents can notice that they are unavailable."""
        agents = [_agent(endpoint) for endpoint in self._endpoints]
        if not any(isinstance(agent, SupportsAvailability) for agent in agents):
            return
        # Polled: an agent finds out by itself that it is unavailable, and signals nothing.
        for _ in range(round(within_s / _POLL_S)):
            if any(_unavailable_reason(agent) for agent in agents):
                return
            await anyio.sleep(_POLL_S)

    async def list_agents(self, request: HttpRequest) -> None:
        """GET /agents: the public cards, and the availability of the agents."""
        cards = b",".join(endpoint.card.v1_json(request) for endpoint in self._endpoints)
        states = msgspec.json.encode(self.current())
        await request.respond(200, b'{"agents":[' + cards + b'],"states":' + states + b"}")


def _agent(endpoint: AccountEndpoint) -> Agent:
    return endpoint.engine.agents[endpoint.account.default_agent_id]


def _unavailable_reason(agent: Agent) -> str | None:
    """Why the agent is unavailable; None when it is available, or does not know."""
    return agent.unavailable_reason() if isinstance(agent, SupportsAvailability) else None


def _is_deaf(engine: Engine) -> bool:
    replicas = engine.store.replicas
    return replicas is not None and replicas.are_notifications_missing


class Health:
    """`/healthz`: the process answers. `/readyz`: it can do its work."""

    def __init__(
        self,
        engines: Iterable[Engine],
        availability: Availability,
        *,
        version: str,
        supervisors: Iterable[Supervisor] = (),
    ) -> None:
        """`supervisors` are those of background loops outside the engines."""
        self._engines = list(engines)
        self._supervisors = [*(engine.supervisor for engine in self._engines), *supervisors]
        self._availability = availability
        self._version = version

    async def healthz(self, request: HttpRequest) -> None:
        """Always ok."""
        await request.respond(200, msgspec.json.encode({"status": "ok", "version": self._version}))

    async def readyz(self, request: HttpRequest) -> None:
        """Ready when messages can be accepted and every background loop runs.

        Unavailable agents are listed and do not make the gateway unready: the other agents can
        answer, and these may come back.
        """
        reasons: list[str] = []
        for engine in self._engines:
            # 503 from the first signal on: load balancers stop sending requests while the runs end.
            if engine.state is not EngineState.SERVING:
                reasons.append("the gateway is stopping")
            try:
                await engine.store.check()
            except GatewayError as error:
                # The message names a path, and this page is readable without a token.
                is_local = is_loopback_client(request) and not is_proxied(request)
                reasons.append(error.message if is_local else _STORE_FAILS)
        for supervisor in self._supervisors:
            # The error itself stays in the log: this page is readable without a token.
            reasons += [
                f"the background loop {name} does not work; see the log and restart the gateway"
                for name in supervisor.dead_loops
            ]
        agents = self._availability.current()
        warnings = [_NO_NOTIFICATIONS for engine in self._engines if _is_deaf(engine)]
        body = {"ready": not reasons, "reasons": reasons, "agents": agents}
        if warnings:
            body["warnings"] = warnings
        await request.respond(503 if reasons else 200, msgspec.json.encode(body))
