"""Objectives for the person who runs the gateway: everybody's, and what can be done to them."""

from collections.abc import Sequence

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.tasks.submit import SubmitRequest, submit, wait_created
from openclaw_a2a.model.errors import (
    InvalidParams,
    PlanItemNotFound,
    Problem,
    StatusChangeNotAllowed,
    TaskNotFound,
)
from openclaw_a2a.model.ids import JsonObject, MessageId, TaskId
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.planning.commands.execution import EXECUTION_ACTIONS, set_objective_execution
from openclaw_a2a.planning.commands.objective import update_objective
from openclaw_a2a.planning.executor import StepExecutor
from openclaw_a2a.planning.model import TASK_WAITING, ObjectiveId, ObjectiveStatus, PlanTask
from openclaw_a2a.planning.params import UpdateObjective
from openclaw_a2a.planning.repository import ObjectiveRepository, find_a2a_task
from openclaw_a2a.planning.state import ObjectiveState, not_found
from openclaw_a2a.planning.views import ObjectiveView, add_step_statements


class AdminService:
    """Sees every objective, and acts for whoever it belongs to."""

    def __init__(
        self,
        engine: Engine,
        book: ObjectiveRepository,
        runner: StepExecutor,
        showing: ObjectiveView,
    ) -> None:
        self._engine = engine
        self._book = book
        self._runner = runner
        self._showing = showing

    async def list(self, limit: int, status: str | None = None) -> tuple[list[JsonObject], int]:
        """The newest objectives of everybody (with this status), and how many there are."""
        if status is not None and status not in {one.value for one in ObjectiveStatus}:
            return [], 0
        wanted = None if status is None else ObjectiveStatus(status)
        page = (await self._book.load_index()).page(limit, scope=None, status=wanted)
        states = [await self._book.find(one.id) for one in page.objectives]
        return [
            self._showing.objective_with_owner(one, with_plans=False) for one in states
        ], page.total

    async def find(self, objective_id: str) -> JsonObject | None:
        """An objective of anybody, with everything in it."""
        try:
            state = await self._book.find(ObjectiveId(objective_id))
        except PlanItemNotFound:
            return None
        shown = self._showing.objective_with_owner(state)
        return await add_step_statements(
            self._engine.store.tasks, shown, await self._runner.find_failed_attempts(state)
        )

    async def act(self, objective_id: str, action: str) -> JsonObject:
        """Run, pause, resume or cancel an objective.

        Raises: PlanItemNotFound, StatusChangeNotAllowed, InvalidParams (no such action).
        """
        name = ObjectiveId(objective_id)
        if action == "cancel":
            wanted = UpdateObjective(name, status=ObjectiveStatus.CANCELED)
            change = await self._book.change(
                name, lambda state, occasion: update_objective(state, wanted, occasion)
            )
            await self._runner.cancel_running_tasks(change.state)
        elif action in EXECUTION_ACTIONS:
            mode = EXECUTION_ACTIONS[action]
            await self._book.change(
                name, lambda state, occasion: set_objective_execution(state, mode, occasion)
            )
        else:
            raise InvalidParams(
                f"there is no action {action[:40]!r}; there are run, pause, resume and cancel"
            )
        return self._showing.objective_with_owner(await self._book.find(name))

    async def answer(self, objective_id: str, text: str, step: str | None = None) -> JsonObject:
        """Answer a step that waits; the step may be left out when only one does.

        Raises: PlanItemNotFound, InvalidParams (none waits, or several), and whatever is in the
        way of the message.
        """
        state = await self._book.find(ObjectiveId(objective_id))
        waiting, task_id = _waiting(state, step)
        stored = await self._engine.store.tasks.read_task(None, task_id)
        if stored is None:
            raise TaskNotFound(f"there is no task {task_id}")
        message = Message(
            MessageId(self._engine.new_id()), Role.USER, (Part(text=text),), task_id=task_id
        )
        send = SubmitRequest(scope=stored.head.scope, message=message, is_blocking=False)
        run = await submit(self._engine, send, self._runner.account_rules(state))
        await wait_created(self._engine, run)
        await self._runner.task_sync.sync_now(state, waiting.id, task_id)
        return self._showing.objective_with_owner(await self._book.find(state.id))

    async def export(self, objective_id: str) -> bytes:
        """The journal of an objective, as JSON lines. Raises: PlanItemNotFound."""
        lines = await self._book.read_log_lines(ObjectiveId(objective_id))
        return b"".join(line + b"\n" for line in lines)

    async def import_log(self, jsonl: bytes) -> JsonObject:
        """Keep an objective from its journal. Raises: InvalidParams."""
        lines = [line for line in jsonl.split(b"\n") if line.strip()]
        try:
            state = await self._book.import_log(lines)
        except (PlanItemNotFound, StatusChangeNotAllowed) as error:
            raise InvalidParams(f"this cannot be taken in: {error.message}") from error
        return self._showing.objective_with_owner(state)


def _waiting(state: ObjectiveState, step: str | None) -> tuple[PlanTask, TaskId]:
    """The step that is to be answered, and its task. Raises: PlanItemNotFound, InvalidParams."""
    waiting = {
        task.a2a_task_id: task
        for task in state.tasks.values()
        if task.a2a_task_id is not None and task.status in TASK_WAITING
    }
    if step is None:
        wanted = next(iter(waiting)) if len(waiting) == 1 else None
    else:
        wanted = find_a2a_task(state, step)
    if wanted is not None and wanted in waiting:
        return waiting[wanted], wanted
    if step is not None and step not in state.tasks:
        raise not_found("task", step)
    reason = _why_not(state, list(waiting.values()), step)
    raise InvalidParams(f"step: {reason}", problems=(Problem("step", reason),))


def _why_not(state: ObjectiveState, waiting: Sequence[PlanTask], step: str | None) -> str:
    if not waiting:
        return f"no step of {state.id} waits for an answer"
    listed = ", ".join(f"{task.id} ({task.name[:40]})" for task in waiting[:5])
    if step is None:
        return f"{len(waiting)} steps wait for an answer, name one of them: {listed}"
    return f"{step[:80]} does not wait for an answer; these do: {listed}"
