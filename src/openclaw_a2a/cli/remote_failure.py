"""How failures of remote agents are told to people, and the exit codes for what came."""

from typing import TYPE_CHECKING, cast

from openclaw_a2a.cli.failure import DONE, FAILED, MISUSED, UNREACHABLE
from openclaw_a2a.cli.output import say
from openclaw_a2a.model.ids import JsonObject

if TYPE_CHECKING:
    from openclaw_a2a.remote.result.remote_result import RemoteResult

_UNHAPPY = frozenset({"failed", "rejected", "canceled"})
_OURS = frozenset({"VALIDATION_ERROR", "TARGET_RESOLUTION_ERROR"})
_NOBODY_THERE = frozenset(
    {
        "CircuitOpen",
        "ConnectError",
        "ConnectTimeout",
        "ReadError",
        "RemoteProtocolError",
        "WriteError",
    }
)
_TIMED_OUT = "request timed out"
_SEE_TARGETS = "See the targets there are: openclaw-a2a targets list"
_STEPS = {
    "TARGET_RESOLUTION_ERROR": _SEE_TARGETS,
    "UNKNOWN_TASK_HANDLE": "Name the task by its id, and its agent with --target or --url.",
    "EXPIRED_TASK_HANDLE": "Name the task by its id, and its agent with --target or --url.",
}


def exit_code_of(result: "RemoteResult") -> int:
    """0 unless it failed, or the task ended badly."""
    if result.ok:
        return FAILED if result.task and result.task.state in _UNHAPPY else DONE
    if result.code in _OURS:
        return MISUSED
    return UNREACHABLE if _is_nobody_there(result.details) else FAILED


def report(result: "RemoteResult", agent: str = "") -> int:
    """Tell why it failed on standard error, and with which agent; the exit code."""
    at = f"{agent}: " if agent and result.code not in _OURS else ""
    say(f"error {result.code}: {at}{result.message}", "red")
    for line in result.problems:
        say(f"  {line}")
    step = _next_step(result)
    if step:
        say(step)
    return exit_code_of(result)


def _next_step(result: "RemoteResult") -> str:
    paths = [error.get("instancePath") for error in result.details.get("errors", [])]
    if "/target_alias" in paths or "/target_url" in paths:
        return _SEE_TARGETS
    if "variable" in result.details:
        return f"Set {result.details['variable']}, or change the target in the settings."
    if result.message == _TIMED_OUT:
        return "Give it longer with --timeout SECONDS."
    hint = str(result.details.get("hint", ""))
    return _STEPS.get(result.code) or (f"{hint[0].upper()}{hint[1:]}." if hint else "")


def _is_nobody_there(details: JsonObject) -> bool:
    cause = details.get("cause")
    name = cast("JsonObject", cause).get("name") if isinstance(cause, dict) else None
    return details.get("errorName") in _NOBODY_THERE or name in _NOBODY_THERE
