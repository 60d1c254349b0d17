"""The doors of one account, with an agent and a planning that the test conducts."""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
from tests.conformance.asgi_door import Answer, Asked, Door
from tests.conformance.scripted_agent import ScriptedAgent
from tests.conformance.wire_clients import encode_call
from tests.opt.scripted_planning import ScriptedPlanning

from openclaw_a2a.agents import AgentRegistry
from openclaw_a2a.app.gateway import SystemClock
from openclaw_a2a.app.push import Push
from openclaw_a2a.inbound import door as inbound
from openclaw_a2a.inbound.cards import LiveCard, build_card
from openclaw_a2a.inbound.identity import Callers
from openclaw_a2a.inbound.opt_desk import URI, plan_extension
from openclaw_a2a.inbound.patience import Patience
from openclaw_a2a.inbound.rate import RateLimit
from openclaw_a2a.inbound.router import Router
from openclaw_a2a.inbound.streams import Streams
from openclaw_a2a.model.ids import AgentId
from openclaw_a2a.model.reply import Reply
from openclaw_a2a.runtime.engine import Engine, EngineLimits
from openclaw_a2a.runtime.ids import new_id
from openclaw_a2a.runtime.lane import LaneLimits, Lanes
from openclaw_a2a.runtime.turn import AccountRules
from openclaw_a2a.settings import load_settings
from openclaw_a2a.store import open_store

Json = Any


@dataclass
class House:
    """One account's doors, and everything behind them."""

    door: Door
    agent: ScriptedAgent
    planning: ScriptedPlanning
    engine: Engine
    streams: Streams

    @property
    def activated(self) -> Door:
        """The door for a client that activates the extension."""
        return self.door.with_headers(a2a_extensions=URI)

    async def rpc(self, method: str, params: Json, **headers: str) -> Json:
        """The answer to a JSON-RPC call of a client that activates the extension."""
        return (await post(self.activated, method, params, **headers)).json


async def post(door: Door, method: str, params: Json, **headers: str) -> Answer:
    """The whole answer to a JSON-RPC call."""
    return await door.post("/a2a/jsonrpc", encode_call(method, params), **headers)


async def ask(door: Door, line: str, body: bytes | None = None) -> Answer:
    """The whole answer to an HTTP+JSON request such as `GET /objectives`."""
    method, _, path = line.partition(" ")
    headers = {} if body is None else {"content-type": "application/json"}
    if body is not None:
        headers["content-length"] = str(len(body))
    return await door.ask(Asked(method, "/a2a/rest" + path, headers, (body or b"",)))


class Build(Protocol):
    """Opens the doors of an account."""

    async def __call__(
        self,
        agent: ScriptedAgent | None = None,
        *,
        is_planning: bool = True,
        requires_activation: bool = True,
        settings: Mapping[str, Json] | None = None,
    ) -> House: ...


async def build_house(
    parts: AsyncExitStack,
    data: Path,
    agent: ScriptedAgent | None = None,
    *,
    is_planning: bool = True,
    requires_activation: bool = True,
    settings: Mapping[str, Json] | None = None,
) -> House:
    """The doors of an account; `parts` shut them."""
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
    store = open_store("memory", path=None)
    await store.open()
    parts.push_async_callback(store.close)
    engine = Engine(
        store,
        AgentRegistry({AgentId("main"): agent}),
        lanes=Lanes(LaneLimits()),
        clock=SystemClock(),
        limits=EngineLimits(),
        new_id=new_id,
    )
    parts.push_async_callback(engine.stop)
    planning, streams = ScriptedPlanning(), Streams(loaded.limits.streams, 0.05)
    parts.callback(streams.close_all)
    extension = plan_extension(max_plans=10, max_tasks=50, is_persistent=store.is_durable)
    card = LiveCard(
        account,
        lambda _: build_card(
            account,
            version="1",
            needs_token=False,
            extensions=(extension,) if is_planning else (),
        ),
        lambda: None,
    )
    opened = inbound.Door(
        account=account,
        engine=engine,
        rules=AccountRules(account.id, AgentId("main"), is_task_generating=False),
        card=card,
        callers=Callers((), own_hosts=()),
        rate=RateLimit(0, monotonic=time.monotonic),
        streams=streams,
        patience=Patience(10.0),
        new_id=new_id,
        push=Push(loaded.push, version="1").desk(engine),
        planning=planning if is_planning else None,
        requires_activation=requires_activation,
    )
    return House(Door(Router([opened], [])), agent, planning, engine, streams)


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
        ) -> House:
            return await build_house(
                parts,
                tmp_path,
                agent,
                is_planning=is_planning,
                requires_activation=requires_activation,
                settings=settings,
            )

        yield build_one


@pytest.fixture
async def house(build: Build) -> House:
    """The doors of an account that plans."""
    return await build()
