"""Rules for the sources that linters do not check: docstrings, environment access, escapes."""

import ast
import importlib
import io
import re
import tokenize
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "openclaw_a2a"
MODULES = sorted(SOURCE.rglob("*.py"))

READS_ENVIRONMENT = {
    "agents/process/child.py",  # hands its own environment on to programs
    "agents/process/tree.py",  # finds programs by a variable in their environment
}

# Comments that switch a check off; keep the number low, and change it here when it changes.
MAX_ESCAPES = 20


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def comments(path: Path) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def test_every_module_says_what_it_is_for() -> None:
    silent = [name_of(path) for path in MODULES if not ast.get_docstring(parse(path))]
    assert silent == []


def test_first_line_of_a_module_is_one_sentence() -> None:
    first_lines = {
        name_of(path): (ast.get_docstring(parse(path)) or ".").splitlines()[0] for path in MODULES
    }
    unfinished = {name: line for name, line in first_lines.items() if line[-1] not in ".:?"}
    assert unfinished == {}


def test_every_docstring_of_a_name_follows_that_name() -> None:
    strays = [
        f"{name_of(path)}:{second.lineno}"
        for path in MODULES
        for node in ast.walk(parse(path))
        for first, second in pairwise(
            node.body if isinstance(node, ast.Module | ast.ClassDef) else ()
        )
        if is_text(first) and is_text(second)
    ]
    assert strays == []


def is_text(node: ast.stmt) -> bool:
    is_constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_constant and isinstance(node.value.value, str)


def test_only_settings_reads_the_environment() -> None:
    readers = {
        name_of(path)
        for path in MODULES
        if not name_of(path).startswith("settings/")
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "environb")
    }
    assert readers == READS_ENVIRONMENT


def test_escapes_from_checks_have_a_reason_and_stay_few() -> None:
    escape = re.compile(r"#\s*(noqa|type: ignore|pyright: ignore|pragma: no cover)(.*)")
    found = {
        f"{name_of(path)}:{line}": match
        for path in MODULES
        for line, comment in comments(path)
        if (match := escape.match(comment))
    }
    bare = [place for place, match in found.items() if not re.search(r"\w+ \w+$", match.group(2))]
    assert bare == []
    assert len(found) <= MAX_ESCAPES, "\n".join(sorted(found))


def test_nothing_is_left_for_later() -> None:
    later = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
    assert [name_of(path) for path in MODULES if later.search(path.read_text("utf-8"))] == []


# Public names that are defined in more than one module, each with the reason.
SAME_NAME = {
    "ACTIVE": "states of tasks, and of OpenClaw's run that is followed",
    "CONNECTION_LOST": "what an agent answers, and the error code of a command",
    "Change": "operations of an objective, and one change that a live view draws",
    "Command": "what a store executes: the base, and all that the json-file writer takes",
    "FAILED": "the outcome in the audit log, the text of a task, an exit code",
    "Item": "an object that has a status, and a step that OpenClaw reports",
    "LARGE_BYTES": "of an answer, and of a value in the database",
    "PAUSED": "states of tasks, and the status of an objective",
    "STOPPED": "texts of tasks: stopped in OpenClaw, stopped here",
    "TRANSITIONS": "the table of each state machine",
    "VERSION": "of the package, and of the protocol",
    "Params": "parameters of one method: of a protocol version, of planning",
    "RunSignal": "state machines of the engine's run, and of OpenClaw's run that is followed",
    "RunState": "state machines of the engine's run, and of OpenClaw's run that is followed",
    "Scope": "what credentials are valid for (OAuth's word), and what reads are limited to",
    "cancel": "the operation of the server; commands",
    "check": "commands: `config check`, `targets check`",
    "create": "commands: `objectives create`, `token create`",
    "decode_event": "stored form and wire form of the same thing",
    "decode_task": "stored form and wire form of the same thing",
    "delete": "the operation of the server; a command",
    "encode_event": "stored form and wire form of the same thing",
    "list_": "commands: `tasks list`, `calls list`, ...",
    "list_tasks": "the operation of the server, and the request of a command",
    "replan": "the change of an objective, and its command",
    "run": "the entry point, and the command `objectives run`",
    "send": "the operation of the server; commands",
    "serve": "one endpoint each; the public API; the process",
    "show_": "commands: `calls show`, `objectives show`",
    "subscribe": "the operation of the server, and the query of the engine",
    "upgrade": "the command, and the migration it runs",
    "watch": "commands: `tasks watch`, `calls watch`, ...",
}


# Every module has its own: the logger, and the commands of a group.
EVERYWHERE = {"app", "log"}


def test_public_names_that_are_defined_twice_have_a_reason() -> None:
    places: dict[str, set[str]] = {}
    for path in MODULES:
        # The codecs of the two protocol versions have the same operations on purpose.
        place = re.sub(r"^protocol/(v1|v03)", "protocol/version", name_of(path))
        for node in parse(path).body:
            for name in defined_names(node):
                places.setdefault(name, set()).add(place)
    repeated = {name for name, modules in places.items() if len(modules) > 1 and name[0] != "_"}
    repeated -= EVERYWHERE
    assert repeated - SAME_NAME.keys() == set()
    assert SAME_NAME.keys() - repeated == set(), "no longer defined twice"


def defined_names(node: ast.stmt) -> Iterator[str]:
    """The names that a statement of a module defines; type variables are no names for others."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
    if isinstance(node, ast.Assign | ast.AnnAssign):
        is_type_variable = node.value is not None and "TypeVar(" in ast.unparse(node.value)
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets if not is_type_variable else ():
            yield from (one.id for one in ast.walk(target) if isinstance(one, ast.Name))


def makes_a_task(node: ast.AST) -> bool:
    """True for `create_task`, `ensure_future` and `asyncio.Task(...)`, which is no annotation."""
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) == "asyncio.Task"
    # Task groups own what they create.
    is_of_group = isinstance(node, ast.Attribute) and ast.unparse(node.value) == "group"
    names = ("create_task", "ensure_future")
    return isinstance(node, ast.Attribute) and node.attr in names and not is_of_group


def test_only_the_supervisor_creates_tasks() -> None:
    creators = {name_of(path) for path in MODULES if any(map(makes_a_task, ast.walk(parse(path))))}
    # The HTTP server has its requests, and stops them: uvicorn's `Server.shutdown` waits for them.
    # The PostgreSQL writer is what the writer thread of SQLite is: it lives as long as its store.
    owners = {"engine/supervisor.py", "http/server_protocol.py", "store/postgres/writer.py"}
    assert creators == owners


def test_what_the_benchmarks_import_of_us_exists() -> None:
    """They are started by hand, long after a name has changed."""
    missing: list[str] = []
    for path in sorted((ROOT / "bench").rglob("*.py")):
        for node in ast.walk(parse(path)):
            if not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            if node.module.partition(".")[0] == "openclaw_a2a":
                module = importlib.import_module(node.module)
                names = [one.name for one in node.names if not hasattr(module, one.name)]
                missing += [f"{path.name}: {node.module}.{name}" for name in names]
    assert missing == []
