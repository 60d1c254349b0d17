"""Reports failures: a code, what happened, the next step, and the exit code."""

import sys

from openclaw_a2a.cli.render.terminal import print_json, print_message, spell_program
from openclaw_a2a.model.errors import (
    AgentUnavailable,
    CallerError,
    GatewayError,
    InvalidRequest,
    SettingsInvalid,
    StoreLocked,
)
from openclaw_a2a.model.ids import JsonObject

DONE = 0
FAILED = 1
USAGE_ERROR = 2
UNREACHABLE = 3
INTERRUPTED = 130

_NEXT_STEPS = {
    "unauthenticated": "Give a token with --token or OPENCLAW_A2A_TOKEN.",
    "overloaded": "Try again in a moment.",
    "draining": "Try again when the gateway is back.",
    StoreLocked.code: "Stop the gateway that uses the store, or start this one with --data DIR.",
    SettingsInvalid.code: "Correct the settings, then see: openclaw-a2a config check",
}


def code_of(error: GatewayError) -> str:
    """The code of an error, or the one a gateway gave to the error it sent."""
    return str(error.details.get("code") or error.code)


def describe_failure(error: GatewayError) -> JsonObject:
    """What every command with --json prints as `error`: code, message, hint, and all problems."""
    code, message = code_of(error), error.message
    hint = spell_program(str(error.details.get("nextStep") or _NEXT_STEPS.get(code, "")))
    problems = error.problems if isinstance(error, SettingsInvalid) else ()
    if not problems:
        return {"code": code, "message": message, "hint": hint}
    message = f"the settings have {len(problems)} problem{'s' if len(problems) > 1 else ''}"
    listed = [{"path": one.path, "message": one.message} for one in problems]
    return {"code": code, "message": message, "hint": hint, "problems": listed}


def wants_messages(*, as_json: bool) -> bool:
    """With --json only if standard output goes to another program and a person reads the rest."""
    return not as_json or (sys.stderr.isatty() and not sys.stdout.isatty())


def report_failure(error: GatewayError, *, as_json: bool = False) -> int:
    """Print the error, for people on standard error; the exit code."""
    failure = describe_failure(error)
    if as_json:
        # On one line, also where the command prints JSON lines.
        print_json({"error": failure}, pretty=False)
    if wants_messages(as_json=as_json):
        print_message(f"error {failure['code']}: {failure['message']}", "red")
        for problem in failure.get("problems", ()):
            print_message(f"  {problem['path']}: {problem['message']}")
        if failure["hint"]:
            print_message(failure["hint"])
    return exit_code(error)


def exit_code(error: GatewayError) -> int:
    """The exit code of a command that failed so."""
    if isinstance(error, AgentUnavailable):
        return UNREACHABLE
    return USAGE_ERROR if isinstance(error, SettingsInvalid | CallerError) else FAILED


def usage_error(message: str, step: str = "", *, code: str = "usage") -> InvalidRequest:
    """The error for a wrong command line, or for a request that cannot be made as it is."""
    return InvalidRequest(message, details=next_step(code, step) if step else {"code": code})


def next_step(code: str, step: str) -> dict[str, str]:
    """The details of an error that says what to do."""
    return {"code": code, "nextStep": step}
