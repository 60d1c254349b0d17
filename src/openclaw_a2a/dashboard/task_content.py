"""The content of a task: its conversation, its events, and its files."""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

import msgspec

from openclaw_a2a.dashboard.requests import Download, PageRequest
from openclaw_a2a.dashboard.task_timeline import event_time, is_tool_artifact
from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.tasks.queries import find_any_task, get_task, task_json
from openclaw_a2a.engine.transcript.assistant_message import OUTPUT_PREFIX
from openclaw_a2a.engine.transcript.task_text import parts_text
from openclaw_a2a.model.errors import BodyTooLarge, CorruptRecord, RouteNotFound
from openclaw_a2a.model.file_content import clean_filename
from openclaw_a2a.model.ids import Json
from openclaw_a2a.model.message import JsonStruct, Message, Part, Role
from openclaw_a2a.model.records import Entry, TaskHead, decode_task
from openclaw_a2a.model.task import ACTIVE, PAUSED, Artifact, StatusUpdate, Task, TaskState

MAX_SHOWN_TEXT = 32 * 1024
"""How much of one text a page shows; the download has all of it."""
_READ_CHARS, _SUMMARY_CHARS = 400, 160
"""How much of a text is read for a summary, and how long that is."""
_READ_AT_ONCE = 1000
_MAX_JOURNAL_BYTES = 64 * 1024 * 1024
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml"})
"""Media types that a page shows as a picture; in one, a browser runs nothing."""


class ShownPart(JsonStruct, frozen=True, omit_defaults=False):
    """A piece of content. `file` is the name by which its bytes are fetched; empty: it has none.

    `kind` is text, image, file, link or data; `is_cut`: the text is longer than shown.
    """

    kind: str
    text: str = ""
    name: str = ""
    media_type: str = ""
    url: str = ""
    size: int = 0
    file: str = ""
    data: Json = None
    is_cut: bool = False


class Utterance(JsonStruct, frozen=True, omit_defaults=False):
    """What was said or made, in the order in which it happened.

    `kind` is user, agent, note, question, error, tool or artifact.
    """

    kind: str
    parts: tuple[ShownPart, ...]
    name: str = ""
    at: datetime | None = None


class ShownEvent(JsonStruct, frozen=True, omit_defaults=False):
    """One event of the journal. `body` is its JSON in A2A 1.0, with line breaks.

    `kind` is status, artifact, tool (the progress of a tool call) or damaged.
    """

    sequence: int
    kind: str
    state: str
    at: datetime | None
    summary: str
    body: str


# -------------------------------------------------------------------- the conversation


def make_conversation(task: Task, entries: Sequence[Entry]) -> Iterator[Utterance]:
    """What was said and made, in the order in which it happened.

    Messages of the caller are no events: each comes where the task was opened by one.
    """
    said = [(n, one) for n, one in enumerate(task.history) if one.role is Role.USER]
    artifacts = {one.artifact_id: (n, one) for n, one in enumerate(task.artifacts)}
    if said:
        yield _say("user", *said.pop(0))
    was_paused = False
    outputs = [one.parts for one in task.artifacts if one.artifact_id.startswith(OUTPUT_PREFIX)]
    last_answer = _summary(outputs[-1]) if outputs else ""
    numbers = {one.message_id: n for n, one in enumerate(task.history)}
    for entry in entries:
        event = entry.event
        if not isinstance(event, StatusUpdate):
            found = artifacts.pop(event.artifact.artifact_id, None)
            if found is not None:
                yield _show_artifact(*found)
            continue
        state, message = event.status.state, event.status.message
        if was_paused and state in ACTIVE and said:
            yield _say("user", *said.pop(0))
        was_paused = state in PAUSED
        # The status of an end repeats the answer.
        if message is not None and not (
            state is TaskState.COMPLETED and _summary(message.parts) == last_answer
        ):
            number = numbers.get(message.message_id, 0)
            yield _say(_status_kind(state), number, message, event.status.timestamp)
    for found in artifacts.values():
        yield _show_artifact(*found)
    for number, message in said:
        yield _say("user", number, message)


def _status_kind(state: TaskState) -> str:
    if state in PAUSED:
        return "question"
    return "error" if state in (TaskState.FAILED, TaskState.REJECTED) else "note"


def _say(kind: str, number: int, message: Message, at: datetime | None = None) -> Utterance:
    return Utterance(kind, tuple(_show_parts(message.parts, f"m{number}")), at=at)


def _show_artifact(number: int, artifact: Artifact) -> Utterance:
    kind, name = "artifact", artifact.name or artifact.artifact_id
    if artifact.artifact_id.startswith(OUTPUT_PREFIX):
        kind, name = "agent", ""
    elif is_tool_artifact(artifact):
        kind, name = "tool", str((artifact.metadata or {}).get("toolName", name))
    return Utterance(kind, tuple(_show_parts(artifact.parts, f"a{number}")), name=name)


def _show_parts(parts: Sequence[Part], prefix: str) -> Iterator[ShownPart]:
    """Streamed text comes in many parts: those that follow each other are one text."""
    text: list[str] = []
    for index, part in enumerate(parts):
        if part.text is not None:
            text.append(part.text)
            continue
        if text:
            yield _show_text("".join(text))
            text = []
        yield _show_other(part, f"{prefix}-{index}")
    if text:
        yield _show_text("".join(text))


def _show_text(text: str) -> ShownPart:
    return ShownPart("text", text=text[:MAX_SHOWN_TEXT], is_cut=len(text) > MAX_SHOWN_TEXT)


def _show_other(part: Part, name: str) -> ShownPart:
    media_type = (part.media_type or "application/octet-stream").partition(";")[0].strip().lower()
    label = part.filename or media_type
    if part.raw is not None:
        size = len(part.raw) * 3 // 4 - part.raw.count("=", -2)
        kind = "image" if media_type in _IMAGES else "file"
        return ShownPart(kind, name=label, media_type=media_type, size=size, file=name)
    if part.url is not None:
        return ShownPart("link", name=label, media_type=media_type, url=part.url)
    text = msgspec.json.format(msgspec.json.encode(part.data), indent=2).decode()
    return ShownPart("data", text=text[:MAX_SHOWN_TEXT], is_cut=len(text) > MAX_SHOWN_TEXT)


# -------------------------------------------------------------------- events


async def read_edge_events(engine: Engine, head: TaskHead, first: int, last: int) -> list[Entry]:
    """The first events of a task and the last ones; all of them, when there are no more."""
    read = engine.store.tasks.read_events
    if head.sequence <= first + last:
        return await read(None, head.id, after=0, limit=first + last)
    found = await read(None, head.id, after=0, limit=first)
    return found + await read(None, head.id, after=head.sequence - last, limit=last)


def choose_events(entries: Sequence[Entry], show: str, order: str) -> tuple[ShownEvent, ...]:
    """The events of the kind `show`, or all; `newest` first or the oldest."""
    found = [one for one in map(_show_event, entries) if show in ("", one.kind)]
    return tuple(reversed(found) if order == "newest" else found)


def _show_event(entry: Entry) -> ShownEvent:
    try:
        body = msgspec.json.format(entry.body, indent=2)[:MAX_SHOWN_TEXT].decode(errors="replace")
    except ValueError:
        body = entry.body[:MAX_SHOWN_TEXT].decode(errors="replace")
    try:
        event = entry.event
    except CorruptRecord as error:
        return ShownEvent(entry.sequence, "damaged", "", None, error.message, body)
    if isinstance(event, StatusUpdate):
        message, state = event.status.message, event.status.state.label
        text = "" if message is None else _summary(message.parts)
        at = event.status.timestamp
        return ShownEvent(entry.sequence, "status", state, at, text, body)
    artifact = event.artifact
    kind, summary = "tool" if is_tool_artifact(artifact) else "artifact", _summary(artifact.parts)
    # What is added goes on in the artifact before; ids of tool calls tell people nothing.
    if kind == "artifact" and not event.append:
        summary = f"{artifact.artifact_id}: {summary}"
    return ShownEvent(entry.sequence, kind, "", event_time(event), summary, body)


def _summary(parts: tuple[Part, ...]) -> str:
    text = " ".join(parts_text(parts)[:_READ_CHARS].split())[:_SUMMARY_CHARS]
    named = [part.filename or ("(blank)" if part.text else f"({part.kind})") for part in parts]
    return text or ", ".join(named)


# -------------------------------------------------------------------- files and journals


def _list_parts(task: Task) -> Iterator[tuple[str, Part]]:
    """Every part of a task with the name by which it is fetched; names stay as the task grows."""
    for number, message in enumerate(task.history):
        for index, part in enumerate(message.parts):
            yield f"m{number}-{index}", part
    for number, artifact in enumerate(task.artifacts):
        for index, part in enumerate(artifact.parts):
            yield f"a{number}-{index}", part


class TaskDownloads:
    """Reads what is fetched by itself: files of messages and artifacts, and journals."""

    def __init__(self, engines: Collection[Engine]) -> None:
        self._engines = engines

    async def read_file(self, request: PageRequest) -> Download:
        """The bytes of a file in a message or artifact. Raises: TaskNotFound, RouteNotFound."""
        task_id, wanted = request.segments
        engine, found = await find_any_task(self._engines, task_id)
        stored = await get_task(engine, None, found.head.id)
        for name, part in _list_parts(decode_task(task_json(stored))):
            if name == wanted and part.raw is not None:
                declared = (part.media_type or "").partition(";")[0].strip().lower()
                # Nothing but pictures has a type of its own: a browser saves the rest.
                media_type = declared if declared in _IMAGES else "application/octet-stream"
                filename = clean_filename(part.filename or "") or f"{task_id[:8]}-{name}"
                return Download(part.content, media_type, filename)
        raise RouteNotFound(f"task {task_id[:80]} has no file {wanted[:80]}")

    async def read_journal(self, request: PageRequest) -> Download:
        """Every event of a task, one JSON object in a line. Raises: TaskNotFound, BodyTooLarge."""
        engine, found = await find_any_task(self._engines, request.segments[0])
        head = found.head
        lines: list[bytes] = []
        after = size = 0
        while entries := await engine.store.tasks.read_events(
            None, head.id, after=after, limit=_READ_AT_ONCE, max_bytes=_MAX_JOURNAL_BYTES
        ):
            lines += [b'{"sequence":%d,"event":%b}\n' % (one.sequence, one.body) for one in entries]
            after, size = entries[-1].sequence, size + sum(len(one.body) for one in entries)
            if size > _MAX_JOURNAL_BYTES:
                raise BodyTooLarge(
                    f"the events of task {head.id} are larger than {_MAX_JOURNAL_BYTES} bytes;"
                    f" read them with `openclaw-a2a tasks watch {head.id} --json`"
                )
        return Download(b"".join(lines), "application/jsonl", f"{head.id}.jsonl")
