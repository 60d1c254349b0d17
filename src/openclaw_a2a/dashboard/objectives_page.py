"""Read models of objectives: the list, one with its plans and steps; and what is done to one."""

from collections.abc import Callable, Iterable, Iterator

from openclaw_a2a.dashboard.actions import ActionRequest, ActionResult, read_form_text
from openclaw_a2a.dashboard.endpoint import PageRequest
from openclaw_a2a.dashboard.plan_graph import StepGraph, list_steps, make_graph
from openclaw_a2a.engine.audit_log import AuditLog, audit_outcome
from openclaw_a2a.model.errors import InvalidParams, Problem, UnsupportedOperation
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.model.validation import is_object
from openclaw_a2a.planning.admin_service import AdminService

_LISTED = 100
_ACTIONS = ("run", "pause", "resume", "replan", "cancel")
_CLOSED = ("completed", "canceled")
_WAITING = ("input-required", "auth-required")


class ObjectivesPage(JsonStruct, frozen=True, omit_defaults=False):
    """The newest objectives, without their plans. `is_enabled`: the gateway keeps objectives."""

    is_enabled: bool
    objectives: tuple[JsonObject, ...]
    total_size: int


class WaitingStep(JsonStruct, frozen=True, omit_defaults=False):
    """A step that waits for an answer, and what its agent asked."""

    id: str
    name: str
    plan: str
    question: str
    task: str
    status: str


class ObjectiveDetails(JsonStruct, frozen=True, omit_defaults=False):
    """One objective with its plans and steps, and what can be done to it now.

    `graph` shows which step waits for which; None when none does, or there are too many.
    """

    objective: JsonObject
    actions: tuple[str, ...]
    waiting: tuple[WaitingStep, ...]
    graph: StepGraph | None


class Objectives:
    """Reads and changes objectives. `service` gives None while planning is off."""

    def __init__(self, service: Callable[[], AdminService | None], audit: AuditLog) -> None:
        self._service = service
        self._audit = audit

    async def list(self, _: PageRequest) -> JsonStruct:
        """The page of all objectives."""
        service = self._service()
        if service is None:
            return ObjectivesPage(is_enabled=False, objectives=(), total_size=0)
        found, total = await service.list(_LISTED)
        return ObjectivesPage(is_enabled=True, objectives=tuple(found), total_size=total)

    async def show(self, request: PageRequest) -> JsonStruct:
        """The page of one. Raises: PlanItemNotFound, UnsupportedOperation."""
        found = await self._open().get(request.segments[0])
        plans = [plan for plan in found.get("plans") or () if is_object(plan)]
        return ObjectiveDetails(
            objective=found,
            actions=_allowed_actions(found),
            waiting=tuple(_list_waiting(plans)),
            graph=make_graph(plans),
        )

    async def act(self, request: ActionRequest) -> ActionResult:
        """Run, pause, resume, replan or cancel; retry an item; answer a step.

        Raises: InvalidParams, PlanItemNotFound, StatusChangeNotAllowed, UnsupportedOperation.
        """
        service, [objective_id, action] = self._open(), request.segments
        error: BaseException | None = None
        try:
            if action == "retry":
                await service.retry(objective_id, request.form.get("item", ""))
            elif action == "answer":
                step = request.form.get("step") or None
                await service.answer(objective_id, read_form_text(request), step)
            elif action in _ACTIONS:
                await service.act(objective_id, action)
            else:
                problem = Problem("action", f"must be one of {', '.join(_ACTIONS)}")
                raise InvalidParams(f"action {problem.message}", problems=(problem,))
        except BaseException as raised:  # whatever it is: something may have been changed
            error = raised
            raise
        finally:
            self._audit.record(
                "objective-changed",
                request.who,
                action=f"dashboard/{action}",
                target=objective_id,
                address=request.address,
                **audit_outcome(error),
            )
        location = f"/dashboard/objectives/{objective_id}"
        return ActionResult(f"Done: {action}.", location, objective_id)

    def _open(self) -> AdminService:
        service = self._service()
        if service is None:
            raise UnsupportedOperation(
                "objectives are off; set opt.enabled to true, and start the gateway again"
            )
        return service


def _allowed_actions(objective: JsonObject) -> tuple[str, ...]:
    if objective.get("status") in _CLOSED:
        return ()
    if objective.get("status") == "failed":
        return ("run",)  # again: what failed is retried
    execution = objective.get("execution")
    first = {"running": ("pause",), "paused": ("resume",)}.get(str(execution), ("run",))
    return (*first, "cancel")


def _list_waiting(plans: Iterable[JsonObject]) -> Iterator[WaitingStep]:
    for plan in plans:
        for step in list_steps(plan):
            if step["status"] in _WAITING and step.get("a2aTaskId"):
                yield WaitingStep(
                    id=step["id"],
                    name=step["name"],
                    plan=plan["name"],
                    question=step.get("said") or "",
                    task=step["a2aTaskId"],
                    status=step["status"],
                )
