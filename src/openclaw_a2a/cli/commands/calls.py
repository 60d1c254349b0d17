"""`call`, `calls` and `debate`: call agents, list, show and watch calls, let agents debate."""

import re
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cyclopts import App, Parameter

from openclaw_a2a.cli.admin_client import (
    DEFAULT_GATEWAY,
    MAX_LISTED,
    AdminClient,
    Feature,
    GatewayOptions,
    check_prefix,
    connect_feature,
    fetch,
    list_query,
    print_list,
    resolve_prefix,
)
from openclaw_a2a.cli.errors import DONE, FAILED, INTERRUPTED, USAGE_ERROR, next_step
from openclaw_a2a.cli.flags import JsonFlag
from openclaw_a2a.cli.follow import LiveView, Reconnect, is_temporary
from openclaw_a2a.cli.render.calls import (
    CALL_COLOURS,
    CALL_HEADING,
    COMPLETED,
    PENDING,
    CallList,
    CallView,
    call_answer,
    call_head,
    call_page,
    call_row,
    call_summary,
    call_table,
    call_times,
    debate_tree,
    format_output,
)
from openclaw_a2a.cli.render.terminal import (
    WaitIndicator,
    is_narrow,
    print_data,
    print_json,
    print_message,
    print_page,
    styled_text,
)
from openclaw_a2a.model.errors import (
    AgentError,
    AgentFailed,
    GatewayError,
    InvalidRequest,
    NotAllowed,
)
from openclaw_a2a.model.ids import Json, JsonObject

CALLS_HINT = "See the calls there are: openclaw-a2a calls list"
_SETTING = re.compile(r"\(((?:tools|agents)\.[\w.*-]+)\)")
_RESTART = "then start the gateway again"
_TURN_ON = (
    "Set tools.agentToAgent.enabled to true and name the agents in tools.agentToAgent.allow, "
    f"{_RESTART}."
)


_CALLS = Feature(
    noun="calls between agents",
    disabled_code="calls-off",
    enable_hint=_TURN_ON,
    not_found_code="call-not-found",
    list_hint=CALLS_HINT,
)


def find_call(admin: AdminClient, prefix: str) -> str:
    """The id of the call with this id or prefix. Raises: InvalidRequest, AgentFailed."""
    check_prefix(prefix, _CALLS, "a call")
    listed, _ = fetch(admin, CallList, "calls", query=list_query(MAX_LISTED))
    ids = [one.correlation_id for one in listed.calls]
    return resolve_prefix(prefix, ids, noun="call", see=CALLS_HINT)


def call_tool(admin: AdminClient, name: str, arguments: JsonObject) -> JsonObject:
    """Call a tool of the gateway; its result. Raises: AgentUnavailable, AgentFailed."""
    try:
        return msgspec.json.decode(admin.call_tool(name, arguments), type=JsonObject)
    except msgspec.MsgspecError:
        message = f"the tool {name} answered something that is no object"
        raise AgentFailed(message, details={"code": "answer-unreadable"}) from None


def read_object(written: str | bytes, *, what: str, step: str) -> JsonObject:
    """Decode a JSON object. Raises: InvalidRequest, with `step` as the next step."""
    try:
        return msgspec.json.decode(written, type=JsonObject)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        message = f"{what} is no JSON object: {error}"
        raise InvalidRequest(message, details=next_step("usage", step)) from None


def rejection_error(result: JsonObject) -> GatewayError:
    """The error for a call that was not accepted."""
    message = str(result.get("error") or "the call was refused")
    if result.get("status") != "forbidden":
        return InvalidRequest(message, details={"code": "call-refused"})
    found = _SETTING.search(message)
    setting = found[1] if found else "tools.agentToAgent"
    step = _TURN_ON if setting.endswith("enabled") else f"Change {setting}, {_RESTART}."
    return NotAllowed(message, details=next_step("forbidden", step))


_WORKING = "working"
_ACCEPTED = ("pending", _WORKING)
_SHORT_ID = 8
_PAUSES_S = (0.05, 0.1, 0.2, 0.3, 0.5)
_POLL_S = 0.3
_NEWEST = {"limit": "20"}


@Parameter(name="*")
@dataclass(frozen=True)
class CallOptions:
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


DEFAULT_OPTIONS = CallOptions()


def call(
    agent: str,
    skill: str,
    given: Annotated[str, Parameter(name="INPUT", show_default=False)] = "{}",
    /,
    *,
    calling: CallOptions = DEFAULT_OPTIONS,
    own: GatewayOptions = DEFAULT_GATEWAY,
    as_json: JsonFlag = False,
) -> int:
    """Call a skill of an agent, and optionally wait for the answer.

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
        with connect_feature(own, _CALLS) as admin:
            result = call_tool(admin, "agent_call", request)
            if calling.wait and result.get("status") in _ACCEPTED:
                result = _wait(admin, result, f"{agent} · {skill}")
    except KeyboardInterrupt:
        return _interrupted(result, own)
    if as_json:
        print_json(result)
        return _exit_code(result)
    if "correlationId" not in result:
        raise rejection_error(result)
    if result["status"] in _ACCEPTED and not calling.wait:
        print_data(f"{result['correlationId']}  {result['status']}")
        print_message(f"Look later: {_look(result, own)}")
        return DONE
    return _show_answer(result, callee=f"{agent} · {skill}", look=_look(result, own))


def _interrupted(result: JsonObject, own: GatewayOptions) -> int:
    """Print how to follow the call later; the exit code."""
    if "correlationId" in result:
        print_message(f"Interrupted. The call goes on. Look later: {_look(result, own)}")
    else:
        print_message(
            f"Interrupted. If it was accepted, the call goes on: {own.command('calls list')}"
        )
    return INTERRUPTED


def _request(agent: str, skill: str, given: Json, calling: CallOptions) -> JsonObject:
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


def _wait(admin: AdminClient, accepted: JsonObject, label: str) -> JsonObject:
    """Poll for the outcome; a gateway that is away meanwhile is retried."""
    query = {"correlationId": accepted["correlationId"]}
    waiting, reconnect = WaitIndicator(label), Reconnect()
    result, state, turn = accepted, "accepted", 0
    try:
        while result["status"] in _ACCEPTED:
            waiting.wait(_PAUSES_S[min(turn, len(_PAUSES_S) - 1)], state)
            turn += 1
            try:
                result = call_tool(admin, "agent_poll", query)
                reconnect.mark_answered()
            except AgentError as error:
                waiting.clear()
                if not is_temporary(error):
                    raise
                reconnect.tolerate(error, is_in_progress=True)
                continue
            state = "running" if "running" in result.get("times", {}) else "accepted"
    finally:
        waiting.clear()
    return {**query, "taskId": accepted.get("taskId"), **result}


def _show_answer(result: JsonObject, *, callee: str, look: str) -> int:
    """Print the outcome of a call; the exit code."""
    status = result["status"]
    if status == "completed":
        print_data(format_output(result.get("output")).removesuffix("\n"))
        late = " · late" if result.get("late") else ""
        print_message(f"completed · confidence {result.get('confidence', 0):.2f}{late}", "dim")
    elif status == "timeout":
        print_message(f"error call-timeout: {callee} did not answer in time", "red")
        print_message(f"It may still do so: {look}    (give it longer with --timeout SECONDS)")
    else:
        print_message(f"error call-failed: {callee}: {result.get('error') or status}", "red")
        print_message(f"See: {look}")
    for name, style in (("assumptions", "dim"), ("caveats", "yellow")):
        for text in result.get(name) or ():
            print_message(f"  {name.removesuffix('s')}: {text}", style)
    return _exit_code(result)


def _exit_code(result: JsonObject) -> int:
    if "correlationId" not in result:
        return USAGE_ERROR
    return DONE if result["status"] in (*_ACCEPTED, "completed") else FAILED


def _look(result: JsonObject, own: GatewayOptions) -> str:
    return own.command(f"calls show {str(result['correlationId'])[:_SHORT_ID]}")


app = App(
    name="calls",
    help="List, show and watch calls between agents. Ids may be cut to their unique beginning.",
)

Status = Literal["pending", "completed", "error", "timeout", "discarded"]


@Parameter(name="*")
@dataclass(frozen=True)
class CallFilters:
    """Which calls to list."""

    status: Annotated[Status | None, Parameter(help="Only calls with this status.")] = None
    agent: Annotated[str | None, Parameter(help="Only calls from or to this agent.")] = None
    limit: Annotated[int, Parameter(help="How many at most.")] = 20

    def query(self) -> dict[str, str]:
        """The filters as the gateway takes them. Raises: InvalidRequest."""
        return list_query(self.limit, status=self.status, agent=self.agent)


ALL_CALLS = CallFilters()


@app.command(name="list")
def list_(
    *,
    filters: CallFilters = ALL_CALLS,
    own: GatewayOptions = DEFAULT_GATEWAY,
    as_json: JsonFlag = False,
) -> int:
    """List calls, the newest first."""
    with connect_feature(own, _CALLS) as admin:
        found, body = fetch(admin, CallList, "calls", query=filters.query())
    if as_json:
        print_json(msgspec.json.decode(body))
    elif found.calls:
        now = datetime.now(UTC)
        rows = [call_row(call, now, is_short=is_narrow()) for call in found.calls]
        print_list(rows, CALL_HEADING, styles=CALL_COLOURS, total=found.total_size)
    else:
        print_message(_nothing(filters))
    return DONE


@app.command(name="show")
def show_(
    call: Annotated[str, Parameter(help="The call's id, or its beginning.")],
    /,
    *,
    own: GatewayOptions = DEFAULT_GATEWAY,
    as_json: JsonFlag = False,
) -> int:
    """Show a call: caller, callee, the time of each state, and the answer."""
    with connect_feature(own, _CALLS) as admin:
        shown, body = fetch(admin, CallView, "calls", find_call(admin, call))
    if as_json:
        print_json(msgspec.json.decode(body))
    else:
        _show(shown)
    return DONE


@app.command
def watch(
    call: str | None = None, /, *, own: GatewayOptions = DEFAULT_GATEWAY, as_json: JsonFlag = False
) -> int:
    """Follow a call until its outcome is delivered, or all calls until Ctrl-C.

    A debate is drawn with its rounds and confidences. With --json one line per change.

    Parameters
    ----------
    call
        The call's id, or its beginning; left out: the newest calls.
    """
    with connect_feature(own, _CALLS) as admin:
        if call is None:
            return _watch_all(admin, as_json=as_json)
        return _watch_one(admin, find_call(admin, call), as_json=as_json)


def _show(call: CallView) -> None:
    now = datetime.now(UTC)
    debate = [styled_text(""), *debate_tree(call, now)] if call.is_debate else []
    print_page([*call_head(call, now), *call_times(call), *debate, *call_answer(call)])


def _watch_one(admin: AdminClient, call_id: str, *, as_json: bool) -> int:
    """Follow a call until nothing more happens to it; the exit code."""
    try:
        with LiveView(as_json=as_json) as view:
            call = _follow(admin, call_id, view)
    except KeyboardInterrupt:
        print_message("Interrupted. The call goes on.")
        return INTERRUPTED
    if not as_json:
        print_page(call_answer(call))
    return _call_exit_code(call)


def _watch_all(admin: AdminClient, *, as_json: bool) -> int:
    """Follow the newest calls until Ctrl-C; the exit code."""
    try:
        with LiveView(as_json=as_json) as view:
            while True:
                found, body = view.fetch(lambda: fetch(admin, CallList, "calls", query=_NEWEST))
                now = datetime.now(UTC)
                oldest_first = found.calls[::-1]
                sent: list[Json] = msgspec.json.decode(body)["calls"][::-1]
                view.show(
                    [call_table(found.calls, now, is_short=is_narrow())],
                    documents=[(one["correlationId"], one) for one in sent],
                    changes=[_change(call, now) for call in oldest_first],
                )
                time.sleep(_POLL_S)
    except KeyboardInterrupt:
        return DONE


def _follow(admin: AdminClient, call_id: str, view: LiveView) -> CallView:
    """Show a call until nothing more happens to it; the call as it is then."""
    while True:
        call, body = view.fetch(lambda: fetch(admin, CallView, "calls", call_id))
        now = datetime.now(UTC)
        calls = [call, *call.parts] if call.status == PENDING else [*call.parts, call]
        view.show(
            call_page(call, now),
            documents=[(call_id, msgspec.json.decode(body))],
            changes=[_change(one, now) for one in calls],
        )
        if call.is_over:
            return call
        time.sleep(_POLL_S)


def _change(call: CallView, now: datetime) -> tuple[str, Json, str]:
    return call.correlation_id, (call.status, call.state), call_summary(call, now)


def _call_exit_code(call: CallView) -> int:
    is_failed = call.is_debate and call.result.get("status") == "error"
    return DONE if call.status == COMPLETED and not is_failed else FAILED


def _nothing(filters: CallFilters) -> str:
    status = f" with status {filters.status}" if filters.status else ""
    agent = f" from or to {filters.agent}" if filters.agent else ""
    if status or agent:
        return f"No calls{status}{agent}."
    return "No calls. Make one: openclaw-a2a call AGENT ping --wait"


_STEP = "Write the input of debate_call: topic, proposer, critics, resolver and input."


def debate(
    file: str, /, *, own: GatewayOptions = DEFAULT_GATEWAY, as_json: JsonFlag = False
) -> int:
    """Start a debate between agents and follow it live.

    One proposes, critics look for flaws, one concludes. With --json only the result.

    Parameters
    ----------
    file
        A file with the input of the tool debate_call as JSON; - reads it from standard input.
    """
    request = {**_read(file), "wait": False}
    with connect_feature(own, _CALLS) as admin:
        accepted = call_tool(admin, "debate_call", request)
        if "correlationId" not in accepted:
            raise rejection_error(accepted)
        call_id = str(accepted["correlationId"])
        if as_json:
            return _show_result(admin, call_id, accepted)
        return _watch_one(admin, call_id, as_json=False)


def _show_result(admin: AdminClient, call_id: str, accepted: JsonObject) -> int:
    """Print the result of a debate as JSON; the exit code."""
    try:
        call = _follow(admin, call_id, LiveView(as_json=True, is_quiet=True))
    except KeyboardInterrupt:
        print_message(f"Interrupted. The debate goes on: {call_id}")
        return INTERRUPTED
    ids = {name: accepted[name] for name in ("taskId", "correlationId") if name in accepted}
    failed = {"status": call.status, "error": call.error or "no result in time"}
    print_json({**(call.result or failed), **ids})
    return _call_exit_code(call)


def _read(file: str) -> JsonObject:
    """The request in the file. Raises: InvalidRequest."""
    if file == "-":
        return read_object(sys.stdin.read(), what="standard input", step=_STEP)
    try:
        written = Path(file).expanduser().read_bytes()
    except (OSError, ValueError) as error:
        message = f"{file} cannot be read: {getattr(error, 'strerror', None) or error}"
        raise InvalidRequest(message, details={"code": "usage", "nextStep": _STEP}) from None
    return read_object(written, what=file, step=_STEP)
