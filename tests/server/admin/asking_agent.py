"""An agent with approvals that wait for the operator."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta

from openclaw_a2a.model.agent_event import AgentEvent, Approval, Reply
from openclaw_a2a.model.errors import AgentUnavailable, ApprovalNotFound, ApprovalOver
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Recovery

ASKED_AT = datetime(2026, 11, 15, 6, tzinfo=UTC)


def approval(approval_id: str, *, command: str = "ls -la", minute: int = 0) -> Approval:
    """A command that waits, asked so many minutes after six."""
    asked_at = ASKED_AT + timedelta(minutes=minute)
    return Approval(
        approval_id,
        command,
        asked_at,
        datetime.now(UTC) + timedelta(minutes=5),
        cwd="/srv/project",
        task_id=TaskId("task-1"),
    )


class AskingAgent:
    """Has approvals that wait, and notes what was decided."""

    recovery = Recovery.FAIL

    def __init__(self, *waiting: Approval, trouble: str = "", hangs: bool = False) -> None:
        self.waiting = {one.id: one for one in waiting}
        self.decided: dict[str, bool] = {}
        self._trouble = trouble
        self._hangs = hangs

    async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        """Say the caller's words again."""
        yield Reply.of_text(turn.body)

    async def approvals(self) -> tuple[Approval, ...]:
        """What waits."""
        await self._answer()
        return tuple(self.waiting.values())

    async def decide(self, approval_id: str, *, allow: bool) -> None:
        """Note the decision, once."""
        await self._answer()
        if approval_id in self.decided:
            raise ApprovalOver(f"approval {approval_id} was decided already")
        if approval_id not in self.waiting:
            raise ApprovalNotFound(f"there is no approval {approval_id}")
        del self.waiting[approval_id]
        self.decided[approval_id] = allow

    async def close(self) -> None:
        """Nothing is held."""

    async def _answer(self) -> None:
        if self._hangs:
            await asyncio.Event().wait()
        if self._trouble:
            raise AgentUnavailable(self._trouble)
