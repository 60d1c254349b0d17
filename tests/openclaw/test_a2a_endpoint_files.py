"""Files to and from a real OpenClaw through our A2A endpoints, and a webhook."""

import base64
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.openclaw.a2a_client import text_of
from tests.openclaw.bare_client import new_key
from tests.openclaw.conftest import Bare, OpenClient, StartGateway
from tests.openclaw.openclaw_process import FakeModel, OpenClaw
from tests.openclaw.webhook_receiver import WebhookReceiver

Json = Any

MODES = ["text/plain", "application/json", "image/*", "application/pdf", "application/zip"]


@pytest.fixture
def our_gateway(start_our_gateway: StartGateway, openclaw: OpenClaw) -> Json:
    """A gateway whose account takes and gives images and files, which none does unasked."""
    account = {"defaultInputModes": MODES, "defaultOutputModes": MODES}
    return start_our_gateway(
        openclaw, settings={"channels": {"a2a": {"accounts": {"default": account}}}}
    )


def png() -> bytes:
    """The smallest image there is: one red dot."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + check

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    dots = zlib.compress(b"\x00\xff\x00\x00")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", dots) + chunk(b"IEND", b"")


async def test_an_image_reaches_the_model(
    our_gateway: Json, open_client: OpenClient, model: FakeModel, marker: str
) -> None:
    client = await open_client(our_gateway)
    image = {
        "raw": base64.b64encode(png()).decode(),
        "mediaType": "image/png",
        "filename": "dot.png",
    }
    task = await client.send("", parts=[{"text": f"what is this {marker}"}, image])
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    [asked] = model.requests(marker)
    assert len(asked["images"]) == 1
    assert asked["images"][0].startswith("data:image/")


async def test_a_text_file_is_read_to_the_model(
    our_gateway: Json, open_client: OpenClient, model: FakeModel, marker: str
) -> None:
    client = await open_client(our_gateway)
    content = base64.b64encode(f"content {marker}".encode()).decode()
    file = {"raw": content, "mediaType": "text/plain", "filename": "note.txt"}
    task = await client.send("", parts=[{"text": "summarise"}, file])
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert model.requests(f"content {marker}")


def file_part(content: bytes, media_type: str, name: str) -> Json:
    return {"raw": base64.b64encode(content).decode(), "mediaType": media_type, "filename": name}


PDF = b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\n%%EOF\n"
ZIP = b"PK\x05\x06" + bytes(18)


async def test_a_pdf_and_an_archive_reach_the_agent_with_the_image_beside_them(
    our_gateway: Json, open_client: OpenClient, openclaw: OpenClaw, model: FakeModel, marker: str
) -> None:
    client = await open_client(our_gateway)
    files = [
        file_part(PDF, "application/pdf", f"{marker}.pdf"),
        file_part(ZIP, "application/zip", f"{marker}.zip"),
        file_part(png(), "image/png", "dot.png"),
    ]
    task = await client.send("", parts=[{"text": f"/look parrot:read {marker}"}, *files])
    assert task["status"]["state"] == "TASK_STATE_COMPLETED", task["status"]
    [asked] = model.requests(marker)
    assert "application/pdf" in asked["last_user"]
    assert "application/zip" in asked["last_user"]
    assert len(asked["images"]) == 1
    stored = {path.suffix: path for path in (openclaw.folder / "media").rglob(f"{marker}*")}
    assert (stored[".pdf"].read_bytes(), stored[".zip"].read_bytes()) == (PDF, ZIP)
    assert f"read {marker}" in text_of(task)


async def test_a_message_with_a_file_is_answered_after_a_run_that_openclaw_started(
    our_gateway: Json, open_client: OpenClient, bare: Bare, model: FakeModel, marker: str
) -> None:
    client = await open_client(our_gateway)
    first = await client.send(f"first {marker}")
    session = model.requests(f"first {marker}")[0]["session"]
    async with bare() as operator:
        busy = {"agentId": "main", "sessionKey": session, "idempotencyKey": new_key()}
        await operator.call("agent", {**busy, "message": f"hold:{marker} busy {marker}"})
        model.wait_for(f"busy {marker}")
        part = file_part(ZIP, "application/zip", "a.zip")
        parts = [{"text": f"parrot:second {marker}"}, part]
        task = await client.start("", parts=parts, contextId=first["contextId"])
        model.release(marker)
        ended = await client.wait_state(task["id"])
    assert ended["status"]["state"] == "TASK_STATE_COMPLETED"
    assert f"second {marker}" in text_of(ended)
    assert [one["outcome"] for one in model.requests(f"busy {marker}")] == ["done"]
    assert len(model.requests(f"second {marker}")) == 1


async def test_a_turn_with_a_file_goes_on_through_a_kill_of_the_gateway_and_can_be_canceled(
    our_gateway: Json, open_client: OpenClient, model: FakeModel, marker: str
) -> None:
    client = await open_client(our_gateway)
    part = file_part(ZIP, "application/zip", "a.zip")
    task = await client.start("", parts=[{"text": f"hold:{marker} parrot:one {marker}"}, part])
    model.wait_for(f"one {marker}")
    our_gateway.kill()
    our_gateway.start()
    model.release(marker)
    client = await open_client(our_gateway)
    ended = await client.wait_state(task["id"])
    assert ended["status"]["state"] == "TASK_STATE_COMPLETED", ended["status"]
    assert text_of(ended).count(f"one {marker}") == 1
    assert len(model.requests(f"one {marker}")) == 1
    task = await client.start("", parts=[{"text": f"hold:never-{marker} two {marker}"}, part])
    model.wait_for(f"two {marker}")
    assert (await client.cancel(task["id"]))["status"]["state"] == "TASK_STATE_CANCELED"
    model.wait_for(f"two {marker}", outcome="client-gone")


async def test_a_turn_with_a_file_shows_tools_and_brings_files_back(
    our_gateway: Json, open_client: OpenClient, openclaw: OpenClaw, marker: str
) -> None:
    (openclaw.workspace("main") / f"{marker}.png").write_bytes(png())
    client = await open_client(our_gateway)
    part = file_part(ZIP, "application/zip", "a.zip")
    text = f"parrot:Here it is.\nMEDIA:./{marker}.png\nend"
    task = await client.send("", parts=[{"text": text}, part])
    assert "Here it is." in text_of(task)
    assert [base64.b64decode(one["raw"]) for one in _files(task)] == [png()]


async def test_a_file_of_the_workspace_comes_with_the_answer(
    our_gateway: Json, open_client: OpenClient, openclaw: OpenClaw, marker: str
) -> None:
    (openclaw.workspace("main") / f"{marker}.png").write_bytes(png())
    client = await open_client(our_gateway)
    task = await client.send(f"parrot:Here it is.\nMEDIA:./{marker}.png")
    assert text_of(task) == "Here it is."
    assert [base64.b64decode(part["raw"]) for part in _files(task)] == [png()]
    assert [part["mediaType"] for part in _files(task)] == ["image/png"]


@pytest.mark.parametrize("where", ["absolute", "upwards", "link"])
async def test_a_file_outside_the_workspace_is_refused(
    our_gateway: Json,
    open_client: OpenClient,
    openclaw: OpenClaw,
    tmp_path: Path,
    marker: str,
    where: str,
) -> None:
    secret = tmp_path / f"{marker}.txt"
    secret.write_text(f"secret of {marker}", encoding="utf-8")
    reference = str(secret)
    if where == "upwards":
        reference = f"./../{openclaw.config.name}"
    elif where == "link":
        link = openclaw.workspace("main") / f"{marker}-link.txt"
        link.symlink_to(secret)
        reference = f"./{link.name}"
    client = await open_client(our_gateway)
    task = await client.send(f"parrot:Here it is.\nMEDIA:{reference}")
    assert _files(task) == []
    assert "secret of" not in str(task)
    assert openclaw.token not in str(task)


async def test_a_webhook_gets_the_end_of_a_turn(
    start_our_gateway: StartGateway,
    open_client: OpenClient,
    openclaw: OpenClaw,
    receiver: WebhookReceiver,
    marker: str,
) -> None:
    client = await open_client(
        start_our_gateway(openclaw, settings={"push": {"allowPrivate": True}})
    )
    push = {"url": receiver.url, "token": f"token-{marker}"}
    configuration = {"taskPushNotificationConfig": push, "returnImmediately": True}
    task = await client.start(f"tell them {marker}", configuration=configuration)
    run_turn = await receiver.wait_for(
        lambda one: (
            one.json.get("statusUpdate", {}).get("status", {}).get("state")
            == "TASK_STATE_COMPLETED"
        )
    )
    assert run_turn.headers["x-a2a-notification-token"] == f"token-{marker}"
    assert run_turn.json["statusUpdate"]["taskId"] == task["id"]
    assert f"echo: tell them {marker}" in str(run_turn.json)


def _files(task: Json) -> list[Json]:
    parts = [part for artifact in task["artifacts"] for part in artifact["parts"]]
    return [part for part in parts if "raw" in part or "url" in part]
