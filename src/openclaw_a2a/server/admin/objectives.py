"""The operator's pages of objectives: all of them, how far each is, and what can be done to it."""

from collections.abc import Callable
from typing import Protocol

from openclaw_a2a.model.errors import (
    InvalidParams,
    PlanItemNotFound,
    Problem,
    UnsupportedOperation,
)
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.server.admin.endpoint import (
    AdminEndpoint,
    AdminHandler,
    AdminRequest,
    RawResponse,
)

USUAL = 20
MOST = 1000
"""How many objectives are listed: unless somebody asks for another number, and at most."""

ACTIONS = ("run", "pause", "resume", "cancel")
STATUSES = ("submitted", "planning", "working", "blocked", "completed", "failed", "canceled")
MAX_IMPORT_BYTES = 64 * 1024 * 1024
"""How large an objective may be that is brought in."""

_LINES = b"application/jsonl"


class AdminService(Protocol):
    """Who keeps the objectives, for the person who may see all of them, whoever they belong to.

    An objective is shown as `objectives/get` does, with `progress`, and with `principal` and
    `account`: to whom it belongs; `execution` says whether it is run, or paused.
    """

    async def list(self, limit: int, status: str | None = None) -> tuple[list[JsonObject], int]:
        """The newest objectives (with this status), the newest first, and how many there are.

        Their plans may be left out.
        """
        ...

    async def find(self, objective_id: str) -> JsonObject | None:
        """One objective with its plans and their tasks; None when there is none with this id."""
        ...

    async def act(self, objective_id: str, action: str) -> JsonObject:
        """Have an objective run, paused, resumed or cancelled; how it is then.

        Raises: PlanItemNotFound, StatusChangeNotAllowed.
        """
        ...

    async def answer(self, objective_id: str, text: str, step: str | None = None) -> JsonObject:
        """Answer a step that waits (the only one, if none is named); how the objective is then.

        Raises: PlanItemNotFound, InvalidParams (none waits, or several), GatewayError.
        """
        ...

    async def export(self, objective_id: str) -> bytes:
        """Its log as JSONL. Raises: PlanItemNotFound."""
        ...

    async def import_log(self, jsonl: bytes) -> JsonObject:
        """Take an objective from elsewhere by its log; how it is then.

        Raises: InvalidParams (it is no such log, or the id is taken).
        """
        ...


class ObjectivesAdmin:
    """Shows objectives and acts on them. `objectives` gives None while planning is off."""

    def __init__(self, objectives: Callable[[], AdminService | None]) -> None:
        self._objectives = objectives

    def add_to(self, door: AdminEndpoint) -> None:
        """Open the pages."""
        door.add_route("GET", "/operator/objectives", self.list)
        door.add_route(
            "POST", "/operator/objectives/import", self.take_in, max_content_bytes=MAX_IMPORT_BYTES
        )
        door.add_route("GET", "/operator/objectives/{}", self.show)
        door.add_route("GET", "/operator/objectives/{}/export", self.export)
        door.add_route("POST", "/operator/objectives/{}/answer", self.answer)
        for action in ACTIONS:
            door.add_route("POST", f"/operator/objectives/{{}}/{action}", self._acting(action))

    async def list(self, request: AdminRequest) -> JsonObject:
        """The newest objectives without their plans; `limit` and `status` choose among them.

        Raises: InvalidParams, UnsupportedOperation.
        """
        objectives, limit, status = self._open(), _read_limit(request), _read_status(request)
        found, count = await objectives.list(limit, status)
        return {"objectives": [_without_plans(one) for one in found], "totalSize": count}

    async def show(self, request: AdminRequest) -> JsonObject:
        """One objective with everything in it. Raises: PlanItemNotFound, UnsupportedOperation."""
        [wanted] = request.segments
        found = await self._open().find(wanted)
        if found is None:
            raise PlanItemNotFound(
                f"there is no objective {wanted[:80]}; list the objectives there are"
            )
        return found

    async def answer(self, request: AdminRequest) -> JsonObject:
        """Answer a step that waits: `text`, and `step` where several do.

        Raises: PlanItemNotFound, InvalidParams, UnsupportedOperation, GatewayError.
        """
        [wanted] = request.segments
        text: Json = request.body.get("text")
        step: Json = request.body.get("step")
        if not isinstance(text, str) or not text.strip():
            raise _wrong("text", "must be a string that is not only blanks")
        if step is not None and not isinstance(step, str):
            raise _wrong("step", "must be the id of a step, or left out")
        return await self._open().answer(wanted, text, step)

    async def export(self, request: AdminRequest) -> RawResponse:
        """The log of one objective. Raises: PlanItemNotFound, UnsupportedOperation."""
        [wanted] = request.segments
        return RawResponse(await self._open().export(wanted), _LINES)

    async def take_in(self, request: AdminRequest) -> JsonObject:
        """Take an objective in. Raises: InvalidParams, UnsupportedOperation, BodyTooLarge."""
        objectives = self._open()
        if not request.content.strip():
            raise _wrong("body", "is empty; send the lines that were exported")
        return await objectives.import_log(request.content)

    def _acting(self, action: str) -> AdminHandler:
        async def act(request: AdminRequest) -> JsonObject:
            [wanted] = request.segments
            return await self._open().act(wanted, action)

        return act

    def _open(self) -> AdminService:
        objectives = self._objectives()
        if objectives is None:
            raise UnsupportedOperation("objectives are off; set opt.enabled to true")
        return objectives


def _without_plans(shown: JsonObject) -> JsonObject:
    return {key: value for key, value in shown.items() if key != "plans"}


def _read_limit(request: AdminRequest) -> int:
    text = request.query.get("limit", str(USUAL))
    if text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= MOST:
        return int(text)
    raise _wrong("limit", f"must be a whole number from 1 to {MOST}")


def _read_status(request: AdminRequest) -> str | None:
    status = request.query.get("status")
    if status is None or status in STATUSES:
        return status
    raise _wrong("status", f"must be one of {', '.join(STATUSES)}")


def _wrong(name: str, reason: str) -> InvalidParams:
    return InvalidParams(f"{name}: {reason}", problems=(Problem(name, reason),))
