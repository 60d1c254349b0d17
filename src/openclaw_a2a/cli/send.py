"""`send`: a message to an agent, and the answer as it comes."""

import mimetypes
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from openclaw_a2a.cli.failure import DONE, FAILED, INTERRUPTED
from openclaw_a2a.cli.flags import NO_CONNECTION, Connection, JsonFlag
from openclaw_a2a.cli.output import say, show
from openclaw_a2a.cli.screen import Screen
from openclaw_a2a.cli.target import connect, decode, find_task
from openclaw_a2a.model.errors import InvalidRequest
from openclaw_a2a.model.ids import ContextId, JsonObject, MessageId, TaskId
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.stored import StreamBody
from openclaw_a2a.model.task import TaskState

if TYPE_CHECKING:
    from openclaw_a2a.cli.client import Client
    from openclaw_a2a.cli.follow import Follow, Followed

_UNHAPPY = frozenset({TaskState.FAILED, TaskState.REJECTED, TaskState.CANCELED})


@Parameter(name="*")
@dataclass(frozen=True)
class Sending:
    """What the message belongs to and how it is sent."""

    no_stream: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Wait for the whole answer.")
    ] = False
    task: Annotated[str | None, Parameter(help="Continue this task (id or its beginning).")] = None
    context: Annotated[str | None, Parameter(help="Continue this context.")] = None
    file: Annotated[
        list[Path] | None, Parameter(negative=(), help="Send this file too; may be repeated.")
    ] = None


NOTHING_SPECIAL = Sending()


def send(
    *text: str,
    sending: Sending = NOTHING_SPECIAL,
    as_json: JsonFlag = False,
    connection: Connection = NO_CONNECTION,
) -> int:
    """Send a message to an agent and show the answer as it comes.

    With --json, one event of the stream per line (with --no-stream, the one answer).

    Parameters
    ----------
    text
        What to say; - reads it from standard input.
    """
    message = build_message(_words(text), sending.file or [])
    with connect(connection) as client:
        task_id = TaskId(find_task(client, sending.task)) if sending.task else None
        context_id = ContextId(sending.context) if sending.context else None
        whole = msgspec.structs.replace(message, task_id=task_id, context_id=context_id)
        params: JsonObject = {"message": msgspec.to_builtins(whole)}
        if sending.no_stream or not client.card().capabilities.streaming:
            return _send_and_wait(client, params, as_json=as_json)
        return _send_and_follow(client, params, as_json=as_json)


def build_message(text: str, files: list[Path]) -> Message:
    """The message to send. Raises: InvalidRequest."""
    parts = ([Part.of_text(text)] if text else []) + [_file_part(path) for path in files]
    if not parts:
        raise InvalidRequest(
            "there is nothing to send",
            details={"code": "usage", "nextStep": 'Say something: openclaw-a2a send "hello"'},
        )
    return Message(MessageId(str(uuid.uuid4())), Role.USER, tuple(parts))


def exit_code_of(state: TaskState | None) -> int:
    """0 unless the task ended badly."""
    return FAILED if state in _UNHAPPY else DONE


def show_events(follow: "Follow", events: Iterator["Followed"], *, as_json: bool) -> int:
    """Show events as they come, one JSON line each or drawn; the exit code."""
    screen = Screen()
    try:
        for event in events:
            if as_json:
                show(event.raw.decode())
            else:
                screen.draw(event.body)
    except KeyboardInterrupt:
        screen.finish()
        if follow.task_id:
            say(f"The task goes on. Stop it: openclaw-a2a tasks cancel {follow.task_id}")
        return INTERRUPTED
    screen.finish()
    return exit_code_of(follow.state)


def _words(text: tuple[str, ...]) -> str:
    if text == ("-",):
        return sys.stdin.read().rstrip("\n")
    return " ".join(text)


def _file_part(path: Path) -> Part:
    try:
        content = path.expanduser().read_bytes()
    except OSError as error:
        message = f"cannot read {path}: {error.strerror}"
        raise InvalidRequest(message, details={"code": "file-unreadable"}) from None
    media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return Part.of_bytes(content, media_type=media_type, filename=path.name)


def _send_and_wait(client: "Client", params: JsonObject, *, as_json: bool) -> int:
    answer = client.call("SendMessage", params)
    body = decode(answer, StreamBody)
    if as_json:
        show(answer.decode())
    else:
        screen = Screen()
        screen.draw(body)
        screen.finish()
    return exit_code_of(body.task.status.state if body.task else None)


def _send_and_follow(client: "Client", params: JsonObject, *, as_json: bool) -> int:
    from openclaw_a2a.cli.follow import Follow

    follow = Follow(client)
    return show_events(follow, follow.send(params), as_json=as_json)
