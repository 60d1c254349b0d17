"""Files to and from a real OpenClaw: what it accepts, and what it returns of a workspace."""

import struct
import zlib
from pathlib import Path
from typing import Any

from tests.openclaw.bare_client import BareClient
from tests.openclaw.conftest import Bare
from tests.openclaw.gateway_connection import open_connection_to
from tests.openclaw.openclaw_process import FakeModel, OpenClaw
from tests.openclaw.turns import turn_of

from openclaw_a2a.agents.openclaw_gateway.agent_directory import OpenClawAgents
from openclaw_a2a.agents.openclaw_gateway.attachments import build_attachments
from openclaw_a2a.agents.openclaw_gateway.connection import GatewayConnection
from openclaw_a2a.agents.openclaw_gateway.http_fallback import list_agents_over_http
from openclaw_a2a.agents.openclaw_gateway.media import (
    MAX_FILE_BYTES,
    fetch_media,
    split_media,
)
from openclaw_a2a.agents.openclaw_gateway.runs import SessionRef
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.turn import Turn

Json = Any

OUTSIDE = "is left out: it is not in the agent's workspace.]"


def png() -> bytes:
    """The smallest image there is: one red dot."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + check

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    dots = zlib.compress(b"\x00\xff\x00\x00")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", dots) + chunk(b"IEND", b"")


def turn_with(*parts: Part) -> Turn:
    return turn_of("look", parts=(Part.of_text("look"), *parts))


async def references_of(client: BareClient, session: str, text: str) -> Json:
    """The one payload of a run whose answer is `text`."""
    ended = await client.agent("main", session, f"parrot:{text}")
    (payload,) = ended["result"]["payloads"]
    return payload


async def session_ref(connection: GatewayConnection, session: str) -> SessionRef:
    agents = OpenClawAgents()
    await agents.refresh(connection)
    agent = agents.find("main")
    assert agent is not None
    return SessionRef("main", session, agent.workspace)


async def test_images_reach_the_model_in_their_order(
    bare: Bare, openclaw: OpenClaw, model: FakeModel, marker: str
) -> None:
    image = Part.of_bytes(png(), media_type="image/png", filename="dot.png")
    async with open_connection_to(openclaw) as connection, bare() as client:
        attached = build_attachments(turn_with(image, image), connection.limits)
        session = f"agent:main:a2a:local:{marker}"
        await client.agent("main", session, f"see {marker}", attachments=list(attached.attached))
    (asked,) = model.requests(marker)
    assert len(asked["images"]) == 2


async def test_every_kind_of_file_in_the_workspace_is_fetched(
    bare: Bare, openclaw: OpenClaw, marker: str
) -> None:
    workspace = openclaw.workspace("main")
    files = {
        f"{marker}/note.txt": "grüße".encode(),
        f"{marker}/dot.png": png(),
        f"{marker}/a b.pdf": b"%PDF-1.4\n\xff\xfe" + bytes(500),
        f"{marker}/large.bin": bytes(range(256)) * 4096,
    }
    for name, content in files.items():
        path = workspace / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    session = f"agent:main:a2a:local:{marker}"
    lines = [f"MEDIA:./{marker}/note.txt", *(f"MEDIA:{workspace / name}" for name in files)]
    async with open_connection_to(openclaw) as connection, bare() as client:
        payload = await references_of(client, session, "\n".join(["Here:", *lines]))
        parts = await fetch_media(
            connection, await session_ref(connection, session), payload["mediaUrls"]
        )
    assert payload["text"] == "Here:"
    assert [part.content for part in parts[1:]] == list(files.values())
    assert parts[0].content == parts[1].content
    assert [part.media_type for part in parts[1:]] == [
        "text/plain",
        "image/png",
        "application/pdf",
        "application/octet-stream",
    ]
    assert [part.filename for part in parts[1:]] == ["note.txt", "dot.png", "a b.pdf", "large.bin"]


async def test_what_is_outside_the_workspace_stays_there(
    bare: Bare, openclaw: OpenClaw, tmp_path: Path, marker: str
) -> None:
    secret = tmp_path / f"{marker}.txt"
    secret.write_text("secret", encoding="utf-8")
    (openclaw.workspace("main") / f"{marker}.txt").symlink_to(secret)
    session = f"agent:main:a2a:local:{marker}"
    written = [str(secret), "/etc/hostname", f"./{marker}.txt", "./nosuch.png"]
    text = "\n".join(["No.", *(f"MEDIA:{reference}" for reference in written)])
    async with open_connection_to(openclaw) as connection, bare() as client:
        payload = await references_of(client, session, text)
        session_reference = await session_ref(connection, session)
        more = [f"./../{openclaw.config.name}", "~/.bashrc", f"{session_reference.workspace}/../x"]
        parts = await fetch_media(connection, session_reference, [*payload["mediaUrls"], *more])
    assert payload["mediaUrls"] == written
    texts = [part.text or "" for part in parts]
    assert all(text.startswith("[The file ") for text in texts)
    assert [text.endswith(OUTSIDE) for text in texts] == [True] * 2 + [False] * 2 + [True] * 3
    assert str(tmp_path) not in str(parts)


async def test_what_is_streamed_has_no_references(bare: Bare, marker: str) -> None:
    session, key = f"agent:main:a2a:local:{marker}", f"run-{marker}"
    text = f"parrot:Before.\nMEDIA:/etc/hostname\nMedium {marker} after.\nMEDIA:./x.png"
    async with bare() as client:
        await client.agent("main", session, text, idempotencyKey=key)
        ended = await client.wait_event("chat", runId=key, state="final")
        waited = await client.call("agent.wait", {"runId": key, "timeoutMs": 240_000})
        streamed = [str(one) for one in client.events if _is_text_of(one, key)]
    assert streamed
    assert not any("MEDIA" in one for one in streamed)
    shown = ended["message"]["content"][0]["text"]
    assert shown == f"Before.\nMedium {marker} after."
    raw = waited["terminalReply"]["text"]
    assert split_media(raw) == (shown, ("/etc/hostname", "./x.png"))


def _is_text_of(frame: Json, run_id: str) -> bool:
    payload = frame.get("payload") or {}
    is_delta = payload.get("state") == "delta" or payload.get("stream") == "assistant"
    return payload.get("runId") == run_id and is_delta


async def test_a_file_that_is_too_large_is_left_out(
    bare: Bare, openclaw: OpenClaw, marker: str
) -> None:
    for name in ("text.txt", "other.pdf"):
        (openclaw.workspace("main") / f"{marker}-{name}").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    session = f"agent:main:a2a:local:{marker}"
    async with open_connection_to(openclaw) as connection, bare() as client:
        await client.agent("main", session, "hello")
        session_reference = await session_ref(connection, session)
        parts = await fetch_media(
            connection, session_reference, [f"{marker}-text.txt", f"{marker}-other.pdf"]
        )
    too_large = f"more than the {MAX_FILE_BYTES} bytes"
    assert [too_large in (part.text or "") for part in parts] == [True, True]


async def test_the_agents_of_a_gateway_are_listed_over_websocket_and_http(
    openclaw: OpenClaw,
) -> None:
    async with open_connection_to(openclaw) as connection:
        agents = OpenClawAgents()
        await agents.refresh(connection)
        over_http = await list_agents_over_http(connection.address)
    assert {agent.id for agent in agents.agents} == {"main", "helper"}
    assert {agent.id for agent in over_http} == {"main", "helper"}
    agent = agents.find("Main")
    assert agent is not None
    assert agent.workspace == str(openclaw.workspace("main"))
    assert agent.profile.name == "Main"


async def test_a_link_in_an_answer_becomes_a_url_part(openclaw: OpenClaw) -> None:
    async with open_connection_to(openclaw) as connection:
        (part,) = await fetch_media(
            connection, SessionRef("main", "x"), ["https://example.com/a.PNG?x=1"]
        )
    assert part == Part.of_url("https://example.com/a.PNG?x=1", media_type="image/png")
