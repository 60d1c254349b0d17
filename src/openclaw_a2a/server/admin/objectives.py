"""Admin routes for objectives: list, show, create, plan, act, answer, delete, export, import."""

from typing import Annotated

import msgspec

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.planning.admin_service import AdminService, enabled
from openclaw_a2a.planning.model import ObjectiveStatus
from openclaw_a2a.server.admin.endpoint import (
    AdminEndpoint,
    AdminHandler,
    AdminRequest,
    RawResponse,
    invalid_param,
    read_limit,
    read_status,
)

MAX_IMPORT_BYTES = 64 * 1024 * 1024
MAX_PLANS_BYTES = 4 * 1024 * 1024
CHANGED = "objective-changed"
ACTIONS = ("run", "pause", "resume", "replan", "cancel")


class _Plans(msgspec.Struct, frozen=True):
    plans: Annotated[list[JsonObject], msgspec.Meta(min_length=1)]


class ObjectivesAdmin:
    """Serves the admin routes. `service` is None while planning is disabled."""

    def __init__(self, service: AdminService | None) -> None:
        self._service = service

    def add_to(self, endpoint: AdminEndpoint) -> None:
        """Register the routes."""
        root = "/operator/objectives"
        endpoint.add_route("GET", root, self.list)
        endpoint.add_route(
            "POST",
            f"{root}/import",
            self.import_log,
            max_content_bytes=MAX_IMPORT_BYTES,
            event=CHANGED,
        )
        endpoint.add_route("GET", f"{root}/{{}}", self.show)
        endpoint.add_route("GET", f"{root}/{{}}/export", self.export)
        endpoint.add_route("POST", root, self.create, event=CHANGED)
        endpoint.add_route(
            "POST",
            f"{root}/{{}}/plans",
            self.plan,
            max_content_bytes=MAX_PLANS_BYTES,
            event=CHANGED,
        )
        endpoint.add_route("POST", f"{root}/{{}}/answer", self.answer, event=CHANGED)
        endpoint.add_route("POST", f"{root}/{{}}/retry", self.retry, event=CHANGED)
        endpoint.add_route("POST", f"{root}/{{}}/delete", self.delete, event=CHANGED)
        for action in ACTIONS:
            endpoint.add_route("POST", f"{root}/{{}}/{action}", self._act(action), event=CHANGED)

    async def list(self, request: AdminRequest) -> JsonObject:
        """The newest objectives without their plans; `limit` and `status` select.

        Raises: InvalidParams, UnsupportedOperation.
        """
        service, limit = enabled(self._service), read_limit(request)
        status = read_status(request, ObjectiveStatus)
        found, total = await service.list(limit, None if status is None else status.value)
        return {"objectives": found, "totalSize": total}

    async def show(self, request: AdminRequest) -> JsonObject:
        """One objective with its plans. Raises: PlanItemNotFound, UnsupportedOperation."""
        [objective_id] = request.segments
        return await enabled(self._service).get(objective_id)

    async def create(self, request: AdminRequest) -> JsonObject:
        """Create an objective: `name`, `description`, `metadata`; `plan` has the planner plan it.

        Raises: InvalidParams, UnsupportedOperation.
        """
        members = dict(request.body)
        is_planned: Json = members.pop("plan", False)
        if not isinstance(is_planned, bool):
            raise invalid_param("plan", "must be true or false")
        return await enabled(self._service).create(members, is_planned=is_planned)

    async def plan(self, request: AdminRequest) -> JsonObject:
        """Add `plans`; an empty body has the planner make them.

        Raises: PlanItemNotFound, InvalidParams, DependencyNotValid, PlanLimitExceeded,
        StatusChangeNotAllowed, UnsupportedOperation.
        """
        service, [objective_id] = enabled(self._service), request.segments
        if request.content.strip() in (b"", b"{}"):
            return await service.make_plans(objective_id)
        try:
            given = msgspec.json.decode(request.content, type=_Plans)
        except (ValueError, RecursionError) as error:
            raise invalid_param("plans", f"must be a list of plans ({error})") from None
        return await service.add_plans(objective_id, given.plans)

    async def retry(self, request: AdminRequest) -> JsonObject:
        """Try one failed plan or step again: `item`, by id, name or the beginning of either.

        Raises: PlanItemNotFound, InvalidParams, StatusChangeNotAllowed, UnsupportedOperation.
        """
        [objective_id] = request.segments
        item: Json = request.body.get("item")
        if not isinstance(item, str) or not item.strip():
            raise invalid_param("item", "must be the id or name of a plan or step")
        return await enabled(self._service).retry(objective_id, item)

    async def delete(self, request: AdminRequest) -> JsonObject:
        """Delete an objective; with `cancel` its running tasks are stopped first.

        Raises: PlanItemNotFound, StatusChangeNotAllowed, InvalidParams, UnsupportedOperation.
        """
        [objective_id] = request.segments
        cancel: Json = request.body.get("cancel", False)
        if not isinstance(cancel, bool):
            raise invalid_param("cancel", "must be true or false")
        return await enabled(self._service).delete(objective_id, cancel=cancel)

    async def answer(self, request: AdminRequest) -> JsonObject:
        """Answer a step that waits: `text`, and `step` where several wait.

        Raises: PlanItemNotFound, InvalidParams, UnsupportedOperation, GatewayError.
        """
        [objective_id] = request.segments
        text: Json = request.body.get("text")
        step: Json = request.body.get("step")
        if not isinstance(text, str) or not text.strip():
            raise invalid_param("text", "must be a string that is not only blanks")
        if step is not None and not isinstance(step, str):
            raise invalid_param("step", "must be the id or name of a step, or left out")
        return await enabled(self._service).answer(objective_id, text, step)

    async def export(self, request: AdminRequest) -> RawResponse:
        """The log of one objective. Raises: PlanItemNotFound, UnsupportedOperation."""
        [objective_id] = request.segments
        return RawResponse(await enabled(self._service).export(objective_id), b"application/jsonl")

    async def import_log(self, request: AdminRequest) -> JsonObject:
        """Add an exported objective. Raises: InvalidParams, UnsupportedOperation, BodyTooLarge."""
        service = enabled(self._service)
        if not request.content.strip():
            raise invalid_param("body", "is empty; send the lines that were exported")
        return await service.import_log(request.content)

    def _act(self, action: str) -> AdminHandler:
        async def act(request: AdminRequest) -> JsonObject:
            [objective_id] = request.segments
            return await enabled(self._service).act(objective_id, action)

        return act
