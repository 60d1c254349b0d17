"""The tools for planning: their schemas, and the planning method that each call stands for."""

from collections.abc import Awaitable, Callable, Iterable

from openclaw_a2a.auth.tool_tokens import ToolCaller
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.call import Caller
from openclaw_a2a.model.errors import GatewayError, GatewayFault, InvalidParams, Problem
from openclaw_a2a.model.ids import AccountId, Json, JsonObject, PeerName
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.model.validation import is_object
from openclaw_a2a.planning.model import ObjectiveStatus, PlanStatus
from openclaw_a2a.planning.service import PlanningService
from openclaw_a2a.tools.registry import OnUpdate, Tool

log = get_logger(__name__)

_Request = tuple[str, Json]
"""A planning method and its params."""

ToRequest = Callable[[Json], _Request]
"""From the arguments of a tool call to the request."""

_OBJECTIVE_ACTIONS = ("run", "pause", "resume", "replan")
_PLAN_ACTIONS = ("run", "pause", "resume")


def _text_schema(description: str) -> JsonObject:
    return {"type": "string", "description": description}


def _list_schema(items: JsonObject, description: str = "") -> JsonObject:
    schema: JsonObject = {"type": "array", "items": items}
    return {**schema, "description": description} if description else schema


def _choice(values: Iterable[str], description: str = "") -> JsonObject:
    schema: JsonObject = {"type": "string", "enum": list(values)}
    return {**schema, "description": description} if description else schema


def _object(required: tuple[str, ...], /, **properties: JsonObject) -> JsonObject:
    schema: JsonObject = {"type": "object", "properties": properties}
    return {**schema, "required": list(required)} if required else schema


_ID: JsonObject = {"type": "string"}
_NAME = _text_schema("A few words.")
_TEXT = _text_schema("What is wanted, in full.")
_METADATA: JsonObject = {"type": "object", "description": "Notes of your own; replaces the old."}
_READ_AT = _text_schema(
    "Its updatedAt as you read it: the change is refused when it was changed since."
)
_STEP_METADATA = _object(
    (),
    agent=_text_schema("Who does it: id of an agent, or target:<alias> for a remote one."),
    retries={
        "type": "integer",
        "minimum": 0,
        "description": "How often it is tried again when it fails.",
    },
    backoffSeconds={
        "type": "number",
        "minimum": 0,
        "description": "Pause before the first of these; it doubles with each.",
    },
)
_STEPS = _list_schema(
    _object(
        ("name",),
        name=_NAME,
        description=_text_schema("What its agent is asked to do."),
        dependencies=_list_schema(
            _ID,
            "Steps that must be completed first; task-0 is the first of this list, other values "
            "are ids. Their results are passed in.",
        ),
        metadata=_STEP_METADATA,
    ),
    "The steps in their order; those that do not depend on each other run at once.",
)
_STEP_CHANGES = _list_schema(
    _object(
        ("id",),
        id=_ID,
        name=_NAME,
        description=_TEXT,
        status=_choice(["pending", "working", "completed", "failed", "canceled"]),
        dependencies=_list_schema(_ID),
        metadata=_STEP_METADATA,
    ),
    "Changes of steps that the plan has already; the others stay as they are.",
)

_CREATE_OBJECTIVE = _object(("name",), name=_NAME, description=_TEXT, metadata=_METADATA)
_UPDATE_OBJECTIVE = _object(
    ("id",),
    id=_ID,
    name=_NAME,
    description=_TEXT,
    status=_choice([one.value for one in ObjectiveStatus], "canceled stops what runs."),
    metadata=_METADATA,
    ifUpdatedAt=_READ_AT,
    action=_choice(
        _OBJECTIVE_ACTIONS,
        "Alone with id. run: have the steps done; pause, resume: begin no more steps, go on; "
        "replan: stop and plan again.",
    ),
)
_CREATE_PLAN = _object(
    ("objectiveId", "name"),
    objectiveId=_ID,
    name=_NAME,
    description=_TEXT,
    tasks=_STEPS,
    dependencies=_list_schema(_ID, "Ids of plans that must be completed first."),
    metadata=_METADATA,
)
_UPDATE_PLAN = _object(
    ("id",),
    id=_ID,
    name=_NAME,
    description=_TEXT,
    status=_choice(one.value for one in PlanStatus),
    tasks=_STEP_CHANGES,
    metadata=_METADATA,
    ifUpdatedAt=_READ_AT,
    addTasks={**_STEPS, "description": "Alone with id: more steps, after the others."},
    action=_choice(
        _PLAN_ACTIONS,
        "Alone with id. run: have the steps done; pause, resume: begin no more steps, go on.",
    ),
)
_STEP = _text_schema("Its id, its name, or the beginning of either.")
_READ_STEP = _object(("objectiveId", "step"), objectiveId=_ID, step=_STEP)
_ANSWER_STEP = _object(
    ("objectiveId", "text"),
    objectiveId=_ID,
    text=_text_schema("The answer, as its agent will read it."),
    step={**_STEP, "description": "Which step; may be left out where only one waits."},
)
_STATUS = _object(
    (),
    id=_text_schema("Left out: a list of your objectives."),
    includePlans={"type": "boolean", "default": True},
    includeTasks={"type": "boolean", "default": True},
    status=_text_schema("For the list: only those with this status."),
    pageSize={"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
    pageToken={"type": "string"},
)


def planning_tools(
    planning: PlanningService,
    resolve_caller: Callable[[ToolCaller], Awaitable[Caller]],
    *,
    account: AccountId,
) -> list[Tool]:
    """The seven tools. `resolve_caller` says which agent or token calls."""

    def build(name: str, description: str, schema: JsonObject, to_request: ToRequest) -> Tool:
        async def run(arguments: Json, caller: ToolCaller, _on_update: OnUpdate) -> JsonObject:
            method = name
            try:
                owner = caller.owner
                scope = caller_scope(await resolve_caller(caller), account, owner=owner)
                method, params = to_request(arguments)
                result = await planning.call(method, params, scope, address=caller.address)
            except GatewayError as error:
                if isinstance(error, GatewayFault):
                    log.exception("planning.tool_failed", tool=name, reason=error.message)
                # A model knows its tools, not the methods behind them.
                reason = error.message.replace(f"parameters of {method} ", f"parameters of {name} ")
                return {"status": "error", "code": error.code, "error": reason}
            return {"status": "ok", **result}

        return Tool(name, name.replace("_", " ").title(), description, schema, run)

    return [build(*definition) for definition in _TOOLS]


AGENT_OWNER = "agent:"
"""Prefix of the names under which agents own objectives."""


def caller_scope(caller: Caller, account: AccountId, *, owner: str = "") -> Scope:
    """The owner of a caller's objectives: the agent in all its sessions, or the token's owner."""
    own_name = owner or caller.name
    name = own_name if caller.session_key is None else f"{AGENT_OWNER}{caller.agent_id}"
    return Scope(PeerName(name), account)


def _update(arguments: Json, kind: str, actions: tuple[str, ...]) -> _Request:
    """An update of an objective or a plan, or the one thing that goes alone with its id."""
    given = arguments if is_object(arguments) else {}
    alone = next((name for name in ("action", "addTasks") if name in given), None)
    if alone is None or (alone == "addTasks" and kind != "plans"):
        return f"{kind}/update", arguments
    others = sorted(given.keys() - {"id", alone})
    if others:
        raise _invalid(alone, f"goes alone with id; leave out {', '.join(others)[:200]}")
    if alone == "addTasks":
        return "plans/addTasks", {"id": given.get("id"), "tasks": given["addTasks"]}
    if given["action"] not in actions:
        raise _invalid("action", f"must be one of {', '.join(actions)}")
    return f"{kind}/{given['action']}", {"id": given.get("id")}


def _status_request(arguments: Json) -> _Request:
    has_id = is_object(arguments) and "id" in arguments
    return "objectives/get" if has_id else "objectives/list", arguments


def _invalid(name: str, reason: str) -> InvalidParams:
    return InvalidParams(f"{name}: {reason}", problems=(Problem(name, reason),))


_TOOLS: tuple[tuple[str, str, JsonObject, ToRequest], ...] = (
    (
        "objective_create",
        "Begin an objective: a goal that takes several steps. Then give it plans with plan_create.",
        _CREATE_OBJECTIVE,
        lambda arguments: ("objectives/create", arguments),
    ),
    (
        "objective_update",
        "Change an objective, cancel it, or have it carried out.",
        _UPDATE_OBJECTIVE,
        lambda arguments: _update(arguments, "objectives", _OBJECTIVE_ACTIONS),
    ),
    (
        "plan_create",
        "Add a plan with its steps to an objective.",
        _CREATE_PLAN,
        lambda arguments: ("plans/create", arguments),
    ),
    (
        "plan_update",
        "Change a plan or its steps, add steps, or have it carried out.",
        _UPDATE_PLAN,
        lambda arguments: _update(arguments, "plans", _PLAN_ACTIONS),
    ),
    (
        "objective_status",
        "See how far an objective is and what it waits for, or list your objectives.",
        _STATUS,
        _status_request,
    ),
    (
        "step_read",
        "Read what a step of an objective asks, what came of it, or why it failed.",
        _READ_STEP,
        lambda arguments: ("steps/get", arguments),
    ),
    (
        "step_answer",
        "Answer a step of an objective that waits for input; it goes on with that.",
        _ANSWER_STEP,
        lambda arguments: ("steps/answer", arguments),
    ),
)
