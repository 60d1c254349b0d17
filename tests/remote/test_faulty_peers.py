"""Peers that are down, slow, broken or hostile give a failure with a hint, in time."""

import asyncio
import json
import ssl
import subprocess
import time
from pathlib import Path

import pytest
from tests.ports import free_port
from tests.remote.scripted_peer import (
    Answer,
    by_method,
    card_of,
    endless,
    hang_up,
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

LIMIT = 64 * 1024
HTML = "<!doctype html><title>Welcome</title>"
EVENTS = "text/event-stream"
HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: "
REDIRECT = respond("", status="302 Found", Location="/again")


async def fail_within(
    answer: Answer, *, deadline_ms: int = 60_000, **request: object
) -> JsonObject:
    """The error of a send to a peer that answers like this; it comes in time."""
    async with scripted(answer) as peer, open_tool(one_target(peer.url), limit=LIMIT) as harness:
        begun = time.monotonic()
        error = await harness.fail_send("hi", timeout_ms=deadline_ms, **request)
        assert time.monotonic() - begun < deadline_ms / 1000 + 60
    assert error["code"] == "A2A_SDK_ERROR", error
    assert error["details"]["hint"], error
    assert error["details"]["capability_diagnostics"]["requested_input_modes"] == ["text/plain"]
    return error


@pytest.mark.requirement(
    "remote.trouble.not-a2a",
    "remote.trouble.large",
    "remote.diagnose.every",
    "remote.register.never-raises",
)
@pytest.mark.parametrize("follow", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize(
    ("answer", "name"),
    [
        (respond(HTML, kind="text/html"), None),
        (respond("{]"), None),
        (respond("", kind="image/png"), None),
        (respond([1, 2]), None),
        (respond({"jsonrpc": "2.0", "id": 1, "result": 7}), None),
        (respond({"jsonrpc": "2.0", "id": 1, "result": {}}), None),
        (respond({"jsonrpc": "2.0", "id": 1, "error": "no"}), None),
        (respond({"hello": "world"}), None),
        (respond("{}", Content_Encoding="gzip"), None),
        (hang_up, None),
        (respond("", status="500 Oh No"), None),
        (respond("", status="503 Later"), None),
        (respond(HTML, status="404 Not Found", kind="text/html"), None),
        (REDIRECT, None),
        (rpc_error(-32601, "what?"), "MethodNotFoundError"),
        (rpc_error(-32009, "1.0? never received"), "VersionNotSupportedError"),
        (endless(HEAD + b"application/json\r\n\r\n"), None),
        (endless(HEAD + b"text/event-stream\r\n\r\ndata: "), None),
        (respond("", Content_Length="209715200"), None),
    ],
    ids=[
        "html",
        "invalid json",
        "an image",
        "a list",
        "a number",
        "nothing in it",
        "a strange error",
        "no rpc",
        "packed",
        "hangs up",
        "500",
        "503",
        "404",
        "redirect",
        "unknown method",
        "unknown version",
        "endless",
        "endless event",
        "200 MB",
    ],
)
async def test_a_malformed_answer_gives_a_failure_with_a_hint(
    answer: Answer, name: str | None, follow: bool
) -> None:
    error = await fail_within(answer, **({"follow_updates": True} if follow else {}))
    assert name in (None, error["details"]["errorName"])


@pytest.mark.requirement("remote.trouble.down", "remote.list.isolated")
async def test_an_unreachable_peer_is_a_connect_error_and_is_called_again_later() -> None:
    async with open_tool(one_target(f"http://127.0.0.1:{free_port()}")) as harness:
        error = await harness.fail_send()
        assert "cannot be reached" in error["details"]["hint"]
        assert error["details"]["errorName"] == "ConnectError"
        listed = await harness.execute("list_targets")
        assert listed["summary"]["targets"][0]["last_refresh_error"]["code"] == "A2A_SDK_ERROR"


@pytest.mark.requirement("remote.error.time-out", "remote.wire.deadline", "remote.trouble.slow")
async def test_a_silent_peer_times_out_and_the_connection_is_closed() -> None:
    async with scripted(stay_silent) as peer, open_tool(one_target(peer.url)) as harness:
        error = await harness.fail_send(timeout_ms=3000)  # long enough for it to arrive
        assert error["message"] == "request timed out"
        assert "timeout_ms" in error["details"]["hint"]
        assert "defaults.timeoutMs" in error["details"]["hint"]
        await asyncio.wait_for(peer.gone.wait(), 240)


@pytest.mark.requirement("remote.wire.deadline")
async def test_the_deadline_covers_the_card_too() -> None:
    async with (
        scripted(card_answer=stay_silent) as peer,
        open_tool(one_target(peer.url)) as harness,
    ):
        error = await harness.fail_send(timeout_ms=3000)  # long enough for it to arrive
        assert error["message"] == "request timed out"
        await asyncio.wait_for(peer.gone.wait(), 240)


@pytest.mark.requirement("remote.wire.deadline", "remote.stream.broken", "remote.trouble.slow")
async def test_an_endless_stream_ends_at_the_deadline() -> None:
    answer = stream(task("WORKING"), stays=True)
    async with scripted(answer) as peer, open_tool(one_target(peer.url)) as harness:
        error = await harness.fail_send(timeout_ms=4000, follow_updates=True)
        assert error["message"] == "request timed out"
        assert error["details"]["partial_event_count"] == 1
        summary = error["details"]["latest_event_summary"]
        assert summary["continuation"]["task"]["status"] == "working"
        await asyncio.wait_for(peer.gone.wait(), 240)


@pytest.mark.requirement("remote.stream.closed", "remote.trouble.half")
async def test_a_truncated_event_is_dropped_and_earlier_events_count() -> None:
    answer = stream(task("WORKING"), after=b'data: {"jsonrpc": "2.0", "res')
    async with scripted(answer) as peer, open_tool(one_target(peer.url)) as harness:
        outcome = await harness.send("hi", follow_updates=True)
        assert outcome["ok"], outcome
        assert [event["kind"] for event in outcome["raw"]["events"]] == ["task"]


@pytest.mark.requirement("remote.stream.empty")
async def test_a_stream_of_one_truncated_event_is_empty() -> None:
    error = await fail_within(stream(after=b'data: {"json'), follow_updates=True)
    assert "ended without events" in error["message"]


@pytest.mark.requirement("remote.stream.broken")
async def test_a_broken_stream_reports_the_events_so_far() -> None:
    answer = stream(task("WORKING"), after=b"data: {]\n\n")
    error = await fail_within(answer, follow_updates=True)
    assert error["details"]["partial_event_count"] == 1
    assert error["details"]["latest_event_summary"]["response_kind"] == "task"


@pytest.mark.requirement("remote.trouble.large")
async def test_a_stream_over_the_size_limit_fails() -> None:
    error = await fail_within(stream(*[task("WORKING", text="x" * 8192)] * 20), follow_updates=True)
    assert error["details"]["partial_event_count"] < 20
    assert "larger" in error["details"]["hint"]


@pytest.mark.requirement("remote.wire.abort")
async def test_a_cancelled_call_closes_the_connection() -> None:
    answer = stream(task("WORKING"), stays=True)
    async with scripted(answer) as peer, open_tool(one_target(peer.url)) as harness:
        sending = asyncio.create_task(harness.send("hi", follow_updates=True))
        await asyncio.wait_for(harness.has_update.wait(), 240)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await asyncio.wait_for(peer.gone.wait(), 240)


async def test_a_stream_that_stays_open_after_the_task_ended_is_closed() -> None:
    answer = stream(task("WORKING"), task("COMPLETED", text="done"), stays=True)
    async with scripted(answer) as peer, open_tool(one_target(peer.url)) as harness:
        outcome = await harness.send("hi", follow_updates=True, timeout_ms=60_000)
        assert outcome["ok"], outcome
        assert outcome["summary"]["message_text"] == "done"
        await asyncio.wait_for(peer.gone.wait(), 240)


@pytest.mark.requirement("remote.trouble.challenge")
async def test_an_authentication_challenge_is_reported_with_a_hint() -> None:
    answer = respond("", status="401 Unauthorized", WWW_Authenticate='Bearer realm="peer"')
    error = await fail_within(answer)
    details = error["details"]
    assert details["httpStatus"] == 401
    assert details["challenge"] == 'Bearer realm="peer"'
    assert "auth" in details["hint"]


@pytest.mark.requirement("remote.trouble.redirect")
async def test_a_redirect_of_the_card_is_not_followed_however_often() -> None:
    async with scripted(card_answer=REDIRECT) as peer, open_tool(one_target(peer.url)) as harness:
        error = await harness.fail_send()
        assert error["details"]["httpStatus"] == 302
        assert "redirect" in error["details"]["hint"]
        assert len(peer.requests) == 1


@pytest.fixture(scope="session")
def strange_certificate(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """A certificate that nobody vouches for."""
    folder: Path = tmp_path_factory.mktemp("tls")
    names = ["-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    subject = ["-subj", "/CN=127.0.0.1", "-days", "2"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *names, *subject]
    subprocess.run([str(one) for one in command], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


@pytest.mark.requirement("remote.trouble.tls")
async def test_an_untrusted_certificate_is_refused(
    strange_certificate: ssl.SSLContext,
) -> None:
    async with (
        scripted(result(message()), tls=strange_certificate) as peer,
        open_tool(one_target(peer.url)) as harness,
    ):
        error = await harness.fail_send()
        assert "certificate" in error["details"]["hint"]
        assert peer.requests == []


@pytest.mark.requirement("remote.trouble.elsewhere")
@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://other.example/rpc",
        "http://169.254.169.254/latest",
        "http://10.0.0.1/rpc",
        "http://[fd00::1]/rpc",
        "file:///etc/passwd",
        "http://[nonsense/",
        "//other.example/rpc",
    ],
)
async def test_a_card_with_interfaces_on_other_hosts_only_is_refused(elsewhere: str) -> None:
    interface = {"url": elsewhere, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    card = card_of("x", supportedInterfaces=[interface])
    async with scripted(card=card) as peer, open_tool(one_target(peer.url)) as harness:
        error = await harness.fail_send()
        assert error["details"]["errorName"] == "CardPointsElsewhere"
        assert "baseUrl" in error["details"]["hint"]
        assert peer.calls == []


@pytest.mark.requirement("remote.trouble.elsewhere")
async def test_a_card_cannot_send_the_credentials_to_another_port_of_its_host() -> None:
    auth = {"type": "bearer", "token": "tok-1a2b3c4d"}
    async with scripted(result(message())) as other, scripted() as peer:
        peer.card = card_of(other.url)
        async with open_tool(one_target(peer.url, auth=auth)) as harness:
            error = await harness.fail_send()
            assert error["details"]["errorName"] == "CardPointsElsewhere"
            assert f'"127.0.0.1:{other.port}"' in error["details"]["hint"]
        for elsewhere in ([f"127.0.0.1:{peer.port}"], ["localhost"], [str(other.port)]):
            async with open_tool(one_target(peer.url, auth=auth, allowedHosts=elsewhere)) as strict:
                assert (await strict.fail_send())["details"]["errorName"] == "CardPointsElsewhere"
        assert other.requests == []
        for allowed in ([f"127.0.0.1:{other.port}"], ["127.0.0.1"]):
            async with open_tool(one_target(peer.url, auth=auth, allowedHosts=allowed)) as open_:
                assert (await open_.send("hi"))["ok"]
        assert [one.headers["authorization"] for one in other.requests] == [
            "Bearer tok-1a2b3c4d"
        ] * 2


@pytest.mark.parametrize(
    "elsewhere",
    ["http://127.0.0.1:99999/", "http://127.0.0.1:port/", "http://127.0.0.1/", "127.0.0.1:1"],
)
async def test_an_address_with_a_strange_port_is_not_used(elsewhere: str) -> None:
    interface = {"url": elsewhere, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    card = card_of("x", supportedInterfaces=[interface])
    async with scripted(card=card) as peer, open_tool(one_target(peer.url)) as harness:
        assert (await harness.fail_send())["details"]["errorName"] == "CardPointsElsewhere"


async def test_an_interface_on_an_allowed_host_is_used() -> None:
    async with scripted(result(message())) as peer:
        peer.card = card_of("http://elsewhere.invalid/")
        allowed = one_target(peer.url, allowedHosts=["Elsewhere.invalid"])
        async with open_tool(allowed) as harness:
            error = await harness.fail_send()
            assert error["details"]["errorName"] == "ConnectError", "it was tried"


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "0.0.0.0"])
async def test_all_loopback_names_count_as_one_host(name: str) -> None:
    async with scripted(result(message())) as peer:
        peer.card = card_of(peer.url.replace("127.0.0.1", name))
        async with open_tool(one_target(peer.url)) as harness:
            assert (await harness.send("hi"))["ok"]


async def test_an_interface_on_the_own_host_is_preferred() -> None:
    async with scripted(result(message())) as peer:
        near = card_of(peer.url)["supportedInterfaces"]
        far = {"url": "http://10.0.0.1/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        peer.card = card_of(peer.url, supportedInterfaces=[far, *near])
        async with open_tool(one_target(peer.url)) as harness:
            assert (await harness.send("hi"))["ok"]


@pytest.mark.parametrize("version", ["2.0", "banana"])
async def test_an_interface_with_an_unsupported_version_is_not_tried(version: str) -> None:
    async with scripted() as peer:
        peer.card = card_of(peer.url, version=version)
        async with open_tool(one_target(peer.url)) as harness:
            error = await harness.fail_send()
            assert error["details"]["errorName"] == "NoTransport"
            assert version in error["message"]


@pytest.mark.requirement("remote.trouble.version")
async def test_a_wrong_version_on_the_card_is_reported() -> None:
    answer = by_method(SendMessage=rpc_error(-32601, "Method not found"))
    async with scripted(answer) as peer, open_tool(one_target(peer.url)) as harness:
        error = await harness.fail_send()
        assert error["details"]["rpcCode"] == -32601
        assert "version" in error["details"]["hint"]


@pytest.mark.parametrize(
    "body", ["", HTML, "[]", "null", '{"name": 7}', '{"supportedInterfaces": 7}', "\x00" * 9]
)
async def test_a_response_that_is_not_a_card_is_a_failure(body: str) -> None:
    async with (
        scripted(card_answer=respond(body, kind="text/html")) as peer,
        open_tool(one_target(peer.url)) as harness,
    ):
        error = await harness.fail_send()
        assert error["code"] == "A2A_SDK_ERROR"
        assert error["details"]["hint"]


@pytest.mark.requirement("remote.list.isolated")
async def test_one_failing_target_does_not_fail_the_list() -> None:
    async with (
        scripted(result(message())) as good,
        scripted(card_answer=stay_silent) as silent,
        scripted(card_answer=respond(HTML, kind="text/html")) as page,
        scripted(card_answer=endless(HEAD + b"application/json\r\n\r\n")) as large,
    ):
        config = {
            "enabled": True,
            "defaults": {"timeoutMs": 4000},
            "targets": [
                target(good.url, "good"),
                target(silent.url, "silent"),
                target(page.url, "page"),
                target(large.url, "large"),
                target("http://127.0.0.1:1/", "down"),
                target("${NOT_SET}", "unset"),
                target("ftp://x", "strange"),
                target("http://user:hunter2secret@127.0.0.1:1/", "named"),
            ],
        }
        async with open_tool(config, limit=LIMIT) as harness:
            listed = await harness.execute("list_targets")
            assert listed["ok"]
            entries = {one["target_alias"]: one for one in listed["summary"]["targets"]}
            assert list(entries) == [one["alias"] for one in config["targets"]]
            assert entries["good"]["target_name"] == "Scripted"
            assert "last_refresh_error" not in entries["good"]
            broken = {alias: one for alias, one in entries.items() if alias != "good"}
            for alias, entry in broken.items():
                assert entry["last_refresh_error"]["details"]["hint"], alias
                assert entry["last_refreshed_at"]
                assert entry["peer_card"]["skills"] == []
            assert "hunter2secret" not in repr(listed)
            assert (await harness.send("hi", target_alias="good"))["ok"]


@pytest.mark.requirement("remote.list.isolated", "remote.register.never-raises")
@pytest.mark.parametrize("depth", [101, 900, 5000, 400_000])
@pytest.mark.parametrize("place", ["extensions", "unknown", "skills"])
async def test_a_deeply_nested_card_fails_alone(depth: int, place: str) -> None:
    nested = "[" * depth + "]" * depth
    card = json.dumps(card_of("http://x/"))[:-1]
    if place == "extensions":
        extensions = f'"capabilities": {{"extensions": [{{"uri": "u", "params": {nested}}}]}}'
        card = f"{card}, {extensions}}}"
    else:
        card = f'{card}, "{place}": {nested}}}'
    async with scripted(result(message())) as good, scripted(card_answer=respond(card)) as bad:
        config = one_target(good.url)
        config["targets"].append(target(bad.url, "deep"))
        async with open_tool(config) as harness:
            listed = await harness.execute("list_targets")
            assert listed["ok"], listed
            fine, broken = listed["summary"]["targets"]
            assert fine["target_name"] == "Scripted"
            assert "last_refresh_error" not in fine
            assert broken["last_refresh_error"]["code"] == "A2A_SDK_ERROR"
            assert "deep" in broken["last_refresh_error"]["message"]
            error = await harness.fail_send(target_alias="deep")
            assert error["code"] == "A2A_SDK_ERROR"


@pytest.mark.requirement("remote.list.isolated", "remote.trouble.large")
async def test_a_card_larger_than_a_megabyte_fails_alone() -> None:
    large = respond(card_of("http://x/", description="x" * (1024 * 1024)))
    async with scripted(result(message())) as good, scripted(card_answer=large) as bad:
        config = one_target(good.url)
        config["targets"].append(target(bad.url, "large"))
        async with open_tool(config, limit=64 * 1024 * 1024) as harness:
            listed = await harness.execute("list_targets")
            assert listed["ok"], listed
            fine, broken = listed["summary"]["targets"]
            assert "last_refresh_error" not in fine
            assert "larger" in broken["last_refresh_error"]["message"]


@pytest.mark.requirement("remote.register.never-raises")
@pytest.mark.parametrize("follow", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("depth", [101, 900, 5000])
async def test_a_deeply_nested_answer_is_a_failure_of_the_peer(depth: int, follow: bool) -> None:
    nested = "[" * depth + "]" * depth
    status = '"status": {"state": "TASK_STATE_COMPLETED"}'
    task_ = f'{{"id": "t-1", {status}, "metadata": {{"deep": {nested}}}}}'
    body = f'{{"jsonrpc": "2.0", "result": {{"task": {task_}}}}}'
    answer = respond(f"data: {body}\n\n", kind=EVENTS) if follow else respond(body)
    error = await fail_within(answer, **({"follow_updates": True} if follow else {}))
    assert "deep" in error["message"]
