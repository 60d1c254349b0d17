"""Placing a call: whether it may be made, and its acceptance together with the callee's task."""

import asyncio
import json
from contextlib import suppress
from typing import Protocol, cast
from uuid import UUID, uuid5

import msgspec

from openclaw_a2a.calls.builtin_skills import PING_S, find_skill, input_problems
from openclaw_a2a.calls.debate.agent import Step, StepResult
from openclaw_a2a.calls.debate.request import DebateRequest, longest_ms, read_debate
from openclaw_a2a.calls.identifiers import TARGET, BadCall
from openclaw_a2a.calls.loop_guard import CallHistory, GuardRules, Past, why_not_on
from openclaw_a2a.calls.outcome import Work, outcome_of
from openclaw_a2a.calls.outcome_delivery import SOURCE_TOOL, OutcomeDelivery
from openclaw_a2a.calls.payloads import (
    as_answer,
    details,
    ids,
    in_trouble,
    polled,
    summed_up,
    times,
)
from openclaw_a2a.calls.policy import CallPolicy, Refusal, refuse
from openclaw_a2a.calls.repository import CallRepository
from openclaw_a2a.calls.request import (
    CallRequest,
    Fields,
    read_batch,
    read_call,
    readable_names,
)
from openclaw_a2a.calls.waiters import WaitingCaller
from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.tasks.submit import InternalOrigin, SubmitRequest, submit, wait_created
from openclaw_a2a.engine.tasks.turn_builder import AccountRules
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.call import CALL_KIND, Call, Caller, CallId, CallStatus, OutcomeRoute
from openclaw_a2a.model.delivery import delivery_id
from openclaw_a2a.model.errors import GatewayError, Overloaded, StoreUnavailable
from openclaw_a2a.model.ids import (
    AccountId,
    AgentId,
    ContextId,
    Json,
    JsonObject,
    MessageId,
    PeerName,
    SessionKey,
    TaskId,
)
from openclaw_a2a.model.message import Message, Role
from openclaw_a2a.model.message import Part as MessagePart
from openclaw_a2a.model.records import StoredTask, encode_json
from openclaw_a2a.model.session_keys import main_session_key, safe_label
from openclaw_a2a.model.skill import BUILT_IN, PING, Skill
from openclaw_a2a.model.states import is_terminal
from openclaw_a2a.model.turn import Provenance, Scope
from openclaw_a2a.ports import Record

BUILT_IN_AGENT = AgentId("gateway:skills")
"""Answers what every agent can be called for, in the agent's place."""

ACCOUNT = AccountId("gateway:calls")
"""Where the tasks of calls belong; no account of the settings can be called so."""


class Directory(Protocol):
    """Who can be called."""

    def skills(self, agent_id: AgentId) -> tuple[Skill, ...] | None:
        """What an agent declares; None when there is no such agent."""
        ...

    def names(self) -> list[AgentId]:
        """Everybody there is."""
        ...


class RoutingRules(msgspec.Struct, frozen=True):
    """How answers come back. `is_enabled` False: they do not; they are to be asked for."""

    is_enabled: bool = True
    default_ms: int = 60_000
    max_ms: int = 300_000
    dual_delivery: bool = False


class CallRules(msgspec.Struct, frozen=True):
    """What the operator says about calls."""

    policy: CallPolicy = CallPolicy()
    guard: GuardRules = GuardRules()
    routing: RoutingRules = RoutingRules()


class Part(msgspec.Struct, frozen=True):
    """A call as a part of a debate, under an id that is the same whenever it is held again."""

    id: CallId
    debate: Call


class Order(msgspec.Struct, frozen=True):
    """A call that may be made."""

    id: CallId
    caller: Caller
    past: Past
    callee: AgentId
    skill: str
    mode: str
    text: str
    timeout_ms: int
    session_key: SessionKey
    return_to: SessionKey
    runs_as: AgentId
    is_reached: bool
    """True when the caller has a session that something can be put into."""
    parent: CallId | None = None
    kind: str = "call"

    @property
    def peer(self) -> PeerName:
        """In whose name the callee works: each has places of its own to run at once."""
        return PeerName(f"{self.kind}:{self.caller.agent_id}")

    @property
    def route(self) -> OutcomeRoute:
        """How its outcome reaches the caller."""
        if self.parent is not None or not self.timeout_ms:
            return OutcomeRoute.NONE
        return OutcomeRoute.SESSION if self.is_reached else OutcomeRoute.INBOX


class Placing:
    """Checks calls and puts them on their way."""

    def __init__(
        self,
        engine: Engine,
        book: CallRepository,
        courier: OutcomeDelivery,
        *,
        rules: CallRules,
        directory: Directory,
    ) -> None:
        self.engine = engine
        self._book = book
        self._courier = courier
        self.rules = rules
        self._directory = directory

    # ---------------------------------------------------------------- may it be made

    def refuse(
        self, caller: Caller, past: Past, callee: AgentId, skill: str, given: JsonObject | None
    ) -> Refusal | None:
        """Why a call may not be made; None when it may. Without an input only the skill counts."""
        refusal = refuse(self._policy_for(caller), caller.agent_id, callee)
        if refusal is not None:
            return refusal
        skills = self._directory.skills(callee)
        if skills is None:
            return Refusal("error", self._no_agent(caller, callee))
        refusal = _skill_trouble(callee, skills, skill, given)
        if refusal is not None:
            return refusal
        reason = why_not_on(past, callee, self.rules.guard)
        return None if reason is None else Refusal("error", reason)

    def _policy_for(self, caller: Caller) -> CallPolicy:
        """The operator's own calls need no entry for the caller, only for the callee."""
        policy = self.rules.policy
        if not caller.is_operator or not policy.allow:
            return policy
        return msgspec.structs.replace(policy, allow=(*policy.allow, caller.agent_id))

    def _no_agent(self, caller: Caller, callee: AgentId) -> str:
        if callee.startswith(TARGET):
            return f"there is no remote target {callee.removeprefix(TARGET)!r}"
        policy = self._policy_for(caller)
        known = [one for one in self._directory.names() if not refuse(policy, caller.agent_id, one)]
        return f"there is no agent {callee}; agents that can be called: {_listed(known)}"

    def wanted_ms(self, request: CallRequest) -> int:
        """How long the callee is to have; 0: as long as it likes, and nothing is brought."""
        if request.timeout_ms is not None:
            return request.timeout_ms
        return self._declared_ms(request) or self.rules.routing.default_ms

    def _declared_ms(self, request: CallRequest) -> int | None:
        if request.skill == PING:
            return int(PING_S * 1000)
        skill = find_skill(self._directory.skills(request.agent) or (), request.skill)
        seconds = None if skill is None else skill.timeout_seconds
        return None if seconds is None else int(seconds * 1000)

    # ---------------------------------------------------------------- making it

    def order(
        self,
        caller: Caller,
        past: Past,
        request: CallRequest,
        *,
        part: Part | None = None,
    ) -> Order:
        """The call that a request asks for: on its own, or as a part of a debate."""
        call_id = CallId(self.engine.new_id()) if part is None else part.id
        timeout_ms = min(self.wanted_ms(request), self.rules.routing.max_ms)
        return_to = session_of(caller) if part is None else part.debate.session_key
        is_remote = request.agent.startswith(TARGET)
        # Keys of sessions name people and channels, which is nobody's business elsewhere.
        shown_to = SessionKey(f"agent:{caller.agent_id}:remote") if is_remote else return_to
        return Order(
            id=call_id,
            caller=caller,
            past=past,
            callee=request.agent,
            skill=request.skill,
            mode=request.mode,
            text=invocation(request, call_id, return_to=shown_to, timeout_ms=timeout_ms),
            timeout_ms=timeout_ms,
            session_key=_callee_session(request, call_id),
            return_to=return_to,
            runs_as=BUILT_IN_AGENT if request.skill in BUILT_IN else request.agent,
            is_reached=self._courier.can_reach(caller),
            parent=None if part is None else part.debate.id,
        )

    async def place(self, order: Order) -> Call:
        """Accept a call: it and the callee's task are kept together, and the callee begins.

        Raises: Draining, Overloaded, StoreUnavailable.
        """
        accepted: list[Call] = []

        def keep(task_id: TaskId) -> Record:
            call = self._call(order, task_id)
            accepted.append(call)
            self._book.add(call)  # before it is stored: its outcome may come at once
            return self._book.record_of(call)

        provenance = Provenance(
            tool=SOURCE_TOOL,
            session_key=order.return_to,
            skill=order.skill,
            mode=order.mode,
            correlation_id=order.id,
            chain=order.past.chain,
            may_announce=self.rules.routing.dual_delivery,
        )
        send = SubmitRequest(
            scope=Scope(order.peer, ACCOUNT),
            message=Message(
                MessageId(order.id),
                Role.USER,
                (MessagePart(text=order.text),),
                context_id=ContextId(order.id),
            ),
            is_blocking=False,
            make_delivery=self._courier.follow(order.id),
            internal_origin=InternalOrigin(order.session_key, provenance, keep),
        )
        try:
            run = await submit(self.engine, send, AccountRules(ACCOUNT, order.runs_as))
            await wait_created(self.engine, run)
        except GatewayError:
            for call in accepted:
                self._book.forget(call)
            raise
        if not accepted:
            raise StoreUnavailable(f"call {order.id} was made before, and is forgotten by now")
        return accepted[0]

    def _call(self, order: Order, task_id: TaskId) -> Call:
        return Call(
            id=order.id,
            task_id=task_id,
            caller=order.caller,
            callee=order.callee,
            skill=order.skill,
            mode=order.mode,
            session_key=order.session_key,
            return_to=order.return_to,
            timeout_ms=order.timeout_ms,
            accepted_at=self.engine.clock.now(),
            route=order.route,
            chain=order.past.chain,
            lineage=order.past.lineage,
            parent=order.parent,
        )


def invocation(
    request: CallRequest, call_id: CallId, *, return_to: SessionKey, timeout_ms: int
) -> str:
    """What the callee is asked, as JSON."""
    asked: JsonObject = {
        "kind": "skill_invocation",
        "skill": request.skill,
        "mode": request.mode,
        "input": request.input,
        "correlationId": call_id,
        "returnTo": return_to,
        "timeout": timeout_ms,
    }
    if request.skill in BUILT_IN:  # it is answered in the callee's place
        asked["agent"] = request.agent
    return json.dumps(asked, ensure_ascii=False)


def session_of(caller: Caller) -> SessionKey:
    """Where a caller's answers go, as a session key."""
    return caller.session_key or SessionKey(f"agent:{caller.agent_id}:inbox")


def _callee_session(request: CallRequest, call_id: CallId) -> SessionKey:
    if request.is_main:
        return main_session_key(request.agent)
    is_remote = request.agent.startswith(TARGET)
    label = safe_label(request.agent) if is_remote else request.agent
    return SessionKey(f"agent:{label}:call:{call_id}")


def _skill_trouble(
    callee: AgentId, skills: tuple[Skill, ...], name: str, given: JsonObject | None
) -> Refusal | None:
    """Why a skill cannot be called; an agent that declares none takes any."""
    if not skills or name in BUILT_IN:
        return None
    skill = find_skill(skills, name)
    if skill is None:
        known = [*(one.name for one in skills), *BUILT_IN]
        return Refusal("error", f"{callee} has no skill {name}; it has {', '.join(known)}")
    problems = [] if given is None else input_problems(skill, given)
    if not problems:
        return None
    noted = f"the input does not fit {name}"
    return Refusal("error", f"{noted}: {'; '.join(problems)}", noted)


def _listed(names: list[AgentId]) -> str:
    return ", ".join(sorted(names)) or "none"


log = get_logger(__name__)

DEBATE_AGENT = AgentId("gateway:debate")
"""Holds debates, as a task of its own."""

DEBATE = "debate"
_BEGINNING = 8
"""Among so many first events of a task is the one that says that it runs."""


class Audit(Protocol):
    """Writes down what happened, who asked for it, and which agent and skill it was about."""

    def __call__(
        self, event: str, caller: Caller, *, target: str = "", skill: str = "", reason: str = ""
    ) -> None:
        """Write it down; nothing of what is given holds anything of an input."""
        ...


class CallService:
    """The four tools, and what people may see of calls."""

    def __init__(
        self,
        book: CallRepository,
        courier: OutcomeDelivery,
        *,
        placing: Placing,
        lineage: CallHistory,
        audit: Audit,
    ) -> None:
        self._engine = placing.engine
        self._book = book
        self._courier = courier
        self._placing = placing
        self._lineage = lineage
        self._rules = placing.rules
        self._audit = audit

    # ---------------------------------------------------------------- agent_call

    async def agent_call(self, request: Json, caller: Caller) -> JsonObject:
        """Call another agent; the answer, or that it is on its way."""
        try:
            wanted = read_call(request)
        except BadCall as error:
            return self._invalid(caller, str(error), request)
        with self._courier.line() as line:
            return await self._call(caller, wanted, line)

    async def _call(self, caller: Caller, wanted: CallRequest, line: WaitingCaller) -> JsonObject:
        past = self._lineage.past(caller)
        refusal = self._placing.refuse(caller, past, wanted.agent, wanted.skill, wanted.input)
        if refusal is not None:
            return self._refused(caller, wanted.agent, wanted.skill, refusal)
        order = self._placing.order(caller, past, wanted)
        placed = await self._place(order)
        if not isinstance(placed, Call):
            return placed
        limit = _limit(self._placing.wanted_ms(wanted), order.timeout_ms)
        if wanted.wait and placed.timeout_ms:
            return {**await self._waited(placed, line), **limit}
        return {"status": self._on_its_way(placed), **ids(placed), **limit}

    def _on_its_way(self, call: Call) -> str:
        """How a caller is told that it will hear more, or has to ask."""
        is_brought = call.timeout_ms and self._rules.routing.is_enabled
        return "pending" if is_brought else "working"

    async def _place(self, order: Order) -> Call | JsonObject:
        try:
            return await self._accept(order)
        except GatewayError as error:
            return {"status": "error", "error": error.message}

    async def _accept(self, order: Order) -> Call:
        """The call, once it is accepted. Raises: as `Placing.place`."""
        about = {"target": order.callee, "skill": order.skill}
        try:
            call = await self._placing.place(order)
        except GatewayError as error:
            self._audit("call-not-accepted", order.caller, **about, reason=error.message)
            raise
        self._audit("call", order.caller, **about)
        return call

    async def _waited(self, call: Call, line: WaitingCaller) -> JsonObject:
        """What the caller is told who stays on the line."""
        settled = await self._courier.wait(line, call)
        if settled is None or settled.route is not OutcomeRoute.WAITED:
            return {"status": "pending", **ids(call)}
        if settled.status is CallStatus.TIMEOUT:
            reason = f"no answer in {call.timeout_ms} ms"
            return {"status": settled.status.value, "error": reason, **ids(settled)}
        outcome = outcome_of(await self._stored(settled))
        return {"status": settled.status.value, **details(outcome), **ids(settled)}

    def note_told(self, result: JsonObject) -> None:
        """A result of one of the tools was written out, with the outcomes that it tells."""
        results = [result, *result.get("results", ())]
        told = [one for one in results if one.get("status") not in ("pending", "working")]
        self._courier.note_told(CallId(str(one.get("correlationId"))) for one in told)

    # ---------------------------------------------------------------- agent_call_batch

    async def agent_call_batch(self, request: Json, caller: Caller) -> JsonObject:
        """Make many calls and wait for all."""
        try:
            batch = read_batch(request)
        except BadCall as error:
            return self._invalid(caller, str(error))
        places = asyncio.Semaphore(batch.at_once)

        async def make(number: int, given: Json, line: WaitingCaller) -> JsonObject:
            async with places:
                result = await self._call_in_batch(given, caller, line)
            shown = ("status", "output", "confidence", "error", "correlationId", "taskId")
            return {"index": number, **{key: result[key] for key in shown if key in result}}

        with self._courier.line(takes_timeouts=True) as line:
            async with asyncio.TaskGroup() as group:
                made = [group.create_task(make(*one, line)) for one in enumerate(batch.calls)]
            return summed_up([one.result() for one in made])

    async def _call_in_batch(self, given: Json, caller: Caller, line: WaitingCaller) -> JsonObject:
        try:
            wanted = read_call(given)
        except BadCall as error:
            return self._invalid(caller, str(error), given)
        return await self._call(caller, msgspec.structs.replace(wanted, wait=True), line)

    # ---------------------------------------------------------------- agent_poll

    async def agent_poll(self, request: Json, caller: Caller) -> JsonObject:
        """What became of a call of this caller."""
        fields = Fields(request)
        named, task = fields.raw("correlationId"), fields.raw("taskId")
        call = None
        if isinstance(named, str):
            call = self._book.find(CallId(named.strip()))
        elif isinstance(task, str):
            call = self._book.of_task(TaskId(task.strip()))
        else:
            return self._invalid(caller, "give the correlationId or the taskId of a call, as text")
        if call is None or not (caller.is_operator or call.caller.is_same(caller)):
            return {"status": "error", "error": "there is no such call, or it is over for long"}
        stored = await self._stored(call)
        is_ended = self._is_ended(call, stored)
        if call.caller.is_same(caller) and (stored is not None or is_ended):
            with suppress(GatewayError):  # it is told all the same, and comes as a message, too
                call = await self._courier.take(call, Work(stored))
        result = {**polled(call, outcome_of(stored) if is_ended else None), **ids(call)}
        return {**result, "times": await self._times(call, stored)}

    # ---------------------------------------------------------------- debate_call

    async def debate_call(self, request: Json, caller: Caller) -> JsonObject:
        """Let agents debate; the result, or that it is on its way."""
        routing = self._rules.routing
        try:
            wanted = read_debate(request, default_ms=routing.default_ms)
        except BadCall as error:
            return self._invalid(caller, str(error))
        answer_ms = min(wanted.timeout_ms, routing.max_ms)
        debate = msgspec.structs.replace(wanted, timeout_ms=answer_ms)
        limit = _limit(wanted.timeout_ms, answer_ms)
        past = self._lineage.past(caller)
        for one in debate.participants:
            refusal = self._placing.refuse(caller, past, one.agent, one.skill, None)
            if refusal is not None:
                return self._refused(caller, one.agent, one.skill, refusal)
        placed = await self._place(self._debate_order(caller, past, debate))
        if not isinstance(placed, Call):
            return placed
        if not debate.wait:
            return {"status": self._on_its_way(placed), **ids(placed), **limit}
        with self._courier.line() as line:
            waited = await self._waited(placed, line)
        output: Json = waited.get("output")
        if not isinstance(output, dict):
            return {**waited, **limit}
        return {**cast("JsonObject", output), **ids(placed), **limit}

    def _debate_order(self, caller: Caller, past: Past, debate: DebateRequest) -> Order:
        call_id = CallId(self._engine.new_id())
        return Order(
            id=call_id,
            caller=caller,
            past=past,
            callee=DEBATE_AGENT,
            skill=DEBATE,
            mode="execute",
            text=encode_json(debate).decode(),
            timeout_ms=longest_ms(debate),
            session_key=SessionKey(f"agent:{caller.agent_id}:debate:{call_id}"),
            return_to=session_of(caller),
            runs_as=DEBATE_AGENT,
            is_reached=self._courier.can_reach(caller),
            kind=DEBATE,  # so that it takes no place from those whom it asks
        )

    async def ask(self, debate_id: CallId, step: Step) -> StepResult:
        """Have one step of a debate answered; a step that was asked before is not asked again.

        One for which there is no room now has failed. Raises: LookupError (there is no such
        debate), GatewayError (it cannot be asked now).
        """
        debate = self._book.find(debate_id)
        if debate is None:
            raise LookupError(f"there is no debate {debate_id}")
        call_id = CallId(str(uuid5(UUID(debate_id), step.name)))
        if self._book.find(call_id) is None:
            past = Past(debate.chain, debate.lineage)
            refusal = self._placing.refuse(debate.caller, past, step.agent, step.skill, step.input)
            if refusal is not None:
                self._refused(debate.caller, step.agent, step.skill, refusal)
                return StepResult("error", error=refusal.reason)
            asked = CallRequest(step.agent, step.skill, step.input, step.mode, step.timeout_ms)
            part = Part(call_id, debate)
            try:
                await self._accept(self._placing.order(debate.caller, past, asked, part=part))
            except Overloaded as error:
                return StepResult("error", error=error.message)
        settled = await self._book.wait(call_id)
        if settled is None:
            return StepResult("error", error="the answer was forgotten")
        return as_answer(settled, outcome_of(await self._stored(settled)))

    # ---------------------------------------------------------------- for people

    def list_calls(self, *, limit: int) -> list[Call]:
        """The newest calls, newest first; those of debates are shown with the debate."""
        calls = [call for call in self._book if call.parent is None]
        return calls[::-1][:limit]

    def find(self, call_id: CallId) -> Call | None:
        """A call."""
        return self._book.find(call_id)

    async def describe(self, call: Call) -> JsonObject:
        """Everything that may be seen of a call."""
        stored = await self._stored(call)
        is_ended = self._is_ended(call, stored)
        shown: JsonObject = {
            **ids(call),
            "caller": call.caller.agent_id,
            "agent": call.callee_name,
            "skill": call.skill,
            "mode": call.mode,
            "status": call.status.value,
            "route": call.route.value,
            "timeoutMs": call.timeout_ms,
            "chain": list(call.chain),
            "times": await self._times(call, stored),
            "reason": call.reason,
            "delivery": await self._trouble(call),
            **(details(outcome_of(stored)) if is_ended else {}),
        }
        parts = [await self.describe(one) for one in self._book if one.parent == call.id]
        if parts:
            shown["parts"] = parts
        return {key: value for key, value in shown.items() if value is not None}

    # ---------------------------------------------------------------- the small things

    async def _stored(self, call: Call) -> StoredTask | None:
        return await self._engine.store.tasks.read_task(None, call.task_id)

    async def _trouble(self, call: Call) -> JsonObject | None:
        """Why an outcome has not been brought, when it was tried."""
        if not call.is_undelivered:
            return None
        found = delivery_id(CALL_KIND, call.task_id, call.id)
        delivery = await self._engine.store.deliveries.read_delivery(found)
        return None if delivery is None or not delivery.attempts else in_trouble(delivery)

    def _is_ended(self, call: Call, stored: StoredTask | None) -> bool:
        """True when the callee's task is over or gone, and not only on its way into the store."""
        if stored is None:
            return call.task_id not in self._engine.active_tasks
        return is_terminal(stored.head.state)

    async def _times(self, call: Call, stored: StoredTask | None) -> JsonObject:
        begun = await self._engine.store.tasks.read_events(call.task_id, after=0, limit=_BEGINNING)
        return times(call, stored, begun)

    def _invalid(self, caller: Caller, reason: str, request: Json = None) -> JsonObject:
        target, skill = readable_names(request)
        self._audit("call-invalid", caller, target=target, skill=skill)
        return {"status": "error", "error": reason}

    def _refused(self, caller: Caller, callee: AgentId, skill: str, refusal: Refusal) -> JsonObject:
        reason = refusal.noted or refusal.reason
        self._audit("call-refused", caller, target=callee, skill=skill, reason=reason)
        return {"status": refusal.status, "error": refusal.reason}


def _limit(wanted_ms: int, given_ms: int) -> JsonObject:
    """What a caller is told whose time was cut."""
    return {"timeoutMs": given_ms} if wanted_ms > given_ms else {}
