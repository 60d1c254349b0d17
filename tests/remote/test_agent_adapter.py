"""A remote agent as an agent of the gateway: answers, pauses, failures, cancel and recovery."""

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import msgspec
import pytest
from anyio import fail_after
from tests.remote.tool_harness import ToolHarness, open_tool

from openclaw_a2a import RemoteAgents
from openclaw_a2a.engine.engine import AccountRules, Engine, EngineLimits, SystemClock
from openclaw_a2a.engine.recovery import recover_runs
from openclaw_a2a.engine.scheduling.session_queue import QueueLimits, SessionQueues
from openclaw_a2a.engine.tasks import queries
from openclaw_a2a.engine.tasks.active_task import TaskFinished
from openclaw_a2a.engine.tasks.cancel import cancel_task
from openclaw_a2a.engine.tasks.results import wait_created, wait_final_result
from openclaw_a2a.engine.tasks.submit import SubmitRequest, submit
from openclaw_a2a.model.agent_event import (
    AgentEvent,
    InputRequired,
    MessageEnd,
    Note,
    PartDelta,
    Reply,
    TextDelta,
    ToolReply,
)
from openclaw_a2a.model.errors import (
    AgentError,
    AgentFailed,
    AgentUnavailable,
    StoreUnavailable,
    TaskNotCancelable,
)
from openclaw_a2a.model.ids import (
    AccountId,
    AgentId,
    ContextId,
    Json,
    JsonObject,
    MessageId,
    PeerName,
    RunId,
    SessionKey,
    TaskId,
)
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.records import decode_task
from openclaw_a2a.model.task import Task, TaskState
from openclaw_a2a.model.turn import (
    CHAIN_HOSTS_KEY,
    CHAIN_KEY,
    Binding,
    Peer,
    Provenance,
    Scope,
    Turn,
)
from openclaw_a2a.ports import Agent, Record, RecordStore, Store
from openclaw_a2a.remote.agent_adapter import RemoteTargetAgent
from openclaw_a2a.remote.event_translator import RemoteEventTranslator
from openclaw_a2a.remote.run import CHECKPOINT_KIND, RemoteTimeouts
from openclaw_a2a.store import create_store

SCOPE = Scope(PeerName("me"), AccountId("default"))
RULES = AccountRules(AccountId("default"), AgentId("far"))
NOBODY = "http://127.0.0.1:1"
PATIENT = RemoteTimeouts(answer_s=240, lost_s=60, stop_s=60)
QUICK = RemoteTimeouts(answer_s=20, lost_s=1.5, stop_s=3)
"""For peers that are given up."""


def section(url: str) -> JsonObject:
    return {"targets": [{"alias": "ops", "baseUrl": url}], "defaults": {"timeoutMs": 60_000}}


def turn_of(text: str, *, attempt: int = 1, resume: Json = None, run_id: str = "") -> Turn:
    now, session = SystemClock().now(), SessionKey("agent:far:call:1")
    return Turn(
        run_id=RunId(run_id or str(uuid.uuid4())),
        task_id=TaskId("t"),
        context_id=ContextId("c"),
        message=Message(MessageId("m"), Role.USER, (Part.of_text(text),)),
        binding=Binding(
            agent_id=AgentId("far"),
            account_id=AccountId("default"),
            session_key=session,
            main_session_key=session,
            peer=Peer("me", "call"),
            created_at=now,
            updated_at=now,
        ),
        principal=PeerName("me"),
        body=text,
        attempt=attempt,
        resume=resume,
        provenance=Provenance("agent_call", session, chain=(AgentId("a"), AgentId("b"))),
    )


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    store = create_store("memory", path=None)
    await store.open()
    yield store
    await store.close()


@asynccontextmanager
async def target(
    url: str, store: Store, timeouts: RemoteTimeouts = PATIENT
) -> AsyncGenerator[RemoteTargetAgent]:
    """The agent behind an address, as one gateway process has it."""
    clock = SystemClock()
    async with open_tool(section(url), now=clock.now, limit=8 * 1024 * 1024) as harness:
        yield RemoteTargetAgent(
            "ops",
            harness.tool,
            records=store.records,
            clock=clock,
            host_id="this-gateway",
            timeouts=timeouts,
        )


async def collect(agent: RemoteTargetAgent, turn: Turn) -> list[AgentEvent]:
    with fail_after(240):
        return [event async for event in agent.run(turn)]


async def state_of(remote: RemoteAgents, continuation: JsonObject) -> str | None:
    """The state of a task, as the remote agent tells it."""
    known = (await remote.status(continuation)).task
    return None if known is None else known.state


def text_in(events: list[AgentEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


# ------------------------------------------------------------------ with a real peer


async def test_chunks_of_the_remote_agent_are_passed_on(asker: str, store: Store) -> None:
    async with target(asker, store) as agent:
        assert text_in(await collect(agent, turn_of("count"))) == "one two three"


async def test_a_failed_remote_task_fails_with_its_text(asker: str, store: Store) -> None:
    async with target(asker, store) as agent:
        with pytest.raises(AgentFailed, match="ops failed: no luck today"):
            await collect(agent, turn_of("fail"))


async def test_a_question_pauses_the_run_and_the_answer_goes_to_the_same_task(
    asker: str, store: Store
) -> None:
    async with target(asker, store) as agent:
        *notes, asked = await collect(agent, turn_of("erase"))
        assert Note("Looking around") in notes
        assert isinstance(asked, InputRequired)
        assert asked.prompt == "Really?"
        token = json.loads(json.dumps(asked.resume))
    async with target(asker, store) as agent:  # another life of ours
        answered = await collect(agent, turn_of("yes", resume=token))
    assert text_in(answered) == "erase: yes"


async def test_a_run_continues_from_its_checkpoint(asker: str, store: Store) -> None:
    run_id = str(uuid.uuid4())
    async with target(asker, store) as agent:
        with fail_after(240):
            async with aclosing(agent.run(turn_of("hold", run_id=run_id))) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        break
                agent.detach()
    note = await store.records.read_record(CHECKPOINT_KIND, run_id)
    assert note is not None
    async with target(asker, store) as agent, RemoteAgents(section(asker)) as remote:
        known = msgspec.json.decode(note.body)
        assert await state_of(remote, known) == "working"
        with fail_after(240):
            async with aclosing(agent.run(turn_of("hold", run_id=run_id, attempt=2))) as events:
                received = [await anext(events)]
                assert text_in(received) == "holding"
        assert await state_of(remote, known) == "canceled"


async def test_a_run_that_is_left_to_another_replica_goes_on_until_it_is_ended(
    asker: str, store: Store
) -> None:
    turn = turn_of("hold", run_id=str(uuid.uuid4()))
    async with target(asker, store) as agent, RemoteAgents(section(asker)) as remote:
        assert not agent.detach_run(turn.run_id)
        with fail_after(240):
            async with aclosing(agent.run(turn)) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        break
                assert agent.detach_run(turn.run_id)
        assert not agent.detach_run(turn.run_id)
        note = await store.records.read_record(CHECKPOINT_KIND, turn.run_id)
        assert note is not None
        known = msgspec.json.decode(note.body)
        assert await state_of(remote, known) == "working"
        await agent.end_detached_run(msgspec.structs.replace(turn, attempt=2))
        assert await state_of(remote, known) == "canceled"


async def test_a_task_that_ended_during_a_restart_is_reported_completely(
    asker: str, store: Store
) -> None:
    run_id = str(uuid.uuid4())
    async with target(asker, store) as agent:
        await collect(agent, turn_of("count", run_id=run_id))
    async with target(asker, store) as agent:
        again = await collect(agent, turn_of("count", run_id=run_id, attempt=2))
    assert text_in(again) == "one two three"


async def test_without_a_checkpoint_the_same_message_is_sent_again(
    asker: str, store: Store
) -> None:
    run_id = str(uuid.uuid4())
    async with target(asker, store) as agent:
        await collect(agent, turn_of("count", run_id=run_id))
        first = await store.records.read_record(CHECKPOINT_KIND, run_id)
        await store.records.delete_record(CHECKPOINT_KIND, run_id)
        again = await collect(agent, turn_of("count", run_id=run_id, attempt=2))
        second = await store.records.read_record(CHECKPOINT_KIND, run_id)
    assert text_in(again) == "one two three"
    assert first is not None
    assert second is not None
    tasks = [msgspec.json.decode(one.body)["task"]["task_id"] for one in (first, second)]
    assert tasks[0] == tasks[1]


async def test_a_paused_remote_task_is_canceled(asker: str, store: Store) -> None:
    async with target(asker, store) as agent, RemoteAgents(section(asker)) as remote:
        turn = turn_of("erase")
        asked = (await collect(agent, turn))[-1]
        assert isinstance(asked, InputRequired)
        await agent.cancel_pause(turn.binding, asked.resume)
        assert await state_of(remote, asked.resume["continuation"]) == "canceled"
        await agent.cancel_pause(turn.binding, None)
        await agent.close()


async def test_an_unreachable_target_is_unavailable(store: Store) -> None:
    async with target(NOBODY, store, QUICK) as agent:
        with pytest.raises(AgentUnavailable, match=r"ops did not do it.*check that it runs"):
            await collect(agent, turn_of("count"))


async def test_an_alias_that_is_not_configured_is_unavailable(store: Store) -> None:
    async with open_tool(section(NOBODY)) as harness:
        agent = RemoteTargetAgent("gone", harness.tool, records=store.records, clock=SystemClock())
        with pytest.raises(AgentUnavailable, match="must be one of"):
            await collect(agent, turn_of("count"))


# ------------------------------------------------------------------ inside an engine


class EngineHarness:
    """An engine whose only agent is far away."""

    def __init__(
        self, store: Store, agent: Agent, *, cancel_s: float = 240.0, run_s: float = 3600.0
    ) -> None:
        self._agent = agent
        self.engine = Engine(
            store,
            {AgentId("far"): self._agent},
            queues=SessionQueues(QueueLimits()),
            clock=SystemClock(),
            limits=EngineLimits(cancel_s=cancel_s, run_s=run_s),
            new_id=lambda: str(uuid.uuid4()),
        )
        self.engine.accounts[RULES.account] = RULES

    async def send(self, text: str, task_id: TaskId | None = None) -> "asyncio.Task[Task]":
        """Send a message; the task that awaits its end."""
        parts = (Part.of_text(text),)
        message = Message(MessageId(str(uuid.uuid4())), Role.USER, parts, task_id=task_id)
        run = await submit(self.engine, SubmitRequest(SCOPE, message), RULES)
        await wait_created(self.engine, run)

        async def end() -> Task:
            outcome = await wait_final_result(self.engine, run)
            assert isinstance(outcome, TaskFinished)
            return decode_task(outcome.task)

        return asyncio.ensure_future(end())

    async def until(self, is_so: Callable[[Task], bool]) -> Task:
        """Follow the only task until it is as wanted."""
        while True:
            (task_id,) = self.engine.active_tasks
            following = await queries.subscribe(self.engine, SCOPE, task_id, cursor=0)
            follower = following.subscription
            while not follower.is_over:
                stored = await queries.get_task(self.engine, SCOPE, task_id)
                task = decode_task(queries.task_json(stored))
                if is_so(task):
                    return task
                await follower.next_events(10)

    async def cancel(self, task_id: TaskId) -> Task:
        return decode_task(await cancel_task(self.engine, SCOPE, task_id))


def says(text: str) -> Callable[[Task], bool]:
    def is_so(task: Task) -> bool:
        parts = [part.text for one in task.artifacts for part in one.parts]
        return text in "".join(filter(None, parts))

    return is_so


async def test_the_remote_task_is_canceled_before_ours(asker: str, store: Store) -> None:
    async with target(asker, store) as agent, RemoteAgents(section(asker)) as remote:
        engine_harness = EngineHarness(store, agent)
        with fail_after(240):
            ended = await engine_harness.send("hold")
            task = await engine_harness.until(says("holding"))
            assert (await engine_harness.cancel(task.id)).status.state is TaskState.CANCELED
            await ended
        (note,) = await store.records.list_records(CHECKPOINT_KIND)
        assert await state_of(remote, msgspec.json.decode(note.body)) == "canceled"


async def test_a_stopped_gateway_leaves_the_remote_task_and_finds_it_again(
    asker: str, store: Store
) -> None:
    async with target(asker, store) as agent:
        engine_harness = EngineHarness(store, agent)
        with fail_after(240):
            ended = await engine_harness.send("hold")
            task = await engine_harness.until(says("holding"))
            await engine_harness.engine.stop()
        ended.cancel()
        with suppress(Exception, asyncio.CancelledError):
            await ended
    async with target(asker, store) as agent:
        engine_harness = EngineHarness(store, agent)
        with fail_after(240):
            assert await recover_runs(engine_harness.engine) == 1
            await engine_harness.until(says("holding"))
            assert (await engine_harness.cancel(task.id)).status.state is TaskState.CANCELED


async def test_a_question_and_its_answer_are_one_task(asker: str, store: Store) -> None:
    async with target(asker, store) as agent:
        engine_harness = EngineHarness(store, agent)
        with fail_after(240):
            asked = await (await engine_harness.send("erase"))
            assert asked.status.state is TaskState.INPUT_REQUIRED
            done = await (await engine_harness.send("yes", asked.id))
    assert done.id == asked.id
    assert done.status.state is TaskState.COMPLETED
    assert says("erase: yes")(done)


# ------------------------------------------------------------------ peers of another kind


class Scripted:
    """A peer that answers each method as a test says, and remembers what it was asked."""

    def __init__(self, *, streams: bool, answer: Callable[[str, int], Json]) -> None:
        self.streams = streams
        self.answer = answer
        self.asked: list[tuple[str, JsonObject]] = []
        self.url = ""

    def methods(self) -> list[str]:
        return [method for method, _ in self.asked]

    def reply(self, request: JsonObject) -> Json:
        method: str = request["method"]
        before = self.methods().count(method)
        self.asked.append((method, request["params"]))
        return self.answer(method, before)


@contextmanager
def scripted(peer: Scripted) -> Iterator[Scripted]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            interface = {
                "url": f"{peer.url}/rpc",
                "protocolBinding": "JSONRPC",
                "protocolVersion": "1.0",
            }
            card: JsonObject = {
                "name": "Scripted",
                "description": "As told",
                "version": "1",
                "capabilities": {"streaming": peer.streams},
                "supportedInterfaces": [interface],
                "defaultInputModes": ["text/plain"],
                "defaultOutputModes": ["text/plain"],
                "skills": [],
            }
            self._say(card)

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            said = peer.reply(request)
            if said is None:
                self.close_connection = True
                return
            head = {"jsonrpc": "2.0", "id": request["id"]}
            if isinstance(said, list):
                frames = [json.dumps({**head, "result": one}) for one in said]
                body = "".join(f"data: {frame}\n\n" for frame in frames).encode()
                self._send(body, "text/event-stream")
                return
            is_error = "code" in said
            self._say({**head, "error" if is_error else "result": said})

        def _say(self, value: Json) -> None:
            self._send(json.dumps(value).encode(), "application/json")

        def _send(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        peer.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield peer
        server.shutdown()
        thread.join()


def task(state: str, text: str = "", words: str = "") -> JsonObject:
    status: JsonObject = {"state": f"TASK_STATE_{state}"}
    if words:
        status["message"] = {"messageId": "s", "role": "ROLE_AGENT", "parts": [{"text": words}]}
    artifacts = [{"artifactId": "a", "parts": [{"text": text}]}] if text else []
    return {"id": "t-1", "contextId": "c-1", "status": status, "artifacts": artifacts}


NOT_CANCELABLE: JsonObject = {"code": -32002, "message": "it must not be stopped"}


async def test_a_direct_answer_completes_the_run(
    plain_peer: tuple[str, list[str]], store: Store
) -> None:
    async with target(plain_peer[0], store) as agent:
        assert await collect(agent, turn_of("x", run_id="run-1")) == [
            Reply.of_text("received run-1")
        ]


async def test_the_message_has_the_run_id_and_the_call_chain(store: Store) -> None:
    answer = {"SendMessage": {"task": task("COMPLETED", "done")}}
    with scripted(Scripted(streams=False, answer=lambda method, _: answer[method])) as peer:
        async with target(peer.url, store) as agent:
            assert text_in(await collect(agent, turn_of("hello", run_id="run-1"))) == "done"
    (_, params) = peer.asked[0]
    assert params["message"]["messageId"] == "run-1"
    assert params["message"]["parts"] == [{"text": "hello"}]
    assert params["message"]["metadata"] == {
        CHAIN_KEY: ["a", "b"],
        CHAIN_HOSTS_KEY: ["this-gateway", "this-gateway"],
    }


async def test_a_peer_without_streaming_is_polled_until_its_task_ends(store: Store) -> None:
    def answer(method: str, before: int) -> Json:
        if method == "SendMessage":
            return {"task": task("WORKING", "one ")}
        return task("WORKING", "one two ") if before == 0 else task("COMPLETED", "one two three")

    with scripted(Scripted(streams=False, answer=answer)) as peer:
        async with target(peer.url, store) as agent:
            events = await collect(agent, turn_of("count"))
    assert [event.text for event in events if isinstance(event, TextDelta)] == [
        "one ",
        "two ",
        "three",
    ]
    assert peer.methods() == ["SendMessage", "GetTask", "GetTask"]


async def test_a_peer_that_refuses_to_stream_is_sent_a_plain_request(store: Store) -> None:
    def answer(method: str, before: int) -> Json:
        if method == "SendStreamingMessage":
            return {"code": -32004, "message": "no streams here"}
        return {"task": task("COMPLETED", "done")}

    with scripted(Scripted(streams=True, answer=answer)) as peer:
        async with target(peer.url, store) as agent:
            assert text_in(await collect(agent, turn_of("x", run_id="run-1"))) == "done"
    assert [params["message"]["messageId"] for _, params in peer.asked] == ["run-1"] * 2


async def test_a_broken_stream_is_resumed(store: Store) -> None:
    def answer(method: str, before: int) -> Json:
        if method == "SendStreamingMessage":
            return [{"task": task("WORKING", "one ")}]
        if method == "GetTask":
            return None if before < 2 else task("WORKING", "one two ")
        return [{"task": task("WORKING", "one two ")}, {"task": task("COMPLETED", "one two three")}]

    with scripted(Scripted(streams=True, answer=answer)) as peer:
        async with target(peer.url, store) as agent:
            assert text_in(await collect(agent, turn_of("count"))) == "one two three"
    assert peer.methods().count("SendStreamingMessage") == 1


def answers_to(peer: Scripted) -> list[JsonObject]:
    """The answers that the peer was sent."""
    return [params["message"] for _, params in peer.asked if "message" in params]


TAKEN: JsonObject = {"code": -32004, "message": "task t-1 is completed"}


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("lost", [1, 2])
async def test_an_answer_is_sent_under_one_message_id_until_the_peer_is_heard(
    store: Store, streams: bool, lost: int
) -> None:
    def answer(method: str, before: int) -> Json:
        if not method.startswith("Send") or before < lost:
            return None
        done = {"task": task("COMPLETED", "done")}
        return [done] if method == "SendStreamingMessage" else done

    with scripted(Scripted(streams=streams, answer=answer)) as peer:
        async with target(peer.url, store) as agent:
            turn = turn_of("yes", resume={"continuation": continuation_of(peer)})
            events = [event async for event in agent.run(turn)]
    sent = answers_to(peer)
    assert len(sent) == lost + 1
    assert {one["messageId"] for one in sent} == {turn.run_id}
    assert {one["taskId"] for one in sent} == {"t-1"}
    assert [type(event) for event in events if isinstance(event, Note)] == [Note]
    assert spoken(events) == "done"


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_an_answer_that_arrived_unheard_is_followed_when_the_peer_refuses_the_next(
    store: Store, is_restarted: bool
) -> None:
    def answer(method: str, before: int) -> Json:
        if method == "GetTask":
            return task("COMPLETED", "done")
        return None if before == 0 and not is_restarted else TAKEN

    with scripted(Scripted(streams=True, answer=answer)) as peer:
        async with target(peer.url, store) as agent:
            resume = {"continuation": continuation_of(peer)}
            turn = turn_of("yes", resume=resume, attempt=2 if is_restarted else 1)
            events = [event async for event in agent.run(turn)]
    assert spoken(events) == "done"


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_an_answer_that_the_peer_cannot_take_yet_is_sent_again(
    store: Store, is_restarted: bool
) -> None:
    def answer(method: str, before: int) -> Json:
        if method == "GetTask":
            return task("INPUT_REQUIRED", words="Really?")
        if before == 0 and not is_restarted:
            return None
        if before < 3:
            return {"code": -32603, "message": "still loading"}
        return [{"task": task("COMPLETED", "done")}]

    with scripted(Scripted(streams=True, answer=answer)) as peer:
        async with target(peer.url, store) as agent:
            resume = {"continuation": continuation_of(peer)}
            turn = turn_of("yes", resume=resume, attempt=2 if is_restarted else 1)
            events = [event async for event in agent.run(turn)]
    assert spoken(events) == "done"
    assert not any(isinstance(event, InputRequired) for event in events)
    assert {one["messageId"] for one in answers_to(peer)} == {turn.run_id}


async def test_an_answer_that_the_peer_refuses_while_it_waits_fails_the_run(store: Store) -> None:
    def answer(method: str, before: int) -> Json:
        if method == "GetTask":
            return task("INPUT_REQUIRED", words="Really?")
        return None if before == 0 else {"code": -32602, "message": "no such choice"}

    with scripted(Scripted(streams=True, answer=answer)) as peer:
        async with target(peer.url, store) as agent:
            turn = turn_of("yes", resume={"continuation": continuation_of(peer)}, run_id="run-1")
            with pytest.raises(AgentFailed, match="no such choice"):
                await collect(agent, turn)
    assert await store.records.read_record(CHECKPOINT_KIND, "run-1") is None, "it was not heard"


async def test_a_later_question_is_asked_when_a_refused_answer_had_arrived(store: Store) -> None:
    def answer(method: str, before: int) -> Json:
        if method == "GetTask":
            return task("WORKING") if before == 0 else task("INPUT_REQUIRED", words="And now?")
        return None if method == "SubscribeToTask" or before == 0 else TAKEN

    with scripted(Scripted(streams=True, answer=answer)) as peer:
        async with target(peer.url, store) as agent:
            turn = turn_of("yes", resume={"continuation": continuation_of(peer)})
            events = [event async for event in agent.run(turn)]
    assert [one.prompt for one in events if isinstance(one, InputRequired)] == ["And now?"]


def continuation_of(peer: Scripted) -> JsonObject:
    """How the run before this one left the task of the peer."""
    place = {"target_alias": "ops", "target_url": peer.url, "preferred_transports": ["JSONRPC"]}
    known: JsonObject = {**place, "card_path": "/.well-known/agent-card.json"}
    return {"target": known, "task": {"task_id": "t-1", "can_send": True}}


def spoken(events: list[AgentEvent]) -> str:
    """The text of the answer."""
    texts = [one.text for one in events if isinstance(one, TextDelta)]
    replies = [part.text for one in events if isinstance(one, Reply) for part in one.parts]
    return "".join([*texts, *(text or "" for text in replies)])


async def test_a_peer_that_stays_unreachable_fails_the_run(store: Store) -> None:
    def answer(method: str, before: int) -> Json:
        return [{"task": task("WORKING")}] if method == "SendStreamingMessage" else None

    with scripted(Scripted(streams=True, answer=answer)) as peer:
        async with target(peer.url, store, QUICK) as agent:
            with pytest.raises(AgentUnavailable):
                await collect(agent, turn_of("count", run_id="run-1"))
    assert await store.records.read_record(CHECKPOINT_KIND, "run-1") is not None


class SteppingClock:
    """The clock of a tool; a sleep advances it at once."""

    def __init__(self, harness: ToolHarness) -> None:
        self._harness = harness

    def now(self) -> datetime:
        return self._harness.time

    async def sleep(self, seconds: float) -> None:
        self._harness.advance(seconds)
        await asyncio.sleep(0)


async def run_with_open_circuit(
    peer: Scripted, store: Store, on_open: Callable[[], None]
) -> list[AgentEvent]:
    """Continue the run of a task at a peer whose circuit is open; it may not be away at all."""
    body = msgspec.json.encode(known_task(peer.url))
    async with open_tool(section(peer.url)) as harness:
        clock = SteppingClock(harness)
        expires_at = clock.now() + timedelta(days=1)
        await store.records.put_record(Record(CHECKPOINT_KIND, "run-1", body, expires_at))
        agent = RemoteTargetAgent(
            "ops",
            harness.tool,
            records=store.records,
            clock=clock,
            timeouts=RemoteTimeouts(answer_s=240, lost_s=0, stop_s=60),
        )
        for _ in range(5):
            await harness.fail_send(target_alias="ops")
        error = await harness.fail_send(target_alias="ops")
        assert error["details"]["errorName"] == "CircuitOpen"
        on_open()
        return await collect(agent, turn_of("count", run_id="run-1", attempt=2))


async def test_a_run_outlasts_the_pause_of_an_open_circuit(store: Store) -> None:
    is_back = Event()

    def answer(method: str, before: int) -> Json:
        return task("COMPLETED", "done") if is_back.is_set() else None

    with scripted(Scripted(streams=True, answer=answer)) as peer:
        assert text_in(await run_with_open_circuit(peer, store, is_back.set)) == "done"


async def test_a_peer_is_asked_once_more_before_its_run_fails(store: Store) -> None:
    with scripted(Scripted(streams=True, answer=lambda _, __: None)) as peer:
        with pytest.raises(AgentUnavailable) as raised:
            await run_with_open_circuit(peer, store, peer.asked.clear)
        assert "is not asked before" not in str(raised.value)
        assert set(peer.methods()) == {"GetTask"}


class FullDisk:
    """Records of which the first `failures` cannot be stored."""

    def __init__(self, records: RecordStore, failures: float) -> None:
        self._failures = failures
        self._records = records
        self.update_record = records.update_record
        self.delete_record = records.delete_record
        self.read_record = records.read_record
        self.list_records = records.list_records

    async def put_record(self, record: Record) -> None:
        self._failures -= 1
        if self._failures >= 0:
            raise StoreUnavailable("the disk is full")
        await self._records.put_record(record)


def work_until_canceled(method: str, before: int) -> Json:
    if method == "SendStreamingMessage":
        return [{"task": task("WORKING")}, {"task": task("COMPLETED", "done")}]
    if method == "SendMessage":
        return {"task": task("WORKING")}
    return task("CANCELED") if method == "CancelTask" else task("COMPLETED", "done")


@asynccontextmanager
async def target_with_full_disk(
    peer: Scripted, store: Store, failures: float, timeouts: RemoteTimeouts
) -> AsyncGenerator[RemoteTargetAgent]:
    clock = SystemClock()
    async with open_tool(section(peer.url), now=clock.now) as harness:
        records = FullDisk(store.records, failures)
        yield RemoteTargetAgent(
            "ops", harness.tool, records=records, clock=clock, timeouts=timeouts
        )


@pytest.mark.parametrize("streams", [True, False])
async def test_a_checkpoint_that_cannot_be_stored_at_first_is_stored_later(
    store: Store, streams: bool
) -> None:
    with scripted(Scripted(streams=streams, answer=work_until_canceled)) as peer:
        async with target_with_full_disk(peer, store, 2, PATIENT) as agent:
            assert text_in(await collect(agent, turn_of("count", run_id="run-1"))) == "done"
    assert await store.records.read_record(CHECKPOINT_KIND, "run-1") is not None
    assert "CancelTask" not in peer.methods()


@pytest.mark.parametrize("streams", [True, False])
async def test_the_remote_task_is_canceled_when_its_checkpoint_cannot_be_stored(
    store: Store, streams: bool
) -> None:
    with scripted(Scripted(streams=streams, answer=work_until_canceled)) as peer:
        async with target_with_full_disk(peer, store, float("inf"), QUICK) as agent:
            with pytest.raises(StoreUnavailable):
                await collect(agent, turn_of("count"))
            assert peer.methods().count("CancelTask") == 1


async def test_a_task_unknown_to_the_peer_fails_the_run(store: Store) -> None:
    def answer(method: str, before: int) -> Json:
        if method == "SendStreamingMessage":
            return [{"task": task("WORKING")}]
        return {"code": -32001, "message": "no such task"}

    with scripted(Scripted(streams=True, answer=answer)) as peer:
        async with target(peer.url, store) as agent:
            with pytest.raises(AgentFailed, match="no such task"):
                await collect(agent, turn_of("count"))


@pytest.mark.parametrize(
    ("state", "pattern"),
    [
        ("FAILED", "failed: sorry"),
        ("REJECTED", "rejected the task: sorry"),
        ("CANCELED", "canceled the task: sorry"),
    ],
)
async def test_a_failed_task_fails_the_run_after_its_text(
    state: str, pattern: str, store: Store
) -> None:
    ended = {"task": task(state, "half", "sorry")}
    with scripted(Scripted(streams=False, answer=lambda _, __: ended)) as peer:
        async with target(peer.url, store) as agent:
            received: list[AgentEvent] = []
            with pytest.raises(AgentFailed, match=pattern):
                async for event in agent.run(turn_of("x")):
                    received.append(event)
    assert text_in(received) == "half"


async def test_a_task_that_requires_authentication_pauses_the_run(store: Store) -> None:
    waiting = {"task": task("AUTH_REQUIRED", words="log in first")}
    with scripted(Scripted(streams=False, answer=lambda _, __: waiting)) as peer:
        async with target(peer.url, store) as agent:
            asked = (await collect(agent, turn_of("x")))[-1]
    assert isinstance(asked, InputRequired)
    assert asked.prompt == "log in first"
    assert asked.resume["continuation"]["task"]["task_id"] == "t-1"


async def test_the_status_text_is_the_answer_when_there_is_no_other(store: Store) -> None:
    ended = {"task": task("COMPLETED", words="all done")}
    with scripted(Scripted(streams=False, answer=lambda _, __: ended)) as peer:
        async with target(peer.url, store) as agent:
            assert await collect(agent, turn_of("x")) == [Reply.of_text("all done")]


async def test_a_refused_cancel_makes_the_task_not_cancelable(store: Store) -> None:
    may_end = Event()

    def answer(method: str, before: int) -> Json:
        if method == "SendMessage":
            return {"task": task("WORKING", "at it ")}
        if method == "CancelTask":
            return NOT_CANCELABLE
        return task("COMPLETED", "at it and done") if may_end.is_set() else task("WORKING")

    with scripted(Scripted(streams=False, answer=answer)) as peer:
        async with target(peer.url, store) as agent:
            engine_harness = EngineHarness(store, agent, cancel_s=1)
            with fail_after(240):
                ended = await engine_harness.send("x")
                known = await engine_harness.until(says("at it"))
                with pytest.raises(TaskNotCancelable):
                    await engine_harness.cancel(known.id)
                may_end.set()
                assert (await ended).status.state is TaskState.COMPLETED
    assert "CancelTask" in peer.methods()


async def test_a_peer_that_never_cancels_does_not_keep_a_run_for_ever(store: Store) -> None:
    def answer(method: str, before: int) -> Json:
        if method == "SendMessage":
            return {"task": task("WORKING", "at it ")}
        return NOT_CANCELABLE if method == "CancelTask" else task("WORKING")

    with scripted(Scripted(streams=False, answer=answer)) as peer:
        async with target(peer.url, store, QUICK) as agent:
            engine_harness = EngineHarness(store, agent, cancel_s=0.5, run_s=0.5)
            with fail_after(240):
                ended = await (await engine_harness.send("x"))
    assert ended.status.state is TaskState.FAILED


async def test_a_task_that_ends_before_it_is_canceled_has_ended(store: Store) -> None:
    def answer(method: str, before: int) -> Json:
        if method == "SendMessage":
            return {"task": task("WORKING", "at it ")}
        if method == "CancelTask":
            is_done.set()
            return NOT_CANCELABLE
        return task("COMPLETED", "at it and done") if is_done.is_set() else task("WORKING")

    is_done = Event()
    with scripted(Scripted(streams=False, answer=answer)) as peer:
        async with target(peer.url, store) as agent:
            engine_harness = EngineHarness(store, agent)
            with fail_after(240):
                await engine_harness.send("x")
                known = await engine_harness.until(says("at it"))
                ended = await engine_harness.cancel(known.id)
    assert ended.status.state is TaskState.COMPLETED
    assert says("and done")(ended)


async def test_a_cancel_waits_until_the_task_has_ended(store: Store) -> None:
    def answer(method: str, before: int) -> Json:
        if method == "SendMessage":
            return {"task": task("WORKING", "at it ")}
        if method == "CancelTask":
            told_to_stop.set()
            return task("WORKING")
        return task("CANCELED" if told_to_stop.is_set() and before > 3 else "WORKING")

    told_to_stop = Event()
    with scripted(Scripted(streams=False, answer=answer)) as peer:
        async with target(peer.url, store) as agent:
            engine_harness = EngineHarness(store, agent)
            with fail_after(240):
                await engine_harness.send("x")
                known = await engine_harness.until(says("at it"))
                assert (await engine_harness.cancel(known.id)).status.state is TaskState.CANCELED
    assert peer.methods().count("CancelTask") == 1


@pytest.mark.parametrize("cancel_answer", [NOT_CANCELABLE, None])
async def test_a_refused_cancel_of_a_closed_run_is_reported(
    cancel_answer: Json, store: Store
) -> None:
    def answer(method: str, before: int) -> Json:
        if method == "SendMessage":
            return {"task": task("WORKING", "at it ")}
        return cancel_answer if method == "CancelTask" else task("WORKING")

    with scripted(Scripted(streams=False, answer=answer)) as peer:
        async with target(peer.url, store, QUICK) as agent:
            events = agent.run(turn_of("x"))
            with fail_after(240):
                await anext(events)
                with pytest.raises(AgentError, match="may go on"):
                    await events.aclose()
                with pytest.raises(TaskNotCancelable):
                    token = {"continuation": known_task(peer.url)}
                    await agent.cancel_pause(turn_of("x").binding, token)


def known_task(url: str) -> JsonObject:
    named: JsonObject = {
        "target_url": f"{url}/",
        "card_path": "/.well-known/agent-card.json",
        "preferred_transports": ["JSONRPC", "HTTP+JSON"],
        "target_alias": "ops",
    }
    return {"target": named, "task": {"task_id": "t-1"}}


async def test_a_task_that_the_peer_does_not_name_cannot_be_canceled(store: Store) -> None:
    is_asked, may_answer = Event(), Event()

    def answer(method: str, before: int) -> Json:
        is_asked.set()
        may_answer.wait(240)
        return {"task": task("COMPLETED", "late")}

    with scripted(Scripted(streams=False, answer=answer)) as peer:
        async with target(peer.url, store, QUICK) as agent:
            engine_harness = EngineHarness(store, agent, cancel_s=240)
            with fail_after(240):
                await engine_harness.send("x")
                await asyncio.to_thread(is_asked.wait, 240)
                (task_id,) = engine_harness.engine.active_tasks
                ended = await engine_harness.cancel(task_id)
            may_answer.set()
    assert ended.status.state is TaskState.FAILED


# ------------------------------------------------------------------ how it is collect


def artifact(name: str, *parts: JsonObject, append: bool = False, source: str = "") -> JsonObject:
    body: JsonObject = {"artifactId": name, "parts": list(parts)}
    if source:
        body["metadata"] = {"source": source}
    return {"kind": "artifact-update", "artifact": body, "append": append}


def text(words: str) -> JsonObject:
    return {"kind": "text", "text": words}


def test_chunks_of_an_artifact_are_one_message_and_another_artifact_the_next() -> None:
    translator = RemoteEventTranslator()
    assert translator.translate(artifact("a", text("x"))) == [TextDelta("x")]
    assert translator.translate(artifact("a", text("y"), append=True)) == [TextDelta("y")]
    assert translator.translate(artifact("b", text("z"))) == [MessageEnd(), TextDelta("z")]


async def test_a_text_in_several_parts_that_goes_on_is_one_message(store: Store) -> None:
    half = task("WORKING")
    half["artifacts"] = [{"artifactId": "a", "parts": [{"text": "Hello "}, {"text": "wor"}]}]
    artifact = {"artifactId": "a", "parts": [{"text": "ld"}]}
    rest = {"taskId": "t-1", "contextId": "c-1", "artifact": artifact, "append": True}
    ended = {"taskId": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_COMPLETED"}}
    stream = [{"task": half}, {"artifactUpdate": rest}, {"statusUpdate": ended}]
    with scripted(Scripted(streams=True, answer=lambda *_: stream)) as peer:
        async with target(peer.url, store) as agent:
            engine_harness = EngineHarness(store, agent)
            done = await (await engine_harness.send("x"))
    texts = ["".join(part.text or "" for part in one.parts) for one in done.artifacts]
    assert texts == ["Hello world"]


def test_the_texts_of_a_task_that_is_over_stay_paragraphs() -> None:
    event: JsonObject = {"kind": "task", "id": "t", "status": {"state": "completed"}}
    event["artifacts"] = [{"artifactId": "a", "parts": [text("One."), text("Two.")]}]
    parts = (Part.of_text("One."), Part.of_text("Two."))
    assert RemoteEventTranslator().translate(event) == [Reply(parts)]


def test_a_repeated_artifact_is_passed_on_once() -> None:
    translator = RemoteEventTranslator()
    translator.translate(artifact("a", text("x")))
    assert translator.translate(artifact("a", text("xy"))) == [TextDelta("y")]
    assert translator.translate(artifact("a", text("xy"))) == []
    assert translator.translate(artifact("a", text("other"))) == [Reply.of_text("other")]


def test_data_and_files_are_passed_on() -> None:
    translator = RemoteEventTranslator()
    data: JsonObject = {"kind": "data", "data": {"n": 1}}
    file: JsonObject = {"kind": "file", "file": {"uri": "http://x/y", "mimeType": "text/csv"}}
    parts = (Part.of_text("x"), Part.of_data({"n": 1}))
    assert translator.translate(artifact("a", text("x"), data)) == [Reply(parts)]
    linked = Part.of_url("http://x/y", media_type="text/csv")
    assert translator.translate(artifact("a", file, append=True)) == [PartDelta(linked)]
    message: JsonObject = {"kind": "message", "role": "agent", "parts": [text("bye")]}
    assert translator.translate(message) == [MessageEnd(), Reply.of_text("bye")]


def test_tools_of_the_remote_agent_are_notes_and_their_results_are_marked() -> None:
    translator = RemoteEventTranslator()
    started = artifact("t", text("Started: search"), source="tool")
    assert translator.translate(started) == [Note("Started: search")]
    assert translator.translate(started) == []
    ended = artifact("t", text("Completed: search"), source="tool")
    assert translator.translate(ended) == [Note("Completed: search")]
    found = artifact("r", text("3 hits"), source="tool-result-1")
    assert translator.translate(found) == [ToolReply((Part.of_text("3 hits"),))]
    assert not translator.has_reply
