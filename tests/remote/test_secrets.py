"""Credentials go to their target and nowhere else: not into results, not into logs."""

import json
import logging

import pytest
from tests.captured_logs import capture_logs
from tests.remote.scripted_peer import (
    Heard,
    Wire,
    card_of,
    hang_up,
    message,
    refusal,
    result,
    say,
    scripted,
    stream,
    task,
)
from tests.remote.tool_harness import desk_with, one_target

TOKEN = "tok-4f9a8b7c6d5e"
FROM_ENVIRONMENT = "env-1a2b3c4d5e6f"


async def echo(heard: Heard, writer: Wire) -> None:
    """Repeat the credentials that came with a request wherever an answer has room for them."""
    names = ("authorization", "x-api-key", "x-trace")
    said = " ".join(heard.headers.get(name, "") for name in names)
    method = heard.json["method"]
    if "Stream" in method or "Subscribe" in method:
        events = [task("WORKING", text=said, metadata={said: said}), message(said)]
        await stream(*events, task("FAILED", text=said))(heard, writer)
    elif method == "GetTask":
        await refusal(-32603, said, {said: said})(heard, writer)
    else:
        await result(task("WORKING", text=said, metadata={"said": [said]}))(heard, writer)


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
            async with desk_with(config, environment=environment) as desk:
                started = await desk.send("hi")
                assert started["ok"]
                handle = started["summary"]["continuation"]["task"]["task_handle"]
                await desk.send("hi", follow_updates=True)
                await desk.ask("watch", task_handle=handle)
                await desk.ask("status", task_handle=handle)
                peer.card = card_of(peer.url, description=f"{TOKEN} is your token")
                desk.wait(301)
                await desk.ask("list_targets")
                refused = say(f"no {TOKEN}", status="401 No", WWW_Authenticate=f"Bearer {TOKEN}")
                for bad in (refused, hang_up, say(f"<{TOKEN}>", kind="text/html")):
                    peer.answer = bad
                    await desk.ask("status", task_handle=handle)
                peer.card_answer = say(f"no {TOKEN}", status="500 No")
                desk.wait(301)
                await desk.ask("list_targets")
                followed = desk.agent.followed()
                everything = json.dumps([desk.answers, followed, logs], default=repr)
        assert any(TOKEN in json.dumps(heard.headers) for heard in peer.heard), "it was sent"
        everything += caplog.text
        assert TOKEN not in everything
        assert FROM_ENVIRONMENT not in everything
        assert "[hidden]" in everything


async def test_the_configuration_shows_no_token() -> None:
    from openclaw_a2a.remote.config import parse_config

    config = parse_config(one_target("http://x/", auth={"type": "bearer", "token": TOKEN}))
    assert TOKEN not in repr(config)


@pytest.mark.parametrize("policy", [{"allowTargetUrlOverride": True}, {}], ids=["free", "bound"])
async def test_a_password_in_an_address_is_repeated_nowhere(policy: dict[str, bool]) -> None:
    address = "http://me:pass-1a2b3c@127.0.0.1:1/"
    named = {
        "target_url": address,
        "card_path": "/card",
        "preferred_transports": ["JSONRPC"],
    }
    continuation = {"target": named, "conversation": {"context_id": "c-1"}}
    with capture_logs() as logs:
        async with desk_with(one_target("http://127.0.0.1:1/", policy=policy)) as desk:
            await desk.fail_send(target_url=address)
            await desk.fail_send(continuation=continuation)
    assert "pass-1a2b3c" not in json.dumps([desk.answers, logs], default=repr)


async def test_short_values_hide_nothing_of_the_answer() -> None:
    async with scripted(result(message("a b c"))) as peer:
        config = one_target(peer.url, auth={"type": "bearer", "token": "b"})
        async with desk_with(config) as desk:
            assert (await desk.send("hi"))["summary"]["message_text"] == "a b c"


@pytest.mark.requirement("remote.trouble.redirect")
async def test_a_redirect_takes_no_credentials_along() -> None:
    async with scripted(result(message())) as other:
        moved = say("", status="307 Moved", Location=other.url)
        async with scripted(moved) as peer:
            config = one_target(peer.url, auth={"type": "bearer", "token": TOKEN})
            async with desk_with(config) as desk:
                await desk.fail_send()
        assert other.heard == []
