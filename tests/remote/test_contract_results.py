"""The contract of the tool about output: envelopes, summaries, lists, errors."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.remote.scripted_peer import (
    Answer,
    PeerRequest,
    PeerWriter,
    artifact_update,
    card_of,
    message,
    respond,
    result,
    scripted,
    status_of,
    status_update,
    stream,
    task,
)
from tests.remote.tool_harness import one_target, open_tool, target

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.remote.transport.agent_card import parse_peer_card

CARD = "/.well-known/agent-card.json"
SUMMARY = {
    "target_alias",
    "target_name",
    "target_url",
    "streaming_supported",
    "response_kind",
    "message_text",
    "artifacts",
    "continuation",
}


def continuing(envelope: JsonObject) -> JsonObject:
    assert envelope["ok"], envelope
    return envelope["summary"]["continuation"]


# -------------------------------------------------------------------- 4.1, 4.4 envelopes


@pytest.mark.requirement("remote.example.direct", "remote.envelope.success")
async def test_a_direct_answer_has_the_envelope_of_the_contract() -> None:
    answer = message("All green.", messageId="m-2", contextId="c-9")
    async with scripted(result(answer)) as peer:
        peer.card = card_of(peer.url, name="Ops Bot")
        async with open_tool({"targets": [target(peer.url, "ops", default=True)]}) as harness:
            outcome = await harness.send("hi")
    transports = ["JSONRPC", "HTTP+JSON"]
    assert outcome == {
        "ok": True,
        "operation": "remote_agent",
        "action": "send",
        "summary": {
            "target_alias": "ops",
            "target_name": "Ops Bot",
            "target_url": peer.url,
            "streaming_supported": True,
            "response_kind": "message",
            "message_text": "All green.",
            "continuation": {
                "target": {
                    "target_url": peer.url,
                    "card_path": CARD,
                    "preferred_transports": transports,
                    "target_alias": "ops",
                },
                "conversation": {"context_id": "c-9", "can_send": True},
            },
        },
        "raw": {
            "kind": "message",
            "messageId": "m-2",
            "role": "agent",
            "contextId": "c-9",
            "parts": [{"kind": "text", "text": "All green."}],
        },
    }


@pytest.mark.requirement("remote.example.paused", "remote.continuation.unchanged")
async def test_a_paused_task_has_the_continuation_of_the_contract() -> None:
    paused = task("INPUT_REQUIRED", status=status_of("INPUT_REQUIRED", "Deploy to prod?"))
    async with scripted(result(paused)) as peer:
        policy = {"allowTargetUrlOverride": True, "allowPrivateTargets": True}
        defaults = {"preferredTransports": ["JSONRPC"]}
        async with open_tool({"policy": policy, "defaults": defaults}) as harness:
            outcome = await harness.send("hi", target_url=peer.url)
            kept = json.loads(json.dumps(continuing(outcome)))
            handle = kept["task"].pop("task_handle")
            assert outcome["summary"]["response_kind"] == "task"
            assert outcome["summary"]["message_text"] == "Deploy to prod?"
            assert kept == {
                "target": {
                    "target_url": peer.url,
                    "card_path": CARD,
                    "preferred_transports": ["JSONRPC"],
                },
                "task": {
                    "task_id": "t-1",
                    "status": "input-required",
                    "can_resume_send": True,
                    "can_send": True,
                    "can_status": True,
                    "can_cancel": True,
                    "can_watch": True,
                },
                "conversation": {"context_id": "c-1", "can_send": True},
            }
            kept["task"]["task_handle"] = handle
            again = await harness.send("yes", continuation=kept)
            assert continuing(again) == kept


@pytest.mark.requirement(
    "remote.envelope.update",
    "remote.envelope.raw",
    "remote.envelope.kinds",
    "remote.stream.updates",
    "remote.summary.members",
)
@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("action", ["send", "watch"])
async def test_every_event_gives_an_update_with_the_accumulated_summary(
    version: str, action: str
) -> None:
    names = {"taskId": "t-1", "contextId": "c-1"}
    piece = {"artifactId": "a", "parts": [{"kind": "text", "text": "tea"}]}
    old = [
        {"kind": "task", "id": "t-1", "contextId": "c-1", "status": {"state": "submitted"}},
        {"kind": "artifact-update", **names, "artifact": piece, "append": False},
        {"kind": "status-update", **names, "status": {"state": "auth-required"}, "final": False},
        {"kind": "status-update", **names, "status": {"state": "completed"}, "final": True},
    ]
    new = [
        task("SUBMITTED"),
        artifact_update("tea"),
        status_update("AUTH_REQUIRED"),
        status_update("COMPLETED"),
    ]
    async with scripted(stream(*(new if version == "1.0" else old))) as peer:
        peer.card = card_of(peer.url, version=version)
        about: JsonObject = {"task_id": "t-1"}
        if action == "send":
            parts = [{"kind": "text", "text": "hi"}]
            about = {"parts": parts, "follow_updates": True}
        async with open_tool(one_target(peer.url)) as harness:
            outcome = await harness.execute(action, **about)
    events = outcome["raw"]["events"]
    assert outcome["raw"] == {"events": events, "finalEvent": events[-1]}
    seen = [(one["kind"], one.get("status", {}).get("state")) for one in events]
    assert seen == [
        ("task", "submitted"),
        ("artifact-update", None),
        ("status-update", "auth-required"),
        ("status-update", "completed"),
    ]
    assert events[-1]["final"] is True
    assert [one["raw"] for one in harness.updates] == events
    texts = [one["summary"].get("message_text") for one in harness.updates]
    assert texts == [None, "tea", "tea", "tea"]
    for update in harness.updates:
        assert set(update) == {"ok", "operation", "action", "phase", "summary", "raw"}
        assert (update["ok"], update["action"], update["phase"]) == (True, action, "update")
        assert set(update["summary"]) <= SUMMARY
        assert None not in update["summary"].values()
    assert outcome["summary"] == harness.updates[-1]["summary"]


# -------------------------------------------------------------------- 4.2 summaries


@pytest.mark.requirement("remote.summary.other-text", "remote.summary.not-ours")
async def test_the_text_of_a_message_is_used_when_the_task_has_none() -> None:
    ours = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "mine"}]}
    asked = task("WORKING", history=[ours])
    events = [asked, message("said"), {"message": ours}, status_update("COMPLETED")]
    async with scripted(stream(*events)) as peer, open_tool(one_target(peer.url)) as harness:
        outcome = await harness.send("hi", follow_updates=True)
        assert outcome["summary"]["message_text"] == "said"
        assert outcome["summary"]["response_kind"] == "task"
        answer = {**ours, "role": "ROLE_AGENT", "parts": [{"text": "answered"}]}
        peer.answer = stream(task("WORKING", history=[answer, ours]), *events[1:])
        outcome = await harness.send("hi", follow_updates=True)
        assert outcome["summary"]["message_text"] == "answered", "the history goes first"
        peer.answer = result(task("WORKING", history=[ours]))
        assert "message_text" not in (await harness.send("hi"))["summary"]


@pytest.mark.requirement("remote.summary.artifacts", "remote.summary.artifacts-text")
@pytest.mark.parametrize("name", [{}, {"artifactId": "same"}], ids=["no ids", "one id"])
async def test_artifacts_with_equal_ids_are_all_returned(name: JsonObject) -> None:
    artifacts = [{**name, "parts": [{"text": text}]} for text in ("one", "two")]
    more = {"taskId": "t-1", "artifact": {**name, "parts": [{"text": "!"}]}, "append": True}
    events = [task("WORKING", artifacts=artifacts), {"artifactUpdate": more}]
    async with scripted(stream(*events)) as peer, open_tool(one_target(peer.url)) as harness:
        outcome = await harness.send("hi", follow_updates=True)
    [first, _] = [update["summary"] for update in harness.updates]
    assert first["message_text"] == "one\n\ntwo"
    assert first["artifacts"] == outcome["raw"]["events"][0]["artifacts"]
    assert outcome["summary"]["message_text"] == "one\n\ntwo!"


# -------------------------------------------------------------------- 4.3 going on


@pytest.mark.requirement("remote.go-on.named")
async def test_a_message_with_a_task_id_gives_a_task_continuation() -> None:
    async with scripted(result(message(taskId="t-5"))) as peer:
        async with open_tool(one_target(peer.url)) as harness:
            outcome = await harness.send("hi")
        known = continuing(outcome)["task"]
    assert outcome["summary"]["response_kind"] == "message"
    assert known["task_id"] == "t-5"
    assert "status" not in known
    assert known["task_handle"].startswith("rah_")
    assert known["can_watch"] is known["can_cancel"] is known["can_send"] is True


@pytest.mark.requirement("remote.go-on.kept")
async def test_a_message_within_a_task_keeps_it_under_its_handle() -> None:
    async with (
        scripted(result(task("INPUT_REQUIRED"))) as peer,
        open_tool(one_target(peer.url)) as harness,
    ):
        first = continuing(await harness.send("hi"))["task"]
        peer.answer = result(message("noted"))
        for naming in ({"task_handle": first["task_handle"]}, {"task_id": "t-1"}):
            outcome = await harness.send("more", **naming)
            assert outcome["summary"]["response_kind"] == "message"
            assert continuing(outcome)["task"]["task_id"] == "t-1"
        by_handle = await harness.send("more", task_handle=first["task_handle"])
        assert continuing(by_handle)["task"]["task_handle"] == first["task_handle"]


@pytest.mark.requirement("remote.go-on.conversation", "remote.go-on.known")
async def test_a_message_without_a_task_gives_at_most_a_conversation() -> None:
    async with (
        scripted(result(message(contextId="c-1"))) as peer,
        open_tool(one_target(peer.url)) as harness,
    ):
        assert set(continuing(await harness.send("hi"))) == {"target", "conversation"}
        peer.answer = result(message())
        assert "continuation" not in (await harness.send("hi"))["summary"]
        known = await harness.send("hi", context_id="c-2")
        assert continuing(known)["conversation"] == {"context_id": "c-2", "can_send": True}
        assert harness.tool.handles.all == (), "no handle without a task"


# -------------------------------------------------------------------- 4.5 list_targets


@pytest.mark.requirement("remote.list.together")
async def test_cards_are_fetched_at_the_same_time() -> None:
    everybody = asyncio.Barrier(3)

    def together(name: str) -> Answer:
        async def answer(received: PeerRequest, writer: PeerWriter) -> None:
            await everybody.wait()
            await respond(card_of("http://127.0.0.1/", name=name))(received, writer)

        return answer

    async with (
        scripted(card_answer=together("one")) as one,
        scripted(card_answer=together("two")) as two,
        scripted(card_answer=together("three")) as three,
    ):
        targets = [target(peer.url, str(n)) for n, peer in enumerate((three, one, two))]
        async with open_tool({"targets": targets}) as harness, asyncio.timeout(240):
            listed = await harness.execute("list_targets")
    names = [entry["target_name"] for entry in listed["summary"]["targets"]]
    assert names == ["three", "one", "two"]


@pytest.mark.requirement("remote.list.copies", "remote.list.failed")
async def test_changing_a_returned_error_does_not_change_the_stored_one() -> None:
    failing = respond("", status="500 Oh No")
    async with scripted(card_answer=failing) as peer, open_tool(one_target(peer.url)) as harness:
        listed = await harness.execute("list_targets")
    [entry], [raw] = listed["summary"]["targets"], listed["raw"]
    assert set(entry["last_refresh_error"]) == {"code", "message", "details"}
    assert entry["last_refresh_error"] == raw["card"]["lastRefreshError"]
    assert entry["last_refreshed_at"] == raw["card"]["lastRefreshedAt"]
    entry["last_refresh_error"]["details"].clear()
    assert raw["card"]["lastRefreshError"]["details"]["httpStatus"] == 500


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
_MEMBERS = [
    *("name", "description", "url", "preferredTransport", "additionalInterfaces"),
    *("supportedInterfaces", "capabilities", "defaultInputModes", "skills", "protocolVersion"),
]


@pytest.mark.requirement("remote.list.clean")
@given(st.dictionaries(st.sampled_from(_MEMBERS), _JSON))
def test_any_card_is_normalised(card: JsonObject) -> None:
    read = parse_peer_card(card)
    shown = read.summary()
    assert json.loads(json.dumps([shown, read.raw()])) == [shown, read.raw()]
    flags = {k: v for k, v in shown["capabilities"].items() if k != "extensions"}
    assert all(isinstance(flag, bool) for flag in flags.values())
    assert shown["capabilities"].get("extensions") != []
    for modes in (shown["default_input_modes"], shown["default_output_modes"]):
        assert all(mode == mode.strip() != "" for mode in modes)
        assert len(set(modes)) == len(modes)
    faces = [tuple(one.values()) for one in shown["additional_interfaces"]]
    assert len(set(faces)) == len(faces)
    assert all(skill["description"] for skill in shown["skills"])


@pytest.mark.requirement("remote.list.clean")
@pytest.mark.parametrize(
    "others",
    [
        [("JSONRPC", "http://x/a"), ("HTTP+JSON", "http://x/b")],
        [("HTTP+JSON", "http://x/b"), ("JSONRPC", "http://x/a")],
        [("JSONRPC", "http://x/a")],
        [],
    ],
)
def test_a_card_of_0_3_keeps_all_its_additional_interfaces(others: list[tuple[str, str]]) -> None:
    listed = [{"transport": kind, "url": url} for kind, url in others]
    card: JsonObject = {
        "url": "http://x/a",
        "preferredTransport": "JSONRPC",
        "additionalInterfaces": [*listed, *listed, {"transport": " ", "url": "http://x/c"}],
    }
    shown = parse_peer_card(card)
    assert shown.summary()["additional_interfaces"] == listed
    assert shown.raw()["additionalInterfaces"] == listed
    assert shown.summary()["preferred_transport"] == "JSONRPC"
    assert len(shown.interfaces) == len({("JSONRPC", "http://x/a"), *others})
