"""Follows a task to its end, also when the connection does not last that long."""

from collections.abc import Iterator

import msgspec

from openclaw_a2a.cli.a2a_client import Client, StreamFrame
from openclaw_a2a.cli.connection import decode_response, get_task
from openclaw_a2a.cli.reconnect import CONNECTION_LOST, RECONNECT_S, Reconnect, is_temporary
from openclaw_a2a.model.errors import AgentError, AgentFailed, AgentUnavailable
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.records import StreamBody
from openclaw_a2a.model.states import is_paused, is_terminal
from openclaw_a2a.model.task import TaskState


class FollowedEvent(msgspec.Struct, frozen=True):
    """One event: as it was sent, and read."""

    raw: bytes
    body: StreamBody


class TaskFollower:
    """Reads a stream and takes it up again where it broke off, as long as the gateway comes back.

    A gateway that numbers its events goes on after the last one seen; any other one sends the
    task as it is, and goes on from there. While no task is known the message is sent again under
    its id, which a gateway answers with what became of the first one.
    """

    def __init__(self, client: Client, *, patience_s: float = RECONNECT_S) -> None:
        self._client = client
        self._patience = Reconnect(patience_s)
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
        """Follow a task; one that has ended is shown as it is."""
        self.task_id = task_id
        return self._follow("SubscribeToTask", {"id": task_id})

    def _follow(self, method: str, params: JsonObject) -> Iterator[FollowedEvent]:
        while True:
            try:
                yield from self._read(method, params)
            except (AgentUnavailable, AgentFailed) as error:
                if method == "SubscribeToTask" and not is_temporary(error):
                    yield self._ended_meanwhile(error)
                else:
                    self._patience.tolerate(error, is_in_progress=self.task_id is not None)
            if self.is_settled:
                return
            self._patience.pause()
            if self.task_id is not None:
                method, params = "SubscribeToTask", {"id": self.task_id}

    def _ended_meanwhile(self, error: AgentError) -> FollowedEvent:
        """The protocol has no stream for a task that has ended; then the task itself is shown."""
        task = get_task(self._client, str(self.task_id))
        followed = self._note(StreamFrame(None, b'{"task":' + task + b"}"))
        if not self.is_settled:
            raise error
        return followed

    def _read(self, method: str, params: JsonObject) -> Iterator[FollowedEvent]:
        for arrival in self._client.stream(method, params, last_event_id=self._cursor):
            self._patience.mark_answered()
            followed = self._note(arrival)
            # A snapshot alone is no progress: an agent that sends only that is not asked too often.
            if followed.body.task is None:
                self._patience.reset_delay()
            yield followed
            if self.state is not None and is_terminal(self.state):
                return
        if self.task_id is None and not self.has_message:
            message = f"the stream of {self._client.url} ended without an answer"
            raise AgentUnavailable(message, details={"code": CONNECTION_LOST})

    def _note(self, arrival: StreamFrame) -> FollowedEvent:
        body = decode_response(arrival.body, StreamBody)
        self._cursor = arrival.id or self._cursor
        if body.task is not None:
            self.task_id, self.state = body.task.id, body.task.status.state
        elif body.status_update is not None:
            self.task_id, self.state = body.status_update.task_id, body.status_update.status.state
        elif body.message is not None:
            self.has_message = True
        return FollowedEvent(arrival.body, body)
