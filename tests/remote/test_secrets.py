"""Credentials are sent to their target only, and are in no result and no log."""

import itertools
import json
import logging
from pathlib import Path

import pytest
from tests.captured_logs import capture_logs
from tests.remote.scripted_peer import (
    Answer,
    PeerRequest,
    PeerWriter,
    ScriptedPeer,
    artifact_update,
    card_of,
    hang_up,
    message,
    respond,
    result,
    rpc_error,
    scripted,
    status_update,
    stream,
    task,
)
from tests.remote.tool_harness import one_target, open_tool

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.store import create_store

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


PARAMETER = "par-5e4d3c2b1a90"
PUSH_TOKEN = "push-0f1e2d3c4b5a"
PUSH_CREDENTIALS = "cred-a1b2c3d4e5f6"


def in_chunks(text: str, cuts: list[int], *, last: bool) -> list[JsonObject]:
    """The text as events of one artifact, cut at these places."""
    places = [0, *sorted(cuts), len(text)]
    pieces = [text[start:end] for start, end in itertools.pairwise(places)]
    events = [artifact_update(piece, append=index > 0) for index, piece in enumerate(pieces)]
    events[-1]["artifactUpdate"]["lastChunk"] = last
    return [task("WORKING"), *events]


@pytest.mark.requirement("remote.extension.secrets")
@pytest.mark.parametrize("ending", ["terminal", "last chunk", "closed", "broken", "paused"])
@pytest.mark.parametrize("cuts", [[12], [9, 18], list(range(1, 40)), [8], [26]], ids=str)
async def test_a_secret_spread_over_chunks_is_hidden(cuts: list[int], ending: str) -> None:
    text = f"you are {TOKEN} and not tok-4f9aX, tok"
    events = in_chunks(text, cuts, last=ending == "last chunk")
    ends = {"terminal": "COMPLETED", "paused": "INPUT_REQUIRED"}
    if ending in ends:
        events.append(status_update(ends[ending]))
    after = b"data: {]\n\n" if ending == "broken" else b""
    async with scripted(stream(*events, after=after)) as peer:
        auth = {"type": "bearer", "token": TOKEN}
        async with open_tool(one_target(peer.url, auth=auth)) as harness:
            envelope = await harness.send("hi", follow_updates=True)
            handles = harness.tool.handles.all
    shown = "you are [hidden] and not tok-4f9aX, tok"
    summary = envelope.get("summary") or envelope["error"]["details"]["latest_event_summary"]
    assert summary["message_text"] == shown
    updates = [one["raw"] for one in harness.updates if one["raw"]["kind"] == "artifact-update"]
    told = "".join(part["text"] for one in updates for part in one["artifact"]["parts"])
    assert shown.startswith(told) and (ending == "broken" or told == shown)
    kinds = [one["raw"]["kind"] for one in harness.updates]
    assert ending not in ends or kinds[-1] == "status-update", "nothing comes after the end"
    for update in harness.updates:
        joined = update["summary"].get("message_text", "")
        assert not any(joined.endswith(TOKEN[:size]) for size in range(4, len(TOKEN))), joined
    assert TOKEN not in json.dumps([harness.envelopes, handles], default=repr)


async def test_a_secret_spread_over_parts_of_an_artifact_is_hidden() -> None:
    parts = [{"text": "you are tok-4f9a"}, {"url": "https://x.example/"}, {"text": "8b7c6d5e, tok"}]
    artifacts = [{"artifactId": "a", "parts": parts}]
    async with scripted(result(task("COMPLETED", artifacts=artifacts))) as peer:
        auth = {"type": "bearer", "token": TOKEN}
        async with open_tool(one_target(peer.url, auth=auth)) as harness:
            envelope = await harness.send("hi")
    texts = [one["text"] for one in envelope["raw"]["artifacts"][0]["parts"] if "text" in one]
    assert "".join(texts) == "you are [hidden], tok"


async def echo_everything(received: PeerRequest, writer: PeerWriter) -> None:
    """Repeat headers and body, the push notification config among it."""
    said = json.dumps([received.headers, received.json])
    if "Stream" in received.json["method"]:
        await stream(*in_chunks(said, [100, 300, 500], last=False))(received, writer)
    elif received.json["method"] == "CancelTask":
        await rpc_error(-32603, said, said)(received, writer)
    else:
        await result(task("WORKING", text=said, metadata={"said": [said]}))(received, writer)


@pytest.mark.requirement("remote.extension.secrets")
async def test_parameters_and_push_credentials_of_a_call_are_hidden_everywhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    store = create_store("sqlite", path=str(tmp_path / "state.db"))
    await store.open()
    push = {
        "url": "https://hook.example/x",
        "token": PUSH_TOKEN,
        "authentication": {"schemes": ["Bearer"], "credentials": PUSH_CREDENTIALS},
    }
    given = {"x-key": PARAMETER, "cookie": f"Session {FROM_ENVIRONMENT}"}
    async with scripted(echo_everything) as peer:
        peer.card_answer = repeat_in_card(peer)
        with capture_logs() as logs:
            async with open_tool(one_target(peer.url), store=store) as harness:
                more = {"service_parameters": given, "push_notification_config": push}
                started = await harness.send("hi", **more)
                assert started["ok"], started
                await harness.send("hi", follow_updates=True, **more)
                handle = started["summary"]["continuation"]["task"]["task_handle"]
                await harness.execute("cancel", task_handle=handle, service_parameters=given)
                await harness.execute("list_targets")
                peer.card_answer = respond(f"no {PARAMETER}", status=f"500 {PARAMETER}")
                harness.advance(301)
                await harness.execute("list_targets")
        everything = json.dumps([harness.envelopes, logs], default=repr) + caplog.text
    await store.close()
    everything += read_all(tmp_path)
    for secret in (PARAMETER, FROM_ENVIRONMENT, PUSH_TOKEN, PUSH_CREDENTIALS):
        assert secret not in everything
    assert "[hidden]" in everything


def repeat_in_card(peer: ScriptedPeer) -> Answer:
    """A card that repeats the headers with which it was asked for."""

    async def answer(received: PeerRequest, writer: PeerWriter) -> None:
        said = received.headers.get("x-key", "nothing")
        skill = {"id": said, "name": said, "tags": [said]}
        card = card_of(peer.url, name=f"I am {said}", description=said, skills=[skill])
        await respond(card)(received, writer)

    return answer


def read_all(folder: Path) -> str:
    return "".join(stored.read_bytes().decode("latin-1") for stored in folder.iterdir())


async def test_headers_that_are_never_secret_are_not_hidden() -> None:
    uri = "https://extension.example/v1"
    answer = result(message(f"{uri} in de-CH"))
    async with scripted(answer) as peer, open_tool(one_target(peer.url)) as harness:
        given = {"A2A-Extensions": uri, "Accept-Language": "de-CH"}
        envelope = await harness.send("hi", service_parameters=given)
    assert envelope["summary"]["message_text"] == f"{uri} in de-CH"


HEAD, REST = "you are tok-4f9a", "8b7c6d5e, tok"
SHOWN = "you are [hidden], tok"


def last_chunk(text: str, *, append: bool) -> JsonObject:
    event = artifact_update(text, append=append)
    event["artifactUpdate"]["lastChunk"] = True
    return event


@pytest.mark.requirement("remote.extension.secrets")
@pytest.mark.parametrize("request_task", [False, True], ids=["stream", "subscription"])
@pytest.mark.parametrize(
    "events",
    [
        [task("WORKING", text=HEAD), artifact_update(REST, append=True)],
        [task("AUTH_REQUIRED", text=HEAD), artifact_update(REST, append=True)],
        [task("WORKING"), last_chunk(HEAD, append=False), last_chunk(REST, append=True)],
        [task("WORKING", text="old tok-"), artifact_update(HEAD), last_chunk(REST, append=True)],
    ],
    ids=["after a snapshot", "after a pause", "after a last chunk", "after a replacement"],
)
async def test_a_secret_is_hidden_in_every_order_of_chunks(
    events: list[JsonObject], request_task: bool
) -> None:
    async def answer(received: PeerRequest, writer: PeerWriter) -> None:
        is_send = received.json["method"] == "SendMessage"
        await (result(events[0]) if is_send else stream(*events))(received, writer)

    async with scripted(answer) as peer:
        auth = {"type": "bearer", "token": TOKEN}
        async with open_tool(one_target(peer.url, auth=auth)) as harness:
            more = {"task_requirement": "required"} if request_task else {}
            envelope = await harness.send("hi", follow_updates=True, **more)
            handles = harness.tool.handles.all
    assert envelope["summary"]["message_text"] == SHOWN
    texts = [part["text"] for part in envelope["summary"]["artifacts"][0]["parts"]]
    assert "".join(texts) == SHOWN
    everything = json.dumps([harness.envelopes, handles], default=repr)
    assert "4f9a" not in everything and "8b7c" not in everything


async def test_what_was_held_back_goes_with_the_chunk_that_replaces_it() -> None:
    events = [
        task("WORKING"),
        artifact_update("hello tok"),
        artifact_update("bye!"),
        status_update("COMPLETED"),
    ]
    async with scripted(stream(*events)) as peer:
        auth = {"type": "bearer", "token": TOKEN}
        async with open_tool(one_target(peer.url, auth=auth)) as harness:
            envelope = await harness.send("hi", follow_updates=True)
    assert envelope["summary"]["message_text"] == "bye!"


@pytest.mark.parametrize("follow", [False, True], ids=["answer", "stream"])
@pytest.mark.parametrize(
    "word",
    [
        "artifacts",
        "completed",
        "status",
        "message",
        "artifactId",
        "context-1",
        "task-1",
        "target_url",
    ],
)
async def test_a_header_with_a_word_of_the_protocol_does_not_break_it(
    word: str, follow: bool
) -> None:
    done = task("COMPLETED", text="it is done", id="task-1", contextId="context-1")
    answer = stream(done) if follow else result(done)
    async with scripted(answer) as peer:
        config = one_target(peer.url)
        config["defaults"]["serviceParameters"] = {"x-parameter": word}
        async with open_tool(config) as harness:
            envelope = await harness.send("hi", follow_updates=follow)
            listed = await harness.execute("list_targets")
    assert envelope["ok"], envelope
    summary = envelope["summary"]
    assert summary["message_text"] == "it is done"
    assert summary["continuation"]["task"]["task_id"] == "task-1"
    assert summary["continuation"]["task"]["status"] == "completed"
    assert summary["continuation"]["conversation"]["context_id"] == "context-1"
    assert "[hidden]" not in json.dumps(envelope)
    [shown] = listed["summary"]["targets"]
    assert shown["target_url"] == peer.url
    assert "peer_card" in shown


async def test_a_header_with_a_word_of_the_protocol_does_not_end_the_help_of_a_failure() -> None:
    async with scripted(rpc_error(-32603, "status is secret")) as peer:
        peer.card = card_of(peer.url, capabilities={"streaming": False})
        async with open_tool(one_target(peer.url)) as harness:
            given = {"x-parameter": "status"}
            error = await harness.fail("watch", task_id="t-1", service_parameters=given)
            refused = await harness.fail("status", task_id="t-1", service_parameters=given)
    assert error["details"]["suggested_action"] == "status"
    assert refused["message"] == "[hidden] is secret"
