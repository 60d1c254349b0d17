"""The endpoint of one account, with an agent and a planning service that the test scripts."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
from tests.conformance.asgi_client import AsgiClient, Request, Response
from tests.conformance.protocol_clients import encode_call
from tests.conformance.scripted_agent import ScriptedAgent
from tests.server.objectives.scripted_planning import ScriptedPlanning

from openclaw_a2a.agents import AgentRegistry
from openclaw_a2a.app.wiring.push import PushWiring
from openclaw_a2a.auth.peers import Credentials, PeerAuthenticator
from openclaw_a2a.auth.request_origin import OwnAddresses
from openclaw_a2a.engine.engine import AccountRules, Engine, EngineLimits, SystemClock, new_id
from openclaw_a2a.engine.scheduling.session_queue import QueueLimits, SessionQueues
from openclaw_a2a.http.request_limits import RequestBodies
from openclaw_a2a.http.sse_stream import SseStreams
from openclaw_a2a.model.agent_event import Reply
from openclaw_a2a.model.ids import AgentId
from openclaw_a2a.planning.steps import EXTENSION_URI
from openclaw_a2a.server import account_endpoint as inbound
from openclaw_a2a.server.application import ServerApplication
from openclaw_a2a.server.cards import LiveCard, build_card, objectives_extension
from openclaw_a2a.settings import load_settings
from openclaw_a2a.store import create_store

Json = Any


@dataclass
class ObjectivesServer:
    """The endpoint of one account, and its parts."""

    client: AsgiClient
    agent: ScriptedAgent
    planning: ScriptedPlanning
    engine: Engine
    streams: SseStreams

    @property
    def activated(self) -> AsgiClient:
        """A client that activates the extension."""
        return self.client.with_headers(a2a_extensions=EXTENSION_URI)

    async def rpc(self, method: str, params: Json, **headers: str) -> Json:
        """The answer to a JSON-RPC call of a client that activates the extension."""
        return (await post(self.activated, method, params, **headers)).json


async def post(client: AsgiClient, method: str, params: Json, **headers: str) -> Response:
    """The whole answer to a JSON-RPC call."""
    return await client.post("/a2a/jsonrpc", encode_call(method, params), **headers)


async def ask(client: AsgiClient, line: str, body: bytes | None = None) -> Response:
    """The whole answer to an HTTP+JSON request such as `GET /objectives`."""
    method, _, path = line.partition(" ")
    headers = {} if body is None else {"content-type": "application/json"}
    if body is not None:
        headers["content-length"] = str(len(body))
    return await client.request(Request(method, "/a2a/rest" + path, headers, (body or b"",)))


class Build(Protocol):
    """Builds the endpoint of an account."""

    async def __call__(
        self,
        agent: ScriptedAgent | None = None,
        *,
        is_planning: bool = True,
        requires_activation: bool = True,
        settings: Mapping[str, Json] | None = None,
    ) -> ObjectivesServer: ...


async def build_server(
    parts: AsyncExitStack,
    data: Path,
    agent: ScriptedAgent | None = None,
    *,
    is_planning: bool = True,
    requires_activation: bool = True,
    settings: Mapping[str, Json] | None = None,
) -> ObjectivesServer:
    """The endpoint of an account; `parts` close it."""
    overrides = {
        "data": str(data),
        "store.kind": "memory",
        "push.allowPrivate": True,
        "channels.a2a.accounts.default": {"defaultAgentId": "main", "pushNotifications": True},
        "agents.main.adapter": "echo",
        **(settings or {}),
    }
    loaded = load_settings(overrides=overrides, environ={}).settings
    account, agent = loaded.accounts[0], agent or ScriptedAgent(Reply.of_text("done"))
    store = create_store("memory", path=None)
    await store.open()
    parts.push_async_callback(store.close)
    engine = Engine(
        store,
        AgentRegistry({AgentId("main"): agent}),
        queues=SessionQueues(QueueLimits()),
        clock=SystemClock(),
        limits=EngineLimits(),
        new_id=new_id,
    )
    parts.push_async_callback(engine.stop)
    planning, streams = ScriptedPlanning(), SseStreams(loaded.limits.streams, 0.05)
    parts.callback(streams.close_all)
    extension = objectives_extension(max_plans=10, max_tasks=50, is_persistent=store.is_durable)
    card = LiveCard(
        account,
        lambda _: build_card(
            account,
            version="1",
            extensions=(extension,) if is_planning else (),
        ),
        lambda: None,
    )
    opened = inbound.AccountEndpoint(
        account=account,
        engine=engine,
        rules=AccountRules(account.id, AgentId("main"), is_task_generating=False),
        card=card,
        authenticator=PeerAuthenticator(Credentials(), OwnAddresses()),
        admission=None,
        streams=streams,
        bodies=RequestBodies(10.0),
        new_id=new_id,
        push=PushWiring(loaded.push, version="1").config_service(engine),
        planning=planning if is_planning else None,
        requires_activation=requires_activation,
    )
    return ObjectivesServer(
        AsgiClient(ServerApplication([opened], [])), agent, planning, engine, streams
    )


@pytest.fixture
async def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Build]:
    monkeypatch.chdir(tmp_path)
    async with AsyncExitStack() as parts:

        async def build_one(
            agent: ScriptedAgent | None = None,
            *,
            is_planning: bool = True,
            requires_activation: bool = True,
            settings: Mapping[str, Json] | None = None,
        ) -> ObjectivesServer:
            return await build_server(
                parts,
                tmp_path,
                agent,
                is_planning=is_planning,
                requires_activation=requires_activation,
                settings=settings,
            )

        yield build_one


@pytest.fixture
async def server(build: Build) -> ObjectivesServer:
    """The endpoint of an account with planning."""
    return await build()
