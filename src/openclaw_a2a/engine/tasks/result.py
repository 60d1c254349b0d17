"""What the sender of a message gets: a task, a direct answer, or a rejection."""

import asyncio
from typing import Generic, TypeVar

import msgspec

from openclaw_a2a.engine.tasks.turn_builder import AccountRules
from openclaw_a2a.model.errors import GatewayError, OutputNotAccepted
from openclaw_a2a.model.ids import Json, MessageId
from openclaw_a2a.model.records import StreamBody, encode_json
from openclaw_a2a.model.task import Task
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import Duplicate

Value = TypeVar("Value")


class Promise(Generic[Value]):
    """A value that is set once and awaited by any number of waiters.

    Unlike a future that is awaited by several, a waiter that is cancelled cancels only itself.
    """

    __slots__ = ("_value", "_waiters", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._value: Value | None = None
        self._waiters: list[asyncio.Future[None]] | None = None

    def set(self, value: Value) -> None:
        """Set the value, unless it is set already."""
        if self.is_set:
            return
        self.is_set, self._value = True, value
        for waiter in self._waiters or ():
            if not waiter.done():
                waiter.set_result(None)
        self._waiters = None

    async def wait(self, timeout_s: float | None = None) -> Value:
        """The value, once it is set. Raises: TimeoutError."""
        if not self.is_set:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters = [*(self._waiters or ()), waiter]
            if timeout_s is None:
                await waiter
            else:
                async with asyncio.timeout(timeout_s):
                    await waiter
        return self._value  # pyright: ignore[reportReturnType] - None only when Value allows it

    def peek(self) -> Value:
        """The value, which must be set."""
        if not self.is_set:
            raise LookupError("the value is not set yet")
        return self._value  # pyright: ignore[reportReturnType] - None only when Value allows it


class DirectAnswer(msgspec.Struct, frozen=True):
    """An answer without a task: the stored bytes of one agent message."""

    message: bytes


class TaskCreated(msgspec.Struct, frozen=True):
    """A task as it is first shown, and its sequence number at that moment."""

    task: Task
    sequence: int


class TaskFinished(msgspec.Struct, frozen=True):
    """A task as it was when it ended or paused; `error` is what the caller gets instead."""

    task: bytes
    error: GatewayError | None = None


class Rejected(msgspec.Struct, frozen=True):
    """The message was not accepted: an error, or a duplicate of one that was accepted before."""

    error: GatewayError | None
    duplicate: Duplicate | None = None


FirstResult = TaskCreated | DirectAnswer | Rejected
FinalResult = TaskFinished | DirectAnswer | Rejected


class DuplicateRun:
    """Takes the place of a run for a message that was accepted before."""

    def __init__(self, duplicate: Duplicate, scope: Scope, message_id: MessageId) -> None:
        self.scope = scope
        self.message_id = message_id
        self._rejected = Rejected(None, duplicate)
        self.created: Promise[FirstResult] = Promise()
        self.created.set(self._rejected)

    async def wait_result(self) -> FinalResult:
        """The rejection that names the duplicate."""
        return self._rejected


# ---------------------------------------------------------------- stored answers


class StoredAnswer(StreamBody, frozen=True):
    """What is stored of a run that made no task: its message, or the error."""

    error: dict[str, Json] | None = None


def encode_answer(message: bytes) -> bytes:
    """The stored form of a direct answer, from the bytes of its message."""
    return b'{"message":' + message + b"}"


def encode_rejection(error: GatewayError) -> bytes:
    """The stored form of a run that has nothing to show."""
    details = {"code": error.code, "message": error.message, "details": error.details}
    return msgspec.json.encode({"error": details})


def decode_answer(stored: bytes) -> DirectAnswer | Rejected:
    """The result of a run that ended without a task."""
    document = msgspec.json.decode(stored, type=StoredAnswer)
    if document.message is not None:
        return DirectAnswer(encode_json(document.message))
    fault = document.error or {}
    details = fault.get("details")
    return Rejected(OutputNotAccepted(str(fault.get("message", "")), details=details))


def output_not_accepted(accepted: tuple[str, ...], rules: AccountRules) -> OutputNotAccepted:
    """The error for an answer of which nothing is in an output mode the caller accepts."""
    modes = list(accepted or rules.output_modes)
    return OutputNotAccepted(
        f"The answer holds nothing in an accepted output mode ({', '.join(modes)}).",
        details={"acceptedOutputModes": modes, "availableOutputModes": list(rules.output_modes)},
    )
