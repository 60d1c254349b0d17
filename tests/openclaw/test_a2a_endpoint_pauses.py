"""Questions and approvals of a real OpenClaw, answered by peers and by the operator."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.openclaw.a2a_client import A2AClient, status_text, text_of
from tests.openclaw.conftest import OpenClient, StartGateway
from tests.openclaw.openclaw_process import FakeModel, OpenClaw
from tests.openclaw.peers import peers, token_of

Json = Any

PAUSED = "TASK_STATE_INPUT_REQUIRED"
COMPLETED = "TASK_STATE_COMPLETED"


def question(marker: str) -> str:
    """A message on which the agent asks its caller something."""
    options = [{"label": "Blue"}, {"label": "Green"}]
    asked = {"id": "color", "header": "Color", "question": f"Which {marker}?", "options": options}
    return f"tool:ask_user {json.dumps({'questions': [asked]})}"


def command(path: Path) -> str:
    """A message on which the agent wants to run a command that makes a file."""
    return f"tool:exec {json.dumps({'command': f'touch {path}'})}"


async def test_a_question_pauses_the_task_and_the_next_message_answers_it(
    our_gateway: Json, open_client: OpenClient, marker: str
) -> None:
    client = await open_client(our_gateway)
    asked = await client.send(question(marker), contextId=marker)
    assert asked["status"]["state"] == PAUSED
    assert f"Which {marker}?" in status_text(asked)
    assert "Blue" in status_text(asked)
    answered = await client.send("Blue", contextId=marker, taskId=asked["id"])
    assert answered["id"] == asked["id"]
    assert answered["status"]["state"] == COMPLETED
    assert "Blue" in text_of(answered)


async def test_a_free_text_answer_is_accepted(
    our_gateway: Json, open_client: OpenClient, marker: str
) -> None:
    client = await open_client(our_gateway)
    asked = await client.send(question(marker), contextId=marker)
    answered = await client.send("rather violet", contextId=marker, taskId=asked["id"])
    assert "rather violet" in text_of(answered)


async def test_a_question_survives_a_restart_of_our_process(
    our_gateway: Json, open_client: OpenClient, marker: str
) -> None:
    asked = await (await open_client(our_gateway)).send(question(marker), contextId=marker)
    our_gateway.kill()
    our_gateway.start()
    client = await open_client(our_gateway)
    assert (await client.get(asked["id"]))["status"]["state"] == PAUSED
    answered = await client.send("Green", contextId=marker, taskId=asked["id"])
    assert answered["status"]["state"] == COMPLETED
    assert "Green" in text_of(answered)


async def test_canceling_a_paused_task_ends_the_run_that_waits(
    our_gateway: Json, open_client: OpenClient, model: FakeModel, marker: str
) -> None:
    client = await open_client(our_gateway)
    asked = await client.send(question(marker), contextId=marker)
    canceled = await client.cancel(asked["id"])
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
    after = await client.send(f"next {marker}", contextId=marker)
    assert text_of(after) == f"echo: next {marker}"
    assert "The tool said" not in json.dumps(model.requests(f"next {marker}"))


@pytest.mark.parametrize("decision", ["allow", "deny"])
async def test_the_operator_decides_about_a_command(
    our_gateway: Json, open_client: OpenClient, openclaw: OpenClaw, marker: str, decision: str
) -> None:
    client = await open_client(our_gateway)
    made = openclaw.workspace("main") / f"{marker}.made"
    task = await client.start(command(made), contextId=marker)
    waiting = await _until_asked(client, task["id"], made.name)
    [approval] = _approvals(our_gateway, "list", "--json")["approvals"]
    assert approval["command"] == f"touch {made}"
    assert approval["taskId"] == task["id"]
    assert "operator" in status_text(waiting).lower()
    assert not made.exists()
    _approvals(our_gateway, decision, approval["id"][:8], "--json")
    ended = await client.wait_state(task["id"])
    assert ended["status"]["state"] == COMPLETED
    assert made.exists() is (decision == "allow")
    assert ("denied" in text_of(ended)) is (decision == "deny")
    assert _approvals(our_gateway, "list", "--json")["approvals"] == []


async def test_a_pending_approval_is_found_after_a_restart_of_our_process(
    our_gateway: Json, open_client: OpenClient, openclaw: OpenClaw, marker: str
) -> None:
    made = openclaw.workspace("main") / f"{marker}.made"
    task = await (await open_client(our_gateway)).start(command(made), contextId=marker)
    await _until_asked(await open_client(our_gateway), task["id"], made.name)
    our_gateway.kill()
    our_gateway.start()
    client = await open_client(our_gateway)
    await _until_asked(client, task["id"], made.name)
    [approval] = _approvals(our_gateway, "list", "--json")["approvals"]
    assert approval["taskId"] == task["id"]
    _approvals(our_gateway, "allow", approval["id"], "--json")
    assert (await client.wait_state(task["id"]))["status"]["state"] == COMPLETED
    assert made.exists()


async def test_a_peer_without_the_right_cannot_allow_a_command_and_one_with_it_can(
    start_our_gateway: StartGateway, open_client: OpenClient, openclaw: OpenClaw, marker: str
) -> None:
    our_gateway = start_our_gateway(openclaw, settings=peers(guest=False, owner=True))
    made = openclaw.workspace("main") / f"{marker}.made"
    guest = await open_client(our_gateway, token=token_of("guest"))
    task = await guest.start(command(made), contextId=marker)
    await _until_asked(guest, task["id"], made.name)
    await guest.start("yes", contextId=marker, taskId=task["id"])
    [approval] = _approvals(our_gateway, "list", "--json")["approvals"]
    assert not made.exists()
    _approvals(our_gateway, "deny", approval["id"], "--json")
    await guest.wait_state(task["id"])
    assert not made.exists()

    owner = await open_client(our_gateway, token=token_of("owner"))
    task = await owner.start(command(made), contextId=marker)
    asked = await _until_asked(owner, task["id"], made.name)
    assert asked["status"]["state"] == PAUSED
    answered = await owner.send("yes", contextId=marker, taskId=task["id"])
    assert answered["status"]["state"] == COMPLETED
    assert made.exists()


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("decision", ["allow", "deny"])
async def test_a_peer_that_may_not_approve_sees_neither_the_folder_nor_the_approval_id(
    our_gateway: Json,
    open_client: OpenClient,
    openclaw: OpenClaw,
    marker: str,
    decision: str,
    is_restarted: bool,
) -> None:
    client = await open_client(our_gateway)
    asked = f"tool:exec {json.dumps({'command': f'touch {marker}.made'})}"
    task = await client.start(asked, contextId=marker)
    await _until_asked(client, task["id"], f"touch {marker}.made")
    [approval] = _approvals(our_gateway, "list", "--json")["approvals"]
    assert approval["cwd"] == str(openclaw.workspace("main"))
    if is_restarted:
        our_gateway.kill()
        our_gateway.start()
        client = await open_client(our_gateway)
    _approvals(our_gateway, decision, approval["id"], "--json")
    ended = await client.wait_state(task["id"])
    past = client.stream("SubscribeToTask", {"id": task["id"]}, last_event_id=0)
    for shown in (ended, *[event async for _, event in past]):
        assert str(openclaw.folder) not in json.dumps(shown)
        assert approval["id"] not in json.dumps(shown)
    assert (openclaw.workspace("main") / f"{marker}.made").exists() is (decision == "allow")


async def _until_asked(client: A2AClient, task_id: str, words: str) -> Json:
    """The task once its status tells of the command."""
    return await client.wait_status(task_id, lambda task: words in status_text(task))


def _approvals(our_gateway: Json, *words: str) -> Json:
    """What `openclaw-a2a approvals ... --json` prints on the machine of the gateway."""
    program = str(Path(sys.executable).with_name("openclaw-a2a"))
    address = ["--config", str(our_gateway.config), "--url", our_gateway.url]
    done = subprocess.run(
        [program, "approvals", *words, *address],
        cwd=our_gateway.home,
        env={"HOME": str(our_gateway.home), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)
