"""The operator's page of commands that wait for a decision, of all agents that ask for one."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.agent_event import Approval
from openclaw_a2a.model.errors import (
    AgentUnavailable,
    ApprovalNotFound,
    GatewayError,
    InvalidParams,
    Problem,
)
from openclaw_a2a.model.ids import AgentId, JsonObject
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.ports import SupportsApprovals
from openclaw_a2a.server.admin.endpoint import AdminEndpoint, AdminRequest

log = get_logger(__name__)

_Result = TypeVar("_Result")
Asking = Callable[[], Mapping[AgentId, SupportsApprovals]]
"""The agents that ask for decisions, at this moment."""


class WaitingApproval(Approval, frozen=True, kw_only=True):
    """An approval, and the agent that waits for it."""

    agent: AgentId


class AgentProblem(JsonStruct, frozen=True):
    """An agent that could not be asked, and why."""

    agent: AgentId
    reason: str


class ApprovalList(JsonStruct, frozen=True, omit_defaults=False):
    """What waits, the oldest first, and the agents that could not be asked."""

    approvals: tuple[WaitingApproval, ...]
    troubles: tuple[AgentProblem, ...] = ()


class ApprovalsAdmin:
    """Lists what waits and takes decisions. One agent in trouble hides no other."""

    def __init__(self, asking: Asking, *, answer_s: float = 10.0) -> None:
        self._asking = asking
        self._answer_s = answer_s

    def add_to(self, door: AdminEndpoint) -> None:
        """Open the pages."""
        door.add_route("GET", "/operator/approvals", self.list)
        door.add_route("POST", "/operator/approvals/{}", self.decide)

    async def list(self, _: AdminRequest) -> ApprovalList:
        """Everything that waits."""
        agents = self._asking()
        answers = await asyncio.gather(*[self._waiting_at(*one) for one in agents.items()])
        waiting: dict[str, WaitingApproval] = {}
        for approvals in answers:
            if not isinstance(approvals, AgentProblem):
                # Agents behind one host may all tell of the same approval.
                waiting |= {one.id: one for one in approvals if one.id not in waiting}
        in_order = sorted(waiting.values(), key=lambda one: (one.asked_at, one.id))
        troubles = tuple(one for one in answers if isinstance(one, AgentProblem))
        return ApprovalList(tuple(in_order), troubles)

    async def decide(self, request: AdminRequest) -> JsonObject:
        """Allow or deny one command, once.

        Raises: InvalidParams, ApprovalNotFound, ApprovalOver, AgentUnavailable.
        """
        [approval_id], allow = request.segments, _read_decision(request)
        troubles: list[str] = []
        for agent_id, agent in self._asking().items():
            try:
                await self._in_time(agent_id, agent.decide(approval_id, allow=allow))
            except ApprovalNotFound:
                continue
            except AgentUnavailable as error:
                troubles.append(f"{agent_id}: {error.message}")
                continue
            log.info("approval-decided", approval_id=approval_id, agent_id=agent_id, allow=allow)
            return {"id": approval_id, "agent": agent_id, "allowed": allow}
        if troubles:
            raise AgentUnavailable(
                f"approval {approval_id[:80]} is at no agent that answers; {'; '.join(troubles)}"
            )
        raise ApprovalNotFound(
            f"nobody waits for a decision on {approval_id[:80]}; list the approvals there are"
        )

    async def _waiting_at(
        self, agent_id: AgentId, agent: SupportsApprovals
    ) -> tuple[WaitingApproval, ...] | AgentProblem:
        try:
            found = await self._in_time(agent_id, agent.approvals())
        except GatewayError as error:
            return AgentProblem(agent_id, error.message)
        except Exception as error:  # one broad catch: whatever is wrong with it hides no other
            log.exception("approvals-not-listed", agent_id=agent_id)
            return AgentProblem(agent_id, f"it failed: {type(error).__name__}")
        return tuple(_with_agent(one, agent_id) for one in found)

    async def _in_time(self, agent_id: AgentId, work: Awaitable[_Result]) -> _Result:
        try:
            async with asyncio.timeout(self._answer_s):
                return await work
        except TimeoutError:
            raise AgentUnavailable(
                f"agent {agent_id} did not answer within {self._answer_s:g} s; "
                "list the approvals to see what is decided"
            ) from None


def _with_agent(approval: Approval, agent_id: AgentId) -> WaitingApproval:
    members = {name: getattr(approval, name) for name in approval.__struct_fields__}
    return WaitingApproval(**members, agent=agent_id)


def _read_decision(request: AdminRequest) -> bool:
    allow = request.body.get("allow")
    if not isinstance(allow, bool):
        problem = Problem("allow", "must be true or false", "type")
        raise InvalidParams("allow must be true or false", problems=(problem,))
    return allow
