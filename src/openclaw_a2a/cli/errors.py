"""Reports failures: a code, what happened, the next step, and the exit code."""

import sys

from openclaw_a2a.cli.overview import ALIASES, COMMANDS
from openclaw_a2a.cli.render.terminal import print_message
from openclaw_a2a.model.errors import (
    AgentUnavailable,
    CallerError,
    GatewayError,
    InvalidRequest,
    SettingsInvalid,
    StoreLocked,
)

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


def report_failure(error: GatewayError) -> int:
    """Print the error on standard error; the exit code."""
    code = code_of(error)
    if isinstance(error, SettingsInvalid) and error.problems:
        count = len(error.problems)
        print_message(
            f"error {code}: the settings have {count} problem{'s' if count > 1 else ''}", "red"
        )
        for problem in error.problems:
            print_message(f"  {problem.path}: {problem.message}")
    else:
        print_message(f"error {code}: {error.message}", "red")
    next_step = error.details.get("nextStep") or _NEXT_STEPS.get(code)
    if next_step:
        print_message(str(next_step))
    if isinstance(error, AgentUnavailable):
        return UNREACHABLE
    return USAGE_ERROR if isinstance(error, SettingsInvalid | CallerError) else FAILED


def report_usage(reason: str, arguments: list[str]) -> int:
    """Print why the command line is wrong; the exit code."""
    known = [*COMMANDS, *ALIASES.values()]
    words = [word for word in arguments[:1] if word in known]
    print_message(f"error usage: {reason}", "red")
    print_message(f"See: {' '.join(['openclaw-a2a', *words, '--help'])}")
    return USAGE_ERROR


def usage_error(message: str, step: str = "", *, code: str = "usage") -> InvalidRequest:
    """The error for a wrong command line, or for a request that cannot be made as it is."""
    return InvalidRequest(message, details=next_step(code, step) if step else {"code": code})


def next_step(code: str, step: str) -> dict[str, str]:
    """The details of an error that says what to do."""
    return {"code": code, "nextStep": step}


def confirm(question: str, unasked: str) -> bool:
    """Ask on the terminal. Raises: InvalidRequest (`unasked`, when there is no terminal)."""
    if not sys.stdin.isatty():
        raise usage_error(unasked, "Say it with --yes.", code="confirmation-needed")
    print_message(question)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
