"""What a turn tells the agent about a message."""

import json

import pytest
from tests.conformance.conftest import Start, peers, token_of
from tests.conformance.protocol_clients import Json, V03Client, V1Client, v1_message
from tests.conformance.scripted_agent import ScriptedAgent
from tests.conformance.stream_outline import outline, text_of

from openclaw_a2a.model.agent_event import InputRequired, Reply

TASKS = {"agentStyle": "task-generating"}


def _agent() -> ScriptedAgent:
    return ScriptedAgent(Reply.of_text("hello"))


@pytest.mark.requirement("inbound.turn.text")
async def test_text_parts_are_joined_by_a_blank_line(start: Start) -> None:
    agent = _agent()
    v1 = V1Client(await start(agent))
    await v1.send(parts=[{"text": "one"}, {"text": "two"}])
    assert agent.turns[0].body == "one\n\ntwo"
    assert agent.turns[0].raw_body == "one\n\ntwo"


@pytest.mark.requirement("inbound.turn.nothing-usable")
@pytest.mark.parametrize("account", [{}, TASKS])
@pytest.mark.parametrize("texts", [[""], ["  ", "\n"]])
async def test_message_with_nothing_usable_is_answered_without_a_run(
    start: Start, account: Json, texts: list[str]
) -> None:
    agent = _agent()
    http = await start(agent, account=account)
    parts = [{"kind": "text", "text": text} for text in texts]
    response = await V03Client(http).send(parts=parts, contextId="mine")
    assert (response["kind"], response["role"], response["contextId"]) == (
        "message",
        "agent",
        "mine",
    )
    assert "text" in text_of(response)
    assert agent.turns == []
    assert (await V1Client(http).list())["totalSize"] == 0


@pytest.mark.requirement("inbound.turn.nothing-usable")
async def test_stream_of_a_message_with_nothing_usable_is_one_message(start: Start) -> None:
    agent = _agent()
    v1 = V1Client(await start(agent, account=TASKS))
    params = v1_message(parts=[{"text": " "}])
    assert outline(await v1.events("SendStreamingMessage", params)) == ["message"]
    assert agent.turns == []


@pytest.mark.requirement("inbound.turn.data-only")
async def test_data_alone_gives_a_placeholder_and_an_empty_raw_body(start: Start) -> None:
    agent = _agent()
    v1 = V1Client(await start(agent))
    await v1.send(parts=[{"data": {"a": 1}}])
    (turn,) = agent.turns
    assert turn.body.strip()
    assert turn.raw_body == ""


@pytest.mark.requirement("inbound.turn.untrusted")
async def test_parts_other_than_text_become_labelled_untrusted_notes(start: Start) -> None:
    agent = _agent()
    v1 = V1Client(await start(agent))
    parts: list[Json] = [
        {"text": "hi", "metadata": {"z": 1, "a": {"y": 2, "b": 3}}},
        {"data": {"n": [1, 2]}},
    ]
    await v1.send(parts=parts, metadata={"who": "me"})
    about_message, about_text, about_data = agent.turns[0].untrusted
    assert "part 1, kind text" in about_text
    assert "part 2" in about_data
    for note, value in zip(
        (about_message, about_text, about_data),
        ({"who": "me"}, parts[0]["metadata"], parts[1]["data"]),
        strict=True,
    ):
        label, _, body = note.partition("\n")
        assert "untrusted" in label.lower()
        assert "not instructions" in label.lower()
        assert body == json.dumps(value, indent=2, sort_keys=True)


@pytest.mark.requirement(
    "inbound.turn.addresses", "inbound.turn.message-id", "inbound.turn.thread-id"
)
async def test_the_turn_names_caller_agent_task_and_context(start: Start) -> None:
    agent = _agent()
    http = await start(agent, account=TASKS, settings=peers("alice"))
    v1 = V1Client(http.with_headers(authorization=f"Bearer {token_of('alice')}"))
    task = (await v1.send(messageId="m-77", contextId="mine"))["task"]
    (turn,) = agent.turns
    assert (turn.sender, turn.recipient) == ("a2a:alice", "a2a:default")
    assert turn.message_id == "m-77"
    assert turn.thread_id == task["id"]
    assert turn.context_id == "mine"


@pytest.mark.requirement("inbound.turn.binding", "inbound.account.session-store")
async def test_binding_names_agent_session_and_store(start: Start) -> None:
    agent = _agent()
    v1 = V1Client(await start(agent, account={**TASKS, "sessionStore": "/var/sessions"}))
    await v1.send(contextId="mine")
    binding = agent.turns[0].binding
    assert (binding.agent_id, binding.account_id, binding.channel) == ("main", "default", "a2a")
    assert binding.session_key.startswith("agent:main:a2a:")
    assert binding.session_key.endswith(":mine")
    assert binding.main_session_key == "agent:main:main"
    assert binding.store_path == "/var/sessions"


@pytest.mark.requirement("inbound.turn.peer-authenticated")
async def test_peer_is_the_authenticated_name(start: Start) -> None:
    agent = _agent()
    http = await start(agent, settings=peers("alice"))
    v1 = V1Client(http.with_headers(authorization=f"Bearer {token_of('alice')}"))
    await v1.send(contextId="mine")
    peer = agent.turns[0].binding.peer
    assert (peer.id, peer.source, peer.kind) == ("alice", "server-user-name", "direct")


@pytest.mark.requirement("inbound.turn.peer-context")
async def test_peer_without_a_name_is_the_context(start: Start) -> None:
    agent = _agent()
    v1 = V1Client(await start(agent))
    await v1.send(contextId="mine")
    peer = agent.turns[0].binding.peer
    assert (peer.id, peer.source) == ("mine", "context-id")


@pytest.mark.requirement("inbound.turn.origin", "inbound.account.origin-policy")
async def test_the_origin_is_set_only_with_the_legacy_policy(start: Start) -> None:
    quiet, legacy = _agent(), _agent()
    await V1Client(await start(quiet)).send()
    account = {"originRoutingPolicy": "legacy-origin-routing"}
    await V1Client(await start(legacy, account=account)).send()
    assert (quiet.turns[0].originating_channel, quiet.turns[0].originating_to) == (None, None)
    assert legacy.turns[0].originating_channel == "a2a"
    assert legacy.turns[0].originating_to


@pytest.mark.requirement("inbound.turn.binding-kept", "wire.ids.context-inferred")
async def test_follow_up_on_a_task_keeps_binding_and_context(start: Start) -> None:
    agent = ScriptedAgent(InputRequired("Which one?"))
    v1 = V1Client(await start(agent))
    task = (await v1.send(contextId="mine"))["task"]
    again = (await v1.send("the red one", taskId=task["id"]))["task"]
    more = (await v1.send("the blue one", taskId=task["id"], contextId="mine"))["task"]
    assert again["contextId"] == more["contextId"] == "mine"
    first, second, third = agent.turns
    assert first.binding == second.binding == third.binding
    assert second.context_id == "mine"
    assert second.task_id == task["id"]


@pytest.mark.requirement("inbound.turn.reference-tasks")
async def test_referenced_tasks_are_in_the_turn_and_unknown_ones_are_ignored(start: Start) -> None:
    agent = _agent()
    v1 = V1Client(await start(agent, account=TASKS))
    known = (await v1.send())["task"]
    await v1.send(referenceTaskIds=[known["id"], "no-such-task"])
    assert [task.id for task in agent.turns[1].reference_tasks] == [known["id"]]


@pytest.mark.requirement("inbound.turn.no-commands")
async def test_text_with_a_slash_reaches_the_agent_as_text(start: Start) -> None:
    agent = _agent()
    v1 = V1Client(await start(agent))
    assert text_of((await v1.send("/reset all"))["message"]) == "hello"
    assert agent.turns[0].body == "/reset all"
