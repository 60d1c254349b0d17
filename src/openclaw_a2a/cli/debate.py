"""`debate`: let agents debate a question, and follow it."""

import sys
from pathlib import Path

from openclaw_a2a.cli.call_watch import View, exit_code, follow_call, watch_one
from openclaw_a2a.cli.calls_door import connect_calls, read_object, refusal, use_tool
from openclaw_a2a.cli.failure import INTERRUPTED
from openclaw_a2a.cli.flags import JsonFlag
from openclaw_a2a.cli.operator import OWN_GATEWAY, Operator, OwnGateway
from openclaw_a2a.cli.output import say, show_json
from openclaw_a2a.model.errors import InvalidRequest
from openclaw_a2a.model.ids import JsonObject

_STEP = "Write the input of debate_call: topic, proposer, critics, resolver and input."


def debate(file: str, /, *, own: OwnGateway = OWN_GATEWAY, as_json: JsonFlag = False) -> int:
    """Let agents debate a question, and follow it live.

    One proposes, critics look for flaws, one concludes. With --json only the result.

    Parameters
    ----------
    file
        A file with the input of the tool debate_call as JSON; - reads it from standard input.
    """
    request = {**_read(file), "wait": False}
    with connect_calls(own) as operator:
        accepted = use_tool(operator, "debate_call", request)
        if "correlationId" not in accepted:
            raise refusal(accepted)
        call_id = str(accepted["correlationId"])
        if as_json:
            return _show_result(operator, call_id, accepted)
        return watch_one(operator, call_id, as_json=False)


def _show_result(operator: Operator, call_id: str, accepted: JsonObject) -> int:
    """Show what debate_call tells who waits for it; the exit code."""
    try:
        call = follow_call(operator, call_id, View(as_json=True, is_quiet=True))
    except KeyboardInterrupt:
        say(f"Interrupted. The debate goes on: {call_id}")
        return INTERRUPTED
    ids = {name: accepted[name] for name in ("taskId", "correlationId") if name in accepted}
    failed = {"status": call.status, "error": call.error or "no result in time"}
    show_json({**(call.result or failed), **ids})
    return exit_code(call)


def _read(file: str) -> JsonObject:
    """What is to be debated. Raises: InvalidRequest."""
    if file == "-":
        return read_object(sys.stdin.read(), what="standard input", step=_STEP)
    try:
        written = Path(file).expanduser().read_bytes()
    except (OSError, ValueError) as error:
        message = f"{file} cannot be read: {getattr(error, 'strerror', None) or error}"
        raise InvalidRequest(message, details={"code": "usage", "nextStep": _STEP}) from None
    return read_object(written, what=file, step=_STEP)
