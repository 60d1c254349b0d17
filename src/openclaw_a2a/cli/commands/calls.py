"""`call`, `calls` and `debate`: call agents, list, show and watch calls, let agents debate."""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from cyclopts import App, Parameter

from openclaw_a2a.cli.admin_client import AdminClient
from openclaw_a2a.cli.errors import (
    DONE,
    FAILED,
    INTERRUPTED,
    USAGE_ERROR,
    describe_failure,
    next_step,
    report_failure,
    usage_error,
)
from openclaw_a2a.cli.follow import Reconnect
from openclaw_a2a.cli.options import (
    DEFAULT_ADMIN,
    AdminOptions,
    LimitFlag,
    parse_json_object,
    read_file,
    read_standard_input,
    switch,
)
from openclaw_a2a.cli.render.calls import (
    CALL_TABLE,
    CallView,
    call_answer,
    call_changes,
    call_page,
    format_output,
    whole_call_page,
)
from openclaw_a2a.cli.render.terminal import WaitIndicator, print_data, print_json, print_message
from openclaw_a2a.cli.resource import WatchedResource
from openclaw_a2a.model.errors import AgentFailed, GatewayError, NotAllowed
from openclaw_a2a.model.ids import JsonObject

_SETTING = re.compile(r"\(((?:tools|agents)\.[\w.*-]+)\)")
_RESTART = "then start the gateway again"
_TURN_ON = (
    "Set tools.agentToAgent.enabled to true and name the agents in tools.agentToAgent.allow, "
    f"{_RESTART}."
)
_CALLS = WatchedResource[CallView](
    path="calls",
    noun="call",
    item_type=CallView,
    table=CALL_TABLE,
    show_page=whole_call_page,
    live_page=call_page,
    final_page=call_answer,
    changes=call_changes,
    not_found="call-not-found",
    list_hint="See the calls there are: openclaw-a2a calls list",
    empty="No calls. Make one: openclaw-a2a call AGENT ping --wait",
    filters={"status": "with status", "agent": "from or to"},
    feature=("calls between agents", "calls-off", _TURN_ON),
    strict_id="a call",
)
_ACCEPTED = ("pending", "working")
_SHORT_ID = 8
_POLLS_S = (0.05, 0.1, 0.2, 0.3, 0.5)


@Parameter(name="*")
@dataclass(frozen=True)
class CallOptions:
    """How the call is made."""

    wait: Annotated[bool, switch("Wait for the answer and show it.")] = False
    timeout: Annotated[
        float | None,
        Parameter(help="Seconds the agent has; 0: no deadline; default: that of the skill."),
    ] = None
    mode: Annotated[
        Literal["execute", "critique"], Parameter(help="What the agent is asked to do with it.")
    ] = "execute"
    main: Annotated[bool, switch("In the agent's main session.")] = False


_DEFAULT_OPTIONS = CallOptions()


def call(
    agent: str,
    skill: str,
    given: Annotated[str, Parameter(name="INPUT", show_default=False)] = "{}",
    /,
    *,
    calling: CallOptions = _DEFAULT_OPTIONS,
    options: AdminOptions = DEFAULT_ADMIN,
) -> int:
    """Call a skill of an agent, and optionally wait for the answer.

    With --json prints the result of the tool agent_call; with --wait that of agent_poll.

    Parameters
    ----------
    agent
        The agent's id, or target:ALIAS for a remote one.
    skill
        What it is called for; ping and list_skills work with every agent.
    given
        A JSON object for it; - reads it from standard input.
    """
    content = read_standard_input() if given == "-" else given
    step = """Give one such as '{"question": "why?"}', or - to read it."""
    request: JsonObject = {
        "agent": agent,
        "skill": skill,
        "input": parse_json_object(content, what="the input", step=step),
        "mode": calling.mode,
    }
    if calling.timeout is not None:
        request["timeoutSeconds"] = calling.timeout
    if calling.main:
        request["session"] = "main"
    result: JsonObject = {}
    try:
        with _CALLS.connect(options) as admin:
            result = _call_tool(admin, "agent_call", request)
            if calling.wait and result.get("status") in _ACCEPTED:
                result = _wait(admin, result, f"{agent} · {skill}")
    except KeyboardInterrupt:
        goes_on = f"If it was accepted, the call goes on: {options.command('calls list')}"
        if "correlationId" in result:
            goes_on = f"The call goes on. Look later: {_show_command(result, options)}"
        print_message(f"Interrupted. {goes_on}")
        return INTERRUPTED
    is_refused = "correlationId" not in result
    failure = (
        _rejection_error(result)
        if is_refused
        else _find_failure(result, callee=f"{agent} · {skill}", look=_show_command(result, options))
    )
    if options.as_json:
        print_json({**result, "error": describe_failure(failure)} if failure else result)
    elif result["status"] in _ACCEPTED and not calling.wait:
        print_data(f"{result['correlationId']}  {result['status']}")
        print_message(f"Look later: {_show_command(result, options)}")
    else:
        _show_answer(result, failure)
    return USAGE_ERROR if is_refused else FAILED if failure else DONE


def _show_command(result: JsonObject, options: AdminOptions) -> str:
    return options.command(f"calls show {str(result['correlationId'])[:_SHORT_ID]}")


def _wait(admin: AdminClient, accepted: JsonObject, label: str) -> JsonObject:
    """Poll for the outcome; a gateway that is away meanwhile is retried."""
    query = {"correlationId": accepted["correlationId"]}
    waiting, reconnect = WaitIndicator(label), Reconnect()
    reconnect.mark_answered()  # the gateway has the call: from now on its absence is tolerated
    result, state, count = accepted, "accepted", 0
    try:
        while result["status"] in _ACCEPTED:
            waiting.wait(_POLLS_S[min(count, len(_POLLS_S) - 1)], state)
            count += 1
            result = reconnect.call(lambda: _call_tool(admin, "agent_poll", query), waiting.clear)
            state = "running" if "running" in result.get("times", {}) else "accepted"
    finally:
        waiting.clear()
    return {**query, "taskId": accepted.get("taskId"), **result}


def _find_failure(result: JsonObject, *, callee: str, look: str) -> GatewayError | None:
    """The error of a call that was accepted and came to nothing; None for any other."""
    status = result["status"]
    if status in (*_ACCEPTED, "completed"):
        return None
    if status == "timeout":
        step = f"It may still do so: {look}    (give it longer with --timeout SECONDS)"
        message = f"{callee} did not answer in time"
        return AgentFailed(message, details=next_step("call-timeout", step))
    message = f"{callee}: {result.get('error') or status}"
    return AgentFailed(message, details=next_step("call-failed", f"See: {look}"))


def _show_answer(result: JsonObject, failure: GatewayError | None) -> None:
    """Print the outcome of a call."""
    if failure is not None:
        report_failure(failure)
    else:
        print_data(format_output(result.get("output")).removesuffix("\n"))
        late = " · late" if result.get("late") else ""
        print_message(f"completed · confidence {result.get('confidence', 0):.2f}{late}", "dim")
    for name, style in (("assumptions", "dim"), ("caveats", "yellow")):
        for text in result.get(name) or ():
            print_message(f"  {name.removesuffix('s')}: {text}", style)


app = App(
    name="calls",
    help="List, show and watch calls between agents. Ids can be shortened to a unique prefix.",
)

_Status = Literal["pending", "completed", "error", "timeout", "discarded"]


@app.command(name="list")
def list_(
    *,
    status: Annotated[_Status | None, Parameter(help="Only calls with this status.")] = None,
    agent: Annotated[str | None, Parameter(help="Only calls from or to this agent.")] = None,
    limit: LimitFlag = 20,
    options: AdminOptions = DEFAULT_ADMIN,
) -> int:
    """List calls, the newest first."""
    return _CALLS.list(options, limit=limit, status=status, agent=agent)


@app.command(name="show")
def show_(
    call: Annotated[str, Parameter(help="The call's id, or its beginning.")],
    /,
    *,
    options: AdminOptions = DEFAULT_ADMIN,
) -> int:
    """Show a call: caller, callee, the time of each state, and the answer."""
    return _CALLS.show(options, call)


@app.command
def watch(call: str | None = None, /, *, options: AdminOptions = DEFAULT_ADMIN) -> int:
    """Follow a call until its outcome is delivered, or all calls until Ctrl-C.

    A debate is drawn with its rounds and confidences. With --json one line per change.

    Parameters
    ----------
    call
        The call's id, or its beginning; left out: the newest calls.
    """
    return _CALLS.watch(options, call)


def debate(file: str, /, *, options: AdminOptions = DEFAULT_ADMIN) -> int:
    """Start a debate between agents and follow it live.

    One proposes, critics look for flaws, one concludes. With --json only the result.

    Parameters
    ----------
    file
        A file with the input of the tool debate_call as JSON; - reads it from standard input.
    """
    request = {**_read_debate(file), "wait": False}
    with _CALLS.connect(options) as admin:
        accepted = _call_tool(admin, "debate_call", request)
        if "correlationId" not in accepted:
            raise _rejection_error(accepted)
        call_id = str(accepted["correlationId"])
        if not options.as_json:
            return _CALLS.watch_item(admin, call_id, options)
        try:
            call = _CALLS.follow(admin, call_id, options)
        except KeyboardInterrupt:
            print_message(f"Interrupted. The debate goes on: {call_id}")
            return INTERRUPTED
    ids = {name: accepted[name] for name in ("taskId", "correlationId") if name in accepted}
    document = {**(call.result or {"status": call.status}), **ids}
    if not call.is_success:
        reason = document.get("error") or call.error or "no result in time"
        step = f"See: {_show_command(accepted, options)}"
        failure = AgentFailed(str(reason), details=next_step("debate-failed", step))
        document["error"] = describe_failure(failure)
    print_json(document)
    return DONE if call.is_success else FAILED


def _read_debate(file: str) -> JsonObject:
    """The request in the file. Raises: InvalidRequest."""
    step = "Write the input of debate_call: topic, proposer, critics, resolver and input."
    if file == "-":
        return parse_json_object(read_standard_input(), what="standard input", step=step)
    return parse_json_object(read_file(file, step), what=file, step=step)


def _call_tool(admin: AdminClient, name: str, arguments: JsonObject) -> JsonObject:
    """Call a tool of the gateway; its result. Raises: AgentUnavailable, AgentFailed."""
    try:
        return msgspec.json.decode(admin.call_tool(name, arguments), type=JsonObject)
    except msgspec.MsgspecError:
        message = f"the tool {name} answered something that is no object"
        raise AgentFailed(message, details={"code": "answer-unreadable"}) from None


def _rejection_error(result: JsonObject) -> GatewayError:
    """The error for a call that was not accepted."""
    message = str(result.get("error") or "the call was refused")
    if result.get("status") != "forbidden":
        return usage_error(message, code="call-refused")
    found = _SETTING.search(message)
    setting = found[1] if found else "tools.agentToAgent"
    if setting.endswith("enabled"):
        return NotAllowed(message, details=next_step("calls-off", _TURN_ON))
    return NotAllowed(message, details=next_step("forbidden", f"Change {setting}, {_RESTART}."))
