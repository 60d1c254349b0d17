"""Prints the events of a task: its text as it arrives, everything else on standard error."""

from collections.abc import Iterable

import msgspec

from openclaw_a2a.cli.options import NO_CONNECTION, Connection
from openclaw_a2a.cli.render.terminal import print_data, print_message
from openclaw_a2a.model.message import Message, Part
from openclaw_a2a.model.records import StreamBody
from openclaw_a2a.model.task import Artifact, Task, TaskState, TaskStatus, is_paused, is_terminal


class StreamView:
    """Shows a stream of events: answers on standard output, states and tools on standard error."""

    def __init__(self, connection: Connection = NO_CONNECTION) -> None:
        self._connection = connection
        self._shown: dict[str, str] = {}
        self._current: str | None = None
        self._state: TaskState | None = None
        self._task_id: str | None = None
        self.is_mid_line = False
        """True while a line of text is not complete."""

    def draw(self, body: StreamBody) -> None:
        """Show one event."""
        if body.task is not None:
            self._draw_task(body.task)
        elif body.status_update is not None:
            self._draw_status(body.status_update.status)
        elif body.artifact_update is not None:
            update = body.artifact_update
            self._draw_artifact(
                update.artifact, is_whole=not update.append, are_pieces=bool(update.append)
            )
        elif body.message is not None:
            print_data(format_message(body.message).removesuffix("\n"))
            omitted = (body.message.metadata or {}).get("omittedFiles")
            if isinstance(omitted, str):  # a direct answer has no status that says it
                self._aside(omitted)

    def finish(self) -> None:
        """End the output: finish the line, and print how to answer a waiting task."""
        self._end_line()
        if self._task_id and self._state and is_paused(self._state):
            print_message(self._connection.answer_hint(self._task_id))

    def _draw_task(self, task: Task) -> None:
        if self._task_id is None:
            print_message(f"task {task.id} · context {task.context_id}", "dim")
        self._task_id = task.id
        # What is under way has its state before its text; an end or a question comes after it.
        if not (is_terminal(task.status.state) or is_paused(task.status.state)):
            self._draw_status(task.status)
        for artifact in task.artifacts:
            self._draw_artifact(artifact, is_whole=True, are_pieces=True)
        self._draw_status(task.status, is_known=True)

    def _draw_status(self, status: TaskStatus, *, is_known: bool = False) -> None:
        text = format_message(status.message) if status.message else ""
        is_repeat = status.state is TaskState.COMPLETED and bool(self._shown)
        if status.state is TaskState.COMPLETED and text and not is_repeat:
            print_data(text.removesuffix("\n"))
        if is_terminal(status.state):
            self._end_line()
        is_news = status.state is not self._state
        if is_news or (text and status.state is TaskState.WORKING and not is_known):
            note = "" if not text or status.state is TaskState.COMPLETED else f": {text}"
            self._aside(f"{status.state.label}{note}")
        self._state = status.state

    def _draw_artifact(self, artifact: Artifact, *, is_whole: bool, are_pieces: bool) -> None:
        before = self._shown.get(artifact.artifact_id, "")
        if (artifact.metadata or {}).get("source") == "tool":
            notes = [part.text for part in artifact.parts if part.text]
            if notes and notes[-1] != before:
                self._aside(notes[-1])
                self._shown[artifact.artifact_id] = notes[-1]
            return
        text = format_parts(artifact.parts, are_pieces=are_pieces)
        if not is_whole:
            is_apart = artifact.parts[:1] and artifact.parts[0].text is None
            text = f"\n{text}" if is_apart and before and not before.endswith("\n") else text
            self._write(artifact, text)
            self._shown[artifact.artifact_id] = before + text
            return
        other = format_parts(artifact.parts, are_pieces=not are_pieces)
        if other.startswith(before) and not text.startswith(before):
            text = other
        if not text.startswith(before):
            self._end_line()
            print_message("(the text begins anew)", "dim")
            before = ""
        self._write(artifact, text[len(before) :])
        self._shown[artifact.artifact_id] = text

    def _write(self, artifact: Artifact, text: str) -> None:
        if not text:
            return
        if self._current not in (None, artifact.artifact_id):
            self._end_line()
        self._current = artifact.artifact_id
        self.is_mid_line = not text.endswith("\n")
        print_data(text, end="")

    def _aside(self, text: str) -> None:
        self._end_line()
        print_message(text, "dim")

    def _end_line(self) -> None:
        if self.is_mid_line:
            print_data()
        self.is_mid_line = False


def format_message(message: Message) -> str:
    """A message as text, files and data included."""
    return format_parts(message.parts)


def format_parts(parts: Iterable[Part], *, are_pieces: bool = False) -> str:
    """Parts as text, each on lines of its own; pieces of one text are joined as they are."""
    text, was_text = "", True
    for part in parts:
        is_text = part.text is not None
        is_piece = are_pieces and is_text and was_text
        if text and not is_piece and not text.endswith("\n"):
            text += "\n"
        text += _format_part(part)
        was_text = is_text
    return text


def _format_part(part: Part) -> str:
    if part.text is not None:
        return part.text
    if part.url is not None:
        return f"[file {part.filename or ''} {part.url}]".replace("  ", " ")
    if part.raw is not None:
        name = part.filename or "without a name"
        return f"[file {name}, {part.media_type or 'unknown type'}, {len(part.content)} bytes]"
    return msgspec.json.format(msgspec.json.encode(part.data), indent=2).decode()
