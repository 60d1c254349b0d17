"""Objectives for the operator: those of all callers, and actions on behalf of their owners."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.delivery import Delivery
from openclaw_a2a.model.errors import (
    GatewayError,
    InvalidParams,
    PlanItemNotFound,
    Problem,
    StatusChangeNotAllowed,
    TaskNotFound,
    UnsupportedOperation,
)
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.task import TaskState, is_terminal
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.planning.commands import (
    create_objective,
    replan,
    retry_plan,
    retry_step,
    set_objective_execution,
    update_objective,
)
from openclaw_a2a.planning.editing import EditableItem, ItemContent, edit_item, find_editable
from openclaw_a2a.planning.executor import StepExecutor
from openclaw_a2a.planning.model import (
    OBJECTIVE_CLOSED,
    OBJECTIVE_ENDED,
    OBJECTIVE_PREFIX,
    PLANNING,
    ObjectiveId,
    ObjectiveStatus,
    Plan,
    PlanTaskStatus,
    is_valid_id,
    to_timestamp,
    transition_error,
)
from openclaw_a2a.planning.operations import PlanTaskUpdated, decode_operation, encode_operation
from openclaw_a2a.planning.params import (
    EXECUTION_MODES,
    CreateObjective,
    DeleteObjective,
    UpdateObjective,
    parse_as,
)
from openclaw_a2a.planning.planner import add_plans
from openclaw_a2a.planning.repository import ObjectiveRepository
from openclaw_a2a.planning.rollup import report_task, roll_up, running_tasks
from openclaw_a2a.planning.state import Change, ObjectiveState, not_found, replay
from openclaw_a2a.planning.steps import attempt_message_id, find_waiting_step
from openclaw_a2a.planning.task_sync import StepLink
from openclaw_a2a.planning.views import ObjectiveView, add_step_texts

log = get_logger(__name__)


class AdminService(msgspec.Struct, frozen=True):
    """Shows every objective, acts on it for its owner, and deletes old ones."""

    engine: Engine
    repository: ObjectiveRepository
    executor: StepExecutor
    view: ObjectiveView
    owner: Scope
    """Owns what the operator creates."""
    add_delivery: Callable[[Delivery], Awaitable[bool]]
    """Stores a delivery for the outbox."""

    async def list(
        self, limit: int, status: str | None = None, *, with_plans: bool = False
    ) -> tuple[list[JsonObject], int]:
        """The newest objectives (with this status), and how many there are."""
        index = await self.repository.load_index()
        wanted = None if status is None else ObjectiveStatus(status)
        page = index.page(limit, scope=None, status=wanted)
        states = [await self.repository.find_known(None, one.id) for one in page.objectives]
        shown = [
            self.view.objective_with_owner(one, with_plans=with_plans)
            for one in states
            if one is not None  # it was deleted meanwhile
        ]
        return shown, page.total

    async def get(self, objective_id: str) -> JsonObject:
        """An objective with its plans, and the last texts of steps. Raises: PlanItemNotFound."""
        state = await self.repository.get(None, ObjectiveId(objective_id))
        failed_attempts = await self.executor.find_failed_attempts(state)
        shown = self.view.objective_with_owner(state)
        return await add_step_texts(self.engine.store.tasks, shown, failed_attempts)

    async def find_name(self, objective_id: str) -> str:
        """The name of an objective; empty: there is none."""
        state = await self.repository.find(None, ObjectiveId(objective_id))
        return "" if state is None else state.objective.name

    async def act(self, objective_id: str, action: str) -> JsonObject:
        """Run, pause, resume, replan or cancel an objective.

        Raises: PlanItemNotFound, StatusChangeNotAllowed, InvalidParams (it has no plans, and there
        is no planner).
        """
        key = ObjectiveId(objective_id)
        state = await self.repository.get(None, key)
        is_open = state.objective.status not in OBJECTIVE_CLOSED
        if action == "run" and is_open and not state.plans:
            self._check_planner(f"the objective {objective_id} has no plans to run")
        if action == "cancel":
            update = UpdateObjective(key, status=ObjectiveStatus.CANCELED)
            await self.repository.change(None, key, update_objective, update)
            state = await self.executor.stop_steps(None, key)
        elif action == "replan":
            state = (await self.repository.change(None, key, replan)).state
        else:
            mode = EXECUTION_MODES[action]
            state = (await self.repository.change(None, key, set_objective_execution, mode)).state
        return self.view.objective_with_owner(state)

    async def create(self, params: Json, *, is_planned: bool = False) -> JsonObject:
        """Create an objective of the operator's own; `is_planned`: the planner makes its plans.

        Raises: InvalidParams (also: there is no planner; then nothing is created).
        """
        if is_planned:
            self._check_planner("the plans of a goal are made by an agent")
        given = parse_as(CreateObjective, params, method="objectives/create")
        change = create_objective(given, self.repository.creation_context(), owner=self.owner)
        if is_planned:  # in one write: no objective without plans is left behind
            set_objective_execution(change, PLANNING)
        return self.view.objective_with_owner(await self.repository.create(change))

    def _check_planner(self, need: str) -> None:
        if not self.executor.has_planner:
            reason = f"{need}, and no agent makes plans; set opt.planner, or add plans"
            raise InvalidParams(f"plans: {reason}", problems=(Problem("plans", reason),))

    async def add_plans(self, objective_id: str, plans: Sequence[JsonObject]) -> JsonObject:
        """Add plans, which depend on each other by their numbers.

        Raises: PlanItemNotFound, InvalidParams, DependencyNotValid, PlanLimitExceeded,
        StatusChangeNotAllowed.
        """
        change = await self.repository.change(None, ObjectiveId(objective_id), add_plans, plans)
        return self.view.objective_with_owner(change.state)

    async def make_plans(self, objective_id: str) -> JsonObject:
        """Start the planner for an objective without plans; nothing is executed.

        Raises: PlanItemNotFound, InvalidParams (no planner), StatusChangeNotAllowed.
        """
        self._check_planner(f"the objective {objective_id} gets no plans with this request")
        change = await self.repository.change(
            None, ObjectiveId(objective_id), set_objective_execution, PLANNING
        )
        return self.view.objective_with_owner(change.state)

    async def delete(self, objective_id: str, *, cancel: bool) -> JsonObject:
        """Delete an objective; `cancel` stops what runs.

        Raises: PlanItemNotFound, StatusChangeNotAllowed (a task of it is running).
        """
        params = DeleteObjective(ObjectiveId(objective_id), cancel)
        await self.executor.delete_objective(None, params)
        return {"id": objective_id, "deleted": True}

    async def retry(self, objective_id: str, named: str) -> JsonObject:
        """Try one failed plan or step again, by id, name, or the beginning of either.

        Raises: PlanItemNotFound, InvalidParams (several are meant), StatusChangeNotAllowed.
        """
        state = await self.repository.get(None, ObjectiveId(objective_id))
        item = state.find_item(named)
        if isinstance(item, Plan):
            change = await self.repository.change(None, state.id, retry_plan, item.id)
        else:
            change = await self.repository.change(None, state.id, retry_step, item.id)
        return self.view.objective_with_owner(change.state)

    async def answer(self, objective_id: str, text: str, step: str | None = None) -> JsonObject:
        """Answer a step that waits for input; `step` may be left out when only one does.

        Raises: PlanItemNotFound, InvalidParams (none waits, or several), GatewayError.
        """
        state = await self.repository.get(None, ObjectiveId(objective_id))
        waiting = find_waiting_step(state, step)
        await self.executor.answer_step(state, waiting, text)
        return self.view.objective_with_owner(await self.repository.get(None, state.id))

    async def find_editable(self, objective_id: str, item_id: str) -> EditableItem:
        """An item of an objective (or itself) for a form. Raises: PlanItemNotFound."""
        return find_editable(await self.repository.get(None, ObjectiveId(objective_id)), item_id)

    async def edit(
        self, objective_id: str, item_id: str, content: ItemContent, version: str
    ) -> None:
        """Change an objective, a plan or a step that is still as `version` says.

        Raises: PlanItemNotFound, ChangedMeanwhile, StatusChangeNotAllowed, InvalidParams,
        DependencyNotValid.
        """
        key = ObjectiveId(objective_id)
        await self.repository.change(None, key, edit_item, item_id, content, version)

    async def export(self, objective_id: str) -> bytes:
        """The log of an objective as JSON lines. Raises: PlanItemNotFound."""
        lines = await self.repository.read_log_lines(ObjectiveId(objective_id))
        return b"".join(line + b"\n" for line in lines)

    async def import_log(self, jsonl: bytes) -> JsonObject:
        """Add an objective from its exported log. Raises: InvalidParams.

        Steps whose A2A tasks are running according to the log, but have ended or are not in this
        gateway, become pending again; a completed one is completed. One whose task is running here
        follows it.
        """
        lines: list[bytes] = []  # the readable ones, numbered from 1
        for line in jsonl.split(b"\n"):
            with suppress(GatewayError):
                operation = decode_operation(line)
                # Numbered again: lines that were left out make gaps, and a log file refuses lines
                # whose seq is not their number.
                lines.append(
                    encode_operation(msgspec.structs.replace(operation, seq=len(lines) + 1))
                )
        state = replay(lines).state
        try:
            if state is None:
                raise not_found("objective", "in these lines")
            # Files and sessions are named after the id.
            if not (state.id.startswith(OBJECTIVE_PREFIX) and is_valid_id(state.id)):
                raise StatusChangeNotAllowed(
                    f"The id {state.id[:80]!r} cannot be used: it must be {OBJECTIVE_PREFIX} and "
                    "small letters and digits, with single hyphens between."
                )
            change = Change(state, self.repository.command_context())
            await self._restart_lost_steps(change)
            imported = await self.repository.create(change, lines)
        except (PlanItemNotFound, StatusChangeNotAllowed) as error:
            raise InvalidParams(f"this cannot be imported: {error.message}") from error
        # After the objective is stored, or a report would find none and end the subscription. After
        # a crash in between, `subscribe_missing` does this.
        await self._subscribe(imported)
        return self.view.objective_with_owner(imported)

    async def subscribe_missing(self) -> None:
        """Subscribe open objectives to those of their running tasks that they do not follow."""
        for state in self.repository.list_open():
            if self.repository.is_own(state.id):
                await self.follow_tasks(state)

    async def follow_tasks(self, state: ObjectiveState) -> None:
        """Subscribe an objective to those of its running tasks that it does not follow."""
        if state.objective.status not in OBJECTIVE_CLOSED:
            await self._subscribe(state, only_missing=True)

    async def _subscribe(self, state: ObjectiveState, *, only_missing: bool = False) -> None:
        """Create deliveries that report the running tasks of an objective to their steps."""
        store, make_delivery = self.engine.store, self.executor.task_sync.delivery_factory
        for task_id in running_tasks(state):
            for step in state.linked_to(task_id):
                attempt = state.attempts.get(step.id, 1)
                message_id = attempt_message_id(step, attempt)
                started = await store.tasks.find_duplicate(state.owner, message_id)
                is_own = started is not None and started.task_id == task_id
                link = StepLink(state.id, step.id, attempt, is_own=is_own)
                delivery = make_delivery(link)(task_id, -1)
                if only_missing and await store.deliveries.read_delivery(None, delivery.id):
                    # The stored delivery may have reported the end although that is not in the log.
                    await self.executor.task_sync.sync(
                        msgspec.structs.replace(link, is_own=False), task_id
                    )
                    continue
                with suppress(TaskNotFound):  # it was deleted: the next import starts it again
                    await self.add_delivery(delivery)

    async def _restart_lost_steps(self, change: Change) -> None:
        """Make steps pending whose A2A tasks are running according to the log, but not here."""
        state = change.state
        running = () if state.objective.status in OBJECTIVE_CLOSED else running_tasks(state)
        for task_id in running:
            stored = await self.engine.store.tasks.read_task(state.owner, task_id)
            if stored is not None and not is_terminal(stored.head.state):
                continue
            if stored is not None and stored.head.state is TaskState.COMPLETED:
                report_task(change, task_id, stored.head.state)
                continue
            for step in state.linked_to(task_id):
                # In two operations: there is no transition from an active status to pending.
                change.record(PlanTaskUpdated(step.id, status=PlanTaskStatus.CANCELED))
                change.record(PlanTaskUpdated(step.id, status=PlanTaskStatus.PENDING))
                roll_up(change)

    # ------------------------------------------------------------- retention

    async def purge(self, max_age_s: float, *, now: datetime | None = None) -> None:
        """Delete completed, failed and canceled objectives that did not change for so long."""
        now = now or self.engine.clock.now()
        before = to_timestamp(now - timedelta(seconds=max_age_s))
        count = 0

        async def check(state: ObjectiveState) -> None:
            # Under the lock of the objective: it may have been resumed since the index was read.
            objective = state.objective
            if objective.status not in OBJECTIVE_ENDED or objective.updated_at >= before:
                change = (objective.status.value, "deleted")
                raise transition_error(("objective", state.id), change, "it was changed")
            await self.executor.check_idle(state)

        index = await self.repository.load_index()
        for objective_id in index.unchanged_since(before, OBJECTIVE_ENDED):
            with suppress(PlanItemNotFound, StatusChangeNotAllowed):
                await self.repository.delete(None, objective_id, check)
                count += 1
        if count:
            log.info("planning.purged", objectives=count)
        self.engine.audit.record_expired("objectives", count)


def enabled(service: AdminService | None) -> AdminService:
    """The service of a gateway that has objectives. Raises: UnsupportedOperation."""
    if service is None:
        raise UnsupportedOperation(
            "objectives are off; set opt.enabled to true, and start the gateway again"
        )
    return service
