"""One HTTP+JSON request at a door, and how its streams are written."""

from openclaw_a2a.http.asgi import A2A_JSON, HttpRequest
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.protocol import errors, sse
from openclaw_a2a.protocol.strict_json import check_json
from openclaw_a2a.server.account_endpoint import AccountEndpoint


class RestRequest:
    """Who asks what at which door. `task_id` is empty where the path names no task."""

    __slots__ = ("endpoint", "http", "scope", "task_id")

    def __init__(
        self, exchange: HttpRequest, door: AccountEndpoint, scope: Scope, task_id: str
    ) -> None:
        self.http = exchange
        self.endpoint = door
        self.scope = scope
        self.task_id = TaskId(task_id)

    async def read_body(self) -> bytes:
        """The body, which is JSON.

        Raises: MediaTypeNotSupported, ParseFailed, and as `AsgiClient.read_body`.
        """
        self.http.require_json()
        body = await self.endpoint.read_body(self.http)
        check_json(body)
        return body

    async def skip_body(self) -> None:
        """Read a body that says nothing to us, so that the connection can be used again."""
        if self.http.has_body():
            await self.endpoint.read_body(self.http)

    async def respond(self, body: bytes) -> None:
        """Answer with a result."""
        await self.http.respond(200, body, media_type=A2A_JSON)


class RestFrameEncoder:
    """Events without an envelope."""

    def frame(self, sequence: int, body: bytes) -> bytes:
        """A stored stream body as one event."""
        return sse.frame(body, sequence=sequence)

    def error_frame(self, error: GatewayError) -> bytes:
        """The error that ends a stream."""
        return sse.frame(errors.rest_error(error)[1], event=b"error")

    def streams_early_error(self, error: GatewayError) -> bool:
        """An error before the first event is a plain answer."""
        return False


REST_FRAMES = RestFrameEncoder()
