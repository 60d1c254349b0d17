"""The admin API of a gateway on this machine, called with its admin token."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import msgspec

from openclaw_a2a.auth.admin_token import ADMIN_TOKEN_FILE, read_admin_token
from openclaw_a2a.cli.errors import next_step, usage_error
from openclaw_a2a.cli.options import GatewayOptions, data_override, parse_address
from openclaw_a2a.model.errors import NotAllowed
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.settings import is_loopback, local_gateway, read_command_environment

if TYPE_CHECKING:
    from openclaw_a2a.cli.a2a_client import StreamFrame
    from openclaw_a2a.net.http_client import SyncHttpClient

_ANSWER_S = 30.0
_CONNECT_S = 5.0
_CANCEL_S = 600.0
_UNAUTHENTICATED = 401
_OK = 200
_OTHER_FOLDER = "Name the gateway's data folder with --data, or its settings with --config."


class AdminClient:
    """Calls the admin API and the tools of the gateway at `address`."""

    def __init__(self, http: "SyncHttpClient", address: str) -> None:
        self._http = http
        self.address = address

    def get(self, *segments: str, query: dict[str, str] | None = None) -> bytes:
        """The body of a document. Raises: AgentUnavailable, AgentFailed, NotAllowed."""
        return self._call("GET", "operator", segments, query=query)

    def post(self, *segments: str, body: Json, timeout_s: float = _ANSWER_S) -> bytes:
        """The answer to a command. `body` is JSON, or bytes that are sent as they are.

        Raises: AgentUnavailable, AgentFailed, NotAllowed.
        """
        return self._call("POST", "operator", segments, body=body, timeout_s=timeout_s)

    def stream(self, *segments: str, last_event_id: str | None = None) -> "Iterator[StreamFrame]":
        """The events of a stream. Raises: AgentUnavailable, AgentFailed, NotAllowed."""
        from openclaw_a2a.cli.a2a_client import read_frames, transport_errors

        url = self._url("operator", segments)
        headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
        with (
            transport_errors(self.address),
            self._http.stream("GET", url, headers=headers) as answer,
        ):
            yield from read_frames(answer, self.address, partial(read_body, self.address))

    def call_tool(self, name: str, arguments: Json) -> bytes:
        """The answer of a tool. Raises: AgentUnavailable, AgentFailed, NotAllowed."""
        return self._call("POST", "tools", (name,), body=arguments)

    def _call(
        self,
        method: str,
        place: str,
        segments: tuple[str, ...],
        *,
        body: Json = None,
        query: dict[str, str] | None = None,
        timeout_s: float = _ANSWER_S,
    ) -> bytes:
        import httpx2

        from openclaw_a2a.cli.a2a_client import transport_errors

        content, document = (body, None) if isinstance(body, bytes) else (None, body)
        with transport_errors(self.address):
            answer = self._http.request(
                method,
                self._url(place, segments),
                content=content,
                json=document,
                params=query,
                timeout=httpx2.Timeout(timeout_s, connect=_CONNECT_S),
            )
        return read_body(self.address, answer.status_code, answer.content)

    def _url(self, place: str, segments: tuple[str, ...]) -> str:
        return "/".join([self.address, *(quote(one, safe="") for one in (place, *segments))])


def read_body(address: str, status: int, body: bytes) -> bytes:
    """The body of an answer, if it is no error. Raises: AgentFailed, NotAllowed."""
    from openclaw_a2a.cli.a2a_client import response_error

    if status == _UNAUTHENTICATED:
        raise _no_access(f"the gateway at {address} has another operator's token")
    # An error in a stream has no status of its own.
    if status != _OK or body.startswith(b'{"error":'):
        raise response_error(status, body)
    return body


class OperatorTasks:
    """The tasks of every caller, with the interface of the A2A client."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self.url = admin.address

    def call(self, method: str, params: JsonObject) -> bytes:
        """The task: `GetTask` as it is, `CancelTask` when it has stopped.

        Raises: AgentUnavailable, AgentFailed, NotAllowed.
        """
        if method == "CancelTask":
            # The gateway itself limits how long a task may take to stop.
            self._admin.post("tasks", params["id"], "cancel", body={}, timeout_s=_CANCEL_S)
        body = self._admin.get("tasks", params["id"])
        return bytes(msgspec.json.decode(body, type=dict[str, msgspec.Raw])["task"])

    def stream(
        self, _method: str, params: JsonObject, *, last_event_id: str | None = None
    ) -> "Iterator[StreamFrame]":
        """The events of a task. Raises: AgentUnavailable, AgentFailed, NotAllowed."""
        return self._admin.stream("tasks", params["id"], "events", last_event_id=last_event_id)


class GatewayAccess(msgspec.Struct, frozen=True):
    """The address of a gateway on this machine, and the headers to authenticate with."""

    address: str
    headers: dict[str, str]


def find_gateway(own: GatewayOptions) -> GatewayAccess:
    """The gateway that flags or settings name.

    Raises: SettingsInvalid, InvalidRequest (the address is not of this machine), NotAllowed (its
    token cannot be read).
    """
    gateway = local_gateway(own.config, overrides=data_override(own.data))
    parts = urlsplit(parse_address(own.url or read_command_environment().url or gateway.address))
    if not is_loopback(parts.hostname or ""):
        message = f"{parts.netloc} is not this machine, and the operator's token stays here"
        raise usage_error(message, "Run the command where the gateway runs.")
    headers = {"Authorization": f"Bearer {_token(gateway.data)}", "User-Agent": "openclaw-a2a"}
    return GatewayAccess(f"{parts.scheme}://{parts.netloc}", headers)


@contextmanager
def connect_admin(own: GatewayOptions) -> Generator[AdminClient]:
    """A client for the admin API of the gateway that flags or settings name.

    Raises: as `find_gateway`.
    """
    import httpx2

    from openclaw_a2a.net.http_client import SyncHttpClient

    access = find_gateway(own)
    wait = httpx2.Timeout(_ANSWER_S, connect=_CONNECT_S)
    # Without proxies and redirects: only the gateway may see the token.
    with SyncHttpClient(headers=access.headers, timeout=wait) as http:
        yield AdminClient(http, access.address)


def _token(folder: Path) -> str:
    try:
        return read_admin_token(folder)
    except FileNotFoundError:
        raise _no_access(f"no gateway has run with the data folder {folder}") from None
    except OSError as error:
        reason = error.strerror or "it cannot be read"
        message = f"the token {folder / ADMIN_TOKEN_FILE} is not yours to read: {reason}"
        raise _no_access(message) from None
    except ValueError:
        message = f"{folder / ADMIN_TOKEN_FILE} holds no token; restart the gateway"
        raise _no_access(message) from None


def _no_access(message: str) -> NotAllowed:
    return NotAllowed(message, details=next_step("operator-token", _OTHER_FOLDER))
