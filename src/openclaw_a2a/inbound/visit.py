"""One HTTP+JSON request at a door, and how its streams are written."""

from openclaw_a2a.inbound.door import Door
from openclaw_a2a.inbound.http import A2A_JSON, Exchange
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.wire import errors, sse
from openclaw_a2a.wire.strict import check_json


class Visit:
    """Who asks what at which door. `task_id` is empty where the path names no task."""

    __slots__ = ("door", "exchange", "scope", "task_id")

    def __init__(self, exchange: Exchange, door: Door, scope: Scope, task_id: str) -> None:
        self.exchange = exchange
        self.door = door
        self.scope = scope
        self.task_id = TaskId(task_id)

    async def body(self) -> bytes:
        """The body, which is JSON.

        Raises: MediaTypeNotSupported, ParseFailed, and as `Door.read_body`.
        """
        self.exchange.check_json()
        body = await self.door.read_body(self.exchange)
        check_json(body)
        return body

    async def skip_body(self) -> None:
        """Read a body that says nothing to us, so that the connection can be used again."""
        if self.exchange.has_body():
            await self.door.read_body(self.exchange)

    async def answer(self, body: bytes) -> None:
        """Answer with a result."""
        await self.exchange.answer(200, body, media_type=A2A_JSON)


class BareSpelling:
    """Events without an envelope."""

    def frame(self, sequence: int, body: bytes) -> bytes:
        """A stored stream body as one event."""
        return sse.frame(body, sequence=sequence)

    def fault(self, error: GatewayError) -> bytes:
        """The error that ends a stream."""
        return sse.frame(errors.rest_error(error)[1], event=b"error")

    def streams_early(self, error: GatewayError) -> bool:
        """An error before the first event is a plain answer."""
        return False


BARE = BareSpelling()
