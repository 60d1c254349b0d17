"""What the client of remote agents knows, as the dashboard shows it."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from openclaw_a2a.dashboard.agents_page import CardProblem
from openclaw_a2a.dashboard.remote_page import (
    CircuitView,
    FollowedTask,
    RemoteAgentView,
    RemoteAnswer,
)
from openclaw_a2a.dashboard.task_relations import RelatedRemoteTask
from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.log import hide_url_secrets
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import TARGET_PREFIX, JsonObject, PeerName
from openclaw_a2a.model.message import Role
from openclaw_a2a.model.records import TaskHead
from openclaw_a2a.model.session_keys import OPERATOR_NAME
from openclaw_a2a.model.task import Task
from openclaw_a2a.model.validation import object_at
from openclaw_a2a.remote.run import read_remote_task_id

if TYPE_CHECKING:  # the HTTP client takes long to load
    from openclaw_a2a.remote.handles import TaskHandle
    from openclaw_a2a.remote.target_status import TargetStatus
    from openclaw_a2a.remote.tool import RemoteAgentTool

_TRY_MS = 30_000
"""How long a message from the page waits for its answer; the task goes on after that."""


class RemoteToolSource:
    """The targets and task handles of the tool `remote_agent`."""

    def __init__(self, tool: "RemoteAgentTool") -> None:
        self._tool = tool

    def agents(self) -> Sequence[RemoteAgentView]:
        """The configured targets, as they are known."""
        return [_view_target(one) for one in self._tool.target_statuses()]

    def tasks(self) -> Sequence[FollowedTask]:
        """The tasks that live handles stand for, most recently used first."""
        return [_view_task(one) for one in self._tool.handles.all]

    async def refresh(self) -> None:
        """Ask for the cards that are old or failed."""
        await self._tool.refresh_targets()

    async def check(self, alias: str) -> None:
        """Ask for the card of one now."""
        await self._tool.refresh_targets(alias, max_age=timedelta(0))

    async def send(self, alias: str, text: str) -> RemoteAnswer:
        """Send a message to one, as the operator."""
        request: JsonObject = {
            "action": "send",
            "target_alias": alias,
            "parts": [{"kind": "text", "text": text}],
            "timeout_ms": _TRY_MS,
        }
        answer = await self._tool.execute(request, owner=PeerName(OPERATOR_NAME))
        if answer["ok"] is not True:
            return RemoteAnswer(error=hide_url_secrets(str(object_at(answer, "error")["message"])))
        summary = object_at(answer, "summary")
        state = object_at(object_at(summary, "continuation"), "task").get("status")
        return RemoteAnswer(str(summary.get("message_text") or ""), str(state or ""))


def _view_target(status: "TargetStatus") -> RemoteAgentView:
    circuit, hide = status.circuit, hide_url_secrets  # an address may have a key in its query
    return RemoteAgentView(
        alias=status.alias,
        url=hide(status.url),
        name=status.name,
        description=status.description,
        is_default=status.is_default,
        auth=status.auth,
        is_reachable=None if status.checked_at is None else not status.error,
        checked_at=status.checked_at,
        error=hide(status.error),
        seconds=status.fetch_s,
        transport=status.transport,
        version=status.protocol_version,
        address=hide(status.address),
        interfaces=status.interfaces,
        is_streaming=status.is_streaming,
        skills=status.skills,
        has_card=status.has_card,
        card_problems=tuple(
            [CardProblem(field, hide(problem)) for field, problem in status.card_problems]
        ),
        circuit=CircuitView(
            circuit.state.value, circuit.failures, circuit.opens_until, hide(circuit.reason)
        ),
    )


def _view_task(handle: "TaskHandle") -> FollowedTask:
    known = handle.last_known
    return FollowedTask(
        handle=handle.name,
        target=handle.target.alias or hide_url_secrets(handle.target.base_url),
        task_id=handle.task_id,
        context_id=handle.context_id or "",
        state=known.state or "",
        text=known.text or "",
        owner=handle.owner,
        updated_at=handle.updated_at,
        expires_at=handle.expires_at,
    )


async def find_remote_tasks(engine: Engine, head: TaskHead, task: Task) -> list[RelatedRemoteTask]:
    """The tasks at a remote agent that the runs of a task are, as long as that is stored."""
    agent = "" if head.binding is None else head.binding.agent_id
    if not agent.startswith(TARGET_PREFIX):
        return []
    found: dict[str, RelatedRemoteTask] = {}
    for message in task.history:
        if message.role is not Role.USER:
            continue
        try:
            sent = await engine.store.tasks.find_duplicate(head.scope, message.message_id)
        except GatewayError:
            continue  # damaged, or of another message under this id
        if sent and (found_id := await read_remote_task_id(engine.store.records, sent.run_id)):
            found[found_id] = RelatedRemoteTask(agent.removeprefix(TARGET_PREFIX), found_id)
    return list(found.values())
