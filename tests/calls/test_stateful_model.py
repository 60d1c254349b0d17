"""Calls against a simple model, under failures of callers, callees, hosts, disks and processes."""

import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Coroutine, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)
from tests.calls.call_gateway import (
    Json,
    ScriptedAgent,
    SessionHost,
    main_session,
    tool_request,
)
from tests.calls.unreliable_store import DELIVERY_WRITES, UnreliableStore
from tests.conformance.asgi_client import ActiveRequest, AsgiClient
from tests.engine.harness import ManualClock, yield_to_others

from openclaw_a2a.app import build_app
from openclaw_a2a.auth.tokens import TokenKind, TokenStore
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import AgentId, TaskId
from openclaw_a2a.ports import (
    DeliveryFailed,
    MessageAccepted,
    Recovery,
    SessionGone,
    SessionMessage,
    Store,
)
from openclaw_a2a.settings import load_settings
from openclaw_a2a.store import create_store

Result = TypeVar("Result")
Thing = TypeVar("Thing")
EXAMPLES = settings().max_examples
A = main_session("a")
TIMEOUT_S = 240.0
FINAL = ("completed", "error")


texts = st.sampled_from(['{"output": 1}', "well", "", "fail"])
numbers = st.integers(0, 11)
"""Which one is meant is counted off, since what there is to choose from depends on the moment."""


def _one_of(things: Sequence[Thing], number: int) -> Thing | None:
    return things[number % len(things)] if things else None


Death = tuple[int, bool]
deaths: st.SearchStrategy[Death | None] = st.none() | st.tuples(st.integers(0, 5), st.booleans())
"""After how many writes the gateway is killed, and whether the last one lands."""


class StrictHost(SessionHost):
    """Accepts messages, and notes when one contradicts an earlier one."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: dict[str, Json] = {}
        self.processed_ids: set[str] = set()
        """Messages that the gateway was told are processed: the host cannot lose these."""
        self.problems: list[str] = []

    async def accept(
        self, message: SessionMessage
    ) -> MessageAccepted | SessionGone | DeliveryFailed:
        outcome = json.loads(message.text)
        if self.outcomes.setdefault(message.id, outcome) != outcome:
            self.problems.append(f"two outcomes: {self.outcomes[message.id]} and {outcome}")
        if message.is_first_attempt and any(known.id == message.id for known in self.attempts):
            self.problems.append(f"{message.id} was sent before and is called a first attempt")
        return await super().accept(message)


class Caller(ScriptedAgent):
    """An agent in the strict host, which remembers what it reported as processed."""

    def __init__(self, host: StrictHost, name: str) -> None:
        super().__init__(host, name)
        self.strict_host = host

    async def wait_processed(self, message: SessionMessage) -> bool:
        is_processed = await super().wait_processed(message)
        if is_processed:
            self.strict_host.processed_ids.add(message.id)
        return is_processed


class Callee(Caller):
    """Answers each call when the test says so."""

    def __init__(self, host: StrictHost, name: str) -> None:
        super().__init__(host, name)
        self.working: dict[str, asyncio.Future[str]] = {}
        self.answer = self._answer_later

    async def _answer_later(self, invocation: Json) -> str:
        call_id = invocation["correlationId"]
        waiting = self.working[call_id] = asyncio.get_running_loop().create_future()
        try:
            return await waiting
        finally:
            if self.working.get(call_id) is waiting:
                del self.working[call_id]


class Waiting:
    """A caller that waits for the result of its call."""

    def __init__(self) -> None:
        self.exchange: ActiveRequest | None = None
        self.result: Json = None
        self.task: asyncio.Task[None] | None = None

    async def call(self, client: AsgiClient, request: Json) -> None:
        async with client.open(tool_request("agent_call", request)) as exchange:
            self.exchange = exchange
            chunk = await exchange.next_chunk()
            self.result = None if chunk is None else json.loads(chunk)

    @property
    def is_over(self) -> bool:
        return self.task is not None and self.task.done()

    def check(self) -> None:
        """Raises what went wrong, above all that there was no answer."""
        if self.task is not None and not self.task.cancelled():
            self.task.result()


class CallMachine(RuleBasedStateMachine):
    """Callers and a callee in one gateway, whose disk and host fail at times."""

    kind = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name)
        self.accepted: dict[str, Json] = {}
        """Calls that callers know of, and how they asked."""
        self.records: dict[str, Json] = {}
        """The last that was stored of each call."""
        self.results: dict[str, Json] = {}
        """The results of callers that waited."""
        self.polled: dict[str, Json] = {}
        """The outcomes that callers asked for themselves."""
        self.unnoted: set[str] = set()
        """Calls whose gateway died before it could record that their callers have the result."""
        self.kept: set[str] = set()
        self.waiting: list[Waiting] = []
        self.was_gone = False
        self.requests = 0

    @initialize(recovery=st.sampled_from(Recovery))
    def open(self, recovery: Recovery) -> None:
        self.do(self._open(recovery))

    async def _open(self, recovery: Recovery) -> None:
        self.clock = ManualClock()
        self.host = StrictHost()
        self.callee = Callee(self.host, "b")
        self.callee.recovery = recovery
        self.disk = self._disk()
        tokens = TokenStore(self.folder)
        self.tokens = {
            kind: tokens.create(kind.value, kind) for kind in (TokenKind.TOOL, TokenKind.HOST)
        }
        await self._start()

    def _disk(self) -> Store:
        path = None if self.kind == "memory" else str(self.folder / "calls.db")
        return create_store(self.kind, path=path)

    async def _start(self) -> None:
        if self.kind != "memory":
            self.disk = self._disk()
        self.store = UnreliableStore(self.disk)
        agents = {AgentId("a"): Caller(self.host, "a"), AgentId("b"): self.callee}
        overrides = {
            "data": str(self.folder),
            "store.kind": "memory",
            "log.level": "error",
            "server.stopSeconds": 0.01,
            # Callers wait until the callee has their call: none may wait for a run slot.
            "limits.runs": 256,
            "limits.perPeerRuns": 256,
            "channels.a2a.accounts.default": {"defaultAgentId": "a"},
            "tools.agentToAgent.enabled": True,
            "tools.agentToAgent.allow": ["*"],
            **{f"agents.{name}.adapter": "echo" for name in agents},
        }
        loaded = load_settings(overrides=overrides, environ={})
        gateway = build_app(loaded.settings, agents=agents, clock=self.clock, store=self.store)
        self.gateway = await gateway.__aenter__()
        [engine] = self.gateway.engines.values()
        assert engine.store is self.store

    def do(self, work: Coroutine[Any, Any, Result], death: "Death | None" = None) -> Result | None:
        """Do something, then let everything else run; restart when the gateway died of it."""
        if death is not None:
            self.store.left, self.store.last_lands = death

        async def do_all() -> Result | None:
            async with asyncio.timeout(TIMEOUT_S):
                working = asyncio.ensure_future(work)
                await self._wait_done_or_dead(working)
                await self._quiet()
                if self.store.has_died.is_set():
                    working.cancel()
                    await asyncio.wait({working})
                    await self._restart(is_clean=False)
                self.store.left = None
                return None if working.cancelled() else working.result()

        return self.runner.run(do_all())

    async def _wait_done_or_dead(self, working: "asyncio.Task[Any]") -> None:
        while not working.done():
            await asyncio.wait({working}, timeout=0.001)
            if hasattr(self, "store") and self.store.has_died.is_set():
                return

    async def _quiet(self) -> None:
        for _ in range(3):
            await yield_to_others(100)
            while self.store.passing:
                await asyncio.wait(self.store.passing)
                await yield_to_others(100)
        await self._look()

    async def _look(self) -> None:
        """Read what is stored, and check that no outcome was changed."""
        kept = await self.disk.records.list_records("call")
        self.kept = {record.id for record in kept}
        for record in kept:
            call = json.loads(record.body)
            before = self.records.get(record.id, call)
            if before["status"] != "pending":
                assert call["status"] in (before["status"], "discarded"), (before, call)
            self.records[record.id] = call
        for caller in [one for one in self.waiting if one.is_over]:
            self.waiting.remove(caller)
            caller.check()
            outcome: Json = caller.result or {}
            if outcome.get("status") in FINAL and "correlationId" in outcome:
                self.results[outcome["correlationId"]] = outcome

    def _client(self, *, is_program: bool = False) -> AsgiClient:
        if is_program:
            token = self.tokens[TokenKind.TOOL]
            return AsgiClient(self.gateway.asgi, {"authorization": f"Bearer {token}"})
        token = self.tokens[TokenKind.HOST]
        headers = {"x-openclaw-agent-id": "a", "x-openclaw-session-key": A}
        return AsgiClient(self.gateway.asgi, {"authorization": f"Bearer {token}", **headers})

    # ---------------------------------------------------------------- callers

    @rule(seconds=st.sampled_from([0, 5, 60]), is_program=st.booleans(), death=deaths)
    def call(self, seconds: int, is_program: bool, death: Death | None) -> None:
        self.do(self._call(seconds, is_program), death)

    async def _call(self, seconds: int, is_program: bool) -> None:
        request: Json = {"agent": "b", "skill": "work", "input": {}, "timeoutSeconds": seconds}
        client = self._client(is_program=is_program)
        answer = (await client.request(tool_request("agent_call", request))).json
        if "correlationId" in answer:
            assert answer["status"] == ("pending" if seconds else "working")
            self.accepted[answer["correlationId"]] = {"s": seconds, "program": is_program}

    @rule(seconds=st.sampled_from([5, 60]), death=deaths)
    def call_and_wait(self, seconds: int, death: Death | None) -> None:
        self.do(self._call_and_wait(seconds), death)

    async def _call_and_wait(self, seconds: int) -> None:
        request: Json = {"agent": "b", "skill": "work", "input": {}, "timeoutSeconds": seconds}
        caller, count = Waiting(), len(self.callee.invocations)
        caller.task = asyncio.ensure_future(caller.call(self._client(), {**request, "wait": True}))
        self.waiting.append(caller)
        while len(self.callee.invocations) == count and not caller.is_over:
            await yield_to_others()

    @rule(number=numbers)
    def hang_up(self, number: int) -> None:
        self.do(self._hang_up(number))

    async def _hang_up(self, number: int) -> None:
        caller = _one_of(self.waiting, number)
        if caller is not None and caller.exchange is not None:
            caller.exchange.disconnect()

    @rule(number=numbers, death=deaths)
    def poll(self, number: int, death: Death | None) -> None:
        call_id = _one_of(list(self.accepted), number)
        if call_id is not None and not self.do(self._poll(call_id), death):
            # The gateway died before it answered. The poll may be recorded, and then no message
            # follows: the caller gets the outcome when it polls again.
            self.do(self._poll(call_id))

    async def _poll(self, call_id: str) -> bool:
        """Poll once; True when there was an answer, whatever it says."""
        client = self._client(is_program=self.accepted[call_id]["program"])
        answer = await client.request(tool_request("agent_poll", {"correlationId": call_id}))
        polled = answer.json
        if answer.status != 200 or "times" not in polled:
            return True  # the disk is full, or the call is forgotten
        if polled["status"] in (*FINAL, "timeout"):
            self.polled[call_id] = polled
        outcome = self.host.outcomes.get(call_id)
        if outcome is not None and outcome["status"] != "timeout":
            assert polled["status"] == outcome["status"]
        if outcome is not None and outcome["status"] == "timeout":
            assert polled["status"] == "timeout" or polled.get("late") or self.was_gone
        deadline = polled["times"].get("deadline")
        if polled["status"] == "timeout":
            assert datetime.fromisoformat(deadline) <= self.clock.now()
        return True

    # ---------------------------------------------------------------- the callee and time

    @rule(number=numbers, text=texts, death=deaths)
    def answer(self, number: int, text: str, death: Death | None) -> None:
        self.do(self._answer(number, text), death)

    async def _answer(self, number: int, text: str) -> None:
        waiting = _one_of(list(self.callee.working.values()), number)
        if waiting is None or waiting.done():
            return
        if text == "fail":
            waiting.set_exception(AgentFailed("no luck"))
        else:
            waiting.set_result(text)

    @rule(seconds=st.sampled_from([1, 4, 10, 61]), death=deaths)
    def time_passes(self, seconds: int, death: Death | None) -> None:
        self.do(self._pass(seconds), death)

    async def _pass(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for box in self.gateway.push.outboxes.values():
            box.check_task(TaskId("nobody's"))  # it waits by the machine's clock

    # ---------------------------------------------------------------- the host, the disk

    @rule(what=st.sampled_from(["away", "forgetful", "gone", "busy", "full"]))
    def something_turns(self, what: str) -> None:
        """A host, a session or a disk fails, or works again."""
        self.do(self._turn(what))

    async def _turn(self, what: str) -> None:
        host = self.host
        if what == "away":
            host.is_unavailable = not host.is_unavailable
        elif what == "forgetful":
            host.loses_replies = not host.loses_replies
        elif what == "gone":
            host.gone = set() if host.gone else {A}
            self.was_gone = True
        elif what == "full":
            self.store.failing = () if self.store.failing else DELIVERY_WRITES
        elif host.processed.is_set():
            host.processed.clear()
        else:
            host.processed.set()

    @rule()
    def host_loses_what_waits(self) -> None:
        if self.host.processed.is_set():
            return
        # A full disk may keep the gateway from recording what the host has processed.
        unseen = {call_id for call_id, one in self.records.items() if one["seenAt"] is None}
        lost = unseen - self.host.processed_ids
        self.host.accepted = [message for message in self.host.accepted if message.id not in lost]

    # ---------------------------------------------------------------- the process

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        self.runner.run(self._restart(is_clean))

    async def _restart(self, is_clean: bool) -> None:
        if not is_clean:
            self.store.die()
            for engine in self.gateway.engines.values():
                engine.limits = msgspec.structs.replace(engine.limits, cancel_s=0.001)
        await self._stop()
        await self._start()
        await self._quiet()

    async def _stop(self) -> None:
        tasks = [caller.task for caller in self.waiting if caller.task is not None]
        for caller in self.waiting if self.store.has_died.is_set() else ():
            if caller.exchange is not None:
                caller.exchange.disconnect()
        await self.gateway.__aexit__(None, None, None)
        if tasks:
            await asyncio.wait(tasks)
        await self._look_after_stop()

    async def _look_after_stop(self) -> None:
        if self.kind != "memory":
            self.disk = self._disk()
            await self.disk.open()
        await self._look()
        if self.kind != "memory":
            await self.disk.close()
        noted = {one for one in self.results if self.records[one]["deliveredAt"] is not None}
        self.unnoted |= self.results.keys() - noted

    # ---------------------------------------------------------------- what always holds

    @invariant()
    def no_outcome_is_delivered_twice_or_to_the_wrong_caller(self) -> None:
        if not hasattr(self, "gateway"):
            return
        assert self.host.problems == []
        accepted = Counter(message.id for message in self.host.accepted)
        assert all(count == 1 for count in accepted.values())
        silent = {one for one, how in self.accepted.items() if how["program"] or not how["s"]}
        assert not silent & {message.id for message in self.host.attempts}
        both = self.results.keys() & {message.id for message in self.host.attempts}
        assert both <= self.unnoted, "in the result of a waiting caller, and in a message"
        for call_id in both:
            assert self.results[call_id]["status"] == self.host.outcomes[call_id]["status"]

    def teardown(self) -> None:
        try:
            if hasattr(self, "gateway"):
                self.do(self._finish())
                self.no_outcome_is_delivered_twice_or_to_the_wrong_caller()
                self.runner.run(self._stop())
        finally:
            self.runner.close()
            self.temporary.cleanup()

    async def _finish(self) -> None:
        """Everything works again: whatever was accepted has its one outcome in the end."""
        self.store.failing, self.store.left = (), None
        self.host.is_unavailable = self.host.loses_replies = False
        self.host.gone = set()
        self.host.processed.set()
        for _ in range(8):
            for waiting in list(self.callee.working.values()):
                if not waiting.done():
                    waiting.set_result("at last")
            await self._quiet()
            await self._pass(61)
            await self._quiet()
        assert self.accepted.keys() <= self.records.keys()
        for call_id, record in self.records.items():
            self._check_delivered(call_id, record)
        for kept in await self.disk.records.list_records("call"):
            self._check_kept(json.loads(kept.body))

    def _check_delivered(self, call_id: str, record: Json) -> None:
        is_delivered = call_id in {message.id for message in self.host.accepted}
        if record["route"] in ("none", "inbox"):
            assert not is_delivered
            return
        is_known = is_delivered or call_id in self.polled or call_id in self.results
        # Where a session was gone an outcome may have been discarded, and forgotten since.
        assert is_known or self.was_gone, record
        assert is_known or record["discardedAt"] is not None or self._is_forgotten(call_id), record

    def _is_forgotten(self, call_id: str) -> bool:
        return call_id not in self.kept

    def _check_kept(self, call: Json) -> None:
        assert call["status"] != "pending", call
        is_over = call["deliveredAt"] is not None or call["discardedAt"] is not None
        assert is_over or call["route"] == "none", call


class SqliteCallMachine(CallMachine):
    """The same over a file."""

    kind = "sqlite"


TestCallsInMemory = CallMachine.TestCase
TestCallsInMemory.settings = settings(
    settings.default, max_examples=2 * EXAMPLES, stateful_step_count=30
)
TestCallsInSqlite = SqliteCallMachine.TestCase
TestCallsInSqlite.settings = settings(
    settings.default, max_examples=max(1, EXAMPLES // 3), stateful_step_count=30
)


def test_a_full_disk_does_not_undo_that_a_host_has_processed_an_outcome() -> None:
    machine = CallMachine()
    machine.open(Recovery.REPEAT)
    machine.something_turns("busy")
    machine.call(60, False, None)
    machine.answer(0, "well", None)
    for what in ("full", "busy", "busy"):  # processed, which cannot be recorded
        machine.something_turns(what)
    machine.host_loses_what_waits()
    machine.teardown()


def test_a_poll_that_dies_when_it_is_recorded_can_be_repeated() -> None:
    for last_lands in (False, True):
        machine = CallMachine()
        machine.open(Recovery.REPEAT)
        machine.something_turns("away")
        machine.call(60, False, None)
        machine.answer(0, "well", None)
        machine.poll(0, (0, last_lands))
        assert machine.polled.keys() == machine.accepted.keys()
        machine.teardown()
