"""Read model of remote agents: their cards, whether they answer, and the tasks followed there."""

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from openclaw_a2a.dashboard.agents_page import CardProblem
from openclaw_a2a.dashboard.requests import (
    ActionRequest,
    ActionResult,
    PageRequest,
    read_form_text,
)
from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.model.errors import RouteNotFound
from openclaw_a2a.model.message import JsonStruct

_REFRESH_S = 30.0
"""How often agents that do not answer are asked again while the page is open."""
_WAIT_S = 0.3
_MAX_TASKS = 200


class CircuitView(JsonStruct, frozen=True, omit_defaults=False):
    """The circuit breaker of an agent: `closed`, `open` until a time, or `half-open`."""

    state: str
    failures: int
    opens_until: datetime | None
    reason: str


class RemoteAgentView(JsonStruct, frozen=True, omit_defaults=False):
    """A configured remote agent.

    `is_reachable` is None before its card was first asked for; `error` says why it is not.
    `interfaces` are all that its card offers; the one that is used has `transport`, `version` and
    `address`. `seconds` is how long the card took.
    """

    alias: str
    url: str
    name: str
    description: str
    is_default: bool
    auth: str
    is_reachable: bool | None
    checked_at: datetime | None
    error: str
    seconds: float | None
    transport: str
    version: str
    address: str
    interfaces: tuple[str, ...]
    is_streaming: bool | None
    skills: tuple[str, ...]
    has_card: bool
    card_problems: tuple[CardProblem, ...]
    circuit: CircuitView


class FollowedTask(JsonStruct, frozen=True, omit_defaults=False):
    """A task at a remote agent in its last known state.

    `owner` is the caller that it belongs to; empty if there is none. `handle` stands for it in
    requests of its owner until `expires_at`.
    """

    handle: str
    target: str
    task_id: str
    context_id: str
    state: str
    text: str
    owner: str
    updated_at: datetime
    expires_at: datetime


class RemoteAgentsPage(JsonStruct, frozen=True, omit_defaults=False):
    """The page. `is_enabled`: the gateway calls remote agents. `is_cut`: there are more tasks."""

    is_enabled: bool
    agents: tuple[RemoteAgentView, ...]
    tasks: tuple[FollowedTask, ...]
    is_cut: bool = False


class RemoteSource(Protocol):
    """What the gateway knows of remote agents."""

    def agents(self) -> Sequence[RemoteAgentView]:
        """The configured ones, as they are known."""
        ...

    def tasks(self) -> Sequence[FollowedTask]:
        """The tasks there, most recently used first."""
        ...

    async def refresh(self) -> None:
        """Ask for the cards that are old or failed. What fails is in `agents`."""
        ...

    async def check(self, alias: str) -> None:
        """Ask for the card of one now."""
        ...

    async def send(self, alias: str, text: str) -> "RemoteAnswer":
        """Send a message to one, as the operator, and wait a while. What fails is in the answer."""
        ...


class RemoteAnswer(msgspec.Struct, frozen=True):
    """What came of a message: the text and state of a task, a direct answer, or an error."""

    text: str = ""
    state: str = ""
    error: str = ""


class RemoteAgentReader:
    """Makes the page. Without a `source` the gateway calls no remote agents.

    An agent that takes long to answer delays no page: it shows what was known before.
    """

    def __init__(self, source: RemoteSource | None, supervisor: Supervisor) -> None:
        self._source = source
        self._supervisor = supervisor
        self._asked_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    async def list(self, _: PageRequest) -> JsonStruct:
        """The page."""
        source = self._source
        if source is None:
            return RemoteAgentsPage(is_enabled=False, agents=(), tasks=())
        await self._refresh(source)
        tasks = source.tasks()
        return RemoteAgentsPage(
            is_enabled=True,
            agents=tuple(source.agents()),
            tasks=tuple(tasks[:_MAX_TASKS]),
            is_cut=len(tasks) > _MAX_TASKS,
        )

    async def check(self, request: ActionRequest) -> ActionResult:
        """Ask one agent for its card now. Raises: RouteNotFound."""
        source, alias = self._find_source(request)
        with request.audited("operator-action", action="dashboard/check"):
            await source.check(alias)
        found = _find_agent(source, alias)
        problem = "" if found is None else found.error
        done = f"{alias} does not answer: {problem}" if problem else f"{alias} answers."
        return ActionResult(done, "/dashboard/remote", alias, is_bad=bool(problem))

    async def send(self, request: ActionRequest) -> ActionResult:
        """Try an agent: send it a message. Raises: RouteNotFound, InvalidParams."""
        source, alias = self._find_source(request)
        text = read_form_text(request)
        with request.audited("operator-action", action="dashboard/send"):
            answer = await source.send(alias, text)
        if answer.error:
            message = f"{alias} did not answer: {answer.error}"
            return ActionResult(message, "", alias, is_bad=True)
        said = answer.text or "it said nothing"
        state = f" ({answer.state})" if answer.state else ""
        return ActionResult(f"{alias}{state}: {said}", "", alias)

    def _find_source(self, request: ActionRequest) -> tuple[RemoteSource, str]:
        alias, source = request.segments[0], self._source
        if source is None or _find_agent(source, alias) is None:
            raise RouteNotFound(f"there is no remote agent {alias[:80]}; see the list of them")
        return source, alias

    async def _refresh(self, source: RemoteSource) -> None:
        now = time.monotonic()
        if self._asking is None and now - self._asked_at >= _REFRESH_S:
            self._asked_at = now
            self._asking = self._supervisor.spawn("dashboard-remote", self._ask(source))
        if self._asking is not None:
            await asyncio.wait({self._asking}, timeout=_WAIT_S)

    async def _ask(self, source: RemoteSource) -> None:
        try:
            await source.refresh()
        finally:
            self._asking = None


def _find_agent(source: RemoteSource, alias: str) -> RemoteAgentView | None:
    return next((one for one in source.agents() if one.alias == alias), None)
