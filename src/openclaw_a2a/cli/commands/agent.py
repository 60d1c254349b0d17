"""`send` and `card`: a message to an agent and the answer as it comes; the card of an agent."""

import binascii
import itertools
import mimetypes
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from openclaw_a2a.cli.errors import DONE, FAILED, INTERRUPTED, code_of, usage_error
from openclaw_a2a.cli.follow import (
    CONNECTION_LOST,
    GATEWAY_GONE,
    FollowedEvent,
    Reconnect,
    TaskFollower,
)
from openclaw_a2a.cli.options import (
    NO_CONNECTION,
    Connection,
    connect,
    decode_response,
    find_task,
    join_text,
    switch,
)
from openclaw_a2a.cli.render.stream import StreamView
from openclaw_a2a.cli.render.terminal import pad, print_data, print_message
from openclaw_a2a.model.card import AgentCard
from openclaw_a2a.model.errors import AgentUnavailable
from openclaw_a2a.model.file_content import clean_filename
from openclaw_a2a.model.ids import ContextId, JsonObject, MessageId, TaskId
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.records import StreamBody
from openclaw_a2a.model.task import Task, TaskState

if TYPE_CHECKING:
    from openclaw_a2a.cli.a2a_client import Client

_UNHAPPY = frozenset({TaskState.FAILED, TaskState.REJECTED, TaskState.CANCELED})

SaveFlag = Annotated[
    Path | None, Parameter(help="Save the files that the agent sends in this folder.")
]


@Parameter(name="*")
@dataclass(frozen=True)
class SendFlags:
    """What the message belongs to and how it is sent."""

    no_stream: Annotated[bool, switch("Wait for the whole answer.")] = False
    task: Annotated[str | None, Parameter(help="Continue this task (id or its beginning).")] = None
    context: Annotated[str | None, Parameter(help="Continue this context.")] = None
    file: Annotated[
        list[Path] | None, Parameter(negative=(), help="Send this file too; may be repeated.")
    ] = None
    save: SaveFlag = None


DEFAULT_SEND = SendFlags()


def send(
    *text: str, options: SendFlags = DEFAULT_SEND, connection: Connection = NO_CONNECTION
) -> int:
    """Send a message to an agent and stream the answer.

    With --json, one event of the stream per line (with --no-stream, the one answer).

    Parameters
    ----------
    text
        What to say; - reads it from standard input.
    """
    said = join_text(text)
    parts = [Part.of_text(said)] if said else []
    parts += [_file_part(path) for path in options.file or ()]
    if not parts:
        hello = connection.command('send "hello"')
        raise usage_error("there is nothing to send", f"Say something: {hello}")
    files = SavedFiles(options.save) if options.save else None
    with connect(connection) as client:
        message = Message(
            MessageId(str(uuid.uuid4())),
            Role.USER,
            tuple(parts),
            task_id=TaskId(find_task(client, options.task)) if options.task else None,
            context_id=ContextId(options.context) if options.context else None,
        )
        params: JsonObject = {"message": msgspec.to_builtins(message)}
        if files is not None:
            # With --save files of every type are requested. The agent's own modes too, for servers
            # that compare the two lists word by word.
            modes = ["*/*", *client.card.default_output_modes]
            params["configuration"] = {"acceptedOutputModes": modes}
        if options.no_stream or not client.card.capabilities.streaming:
            code = _send_and_wait(client, params, connection, files)
        else:
            follow = TaskFollower(client)
            code = show_events(follow, follow.send(params), connection, files)
    if files is not None:
        files.write()
    return code


def show_events(
    follow: TaskFollower,
    events: Iterator[FollowedEvent],
    connection: Connection,
    files: "SavedFiles | None" = None,
) -> int:
    """Show events as they come, one JSON line each or drawn; the exit code."""
    screen = StreamView(connection)
    try:
        for event in events:
            if files is not None:
                files.add(event.body)
            if connection.as_json:
                print_data(event.raw.decode())
            else:
                screen.draw(event.body)
    except KeyboardInterrupt:
        screen.finish()
        return interrupted(follow.task_id, connection)
    except AgentUnavailable as error:
        screen.finish()
        raise given_up(error, follow.task_id, connection) from None
    screen.finish()
    return FAILED if follow.state in _UNHAPPY else DONE


def interrupted(task_id: str | None, connection: Connection) -> int:
    """Print how to follow or stop the task; the exit code."""
    if task_id is None:
        print_message("The message was sent; its agent may still be working.")
    else:
        print_message(
            f"The task goes on. Follow it: {connection.command(f'tasks watch {task_id}')}"
        )
        print_message(f"Stop it: {connection.command(f'tasks cancel {task_id}')}")
    return INTERRUPTED


def given_up(
    error: AgentUnavailable, task_id: str | None, connection: Connection
) -> AgentUnavailable:
    """The error with how to look later, when a gateway went away with our message."""
    if code_of(error) not in {GATEWAY_GONE, CONNECTION_LOST}:
        return error
    if task_id is None:
        look = connection.command("tasks list")
        step = f"The message may have been taken in. Look when the gateway is back: {look}"
    else:
        watch = connection.command(f"tasks watch {task_id}")
        step = f"The task is kept. Follow it when the gateway is back: {watch}"
    return AgentUnavailable(error.message, details={**error.details, "nextStep": step})


def _file_part(path: Path) -> Part:
    try:
        content = path.expanduser().read_bytes()
    except OSError as error:
        message = f"cannot read {path}: {error.strerror}"
        raise usage_error(message, code="file-unreadable") from None
    media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return Part.of_bytes(content, media_type=media_type, filename=path.name)


def _send_and_wait(
    client: "Client", params: JsonObject, connection: Connection, files: "SavedFiles | None"
) -> int:
    try:
        # A gateway that was away is sent the message again under its id, which it answers once.
        answer = Reconnect().call(lambda: client.call("SendMessage", params))
    except KeyboardInterrupt:
        return interrupted(None, connection)
    except AgentUnavailable as error:
        raise given_up(error, None, connection) from None
    body = decode_response(answer, StreamBody)
    if files is not None:
        files.add(body)
    if connection.as_json:
        print_data(answer.decode())
    else:
        screen = StreamView(connection)
        screen.draw(body)
        screen.finish()
    return FAILED if body.task and body.task.status.state in _UNHAPPY else DONE


class SavedFiles:
    """Collects the files of an answer, and writes them into a folder; the folder is made at once.

    Names of peers never lead out of the folder, and no file is overwritten.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.expanduser()
        self._parts: dict[str, tuple[Part, ...]] = {}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"cannot make the folder {folder}: {error.strerror}"
            raise usage_error(message, code="folder-unusable") from None

    def add(self, body: StreamBody) -> None:
        """Take the files of one event."""
        if body.task is not None:
            self.add_task(body.task)
        elif body.artifact_update is not None:
            artifact = body.artifact_update.artifact
            before = self._parts.get(artifact.artifact_id, ())
            kept = before if body.artifact_update.append else ()
            self.add_parts(artifact.artifact_id, (*kept, *artifact.parts))
        message = body.message or (body.status_update and body.status_update.status.message)
        if message:
            self._add_message(message)

    def add_task(self, task: Task) -> None:
        """Take the files that the agent has made and sent so far."""
        for artifact in task.artifacts:
            self.add_parts(artifact.artifact_id, artifact.parts)
        for message in (*task.history, task.status.message):
            if message is not None and message.role is Role.AGENT:
                self._add_message(message)

    def add_parts(self, key: str, parts: Iterable[Part]) -> None:
        """Take the files of an artifact or message, in place of what was taken of it before."""
        self._parts[key] = tuple(part for part in parts if part.is_file)

    def _add_message(self, message: Message) -> None:
        # The last message often repeats what is an artifact already.
        known = [part for parts in self._parts.values() for part in parts]
        self.add_parts(
            f"message {message.message_id}", (p for p in message.parts if p not in known)
        )

    def write(self) -> None:
        """Write the files, and say which; of a file elsewhere, where it is."""
        parts = [part for parts in self._parts.values() for part in parts]
        if not parts:
            print_message("The agent sent no files.", "dim")
        for part in parts:
            if part.raw is None:
                print_message(f"not saved: {part.url} (only its address was sent)")
                continue
            try:
                content = part.content
                path = self._write_new(_safe_name(part), content)
            except binascii.Error:
                print_message(f"not saved: {_safe_name(part)} (its content is damaged)")
            except OSError as error:
                message = f"cannot write into {self._folder}: {error.strerror}"
                raise usage_error(message, code="folder-unusable") from None
            else:
                print_message(f"saved {path} ({len(content)} bytes)")

    def _write_new(self, name: str, content: bytes) -> Path:
        stem, suffix = PurePosixPath(name).stem, PurePosixPath(name).suffix
        for number in itertools.count(1):
            path = self._folder / (name if number == 1 else f"{stem}-{number}{suffix}")
            try:
                with path.open("xb") as stream:  # never through a link that is there already
                    stream.write(content)
            except FileExistsError:
                continue
            return path
        raise AssertionError("numbers do not end")


def _safe_name(part: Part) -> str:
    """The name under which a file that a peer sent is saved."""
    name = clean_filename(part.filename or "")
    return name or f"file{mimetypes.guess_extension(part.media_type or '') or ''}"


def card(address: str | None = None, /, *, connection: Connection = NO_CONNECTION) -> int:
    """Show an agent card.

    Parameters
    ----------
    address
        Address of the agent or of its card; left out: the gateway of the settings.
    """
    with connect(replace(connection, url=address) if address else connection) as client:
        if connection.as_json:
            print_data(msgspec.json.format(client.card_bytes, indent=2).decode())
        else:
            _show_card(client.card)
    return DONE


def _show_card(card: AgentCard) -> None:
    offers = {
        "streaming": card.capabilities.streaming,
        "push notifications": card.capabilities.push_notifications,
        "extended card": card.capabilities.extended_agent_card,
    }
    print_data(f"{card.name} {card.version}")
    print_data(card.description)
    print_data(
        f"\noffers   {', '.join(name for name, has in offers.items() if has) or 'no extras'}"
    )
    print_data(f"takes    {', '.join(card.default_input_modes)}")
    print_data(f"gives    {', '.join(card.default_output_modes)}")
    print_data(f"token    {'needed' if card.security_requirements else 'not needed'}")
    print_data("\ninterfaces")
    for interface in card.supported_interfaces:
        print_data(
            f"  {interface.protocol_binding:<10} {interface.protocol_version:<6} {interface.url}"
        )
    print_data("\nskills")
    for skill in card.skills:
        print_data(f"  {pad(skill.id, 16)} {skill.description}")
