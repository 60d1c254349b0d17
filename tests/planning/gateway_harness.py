"""A gateway whose agents execute steps as a test scripts them."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from tests.conformance.asgi_client import TIMEOUT_S, AsgiClient, Request
from tests.conformance.conftest import make_gateway

from openclaw_a2a.app import Gateway
from openclaw_a2a.model.agent_event import AgentEvent, InputRequired, Reply
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.planning.steps import EXTENSION_URI
from openclaw_a2a.ports import Clock, Recovery, Store

Json = Any
Work = Callable[[Turn], Awaitable[str | AgentEvent]]


class ScriptedWorker:
    """An agent that executes steps as the test says, and records them."""

    def __init__(self, recovery: Recovery = Recovery.REPEAT) -> None:
        self.recovery = recovery
        self.turns: list[Turn] = []
        self.work: Work = self.done

    async def done(self, turn: Turn) -> str:
        return f"did {first_line(turn)}"

    async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        self.turns.append(turn)
        said = await self.work(turn)
        yield Reply.of_text(said) if isinstance(said, str) else said

    async def close(self) -> None:
        """Nothing is held."""

    @property
    def asked(self) -> list[str]:
        """The first lines of its messages."""
        return [first_line(turn) for turn in self.turns]


def first_line(turn: Turn) -> str:
    """The name of a step."""
    return turn.body.partition("\n")[0]


class PlanningHarness:
    """One gateway at a time over one folder."""

    def __init__(self, folder: Path, kind: str = "sqlite") -> None:
        self.folder = folder
        self.kind = kind
        self.workers = {name: ScriptedWorker() for name in ("main", "helper", "person")}
        self.gateway: Gateway | None = None
        self.clock: Clock | None = None
        """The clock of the next gateway; None for the clock of the machine."""
        self.store: Store | None = None
        """The store of the next gateway; None for one of this kind in the folder."""
        self._running = AsyncExitStack()
        self._number = 0

    async def open(self, settings: Mapping[str, Json] | None = None) -> None:
        """Start the gateway."""
        self.gateway = self.make(settings or {})
        await self._running.enter_async_context(self.gateway)

    def make(self, settings: Mapping[str, Json]) -> Gateway:
        """A gateway with these settings."""
        return make_gateway(
            self.workers,
            data=self.folder,
            clock=self.clock,
            store=self.store,
            settings={
                "store.kind": self.kind,
                "limits.cancelSeconds": 1,
                "opt.enabled": True,
                "opt.backoffSeconds": 0.01,
                **settings,
            },
        )

    async def close(self) -> None:
        """Stop the gateway; unfinished work stays in the store."""
        await self._running.aclose()

    async def reopen(self, settings: Mapping[str, Json] | None = None) -> None:
        """Stop the gateway and start it again."""
        await self.close()
        await self.open(settings)

    @property
    def client(self) -> AsgiClient:
        assert self.gateway is not None
        return AsgiClient(self.gateway.asgi, {"a2a-extensions": EXTENSION_URI})

    async def ask(self, method: str, params: Json) -> Json:
        """The whole answer to a JSON-RPC request."""
        self._number += 1
        body = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        encoded = json.dumps(body).encode()
        headers = {"content-type": "application/json", "content-length": str(len(encoded))}
        asked = Request("POST", "/a2a/jsonrpc", headers, (encoded,))
        return (await self.client.request(asked)).json

    async def call(self, method: str, **params: Json) -> Json:
        """The result of a method that succeeds."""
        answer = await self.ask(method, params)
        assert "result" in answer, answer
        return answer["result"]

    async def fail(self, method: str, **params: Json) -> Json:
        """The error of a method that fails."""
        answer = await self.ask(method, params)
        assert "error" in answer, answer
        return answer["error"]

    async def objective(self, name: str = "goal", **more: Json) -> str:
        """The id of a new objective."""
        made = await self.call("objectives/create", name=name, **more)
        return made["objective"]["id"]

    async def plan(self, objective_id: str, tasks: list[Json], **more: Json) -> Json:
        """A new plan."""
        plan = {"objectiveId": objective_id, "name": "plan", "tasks": tasks, **more}
        return (await self.call("plans/create", **plan))["plan"]

    async def get(self, objective_id: str) -> Json:
        """An objective as it is now."""
        return (await self.call("objectives/get", id=objective_id))["objective"]

    async def until(self, objective_id: str, condition: Callable[[Json], bool]) -> Json:
        """The objective, once the condition holds."""
        with anyio.fail_after(TIMEOUT_S):
            while True:
                found = await self.get(objective_id)
                if condition(found):
                    return found
                await asyncio.sleep(0.005)  # it is asked again until then

    async def until_task(self, task_id: str, condition: Callable[[Json], bool]) -> Json:
        """The task, once the condition holds."""
        with anyio.fail_after(TIMEOUT_S):
            while True:
                found = await self.call("GetTask", id=task_id)
                if condition(found):
                    return found
                await asyncio.sleep(0.005)  # it is asked again until then

    async def ends(self, objective_id: str, status: str = "completed") -> Json:
        """The objective, once it has this status."""
        return await self.until(objective_id, lambda one: one["status"] == status)


def asks(question: str) -> AgentEvent:
    """A step that needs an answer."""
    return InputRequired(question)


@asynccontextmanager
async def planning_harness_in(
    folder: Path, kind: str = "sqlite"
) -> AsyncGenerator[PlanningHarness]:
    """A harness whose gateway is stopped at the end of the block."""
    harness = PlanningHarness(folder, kind)
    try:
        yield harness
    finally:
        await harness.close()
