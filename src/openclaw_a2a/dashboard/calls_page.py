"""Read models of calls between agents: who called whom, how far each came; debates as threads."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import lru_cache

import msgspec

from openclaw_a2a.calls.debate import (
    MAX_CRITICS,
    MAX_ROUNDS,
    DebateRequest,
    list_step_names,
    step_call_id,
)
from openclaw_a2a.calls.outcome import Outcome
from openclaw_a2a.calls.service import CallService
from openclaw_a2a.dashboard.requests import PageRequest, read_choice
from openclaw_a2a.dashboard.task_relations import CallSummary, summarize_call
from openclaw_a2a.model.call import Call, CallId, CallStatus, OutcomeRoute
from openclaw_a2a.model.errors import RouteNotFound
from openclaw_a2a.model.ids import Json, TaskId
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.model.validation import as_list, as_object

_READ = 1000
_SHOWN = 200
"""How many calls the tree has at most; larger trees are slow in browsers."""
_MAX_TEXT = 16 * 1024
_DEBATE = "debate"


class CallNode(CallSummary, frozen=True, omit_defaults=False):
    """A call, and how deep it is in the tree. `parent` is the call in which it was made.

    `step` is the name of the step of a debate that it is. `is_kept`: its outcome stays
    here, so it is neither delivered nor seen.
    """

    parent: CallId | None
    depth: int
    mode: str
    route: str
    reason: str
    is_debate: bool = False
    is_kept: bool = False
    step: str = ""


class CallsPage(JsonStruct, frozen=True, omit_defaults=False):
    """The newest calls, each followed by those that it led to. `is_enabled`: agents may call.

    `status` chooses those in which a call has it; `is_cut`: there are more.
    """

    is_enabled: bool
    calls: tuple[CallNode, ...]
    counts: dict[str, int]
    status: str = ""
    is_cut: bool = False


class DebateParticipant(JsonStruct, frozen=True, omit_defaults=False):
    """Who takes part in a debate, as what."""

    role: str
    agent: str
    skill: str
    perspective: str = ""
    weight: float | None = None


class Contribution(JsonStruct, frozen=True, omit_defaults=False):
    """What a participant said: a proposal, a critique, a refinement, or the conclusion.

    `text` is Markdown, or JSON where the answer is no plain text.
    """

    role: str
    agent: str
    status: str
    call: CallId
    task: TaskId
    asked_at: datetime
    answered_at: datetime | None
    deadline: datetime | None
    text: str = ""
    data: str = ""
    confidence: float | None = None
    flaws: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    error: str = ""


class DebateRound(JsonStruct, frozen=True, omit_defaults=False):
    """What was said in one round; round 0 is the proposal."""

    number: int
    contributions: tuple[Contribution, ...]


class Verdict(JsonStruct, frozen=True, omit_defaults=False):
    """How a debate ended: `resolved`, `unresolved` or `error`."""

    status: str
    confidence: float
    text: str = ""
    data: str = ""
    dissent: str = ""
    error: str = ""
    confidences: tuple[float, ...] = ()
    assumptions: tuple[str, ...] = ()


class DebateThread(JsonStruct, frozen=True, omit_defaults=False):
    """A debate as it went so far."""

    topic: str
    max_rounds: int
    min_confidence: float
    participants: tuple[DebateParticipant, ...]
    rounds: tuple[DebateRound, ...]
    verdict: Verdict | None


class CallDetails(JsonStruct, frozen=True, omit_defaults=False):
    """One call: what was asked and answered, and the calls that it led to."""

    call: CallNode
    chain: tuple[str, ...]
    asked: str
    text: str
    data: str
    confidence: float | None
    assumptions: tuple[str, ...]
    caveats: tuple[str, ...]
    error: str
    is_late: bool
    calls: tuple[CallNode, ...]
    debate: DebateThread | None


class CallReader:
    """Makes the pages of calls. `service` is None where agents cannot call each other."""

    def __init__(self, service: CallService | None) -> None:
        self._service = service

    async def list(self, request: PageRequest) -> JsonStruct:
        """The page of all calls. Raises: InvalidParams."""
        service = self._service
        wanted = read_choice(request.query, "status", ["", *(one.value for one in CallStatus)])
        calls: list[Call] = []
        if service is not None:
            calls = await service.list_calls(limit=_READ, with_steps=True, with_purged=True)
        counts = {one.value: sum(call.status is one for call in calls) for one in CallStatus}
        nodes = list(make_call_tree(calls))
        if wanted:
            nodes = _keep_branches(nodes, wanted)
        is_enabled = service is not None and service.is_enabled
        shown = tuple(nodes[:_SHOWN])
        return CallsPage(is_enabled, shown, counts, wanted, is_cut=len(nodes) > _SHOWN)

    async def show(self, request: PageRequest) -> JsonStruct:
        """The page of one call. Raises: RouteNotFound."""
        service = self._service
        call_id = CallId(request.segments[0])
        call = None if service is None else await service.find(call_id, with_purged=True)
        if service is None or call is None:
            raise RouteNotFound(
                f"there is no call {request.segments[0][:80]}: it never existed here, or its"
                " outcome was delivered some time ago; then a call is kept for as long as its"
                " timeout is, a minute at least and an hour at most, and shown until five hundred"
                " newer ones have ended or the gateway is started again"
            )
        calls = await service.list_calls(limit=_READ, with_steps=True, with_purged=True)
        if call not in calls:
            calls.append(call)
        branch = _branch(list(make_call_tree(calls)), call.id)
        asked, outcome = await service.read_exchange(call)
        debate = None
        if _is_debate(call):
            steps = {one.id: one for one in calls if one.parent == call.id}
            debate = await _read_debate(service, call, steps, asked, outcome)
        text, data = _show_answer(None if outcome is None else outcome.output)
        return CallDetails(
            call=branch[0],
            chain=call.chain,
            asked=_show_request(asked),
            text=text,
            data=data,
            confidence=outcome.confidence if outcome and outcome.is_completed else None,
            assumptions=() if outcome is None else outcome.assumptions,
            caveats=() if outcome is None else outcome.caveats,
            error="" if outcome is None else outcome.error,
            is_late=call.status is CallStatus.TIMEOUT and outcome is not None,
            calls=tuple(branch[1:]),
            debate=debate,
        )


# -------------------------------------------------------------------- the tree


def make_call_tree(calls: Sequence[Call]) -> Iterator[CallNode]:
    """Roots newest first; below each call those that it led to, oldest first."""
    known = {call.id for call in calls}
    # The callee of a call works in a session of that call: what is called from there belongs to it.
    by_session = {call.session_key: call.id for call in calls}
    parents: dict[CallId, CallId | None] = {}
    for call in calls:
        parent = call.parent or by_session.get(call.caller.session_key or call.return_to)
        parents[call.id] = parent if parent in known and parent != call.id else None
    children: dict[CallId | None, list[Call]] = {}
    for call in sorted(calls, key=lambda one: (one.accepted_at, one.id)):
        children.setdefault(parents[call.id], []).append(call)
    waiting = [(call, 0) for call in children.get(None, [])]
    seen: set[CallId] = set()
    while waiting:
        call, depth = waiting.pop()
        if call.id not in seen:
            seen.add(call.id)
            yield _node(call, parents[call.id], depth)
            # Taken from the end: the oldest comes first.
            waiting += [(one, depth + 1) for one in reversed(children.get(call.id, []))]
    for call in calls:
        if call.id not in seen:  # two sessions that call back and forth have no root
            yield _node(call, parents[call.id], 0)


def _keep_branches(nodes: Sequence[CallNode], status: str) -> list[CallNode]:
    """The nodes of the roots in whose branch a call has this status."""
    kept: list[CallNode] = []
    start = 0
    for place in range(1, len(nodes) + 1):
        if place == len(nodes) or nodes[place].depth == 0:
            branch = nodes[start:place]
            kept += branch if any(one.status == status for one in branch) else ()
            start = place
    return kept


def _branch(nodes: Sequence[CallNode], call_id: CallId) -> list[CallNode]:
    """A node and those below it, as if it were a root."""
    start = next(place for place, one in enumerate(nodes) if one.id == call_id)
    top = nodes[start].depth
    below = [nodes[start]]
    for one in nodes[start + 1 :]:
        if one.depth <= top:
            break
        below.append(one)
    return [msgspec.structs.replace(one, depth=one.depth - top) for one in below]


def _is_debate(call: Call) -> bool:
    return call.skill == _DEBATE and call.callee_name != call.callee


@lru_cache(maxsize=512)
def _step_names(debate_id: CallId) -> dict[CallId, str]:
    """The names of all steps that a debate may have, by their calls."""
    names = list_step_names(MAX_CRITICS, MAX_ROUNDS)
    return {step_call_id(debate_id, name): name for name in names}


def _node(call: Call, parent: CallId | None, depth: int) -> CallNode:
    return CallNode(
        *summarize_call(call),
        parent=parent,
        depth=depth,
        mode=call.mode,
        route=call.route.value,
        reason=call.reason or "",
        is_debate=_is_debate(call),
        is_kept=call.route is OutcomeRoute.NONE,
        step="" if call.parent is None else _step_names(call.parent).get(call.id, ""),
    )


# -------------------------------------------------------------------- debates


async def _read_debate(
    service: CallService,
    call: Call,
    steps: dict[CallId, Call],
    asked: str,
    outcome: Outcome | None,
) -> DebateThread | None:
    """The thread of a debate; None when its request cannot be read."""
    try:
        request = msgspec.json.decode(asked, type=DebateRequest)
    except (ValueError, RecursionError):
        return None
    rounds: dict[int, list[Contribution]] = {}
    for name in list_step_names(len(request.critics), request.rounds):
        step = steps.get(step_call_id(call.id, name))
        if step is not None:
            number = _round_of(name, last=max(rounds, default=0))
            rounds.setdefault(number, []).append(await _contribute(service, step, name))
    return DebateThread(
        topic=request.topic,
        max_rounds=request.rounds,
        min_confidence=request.min_confidence,
        participants=tuple(_participants(request)),
        rounds=tuple([DebateRound(number, tuple(said)) for number, said in rounds.items()]),
        verdict=None if outcome is None else _judge(outcome),
    )


def _round_of(name: str, *, last: int) -> int:
    """The round of a step: the conclusion comes after the last one."""
    if name == "propose":
        return 0
    if name == "resolve":
        return last + 1
    return int(name.partition("/")[0].removeprefix("round-"))


def _participants(request: DebateRequest) -> Iterator[DebateParticipant]:
    yield DebateParticipant("proposer", request.proposer.agent, request.proposer.skill)
    for one in request.critics:
        yield DebateParticipant("critic", one.agent, one.skill, one.perspective or "", one.weight)
    yield DebateParticipant("resolver", request.resolver.agent, request.resolver.skill)


_ROLES = {"propose": "proposal", "refine": "refinement", "resolve": "conclusion"}


async def _contribute(service: CallService, step: Call, name: str) -> Contribution:
    _, outcome = await service.read_exchange(step)
    said: Json = None if outcome is None else outcome.output
    text, data = _show_answer(said)
    is_critique = "/critic-" in name
    members = as_object(said)
    if is_critique and members:
        text = str(members.get("critique") or members.get("summary") or "")
        data = "" if text or members.get("flaws") else data
    return Contribution(
        role="critique" if is_critique else _ROLES.get(name.rpartition("/")[2], name),
        agent=step.callee_name,
        status=step.status.value,
        call=step.id,
        task=step.task_id,
        asked_at=step.accepted_at,
        answered_at=step.settled_at,
        deadline=step.deadline,
        text=text,
        data=data,
        confidence=outcome.confidence if outcome and outcome.is_completed else None,
        flaws=_texts(members.get("flaws")) if is_critique else (),
        alternatives=_texts(members.get("alternatives")) if is_critique else (),
        error="" if outcome is None else outcome.error,
    )


def _judge(outcome: Outcome) -> Verdict:
    result = as_object(outcome.output)
    if not outcome.is_completed or "status" not in result:
        return Verdict("error", 0.0, error=outcome.error or "it ended without a result")
    text, data = _show_answer(result.get("conclusion"))
    history = [one for one in as_list(result.get("confidenceHistory")) if _is_number(one)]
    return Verdict(
        status=str(result["status"]),
        confidence=outcome.confidence,
        text=text,
        data=data,
        dissent=str(result.get("dissent") or ""),
        error=str(result.get("error") or ""),
        confidences=tuple([float(one) for one in history]),
        assumptions=outcome.assumptions,
    )


def _show_answer(output: Json) -> tuple[str, str]:
    """An answer as text, or as JSON; an object with one text in it is that text."""
    if output is None:
        return "", ""
    members = as_object(output)
    if len(members) == 1:
        [output] = members.values()
    if isinstance(output, str):
        return output[:_MAX_TEXT], ""
    try:
        body = msgspec.json.format(msgspec.json.encode(output), indent=2)
    except (ValueError, RecursionError):  # lone surrogates, which only escapes can carry
        return repr(output)[:_MAX_TEXT], ""
    return "", body.decode()[:_MAX_TEXT]


class _Invocation(msgspec.Struct, tag="skill_invocation", tag_field="kind"):
    """The message of a call, as far as its page needs it."""

    input: msgspec.Raw


def _show_request(asked: str) -> str:
    """The input of a call; what is no call as it is."""
    try:
        given = msgspec.json.decode(asked, type=_Invocation).input
        return msgspec.json.format(bytes(given), indent=2).decode()[:_MAX_TEXT]
    except (ValueError, RecursionError):
        return asked[:_MAX_TEXT]


def _texts(value: Json) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value[:_MAX_TEXT],)
    return tuple([one if isinstance(one, str) else str(one) for one in as_list(value)][:50])


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
