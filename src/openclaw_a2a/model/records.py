"""The stored form of tasks, events and runs: 1.0 JSON, encoded once and served as stored."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime

import msgspec

from openclaw_a2a.model.errors import CorruptRecord
from openclaw_a2a.model.ids import ContextId, Json, MessageId, OwnerId, RunId, SessionKey, TaskId
from openclaw_a2a.model.message import JsonStruct, Message
from openclaw_a2a.model.task import ArtifactUpdate, Event, StatusUpdate, Task, TaskState
from openclaw_a2a.model.turn import Binding, Provenance, Scope

_task_decoder = msgspec.json.Decoder(Task)


class StreamBody(JsonStruct, frozen=True):
    """One of the four things a stream can carry, under the member that names it."""

    task: Task | None = None
    message: Message | None = None
    status_update: StatusUpdate | None = None
    artifact_update: ArtifactUpdate | None = None


_body_decoder = msgspec.json.Decoder(StreamBody)


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One committed event: its sequence number, its stored bytes, and the state it sets (None for
    artifacts)."""

    sequence: int
    body: bytes
    state: TaskState | None = None

    @property
    def event(self) -> Event:
        """The event, decoded."""
        return decode_event(self.body)


class TaskHead(msgspec.Struct, frozen=True, gc=False):
    """A task without its content."""

    id: TaskId
    scope: Scope
    context_id: ContextId
    state: TaskState
    status_at: datetime
    created_at: datetime
    sequence: int
    binding: Binding | None = None


class StoredTask(msgspec.Struct, frozen=True, gc=False):
    """A stored task: head, the last snapshot, and the events after it."""

    head: TaskHead
    snapshot: bytes
    entries: tuple[Entry, ...] = ()


class Hold(JsonStruct, frozen=True):
    """Why a message waits for the operator; `pairs`: allowing it approves its sender, too."""

    reason: str
    pairs: bool = False


class TaskOutline(msgspec.Struct, frozen=True, gc=False):
    """A stored task with marks in place of its large strings, which the store keeps by themselves.

    It is small, so it can be decoded, changed and encoded again at once; `fill` then puts the
    strings back. A mark is `mark` and the key of the string: nothing that a peer can write.
    """

    stored: StoredTask
    mark: bytes = b""
    key_size: int = 0

    def keys(self, chunks: Iterable[bytes]) -> set[bytes]:
        """The keys of the strings that belong into what was encoded from the outline."""
        if not self.mark:
            return set()
        pieces = [piece for chunk in chunks for piece in chunk.split(self.mark)[1:]]
        return {piece[: self.key_size] for piece in pieces}

    def fill(self, chunk: bytes, contents: Mapping[bytes, tuple[bytes, ...]]) -> Iterator[bytes]:
        """What was encoded from the outline, with the strings, as they are in JSON, in it."""
        if not contents:
            yield chunk
            return
        first, *rest = chunk.split(self.mark)
        yield first
        for piece in rest:
            yield from contents[piece[: self.key_size]]
            yield piece[self.key_size :]


class RunOptions(JsonStruct, frozen=True):
    """What the caller wants of a run; `is_answer`: its message answers a pause of the task.

    With `hold` the agent is not called: the run pauses its task until the operator decides.
    """

    accepted_output_modes: tuple[str, ...] = ()
    is_task: bool = False
    provenance: Provenance | None = None
    is_answer: bool = False
    hold: Hold | None = None


class RunRecord(msgspec.Struct, frozen=True, gc=False):
    """A run that is queued or active; its row is deleted when the run ends or pauses.

    `is_started` is committed before the first call of the agent, so that recovery can distinguish
    runs without effects from runs that may have had some.
    """

    id: RunId
    task_id: TaskId
    context_id: ContextId
    scope: Scope
    session_key: SessionKey
    message: Message
    binding: Binding
    options: RunOptions
    owner: OwnerId
    is_started: bool
    attempt: int = 1
    fence: int = 1
    ticket: int = 0
    resume: bytes | None = None


encode_json: Callable[[JsonStruct], bytes] = msgspec.json.Encoder().encode
"""The stored bytes of any struct: the encoder itself, without a Python function around it."""

STATUS_UPDATE, ARTIFACT_UPDATE = b'{"statusUpdate":', b'{"artifactUpdate":'
"""The beginning of a stored event: its stored bytes are the 1.0 stream response that holds it."""


def encode_event(event: Event) -> bytes:
    """The stored bytes of an event."""
    prefix = STATUS_UPDATE if isinstance(event, StatusUpdate) else ARTIFACT_UPDATE
    return prefix + encode_json(event) + b"}"


def decode_event(body: bytes) -> Event:
    """The event in stored bytes. Raises: CorruptRecord (they hold no event)."""
    try:
        stream_body = _body_decoder.decode(body)
    except (ValueError, RecursionError) as error:
        raise CorruptRecord(f"a stored event cannot be read: {error}") from error
    event = stream_body.status_update or stream_body.artifact_update
    if event is None:
        raise CorruptRecord("a stored event is neither a statusUpdate nor an artifactUpdate")
    return event


def decode_task(body: bytes) -> Task:
    """The task in stored bytes. Raises: CorruptRecord (they hold no task)."""
    try:
        return _task_decoder.decode(body)
    except (ValueError, RecursionError) as error:
        raise CorruptRecord(f"a stored task cannot be read: {error}") from error


class HeldMessage(JsonStruct, frozen=True, tag_field="openclaw-a2a", tag="held-message"):
    """The resume token of a task that waits for the operator.

    `resume` is the token with which the agent paused the task before, if it did.
    """

    message_id: MessageId
    hold: Hold
    accepted_output_modes: tuple[str, ...] = ()
    resume: Json = None

    def agent_token(self) -> bytes | None:
        """The agent's own token, encoded."""
        return None if self.resume is None else msgspec.json.encode(self.resume)


_HELD_MARK = b'{"openclaw-a2a":"held-message"'


def read_held_message(token: bytes | None) -> HeldMessage | None:
    """What a task holds back; None when its agent paused it. Raises: CorruptRecord."""
    if token is None or not token.startswith(_HELD_MARK):
        return None
    try:
        return msgspec.json.decode(token, type=HeldMessage)
    except (ValueError, RecursionError) as error:
        raise CorruptRecord(f"the stored resume token cannot be read: {error}") from error


def decode_resume(token: bytes | None) -> Json:
    """What the agent left when the task paused. Raises: CorruptRecord."""
    held = read_held_message(token)
    if held is not None:  # that is for the gateway; agents get their own
        return held.resume
    try:
        return None if token is None else msgspec.json.decode(token)
    except (ValueError, RecursionError) as error:
        raise CorruptRecord(f"the stored resume token cannot be read: {error}") from error


class _StatusShape(JsonStruct, frozen=True, gc=False):
    state: TaskState


class _MessageShape(JsonStruct, frozen=True, gc=False):
    message_id: str


class _ArtifactShape(JsonStruct, frozen=True, gc=False):
    artifact_id: str


class _TaskShape(JsonStruct, frozen=True, gc=False):
    """The members of a task that its readers need; content is skipped."""

    id: str
    context_id: str
    status: _StatusShape
    artifacts: tuple[_ArtifactShape, ...] = ()
    history: tuple[_MessageShape, ...] = ()


class _StatusUpdateShape(JsonStruct, frozen=True, gc=False):
    task_id: str
    status: _StatusShape


class _ArtifactUpdateShape(JsonStruct, frozen=True, gc=False):
    task_id: str
    artifact: _ArtifactShape


class _EventShape(JsonStruct, frozen=True, gc=False):
    status_update: _StatusUpdateShape | None = None
    artifact_update: _ArtifactUpdateShape | None = None


_task_shape = msgspec.json.Decoder(_TaskShape)
_event_shape = msgspec.json.Decoder(_EventShape)


def check_task_body(task_id: TaskId, body: bytes) -> None:
    """Check that stored bytes are JSON and hold this task, at a fraction of the cost of decoding.

    Stored bytes are served as they are: without it a damaged row makes a broken response.

    Raises: ValueError, RecursionError.
    """
    if _task_shape.decode(body).id != task_id:
        raise ValueError("it is the snapshot of another task")
    # The decoder skips content without looking at its bytes.
    if not body.isascii():  # nearly all is, and that check needs no memory
        body.decode()


def check_event_body(task_id: TaskId, body: bytes) -> None:
    """Check that stored bytes are JSON and hold an event of this task.

    Raises: ValueError, RecursionError.
    """
    shape = _event_shape.decode(body)
    update = shape.status_update or shape.artifact_update
    if update is None or update.task_id != task_id:
        raise ValueError("it is no event of this task")
    if not body.isascii():
        body.decode()
