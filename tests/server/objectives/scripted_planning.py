"""A planning service whose results the test scripts, for tests of the endpoints."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from openclaw_a2a.engine.engine import AccountRules
from openclaw_a2a.engine.tasks.submit import InternalOrigin
from openclaw_a2a.model.delivery import Delivery, delivery_id
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import ContextId, JsonObject, SessionKey, TaskId
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.planning.message_routing import RoutedMessage

Json = Any
NOW = datetime(2026, 1, 5, 10, tzinfo=UTC)
METHODS = frozenset(
    {
        *[f"objectives/{verb}" for verb in ("create", "get", "list", "update", "replan", "delete")],
        *[f"plans/{verb}" for verb in ("create", "get", "update", "addTasks")],
        *[f"{root}/{verb}" for root in ("objectives", "plans") for verb in ("run", "pause")],
        "objectives/resume",
        "plans/resume",
    }
)


class Change(msgspec.Struct, frozen=True):
    """One change of an objective."""

    sequence: int
    content: Json

    @property
    def body(self) -> bytes:
        return msgspec.json.encode(self.content)


@dataclass(frozen=True)
class Asked:
    """One call that an endpoint made."""

    method: str
    params: Json
    scope: Scope


Take = Callable[[Message], RoutedMessage | None]


class ScriptedPlanning:
    """Records the calls, and returns what the test scripted."""

    METHODS: frozenset[str] = METHODS

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.taken: list[Message] = []
        self.cursors: list[int | None] = []
        self.result: JsonObject = {"objective": {"id": "obj-1"}}
        self.error: Exception | None = None
        self.take: Take = lambda _: None
        self.changes: asyncio.Queue[Change | GatewayError | None] = asyncio.Queue()
        self.open_followers = 0

    async def call(
        self,
        method: str,
        params: Json,
        scope: Scope,
        *,
        address: str = "",
        is_from_peer: bool = False,
        agents: frozenset[str] | None = None,
    ) -> JsonObject:
        self.asked.append(Asked(method, params, scope))
        if self.error is not None:
            raise self.error
        return self.result

    async def subscribe(
        self, params: Json, scope: Scope, cursor: int | None
    ) -> "ScriptedSubscription":
        self.asked.append(Asked("objectives/subscribe", params, scope))
        self.cursors.append(cursor)
        if self.error is not None:
            raise self.error
        return ScriptedSubscription(self)

    async def route_message(
        self, message: Message, scope: Scope, rules: AccountRules
    ) -> RoutedMessage | None:
        self.taken.append(message)
        if self.error is not None:
            raise self.error
        return self.take(message)


class ScriptedSubscription:
    """Hands over the changes that the test put into the queue."""

    def __init__(self, planning: ScriptedPlanning) -> None:
        self._planning = planning
        self.is_over = False
        planning.open_followers += 1

    def stop(self) -> None:
        self.is_over = True
        self._planning.changes.put_nowait(None)

    async def next_events(self, wait_s: float) -> list[Change]:
        try:
            async with asyncio.timeout(wait_s):
                change = await self._planning.changes.get()
        except TimeoutError:
            return []
        if isinstance(change, GatewayError):
            raise change
        self.is_over = self.is_over or change is None
        return [] if change is None else [change]

    def close(self) -> None:
        self._planning.open_followers -= 1


def into_objective(
    objective_id: str, *, answers: Callable[[], str] | None = None
) -> Callable[[Message], RoutedMessage]:
    """Routes every message to the first step of one plan."""

    def take(message: Message) -> RoutedMessage:
        placed = msgspec.structs.replace(message, context_id=ContextId(objective_id))
        if answers is not None:
            return RoutedMessage(msgspec.structs.replace(placed, task_id=TaskId(answers())))
        metadata = {
            "opt/v1/objectiveId": objective_id,
            "opt/v1/planId": "plan-1",
            "opt/v1/taskIndex": 0,
        }
        key = SessionKey(f"agent:main:a2a:obj:{objective_id}")
        return RoutedMessage(placed, InternalOrigin(key, metadata=metadata), _delivery)

    return take


def _delivery(task_id: TaskId, cursor: int) -> Delivery:
    name = delivery_id("plan", task_id, "obj")
    return Delivery(name, "plan", task_id, b"{}", cursor, NOW, NOW, NOW)
