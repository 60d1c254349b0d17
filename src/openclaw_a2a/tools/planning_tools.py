"""The tools with which agents plan, as the table of tools knows them."""

from collections.abc import Callable
from typing import Protocol, TypeGuard

from openclaw_a2a.auth.tool_tokens import ToolCaller
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.call import Caller
from openclaw_a2a.model.errors import GatewayError, GatewayFault, InvalidParams, Problem
from openclaw_a2a.model.ids import AccountId, Json, JsonObject, PeerName
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.tools.registry import OnUpdate, Tool

log = get_logger(__name__)

Request = tuple[str, Json]
"""A method of planning, and its params."""

Ask = Callable[[Json], Request]
"""What planning is asked when a tool is called with these arguments."""

_OBJECTIVE_ACTIONS = ("run", "pause", "resume", "replan")
_PLAN_ACTIONS = ("run", "pause", "resume")

_ID: JsonObject = {"type": "string"}
_NAME: JsonObject = {"type": "string", "description": "A few words."}
_TEXT: JsonObject = {"type": "string", "description": "What is wanted, in full."}
_METADATA: JsonObject = {"type": "object", "description": "Notes of your own; replaces the old."}
_READ_AT: JsonObject = {
    "type": "string",
    "description": "Its updatedAt as you read it: the change is refused when it was changed since.",
}
_STEP_METADATA: JsonObject = {
    "type": "object",
    "properties": {
        "agent": {
            "type": "string",
            "description": "Who does it: id of an agent, or target:<alias> for a remote one.",
        },
        "retries": {
            "type": "integer",
            "minimum": 0,
            "description": "How often it is tried again when it fails.",
        },
        "backoffSeconds": {
            "type": "number",
            "minimum": 0,
            "description": "Pause before the first of these; it doubles with each.",
        },
    },
}
_STEPS: JsonObject = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "name": _NAME,
            "description": {"type": "string", "description": "What its agent is asked to do."},
            "dependencies": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Steps that must be completed first; task-0 is the first of this "
                "list, other values are ids. Their results are passed in.",
            },
            "metadata": _STEP_METADATA,
        },
        "required": ["name"],
    },
    "description": "The steps in their order; those that do not depend on each other run at once.",
}
_STEP_CHANGES: JsonObject = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "id": _ID,
            "name": _NAME,
            "description": _TEXT,
            "status": {
                "type": "string",
                "enum": ["pending", "working", "completed", "failed", "canceled"],
            },
            "dependencies": {"type": "array", "items": {"type": "string"}},
            "metadata": _STEP_METADATA,
        },
        "required": ["id"],
    },
    "description": "Changes of steps that the plan has already; the others stay as they are.",
}

_CREATE_OBJECTIVE: JsonObject = {
    "type": "object",
    "properties": {"name": _NAME, "description": _TEXT, "metadata": _METADATA},
    "required": ["name"],
}
_UPDATE_OBJECTIVE: JsonObject = {
    "type": "object",
    "properties": {
        "id": _ID,
        "name": _NAME,
        "description": _TEXT,
        "status": {
            "type": "string",
            "enum": [
                *("submitted", "planning", "working", "blocked"),
                *("completed", "failed", "canceled"),
            ],
            "description": "canceled stops what runs.",
        },
        "metadata": _METADATA,
        "ifUpdatedAt": _READ_AT,
        "action": {
            "type": "string",
            "enum": list(_OBJECTIVE_ACTIONS),
            "description": "Alone with id. run: have the steps done; pause, resume: begin no more "
            "steps, go on; replan: stop and plan again.",
        },
    },
    "required": ["id"],
}
_CREATE_PLAN: JsonObject = {
    "type": "object",
    "properties": {
        "objectiveId": _ID,
        "name": _NAME,
        "description": _TEXT,
        "tasks": _STEPS,
        "dependencies": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Ids of plans that must be completed first.",
        },
        "metadata": _METADATA,
    },
    "required": ["objectiveId", "name"],
}
_UPDATE_PLAN: JsonObject = {
    "type": "object",
    "properties": {
        "id": _ID,
        "name": _NAME,
        "description": _TEXT,
        "status": {
            "type": "string",
            "enum": ["pending", "working", "blocked", "completed", "failed", "skipped"],
        },
        "tasks": _STEP_CHANGES,
        "metadata": _METADATA,
        "ifUpdatedAt": _READ_AT,
        "addTasks": {**_STEPS, "description": "Alone with id: more steps, after the others."},
        "action": {
            "type": "string",
            "enum": list(_PLAN_ACTIONS),
            "description": "Alone with id. run: have the steps done; pause, resume: begin no more "
            "steps, go on.",
        },
    },
    "required": ["id"],
}
_STATUS: JsonObject = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "Left out: a list of your objectives."},
        "includePlans": {"type": "boolean", "default": True},
        "includeTasks": {"type": "boolean", "default": True},
        "status": {"type": "string", "description": "For the list: only those with this status."},
        "pageSize": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
        "pageToken": {"type": "string"},
    },
}


class ServesPlanning(Protocol):
    """Who keeps objectives and plans."""

    async def call(self, method: str, params: Json, scope: Scope) -> JsonObject:
        """The result of a method, for whoever asks. Raises: GatewayError."""
        ...


def planning_tools(
    planning: ServesPlanning, whose: Callable[[ToolCaller], Caller], *, account: AccountId
) -> list[Tool]:
    """The five tools. `whose` tells who a caller is among agents."""

    def made(name: str, description: str, schema: JsonObject, ask: Ask) -> Tool:
        async def run(arguments: Json, caller: ToolCaller, _tell: OnUpdate) -> JsonObject:
            try:
                scope = caller_scope(whose(caller), account)
                return {"status": "ok", **await planning.call(*ask(arguments), scope)}
            except GatewayError as error:
                if isinstance(error, GatewayFault):
                    log.exception("plan-tool-broken", tool=name, reason=error.message)
                return {"status": "error", "code": error.code, "error": error.message}

        return Tool(name, name.replace("_", " ").title(), description, schema, run)

    return [made(*words) for words in _TOOLS]


def caller_scope(caller: Caller, account: AccountId) -> Scope:
    """To whom the objectives of a caller belong: to an agent in all its sessions, or to a token."""
    name = caller.name if caller.session_key is None else f"agent:{caller.agent_id}"
    return Scope(PeerName(name), account)


def _update_objective(asked: Json) -> Request:
    if _has(asked, "action"):
        return f"objectives/{_action(asked, _OBJECTIVE_ACTIONS)}", {"id": asked.get("id")}
    return "objectives/update", asked


def _update_plan(asked: Json) -> Request:
    if _has(asked, "action"):
        return f"plans/{_action(asked, _PLAN_ACTIONS)}", {"id": asked.get("id")}
    if _has(asked, "addTasks"):
        _check_alone(asked, "addTasks")
        return "plans/addTasks", {"id": asked.get("id"), "tasks": asked["addTasks"]}
    return "plans/update", asked


def _ask_status(asked: Json) -> Request:
    return "objectives/get" if _has(asked, "id") else "objectives/list", asked


def _action(asked: JsonObject, known: tuple[str, ...]) -> str:
    """The action that is asked for. Raises: InvalidParams."""
    _check_alone(asked, "action")
    if asked["action"] not in known:
        raise _wrong("action", f"must be one of {', '.join(known)}")
    return str(asked["action"])


def _check_alone(asked: JsonObject, name: str) -> None:
    others = sorted(asked.keys() - {"id", name})
    if others:
        raise _wrong(name, f"goes alone with id; leave out {', '.join(others)[:200]}")


def _has(asked: Json, name: str) -> TypeGuard[JsonObject]:
    return isinstance(asked, dict) and name in asked


def _wrong(name: str, reason: str) -> InvalidParams:
    return InvalidParams(f"{name}: {reason}", problems=(Problem(name, reason),))


_TOOLS: tuple[tuple[str, str, JsonObject, Ask], ...] = (
    (
        "objective_create",
        "Begin an objective: a goal that takes several steps. Then give it plans with plan_create.",
        _CREATE_OBJECTIVE,
        lambda asked: ("objectives/create", asked),
    ),
    (
        "objective_update",
        "Change an objective, cancel it, or have it carried out.",
        _UPDATE_OBJECTIVE,
        _update_objective,
    ),
    (
        "plan_create",
        "Add a plan with its steps to an objective.",
        _CREATE_PLAN,
        lambda asked: ("plans/create", asked),
    ),
    (
        "plan_update",
        "Change a plan or its steps, add steps, or have it carried out.",
        _UPDATE_PLAN,
        _update_plan,
    ),
    (
        "objective_status",
        "See how far an objective is and what it waits for, or list your objectives.",
        _STATUS,
        _ask_status,
    ),
)
