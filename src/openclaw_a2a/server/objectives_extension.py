"""What the doors need of planning, and when a request may use it."""

from collections.abc import AsyncIterator, Callable
from typing import Protocol

from openclaw_a2a.engine.tasks.submit import InternalOrigin
from openclaw_a2a.engine.tasks.turn_builder import AccountRules
from openclaw_a2a.http.asgi import HttpRequest
from openclaw_a2a.model.card import AgentExtension
from openclaw_a2a.model.delivery import Delivery
from openclaw_a2a.model.ids import Json, JsonObject, TaskId
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.planning.step_message import EXTENSION_URI, EXTENSION_URIS

SUBSCRIBE = "objectives/subscribe"
"""The one method that answers with a stream."""

_HEADERS = (b"a2a-extensions", b"x-a2a-extensions")


class ObjectiveChange(Protocol):
    """One change of an objective, for those who follow it."""

    @property
    def sequence(self) -> int:
        """Its number; a reader who comes back goes on after it."""
        ...

    @property
    def body(self) -> JsonObject:
        """What a reader is shown."""
        ...


class RoutedMessage(Protocol):
    """A message that belongs to an objective, as it is to be submitted."""

    @property
    def message(self) -> Message:
        """The message in the objective's context."""
        ...

    @property
    def origin(self) -> InternalOrigin | None:
        """What is particular to the task that it starts."""
        ...

    @property
    def make_delivery(self) -> Callable[[TaskId, int], Delivery] | None:
        """Makes the delivery that tells the objective about the task."""
        ...

    @property
    def answered_task_id(self) -> TaskId | None:
        """The task that it goes on with; None when it starts one."""
        ...


class PlanningService(Protocol):
    """Objectives, plans and their tasks, as callers use them."""

    METHODS: frozenset[str]
    """The methods that answer with one result."""

    async def call(self, method: str, params: Json, scope: Scope) -> JsonObject:
        """The result of a method. Raises: what planning refuses."""
        ...

    async def subscribe(
        self, params: Json, scope: Scope, cursor: int | None
    ) -> AsyncIterator[ObjectiveChange]:
        """The objective as it is (without a cursor), then every change.

        Raises: what planning refuses.
        """
        ...

    async def route_message(
        self, message: Message, scope: Scope, rules: AccountRules
    ) -> RoutedMessage | None:
        """Find or make the place of a message; None when it has nothing to do with an objective.

        The same message again must find the same place. Raises: what planning refuses.
        """
        ...


def activate_extension(exchange: HttpRequest) -> None:
    """Let the answer say which names of the extension were asked for, in the same headers."""
    for name in _HEADERS:
        asked = [uri for uri in dict.fromkeys(exchange.header_items(name)) if uri in EXTENSION_URIS]
        if asked:
            exchange.response_headers.append((name, ", ".join(asked).encode("ascii")))


def is_extension_activated(exchange: HttpRequest) -> bool:
    """True when the request asked for the extension."""
    return any(name in _HEADERS for name, _ in exchange.response_headers)


def objectives_extension(*, max_plans: int, max_tasks: int, is_persistent: bool) -> AgentExtension:
    """What a card says of the extension."""
    params: JsonObject = {
        "maxPlansPerObjective": max_plans,
        "maxTasksPerPlan": max_tasks,
        "persistenceEnabled": is_persistent,
    }
    return AgentExtension(EXTENSION_URI, required=False, params=params)
