"""Writes the generated parts of the reference pages: settings, errors, commands and so on.

    .venv/bin/python docs/generate.py            write them
    .venv/bin/python docs/generate.py --check    say which are out of date, change nothing

A part stands between `<!-- generated: NAME -->` and `<!-- end -->`; all other text is written by
hand, and so are the meanings of log events, which are kept. A test runs the check.
"""

import argparse
import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import cast, get_args
from unittest import mock

import msgspec
from msgspec import inspect as kinds

import openclaw_a2a
from openclaw_a2a import agents
from openclaw_a2a.agents.openclaw_cli.command import OpenClawCliOptions
from openclaw_a2a.agents.openclaw_gateway.agent import OpenClawGatewayOptions
from openclaw_a2a.agents.process.command_agent import CommandOptions
from openclaw_a2a.cli.dispatch import build_commands
from openclaw_a2a.model import agent_event, errors
from openclaw_a2a.model.errors import AgentError, CallerError, GatewayError, GatewayFault
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.protocol.errors import ERROR_TABLE
from openclaw_a2a.settings.file_schema import FileKeys

REFERENCE = Path(__file__).parent / "reference"
ACCOUNT = "channels.a2a.accounts.<account>"
ISSUER = "channels.a2a.security.oidc[]"
_PART = re.compile(r"(<!-- generated: ([\w.-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_LARGEST = 2**31 - 1

# What the types of the settings do not say by themselves.
_MEANINGS = {
    "store.kind": "How tasks are kept: in memory, JSON files, one SQLite file, or PostgreSQL.",
    f"{ACCOUNT}.enabled": "`false`: the addresses of the account are not there.",
    f"{ACCOUNT}.pushNotifications": "Callers may name webhooks for notifications about "
    "their tasks.",
    f"{ACCOUNT}.agentStyle": "When an answer becomes a task. "
    "`task-generating`: always. `hybrid`: one plain message is answered directly; a tool, a note, "
    "a second message, a pause or an error makes it a task.",
    f"{ACCOUNT}.originRoutingPolicy": "Whether the agent gets the channel through "
    "which the message came. `suppress-generic-followup`: no. `legacy-origin-routing`: yes.",
    f"{ACCOUNT}.taskStore.kind": "As `store.kind`; here the default is `memory`.",
    f"{ACCOUNT}.taskStore.path": "File or folder, an absolute path (`~` counts). "
    "No two stores may share one.",
    f"{ACCOUNT}.skills": "What the card says the agent can do: a list of "
    "objects with `id`, `name`, `description`, `tags` and `examples`. Left out: one skill, `chat`.",
    f"{ACCOUNT}.label": "Name on the card. Left out: the account's id.",
    f"{ACCOUNT}.sessionStore": "Handed to the agent with each message; the "
    "gateway itself does not use it.",
    "agents.<agent>.adapter": "Who answers: `openclaw-gateway`, `openclaw`, `command`, `callable`, "
    "`echo`, or the name of an adapter that another package brings. May be left out for an agent "
    "that OpenClaw offers.",
    "agents.<agent>.skills": "What other agents may call it for: a list of [skills](#skills).",
    "openclaw.expose": "Which of OpenClaw's agents: `all`, or a list of their ids.",
    "openclaw.token": "`env:NAME` or `file:PATH`; needed for an OpenClaw on another machine.",
    "limits.artifactBytes": "Bytes of artifacts that a task may get while it runs.",
    "lease.seconds": "How long a gateway owns its runs without a sign of life.",
    "log.level": "What is written to the log.",
    "log.format": "`auto`: pretty on a terminal, JSON lines elsewhere.",
    "outbound": "Remote agents that may be called, and how; see below.",
    "$schema": "For editors; the gateway does not read it.",
}
# Defaults that are worked out from other settings.
_DEFAULTS = {
    "server.publicBaseUrl": "host and port",
    "limits.perAddressConnections": "256; this machine: any number",
    "store.path": "`state.db` or `tasks` in the data folder",
    f"{ACCOUNT}.label": "the account's id",
    f"{ACCOUNT}.description": "a plain sentence",
    f"{ACCOUNT}.publicBaseUrl": "`server.publicBaseUrl`",
    f"{ACCOUNT}.defaultAgentId": "`main`, or the only agent",
    f"{ACCOUNT}.agentCardPath": "`/.well-known/agent-card.json`",
    f"{ACCOUNT}.jsonRpcPath": "`/a2a/jsonrpc`",
    f"{ACCOUNT}.taskStore.kind": "`memory`",
    f"{ACCOUNT}.skills": "one skill, `chat`",
    "agents.<agent>.skills": "none: it may be called for anything",
    "agents.<agent>.tools.agentToAgent.allow": "all that take part",
    "agents.<agent>.cwd": "the gateway's",
    "openclaw.configPath": "where OpenClaw looks",
    "opt.directory": "`objectives` in the data folder",
    "openclaw.url": "what OpenClaw's config says",
    "openclaw.token": "that of OpenClaw's config",
    f"{ISSUER}.name": "the host of its address",
    f"{ISSUER}.accounts": "all",
    f"{ISSUER}.agents": "all",
    f"{ISSUER}.algorithms": "all of them",
    f"{ISSUER}.jwksUrl": "what its discovery document says",
}
_ERRORS = {
    "invalid-params": "Members are missing or of the wrong type; the answer lists every one.",
    "overloaded": "A limit is reached; `Retry-After` says when to try again.",
    "settings-invalid": "The configuration has problems; every one is listed with its path.",
}
_NAMES = {
    "agents": "<agent>",
    "accounts": "<account>",
    "peers": "<peer>",
    "webhooks": "<caller>",
}


class Key(msgspec.Struct, frozen=True):
    """One row of a table of settings."""

    path: str
    type: kinds.Type
    default: object
    description: str

    @property
    def row(self) -> str:
        """The row."""
        cells = (f"`{self.path}`", _type_words(self.type), self.default_words, self.meaning)
        return f"| {' | '.join(cells)} |"

    @property
    def default_words(self) -> str:
        """The default as people write it."""
        if self.path in _DEFAULTS:
            return _DEFAULTS[self.path]
        if self.default is msgspec.NODEFAULT:
            return "required"
        value = self.default.value if isinstance(self.default, Enum) else self.default
        if value in ("", None):
            return "none"
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return f"`{msgspec.json.encode(value).decode()}`"

    @property
    def meaning(self) -> str:
        """What the key is for."""
        return _MEANINGS.get(self.path) or self.description


def settings_part(section: str) -> str:
    """The table of one section of the settings file."""
    wanted = (section,) if section != "top" else ("$schema", "data", "outbound")
    keys = [key for key in _keys("", FileKeys) if _top(key.path) in wanted]
    return _settings_table(keys)


def options_part(kind: type[msgspec.Struct]) -> str:
    """The table of the options of one adapter."""
    return _settings_table(list(_keys("agents.<agent>", kind)))


def errors_part(root: type[GatewayError]) -> str:
    """The table of the errors of one branch of the tree."""
    lines = [
        "| code | meaning | JSON-RPC 1.0 | JSON-RPC 0.3 | HTTP+JSON | `reason` |",
        "|---|---|---|---|---|---|",
    ]
    for kind in _error_kinds(root):
        names = ERROR_TABLE[kind]
        rpc_http = "" if names.rpc_http == 200 else f" (HTTP {names.rpc_http})"
        meaning = _ERRORS.get(kind.code) or (kind.__doc__ or "").partition("\n")[0]
        lines.append(
            f"| `{kind.code}` | {meaning} | {names.v1}{rpc_http} | {names.v03}{rpc_http} "
            f"| {names.http} {names.grpc} | `{names.reason(kind.code)}` |"
        )
    return "\n".join(lines) + "\n"


def commands_part() -> str:
    """Every command with its arguments and options."""
    # cyclopts puts the name of the running program into the usage of commands: name it ourselves,
    # so that the pages do not depend on how this or the test was started.
    with mock.patch.object(sys, "argv", ["openclaw-a2a"]):
        text = build_commands().generate_docs(output_format="markdown", recursive=True)
    body = text[text.index("## openclaw-a2a ") :]
    body = re.sub(r"^(#+) (openclaw-a2a .*)$", r"\1 `\2`", body, flags=re.MULTILINE)
    body = body.replace("```console", "```text").replace("**Parameters**:", "**Options**:")
    body = body.replace("**[required]**", "Required.")
    # Commands that are apps of their own are named twice in their usage.
    body = re.sub(r"^(openclaw-a2a (\w+)) \2 ", r"\1 ", body, flags=re.MULTILINE)
    body = re.sub(r"^\* ", "- ", body, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", body).rstrip() + "\n"


def library_part(*names: str) -> str:
    """Signatures and docstrings of public names."""
    return "\n".join(_entry(name, _public(name)) for name in names)


class LogEvent(msgspec.Struct):
    """An event as the sources log it: at which levels, with which fields."""

    levels: set[str]
    fields: dict[str, None]  # in the order of the source


@cache
def log_events() -> dict[str, LogEvent]:
    """Every event of the log, by its name."""
    found: dict[str, LogEvent] = {}
    sources = sorted(Path(openclaw_a2a.__file__).parent.rglob("*.py"))
    modules = [_functions(path.read_text(encoding="utf-8")) for path in sources]
    public = {
        name: helper
        for functions in modules
        for name, helper in _log_helpers(functions).items()
        if not name.startswith("_")
    }
    for functions in modules:
        helpers = public | _log_helpers(functions)
        for function in functions:
            for name, level, fields in _logged(function, helpers):
                event = found.setdefault(name, LogEvent(set(), {}))
                event.levels.add("error" if level == "exception" else level)
                event.fields.update(dict.fromkeys(fields))
    return found


def _functions(source: str) -> "list[ast.FunctionDef | ast.AsyncFunctionDef]":
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, _FUNCTIONS)]


def _log_helpers(
    functions: "list[ast.FunctionDef | ast.AsyncFunctionDef]",
) -> dict[str, tuple[str, list[str]]]:
    """The functions that log the event they are given: `report(event, ...)`; level and fields."""
    return {
        node.name: (level, _field_names(call))
        for node in functions
        if any(one.arg == "event" for one in node.args.args)
        for call in _calls(node)
        if (level := _level(call)) and _has_event_variable(call)
    }


_Helpers = Mapping[str, tuple[str, list[str]]]


def _logged(function: ast.AST, helpers: _Helpers) -> Iterator[tuple[str, str, list[str]]]:
    """The events that a function logs, each with its level and its fields."""
    # What a variable for an event may hold; `("request.failed", log.warning)` has its level.
    chosen = [
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and "event" in ast.unparse(node.targets[0])
    ]
    pairs = [one for value in chosen for one in ast.walk(value) if isinstance(one, ast.Tuple)]
    for pair in pairs:
        if level := _level_of(*pair.elts):
            chosen = []
            yield from ((name, level, []) for name in _event_names(pair))
    for call in _calls(function):
        called = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
        level, fields = helpers.get(called, (None, list[str]()))
        level = _level(call) or level
        if level is not None:
            sources = chosen if _has_event_variable(call) else call.args
            for name in {name for one in sources for name in _event_names(one)}:
                yield name, level, [*fields, *_field_names(call)]


def log_events_part(old: str) -> str:
    """The table of log events; their meanings are those of the table before."""
    meanings = dict(re.findall(r"^\| `([^`]+)` \| [^|]* \| ([^|]*) \|", old, flags=re.MULTILINE))
    lines = ["| event | level | meaning | fields |", "|---|---|---|---|"]
    for name, event in sorted(log_events().items()):
        fields = ", ".join(f"`{one}`" for one in event.fields)
        levels = ", ".join(one for one in _LEVELS if one in event.levels)
        lines.append(f"| `{name}` | {levels} | {meanings.get(name, '').strip()} | {fields} |")
    return "\n".join(lines) + "\n"


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LEVELS = ("debug", "info", "warning", "error", "exception")
_EVENT = re.compile(r"[a-z][a-z0-9]*(\.[a-z<][a-z0-9_>]*)+")


def _calls(node: ast.AST) -> list[ast.Call]:
    return [one for one in ast.walk(node) if isinstance(one, ast.Call)]


def _level(call: ast.Call) -> str | None:
    """The level of a call that logs, or that is given a function that does; None for others."""
    return _level_of(call.func, *call.args)


def _level_of(*nodes: ast.expr) -> str | None:
    for one in nodes:
        if isinstance(one, ast.Attribute) and one.attr in _LEVELS:
            owner = ast.unparse(one.value)
            if owner == "log" or owner.startswith("get_logger("):
                return one.attr
    return None


def _field_names(call: ast.Call) -> list[str]:
    return [one.arg for one in call.keywords if one.arg not in (None, "exc_info")]


def _has_event_variable(call: ast.Call) -> bool:
    return any(isinstance(one, ast.Name) and "event" in one.id for one in call.args)


def _event_names(node: ast.expr) -> Iterator[str]:
    """The names of events in an expression; what is worked out in one is `<action>`."""
    formatted = [one for one in ast.walk(node) if isinstance(one, ast.JoinedStr)]
    inner = {id(one) for outer in formatted for one in ast.walk(outer)} - set(map(id, formatted))
    for one in ast.walk(node):
        text = ""
        if isinstance(one, ast.JoinedStr):
            parts = (
                part.value if isinstance(part, ast.Constant) else "<action>" for part in one.values
            )
            text = "".join(map(str, parts))
        elif isinstance(one, ast.Constant) and id(one) not in inner:
            text = str(one.value)
        if _EVENT.fullmatch(text):
            yield text


PARTS: dict[str, Callable[[], str]] = {
    "settings.command": lambda: options_part(CommandOptions),
    "settings.openclaw-command": lambda: options_part(OpenClawCliOptions),
    "settings.openclaw-gateway": lambda: options_part(OpenClawGatewayOptions),
    "library.serving": lambda: library_part("serve_agent", "to_a2a", "serve", "build_agent_card"),
    "library.loading": lambda: library_part("load_adapter", "load_a2a_agent", "register_adapter"),
    "library.adapters": lambda: library_part(
        "AgentAdapter", "AdapterMetadata", "RequestContext", "CancelledByAdapter"
    ),
    "library.functions": lambda: library_part("CallableAgent"),
    "library.events": lambda: library_part(
        *(one.__name__ for one in get_args(agent_event.AgentEvent)), "ToolPhase"
    ),
    "library.programs": lambda: library_part("ProgramAdapter"),
    "library.openclaw": lambda: library_part("OpenClawAgentAdapter"),
    "library.remote": lambda: library_part("RemoteAgents", "RemoteAgentFailed"),
    "library.values": lambda: library_part("Part", "Message", "Task"),
    "errors.caller": lambda: errors_part(CallerError),
    "errors.agent": lambda: errors_part(AgentError),
    "errors.gateway": lambda: errors_part(GatewayFault),
    "commands": commands_part,
}
_SECTIONS = (
    *("top", "server", "store", "agents", "openclaw", "channels"),
    *("tools", "responseRouting", "opt", "limits", "push", "retention", "lease", "audit"),
    *("dashboard",),
    *("security", "log"),
)


def generate(page: str) -> str:
    """The page with its generated parts as they should be now."""

    def fill(match: re.Match[str]) -> str:
        begin, name, old, end = match.groups()
        if name == "log-events":
            return f"{begin}\n{log_events_part(old)}\n{end}"
        section = name.removeprefix("settings.")
        if name not in PARTS and section in _SECTIONS:
            return f"{begin}\n{settings_part(section)}\n{end}"
        return f"{begin}\n{PARTS[name]()}\n{end}"

    return _PART.sub(fill, page)


def stale_pages() -> Iterator[Path]:
    """The pages that say something that is no longer so."""
    for page in sorted(REFERENCE.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        if generate(text) != text:
            yield page


def main() -> int:
    """Write or check the pages; the exit code."""
    parser = argparse.ArgumentParser(description="Generated parts of the reference pages.")
    parser.add_argument("--check", action="store_true", help="change nothing")
    is_check = parser.parse_args().check
    stale = list(stale_pages())
    for page in stale:
        if not is_check:
            page.write_text(generate(page.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"{page.name} {'is out of date' if is_check else 'was written'}")
    return 1 if stale and is_check else 0


def _top(path: str) -> str:
    return path.partition(".")[0]


def _settings_table(keys: list[Key]) -> str:
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    return "\n".join([*lines, *(key.row for key in keys)]) + "\n"


def _keys(path: str, kind: type[msgspec.Struct]) -> Iterator[Key]:
    struct = kinds.type_info(kind)
    assert isinstance(struct, kinds.StructType)  # noqa: S101 - structs have no other description
    for field in struct.fields:
        place = f"{path}.{field.encode_name}" if path else field.encode_name
        made = field.default_factory
        yield from _members(place, field.type, made() if callable(made) else field.default)


def _members(path: str, given: kinds.Type, default: object) -> Iterator[Key]:
    type_, description = _unwrapped(given)
    if isinstance(type_, kinds.UnionType):
        known = [_unwrapped(one)[0] for one in type_.types]
        structs = [one for one in known if isinstance(one, kinds.StructType)]
        type_ = structs[0] if structs else type_
    if isinstance(type_, kinds.DictType) and isinstance(type_.value_type, kinds.StructType):
        name = _NAMES[path.rpartition(".")[2]]
        yield from _keys(f"{path}.{name}", type_.value_type.cls)
    elif isinstance(type_, kinds.StructType):
        yield from _keys(path, type_.cls)
    else:
        yield Key(path, type_, default, description)
        item = _unwrapped(type_.item_type)[0] if isinstance(type_, kinds.VarTupleType) else None
        # Those of other lists are described in one sentence, or in a table of their own.
        if isinstance(item, kinds.StructType) and path not in _MEANINGS:
            yield from _keys(f"{path}[]", item.cls)


def _unwrapped(type_: kinds.Type) -> tuple[kinds.Type, str]:
    description = ""
    while isinstance(type_, kinds.Metadata):
        extra = cast("JsonObject", type_.extra_json_schema or {})
        description = description or str(extra.get("description", ""))
        type_ = type_.type
    return type_, description


def _type_words(type_: kinds.Type) -> str:
    type_ = _unwrapped(type_)[0]
    if isinstance(type_, kinds.EnumType):
        return " or ".join(f"`{member.value}`" for member in type_.cls)
    if isinstance(type_, kinds.LiteralType):
        return " or ".join(f"`{value}`" for value in type_.values)
    if isinstance(type_, kinds.IntType | kinds.FloatType):
        return _number_words(type_)
    if isinstance(type_, kinds.VarTupleType):
        inner = _unwrapped(type_.item_type)[0]
        return "list of objects" if isinstance(inner, kinds.StructType) else "list of strings"
    if isinstance(type_, kinds.BoolType):
        return "`true` or `false`"
    if isinstance(type_, kinds.UnionType):
        known = [one for one in type_.types if not isinstance(one, kinds.NoneType)]
        return " or ".join(map(_type_words, known))
    return "object" if isinstance(type_, kinds.DictType) else "string"


def _number_words(type_: kinds.IntType | kinds.FloatType) -> str:
    words = "whole number" if isinstance(type_, kinds.IntType) else "number"
    if type_.gt is not None:
        words += f" above {type_.gt:g}"
    if type_.ge is not None:
        words += f" from {type_.ge:g}"
    if type_.le is not None and type_.le != _LARGEST:
        words += f" to {type_.le:g}"
    return words


def _public(name: str) -> Callable[..., object]:
    """What people import under this name."""
    return getattr(openclaw_a2a if name in openclaw_a2a.__all__ else agents, name)


def _entry(name: str, thing: Callable[..., object]) -> str:
    told = inspect.cleandoc(thing.__doc__ or "")
    return f"### `{name}`\n\n```python\n{_formatted(_stub(thing))}\n```\n\n{told}\n"


def _formatted(source: str) -> str:
    """The source as the formatter wants it, which looks at the blocks of pages too."""
    command = [sys.executable, "-m", "ruff", "format", "-"]
    done = subprocess.run(  # noqa: S603 - our own formatter
        command, input=source, cwd=REFERENCE, capture_output=True, text=True, check=True
    )
    return done.stdout.rstrip()


def _stub(thing: Callable[..., object]) -> str:
    """A function or class without its insides, as its source spells it."""
    source = inspect.cleandoc("\n" + inspect.getsource(thing))
    node, lines = ast.parse(source).body[0], source.splitlines()
    if not isinstance(node, ast.ClassDef):
        return _header(node, lines)
    members = [line for member in node.body for line in _member(member, lines)]
    return "\n".join([_header(node, lines).removesuffix(" ..."), *(members or ["    ..."])])


def _member(node: ast.stmt, lines: list[str]) -> list[str]:
    """The lines of a member that people use; nothing for others."""
    if isinstance(node, ast.AnnAssign) and not ast.unparse(node.target).startswith("_"):
        return lines[node.lineno - 1 : node.end_lineno]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
        node.name == "__init__" or not node.name.startswith("_")
    ):
        marks = [lines[mark.lineno - 1] for mark in node.decorator_list]
        return [*marks, *_header(node, lines).splitlines()]
    return []


def _header(node: ast.stmt, lines: list[str]) -> str:
    """Everything up to the colon, and dots for what follows."""
    body = cast("list[ast.stmt]", getattr(node, "body", []))
    return "\n".join(lines[node.lineno - 1 : body[0].lineno - 1]).rstrip() + " ..."


def _error_kinds(root: type[GatewayError]) -> Iterator[type[GatewayError]]:
    """The errors below the root in the order of the source; parents share a child's code."""
    below = [kind for kind in vars(errors).values() if _is_below(kind, root)]
    seen: set[str] = set()
    for kind in sorted(below, key=lambda one: one is root):
        if kind.code not in seen:
            seen.add(kind.code)
            yield kind


def _is_below(kind: object, root: type[GatewayError]) -> bool:
    return isinstance(kind, type) and issubclass(kind, root)


if __name__ == "__main__":
    sys.exit(main())
