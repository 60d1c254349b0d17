"""Placing a call: whether it may be made, and its acceptance together with the callee's task."""

import json
from typing import Protocol

import msgspec

from openclaw_a2a.calls.book import CallBook
from openclaw_a2a.calls.courier import CallCourier
from openclaw_a2a.calls.lineage import GuardRules, Past, why_not_on
from openclaw_a2a.calls.names import TARGET
from openclaw_a2a.calls.policy import CallPolicy, Refusal, refuse
from openclaw_a2a.calls.request import CallRequest
from openclaw_a2a.calls.seeing import SOURCE_TOOL
from openclaw_a2a.calls.skills import PING_S, find_skill, input_problems
from openclaw_a2a.model.call import Call, Caller, CallId, Route
from openclaw_a2a.model.errors import GatewayError, StoreUnavailable
from openclaw_a2a.model.ids import (
    AccountId,
    AgentId,
    ContextId,
    JsonObject,
    MessageId,
    PeerName,
    SessionKey,
    TaskId,
)
from openclaw_a2a.model.message import Message, Role
from openclaw_a2a.model.message import Part as MessagePart
from openclaw_a2a.model.session import main_session_key, safe_label
from openclaw_a2a.model.skill import BUILT_IN, PING, Skill
from openclaw_a2a.model.turn import Provenance, Scope
from openclaw_a2a.ports import KeptRecord
from openclaw_a2a.runtime.engine import Engine
from openclaw_a2a.runtime.sent import first_of
from openclaw_a2a.runtime.submit import FromInside, Send, submit
from openclaw_a2a.runtime.turn import AccountRules

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
    def route(self) -> Route:
        """How its outcome reaches the caller."""
        if self.parent is not None or not self.timeout_ms:
            return Route.NONE
        return Route.SESSION if self.is_reached else Route.INBOX


class Placing:
    """Checks calls and puts them on their way."""

    def __init__(
        self,
        engine: Engine,
        book: CallBook,
        courier: CallCourier,
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

        def keep(task_id: TaskId) -> KeptRecord:
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
        send = Send(
            scope=Scope(order.peer, ACCOUNT),
            message=Message(
                MessageId(order.id),
                Role.USER,
                (MessagePart(text=order.text),),
                context_id=ContextId(order.id),
            ),
            is_blocking=False,
            follow=self._courier.follow(order.id),
            inside=FromInside(order.session_key, provenance, keep),
        )
        try:
            run = await submit(self.engine, send, AccountRules(ACCOUNT, order.runs_as))
            await first_of(self.engine, run)
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
