"""Accepts calls: builds the record and stores it together with the callee's task."""

import asyncio
import json
from contextlib import suppress

import msgspec

from openclaw_a2a.calls.loop_guard import CallOrigin
from openclaw_a2a.calls.outcome_delivery import SOURCE_TOOL
from openclaw_a2a.calls.policy import AgentDirectory, RoutingRules
from openclaw_a2a.calls.repository import CallRepository
from openclaw_a2a.calls.request import CallRequest
from openclaw_a2a.calls.session_hosts import SessionHosts
from openclaw_a2a.engine.engine import AccountRules, Engine
from openclaw_a2a.engine.tasks.active_task import DuplicateRun, TaskCreated
from openclaw_a2a.engine.tasks.results import wait_first_result
from openclaw_a2a.engine.tasks.run import ActiveRun
from openclaw_a2a.engine.tasks.submit import InternalOrigin, SubmitRequest, submit
from openclaw_a2a.model.call import CALL_KIND, Call, Caller, CallId, OutcomeRoute
from openclaw_a2a.model.delivery import Delivery, new_delivery
from openclaw_a2a.model.errors import GatewayError, StoreUnavailable
from openclaw_a2a.model.ids import (
    TARGET_PREFIX,
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
from openclaw_a2a.model.skill import BUILT_IN_SKILLS, PING
from openclaw_a2a.model.turn import Provenance, Scope
from openclaw_a2a.ports import MeasuredTask, Record

BUILT_IN_AGENT = AgentId("gateway:skills")
"""Runs the built-in skills in place of the callee."""

DEBATE_AGENT = AgentId("gateway:debate")
DEBATE = "debate"

_ACCOUNT = AccountId("gateway:calls")
"""The account of the callees' tasks; no account of the settings can have this id."""

_PING_TIMEOUT_MS = 5_000
_NO_TASK = TaskId("")
_encode = json.JSONEncoder(ensure_ascii=False).encode


class NewCall(msgspec.Struct, frozen=True):
    """A call that passed all checks. Its task is known when it is stored."""

    call: Call
    text: str
    """What the callee is asked."""
    wanted_ms: int
    """The timeout that was asked for, before it was limited; 0: none, and nothing is delivered."""


class CallSubmission(msgspec.Struct, frozen=True):
    """Builds and stores calls."""

    engine: Engine
    calls: CallRepository
    hosts: SessionHosts
    routing: RoutingRules
    directory: AgentDirectory

    async def build_call(
        self,
        caller: Caller,
        origin: CallOrigin,
        request: CallRequest,
        *,
        host: str | None = None,
        debate: Call | None = None,
        call_id: CallId | None = None,
    ) -> NewCall:
        """The call that a request asks for, on its own or as a step of a debate.

        A step's call gets the same `call_id` whenever its debate runs again.
        """
        call_id = call_id or CallId(self.engine.new_id())
        wanted_ms = self._wanted_ms(request)
        timeout_ms = min(wanted_ms, self.routing.max_ms)
        is_remote = request.agent.startswith(TARGET_PREFIX)
        label = safe_label(request.agent) if is_remote else request.agent
        own_session = SessionKey(f"agent:{label}:call:{call_id}")
        return_to = _return_session(caller) if debate is None else debate.session_key
        call = Call(
            id=call_id,
            task_id=_NO_TASK,
            caller=caller,
            callee=request.agent,
            skill=request.skill,
            mode=request.mode,
            session_key=main_session_key(request.agent) if request.in_main_session else own_session,
            return_to=return_to,
            timeout_ms=timeout_ms,
            accepted_at=self.engine.clock.now(),
            route=OutcomeRoute.NONE if debate else await self._route(caller, timeout_ms, host),
            chain=origin.chain,
            lineage=origin.lineage,
            parent=None if debate is None else debate.id,
            host=host,
        )
        invocation: JsonObject = {
            "kind": "skill_invocation",
            "skill": request.skill,
            "mode": request.mode,
            "input": request.input,
            "correlationId": call_id,
            # Session keys name people and channels, which remote agents must not learn.
            "returnTo": f"agent:{caller.agent_id}:remote" if is_remote else return_to,
            "timeout": timeout_ms,
        }
        if request.skill in BUILT_IN_SKILLS:  # the agent in whose place it is answered
            invocation["agent"] = request.agent
        return NewCall(call, _encode(invocation), wanted_ms)

    async def build_debate(
        self, caller: Caller, origin: CallOrigin, *, text: str, timeout_ms: int, host: str | None
    ) -> NewCall:
        """The call of the gateway's debate agent, which calls the participants."""
        call_id = CallId(self.engine.new_id())
        call = Call(
            id=call_id,
            task_id=_NO_TASK,
            caller=caller,
            callee=DEBATE_AGENT,
            skill=DEBATE,
            mode="execute",
            session_key=SessionKey(f"agent:{caller.agent_id}:debate:{call_id}"),
            return_to=_return_session(caller),
            timeout_ms=timeout_ms,
            accepted_at=self.engine.clock.now(),
            route=await self._route(caller, timeout_ms, host),
            chain=origin.chain,
            lineage=origin.lineage,
            host=host,
        )
        return NewCall(call, text, timeout_ms)

    def _wanted_ms(self, request: CallRequest) -> int:
        if request.timeout_ms is not None:
            return request.timeout_ms
        if request.skill == PING:
            return _PING_TIMEOUT_MS
        skill = self.directory.find_skill(request.agent, request.skill)
        declared_s = None if skill is None else skill.timeout_seconds
        return int((declared_s or 0) * 1000) or self.routing.default_ms

    async def _route(self, caller: Caller, timeout_ms: int, host: str | None) -> OutcomeRoute:
        if not timeout_ms:
            return OutcomeRoute.NONE
        hosts = await self.hosts.list_hosts(caller, host)
        return OutcomeRoute.SESSION if hosts else OutcomeRoute.INBOX

    async def submit(self, new: NewCall) -> Call:
        """Store the call, the callee's task and the delivery in one transaction, and start the run.

        Raises: Draining, Overloaded, StoreUnavailable.
        """
        call, stored = new.call, list[Call]()

        def make_record(task_id: TaskId) -> Record:
            accepted = msgspec.structs.replace(call, task_id=task_id)
            stored.append(accepted)
            # Before it is stored: the callee may answer as soon as the transaction commits.
            self.calls.add(accepted)
            return self.calls.to_record(accepted)

        def make_delivery(task_id: TaskId, cursor: int) -> Delivery:
            body, now = call.id.encode(), call.accepted_at
            return new_delivery(
                CALL_KIND, task_id, call.id, body, cursor=cursor, now=now, due_at=call.deadline
            )

        provenance = Provenance(
            tool=SOURCE_TOOL,
            session_key=call.return_to,
            skill=call.skill,
            mode=call.mode,
            correlation_id=call.id,
            chain=call.chain,
            may_announce=self.routing.dual_delivery,
        )
        message = Message(
            MessageId(call.id), Role.USER, (Part(text=new.text),), context_id=ContextId(call.id)
        )
        # Debates have a peer of their own: a debate waits for calls of the same caller, and must
        # not take the places in which these run.
        kind = DEBATE if call.callee == DEBATE_AGENT else "call"
        request = SubmitRequest(
            scope=Scope(PeerName(f"{kind}:{call.caller.agent_id}"), _ACCOUNT),
            message=message,
            is_blocking=False,
            make_delivery=make_delivery,
            is_part_of_run=call.parent is not None,
            internal_origin=InternalOrigin(call.session_key, provenance, make_record),
        )
        # One transaction, so a crash leaves either nothing, or a call whose task recovery runs
        # again and whose delivery the outbox finds.
        run_agent = BUILT_IN_AGENT if call.skill in BUILT_IN_SKILLS else call.callee
        try:
            run = await submit(self.engine, request, AccountRules(_ACCOUNT, run_agent))
        except GatewayError:
            self._remove(stored)
            raise
        try:
            return await self._wait_accepted(run, call.id, stored)
        except asyncio.CancelledError:
            # The caller has disconnected; the store may still refuse the call.
            job = self._remove_refused(run, call.id, stored)
            self.engine.supervisor.spawn("remove-refused-call", job)
            raise

    async def _remove_refused(
        self, run: ActiveRun | DuplicateRun, call_id: CallId, stored: list[Call]
    ) -> None:
        with suppress(GatewayError):
            await self._wait_accepted(run, call_id, stored)

    async def _wait_accepted(
        self, run: ActiveRun | DuplicateRun, call_id: CallId, stored: list[Call]
    ) -> Call:
        """The call once it is stored; removed from the cache if it is not."""
        try:
            first = await wait_first_result(self.engine, run)
        except GatewayError:
            self._remove(stored)
            raise
        if isinstance(first, MeasuredTask):
            task_id = first.head.id
        else:
            task_id = first.task.id if isinstance(first, TaskCreated) else None
        if stored and task_id == stored[0].task_id:
            return stored[0]
        # The step of a debate that another replica has asked: its call is the one that counts.
        self._remove(stored)
        known = await self.calls.fetch(call_id)
        if known is None:
            raise StoreUnavailable(f"call {call_id} was made before, and is purged since")
        return known

    def _remove(self, calls: list[Call]) -> None:
        for call in calls:
            self.calls.remove(call)


def _return_session(caller: Caller) -> SessionKey:
    """The session that the callee sees as the receiver of its answer."""
    return caller.session_key or SessionKey(f"agent:{caller.agent_id}:inbox")
