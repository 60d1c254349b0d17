"""Accepts calls: builds the record and stores it together with the callee's task."""

import json
from collections.abc import Callable

import msgspec

from openclaw_a2a.calls.identifiers import TARGET_PREFIX
from openclaw_a2a.calls.loop_guard import CallOrigin
from openclaw_a2a.calls.outcome_delivery import SOURCE_TOOL, OutcomeDelivery
from openclaw_a2a.calls.policy import AgentDirectory, RoutingRules
from openclaw_a2a.calls.repository import CallRepository
from openclaw_a2a.calls.request import CallRequest
from openclaw_a2a.engine.engine import AccountRules, Engine
from openclaw_a2a.engine.tasks.submit import InternalOrigin, SubmitRequest, submit, wait_created
from openclaw_a2a.model.call import CALL_KIND, Call, Caller, CallId, OutcomeRoute
from openclaw_a2a.model.delivery import Delivery, delivery_id
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
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.session_keys import main_session_key, safe_label
from openclaw_a2a.model.skill import BUILT_IN, PING
from openclaw_a2a.model.turn import Provenance, Scope
from openclaw_a2a.ports import Record

BUILT_IN_AGENT = AgentId("gateway:skills")
"""Runs the built-in skills in place of the callee."""

DEBATE_AGENT = AgentId("gateway:debate")
DEBATE = "debate"

ACCOUNT = AccountId("gateway:calls")
"""The account of the callees' tasks; no account of the settings can have this id."""

_PING_TIMEOUT_MS = 5_000
_NO_TASK = TaskId("")


class DebatePart(msgspec.Struct, frozen=True):
    """A step of a debate: its call has the same id whenever the debate runs again."""

    id: CallId
    debate: Call


class NewCall(msgspec.Struct, frozen=True):
    """A call that passed all checks. Its task is known when it is stored."""

    call: Call
    text: str
    """What the callee is asked."""
    run_agent: AgentId
    """The agent that runs the callee's task."""


class CallSubmission:
    """Builds and stores calls."""

    def __init__(
        self,
        engine: Engine,
        calls: CallRepository,
        delivery: OutcomeDelivery,
        *,
        routing: RoutingRules,
        directory: AgentDirectory,
    ) -> None:
        self._engine = engine
        self._calls = calls
        self._delivery = delivery
        self._routing = routing
        self._directory = directory

    def wanted_ms(self, request: CallRequest) -> int:
        """The timeout that a request asks for; 0: none, and nothing is delivered."""
        if request.timeout_ms is not None:
            return request.timeout_ms
        if request.skill == PING:
            return _PING_TIMEOUT_MS
        skill = self._directory.find_skill(request.agent, request.skill)
        declared_s = None if skill is None else skill.timeout_seconds
        return int((declared_s or 0) * 1000) or self._routing.default_ms

    def build_call(
        self,
        caller: Caller,
        origin: CallOrigin,
        request: CallRequest,
        *,
        host: str | None = None,
        part: DebatePart | None = None,
    ) -> NewCall:
        """The call that a request asks for, on its own or as a step of a debate."""
        call_id = CallId(self._engine.new_id()) if part is None else part.id
        timeout_ms = min(self.wanted_ms(request), self._routing.max_ms)
        return_to = return_session(caller) if part is None else part.debate.session_key
        # Session keys name people and channels, which remote agents must not learn.
        is_remote = request.agent.startswith(TARGET_PREFIX)
        shown_to = SessionKey(f"agent:{caller.agent_id}:remote") if is_remote else return_to
        call = self._new_record(
            call_id,
            caller,
            origin,
            callee=request.agent,
            skill=request.skill,
            session_key=_callee_session(request, call_id),
            timeout_ms=timeout_ms,
            host=host,
        )
        if part is not None:
            parent, route = part.debate.id, OutcomeRoute.NONE
            call = msgspec.structs.replace(call, parent=parent, route=route)
        return NewCall(
            msgspec.structs.replace(call, mode=request.mode, return_to=return_to),
            invocation(request, call_id, return_to=shown_to, timeout_ms=timeout_ms),
            BUILT_IN_AGENT if request.skill in BUILT_IN else request.agent,
        )

    def build_debate(
        self, caller: Caller, origin: CallOrigin, *, text: str, timeout_ms: int, host: str | None
    ) -> NewCall:
        """The call of the gateway's debate agent, which calls the participants."""
        call_id = CallId(self._engine.new_id())
        call = self._new_record(
            call_id,
            caller,
            origin,
            callee=DEBATE_AGENT,
            skill=DEBATE,
            session_key=SessionKey(f"agent:{caller.agent_id}:debate:{call_id}"),
            timeout_ms=timeout_ms,
            host=host,
        )
        return NewCall(call, text, DEBATE_AGENT)

    def _new_record(
        self,
        call_id: CallId,
        caller: Caller,
        origin: CallOrigin,
        *,
        callee: AgentId,
        skill: str,
        session_key: SessionKey,
        timeout_ms: int,
        host: str | None,
    ) -> Call:
        route = OutcomeRoute.NONE
        if timeout_ms:
            can_reach = self._delivery.can_reach(caller)
            route = OutcomeRoute.SESSION if can_reach else OutcomeRoute.INBOX
        return Call(
            id=call_id,
            task_id=_NO_TASK,
            caller=caller,
            callee=callee,
            skill=skill,
            mode="execute",
            session_key=session_key,
            return_to=return_session(caller),
            timeout_ms=timeout_ms,
            accepted_at=self._engine.clock.now(),
            route=route,
            chain=origin.chain,
            lineage=origin.lineage,
            host=host,
        )

    async def submit(self, new: NewCall) -> Call:
        """Store the call, the callee's task and the delivery in one transaction, and start the run.

        Raises: Draining, Overloaded, StoreUnavailable.
        """
        stored: list[Call] = []

        def make_record(task_id: TaskId) -> Record:
            now = self._engine.clock.now()
            call = msgspec.structs.replace(new.call, task_id=task_id, accepted_at=now)
            stored.append(call)
            # Before it is stored: the callee may answer as soon as the transaction commits.
            self._calls.add(call)
            return self._calls.to_record(call)

        try:
            run = await submit(
                self._engine,
                self._submit_request(new, make_record),
                AccountRules(ACCOUNT, new.run_agent),
            )
            await wait_created(self._engine, run)
        except GatewayError:
            for call in stored:
                self._calls.remove(call)
            raise
        if not stored:
            raise StoreUnavailable(f"call {new.call.id} was made before, and is purged since")
        return stored[0]

    def _submit_request(
        self, new: NewCall, make_record: Callable[[TaskId], Record]
    ) -> SubmitRequest:
        call = new.call

        def make_delivery(task_id: TaskId, cursor: int) -> Delivery:
            now = self._engine.clock.now()
            name = delivery_id(CALL_KIND, task_id, call.id)
            return Delivery(name, CALL_KIND, task_id, call.id.encode(), cursor, now, now, now)

        provenance = Provenance(
            tool=SOURCE_TOOL,
            session_key=call.return_to,
            skill=call.skill,
            mode=call.mode,
            correlation_id=call.id,
            chain=call.chain,
            may_announce=self._routing.dual_delivery,
        )
        # Debates have a peer of their own: a debate waits for calls of the same caller, and must
        # not take the places in which these run.
        kind = DEBATE if call.callee == DEBATE_AGENT else "call"
        return SubmitRequest(
            scope=Scope(PeerName(f"{kind}:{call.caller.agent_id}"), ACCOUNT),
            message=Message(
                MessageId(call.id),
                Role.USER,
                (Part(text=new.text),),
                context_id=ContextId(call.id),
            ),
            is_blocking=False,
            make_delivery=make_delivery,
            internal_origin=InternalOrigin(call.session_key, provenance, make_record),
        )


def invocation(
    request: CallRequest, call_id: CallId, *, return_to: SessionKey, timeout_ms: int
) -> str:
    """The text that the callee gets, as JSON."""
    fields: JsonObject = {
        "kind": "skill_invocation",
        "skill": request.skill,
        "mode": request.mode,
        "input": request.input,
        "correlationId": call_id,
        "returnTo": return_to,
        "timeout": timeout_ms,
    }
    if request.skill in BUILT_IN:  # the agent in whose place it is answered
        fields["agent"] = request.agent
    return json.dumps(fields, ensure_ascii=False)


def return_session(caller: Caller) -> SessionKey:
    """The session that the callee is told as the receiver of its answer."""
    return caller.session_key or SessionKey(f"agent:{caller.agent_id}:inbox")


def _callee_session(request: CallRequest, call_id: CallId) -> SessionKey:
    if request.in_main_session:
        return main_session_key(request.agent)
    is_remote = request.agent.startswith(TARGET_PREFIX)
    label = safe_label(request.agent) if is_remote else request.agent
    return SessionKey(f"agent:{label}:call:{call_id}")
