"""What callers ask for, read and checked: everything that is wrong is told at once."""

import json
import math
from collections.abc import Callable
from typing import TypeVar, cast

import msgspec

from openclaw_a2a.calls.identifiers import BadCall, BadName, read_agent, read_skill
from openclaw_a2a.model.ids import AgentId, Json, JsonObject

MOST_INPUT = 1_048_576
MODES = ("execute", "critique")
MAIN = "main"
_MOST_CALLS = 50
_USUAL_AT_ONCE = 5
_T = TypeVar("_T")


class CallRequest(msgspec.Struct, frozen=True):
    """A call, as the caller wants it. `timeout_ms` None: the callee's or the usual one."""

    agent: AgentId
    skill: str
    input: JsonObject
    mode: str = MODES[0]
    timeout_ms: int | None = None
    wait: bool = False
    is_main: bool = False
    """True when the callee is to be asked in its main session."""


class BatchRequest(msgspec.Struct, frozen=True):
    """Many calls; each is read on its own, so that a wrong one does not spoil the others."""

    calls: tuple[Json, ...]
    at_once: int = _USUAL_AT_ONCE


class Fields:
    """Reads the members of a request and collects what is wrong with them.

    `place` is where they stand in the request; whoever reads members of members hands on the
    list of problems.
    """

    def __init__(self, value: Json, place: str = "", problems: list[str] | None = None) -> None:
        self.problems: list[str] = [] if problems is None else problems
        self._place = f"{place}." if place else ""
        self._given = cast("JsonObject", value) if isinstance(value, dict) else {}
        if not isinstance(value, dict):
            self._wrong(f"{place or 'the input'} must be an object")

    def __contains__(self, name: str) -> bool:
        return self._given.get(name) is not None

    def raw(self, name: str) -> Json:
        """The member as it came."""
        return self._given.get(name)

    def inner(self, name: str) -> "Fields":
        """The members of a member."""
        return Fields(self._given.get(name), f"{self._place}{name}", self.problems)

    def name(self, name: str, read: Callable[[Json], _T], default: _T) -> _T:
        """A member that is a name of some kind."""
        try:
            return read(self._given.get(name))
        except BadName as error:
            return self._wrong(f"{self._place}{error}", default)

    def text(self, name: str) -> str:
        """A member that must say something."""
        value = self._given.get(name)
        if not isinstance(value, str) or not value.strip():
            return self._wrong(f"{self._place}{name} must be a text that is not empty", "")
        try:
            value.encode()
        except ValueError:
            return self._wrong(f"{self._place}{name} has characters that cannot be written", "")
        return value.strip()

    def list(self, name: str, least: int, most: int) -> list[Json]:
        """A member that is a list of a bounded length."""
        value = self._given.get(name)
        items = cast("list[Json]", value) if isinstance(value, list) else None
        if items is None or not least <= len(items) <= most:
            found = "" if items is None else f", not {len(items)}"
            return self._wrong(f"{name} must be a list of {least} to {most}{found}", [])
        return items

    def object(self, name: str) -> JsonObject:
        """A member that must be an object, small enough to be passed on."""
        value = self._given.get(name)
        if not isinstance(value, dict):
            return self._wrong(f"{name} must be an object", {})
        found = cast("JsonObject", value)
        try:
            text = json.dumps(found, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            size = len(text.encode())
        except (ValueError, RecursionError):
            return self._wrong(f"{name} cannot be written as JSON", {})
        if size > MOST_INPUT:
            return self._wrong(f"{name} has {size} bytes as JSON; the most are {MOST_INPUT}", {})
        return found

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A member that is true or false."""
        value = self._given.get(name)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        return self._wrong(f"{name} must be true or false", default)

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """A member that is one of some words; the first of them when it is not given."""
        value = self._given.get(name)
        if value is None or value in choices:
            return choices[0] if value is None else cast("str", value)
        return self._wrong(f"{name} must be one of {', '.join(choices)}", choices[0])

    def number(self, name: str, least: float, most: float, *, default: float) -> float:
        """A member that is a number within bounds."""
        value = self._given.get(name)
        if value is None:
            return default
        if not is_number(value) or not least <= value <= most:
            where = f"{self._place}{name}"
            return self._wrong(f"{where} must be a number from {least:g} to {most:g}", default)
        return value

    def count(self, name: str, least: int, most: int, *, default: int) -> int:
        """A member that is a whole number within bounds."""
        value = self.number(name, least, most, default=default)
        if value != int(value):
            return self._wrong(f"{name} must be a whole number from {least} to {most}", default)
        return int(value)

    def timeout_ms(self) -> int | None:
        """How long the caller wants to wait for the answer; None when it does not say."""
        if "timeout" in self and "timeoutSeconds" in self:
            return self._wrong("give timeoutSeconds or timeout (in ms), not both", None)
        for name, factor in (("timeoutSeconds", 1000), ("timeout", 1)):
            value = self._given.get(name)
            if value is None:
                continue
            if not is_number(value) or value < 0:
                return self._wrong(f"{name} must be a number that is not negative", None)
            # Whoever asks for less than a millisecond wants an answer, not none.
            return math.ceil(min(value * factor, 1e12))
        return None

    def check(self) -> None:
        """Raises BadCall when something was wrong."""
        if self.problems:
            raise BadCall(self.problems)

    def _wrong(self, problem: str, instead: _T = None) -> _T:
        """Note a problem and go on, so that the next ones are found too."""
        self.problems.append(problem)
        return instead


def is_number(value: Json) -> bool:
    """True for finite numbers; true and false are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or math.isfinite(value)


def read_call(value: Json) -> CallRequest:
    """The call in the arguments of `agent_call`. Raises: BadCall."""
    fields = Fields(value)
    request = CallRequest(
        agent=fields.name("agent", read_agent, AgentId("")),
        skill=fields.name("skill", read_skill, ""),
        input=fields.object("input"),
        mode=fields.choice("mode", MODES),
        timeout_ms=fields.timeout_ms(),
        wait=fields.flag("wait"),
        is_main=fields.choice("session", ("own", MAIN)) == MAIN,
    )
    fields.check()
    return request


def readable_names(value: Json) -> tuple[str, str]:
    """The agent and the skill that an unusable request names, each empty when it cannot be read."""
    fields = Fields(value)
    return fields.name("agent", read_agent, AgentId("")), fields.name("skill", read_skill, "")


def read_batch(value: Json) -> BatchRequest:
    """The calls in the arguments of `agent_call_batch`. Raises: BadCall."""
    fields = Fields(value)
    request = BatchRequest(
        calls=tuple(fields.list("calls", 0, _MOST_CALLS)),
        at_once=fields.count("concurrency", 1, _MOST_CALLS, default=_USUAL_AT_ONCE),
    )
    fields.check()
    return request


CALL_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "agent": {
            "type": "string",
            "description": "Id of the agent to call; target:<alias> for a remote one.",
        },
        "skill": {
            "type": "string",
            "description": "Which skill; list_skills tells which there are.",
        },
        "input": {"type": "object", "description": "What the skill works on, up to 1 MiB."},
        "mode": {"type": "string", "enum": list(MODES), "default": MODES[0]},
        "timeoutSeconds": {
            "type": "number",
            "minimum": 0,
            "description": "Seconds until a timeout is told; 0: no answer is brought, ask for it.",
        },
        "timeout": {
            "type": "number",
            "minimum": 0,
            "description": "The same in milliseconds; give one of the two.",
        },
        "wait": {
            "type": "boolean",
            "default": False,
            "description": "true: wait for the answer instead of getting it as a message.",
        },
        "session": {
            "type": "string",
            "enum": [MAIN],
            "description": "main: ask in the agent's main session instead of one of its own.",
        },
    },
    "required": ["agent", "skill", "input"],
}
"""What `agent_call` takes."""

BATCH_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "calls": {
            "type": "array",
            "maxItems": 50,
            "items": CALL_SCHEMA,
            "description": "Each as for agent_call; all are waited for.",
        },
        "concurrency": {
            "type": "integer",
            "minimum": 1,
            "maximum": 50,
            "default": 5,
            "description": "How many are under way at once.",
        },
    },
    "required": ["calls"],
}
"""What `agent_call_batch` takes."""

POLL_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "correlationId": {"type": "string", "description": "As the call was answered with."},
        "taskId": {"type": "string", "description": "Or the id of the task."},
    },
}
"""What `agent_poll` takes."""
