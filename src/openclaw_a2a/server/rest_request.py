"""One authenticated HTTP+JSON request at an account. It encodes the frames of its own stream."""

from openclaw_a2a.http.asgi import A2A_JSON
from openclaw_a2a.http.sse_stream import StoredFrames, encode_frame
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.protocol import errors
from openclaw_a2a.protocol.validation import parse_json
from openclaw_a2a.server.account_endpoint import AccountCall
from openclaw_a2a.server.large_answers import AnswerChunks, LargeAnswer, TaskFrame


class RestRequest(StoredFrames, AccountCall, eq=False):
    """A request, and the values of the placeholders in its path."""

    params: tuple[str, ...] = ()

    @property
    def task_id(self) -> TaskId:
        """The task that the path names."""
        return TaskId(self.params[0])

    async def read_body(self) -> bytes:
        """The body, which must be JSON.

        Raises: MediaTypeNotSupported, ParseFailed, and as `HttpRequest.read_body`.
        """
        self.http.require_json()
        body = await self.endpoint.read_body(self.http)
        await self.endpoint.decode_body(self.http, parse_json, body)
        return body

    async def skip_body(self) -> None:
        """Read a body that is not used, so that the connection can be used again."""
        if self.http.has_body():
            await self.endpoint.read_body(self.http)
            self.http.release_body()

    async def respond(self, result: bytes | LargeAnswer | TaskFrame | AnswerChunks) -> None:
        """Send a result."""
        if isinstance(result, bytes):
            await self.http.respond(200, result, media_type=A2A_JSON)
        else:
            await self.http.respond_chunks(result.chunks, media_type=A2A_JSON)

    def error_frame(self, error: GatewayError) -> bytes:
        """The frame that ends a stream with an error."""
        return encode_frame(errors.rest_error(error)[1], event=b"error")
