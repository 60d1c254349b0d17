"""Credentials are sent to their target only, and are in no result and no log."""

import json
import logging

import pytest
from tests.captured_logs import capture_logs
from tests.remote.scripted_peer import (
    PeerRequest,
    PeerWriter,
    card_of,
    hang_up,
    message,
    respond,
    result,
    rpc_error,
    scripted,
    stream,
    task,
)
from tests.remote.tool_harness import one_target, open_tool

TOKEN = "tok-4f9a8b7c6d5e"
FROM_ENVIRONMENT = "env-1a2b3c4d5e6f"


async def echo(received: PeerRequest, writer: PeerWriter) -> None:
    """Repeat the credentials that came with a request wherever an answer has room for them."""
    names = ("authorization", "x-api-key", "x-trace")
    said = " ".join(received.headers.get(name, "") for name in names)
    method = received.json["method"]
    if "Stream" in method or "Subscribe" in method:
        events = [task("WORKING", text=said, metadata={said: said}), message(said)]
        await stream(*events, task("FAILED", text=said))(received, writer)
    elif method == "GetTask":
        await rpc_error(-32603, said, {said: said})(received, writer)
    else:
        await result(task("WORKING", text=said, metadata={"said": [said]}))(received, writer)


@pytest.mark.requirement("remote.extension.secrets")
@pytest.mark.parametrize("kind", ["bearer", "apiKey"])
async def test_secrets_are_in_no_envelope_and_in_no_log(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with scripted(echo) as peer:
        config = one_target(peer.url, auth={"type": kind, "token": "${TOKEN}"})
        config["defaults"]["serviceParameters"] = {"x-trace": "id-${TRACE}"}
        environment = {"TOKEN": TOKEN, "TRACE": FROM_ENVIRONMENT}
        with capture_logs() as logs:
            async with open_tool(config, environment=environment) as harness:
                started = await harness.send("hi")
                assert started["ok"]
                handle = started["summary"]["continuation"]["task"]["task_handle"]
                await harness.send("hi", follow_updates=True)
                await harness.execute("watch", task_handle=handle)
                await harness.execute("status", task_handle=handle)
                peer.card = card_of(peer.url, description=f"{TOKEN} is your token")
                harness.advance(301)
                await harness.execute("list_targets")
                refused = respond(
                    f"no {TOKEN}", status="401 No", WWW_Authenticate=f"Bearer {TOKEN}"
                )
                for bad in (refused, hang_up, respond(f"<{TOKEN}>", kind="text/html")):
                    peer.answer = bad
                    await harness.execute("status", task_handle=handle)
                peer.card_answer = respond(f"no {TOKEN}", status="500 No")
                harness.advance(301)
                await harness.execute("list_targets")
                handles = harness.tool.handles.all
                everything = json.dumps([harness.envelopes, handles, logs], default=repr)
        assert any(TOKEN in json.dumps(received.headers) for received in peer.requests), (
            "it was sent"
        )
        everything += caplog.text
        assert TOKEN not in everything
        assert FROM_ENVIRONMENT not in everything
        assert "[hidden]" in everything


async def test_the_configuration_shows_no_token() -> None:
    from openclaw_a2a.remote.config import parse_config

    config = parse_config(one_target("http://x/", auth={"type": "bearer", "token": TOKEN}))
    assert TOKEN not in repr(config)


@pytest.mark.parametrize("policy", [{"allowTargetUrlOverride": True}, {}], ids=["free", "bound"])
async def test_a_password_in_an_address_is_never_shown(policy: dict[str, bool]) -> None:
    address = "http://me:pass-1a2b3c@127.0.0.1:1/"
    named = {
        "target_url": address,
        "card_path": "/card",
        "preferred_transports": ["JSONRPC"],
    }
    continuation = {"target": named, "conversation": {"context_id": "c-1"}}
    with capture_logs() as logs:
        async with open_tool(one_target("http://127.0.0.1:1/", policy=policy)) as harness:
            await harness.fail_send(target_url=address)
            await harness.fail_send(continuation=continuation)
    assert "pass-1a2b3c" not in json.dumps([harness.envelopes, logs], default=repr)


async def test_short_values_are_not_redacted() -> None:
    async with scripted(result(message("a b c"))) as peer:
        config = one_target(peer.url, auth={"type": "bearer", "token": "b"})
        async with open_tool(config) as harness:
            assert (await harness.send("hi"))["summary"]["message_text"] == "a b c"


@pytest.mark.requirement("remote.trouble.redirect")
async def test_a_redirect_gets_no_credentials() -> None:
    async with scripted(result(message())) as other:
        moved = respond("", status="307 Moved", Location=other.url)
        async with scripted(moved) as peer:
            config = one_target(peer.url, auth={"type": "bearer", "token": TOKEN})
            async with open_tool(config) as harness:
                await harness.fail_send()
        assert other.requests == []
