"""Follows tasks; an unreachable gateway is retried for a limited time."""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import msgspec

from openclaw_a2a.cli.errors import code_of
from openclaw_a2a.cli.options import decode_response
from openclaw_a2a.cli.render.terminal import print_message
from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.model.errors import AgentError, AgentFailed, AgentUnavailable
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.records import StreamBody
from openclaw_a2a.model.task import TaskState, is_paused, is_terminal

if TYPE_CHECKING:
    from openclaw_a2a.cli.a2a_client import Client
    from openclaw_a2a.cli.admin_client import OperatorTasks


RECONNECT_S = 60.0
CONNECTION_LOST = "connection-lost"
GATEWAY_GONE = "gateway-gone"
_DRAINING = "draining"
_TEMPORARY = frozenset({_DRAINING, "overloaded", "http-502", "http-503", "http-504"})
# Without jitter: this is one terminal, not many clients that reconnect together.
_BACKOFF = Backoff(first_s=0.1, max_s=2.0, factor=3.0, jitter=0.0)
_Answer = TypeVar("_Answer")


class Reconnect:
    """Tolerates failures for `seconds` since the last answer."""

    def __init__(self, seconds: float = RECONNECT_S) -> None:
        self._seconds = seconds
        self._away_since: float | None = None
        self.attempts = 0  # since the last progress; decides how long to pause
        self._has_answered = False

    def call(
        self, request: Callable[[], _Answer], before_message: Callable[[], None] | None = None
    ) -> _Answer:
        """Call until the gateway answers; it must have answered once before.

        Raises: AgentError.
        """
        while True:
            try:
                answer = request()
            except AgentError as error:
                if not is_temporary(error):
                    raise
                # A live page must leave the terminal before a message is printed over it.
                if before_message is not None:
                    before_message()
                self.tolerate(error, is_in_progress=self._has_answered)
                self.pause()
            else:
                self.mark_answered()
                return answer

    def tolerate(self, error: AgentError, *, is_in_progress: bool) -> None:
        """Accept a failure, and print the first one.

        While work is in progress at the gateway, any temporary failure is tolerated. Otherwise
        only failures of a gateway that answered before: a lost connection, or draining.

        Raises: the error when retrying will not help; AgentUnavailable when the time is over.
        """
        now = time.monotonic()
        if self._away_since is None:
            # There is no work yet: a gateway that never answered is a wrong address.
            if not is_in_progress and code_of(error) not in {CONNECTION_LOST, _DRAINING}:
                raise error
            self._away_since = now
            is_draining = code_of(error) == _DRAINING
            reason = "the gateway is stopping" if is_draining else error.message
            print_message(f"{reason}; trying again for {self._seconds:g} s", "dim")
        elif not is_temporary(error):
            raise error
        if now - self._away_since >= self._seconds:
            message = f"the gateway did not come back within {self._seconds:g} s"
            raise AgentUnavailable(message, details={"code": GATEWAY_GONE}) from None

    def mark_answered(self) -> None:
        """Start the time limit again: the gateway has answered."""
        # The number of attempts stays: a gateway that alternates is not retried too often.
        self._away_since = None
        self._has_answered = True

    def pause(self) -> None:
        """Sleep before the next attempt, longer each time."""
        self.attempts += 1
        time.sleep(_BACKOFF.delay_s(self.attempts))


def is_temporary(error: AgentError) -> bool:
    """True when the same request may succeed later."""
    return isinstance(error, AgentUnavailable) or code_of(error) in _TEMPORARY


class FollowedEvent(msgspec.Struct, frozen=True):
    """One event: as it was sent, and read."""

    raw: bytes
    body: StreamBody


class TaskFollower:
    """Reads a stream and resumes it after a lost connection, if the gateway returns in time.

    A gateway with numbered events continues after the last one received; any other gateway sends
    the current task first. While no task is known, the message is sent again under its id; a
    gateway answers that with the result of the first attempt.
    """

    def __init__(
        self, client: "Client | OperatorTasks", *, reconnect_s: float = RECONNECT_S
    ) -> None:
        self._client = client
        self._reconnect = Reconnect(reconnect_s)
        self._cursor: str | None = None
        self.task_id: str | None = None
        self.state: TaskState | None = None
        self.has_message = False

    @property
    def is_settled(self) -> bool:
        """True when nothing more will come: a direct answer, an end, or a pause."""
        if self.state is None:
            return self.has_message
        return is_terminal(self.state) or is_paused(self.state)

    def send(self, params: JsonObject) -> Iterator[FollowedEvent]:
        """Send a message and follow what becomes of it."""
        return self._follow("SendStreamingMessage", params)

    def watch(self, task_id: str) -> Iterator[FollowedEvent]:
        """Follow a task; an ended task is only shown."""
        self.task_id = task_id
        return self._follow("SubscribeToTask", {"id": task_id})

    def _follow(self, method: str, params: JsonObject) -> Iterator[FollowedEvent]:
        while True:
            try:
                yield from self._read(method, params)
            except (AgentUnavailable, AgentFailed) as error:
                if method != "SubscribeToTask" or is_temporary(error):
                    self._reconnect.tolerate(error, is_in_progress=self.task_id is not None)
                else:
                    # The protocol has no stream for a task that has ended: show the task itself.
                    task = self._client.call("GetTask", {"id": self.task_id})
                    followed = self._note(None, b'{"task":' + task + b"}")
                    if not self.is_settled:
                        raise
                    yield followed
            if self.is_settled:
                return
            self._reconnect.pause()
            # Once the task is known the message is never sent again, only its stream resumed.
            if self.task_id is not None:
                method, params = "SubscribeToTask", {"id": self.task_id}

    def _read(self, method: str, params: JsonObject) -> Iterator[FollowedEvent]:
        for frame in self._client.stream(method, params, last_event_id=self._cursor):
            self._reconnect.mark_answered()
            followed = self._note(frame.id, frame.body)
            # A snapshot alone is no progress: an agent that sends nothing else is polled slowly.
            if followed.body.task is None:
                self._reconnect.attempts = 0
            yield followed
            # A subscription stays open while the task pauses; here a person has to answer.
            if self.is_settled:
                return
        if self.task_id is None and not self.has_message:
            message = f"the stream of {self._client.url} ended without an answer"
            raise AgentUnavailable(message, details={"code": CONNECTION_LOST})

    def _note(self, event_id: str | None, raw: bytes) -> FollowedEvent:
        body = decode_response(raw, StreamBody)
        self._cursor = event_id or self._cursor
        if body.task is not None:
            self.task_id, self.state = body.task.id, body.task.status.state
        elif body.status_update is not None:
            self.task_id, self.state = body.status_update.task_id, body.status_update.status.state
        elif body.message is not None:
            self.has_message = True
        return FollowedEvent(raw, body)
