"""Peers over gRPC behave like those over the other transports."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from tests.remote.certificates import make_certificate
from tests.remote.grpc_peer import Context, GrpcPeer, TcpRelay, carded, grpc_peer, relay_to, working
from tests.remote.scripted_peer import artifact_update, message, scripted, status_update, task
from tests.remote.tool_harness import one_target, open_tool

from openclaw_a2a.model.ids import JsonObject

LIMIT_S = 240.0
TOKEN = "sesame-1a2b3c4d"
NAME = "peer.example.com"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module", autouse=True)
async def one_loop() -> AsyncIterator[None]:
    """All tests here share a loop: servers of grpc tell theirs that they ended, also later."""
    yield
    await asyncio.sleep(0.2)  # there is nothing of theirs that could be awaited


def grpc_target(url: str, **more: object) -> JsonObject:
    allowed = {"allowedHosts": ["127.0.0.1"], **more}  # gRPC has a port of its own
    return one_target(url, preferredTransports=["GRPC"], **allowed)


def refuses(status: grpc.StatusCode, reason: str):
    async def answer(peer: GrpcPeer, context: Context) -> JsonObject:
        await context.abort(status, reason)
        raise AssertionError

    return answer


async def hold(peer: GrpcPeer, context: Context) -> JsonObject:
    await asyncio.sleep(600)
    raise AssertionError


async def to_loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


# -------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, "set auth"),
        (grpc.StatusCode.PERMISSION_DENIED, "set auth"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "too much to do"),
        (grpc.StatusCode.INTERNAL, "try again later"),
        (grpc.StatusCode.CANCELLED, "try again later"),
        (grpc.StatusCode.UNIMPLEMENTED, "protocol version"),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
async def test_an_error_status_is_reported_and_not_repeated(
    status: grpc.StatusCode, hint: str
) -> None:
    async with grpc_peer(refuses(status, "because")) as peer, open_tool(grpc_target(peer.url)) as d:
        error = await d.fail_send()
    assert error["code"] == "A2A_SDK_ERROR"
    assert error["message"] == f"the peer answered with gRPC status {status.name}: because"
    assert error["details"]["errorName"]
    assert error["details"]["grpcStatus"] == status.name
    assert hint in error["details"]["hint"]
    assert len(peer.requests) == 1
    is_unknown = status is grpc.StatusCode.UNIMPLEMENTED
    assert error["details"].get("rpcCode") == (-32601 if is_unknown else None)


async def test_an_error_status_of_a_stream_is_reported() -> None:
    async def events(peer: GrpcPeer, context: Context) -> AsyncIterator[JsonObject]:
        yield task("WORKING")
        await context.abort(grpc.StatusCode.CANCELLED, "enough")

    async with grpc_peer(events=events) as peer, open_tool(grpc_target(peer.url)) as harness:
        error = await harness.fail_send(follow_updates=True)
    assert error["details"]["grpcStatus"] == "CANCELLED"
    assert error["details"]["partial_event_count"] == 1


async def test_a_token_in_an_error_status_is_redacted() -> None:
    answer = refuses(grpc.StatusCode.UNAUTHENTICATED, f"{TOKEN} is not welcome")
    async with grpc_peer(answer) as peer:
        config = grpc_target(peer.url, auth={"type": "bearer", "token": TOKEN})
        async with open_tool(config) as harness:
            error = await harness.fail_send()
    assert "[hidden] is not welcome" in error["message"]
    assert TOKEN not in json.dumps(error)


# -------------------------------------------------------------------- metadata


async def test_credentials_and_service_parameters_are_sent_as_metadata() -> None:
    async with grpc_peer() as peer:
        config = grpc_target(peer.url, auth={"type": "bearer", "token": TOKEN})
        config["defaults"]["serviceParameters"] = {"X-Team": "blue", "A2A-Version": "7"}
        async with open_tool(config) as harness:
            envelope = await harness.send("hi", service_parameters={"X-Trace": "t-1"})
    assert envelope["ok"], envelope
    assert TOKEN not in json.dumps(harness.envelopes)
    assert sorted(peer.requests[0]) == [
        ("a2a-version", "1.0"),
        ("authorization", f"Bearer {TOKEN}"),
        ("x-team", "blue"),
        ("x-trace", "t-1"),
    ]


@pytest.mark.parametrize(
    "parameters", [{"x!y": "1"}, {"x-bin": "1"}, {"grpc-timeout": "1S"}, {"x": "a\tb"}]
)
async def test_a_service_parameter_that_grpc_cannot_carry_is_named_and_nothing_is_sent(
    parameters: dict[str, str],
) -> None:
    async with grpc_peer() as peer, open_tool(grpc_target(peer.url)) as harness:
        error = await harness.fail_send(service_parameters=parameters)
    assert error["details"]["errorName"] == "InvalidServiceParameter"
    assert next(iter(parameters)) in error["message"]
    assert peer.requests == []


# -------------------------------------------------------------------- a peer that is not there


async def test_an_unreachable_peer_is_tried_again_and_reported() -> None:
    async with (
        relay_to(None) as relay,
        carded(f"127.0.0.1:{relay.port}") as url,
        open_tool(grpc_target(url)) as harness,
    ):
        error = await harness.fail_send()
    assert error["code"] == "A2A_SDK_ERROR"
    assert error["details"]["errorName"] == "ConnectError"
    assert "cannot be reached" in error["details"]["hint"]
    assert relay.connections == 3


async def test_the_circuit_opens_for_an_unreachable_peer() -> None:
    async with carded("127.0.0.1:1") as url, open_tool(grpc_target(url)) as harness:
        for _ in range(5):
            error = await harness.fail("watch", task_id="t-1")
            assert error["details"]["errorName"] == "ConnectError"
        error = await harness.fail("watch", task_id="t-1")
    assert error["details"]["errorName"] == "CircuitOpen"


async def test_the_next_interface_is_tried_when_the_policy_allows_it() -> None:
    async with grpc_peer() as peer:
        faces = [
            {"url": "127.0.0.1:1", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
            {"url": f"grpc://127.0.0.1:{peer.port}", "protocolBinding": "grpc"},
        ]
        async with scripted(card={"supportedInterfaces": faces}) as card:
            config = grpc_target(card.url, policy={"transportFallback": True})
            async with open_tool(config) as harness:
                envelope = await harness.send("hi")
    assert envelope["ok"], envelope


async def _cut_once(peer: GrpcPeer, relay: TcpRelay) -> None:
    await peer.has_request.wait()
    relay.cut()


async def test_a_send_that_may_have_arrived_is_not_repeated() -> None:
    async with (
        grpc_peer(hold) as peer,
        relay_to(peer.port) as relay,
        carded(f"127.0.0.1:{relay.port}") as url,
        open_tool(grpc_target(url)) as harness,
        asyncio.timeout(LIMIT_S),
    ):
        error, _ = await asyncio.gather(harness.fail_send(), _cut_once(peer, relay))
    assert error["details"]["grpcStatus"] == "UNAVAILABLE"
    assert "connection broke" in error["details"]["hint"]
    assert len(peer.requests) == 1


async def test_a_status_is_repeated_after_the_connection_broke() -> None:
    async def answer(peer: GrpcPeer, context: Context) -> JsonObject:
        return await (hold if len(peer.requests) == 1 else working)(peer, context)

    async with (
        grpc_peer(answer) as peer,
        relay_to(peer.port) as relay,
        carded(f"127.0.0.1:{relay.port}") as url,
        open_tool(grpc_target(url)) as harness,
        asyncio.timeout(LIMIT_S),
    ):
        envelope, _ = await asyncio.gather(
            harness.execute("status", task_id="t-1"), _cut_once(peer, relay)
        )
    assert envelope["ok"], envelope
    assert len(peer.requests) == 2


# -------------------------------------------------------------------- deadlines and going away


async def test_a_deadline_cancels_the_call_at_the_peer() -> None:
    async with (
        grpc_peer(hold) as peer,
        open_tool(grpc_target(peer.url)) as harness,
        asyncio.timeout(LIMIT_S),
    ):
        # Long enough for the request to arrive: otherwise there is nothing to be canceled.
        error = await harness.fail_send(timeout_ms=3000)
        await peer.gone.wait()
    assert error["message"] == "request timed out"


async def test_a_peer_that_accepts_and_stays_silent_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        async with carded(f"127.0.0.1:{port}") as url, open_tool(grpc_target(url)) as harness:
            error = await harness.fail_send(timeout_ms=300)
    assert error["message"] == "request timed out"


@pytest.mark.parametrize("follows", [False, True], ids=["plain", "streamed"])
async def test_a_cancelled_caller_cancels_the_call_at_the_peer(follows: bool) -> None:
    async def events(peer: GrpcPeer, context: Context) -> AsyncIterator[JsonObject]:
        yield task("WORKING")
        await hold(peer, context)

    async with (
        grpc_peer(hold, events=events) as peer,
        open_tool(grpc_target(peer.url)) as harness,
        asyncio.timeout(LIMIT_S),
    ):
        call = asyncio.create_task(harness.send("hi", follow_updates=follows))
        await (harness.has_update if follows else peer.has_request).wait()
        call.cancel()
        await peer.gone.wait()
        [outcome] = await asyncio.gather(call, return_exceptions=True)
    assert isinstance(outcome, asyncio.CancelledError)


async def test_a_stream_that_stays_open_after_its_end_is_closed_by_us() -> None:
    async def events(peer: GrpcPeer, context: Context) -> AsyncIterator[JsonObject]:
        yield task("WORKING")
        yield status_update("COMPLETED")
        await hold(peer, context)

    async with (
        grpc_peer(events=events) as peer,
        open_tool(grpc_target(peer.url)) as harness,
        asyncio.timeout(LIMIT_S),
    ):
        envelope = await harness.send("hi", follow_updates=True)
        await peer.gone.wait()
    assert envelope["ok"], envelope


async def test_a_failed_call_does_not_break_others() -> None:
    may_end = asyncio.Event()

    async def events(peer: GrpcPeer, context: Context) -> AsyncIterator[JsonObject]:
        yield task("WORKING")
        await may_end.wait()
        yield status_update("COMPLETED")

    answer = refuses(grpc.StatusCode.UNAVAILABLE, "closed for lunch")
    async with (
        grpc_peer(answer, events=events) as peer,
        open_tool(grpc_target(peer.url)) as harness,
        asyncio.timeout(LIMIT_S),
    ):
        follower = asyncio.create_task(harness.send("hi", follow_updates=True))
        await harness.has_update.wait()
        other = await harness.tool.execute(
            {"action": "send", "parts": [{"kind": "text", "text": "x"}], "timeout_ms": 60_000}
        )
        assert other["error"]["details"]["grpcStatus"] == "UNAVAILABLE"
        may_end.set()
        envelope = await follower
    assert envelope["ok"], envelope
    assert envelope["summary"]["continuation"]["task"]["status"] == "completed"


# -------------------------------------------------------------------- how much is read


async def test_an_answer_that_is_too_large_is_not_read() -> None:
    async def answer(peer: GrpcPeer, context: Context) -> JsonObject:
        return message("x" * 20_000)

    async with grpc_peer(answer) as peer, open_tool(grpc_target(peer.url), limit=10_000) as harness:
        error = await harness.fail_send()
    assert "larger than we read" in error["details"]["hint"]
    assert len(peer.requests) == 1


async def test_a_stream_has_a_total_size_limit() -> None:
    async def events(peer: GrpcPeer, context: Context) -> AsyncIterator[JsonObject]:
        yield task("WORKING")
        while True:
            yield artifact_update("x" * 1000, append=True)

    async with (
        grpc_peer(events=events) as peer,
        open_tool(grpc_target(peer.url), limit=10_000) as harness,
        asyncio.timeout(LIMIT_S),
    ):
        error = await harness.fail_send(follow_updates=True)
        await peer.gone.wait()
    assert "larger than we read" in error["details"]["hint"]
    assert error["details"]["partial_event_count"] < 11


async def test_compressed_answers_are_refused() -> None:
    async def answer(peer: GrpcPeer, context: Context) -> JsonObject:
        context.set_compression(grpc.Compression.Gzip)
        return message("x" * 20_000)

    async with (
        grpc_peer(answer, compression=grpc.Compression.Gzip) as peer,
        open_tool(grpc_target(peer.url), limit=10_000) as harness,
    ):
        error = await harness.fail_send()
    assert error["details"]["errorName"] == "AnswerUnreadable"


# -------------------------------------------------------------------- secure connections


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A certificate for NAME that we trust."""
    file = make_certificate(tmp_path, NAME)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    return file


def secure_target(url: str) -> JsonObject:
    return grpc_target(url, allowedHosts=[NAME, "other.example.com", "127.0.0.1"])


@pytest.mark.parametrize("scheme", ["grpcs", "https", "GRPCS"])
async def test_a_secure_address_uses_tls_with_its_name(certificate: Path, scheme: str) -> None:
    address = f"{scheme}://{NAME}:{{port}}"
    async with (
        grpc_peer(certificate=certificate, address=address) as peer,
        open_tool(secure_target(peer.url), resolve=to_loopback) as harness,
    ):
        envelope = await harness.send("hi")
    assert envelope["ok"], envelope


@pytest.mark.parametrize(
    ("address", "is_secure"),
    [
        ("grpcs://other.example.com:{port}", True),  # the certificate is for another name
        ("grpcs://127.0.0.1:{port}", False),
        ("grpc://127.0.0.1:{port}", True),
        ("127.0.0.1:{port}", True),
    ],
)
async def test_a_plaintext_peer_at_a_secure_address_is_refused(
    certificate: Path, address: str, is_secure: bool
) -> None:
    served = certificate if is_secure else None
    async with (
        grpc_peer(certificate=served, address=address) as peer,
        open_tool(secure_target(peer.url), resolve=to_loopback) as harness,
    ):
        error = await harness.fail("watch", task_id="t-1")
    assert error["details"]["errorName"] == "ConnectError"
    assert peer.requests == []


async def test_an_untrusted_certificate_is_refused(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, NAME)
    address = f"grpcs://{NAME}:{{port}}"
    async with (
        grpc_peer(certificate=certificate, address=address) as peer,
        open_tool(secure_target(peer.url), resolve=to_loopback) as harness,
    ):
        error = await harness.fail("watch", task_id="t-1")
    assert "certificate is not trusted" in error["message"]
    assert peer.requests == []


async def test_a_caller_named_address_is_connected_to_at_its_checked_address(
    certificate: Path,
) -> None:
    asked: list[tuple[str, int]] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append((host, port))
        return ["::1", "127.0.0.1"]  # nobody listens at the first one

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    policy = {"allowTargetUrlOverride": True, "allowPrivateTargets": True}
    defaults = {"preferredTransports": ["GRPC"]}
    async with (
        grpc_peer(certificate=certificate) as peer,
        # An address without a scheme is as safe as the card's own.
        carded(f"{NAME}:{peer.port}", tls=context) as url,
        open_tool({"policy": policy, "defaults": defaults}, resolve=resolve) as harness,
    ):
        envelope = await harness.send("hi", target_url=url.replace("127.0.0.1", NAME))
    assert envelope["ok"], envelope
    assert asked[-1] == (NAME, peer.port)


@pytest.mark.parametrize("number", [2**53 + 1, 1 - 2**60])
async def test_a_number_that_grpc_would_round_is_refused_and_nothing_is_sent(number: int) -> None:
    data = {"kind": "data", "data": {"rows": [{"id": number}]}}
    async with grpc_peer() as peer, open_tool(grpc_target(peer.url)) as harness:
        error = await harness.fail("send", target_alias="peer", parts=[data])
    assert error["code"] == "A2A_SDK_ERROR"
    assert f"{number} cannot be sent over gRPC" in error["message"]
    assert peer.requests == []
