"""What the doors need of planning, and when a request may use it."""

from collections.abc import AsyncIterator, Callable
from typing import Protocol

from openclaw_a2a.inbound.http import Exchange
from openclaw_a2a.model.card import AgentExtension
from openclaw_a2a.model.delivery import Delivery
from openclaw_a2a.model.ids import Json, JsonObject, TaskId
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.runtime.submit import FromInside
from openclaw_a2a.runtime.turn import AccountRules

URI = "https://github.com/zeroasterisk/a2a-opt/v1"
"""By what the extension of objectives, plans and tasks is known."""

URIS = frozenset({URI, "https://a2a-protocol.org/extensions/objective-plan-task/v1"})
"""All names it is activated by."""

SUBSCRIBE = "objectives/subscribe"
"""The one method that answers with a stream."""

_HEADERS = (b"a2a-extensions", b"x-a2a-extensions")


class Change(Protocol):
    """One change of an objective, for those who follow it."""

    @property
    def sequence(self) -> int:
        """Its number; a reader who comes back goes on after it."""
        ...

    @property
    def body(self) -> JsonObject:
        """What a reader is shown."""
        ...


class Taken(Protocol):
    """A message that belongs to an objective, as it is to be submitted."""

    @property
    def message(self) -> Message:
        """The message in the objective's context."""
        ...

    @property
    def inside(self) -> FromInside | None:
        """What is particular to the task that it starts."""
        ...

    @property
    def follow(self) -> Callable[[TaskId, int], Delivery] | None:
        """Makes the delivery that tells the objective about the task."""
        ...

    @property
    def answers(self) -> TaskId | None:
        """The task that it goes on with; None when it starts one."""
        ...


class PlanningDoor(Protocol):
    """Objectives, plans and their tasks, as callers use them."""

    METHODS: frozenset[str]
    """The methods that answer with one result."""

    async def call(self, method: str, params: Json, scope: Scope) -> JsonObject:
        """The result of a method. Raises: what planning refuses."""
        ...

    async def follow(self, params: Json, scope: Scope, cursor: int | None) -> AsyncIterator[Change]:
        """The objective as it is (without a cursor), then every change.

        Raises: what planning refuses.
        """
        ...

    async def take_message(
        self, message: Message, scope: Scope, rules: AccountRules
    ) -> Taken | None:
        """Find or make the place of a message; None when it has nothing to do with an objective.

        The same message again must find the same place. Raises: what planning refuses.
        """
        ...


def activate(exchange: Exchange) -> None:
    """Let the answer say which names of the extension were asked for, in the same headers."""
    for name in _HEADERS:
        asked = [uri for uri in dict.fromkeys(exchange.listed(name)) if uri in URIS]
        if asked:
            exchange.echoes.append((name, ", ".join(asked).encode("ascii")))


def is_activated(exchange: Exchange) -> bool:
    """True when the request asked for the extension."""
    return any(name in _HEADERS for name, _ in exchange.echoes)


def plan_extension(*, max_plans: int, max_tasks: int, is_persistent: bool) -> AgentExtension:
    """What a card says of the extension."""
    params: JsonObject = {
        "maxPlansPerObjective": max_plans,
        "maxTasksPerPlan": max_tasks,
        "persistenceEnabled": is_persistent,
    }
    return AgentExtension(URI, required=False, params=params)
