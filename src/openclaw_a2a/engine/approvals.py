"""Approvals: the commands of agents, and held tasks, that wait for the operator's decision.

A held task is decided, and its message released, in `tasks/held_tasks.py`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import msgspec

from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.agent_event import Approval
from openclaw_a2a.model.errors import AgentUnavailable, ApprovalNotFound, GatewayError
from openclaw_a2a.model.ids import AgentId
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.ports import SupportsApprovals

log = get_logger(__name__)

_Result = TypeVar("_Result")
_FRESH_S = 1.0
_WAIT_S = 0.3
FindAgents = Callable[[], Mapping[AgentId, SupportsApprovals]]
"""The agents that support approvals now."""


class WaitingApproval(Approval, frozen=True, kw_only=True):
    """An approval and the agent that waits for it."""

    agent: AgentId


class AgentProblem(JsonStruct, frozen=True):
    """An agent that did not answer, and why."""

    agent: AgentId
    reason: str


class ApprovalList(JsonStruct, frozen=True, omit_defaults=False):
    """The waiting approvals, oldest first, and the agents that did not answer."""

    approvals: tuple[WaitingApproval, ...]
    troubles: tuple[AgentProblem, ...] = ()


class ApprovalService:
    """Lists and decides approvals. A failing agent does not hide those of the others."""

    def __init__(self, find_agents: FindAgents, *, timeout_s: float = 10.0) -> None:
        self._find_agents = find_agents
        self._timeout_s = timeout_s

    async def list(self) -> ApprovalList:
        """All approvals that wait."""
        agents = self._find_agents()
        answers = await asyncio.gather(*[self._list_agent(*one) for one in agents.items()])
        waiting: dict[str, WaitingApproval] = {}
        for approvals in answers:
            if not isinstance(approvals, AgentProblem):
                # Agents behind one OpenClaw all list the same approvals.
                waiting |= {one.id: one for one in approvals if one.id not in waiting}
        in_order = sorted(waiting.values(), key=lambda one: (one.asked_at, one.id))
        problems = tuple(one for one in answers if isinstance(one, AgentProblem))
        return ApprovalList(tuple(in_order), problems)

    async def decide(self, approval_id: str, *, allow: bool) -> AgentId:
        """Allow or deny one command, once; the agent that waited for it.

        Raises: ApprovalNotFound, ApprovalOver, AgentUnavailable.
        """
        unavailable: list[str] = []
        for agent_id, agent in self._find_agents().items():
            try:
                await self._with_timeout(agent_id, agent.decide(approval_id, allow=allow))
            except ApprovalNotFound:
                continue
            except AgentUnavailable as error:
                unavailable.append(f"{agent_id}: {error.message}")
                continue
            log.info("approvals.decided", approval_id=approval_id, agent_id=agent_id, allow=allow)
            return agent_id
        if unavailable:
            raise AgentUnavailable(
                f"approval {approval_id[:80]} is at no agent that answers; {'; '.join(unavailable)}"
            )
        raise ApprovalNotFound(
            f"nobody waits for a decision on {approval_id[:80]}; list the approvals there are"
        )

    async def _list_agent(
        self, agent_id: AgentId, agent: SupportsApprovals
    ) -> tuple[WaitingApproval, ...] | AgentProblem:
        try:
            found = await self._with_timeout(agent_id, agent.approvals())
        except GatewayError as error:
            return AgentProblem(agent_id, error.message)
        except Exception as error:  # an error in one agent must not hide the others
            log.exception("approvals.agent_failed", agent_id=agent_id)
            return AgentProblem(agent_id, f"it failed: {type(error).__name__}")
        return tuple(
            WaitingApproval(**msgspec.structs.asdict(one), agent=agent_id) for one in found
        )

    async def _with_timeout(self, agent_id: AgentId, work: Awaitable[_Result]) -> _Result:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await work
        except TimeoutError:
            raise AgentUnavailable(
                f"agent {agent_id} did not answer within {self._timeout_s:g} s; "
                "list the approvals to see what is decided"
            ) from None


class ApprovalCache:
    """A cache of the pending approvals, read from the agents at most once a second.

    A slow agent delays no reader: meanwhile readers get the approvals known before.
    """

    def __init__(self, service: ApprovalService, supervisor: Supervisor) -> None:
        self._service = service
        self._supervisor = supervisor
        self._known = ApprovalList(())
        self._asked_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    async def current(self) -> ApprovalList:
        """The approvals as they are known now."""
        now = time.monotonic()
        if self._asking is None and now - self._asked_at >= _FRESH_S:
            self._asked_at = now
            self._asking = self._supervisor.spawn("approvals", self._ask())
        if self._asking is not None:
            await asyncio.wait({self._asking}, timeout=_WAIT_S)
        return self._known

    def forget(self) -> None:
        """Call after a decision: the next read asks the agents again."""
        self._asked_at = float("-inf")

    async def _ask(self) -> None:
        try:
            self._known = await self._service.list()
        finally:
            self._asking = None
