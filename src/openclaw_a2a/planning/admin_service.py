"""Objectives for the operator: those of all callers, and actions on behalf of their owners."""

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.tasks.submit import SubmitRequest, submit, wait_created
from openclaw_a2a.model.errors import (
    GatewayError,
    InvalidParams,
    PlanItemNotFound,
    Problem,
    StatusChangeNotAllowed,
    TaskNotFound,
)
from openclaw_a2a.model.ids import JsonObject, MessageId, TaskId
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.planning.commands import (
    EXECUTION_ACTIONS,
    set_objective_execution,
    update_objective,
)
from openclaw_a2a.planning.executor import StepExecutor
from openclaw_a2a.planning.model import (
    OBJECTIVE_PREFIX,
    ObjectiveId,
    ObjectiveStatus,
    PlanTask,
    PlanTaskStatus,
    is_valid_id,
)
from openclaw_a2a.planning.operations import PlanTaskUpdated, decode_line, encode_line
from openclaw_a2a.planning.params import UpdateObjective
from openclaw_a2a.planning.repository import ObjectiveRepository
from openclaw_a2a.planning.rollup import roll_up, running_tasks
from openclaw_a2a.planning.state import Change, ObjectiveState, not_found, replay
from openclaw_a2a.planning.task_sync import StepLink
from openclaw_a2a.planning.transitions import OBJECTIVE_CLOSED, TASK_WAITING
from openclaw_a2a.planning.views import ObjectiveView, add_step_texts


class AdminService:
    """Shows every objective, and acts on it for its owner."""

    def __init__(
        self,
        engine: Engine,
        repository: ObjectiveRepository,
        executor: StepExecutor,
        view: ObjectiveView,
    ) -> None:
        self._engine = engine
        self._repository = repository
        self._executor = executor
        self._view = view

    async def list(self, limit: int, status: str | None = None) -> tuple[list[JsonObject], int]:
        """The newest objectives (with this status) without their plans, and how many there are."""
        index = await self._repository.load_index()
        wanted = None if status is None else ObjectiveStatus(status)
        page = index.page(limit, scope=None, status=wanted)
        states = [await self._repository.find(one.id) for one in page.objectives]
        shown = [self._view.objective_with_owner(one, with_plans=False) for one in states]
        return shown, page.total

    async def find(self, objective_id: str) -> JsonObject:
        """An objective with its plans, and the last texts of steps. Raises: PlanItemNotFound."""
        state = await self._repository.find(ObjectiveId(objective_id))
        failed_attempts = await self._executor.find_failed_attempts(state)
        shown = self._view.objective_with_owner(state)
        return await add_step_texts(self._engine.store.tasks, shown, failed_attempts)

    async def act(self, objective_id: str, action: str) -> JsonObject:
        """Run, pause, resume or cancel an objective.

        Raises: PlanItemNotFound, StatusChangeNotAllowed.
        """
        key = ObjectiveId(objective_id)
        if action == "cancel":
            update = UpdateObjective(key, status=ObjectiveStatus.CANCELED)
            change = await self._repository.change(key, update_objective, update)
            await self._executor.cancel_running_tasks(change.state)
        else:
            mode = EXECUTION_ACTIONS[action]
            await self._repository.change(key, set_objective_execution, mode)
        return self._view.objective_with_owner(await self._repository.find(key))

    async def answer(self, objective_id: str, text: str, step: str | None = None) -> JsonObject:
        """Answer a step that waits for input; `step` may be left out when only one does.

        Raises: PlanItemNotFound, InvalidParams (none waits, or several), GatewayError.
        """
        state = await self._repository.find(ObjectiveId(objective_id))
        waiting, task_id = _find_waiting(state, step)
        stored = await self._engine.store.tasks.read_task(None, task_id)
        if stored is None:
            raise TaskNotFound(f"there is no task {task_id}")
        message = Message(
            MessageId(self._engine.new_id()), Role.USER, (Part(text=text),), task_id=task_id
        )
        request = SubmitRequest(scope=stored.head.scope, message=message, is_blocking=False)
        run = await submit(self._engine, request, self._executor.account_rules(state))
        await wait_created(self._engine, run)
        # The operator sees the step as it is after the answer, not when the outbox gets to it.
        attempt = state.attempts.get(waiting.id, 1)
        link = StepLink(state.id, waiting.id, attempt, is_own=False)
        await self._executor.task_sync.sync(link, task_id)
        return self._view.objective_with_owner(await self._repository.find(state.id))

    async def export(self, objective_id: str) -> bytes:
        """The log of an objective as JSON lines. Raises: PlanItemNotFound."""
        lines = await self._repository.read_log_lines(ObjectiveId(objective_id))
        return b"".join(line + b"\n" for line in lines)

    async def import_log(self, jsonl: bytes) -> JsonObject:
        """Add an objective from its exported log. Raises: InvalidParams.

        Steps whose A2A tasks are running, but not in this gateway, become pending again.
        """
        lines = _renumber(jsonl)
        state = replay(lines).state
        try:
            if state is None:
                raise not_found("objective", "in these lines")
            _check_import_id(state.id)
            change = Change(state, self._repository.command_context)
            await self._restart_lost_steps(change)
            imported = await self._repository.create(change, lines)
        except (PlanItemNotFound, StatusChangeNotAllowed) as error:
            raise InvalidParams(f"this cannot be imported: {error.message}") from error
        return self._view.objective_with_owner(imported)

    async def _restart_lost_steps(self, change: Change) -> None:
        """Make steps pending whose A2A tasks are running according to the log, but not here."""
        state = change.state
        running = () if state.objective.status in OBJECTIVE_CLOSED else running_tasks(state)
        for task_id in running:
            if await self._engine.store.tasks.read_task(None, task_id) is None:
                for step in state.linked_to(task_id):
                    change.record(PlanTaskUpdated(step.id, status=PlanTaskStatus.CANCELED))
                    change.record(PlanTaskUpdated(step.id, status=PlanTaskStatus.PENDING))
                    roll_up(change)


def _renumber(jsonl: bytes) -> list[bytes]:
    """The readable lines of a log, numbered from 1."""
    lines: list[bytes] = []
    for line in jsonl.split(b"\n"):
        with suppress(GatewayError):
            operation = decode_line(line)
            lines.append(encode_line(msgspec.structs.replace(operation, seq=len(lines) + 1)))
    return lines


def _check_import_id(objective_id: ObjectiveId) -> None:
    """Check that files and sessions can be named after an objective.

    Raises: StatusChangeNotAllowed.
    """
    if not (objective_id.startswith(OBJECTIVE_PREFIX) and is_valid_id(objective_id)):
        raise StatusChangeNotAllowed(
            f"The id {objective_id[:80]!r} cannot be used: it must be {OBJECTIVE_PREFIX} and "
            "small letters and digits, with single hyphens between."
        )


def _find_waiting(state: ObjectiveState, step: str | None) -> tuple[PlanTask, TaskId]:
    """The step to answer, and its A2A task. Raises: PlanItemNotFound, InvalidParams."""
    waiting = {
        task.a2a_task_id: task
        for task in state.tasks.values()
        if task.a2a_task_id is not None and task.status in TASK_WAITING
    }
    if step is None:
        wanted = next(iter(waiting)) if len(waiting) == 1 else None
    else:
        wanted = state.find_a2a_task(step)
    if wanted is not None and wanted in waiting:
        return waiting[wanted], wanted
    if step is not None and step not in state.tasks:
        raise not_found("task", step)
    reason = _not_waiting_reason(state, list(waiting.values()), step)
    raise InvalidParams(f"step: {reason}", problems=(Problem("step", reason),))


def _not_waiting_reason(
    state: ObjectiveState, waiting: Sequence[PlanTask], step: str | None
) -> str:
    if not waiting:
        return f"no step of {state.id} waits for an answer"
    listed = ", ".join(f"{task.id} ({task.name[:40]})" for task in waiting[:5])
    if step is None:
        return f"{len(waiting)} steps wait for an answer, name one of them: {listed}"
    return f"{step[:80]} does not wait for an answer; these do: {listed}"
