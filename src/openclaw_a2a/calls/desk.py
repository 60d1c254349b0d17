"""The tools of calls between agents: every request in, one result out, never an exception."""

import asyncio
from contextlib import suppress
from typing import Protocol, cast
from uuid import UUID, uuid5

import msgspec
import structlog

from openclaw_a2a.calls.book import CallBook
from openclaw_a2a.calls.courier import CallCourier
from openclaw_a2a.calls.debate import Answer, Step
from openclaw_a2a.calls.debate_request import DebateRequest, longest_ms, read_debate
from openclaw_a2a.calls.line import Line
from openclaw_a2a.calls.lineage import Lineage, Past
from openclaw_a2a.calls.names import BadCall
from openclaw_a2a.calls.outcome import Work, outcome_of
from openclaw_a2a.calls.placing import Order, Part, Placing, session_of
from openclaw_a2a.calls.policy import Refusal
from openclaw_a2a.calls.request import (
    CallRequest,
    Fields,
    read_batch,
    read_call,
    readable_names,
)
from openclaw_a2a.calls.telling import (
    as_answer,
    details,
    ids,
    in_trouble,
    polled,
    summed_up,
    times,
)
from openclaw_a2a.model.call import KIND, Call, Caller, CallId, CallStatus, Route
from openclaw_a2a.model.delivery import delivery_id
from openclaw_a2a.model.errors import GatewayError, Overloaded
from openclaw_a2a.model.ids import AgentId, Json, JsonObject, SessionKey, TaskId
from openclaw_a2a.model.states import is_terminal
from openclaw_a2a.model.stored import StoredTask, encode_record

log = structlog.get_logger(__name__)

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


class Calls:
    """The four tools, and what people may see of calls."""

    def __init__(
        self,
        book: CallBook,
        courier: CallCourier,
        *,
        placing: Placing,
        lineage: Lineage,
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

    async def _call(self, caller: Caller, wanted: CallRequest, line: Line) -> JsonObject:
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

    async def _waited(self, call: Call, line: Line) -> JsonObject:
        """What the caller is told who stays on the line."""
        settled = await self._courier.wait(line, call)
        if settled is None or settled.route is not Route.WAITED:
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

        async def make(number: int, given: Json, line: Line) -> JsonObject:
            async with places:
                result = await self._call_in_batch(given, caller, line)
            shown = ("status", "output", "confidence", "error", "correlationId", "taskId")
            return {"index": number, **{key: result[key] for key in shown if key in result}}

        with self._courier.line(takes_timeouts=True) as line:
            async with asyncio.TaskGroup() as group:
                made = [group.create_task(make(*one, line)) for one in enumerate(batch.calls)]
            return summed_up([one.result() for one in made])

    async def _call_in_batch(self, given: Json, caller: Caller, line: Line) -> JsonObject:
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
            text=encode_record(debate).decode(),
            timeout_ms=longest_ms(debate),
            session_key=SessionKey(f"agent:{caller.agent_id}:debate:{call_id}"),
            return_to=session_of(caller),
            runs_as=DEBATE_AGENT,
            is_reached=self._courier.can_reach(caller),
            kind=DEBATE,  # so that it takes no place from those whom it asks
        )

    async def ask(self, debate_id: CallId, step: Step) -> Answer:
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
                return Answer("error", error=refusal.reason)
            asked = CallRequest(step.agent, step.skill, step.input, step.mode, step.timeout_ms)
            part = Part(call_id, debate)
            try:
                await self._accept(self._placing.order(debate.caller, past, asked, part=part))
            except Overloaded as error:
                return Answer("error", error=error.message)
        settled = await self._book.wait(call_id)
        if settled is None:
            return Answer("error", error="the answer was forgotten")
        return as_answer(settled, outcome_of(await self._stored(settled)))

    # ---------------------------------------------------------------- for people

    def listed(self, *, limit: int) -> list[Call]:
        """The newest calls, newest first; those of debates are shown with the debate."""
        calls = [call for call in self._book if call.parent is None]
        return calls[::-1][:limit]

    def find(self, call_id: CallId) -> Call | None:
        """A call."""
        return self._book.find(call_id)

    async def shown(self, call: Call) -> JsonObject:
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
        parts = [await self.shown(one) for one in self._book if one.parent == call.id]
        if parts:
            shown["parts"] = parts
        return {key: value for key, value in shown.items() if value is not None}

    # ---------------------------------------------------------------- the small things

    async def _stored(self, call: Call) -> StoredTask | None:
        return await self._engine.store.read_task(None, call.task_id)

    async def _trouble(self, call: Call) -> JsonObject | None:
        """Why an outcome has not been brought, when it was tried."""
        if not call.is_undelivered:
            return None
        found = delivery_id(KIND, call.task_id, call.id)
        delivery = await self._engine.store.read_delivery(found)
        return None if delivery is None or not delivery.attempts else in_trouble(delivery)

    def _is_ended(self, call: Call, stored: StoredTask | None) -> bool:
        """True when the callee's task is over or gone, and not only on its way into the store."""
        if stored is None:
            return call.task_id not in self._engine.live
        return is_terminal(stored.head.state)

    async def _times(self, call: Call, stored: StoredTask | None) -> JsonObject:
        begun = await self._engine.store.read_events(call.task_id, after=0, limit=_BEGINNING)
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
