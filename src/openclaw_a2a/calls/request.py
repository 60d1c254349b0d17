"""Parses the arguments of the call tools and reports all their problems at once.

The JSON Schemas of the tools are here too: they describe to models what is parsed.
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar, cast

import msgspec

from openclaw_a2a.model.errors import Problem
from openclaw_a2a.model.ids import TARGET_PREFIX, AgentId, Json, JsonObject
from openclaw_a2a.model.skill import SKILL_NAME
from openclaw_a2a.model.validation import ProblemCollector, is_list, is_object, join_path, one_of

MAX_INPUT_BYTES = 1_048_576
MODES = ("execute", "critique")
MAIN_SESSION = "main"
_MAX_CALLS = 50
_DEFAULT_CONCURRENCY = 5
_AGENT = re.compile(r"[a-z0-9_-]{1,64}")
_SKILL = re.compile(SKILL_NAME)
_UNSAFE_IN_ALIAS = ("..", "/", "\\", "\0")
_T = TypeVar("_T")


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class InvalidName(ValueError):
    """A name that cannot be used; the text says why, to follow the name of the field."""


def parse_agent_id(value: Json) -> AgentId:
    """Parse the id of an agent or remote target. Raises: InvalidName."""
    if not isinstance(value, str):
        raise InvalidName("must be a string")
    name = value.strip()
    if name.startswith(TARGET_PREFIX):
        given = name.removeprefix(TARGET_PREFIX)
        alias = given.strip()
        if not alias or len(alias) > 128 or any(sign in alias for sign in _UNSAFE_IN_ALIAS):
            raise InvalidName(f"{given[:80]!r} is no alias of a remote target")
        return AgentId(TARGET_PREFIX + alias)
    if not _AGENT.fullmatch(name.lower()):
        raise InvalidName(f"{name[:80]!r} is no agent id: 1 to 64 of a-z 0-9 _ -")
    return AgentId(name.lower())


def parse_skill_name(value: Json) -> str:
    """Parse the name of a skill. Raises: InvalidName."""
    if not isinstance(value, str):
        raise InvalidName("must be a string")
    name = value.strip()
    if not _SKILL.fullmatch(name):
        raise InvalidName(f"{name[:80]!r} is no skill name: 1 to 128 of a-z A-Z 0-9 _ -")
    return name


class InvalidCallRequest(ValueError):
    """Arguments of a tool that cannot be used; the text names every problem."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(f"{one.path} {one.message}".strip() for one in problems))


class CallRequest(msgspec.Struct, frozen=True):
    """The arguments of `agent_call`. `timeout_ms` None: that of the skill, or the default."""

    agent: AgentId
    skill: str
    input: JsonObject
    mode: str = MODES[0]
    timeout_ms: int | None = None
    wait: bool = False
    in_main_session: bool = False


class BatchRequest(msgspec.Struct, frozen=True):
    """The arguments of `agent_call_batch`; each call is parsed on its own and fails on its own."""

    calls: tuple[Json, ...]
    concurrency: int = _DEFAULT_CONCURRENCY


class Fields:
    """Reads the fields of an object. Each problem is collected, and a default takes its place."""

    def __init__(
        self, value: Json, path: str = "", collector: ProblemCollector | None = None
    ) -> None:
        self._path = path
        self._collector = collector or ProblemCollector()
        self._fields: JsonObject = {}
        if is_object(value):
            self._fields = value
        else:
            self._collector.problem(path or "the input", "must be an object")

    def __contains__(self, name: str) -> bool:
        return self._fields.get(name) is not None

    def inner(self, name: str) -> "Fields":
        """The fields of an object in a field."""
        return Fields(self._fields.get(name), join_path(self._path, name), self._collector)

    def items(self, name: str, least: int, most: int) -> "list[Fields]":
        """The fields of the objects in a list."""
        return [
            Fields(item, f"{join_path(self._path, name)}[{index}]", self._collector)
            for index, item in enumerate(self.list(name, least, most))
        ]

    def name(self, name: str, parse: Callable[[Json], _T], default: _T) -> _T:
        """An identifier."""
        try:
            return parse(self._fields.get(name))
        except InvalidName as error:
            return self.reject(name, str(error), default)

    def text(self, name: str) -> str:
        """A text that is not empty."""
        value = self._fields.get(name)
        if not isinstance(value, str) or not value.strip():
            return self.reject(name, "must be a text that is not empty", "")
        try:
            value.encode()
        except ValueError:
            return self.reject(name, "has characters that cannot be written", "")
        return value.strip()

    def list(self, name: str, least: int, most: int) -> list[Json]:
        """A list of limited length."""
        value = self._fields.get(name)
        items: list[Json] | None = value if is_list(value) else None
        if items is None or not least <= len(items) <= most:
            found = "" if items is None else f", not {len(items)}"
            return self.reject(name, f"must be a list of {least} to {most}{found}", [])
        return items

    def object(self, name: str) -> JsonObject:
        """An object of limited size."""
        value = self._fields.get(name)
        if not is_object(value):
            return self.reject(name, "must be an object", {})
        try:
            size = len(_encode(value).encode())
        except (ValueError, RecursionError):
            return self.reject(name, "cannot be written as JSON", {})
        if size > MAX_INPUT_BYTES:
            reason = f"has {size} bytes as JSON; the most are {MAX_INPUT_BYTES}"
            return self.reject(name, reason, {})
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        """True or false."""
        value = self._fields.get(name)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        return self.reject(name, "must be true or false", default)

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """One of some words; the first of them by default."""
        value = self._fields.get(name)
        if value is None or value in choices:
            return choices[0] if value is None else cast("str", value)
        return self.reject(name, one_of(choices), choices[0])

    def number(self, name: str, least: float, most: float, *, default: float) -> float:
        """A number within bounds."""
        value = self._fields.get(name)
        if value is None:
            return default
        if not _is_number(value) or not least <= value <= most:
            return self.reject(name, f"must be a number from {least:g} to {most:g}", default)
        return value

    def count(self, name: str, least: int, most: int, *, default: int) -> int:
        """A whole number within bounds."""
        value = self.number(name, least, most, default=default)
        if value != int(value):
            return self.reject(name, f"must be a whole number from {least} to {most}", default)
        return int(value)

    def timeout_ms(self) -> int | None:
        """The timeout, in seconds or milliseconds; None when there is none."""
        if "timeout" in self and "timeoutSeconds" in self:
            return self.reject("", "give timeoutSeconds or timeout (in ms), not both", None)
        for name, factor in (("timeoutSeconds", 1000), ("timeout", 1)):
            value = self._fields.get(name)
            if value is None:
                continue
            if not _is_number(value) or value < 0:
                return self.reject(name, "must be a number that is not negative", None)
            # Rounded up: 0 would mean that no answer is wanted.
            return math.ceil(min(value * factor, 1e12))
        return None

    def reject(self, name: str, problem: str, default: _T) -> _T:
        """Collect a problem and continue with a default, so that further problems are found."""
        self._collector.problem(join_path(self._path, name) if name else "", problem)
        return default

    def check(self) -> None:
        """Raises InvalidCallRequest when there were problems."""
        if self._collector.problems:
            raise InvalidCallRequest(self._collector.problems)


def _is_number(value: Json) -> bool:
    """True for finite numbers; true and false are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or math.isfinite(value)


def parse_call(value: Json) -> CallRequest:
    """Parse the arguments of `agent_call`. Raises: InvalidCallRequest."""
    fields = Fields(value)
    request = CallRequest(
        agent=fields.name("agent", parse_agent_id, AgentId("")),
        skill=fields.name("skill", parse_skill_name, ""),
        input=fields.object("input"),
        mode=fields.choice("mode", MODES),
        timeout_ms=fields.timeout_ms(),
        wait=fields.flag("wait"),
        in_main_session=fields.choice("session", ("own", MAIN_SESSION)) == MAIN_SESSION,
    )
    fields.check()
    return request


def readable_names(value: Json) -> tuple[str, str]:
    """The agent and the skill that an invalid request names, each empty when it is invalid too."""
    fields = Fields(value)
    agent = fields.name("agent", parse_agent_id, AgentId(""))
    return agent, fields.name("skill", parse_skill_name, "")


def parse_batch(value: Json) -> BatchRequest:
    """Parse the arguments of `agent_call_batch`. Raises: InvalidCallRequest."""
    fields = Fields(value)
    request = BatchRequest(
        calls=tuple(fields.list("calls", 0, _MAX_CALLS)),
        concurrency=fields.count("concurrency", 1, _MAX_CALLS, default=_DEFAULT_CONCURRENCY),
    )
    fields.check()
    return request


def field_schema(kind: str, description: str, **limits: Json) -> JsonObject:
    """The JSON Schema of one argument."""
    return {"type": kind, **limits, "description": description}


text_field, number_field = partial(field_schema, "string"), partial(field_schema, "number")
count_field, flag_field = partial(field_schema, "integer"), partial(field_schema, "boolean")


def object_schema(required: Sequence[str], **properties: JsonObject) -> JsonObject:
    """The JSON Schema of an object."""
    schema: JsonObject = {"type": "object", "properties": properties}
    return {**schema, "required": list(required)} if required else schema


CALL_SCHEMA = object_schema(
    ("agent", "skill", "input"),
    agent=text_field("Id of the agent to call; target:<alias> for a remote one."),
    skill=text_field("Which skill; list_skills lists them."),
    input=field_schema("object", "What the skill works on, up to 1 MiB."),
    mode={"type": "string", "enum": list(MODES), "default": MODES[0]},
    timeoutSeconds=number_field(
        "Seconds until it times out; 0: no deadline and no message, poll it.", minimum=0
    ),
    timeout=number_field("The same in milliseconds; give one of the two.", minimum=0),
    wait=flag_field("true: wait for the answer instead of getting it as a message.", default=False),
    session=text_field(
        "main: run in the agent's main session instead of one of its own.", enum=[MAIN_SESSION]
    ),
)
"""The arguments of `agent_call`."""

BATCH_SCHEMA = object_schema(
    ("calls",),
    calls=field_schema(
        "array",
        "Each as for agent_call; all are waited for.",
        maxItems=_MAX_CALLS,
        items=CALL_SCHEMA,
    ),
    concurrency=count_field(
        "How many run at the same time.",
        minimum=1,
        maximum=_MAX_CALLS,
        default=_DEFAULT_CONCURRENCY,
    ),
)
"""The arguments of `agent_call_batch`."""

POLL_SCHEMA = object_schema(
    (),
    correlationId=text_field("From the result of the call."),
    taskId=text_field("Or the id of the task."),
)
"""The arguments of `agent_poll`."""
