"""Files to and from a real OpenClaw through our A2A endpoints, and a webhook."""

import base64
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.openclaw.a2a_client import text_of
from tests.openclaw.conftest import OpenClient, StartGateway
from tests.openclaw.openclaw_process import FakeModel, OpenClaw
from tests.openclaw.webhook_receiver import WebhookReceiver

Json = Any

MODES = ["text/plain", "application/json", "image/*"]


@pytest.fixture
def our_gateway(start_our_gateway: StartGateway, openclaw: OpenClaw) -> Json:
    """A gateway whose account takes and gives images, which none does unasked."""
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
