"""`call`: call a skill of an agent, as another agent would, and perhaps wait for the answer."""

import sys
from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from openclaw_a2a.cli.call_draw import output_text
from openclaw_a2a.cli.calls_door import connect_calls, read_object, refusal, use_tool
from openclaw_a2a.cli.failure import DONE, FAILED, INTERRUPTED, MISUSED
from openclaw_a2a.cli.flags import JsonFlag
from openclaw_a2a.cli.live import Waiting
from openclaw_a2a.cli.operator import OWN_GATEWAY, Operator, OwnGateway
from openclaw_a2a.cli.output import say, show, show_json
from openclaw_a2a.cli.patience import Patience, is_temporary
from openclaw_a2a.model.errors import AgentError
from openclaw_a2a.model.ids import Json, JsonObject

_WORKING = "working"
_ACCEPTED = ("pending", _WORKING)
_SHORT_ID = 8
_PAUSES_S = (0.05, 0.1, 0.2, 0.3, 0.5)


@Parameter(name="*")
@dataclass(frozen=True)
class Calling:
    """How the call is made."""

    wait: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Wait for the answer and show it.")
    ] = False
    timeout: Annotated[
        float | None,
        Parameter(help="Seconds the agent has; 0: no deadline; left out: what the skill says."),
    ] = None
    mode: Annotated[
        Literal["execute", "critique"], Parameter(help="What the agent is asked to do with it.")
    ] = "execute"
    main: Annotated[
        bool,
        Parameter(negative=(), show_default=False, help="In the agent's main session."),
    ] = False


AS_USUAL = Calling()


def call(
    agent: str,
    skill: str,
    given: Annotated[str, Parameter(name="INPUT", show_default=False)] = "{}",
    /,
    *,
    calling: Calling = AS_USUAL,
    own: OwnGateway = OWN_GATEWAY,
    as_json: JsonFlag = False,
) -> int:
    """Call a skill of an agent, and wait for its answer if you like.

    With --json what the tool agent_call answers; with --wait what agent_poll does in the end.

    Parameters
    ----------
    agent
        The agent's id, or target:ALIAS for a remote one.
    skill
        What it is called for; ping and list_skills work with every agent.
    given
        A JSON object for it; - reads it from standard input.
    """
    request = _request(agent, skill, _read_input(given), calling)
    result: JsonObject = {}
    try:
        with connect_calls(own) as operator:
            result = use_tool(operator, "agent_call", request)
            if calling.wait and result.get("status") in _ACCEPTED:
                result = _wait(operator, result, f"{agent} · {skill}")
    except KeyboardInterrupt:
        return _interrupted(result, own)
    if as_json:
        show_json(result)
        return _exit_code(result)
    if "correlationId" not in result:
        raise refusal(result)
    if result["status"] in _ACCEPTED and not calling.wait:
        show(f"{result['correlationId']}  {result['status']}")
        say(f"Look later: {_look(result, own)}")
        return DONE
    return _show_answer(result, whom=f"{agent} · {skill}", look=_look(result, own))


def _interrupted(result: JsonObject, own: OwnGateway) -> int:
    """Say what goes on although nobody waits any more; the exit code."""
    if "correlationId" in result:
        say(f"Interrupted. The call goes on. Look later: {_look(result, own)}")
    else:
        say(f"Interrupted. If it was accepted, the call goes on: {own.command('calls list')}")
    return INTERRUPTED


def _request(agent: str, skill: str, given: Json, calling: Calling) -> JsonObject:
    request: JsonObject = {"agent": agent, "skill": skill, "input": given, "mode": calling.mode}
    if calling.timeout is not None:
        request["timeoutSeconds"] = calling.timeout
    if calling.main:
        request["session"] = "main"
    return request


def _read_input(text: str) -> JsonObject:
    """The input of the call. Raises: InvalidRequest."""
    written = sys.stdin.read() if text == "-" else text
    step = """Give one such as '{"question": "why?"}', or - to read it."""
    return read_object(written, what="the input", step=step)


def _wait(operator: Operator, accepted: JsonObject, label: str) -> JsonObject:
    """What the call comes to; a gateway that goes away meanwhile is waited for."""
    asked = {"correlationId": accepted["correlationId"]}
    waiting, patience = Waiting(label), Patience()
    result, state, turn = accepted, "accepted", 0
    try:
        while result["status"] in _ACCEPTED:
            waiting.wait(_PAUSES_S[min(turn, len(_PAUSES_S) - 1)], state)
            turn += 1
            try:
                result = use_tool(operator, "agent_poll", asked)
                patience.restore()
            except AgentError as error:
                waiting.clear()
                if not is_temporary(error):
                    raise
                patience.bear(error, is_going_on=True)
                continue
            state = "running" if "running" in result.get("times", {}) else "accepted"
    finally:
        waiting.clear()
    return {**asked, "taskId": accepted.get("taskId"), **result}


def _show_answer(result: JsonObject, *, whom: str, look: str) -> int:
    """Show what came of a call; the exit code."""
    status = result["status"]
    if status == "completed":
        show(output_text(result.get("output")).removesuffix("\n"))
        late = " · late" if result.get("late") else ""
        say(f"completed · confidence {result.get('confidence', 0):.2f}{late}", "dim")
    elif status == "timeout":
        say(f"error call-timeout: {whom} did not answer in time", "red")
        say(f"It may still do so: {look}    (give it longer with --timeout SECONDS)")
    else:
        say(f"error call-failed: {whom}: {result.get('error') or status}", "red")
        say(f"See: {look}")
    for name, style in (("assumptions", "dim"), ("caveats", "yellow")):
        for text in result.get(name) or ():
            say(f"  {name.removesuffix('s')}: {text}", style)
    return _exit_code(result)


def _exit_code(result: JsonObject) -> int:
    if "correlationId" not in result:
        return MISUSED
    return DONE if result["status"] in (*_ACCEPTED, "completed") else FAILED


def _look(result: JsonObject, own: OwnGateway) -> str:
    return own.command(f"calls show {str(result['correlationId'])[:_SHORT_ID]}")
