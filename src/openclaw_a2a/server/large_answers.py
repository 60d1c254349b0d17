"""Responses with a large task: few are built at once, in small steps, and readers share them.

A task of many megabytes takes long to read and to encode, and its bytes wait in memory until the
client has read them. So each caller gets one such response at a time; nothing is done for a client
that has left; the work leaves most of the event loop to other requests (`Pacer`); readers of the
same task share the bytes; and the memory is limited, in total and per caller.
"""

import weakref
from collections.abc import Callable, Iterator

import msgspec

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.scheduling.fair_queue import FairSemaphore, Pacer
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.http.asgi import ClientDisconnected, HttpRequest
from openclaw_a2a.model.errors import Overloaded, TaskNotFound
from openclaw_a2a.model.ids import PeerName
from openclaw_a2a.model.records import StoredTask, TaskHead, decode_task
from openclaw_a2a.model.task import Task
from openclaw_a2a.ports import MeasuredTask
from openclaw_a2a.protocol import v1
from openclaw_a2a.protocol.versions import ProtocolVersion

_AT_ONCE = 2
_LISTS_AT_ONCE = 3  # one for each caller
_CHUNK_BYTES = 64 * 1024
_RETRY_S = 5
CLOSING_S = 0.002
"""How long the loop gets to see that a client which sent a request has closed the connection."""


EncodePieces = Callable[[Task], Iterator[bytes]]
"""The JSON of a task in a protocol version, in pieces."""


class LargeAnswer:
    """The encoded task at one sequence number, in chunks that all its readers send."""

    __slots__ = ("__weakref__", "caller", "chunks", "head", "size")

    def __init__(self, head: TaskHead, chunks: tuple[bytes, ...], caller: PeerName) -> None:
        self.head = head
        self.chunks = chunks
        self.caller = caller
        # Of memory: a string that is there several times is one object.
        self.size = sum({id(chunk): len(chunk) for chunk in chunks}.values())


class TaskFrame(msgspec.Struct, frozen=True):
    """A large answer to a send, or the first of a stream, with what its version has around it."""

    answer: LargeAnswer
    around: tuple[bytes, bytes]

    @property
    def chunks(self) -> tuple[bytes, ...]:
        """The body in chunks."""
        return (self.around[0], *self.answer.chunks, self.around[1])


class AnswerChunks(msgspec.Struct, frozen=True):
    """A large answer of one request."""

    chunks: tuple[bytes, ...]


class LargeAnswers:
    """The large answers of a gateway that are being made or sent."""

    def __init__(self, max_bytes: int = 256 * 1024 * 1024) -> None:
        self._max_bytes = max_bytes
        self._slots = FairSemaphore(_AT_ONCE)
        self.list_slots = FairSemaphore(_LISTS_AT_ONCE)
        """For lists of tasks, whose pages may be large."""
        # Weak: an answer is kept, and counts towards the limit, while a request refers to it.
        self._answers: weakref.WeakValueDictionary[object, LargeAnswer] = (
            weakref.WeakValueDictionary()
        )

    async def read(
        self,
        request: HttpRequest,
        engine: Engine,
        caller: PeerName,
        measured: MeasuredTask,
        version: ProtocolVersion,
        encode: EncodePieces,
        history_length: int | None = None,
    ) -> LargeAnswer:
        """The encoded task, which the caller is known to be allowed to see.

        Raises: ClientDisconnected, Overloaded, TaskNotFound.
        """
        task_id = measured.head.id
        # While it waits nothing of the task is in memory. When its turn comes, the request ends if
        # its client has left.
        async with self._slots.slot(caller, is_retry=False):
            await check_present(request, wait_s=CLOSING_S)
            key = (task_id, measured.head.sequence, version, history_length)
            answer = self._answers.get(key)
            if answer is None:
                self._check_memory(caller, measured.size)
                tasks, scope = engine.store.tasks, measured.head.scope
                outline = await tasks.read_outline(scope, task_id)
                if outline is None:
                    raise TaskNotFound(f"task not found: there is no task {task_id}")
                stored, head = outline.stored, outline.stored.head
                if history_length is not None and not stored.entries:
                    # Before decoding, which skips most of a long history.
                    trimmed = v1.trim_task(stored.snapshot, history_length=history_length)
                    stored = msgspec.structs.replace(stored, snapshot=trimmed)
                if version is ProtocolVersion.V1 and not stored.entries:
                    chunks = (stored.snapshot,)
                else:
                    chunks = await _encode(request, stored, encode, history_length)
                contents = await tasks.read_contents(scope, task_id, outline.keys(chunks))
                if contents is None:
                    raise TaskNotFound(f"task not found: there is no task {task_id}")
                filled = tuple([part for chunk in chunks for part in outline.fill(chunk, contents)])
                answer = LargeAnswer(head, filled, caller)
                # Under its own sequence: the task may have changed since it was measured.
                self._answers[task_id, head.sequence, version, history_length] = answer
            return answer

    def _check_memory(self, caller: PeerName, size: int) -> None:
        held = list(self._answers.values())
        own = sum(answer.size for answer in held if answer.caller == caller)
        total = sum(answer.size for answer in held)
        # Each caller can always have one, of any size, independent of others: it can be read
        # in no other way. So only those that hold one already are refused.
        if own and (own + size > self._max_bytes // 2 or total + size > self._max_bytes):
            raise Overloaded(
                "too many large answers wait to be read; read those that were asked for, then ask"
                " again",
                retry_after_s=_RETRY_S,
                setting="limits.answerBytes",
            )


async def check_present(request: HttpRequest, *, wait_s: float = 0) -> None:
    """Raises ClientDisconnected when the client leaves within `wait_s`."""
    if await request.is_disconnected(wait_s=wait_s):
        raise ClientDisconnected("the client left before its answer was made")


async def _encode(
    request: HttpRequest, stored: StoredTask, encode: EncodePieces, history_length: int | None
) -> tuple[bytes, ...]:
    pacer = Pacer()
    projection = TaskProjection(decode_task(stored.snapshot))
    for entry in stored.entries:
        projection.apply(entry.event)
        if await pacer.pause():
            await check_present(request)
    task = projection.task()
    if history_length is not None:
        history = task.history[-history_length:] if history_length else ()
        task = msgspec.structs.replace(task, history=history)
    chunks: list[bytes] = []
    pieces: list[bytes] = []
    size = 0
    for piece in encode(task):
        pieces.append(piece)
        size += len(piece)
        if size > _CHUNK_BYTES:
            chunks.append(b"".join(pieces))
            pieces, size = [], 0
        if await pacer.pause():
            await check_present(request)
    return (*chunks, b"".join(pieces))
