"""The tools `agent_call`, `agent_call_batch`, `debate_call` and `agent_poll`.

Every request gets one result object with a `status`; a tool raises nothing. No deadline is watched
here: `outcome_delivery` settles a call, and `outcome.decide_status` says how.
"""

import asyncio
from contextlib import suppress
from typing import Unpack

import msgspec

from openclaw_a2a.calls.debate import DebateStep, max_duration_ms, parse_debate, step_call_id
from openclaw_a2a.calls.loop_guard import CallHistory, CallOrigin
from openclaw_a2a.calls.outcome import (
    CalleeTask,
    Outcome,
    batch_result,
    call_ids,
    call_timestamps,
    first_text,
    outcome_fields,
    poll_result,
    postponed_result,
    read_outcome,
)
from openclaw_a2a.calls.outcome_delivery import OutcomeDelivery
from openclaw_a2a.calls.outcome_state import WaitingCaller
from openclaw_a2a.calls.policy import CALLS_OFF, AgentDirectory, CallChecker, CallRules, Refusal
from openclaw_a2a.calls.repository import CallRepository
from openclaw_a2a.calls.request import (
    CallRequest,
    InvalidCallRequest,
    parse_batch,
    parse_call,
    readable_names,
)
from openclaw_a2a.calls.session_hosts import SessionHosts
from openclaw_a2a.calls.submission import DEBATE_AGENT, CallSubmission, NewCall
from openclaw_a2a.engine.audit_file import FAILED, REFUSED
from openclaw_a2a.engine.audit_log import About, acting
from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.model.call import CALL_KIND, Call, Caller, CallId, CallStatus, OutcomeRoute
from openclaw_a2a.model.delivery import DeliveryState, delivery_id
from openclaw_a2a.model.errors import Draining, GatewayError, Overloaded
from openclaw_a2a.model.ids import AgentId, Json, JsonObject, TaskId
from openclaw_a2a.model.message import format_timestamp
from openclaw_a2a.model.records import StoredTask, encode_json
from openclaw_a2a.model.task import is_terminal
from openclaw_a2a.model.validation import as_object, is_object

_FIRST_EVENTS = 8
"""How many events of a task are read to find its first `working` status."""
_IN_BATCH = ("status", "output", "confidence", "error", "message", "correlationId", "taskId")
"""What the result of a batch has of the result of each call."""


class CallService:
    """The four tools, and what the operator sees of calls."""

    def __init__(
        self,
        engine: Engine,
        calls: CallRepository,
        delivery: OutcomeDelivery,
        *,
        rules: CallRules,
        directory: AgentDirectory,
        hosts: SessionHosts,
        history: CallHistory,
    ) -> None:
        self._engine = engine
        self._calls = calls
        self._delivery = delivery
        self._rules = rules
        self._hosts = hosts
        self._history = history
        self._audit = engine.audit
        self._checker = CallChecker(rules, directory)
        self._submission = CallSubmission(
            engine, calls, hosts, routing=rules.routing, directory=directory
        )

    @property
    def is_enabled(self) -> bool:
        """False while the settings switch calls off; then every tool answers `forbidden`."""
        return self._rules.policy.enabled

    # ---------------------------------------------------------------- agent_call

    async def agent_call(self, request: Json, caller: Caller) -> JsonObject:
        """Call another agent: its answer, or that the outcome will be delivered."""
        with self._delivery.open_waiter() as waiter:
            return await self._call(request, caller, waiter)

    async def _call(
        self, given: Json, caller: Caller, waiter: WaitingCaller, *, must_wait: bool = False
    ) -> JsonObject:
        try:
            request = parse_call(given)
        except InvalidCallRequest as error:
            return self._invalid(caller, str(error), given)
        origin = await self._history.origin_of(caller)
        refusal = self._checker.check(caller, origin, request.agent, request.skill, request.input)
        if refusal is not None:
            return self._refused(caller, request.agent, request.skill, refusal)
        host = await self._hosts.find_caller_host(caller)
        new = await self._submission.build_call(caller, origin, request, host=host)
        limit = _applied_limit(new.wanted_ms, new.call.timeout_ms)
        try:
            if (request.wait or must_wait) and new.call.timeout_ms:
                return {**await self._accept_and_wait(new, waiter), **limit}
            call = await self._accept(new)
        except GatewayError as error:
            return {"status": "error", "error": error.message}
        return {"status": self._accepted_status(call), **call_ids(call), **limit}

    def _accepted_status(self, call: Call) -> str:
        """`pending`: the outcome will be delivered. `working`: it has to be polled."""
        is_delivered = call.timeout_ms and self._rules.routing.is_enabled
        return "pending" if is_delivered else "working"

    async def _accept(self, new: NewCall) -> Call:
        """Store and start a call. Raises: Draining, Overloaded, StoreUnavailable."""
        caller, about = new.call.caller, {"target": new.call.callee, "skill": new.call.skill}
        try:
            self._check_pending(new.call)
            call = await self._submission.submit(new)
        except GatewayError as error:
            self._record("call-not-accepted", caller, **about, outcome=FAILED, reason=error.message)
            raise
        self._record("call", caller, **about, task=call.task_id)
        return call

    def _check_pending(self, call: Call) -> None:
        """Refuse one more call than may be without an outcome. Raises: Overloaded."""
        rules, agent_id = self._rules, call.caller.agent_id
        if call.parent is not None:  # a step: its debate was accepted
            return
        if self._calls.pending_of(agent_id) >= rules.pending_per_agent:
            raise Overloaded(
                f"{agent_id} has {rules.pending_per_agent} calls without an outcome; wait for one",
                setting="limits.perAgentCalls",
            )
        if self._calls.pending_count >= rules.pending:
            raise Overloaded(
                f"{rules.pending} calls have no outcome yet; try again shortly",
                setting="limits.pendingCalls",
            )

    async def _accept_and_wait(self, new: NewCall, waiter: WaitingCaller) -> JsonObject:
        """Raises: Draining, Overloaded, StoreUnavailable."""
        waiters = self._delivery.waiters
        with waiters.expect(waiter, new.call.id):
            call = await self._accept(new)
            with self._history.release_run_slot(call.caller):
                found = await waiters.wait(call)
        if isinstance(found, str):
            return postponed_result(call, found)
        settled, task = found
        if settled.route is not OutcomeRoute.WAITED:
            return {"status": "pending", **call_ids(call)}
        if settled.status is CallStatus.TIMEOUT:
            reported: JsonObject = {"error": f"no answer in {call.timeout_ms} ms"}
        else:
            reported = outcome_fields(task.outcome)
        return {"status": settled.status.value, **reported, **call_ids(settled)}

    def mark_written(self, result: JsonObject) -> None:
        """A tool's result was written to the caller's connection, with the outcomes in it."""
        self._delivery.mark_written(_settled_ids(result))

    def mark_lost(self, result: JsonObject) -> None:
        """The caller disconnected before a tool's result was written: its outcomes are sent."""
        self._delivery.mark_lost(_settled_ids(result))

    # ---------------------------------------------------------------- agent_call_batch

    async def agent_call_batch(self, request: Json, caller: Caller) -> JsonObject:
        """Make many calls and wait for all."""
        try:
            batch = parse_batch(request)
        except InvalidCallRequest as error:
            return self._invalid(caller, str(error))
        if not self.is_enabled:  # said once, not for each of the calls
            return self._refused(caller, AgentId(""), "", CALLS_OFF)
        slots = asyncio.Semaphore(batch.concurrency)

        async def call(index: int, given: Json, waiter: WaitingCaller) -> JsonObject:
            async with slots:
                result = await self._call(given, caller, waiter, must_wait=True)
            return {"index": index, **{key: result[key] for key in _IN_BATCH if key in result}}

        with self._delivery.open_waiter(accepts_timeouts=True) as waiter:
            async with asyncio.TaskGroup() as group:
                waiting = [group.create_task(call(*one, waiter)) for one in enumerate(batch.calls)]
            return batch_result([one.result() for one in waiting])

    # ---------------------------------------------------------------- agent_poll

    async def agent_poll(self, request: Json, caller: Caller) -> JsonObject:
        """The state of a call of this caller, with the outcome when there is one."""
        if not self.is_enabled:
            return self._refused(caller, AgentId(""), "", CALLS_OFF)
        members = as_object(request)
        call_id: Json = members.get("correlationId")
        task_id: Json = members.get("taskId")
        if isinstance(call_id, str):
            call = await self._calls.fetch_owned(caller, CallId(call_id.strip()))
        elif isinstance(task_id, str):
            call = await self._calls.fetch_by_task(caller, TaskId(task_id.strip()))
        else:
            reason = "give the correlationId or the taskId of a call, as text"
            return self._invalid(caller, reason)
        if call is None:
            return {"status": "error", "error": "there is no such call, or it was purged"}
        stored = await self._read_task(call)
        task, is_ended = CalleeTask.from_stored(stored), self._is_ended(call, stored)
        if call.caller.is_same(caller) and (stored is not None or is_ended):
            with suppress(GatewayError):  # the poll is answered; the message may follow as well
                call = await self._delivery.claim(call, task)
        result = {**poll_result(call, task.outcome if is_ended else None), **call_ids(call)}
        return {**result, "times": await self._timestamps(call, stored)}

    # ---------------------------------------------------------------- debate_call

    async def debate_call(self, request: Json, caller: Caller) -> JsonObject:
        """Run a debate between agents: its result, or that it will be delivered."""
        with self._delivery.open_waiter() as waiter:
            return await self._debate(request, caller, waiter)

    async def _debate(self, request: Json, caller: Caller, waiter: WaitingCaller) -> JsonObject:
        routing = self._rules.routing
        try:
            wanted = parse_debate(request, default_ms=routing.default_ms)
        except InvalidCallRequest as error:
            return self._invalid(caller, str(error))
        answer_ms = min(wanted.timeout_ms, routing.max_ms)
        debate = msgspec.structs.replace(wanted, timeout_ms=answer_ms)
        origin = await self._history.origin_of(caller)
        for one in debate.participants:
            refusal = self._checker.check(caller, origin, one.agent, one.skill, None)
            if refusal is not None:
                return self._refused(caller, one.agent, one.skill, refusal)
        host = await self._hosts.find_caller_host(caller)
        text, timeout_ms = encode_json(debate).decode(), max_duration_ms(debate)
        new = await self._submission.build_debate(
            caller, origin, text=text, timeout_ms=timeout_ms, host=host
        )
        limit = _applied_limit(wanted.timeout_ms, answer_ms)
        try:
            if not debate.wait:
                call = await self._accept(new)
                return {"status": self._accepted_status(call), **call_ids(call), **limit}
            result = await self._accept_and_wait(new, waiter)
        except GatewayError as error:
            return {"status": "error", "error": error.message}
        output: Json = result.get("output")
        ids = {name: result[name] for name in ("taskId", "correlationId")}
        shown = {**output, **ids} if is_object(output) else result
        return {**shown, **limit}

    async def ask_step(self, debate_id: CallId, step: DebateStep) -> Outcome:
        """Call the participant of a debate's step, unless that was done before a restart.

        When the gateway is overloaded the step fails with an error outcome. Raises: LookupError
        (there is no such debate), GatewayError (the step was not called: the gateway stops, or its
        store is unavailable).
        """
        debate = await self._calls.fetch(debate_id)
        if debate is None:
            raise LookupError(f"there is no debate {debate_id}")
        call_id = step_call_id(debate_id, step.name)
        if await self._calls.fetch(call_id) is None:
            caller, origin = debate.caller, CallOrigin(debate.chain, debate.lineage)
            refusal = self._checker.check(caller, origin, step.agent, step.skill, step.input)
            if refusal is not None:
                self._refused(caller, step.agent, step.skill, refusal)
                return Outcome(CallStatus.ERROR, error=refusal.reason)
            request = CallRequest(step.agent, step.skill, step.input, step.mode, step.timeout_ms)
            new = await self._submission.build_call(
                caller, origin, request, debate=debate, call_id=call_id
            )
            try:
                await self._accept_step(new)
            except Overloaded as error:
                return Outcome(CallStatus.ERROR, error=error.message)
        settled = await self._calls.wait_settled(call_id)
        if settled is None:
            return Outcome(CallStatus.ERROR, error="the answer was purged")
        if settled.status is CallStatus.TIMEOUT:
            return Outcome(CallStatus.TIMEOUT, error=f"no answer within {settled.timeout_ms} ms")
        return read_outcome(await self._read_task(settled))

    async def _accept_step(self, new: NewCall) -> None:
        """Raises: Overloaded, StoreUnavailable."""
        while True:
            try:
                await self._accept(new)
            except Draining as error:
                # No outcome: when the gateway stops, the debate is interrupted while it waits here,
                # and goes on after the restart.
                await self._engine.clock.sleep(error.retry_after_s)
            else:
                return

    # ---------------------------------------------------------------- for the operator

    async def list_calls(
        self, *, limit: int, with_steps: bool = False, with_purged: bool = False
    ) -> list[Call]:
        """The newest calls, newest first; `with_steps`: also those that debates made.

        `with_purged`: also the last ones whose records this process has deleted.
        """
        found = await self._calls.list_all()
        if with_purged and self._calls.purged:
            # By id: another process may have made a call with the same id again.
            known = {call.id: call for call in [*self._calls.purged, *found]}
            found = sorted(known.values(), key=lambda call: call.accepted_at)
        calls = [call for call in found if with_steps or call.parent is None]
        return calls[::-1][:limit]

    async def find(self, call_id: CallId, *, with_purged: bool = False) -> Call | None:
        """A call; `with_purged`: also one of the last whose records this process has deleted."""
        call = await self._calls.fetch(call_id)
        if call is None and with_purged:
            call = next((one for one in self._calls.purged if one.id == call_id), None)
        return call

    async def read_exchange(self, call: Call) -> tuple[str, Outcome | None]:
        """The message to the callee, and the outcome; None: there is none yet."""
        stored = await self._read_task(call)
        said = "" if stored is None else first_text(stored)
        return said, read_outcome(stored) if self._is_ended(call, stored) else None

    async def describe(self, call: Call) -> JsonObject:
        """Everything that may be seen of a call."""
        stored = await self._read_task(call)
        is_ended = self._is_ended(call, stored)
        described: JsonObject = {
            **call_ids(call),
            "caller": call.caller.agent_id,
            "agent": call.callee_name,
            "skill": call.skill,
            "mode": call.mode,
            "status": call.status.value,
            "route": call.route.value,
            "timeoutMs": call.timeout_ms,
            "chain": list(call.chain),
            "times": await self._timestamps(call, stored),
            "reason": call.reason,
            "delivery": await self._delivery_problem(call),
            **(outcome_fields(read_outcome(stored)) if is_ended else {}),
        }
        # Only debates have parts; they are asked as an agent of the gateway.
        calls = await self._calls.list_all() if call.callee == DEBATE_AGENT else ()
        parts = [await self.describe(one) for one in calls if one.parent == call.id]
        if parts:
            described["parts"] = parts
        return {key: value for key, value in described.items() if value is not None}

    # ---------------------------------------------------------------- helpers

    async def _read_task(self, call: Call) -> StoredTask | None:
        return await self._engine.store.tasks.read_task(None, call.task_id)

    async def _delivery_problem(self, call: Call) -> JsonObject | None:
        """Why an outcome is not delivered after several attempts, and when the next one is."""
        if not call.is_undelivered:
            return None
        found = delivery_id(CALL_KIND, call.task_id, call.id)
        delivery = await self._engine.store.deliveries.read_delivery(None, found)
        if delivery is None or not delivery.attempts:
            return None
        is_waiting = delivery.state is DeliveryState.WAITING
        next_at = format_timestamp(delivery.next_at) if is_waiting else None
        return {"attempts": delivery.attempts, "reason": delivery.reason, "nextAt": next_at}

    def _is_ended(self, call: Call, stored: StoredTask | None) -> bool:
        """True when the callee's task has ended or is purged, not when it is about to be stored."""
        if stored is None:
            return call.task_id not in self._engine.active_tasks
        return is_terminal(stored.head.state)

    async def _timestamps(self, call: Call, stored: StoredTask | None) -> JsonObject:
        tasks = self._engine.store.tasks
        first = await tasks.read_events(None, call.task_id, after=0, limit=_FIRST_EVENTS)
        return call_timestamps(call, stored, first)

    def _invalid(self, caller: Caller, reason: str, request: Json = None) -> JsonObject:
        target, skill = readable_names(request)
        if not self.is_enabled:  # to correct the request would be of no use
            return self._refused(caller, AgentId(target), skill, CALLS_OFF)
        self._record("call-invalid", caller, target=target, skill=skill, outcome=REFUSED)
        return {"status": "error", "error": reason}

    def _refused(self, caller: Caller, callee: AgentId, skill: str, refusal: Refusal) -> JsonObject:
        reason = refusal.audit_reason or refusal.reason
        about = {"target": callee, "skill": skill, "reason": reason}
        self._record("call-refused", caller, **about, outcome=REFUSED)
        return {"status": refusal.status, "error": refusal.reason}

    def _record(self, event: str, caller: Caller, **about: Unpack[About]) -> None:
        about["requester"], about["address"] = caller.agent_id, acting.get()[1]
        self._audit.record(event, caller.name, **about)


def _settled_ids(result: JsonObject) -> list[CallId]:
    """The calls whose outcomes are in a tool's result."""
    results = [result, *result.get("results", ())]
    final = [one for one in results if one.get("status") not in ("pending", "working")]
    return [CallId(str(one.get("correlationId"))) for one in final]


def _applied_limit(wanted_ms: int, applied_ms: int) -> JsonObject:
    """The field that reports a timeout that was reduced to the maximum; empty if it was not."""
    return {"timeoutMs": applied_ms} if wanted_ms > applied_ms else {}
