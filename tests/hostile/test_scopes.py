"""Every read on behalf of a caller names the caller; what reads for all says why.

The tables name every method of the stores and of the repositories over records and logs, and every
place in the sources that reads without an owner. A new one without an entry fails, and so does an
entry that nothing needs any more.
"""

import ast
import functools
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

import openclaw_a2a
from openclaw_a2a.calls.repository import CallRepository
from openclaw_a2a.engine.tasks.submit_policy import PairedPeers
from openclaw_a2a.model.ids import OwnerId
from openclaw_a2a.planning.listing import ObjectiveIndex
from openclaw_a2a.planning.repository import ObjectiveRepository
from openclaw_a2a.ports import DeliveryStore, LogStore, RecordStore, TaskStore
from openclaw_a2a.remote.handles import TaskHandles

SOURCES = Path(openclaw_a2a.__file__).parent
OWNERS = frozenset({"scope", "owner", "caller"})
"""The names of parameters that say for whom something is read."""

# Reasons of methods which read things of several callers. Their uses are looked at as well.
OWN_WORK = "the gateway's own work on the things of all callers; its result reaches no caller"
OPERATOR = "for the operator's endpoints, whose token sees everything"
BY_REPOSITORY = "records and logs have no caller; the repository of their kind has the owner"
LOOKED_AT = frozenset({OWN_WORK, OPERATOR, BY_REPOSITORY})

# Reasons of methods that give nobody anything to see which is not theirs.
QUERY = "`TaskQuery.scope` is a condition of the query"
OWN_RUN = "the engine's own: by a run id and fence, which no caller names"
NEW_OR_OWN = "the owner is part of what is stored; who may change it was checked by a read"
READ_FIRST = "the id is that of something which was read within the scope"
COUNT = "a number, for a limit"
WITHIN = "part of a method that takes the scope"

STORES: dict[type, dict[str, str]] = {
    TaskStore: {
        "submit": NEW_OR_OWN,
        "commit": OWN_RUN,
        "start_run": OWN_RUN,
        "finish_run": OWN_RUN,
        "claim_runs": OWN_WORK,
        "list_orphaned_tasks": OWN_WORK,
        "read_resume_token": OWN_RUN,
        "list_recent_tasks": OPERATOR,
        "count_tasks": OPERATOR,
        "list_by_status": OPERATOR,
        "list_tasks": QUERY,
        "purge": OWN_WORK,
    },
    DeliveryStore: {
        "put_delivery": READ_FIRST,
        "update_delivery": OWN_WORK,
        "delete_delivery": READ_FIRST,
        "list_unfinished_deliveries": OWN_WORK,
        "list_deliveries": OPERATOR,
    },
    RecordStore: dict.fromkeys(
        ("put_record", "update_record", "delete_record", "read_record", "list_records"),
        BY_REPOSITORY,
    ),
    LogStore: dict.fromkeys(
        ("append_log", "read_log", "list_open_logs", "list_log_heads", "delete_log"), BY_REPOSITORY
    ),
}
"""The store methods without an owner, and why they need none."""

REPOSITORIES: dict[type, dict[str, str]] = {
    ObjectiveRepository: {
        "load": OWN_WORK,
        "list_open": OWN_WORK,
        "find_open": OWN_WORK,
        "load_index": "`ObjectiveIndex.page` takes the scope",
        "read_log_lines": OPERATOR,
        "read_operations": "for a subscription, which was made within the scope",
        "unsubscribe": READ_FIRST,
        **dict.fromkeys(
            ("is_own", "find_newest", "add_listener", "when_adopted", "when_changed_elsewhere"),
            OWN_WORK,
        ),
        "creation_context": NEW_OR_OWN,
        "create": NEW_OR_OWN,
        "reserve_plan_id": "ids of peers have their owner in them",
        "release_plan_id": "ids of peers have their owner in them",
    },
    ObjectiveIndex: {
        **dict.fromkeys(("put", "remove", "find_plan", "reserve_plan", "release_plan"), WITHIN),
        "__contains__": WITHIN,
        "ids": OWN_WORK,
        "unchanged_since": OWN_WORK,
    },
    CallRepository: {
        "load": OWN_WORK,
        "__iter__": OWN_WORK,
        "find": OWN_WORK,
        "fetch": OWN_WORK,
        "adopt": OWN_WORK,
        "list_all": OPERATOR,
        "update_stored": OWN_WORK,
        "note_in_session": OWN_WORK,
        "list_in_session": OWN_WORK,
        "clear": NEW_OR_OWN,
        "wait_settled": OWN_WORK,
        "first_undelivered": OWN_WORK,
        "has_other_undelivered": OWN_WORK,
        "update": OWN_WORK,
        "purge": OWN_WORK,
        "add": NEW_OR_OWN,
        "remove": NEW_OR_OWN,
        "to_record": NEW_OR_OWN,
        "stage": OWN_WORK,
        "is_unsaved": OWN_WORK,
        "is_inherited": OWN_WORK,
        "pending_of": COUNT,
        "__len__": COUNT,
    },
    TaskHandles: {"load": OWN_WORK},
    PairedPeers: {
        "load": OWN_WORK,
        "has": "asked about the caller itself",
        "list_peers": OPERATOR,
        "add": OPERATOR,
        "remove": OPERATOR,
    },
}
"""The same for what keeps records and logs. They are in memory: the store is read at the start, for
all callers at once, so that these and not the queries of the store are where an owner is checked.
"""

RECORD_USERS = {
    "calls/repository.py": CallRepository,
    "planning/repository.py": ObjectiveRepository,
    "planning/shared_repository.py": ObjectiveRepository,
    "remote/handles.py": TaskHandles,
    "engine/tasks/submit_policy.py": PairedPeers,
    "remote/run.py": "checkpoints, by the id of the run that reads its own",
    "engine/maintenance.py": "when the clock was last looked at",
}
"""Who reads and writes records and logs: the repositories above, and what belongs to no caller."""


def _methods(kind: type) -> dict[str, inspect.Signature]:
    """The methods that users of a class call."""
    special = ("__iter__", "__len__", "__contains__")
    return {
        name: inspect.signature(method)
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if name in special or not name.startswith("_")
    }


def _takes_owner(method: inspect.Signature) -> bool:
    # The owner of a lease is a process.
    given = method.parameters.values()
    return any(one.name in OWNERS and one.annotation is not OwnerId for one in given)


@pytest.mark.parametrize("kind", [*STORES, *REPOSITORIES], ids=lambda kind: kind.__name__)
def test_every_method_takes_the_owner_or_says_why_not(kind: type) -> None:
    unscoped = {name for name, method in _methods(kind).items() if not _takes_owner(method)}
    assert unscoped == set({**STORES, **REPOSITORIES}[kind]), "without an owner it needs a reason"


# ------------------------------------------------------------------ their uses

START = "the start of the gateway"
ENGINE = "the engine's work on a run or a task of its own, whoever it belongs to"
DELIVERY = "sends what is stored to the receiver that is stored with it"
FOUND = "of a call that was found for its caller, or for the operator"
EXECUTION = "the executor's work on objectives of all owners, which names no caller"

WITHOUT_OWNER = {
    "app/wiring/policy.py::PolicyWiring.open": START,
    "app/wiring/calls.py::CallsWiring.open": START,
    "app/wiring/calls.py::CallsWiring._purge": OWN_WORK,
    "app/wiring/planning.py::PlanningWiring._purge": OWN_WORK,
    "app/wiring/planning.py::PlanningWiring.open": START,
    "app/wiring/planning.py::PlanningWiring.start": START,
    "dashboard/": OPERATOR,
    "server/admin/": OPERATOR,
    "server/queued_replies.py::_append": "a task that its own run asks about",
    "server/push/sender.py": DELIVERY,
    "engine/recovery.py": ENGINE,
    "engine/maintenance.py": OWN_WORK,
    "engine/background_replies.py": ENGINE,
    "engine/outbox/outbox.py": DELIVERY,
    "engine/outbox/delivery_view.py": OPERATOR,
    "engine/tasks/queries.py::find_any_task": OPERATOR,
    "engine/tasks/run.py::ActiveRun._show_task": ENGINE,
    "engine/tasks/cancel.py::fail_paused_task": ENGINE,
    "engine/tasks/submit.py::list_held": "takes the owner, as a part of its filter",
    "engine/tasks/held_tasks.py::reject_expired": OWN_WORK,
    "engine/tasks/held_tasks.py::HeldTasks": OPERATOR,
    "engine/tasks/submit_policy.py::PairedPeers": BY_REPOSITORY,
    "planning/admin_service.py": OPERATOR,
    "planning/executor.py::StepExecutor.__init__": EXECUTION,
    "planning/executor.py::StepExecutor.start": EXECUTION,
    "planning/executor.py::StepExecutor._advance": EXECUTION,
    "planning/message_routing.py::MessageRouter._create_objective": "whether an id is free",
    "planning/repository.py": BY_REPOSITORY,
    "planning/shared_repository.py": BY_REPOSITORY,
    "planning/task_sync.py": "copies the state of the task of a step, no more",
    "planning/views.py::add_step_texts": OPERATOR,
    "calls/loop_guard.py::CallHistory.origin_of": "of the calls in a session of the caller",
    "calls/outcome_delivery.py": "brings an outcome to the caller that the call names",
    "calls/repository.py": BY_REPOSITORY,
    "calls/submission.py::CallSubmission._wait_accepted": "of the call that its caller is making",
    "calls/submission.py::CallSubmission._remove": "calls that were just made, no repository",
    "calls/service.py::CallService._read_task": FOUND,
    "calls/service.py::CallService._delivery_problem": FOUND,
    "calls/service.py::CallService._timestamps": FOUND,
    "calls/service.py::CallService.ask_step": "a debate that asks for its own next answer",
    "calls/service.py::CallService.list_calls": OPERATOR,
    "calls/service.py::CallService.describe": OPERATOR,
    "calls/service.py::CallService.find": OPERATOR,
    "remote/tool.py::RemoteAgentTool.open": START,
    "remote/handles.py::RecordHandleStore": BY_REPOSITORY,
    "remote/run.py::read_remote_task_id": "of a run that was found within the scope",
    "remote/run.py::RemoteRun._load_checkpoint": "that of the run itself, by its id",
    "remote/run.py::RemoteRun._store_checkpoint": "that of the run itself, by its id",
    "library/openclaw_tasks.py": "the program around it is the only caller",
    "library/remote_agents.py": "the program around it is the only caller",
}
"""Where the sources read without an owner (a folder, a file, or a function of it), and why."""

NOT_SCANNED = ("store/", "ports/", "agents/", "cli/")
"""The stores themselves, what describes them, and what has no store."""


class Definition(NamedTuple):
    """A parameter for the owner that may be None: its name, and its position in calls."""

    name: str
    position: int | None
    has_default: bool


class Use(NamedTuple):
    """A read without an owner: where, and of what."""

    place: str
    line: int
    what: str


TREES = {
    path.relative_to(SOURCES).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(SOURCES.rglob("*.py"))
}


def test_nothing_reads_without_an_owner_unless_it_says_why() -> None:
    uses = list(_uses())
    unexplained = [use for use in uses if _reason(use) is None]
    assert unexplained == []
    needed = {_reason(use) for use in uses}
    assert set(WITHOUT_OWNER) - needed == set(), "nothing there reads without an owner"


def test_records_and_logs_are_read_by_their_repositories_only() -> None:
    names = {*STORES[RecordStore], *STORES[LogStore]}
    users = {
        path
        for path, tree in TREES.items()
        if not path.startswith(NOT_SCANNED)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in names
    }
    assert users == set(RECORD_USERS)
    kept = {kind for kind in RECORD_USERS.values() if isinstance(kind, type)}
    assert kept | {ObjectiveIndex} == set(REPOSITORIES)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("queries.measure_task(engine, None, task_id)", ["measure_task"]),
        ("queries.measure_task(engine, task_id=task_id, scope=None)", ["measure_task"]),
        ("await store.read_task(None, task_id)", ["read_task"]),
        ("page = index.page(10, scope=None)", ["page"]),
        ("Subscription(store, None, task_id, cursor=0, feed=None)", ["Subscription"]),
        ("tool.execute(request)", ["execute"]),
        ("call = self._calls.find(call_id)", ["find"]),
        ("for call in self._calls: pass", ["__iter__"]),
        ("[one for one in calls]", ["__iter__"]),
        ("filter(None, map(self._calls.find, ids))", ["find"]),
        ("store.list_recent_tasks(10)", ["list_recent_tasks"]),
        ("queries.measure_task(engine, scope, task_id)", []),
        ("store.read_task(head.scope, None)", []),
        ("text.find(part)", []),
        ("tool.execute(request, owner=caller)", []),
    ],
)
def test_reads_without_an_owner_are_recognised(source: str, found: list[str]) -> None:
    body = f"async def read():\n    {source}\n"
    uses = _uses_in("x.py", ast.parse(body), _definitions(), _receivers())
    assert [use.what for use in uses] == found


def _reason(use: Use) -> str | None:
    """The entry of `WITHOUT_OWNER` that explains a use."""
    file = use.place.partition("::")[0]
    for entry in WITHOUT_OWNER:
        is_folder = entry.endswith("/") and file.startswith(entry)
        if is_folder or entry in (file, use.place) or use.place.startswith(f"{entry}."):
            return entry
    return None


def _uses() -> Iterator[Use]:
    definitions, receivers = _definitions(), _receivers()
    for path, tree in TREES.items():
        if not path.startswith(NOT_SCANNED):
            yield from _uses_in(path, tree, definitions, receivers)


def _uses_in(
    path: str,
    tree: ast.AST,
    definitions: Mapping[str, set[Definition]],
    receivers: Mapping[str, set[str]],
) -> Iterator[Use]:
    by_name = {
        name
        for methods in STORES.values()
        for name, reason in methods.items()
        if reason in LOOKED_AT
    }
    for place, node in _walk(tree, path, ()):
        what = ""
        if isinstance(node, ast.Call) and _has_no_owner(node, definitions):
            what = _called(node)
        elif isinstance(node, ast.Attribute) and (
            node.attr in by_name or _last_name(node.value) in receivers.get(node.attr, ())
        ):
            what = node.attr
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            what = "__iter__" if _last_name(node.iter) in receivers.get("__iter__", ()) else ""
        if what:
            yield Use(place, getattr(node, "lineno", 0), what)


def _walk(node: ast.AST, path: str, inside: tuple[str, ...]) -> Iterator[tuple[str, ast.AST]]:
    """Every node, with its place: the file, and the class and functions around it."""
    for child in ast.iter_child_nodes(node):
        is_named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        names = (*inside, child.name) if is_named else inside
        yield f"{path}::{'.'.join(names)}", child
        yield from _walk(child, path, names)


@functools.cache
def _definitions() -> dict[str, set[Definition]]:
    """The functions of the sources whose owner may be None, by name; classes by their own name."""
    found: dict[str, set[Definition]] = {}

    def visit(node: ast.AST, owner: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                name = owner if child.name == "__init__" else child.name
                found.setdefault(name, set()).update(
                    _owner_parameters(child, is_method=bool(owner))
                )
                visit(child, "")
            else:
                visit(child, child.name if isinstance(child, ast.ClassDef) else owner)

    for tree in TREES.values():
        visit(tree, "")
    return {name: definitions for name, definitions in found.items() if definitions}


def _owner_parameters(
    function: ast.FunctionDef | ast.AsyncFunctionDef, *, is_method: bool
) -> Iterator[Definition]:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args][is_method:]
    with_default = {
        *(one.arg for one in positional[len(positional) - len(arguments.defaults) :]),
        *(
            one.arg
            for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            if default is not None
        ),
    }
    for number, one in enumerate([*positional, *arguments.kwonlyargs]):
        annotation = "" if one.annotation is None else ast.unparse(one.annotation)
        if one.arg in OWNERS and annotation in ("Scope | None", "PeerName | None", "Caller | None"):
            position = number if number < len(positional) else None
            yield Definition(one.arg, position, one.arg in with_default)


def _has_no_owner(call: ast.Call, definitions: Mapping[str, set[Definition]]) -> bool:
    """True when the owner is None, or left out where that means None."""
    for wanted in definitions.get(_called(call), ()):
        given = [one.value for one in call.keywords if one.arg == wanted.name]
        if wanted.position is not None:
            given += call.args[wanted.position : wanted.position + 1]
        if not given and wanted.has_default:
            return True
        if any(isinstance(one, ast.Constant) and one.value is None for one in given):
            return True
    return False


@functools.cache
def _receivers() -> dict[str, set[str]]:
    """The methods of repositories that read for all, and the names of what they are called on."""
    found: dict[str, set[str]] = {}
    for kind, methods in REPOSITORIES.items():
        held = (_holder(node, kind) for tree in TREES.values() for node in ast.walk(tree))
        names = {spelling for name in held if name for spelling in (name, f"_{name}")}
        assert names, f"nothing holds a {kind.__name__} any more"
        for method, reason in methods.items():
            if reason in LOOKED_AT:
                found.setdefault(method, set()).update(names)
    return found


def _holder(node: ast.AST, kind: type) -> str:
    """The name, without underscores, of a parameter, field or variable that holds one of these."""
    if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
        is_one = ast.unparse(node.annotation).split(" | ")[0] == kind.__name__
        name = node.arg if isinstance(node, ast.arg) else _last_name(node.target)
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
        is_one, name = _called(node.value) == kind.__name__, _last_name(node.targets[0])
    else:
        return ""
    return name.strip("_") if is_one else ""


def _called(call: ast.Call) -> str:
    return _last_name(call.func)


def _last_name(node: ast.expr) -> str:
    """`c` of `a.b.c`."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
