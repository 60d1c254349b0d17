"""Streams as short lines, the same for both protocol versions, for comparisons."""

from collections.abc import Iterable
from typing import Any

from tests.conformance.protocol_clients import Frame, unwrap

Json = Any


def outline(frames: Iterable[Frame]) -> list[str]:
    """One line per event: `task submitted`, `status working`, `artifact x`, `message`.

    An artifact that continues another says `+`, one that ends says `.` at the end of its line.
    """
    return [describe(unwrap(frame.json)) for frame in frames]


def describe(event: Json) -> str:
    """The line of one event."""
    kind, body = split(event)
    if kind == "task":
        return f"task {state_of(body)}"
    if kind == "status":
        return f"status {state_of(body)}"
    if kind == "artifact":
        sign = "+" if body.get("append") else ""
        end = "." if body.get("lastChunk") else ""
        return f"artifact {sign}{body['artifact']['artifactId']}{end}"
    return kind


def split(event: Json) -> tuple[str, Json]:
    """What kind of event it is, and its content."""
    if "kind" in event:
        return str(event["kind"]).removesuffix("-update"), event
    names: dict[str, str] = {"statusUpdate": "status", "artifactUpdate": "artifact"}
    ((member, body),) = event.items()
    return names.get(str(member), str(member)), body


def state_of(body: Json) -> str:
    """The state of a task or status in the spelling of 0.3."""
    state: str = body["status"]["state"]
    return state.removeprefix("TASK_STATE_").lower().replace("_", "-")


def events(frames: Iterable[Frame]) -> list[Json]:
    """The content of each event."""
    return [split(unwrap(frame.json))[1] for frame in frames]


def text_of(holder: Json) -> str:
    """The text parts of a message or an artifact, joined."""
    return "".join(part.get("text", "") for part in holder["parts"])


def status_text(body: Json) -> str:
    """What the agent said with the status of a task or an event."""
    return text_of(body["status"]["message"])


def published_text(frames: Iterable[Frame], artifact_id: str) -> str:
    """The text of an artifact as a reader has it who followed all its events."""
    text = ""
    for event in events(frames):
        if event.get("artifact", {}).get("artifactId") == artifact_id:
            text = (text if event.get("append") else "") + text_of(event["artifact"])
    return text
