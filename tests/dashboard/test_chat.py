"""An operator talks to an agent on its page: with files, in one context, and sees it stream."""

from base64 import b64encode

import msgspec
import pytest
from tests.conformance.scripted_agent import ScriptedAgent
from tests.dashboard.conftest import Json, OpenDashboard, Setup

from openclaw_a2a.dashboard.agents_page import check_card
from openclaw_a2a.model.agent_event import InputRequired, Reply, TextDelta
from openclaw_a2a.model.card import AgentCard, AgentInterface, AgentSkill

SEND = "/dashboard/agents/default/send"
ACCOUNT = {
    "defaultAgentId": "main",
    "agentStyle": "task-generating",
    "defaultInputModes": ["*/*"],
    "defaultOutputModes": ["*/*"],
}


def as_files(*files: tuple[str, str, bytes]) -> str:
    return msgspec.json.encode(
        [
            {"name": name, "type": kind, "content": b64encode(content).decode()}
            for name, kind, content in files
        ]
    ).decode()


async def send(setup: Setup, **form: str) -> Json:
    body = msgspec.json.encode({"chat": "yes", **form})
    response = await setup.program.post(SEND, body, content_length=str(len(body)))
    assert response.status == 200, response.body
    return response.json


async def test_a_conversation_goes_on_in_its_context(setup: Setup) -> None:
    sent = await send(setup, text="paint the fence")
    assert sent["location"].startswith("/dashboard/agents/default?context=")
    await setup.finish(Reply.of_text("It is **green**."))
    address = sent["location"].removesuffix("#chat")
    page = await setup.json(address)
    [turn] = page["chat"]
    said = [(one["kind"], one["parts"][0]["text"]) for one in turn["conversation"]]
    assert said == [("user", "paint the fence"), ("agent", "It is **green**.")]
    again = await send(setup, text="and the gate", context=page["context"])
    assert again["location"] == sent["location"]
    await setup.finish(InputRequired("Which colour?"))
    page = await setup.json(address)
    assert [one["task"]["state"] for one in page["chat"]] == ["completed", "input-required"]
    html = (await (await setup.sign_in()).get(address)).body.decode()
    assert "It is <strong>green</strong>." in html
    assert f"/dashboard/tasks/{again['id']}/answer" in html


async def test_an_answer_is_seen_while_it_is_written(setup: Setup) -> None:
    sent = await send(setup, text="tell me more")
    run = await setup.agent.next_run()
    async with setup.follow(sent["location"].removesuffix("#chat")) as events:
        await events.next()
        await run.emit(TextDelta("Once upon a time"))
        while "Once upon a time" not in (await events.next())[1]:
            pass
        await run.finish(TextDelta(" there was a fence."))
        while "there was a fence." not in (await events.next())[1]:
            pass


async def test_files_are_sent_with_a_message_or_alone(open_dashboard: OpenDashboard) -> None:
    setup = await open_dashboard({"channels.a2a.accounts.default": ACCOUNT})
    picture = ("../fence.png", "image/png", b"\x89PNG\r\n\x1a\n" + b"0" * 300_000)
    await send(setup, text="look", files=as_files(picture, ("a.bin", "", b"\x00\x01")))
    run = await setup.agent.next_run()
    first, second, third = run.turn.message.parts
    assert (first.text, second.filename, second.content) == ("look", "fence.png", picture[2])
    assert third.media_type == "application/octet-stream"
    await setup.finish(Reply.of_text("seen"), run=run)
    await send(setup, text="", files=as_files(("a.txt", "text/plain", b"alone")))
    run = await setup.agent.next_run()
    [part] = run.turn.message.parts
    assert part.content == b"alone"
    await setup.finish(Reply.of_text("seen"), run=run)


@pytest.mark.parametrize(
    "files", ["x", "[1]", '[{"name": "a", "type": "", "content": "no base64"}]', "{}"]
)
async def test_files_that_are_none_are_refused(setup: Setup, files: str) -> None:
    body = msgspec.json.encode({"text": "look", "files": files})
    response = await setup.program.post(SEND, body, content_length=str(len(body)))
    assert (response.status, response.json["error"]["code"]) == (400, "invalid-params")


async def test_a_file_that_the_agent_does_not_take_is_refused(setup: Setup) -> None:
    body = msgspec.json.encode(
        {"text": "look", "files": as_files(("a.zip", "application/zip", b"PK"))}
    )
    response = await setup.program.post(SEND, body, content_length=str(len(body)))
    assert response.status == 400
    assert "defaultInputModes" in response.json["error"]["message"]


async def test_more_than_a_form_may_hold_is_refused(setup: Setup) -> None:
    body = b'{"text": "%b"}' % (b"x" * (300 * 1024))
    task_id = await setup.start()
    path = f"/dashboard/tasks/{task_id}/answer"
    response = await setup.program.post(path, body, content_length=str(len(body)))
    assert response.status == 413


async def test_a_conversation_of_somebody_else_is_not_shown(setup: Setup) -> None:
    task_id = await setup.start("mine")
    context = (await setup.json(f"/dashboard/tasks/{task_id}"))["task"]["contextId"]
    page = await setup.json(f"/dashboard/agents/default?context={context}")
    assert page["chat"] == []


def test_cards_are_checked_as_clients_read_them() -> None:
    skill = AgentSkill("a", "A", "Does a.", ("x",))
    good = AgentCard(
        "Painter",
        description="Paints.",
        supported_interfaces=(AgentInterface("https://a.example/rpc", "JSONRPC", "1.0"),),
        skills=(skill,),
    )
    assert check_card(good) == ()
    bad = AgentCard(
        "",
        description="Paints.",
        supported_interfaces=(AgentInterface("nowhere", "JSONRPC", "1.0"),),
        default_input_modes=("text",),
        skills=(skill, AgentSkill("a", "", "", ())),
    )
    assert {one.field for one in check_card(bad)} == {
        "name",
        "skills[1].name",
        "skills[1].description",
        "skills[1].tags",
        "skills[1].id",
        "supportedInterfaces[0].url",
        "defaultInputModes",
    }


async def test_what_was_asked_is_in_the_recent_work(open_dashboard: OpenDashboard) -> None:
    setup = await open_dashboard(agent=ScriptedAgent(Reply.of_text("done")))
    sent = await send(setup, text="paint")
    page = await setup.json("/dashboard/agents/default")
    assert [one["id"] for one in page["recent"]] == [sent["id"]]
