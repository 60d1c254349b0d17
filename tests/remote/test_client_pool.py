"""Cards and clients: when they are fetched, how they are shared, which interface is chosen."""

import asyncio
from datetime import UTC, datetime, timedelta

import httpx2
import pytest
from tests.remote.scripted_peer import (
    Answer,
    PeerRequest,
    PeerWriter,
    by_method,
    card_of,
    hang_up,
    in_turn,
    message,
    respond,
    result,
    rpc_error,
    scripted,
    stay_silent,
    stream,
    task,
)
from tests.remote.tool_harness import one_target, open_tool, target

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.remote.result import RemoteFailure
from openclaw_a2a.remote.result_builder import StreamUpdate
from openclaw_a2a.remote.transport.circuit_breaker import FAILURES_TO_OPEN, CircuitBreaker
from openclaw_a2a.remote.transport.client_pool import SingleFlight
from openclaw_a2a.remote.transport.peer_errors import to_failure


@pytest.mark.requirement("remote.list.age")
async def test_a_card_is_listed_again_only_when_it_is_old() -> None:
    async with scripted(result(message())) as peer, open_tool(one_target(peer.url)) as harness:
        await harness.execute("list_targets")
        harness.advance(300)
        await harness.execute("list_targets")
        assert peer.card_requests == 1
        harness.advance(1)
        await harness.execute("list_targets")
        assert peer.card_requests == 2


@pytest.mark.requirement("remote.list.recorded", "remote.client.kept")
async def test_a_client_needs_its_card_once_and_records_it() -> None:
    async with scripted(result(message())) as peer, open_tool(one_target(peer.url)) as harness:
        await harness.send("hi")
        harness.advance(3600)
        await harness.send("hi")
        assert peer.card_requests == 1
        harness.advance(-3600)
        listed = await harness.execute("list_targets")
        assert peer.card_requests == 1, "the card of the client is the newest there is"
        assert listed["summary"]["targets"][0]["target_name"] == "Scripted"


@pytest.mark.requirement("remote.list.failed", "remote.list.age")
async def test_a_failed_refresh_keeps_the_card_and_records_the_error() -> None:
    async with scripted(result(message())) as peer, open_tool(one_target(peer.url)) as harness:
        await harness.execute("list_targets")
        peer.card_answer = respond("", status="500 Oh No")
        harness.advance(301)
        [entry] = (await harness.execute("list_targets"))["summary"]["targets"]
        assert entry["target_name"] == "Scripted"
        assert entry["last_refresh_error"]["details"]["httpStatus"] == 500
        assert entry["last_refreshed_at"] == "2026-01-01T00:05:01.000Z"
        peer.card_answer = None
        [entry] = (await harness.execute("list_targets"))["summary"]["targets"]
        assert "last_refresh_error" not in entry


@pytest.mark.requirement(
    "remote.list.entry", "remote.list.raw", "remote.list.clean", "remote.list.copies"
)
async def test_what_is_listed_has_the_shape_of_the_contract() -> None:
    async with scripted() as peer:
        more = {"url": f"{peer.url}rest", "protocolBinding": "http+json", "protocolVersion": "1.0"}
        skill = {"id": " s ", "name": "Skill", "tags": ["a", "a", " "], "inputModes": ["x/y"]}
        extension = {"uri": "https://x.example/e"}
        capabilities = {"streaming": True, "pushNotifications": "yes", "extensions": [extension]}
        peer.card = card_of(peer.url, skills=[skill, 7, {}], capabilities=capabilities)
        peer.card["supportedInterfaces"] += [more, more, {"url": " ", "protocolBinding": "GRPC"}]
        config = one_target(peer.url, tags=["t"], examples=["e"], description=" Mine ")
        async with open_tool(config) as harness:
            listed = await harness.execute("list_targets")
            interfaces = [{"transport": "http+json", "url": f"{peer.url}rest"}]
            skill_shown = {
                "id": "s",
                "name": "Skill",
                "description": "Skill",
                "tags": ["a"],
                "examples": [],
            }
            assert listed["summary"]["targets"] == [
                {
                    "target_alias": "peer",
                    "target_url": peer.url,
                    "default": True,
                    "tags": ["t"],
                    "examples": ["e"],
                    "target_name": "Scripted",
                    "description": "Mine",
                    "streaming_supported": True,
                    "peer_card": {
                        "preferred_transport": "JSONRPC",
                        "additional_interfaces": interfaces,
                        "capabilities": {"streaming": True, "extensions": [extension]},
                        "default_input_modes": ["text/plain"],
                        "default_output_modes": ["text/plain"],
                        "skills": [{**skill_shown, "input_modes": ["x/y"]}],
                    },
                    "last_refreshed_at": "2026-01-01T00:00:00.000Z",
                }
            ]
            assert listed["raw"] == [
                {
                    "target": {
                        "baseUrl": peer.url,
                        "cardPath": "/.well-known/agent-card.json",
                        "preferredTransports": ["JSONRPC", "HTTP+JSON"],
                        "alias": "peer",
                        "displayName": "Scripted",
                        "description": "Mine",
                        "streamingSupported": True,
                    },
                    "configuredDescription": "Mine",
                    "default": True,
                    "tags": ["t"],
                    "examples": ["e"],
                    "card": {
                        "displayName": "Scripted",
                        "description": "Says what it is told to.",
                        "preferredTransport": "JSONRPC",
                        "additionalInterfaces": interfaces,
                        "capabilities": {"streaming": True, "extensions": [extension]},
                        "defaultInputModes": ["text/plain"],
                        "defaultOutputModes": ["text/plain"],
                        "skills": [{**skill_shown, "inputModes": ["x/y"]}],
                        "lastRefreshedAt": "2026-01-01T00:00:00.000Z",
                    },
                }
            ]
            listed["summary"]["targets"][0]["peer_card"]["skills"].clear()
            again = await harness.execute("list_targets")
            assert again["summary"]["targets"][0]["peer_card"]["skills"]


@pytest.mark.requirement("remote.list.shared")
async def test_concurrent_fetches_of_one_card_share_one_request() -> None:
    async with scripted(result(message())) as peer, open_tool(one_target(peer.url)) as harness:
        answers = await asyncio.gather(
            *[harness.send("hi") for _ in range(5)], harness.execute("list_targets")
        )
        assert all(answer["ok"] for answer in answers)
        assert peer.card_requests == 1


async def test_the_fetch_goes_on_when_its_first_caller_is_cancelled() -> None:
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def slowly(received: PeerRequest, writer: PeerWriter) -> None:
        asked.set()
        await may_answer.wait()
        await respond(card_of(peer.url))(received, writer)

    async with (
        scripted(result(message()), card_answer=slowly) as peer,
        open_tool(one_target(peer.url)) as harness,
    ):
        first = asyncio.create_task(harness.send("hi"))
        await asyncio.wait_for(asked.wait(), 240)
        second = asyncio.create_task(harness.send("hi"))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        may_answer.set()
        assert (await second)["ok"]
        assert peer.card_requests == 1


async def test_a_flight_without_waiters_is_cancelled() -> None:
    flights: SingleFlight[int] = SingleFlight()
    is_ended = asyncio.Event()

    async def work() -> int:
        try:
            await asyncio.Event().wait()
        finally:
            is_ended.set()
        return 1

    waiters = [asyncio.create_task(flights.run("k", work)) for _ in range(3)]
    await asyncio.sleep(0)
    for waiter in waiters:
        waiter.cancel()
    await asyncio.gather(*waiters, return_exceptions=True)
    assert is_ended.is_set()
    assert await flights.run("k", lambda: _value(2)) == 2


async def _value(value: int) -> int:
    return value


async def test_a_failed_flight_fails_for_all_waiters_and_the_next_call_starts_again() -> None:
    flights: SingleFlight[int] = SingleFlight()

    async def fail() -> int:
        raise ValueError

    results = await asyncio.gather(
        flights.run("k", fail), flights.run("k", fail), return_exceptions=True
    )
    assert [type(one) for one in results] == [ValueError, ValueError]
    assert await flights.run("k", lambda: _value(3)) == 3


# -------------------------------------------------------------------- transports


def _face(url: str, binding: str, version: str = "1.0") -> dict[str, str]:
    return {"url": url, "protocolBinding": binding, "protocolVersion": version}


@pytest.mark.requirement("remote.client.order")
@pytest.mark.parametrize(
    ("preferred", "offered", "path"),
    [
        (["JSONRPC"], [("HTTP+JSON", "1.0"), ("jsonrpc", "1.0")], "/1"),
        (["HTTP+JSON", "JSONRPC"], [("JSONRPC", "1.0"), ("http+json", "1.0")], "/1/message:send"),
        (["HTTP+JSON"], [("JSONRPC", "1.0")], "/0"),
        (["JSONRPC"], [("SOAP", "1.0"), ("HTTP+JSON", "1.0")], "/1/message:send"),
        (["JSONRPC"], [("JSONRPC", "0.3"), ("JSONRPC", "1.0")], "/1"),
    ],
)
async def test_the_transport_is_chosen_by_our_preference_then_by_the_card(
    preferred: list[str], offered: list[tuple[str, str]], path: str
) -> None:
    async with scripted() as peer:
        is_rest = path.endswith(":send")
        peer.answer = respond(message()) if is_rest else result(message())
        faces = [
            _face(f"{peer.url}{index}", binding, version)
            for index, (binding, version) in enumerate(offered)
        ]
        peer.card = card_of(peer.url, supportedInterfaces=faces)
        async with open_tool(one_target(peer.url, preferredTransports=preferred)) as harness:
            assert (await harness.send("hi"))["ok"]
        assert peer.calls[0].path == path


async def _fall_back(answer: Answer, *, allowed: bool, **request: bool) -> tuple[bool, int]:
    """Whether a send got through, when the preferred interface is dead; and the calls it took."""
    async with scripted(answer) as peer:
        faces = [_face("http://127.0.0.1:1/", "JSONRPC"), _face(f"{peer.url}rest", "HTTP+JSON")]
        peer.card = card_of(peer.url, supportedInterfaces=faces)
        policy = {"transportFallback": allowed}
        config = one_target(peer.url, policy=policy, allowedHosts=["127.0.0.1:1"])
        async with open_tool(config) as harness:
            envelope = await harness.send("hi", **request)
            return envelope["ok"], len(peer.calls)


@pytest.mark.requirement("remote.client.no-second")
async def test_the_next_interface_is_tried_only_when_the_policy_allows_it() -> None:
    assert await _fall_back(respond(message()), allowed=True) == (True, 1)
    assert await _fall_back(respond(message()), allowed=False) == (False, 0)


async def test_a_stream_falls_back_too() -> None:
    answer = respond(
        'data: {"message": {"messageId": "m", "role": "ROLE_AGENT"}}\n\n',
        kind="text/event-stream",
    )
    assert await _fall_back(answer, allowed=True, follow_updates=True) == (True, 1)


async def test_no_fallback_after_a_request_was_sent() -> None:
    async with scripted(hang_up) as peer:
        faces = [_face(f"{peer.url}rpc", "JSONRPC"), _face(f"{peer.url}rest", "HTTP+JSON")]
        peer.card = card_of(peer.url, supportedInterfaces=faces)
        config = one_target(peer.url, policy={"transportFallback": True})
        async with open_tool(config) as harness:
            await harness.fail_send()
        assert [one.path for one in peer.calls] == ["/rpc"]


# -------------------------------------------------------------------- repeating, health


@pytest.mark.requirement("remote.health.repeat")
async def test_only_safe_requests_are_repeated() -> None:
    async with scripted(hang_up) as peer, open_tool(one_target(peer.url)) as harness:
        await harness.fail_send()
        assert len(peer.calls) == 1, "the peer may have taken the message"
        await harness.fail("cancel", task_id="t-1")
        assert len(peer.calls) == 2
        peer.answer = in_turn(hang_up, hang_up, result(task("WORKING")["task"]))
        assert (await harness.execute("status", task_id="t-1"))["ok"]
        assert len(peer.calls) == 5


async def test_an_rpc_error_is_not_repeated() -> None:
    async with (
        scripted(rpc_error(-32603, "no")) as peer,
        open_tool(one_target(peer.url)) as harness,
    ):
        await harness.fail("status", task_id="t-1")
        assert len(peer.calls) == 1


@pytest.mark.requirement("remote.health.breaker", "remote.diagnose.every")
async def test_the_circuit_opens_after_five_failures_and_closes_after_a_success() -> None:
    async with scripted(hang_up) as peer, open_tool(one_target(peer.url)) as harness:
        for _ in range(5):
            await harness.fail_send()
        asked = len(peer.requests)
        error = await harness.fail_send()
        assert len(peer.requests) == asked, "it was not asked"
        assert error["code"] == "A2A_SDK_ERROR"
        assert error["details"]["errorName"] == "CircuitOpen"
        assert error["details"]["retry_at"] == "2026-01-01T00:00:05Z"
        assert error["details"]["hint"]
        assert error["details"]["capability_diagnostics"]
        harness.advance(5)
        peer.answer = result(message())
        assert (await harness.send("hi"))["ok"]
        assert (await harness.send("hi"))["ok"]


@pytest.mark.requirement("remote.health.breaker")
async def test_a_failed_trial_opens_the_circuit_for_longer() -> None:
    async with scripted(hang_up) as peer, open_tool(one_target(peer.url)) as harness:
        for _ in range(5):
            await harness.fail_send()
        harness.advance(5)
        await harness.fail_send()
        error = await harness.fail_send()
        assert error["details"]["retry_at"] == "2026-01-01T00:00:15Z"


async def test_a_peer_that_failed_for_days_is_tried_again() -> None:
    async with scripted(hang_up) as peer, open_tool(one_target(peer.url)) as harness:
        for _ in range(70):
            error = await harness.fail_send()
            assert error["code"] == "A2A_SDK_ERROR"
            harness.advance(120)
        peer.answer = result(message())
        assert (await harness.send("hi"))["ok"]


async def test_concurrent_failures_open_the_circuit_once() -> None:
    async with scripted(hang_up) as peer, open_tool(one_target(peer.url)) as harness:
        await asyncio.gather(*[harness.fail_send() for _ in range(40)])
        error = await harness.fail_send()
        assert error["details"]["retry_at"] == "2026-01-01T00:00:05Z"


async def test_an_open_circuit_affects_only_its_own_target() -> None:
    async with scripted(hang_up) as bad, scripted(result(message())) as good:
        config = one_target(bad.url)
        config["targets"].append(target(good.url, "good"))
        async with open_tool(config) as harness:
            for _ in range(6):
                await harness.fail_send()
            assert (await harness.send("hi", target_alias="good"))["ok"]


async def test_a_timed_out_or_cancelled_trial_lets_the_next_call_try() -> None:
    async with scripted(hang_up) as peer, open_tool(one_target(peer.url)) as harness:
        for _ in range(5):
            await harness.fail_send()
        harness.advance(5)
        peer.answer = stay_silent
        error = await harness.fail_send(timeout_ms=200)
        assert error["message"] == "request timed out"
        peer.answer = result(message())
        assert (await harness.send("hi"))["ok"], "the next one may try"


@pytest.mark.requirement("remote.health.breaker")
async def test_the_first_event_of_a_trial_stream_closes_the_circuit() -> None:
    answer = by_method(
        SendStreamingMessage=stream(task("WORKING"), stays=True),
        GetTask=result(task("WORKING")["task"]),
        CancelTask=result(task("CANCELED")["task"]),
    )
    async with scripted(hang_up) as peer, open_tool(one_target(peer.url)) as harness:
        for _ in range(5):
            await harness.fail_send()
        harness.advance(5)
        peer.answer = answer
        trial = asyncio.create_task(harness.send("hi", follow_updates=True, timeout_ms=240_000))
        await asyncio.wait_for(harness.has_update.wait(), 240)
        for action in ("status", "cancel"):
            envelope = await harness.execute(action, task_id="t-1")
            assert envelope["ok"], envelope
        trial.cancel()
        await asyncio.gather(trial, return_exceptions=True)


@pytest.mark.requirement("remote.health.breaker")
async def test_the_answer_to_a_trial_that_is_polled_closes_the_circuit() -> None:
    async with scripted(hang_up) as peer, open_tool(one_target(peer.url)) as harness:
        peer.card = card_of(peer.url, capabilities={"streaming": False})
        for _ in range(5):
            await harness.fail_send()
        harness.advance(5)
        working = result(task("WORKING")["task"])
        peer.answer = by_method(SendMessage=result(task("WORKING")), GetTask=working)
        trial = asyncio.create_task(harness.send("hi", follow_updates=True, timeout_ms=240_000))
        await asyncio.wait_for(harness.has_update.wait(), 240)
        envelope = await harness.execute("status", task_id="t-1")
        assert envelope["ok"], envelope
        trial.cancel()
        await asyncio.gather(trial, return_exceptions=True)


@pytest.mark.requirement("remote.health.breaker")
async def test_another_trial_is_allowed_five_seconds_after_one_that_has_no_answer() -> None:
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    breaker = CircuitBreaker(lambda: now[0])
    broken = httpx2.ConnectError("refused")

    async def fail() -> JsonObject:
        with pytest.raises(RemoteFailure) as raised:
            async with breaker.guard("http://peer/"):
                raise to_failure(broken) from broken
        return raised.value.details

    for _ in range(FAILURES_TO_OPEN):
        await fail()
    now[0] += timedelta(seconds=60)
    async with breaker.guard("http://peer/"):
        refused = await fail()
        assert refused["errorName"] == "CircuitOpen"
        assert refused["retry_at"] == "2026-01-01T00:01:05Z"
        now[0] += timedelta(seconds=5)
        async with breaker.guard("http://peer/"):
            assert (await fail())["errorName"] == "CircuitOpen", "one trial every five seconds"
        assert breaker.circuit("http://peer/").state.value == "closed"


@pytest.mark.requirement("remote.health.breaker")
async def test_a_cancelled_trial_leaves_a_later_trial_alone() -> None:
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    breaker = CircuitBreaker(lambda: now[0])
    broken = httpx2.ConnectError("refused")

    async def fail() -> None:
        async with breaker.guard("http://peer/"):
            raise to_failure(broken) from broken

    for _ in range(FAILURES_TO_OPEN):
        with pytest.raises(RemoteFailure):
            await fail()
    now[0] += timedelta(seconds=5)
    first = breaker.guard("http://peer/")
    await first.__aenter__()
    now[0] += timedelta(seconds=5)
    async with breaker.guard("http://peer/"):
        error = asyncio.CancelledError()
        assert not await first.__aexit__(type(error), error, None)
        assert breaker.circuit("http://peer/").state.value == "half-open"
        with pytest.raises(RemoteFailure, match="is not asked before"):
            await fail()


async def test_an_answer_over_the_limit_is_not_a_network_failure() -> None:
    large = result(message("x" * 5000))
    async with scripted(large) as peer, open_tool(one_target(peer.url), limit=4096) as harness:
        for _ in range(7):
            error = await harness.fail("status", task_id="t-1")
            assert error["details"].get("errorName") != "CircuitOpen"
        assert len(peer.calls) == 7


async def test_the_card_is_read_again_after_a_network_failure() -> None:
    async with scripted(result(message())) as peer, open_tool(one_target(peer.url)) as harness:
        peer.card = card_of(peer.url, supportedInterfaces=[_face("http://127.0.0.1:1/", "JSONRPC")])
        await harness.fail_send()
        peer.card = None
        assert (await harness.send("hi"))["ok"]


@pytest.mark.requirement("remote.summary.kind")
async def test_a_stream_of_a_message_is_an_answer() -> None:
    async with scripted(stream(message("one"))) as peer, open_tool(one_target(peer.url)) as harness:
        envelope = await harness.send("hi", follow_updates=True)
        assert envelope["summary"]["response_kind"] == "message"
        assert envelope["summary"]["message_text"] == "one"
        peer.answer = stream(message("one"), message("two"))
        envelope = await harness.send("hi", follow_updates=True)
        assert "response_kind" not in envelope["summary"]


# -------------------------------------------------------------------- connections


@pytest.mark.slow
async def test_quiet_watches_of_one_target_leave_the_connections_of_others_alone() -> None:
    watches = 120
    quiet = stream(task("WORKING"), stays=True)
    answer = by_method(SubscribeToTask=quiet, SendMessage=result(message("and still here")))
    async with scripted(answer) as busy, scripted(result(message("well"))) as healthy:
        config = one_target(busy.url)
        config["targets"].append(target(healthy.url, "healthy"))
        async with open_tool(config) as harness, asyncio.timeout(240):
            seen = asyncio.Semaphore(0)

            async def on_update(_: StreamUpdate) -> None:
                seen.release()

            watch = {"action": "watch", "task_id": "t-1", "timeout_ms": 60_000}
            watching = [
                asyncio.create_task(harness.tool.execute(watch, on_update)) for _ in range(watches)
            ]
            for _ in range(watches):
                await seen.acquire()
            for alias, text in (("healthy", "well"), ("peer", "and still here")):
                outcome = await harness.send("hi", target_alias=alias, timeout_ms=30_000)
                assert outcome["ok"], outcome
                assert outcome["summary"]["message_text"] == text
            for one in watching:
                one.cancel()
            await asyncio.gather(*watching, return_exceptions=True)


async def test_a_full_pool_of_our_own_does_not_open_the_circuit_of_the_peer() -> None:
    breaker = CircuitBreaker(lambda: datetime(2026, 1, 1, tzinfo=UTC))
    for _ in range(FAILURES_TO_OPEN + 1):
        failure = to_failure(httpx2.PoolTimeout("no connection left"))
        with pytest.raises(RemoteFailure) as raised:
            async with breaker.guard("http://peer/"):
                raise failure from httpx2.PoolTimeout("no connection left")
        assert raised.value.details["errorName"] == "PoolTimeout"
        assert "nothing was sent" in raised.value.details["hint"]


async def test_a_full_pool_of_our_own_says_nothing_about_the_peer() -> None:
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    breaker = CircuitBreaker(lambda: now[0])

    async def fail(error: httpx2.TransportError) -> JsonObject:
        with pytest.raises(RemoteFailure) as raised:
            async with breaker.guard("http://peer/"):
                raise to_failure(error) from error
        return raised.value.details

    full, broken = httpx2.PoolTimeout("no connection left"), httpx2.ConnectError("refused")
    for _ in range(FAILURES_TO_OPEN - 1):
        await fail(broken)
        await fail(full)
    await fail(broken)
    assert (await fail(broken))["errorName"] == "CircuitOpen", "the failures before still count"
    now[0] += timedelta(seconds=6)
    assert (await fail(full))["errorName"] == "PoolTimeout", "the one trial"
    assert (await fail(broken))["errorName"] == "ConnectError", "the next one may try"
    assert (await fail(broken))["errorName"] == "CircuitOpen"


async def test_no_name_of_a_background_task_has_a_credential() -> None:
    names: list[str] = []

    async def answer(received: PeerRequest, writer: PeerWriter) -> None:
        names.extend(task.get_name() for task in asyncio.all_tasks())
        await respond(card_of(peer.url))(received, writer)

    async with scripted(result(message()), card_answer=answer) as peer:
        auth = {"type": "bearer", "token": "tok-4f9a8b7c6d5e"}
        async with open_tool(one_target(peer.url, auth=auth)) as harness:
            assert (await harness.send("hi"))["ok"]
    assert any(peer.url in name for name in names), "the request is named by its address"
    assert not any("tok-4f9a8b7c6d5e" in name for name in names)
