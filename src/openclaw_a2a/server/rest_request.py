"""One authenticated HTTP+JSON request at an account, and the frames of its streams."""

from openclaw_a2a.http.asgi import A2A_JSON, HttpRequest
from openclaw_a2a.http.sse_stream import encode_frame
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.protocol import errors
from openclaw_a2a.protocol.validation import check_json
from openclaw_a2a.server.account_endpoint import AccountEndpoint


class RestRequest:
    """A request, its account and caller, and the values of the placeholders in its path."""

    __slots__ = ("endpoint", "http", "params", "scope")

    def __init__(
        self,
        http: HttpRequest,
        endpoint: AccountEndpoint,
        scope: Scope,
        params: tuple[str, ...] = (),
    ) -> None:
        self.http = http
        self.endpoint = endpoint
        self.scope = scope
        self.params = params

    @property
    def task_id(self) -> TaskId:
        """The task that the path names."""
        return TaskId(self.params[0])

    async def read_body(self) -> bytes:
        """The body, which must be JSON.

        Raises: MediaTypeNotSupported, ParseFailed, and as `AccountEndpoint.read_body`.
        """
        self.http.require_json()
        body = await self.endpoint.read_body(self.http)
        check_json(body)
        return body

    async def skip_body(self) -> None:
        """Read a body that is not used, so that the connection can be used again."""
        if self.http.has_body():
            await self.endpoint.read_body(self.http)

    async def respond(self, body: bytes) -> None:
        """Send a result."""
        await self.http.respond(200, body, media_type=A2A_JSON)


class RestFrameEncoder:
    """Frames without an envelope."""

    def frame(self, sequence: int, body: bytes) -> bytes:
        """A stored body as one frame."""
        return encode_frame(body, sequence=sequence)

    def error_frame(self, error: GatewayError) -> bytes:
        """The frame that ends a stream with an error."""
        return encode_frame(errors.rest_error(error)[1], event=b"error")

    def streams_early_error(self, error: GatewayError) -> bool:
        """An error before the first event is a plain response."""
        return False


REST_FRAMES = RestFrameEncoder()
