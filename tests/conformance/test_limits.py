"""Every limit, and the error past it."""

import asyncio
import json

import pytest
from tests.captured_logs import capture_logs
from tests.conformance.asgi_client import AsgiClient, Request, Response
from tests.conformance.conftest import Start, peers, token_of
from tests.conformance.protocol_clients import Json, V1Client, encode_call, v1_message
from tests.conformance.scripted_agent import ScriptedAgent
from tests.conformance.stream_outline import outline, state_of, status_text

from openclaw_a2a.model.agent_event import InputRequired, Reply, TextDelta
from openclaw_a2a.settings import Limits

RPC = "/a2a/jsonrpc"
TASKS = {"agentStyle": "task-generating"}
JSON_TYPE = {"content-type": "application/json"}


def _agent() -> ScriptedAgent:
    return ScriptedAgent(Reply.of_text("hello"))


def _as(http: AsgiClient, peer: str) -> AsgiClient:
    return http.with_headers(authorization=f"Bearer {token_of(peer)}")


def _later(response: Response) -> bool:
    """True for a refusal that says when to come back."""
    return response.status in (429, 503) and int(response.headers["retry-after"]) >= 1


async def _start(http: AsgiClient, text: str = "hello", **members: Json) -> Response:
    params = v1_message(text, configuration={"returnImmediately": True}, **members)
    return await http.post(RPC, encode_call("SendMessage", params))


@pytest.mark.requirement("inbound.rpc.body-too-large", "promise.bounds.body")
@pytest.mark.parametrize("path", [RPC, "/a2a/rest/message:send"])
async def test_body_over_the_limit_is_413_and_the_rest_is_not_read(start: Start, path: str) -> None:
    http = await start(_agent(), account={"maxBodyBytes": 10_000})
    chunks = [b" " * 4_000] * 1_000
    async with http.open(Request("POST", path, JSON_TYPE, chunks)) as active:
        await active.wait_started()
        assert active.status == 413
        body = await active.next_chunk() or b""
    assert json.loads(body)["error"]["message"]
    assert active.chunks_read <= 3


@pytest.mark.requirement("promise.bounds.body")
async def test_a_body_with_a_too_large_content_length_is_refused_unread(start: Start) -> None:
    http = await start(_agent())
    headers = {**JSON_TYPE, "content-length": "2000000"}
    async with http.open(Request("POST", RPC, headers, [b" " * 1000] * 2000)) as active:
        await active.wait_started()
        assert active.status == 413
    # Afterwards a bounded part of it is received and dropped, see `tests/server`.
    assert active.chunks_before_answer == 0


@pytest.mark.requirement("inbound.account.max-body", "inbound.rpc.body-too-large")
async def test_a_body_of_exactly_the_limit_is_accepted(start: Start) -> None:
    body = encode_call("SendMessage", v1_message())
    http = await start(_agent(), account={"maxBodyBytes": len(body)})
    assert (await http.post(RPC, body)).status == 200
    assert (await http.post(RPC, body + b" ")).status == 413


@pytest.mark.requirement("inbound.account.max-body")
async def test_default_limit_of_a_body_is_one_mebibyte(start: Start) -> None:
    http = await start(_agent())
    assert (await http.post(RPC, b" " * 1_048_576)).status == 200
    assert (await http.post(RPC, b" " * 1_048_577)).status == 413


@pytest.mark.requirement("promise.bounds.parts")
async def test_too_many_parts_are_refused(start: Start) -> None:
    agent = _agent()
    v1 = V1Client(await start(agent, settings={"limits.parts": 3}))
    assert "message" in await v1.send(parts=[{"text": "x"}] * 3)
    response = await v1.post("SendMessage", v1_message(parts=[{"text": "x"}] * 4))
    failed = response.json["error"]
    assert (response.status, failed["code"]) == (413, -32602)
    assert "message.parts" in failed["message"]
    assert len(agent.turns) == 1


@pytest.mark.requirement("promise.bounds.queue", "promise.bounds.keeps-accepted")
async def test_a_full_queue_refuses_new_work_and_keeps_accepted_work(start: Start) -> None:
    agent = ScriptedAgent()
    settings = {"limits.runs": 1, "limits.queue": 2}
    http = await start(agent, settings=settings)
    taken = [await _start(http, f"message {number}") for number in range(3)]
    assert all(response.status == 200 for response in taken)
    assert _later(await _start(http))
    assert _later(await http.post("/a2a/rest/message:send", json.dumps(v1_message()).encode()))
    for number in range(3):
        run = await agent.next_run()
        assert run.turn.body == f"message {number}"
        await run.finish(Reply.of_text("done"))
    assert len(agent.turns) == 3
    assert (await _start(http)).status == 200
    await (await agent.next_run()).finish(Reply.of_text("done"))


@pytest.mark.requirement("promise.bounds.queue")
async def test_a_full_session_queue_refuses_and_other_sessions_continue(start: Start) -> None:
    agent = ScriptedAgent()
    http = await start(agent, settings={"limits.sessionQueue": 1})
    assert (await _start(http, contextId="busy")).status == 200
    assert (await _start(http, contextId="busy")).status == 200
    assert _later(await _start(http, contextId="busy"))
    assert (await _start(http, contextId="free")).status == 200
    for _ in range(3):
        await (await agent.next_run()).finish(Reply.of_text("done"))


@pytest.mark.requirement("promise.bounds.queue")
async def test_one_peer_cannot_fill_the_queue_of_all(start: Start) -> None:
    agent = ScriptedAgent()
    settings = {**peers("alice", "bob"), "limits.runs": 1, "limits.perPeerQueue": 1}
    http = await start(agent, settings=settings)
    alice, bob = _as(http, "alice"), _as(http, "bob")
    assert (await _start(alice)).status == 200
    assert (await _start(alice)).status == 200
    assert _later(await _start(alice))
    assert (await _start(bob)).status == 200
    for _ in range(3):
        await (await agent.next_run()).finish(Reply.of_text("done"))


@pytest.mark.requirement("limits.runs")
async def test_one_peer_cannot_use_all_runs(start: Start) -> None:
    agent = ScriptedAgent()
    settings = {**peers("alice", "bob"), "limits.perPeerRuns": 1}
    http = await start(agent, settings=settings)
    await _start(_as(http, "alice"), "first", contextId="one")
    await _start(_as(http, "alice"), "second", contextId="two")
    await _start(_as(http, "bob"), "third")
    runs = [await agent.next_run(), await agent.next_run()]
    assert {run.turn.body for run in runs} == {"first", "third"}
    assert not agent.has_waiting_run
    for run in runs:
        await run.finish(Reply.of_text("done"))
    second = await agent.next_run()
    assert second.turn.body == "second"
    await second.finish(Reply.of_text("done"))


@pytest.mark.requirement("limits.rate")
async def test_a_peer_over_its_rate_gets_429_with_retry_after(start: Start) -> None:
    settings = {**peers("alice", "bob"), "limits.perPeerRate": 0.001}
    http = await start(_agent(), settings=settings)
    alice, bob = _as(http, "alice"), _as(http, "bob")
    first = [(await alice.get("/a2a/rest/tasks")) for _ in range(3)]
    assert first[0].status == 200
    assert first[-1].status == 429
    assert int(first[-1].headers["retry-after"]) >= 1
    assert (await bob.get("/a2a/rest/tasks")).status == 200
    assert (await alice.get("/.well-known/agent-card.json")).status == 200


@pytest.mark.requirement("limits.rate")
async def test_retry_after_is_never_too_early(start: Start) -> None:
    """It was rounded: of 24.4 seconds 24 were left, after which the peer was refused again."""
    http = await start(_agent(), settings={**peers("alice"), "limits.perPeerRate": 0.041})
    alice = _as(http, "alice")
    refused = [one for _ in range(3) if (one := await alice.get("/a2a/rest/tasks")).status == 429]
    for answer in refused:
        [details] = answer.json["error"]["details"]
        assert int(answer.headers["retry-after"]) >= float(details["metadata"]["retryAfterSeconds"])
    assert refused


@pytest.mark.requirement("limits.rate")
async def test_a_peer_over_its_rate_is_refused_after_a_pause(start: Start) -> None:
    """Whoever asks again at once would take the time of the others with its refusals."""
    settings = {**peers("alice", "bob"), "limits.perPeerRate": 0.001}
    http = await start(_agent(), settings=settings)
    alice = _as(http, "alice")
    assert (await alice.get("/a2a/rest/tasks")).status == 200
    has_waited = False
    for _ in range(5):  # a machine that stands still for a moment may miss the pause
        refused = asyncio.ensure_future(alice.get("/a2a/rest/tasks"))
        for _ in range(200):
            await asyncio.sleep(0)
        has_waited |= not refused.done()
        assert (await refused).status == 429
    assert has_waited


@pytest.mark.requirement("limits.rate")
async def test_the_refusals_of_a_peer_follow_each_other_with_a_pause(start: Start) -> None:
    settings = {**peers("alice", "bob"), "limits.perPeerRate": 0.001}
    http = await start(_agent(), settings=settings)
    alice, loop = _as(http, "alice"), asyncio.get_running_loop()
    assert (await alice.get("/a2a/rest/tasks")).status == 200
    began = loop.time()
    with capture_logs() as lines:
        refused = await asyncio.gather(*(alice.get("/a2a/rest/tasks") for _ in range(50)))
    assert {one.status for one in refused} == {429}
    assert loop.time() - began >= 0.25 + 49 * 0.01
    # One line for all of them; a second one, a minute later, has their number.
    assert [one["caller"] for one in lines if one["event"] == "request.refused"] == ["alice"]


@pytest.mark.requirement("limits.rate")
async def test_requests_that_a_peer_sends_at_once_leave_turns_to_another(start: Start) -> None:
    http = await start(_agent(), settings=peers("alice", "bob"))
    answered: list[str] = []

    async def ask(peer: str) -> None:
        assert (await _as(http, peer).get("/a2a/rest/tasks")).status == 200
        answered.append(peer)

    await ask("bob")
    await asyncio.gather(*(ask("alice") for _ in range(200)), ask("bob"))
    assert answered[1:].index("bob") < 20


@pytest.mark.requirement("promise.bounds.streams")
async def test_past_the_limit_of_streams_a_new_one_is_refused(start: Start) -> None:
    agent = ScriptedAgent()
    http = await start(agent, account=TASKS, settings={"limits.streams": 1})
    v1 = V1Client(http)
    async with v1.stream("SendStreamingMessage", v1_message()) as frames:
        run = await agent.next_run()
        await frames.take(1)
        subscribe = encode_call("SubscribeToTask", {"id": run.turn.task_id})
        assert _later(await http.post(RPC, subscribe))
        assert _later(await http.post(RPC, encode_call("SendStreamingMessage", v1_message())))
        assert not agent.has_waiting_run
    async with v1.stream("SubscribeToTask", {"id": run.turn.task_id}) as frames:
        await run.finish(Reply.of_text("done"))
        assert outline(await frames.rest())[-1] == "status completed"


@pytest.mark.requirement("promise.bounds.run-time")
async def test_run_past_its_deadline_fails_with_a_reason(start: Start) -> None:
    agent = ScriptedAgent()
    settings = {"limits.runSeconds": 0.05}
    v1 = V1Client(await start(agent, account=TASKS, settings=settings))
    task = (await v1.send())["task"]
    assert state_of(task) == "failed"
    assert "0.05" in status_text(task)
    assert (await agent.next_run()).has_stopped


@pytest.mark.requirement("promise.bounds.history")
async def test_a_task_with_a_full_history_refuses_messages(start: Start) -> None:
    agent = ScriptedAgent(InputRequired("And?"))
    v1 = V1Client(await start(agent, settings={"limits.historyMessages": 6}))
    task = (await v1.send())["task"]
    failed = None
    for _ in range(6):
        response = await v1.post("SendMessage", v1_message("more", taskId=task["id"]))
        failed = response.json.get("error")
        if failed:
            break
    assert failed is not None
    assert failed["code"] == -32602
    assert len((await v1.get(task["id"]))["history"]) <= 8


@pytest.mark.requirement("promise.bounds.answer")
@pytest.mark.parametrize("limit", ["limits.eventBytes", "limits.artifactBytes"])
async def test_answer_past_its_limit_fails_the_task(start: Start, limit: str) -> None:
    agent = ScriptedAgent(*[TextDelta("x" * 2_000)] * 10)
    v1 = V1Client(await start(agent, account=TASKS, settings={limit: 1_500}))
    task = (await v1.send())["task"]
    assert state_of(task) == "failed"
    assert "1500" in status_text(task)


@pytest.mark.requirement("promise.bounds.queue", "promise.bounds.streams", "promise.bounds.parts")
def test_every_bound_has_a_finite_default() -> None:
    limits = Limits()
    for name in ("runs", "queue", "session_queue", "streams"):
        assert 0 < getattr(limits, name) < 1_000_000
    for name in ("runs", "queue", "streams"):
        total = getattr(limits, name)
        assert 0 < limits.share(getattr(limits, f"per_peer_{name}"), total) <= total / 4
    assert limits.parts < 10_000


@pytest.mark.requirement("promise.bounds.body")
@pytest.mark.parametrize("path", [RPC, "/a2a/rest/message:send", "/a2a/rest/tasks/t-1:cancel"])
@pytest.mark.parametrize("chunks", [[b""], [b'{"half":', b""]])
async def test_body_that_does_not_arrive_in_time_is_408(
    start: Start, path: str, chunks: list[bytes]
) -> None:
    http = await start(_agent(), settings={"server.bodySeconds": 0.05})
    headers = {**JSON_TYPE, "content-length": "100"}
    async with http.open(Request("POST", path, headers, chunks), breaks_off=True) as active:
        await active.wait_started()
        assert active.status == 408
        assert active.headers["connection"] == "close"
        body = await active.next_chunk() or b""
    assert "0.05 seconds" in json.loads(body)["error"]["message"]
    assert (await _start(http)).status == 200


@pytest.mark.requirement("limits.rate")
async def test_rate_of_a_peer_counts_at_all_accounts_together(start: Start) -> None:
    settings = {
        **peers("alice"),
        "limits.perPeerRate": 0.001,
        "channels.a2a.accounts.other": {"defaultAgentId": "main"},
    }
    alice = _as(await start(_agent(), settings=settings), "alice")
    assert (await alice.get("/a2a/rest/tasks")).status == 200
    assert _later(await alice.get("/agents/other/a2a/rest/tasks"))
