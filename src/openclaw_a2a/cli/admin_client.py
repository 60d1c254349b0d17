"""The admin API of a gateway on this machine: its token, its endpoints, its features."""

import re
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
from cyclopts import Parameter

from openclaw_a2a.auth.admin_token import ADMIN_TOKEN_FILE, read_admin_token
from openclaw_a2a.cli.connection import decode_response, parse_address
from openclaw_a2a.cli.errors import code_of, next_step, usage_error
from openclaw_a2a.cli.flags import ConfigFlag, data_override, format_command
from openclaw_a2a.cli.render.terminal import print_message, print_table
from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable, InvalidRequest, NotAllowed
from openclaw_a2a.model.ids import Json
from openclaw_a2a.settings import is_loopback, local_gateway, read_command_environment

if TYPE_CHECKING:
    from openclaw_a2a.net.http_client import SyncHttpClient

_ANSWER_S = 30.0
_CONNECT_S = 5.0
_UNAUTHENTICATED = 401
_OK = 200
_MOST_NAMED = 5
_OTHER_FOLDER = "Name the gateway's data folder with --data, or its settings with --config."


@Parameter(name="*")
@dataclass(frozen=True)
class GatewayOptions:
    """Which gateway of this machine to call with the admin token."""

    url: Annotated[
        str | None, Parameter(help="Address of the gateway; left out: that of the settings.")
    ] = None
    config: ConfigFlag = None
    data: Annotated[Path | None, Parameter(help="The data folder of the gateway.")] = None

    def command(self, words: str) -> str:
        """A command to type next, for the same gateway."""
        return format_command(words, url=self.url, config=self.config, data=self.data)


DEFAULT_GATEWAY = GatewayOptions()


class AdminClient:
    """Calls the admin API and the tools of the gateway at `address`."""

    def __init__(self, http: "SyncHttpClient", address: str) -> None:
        self._http = http
        self.address = address

    def get(self, *segments: str, query: dict[str, str] | None = None) -> bytes:
        """The body of a document. Raises: AgentUnavailable, AgentFailed, NotAllowed."""
        return self._call("GET", "operator", segments, query=query)

    def post(self, *segments: str, body: Json) -> bytes:
        """The answer to a command. `body` is JSON, or bytes that are sent as they are.

        Raises: AgentUnavailable, AgentFailed, NotAllowed.
        """
        return self._call("POST", "operator", segments, body=body)

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
    ) -> bytes:
        import httpx2

        from openclaw_a2a.cli.a2a_client import response_error, unreachable

        path = "/".join(quote(one, safe="") for one in (place, *segments))
        try:
            url = f"{self.address}/{path}"
            content, document = (body, None) if isinstance(body, bytes) else (None, body)
            answer = self._http.request(method, url, content=content, json=document, params=query)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise unreachable(self.address, error) from None
        except httpx2.TransportError:
            message = f"the connection to {self.address} was lost"
            raise AgentUnavailable(message, details={"code": "connection-lost"}) from None
        if answer.status_code == _UNAUTHENTICATED:
            raise _no_access(f"the gateway at {self.address} has another operator's token")
        if answer.status_code != _OK:
            raise response_error(answer.status_code, answer.content)
        return answer.content


@contextmanager
def connect_admin(own: GatewayOptions) -> Generator[AdminClient]:
    """A client for the admin API of the gateway that flags or settings name.

    Raises: SettingsInvalid, InvalidRequest (the address is not of this machine), NotAllowed (its
    token cannot be read).
    """
    import httpx2

    from openclaw_a2a.net.http_client import SyncHttpClient

    gateway = local_gateway(own.config, overrides=data_override(own.data))
    address = _address(own.url or read_command_environment().url or gateway.address)
    headers = {"Authorization": f"Bearer {_token(gateway.data)}", "User-Agent": "openclaw-a2a"}
    wait = httpx2.Timeout(_ANSWER_S, connect=_CONNECT_S)
    # Without proxies and redirects: nothing but the gateway may see the token.
    with SyncHttpClient(headers=headers, timeout=wait) as http:
        yield AdminClient(http, address)


def resolve_prefix(prefix: str, ids: Iterable[str], *, noun: str, see: str) -> str:
    """The id that is or begins with this; one that is not listed may still be there.

    Raises: InvalidRequest (it is empty, or several begin so).
    """
    if not prefix.strip():
        raise InvalidRequest(f"the id is empty; name one {noun}", details=next_step("usage", see))
    found = [one for one in ids if one.startswith(prefix)]
    if prefix in found or not found:
        return prefix
    if len(found) > 1:
        raise InvalidRequest(
            f"{len(found)} ids begin with {prefix}: {', '.join(found[:_MOST_NAMED])}",
            details=next_step(f"{noun}-ambiguous", "Give more of the id."),
        )
    return found[0]


def _address(text: str) -> str:
    parts = urlsplit(parse_address(text))
    if not is_loopback(parts.hostname or ""):
        raise InvalidRequest(
            f"{parts.netloc} is not this machine, and the operator's token stays here",
            details=next_step("usage", "Run the command where the gateway runs."),
        )
    return f"{parts.scheme}://{parts.netloc}"


def _token(folder: Path) -> str:
    try:
        return read_admin_token(folder)
    except FileNotFoundError:
        raise _no_access(f"no gateway has run with the data folder {folder}") from None
    except OSError as error:
        reason = error.strerror or "it cannot be read"
        raise _no_access(
            f"the token {folder / ADMIN_TOKEN_FILE} is not yours to read: {reason}"
        ) from None
    except ValueError:
        raise _no_access(
            f"{folder / ADMIN_TOKEN_FILE} holds no token; restart the gateway"
        ) from None


def _no_access(message: str) -> NotAllowed:
    return NotAllowed(message, details=next_step("operator-token", _OTHER_FOLDER))


MAX_LISTED = 1000
"""How many are listed at most."""

_Kind = TypeVar("_Kind", bound=msgspec.Struct)
_OFF = frozenset({"route-not-found", "unsupported-operation", "http-404"})


class Feature(msgspec.Struct, frozen=True):
    """The texts and codes for a feature that is off, and for an item that does not exist."""

    noun: str
    disabled_code: str
    enable_hint: str
    not_found_code: str
    list_hint: str


@contextmanager
def connect_feature(own: GatewayOptions, feature: Feature) -> Generator[AdminClient]:
    """A client for a feature of a gateway.

    Raises: as `connect_admin`, and NotAllowed when the gateway does not have it.
    """
    with connect_admin(own) as admin:
        try:
            yield admin
        except AgentFailed as error:
            if code_of(error) in _OFF:
                message = f"{feature.noun} are off at {admin.address}"
                details = next_step(feature.disabled_code, feature.enable_hint)
                raise NotAllowed(message, details=details) from None
            if code_of(error) == feature.not_found_code:
                error.details.setdefault("nextStep", feature.list_hint)
            raise


def fetch(
    admin: AdminClient, kind: type[_Kind], *path: str, query: dict[str, str] | None = None
) -> tuple[_Kind, bytes]:
    """A document, decoded and as it was sent. Raises: AgentUnavailable, AgentFailed."""
    body = admin.get(*path, query=query)
    return decode_response(body, kind), body


def list_query(limit: int, **filters: str | None) -> dict[str, str]:
    """The query of a list. Raises: InvalidRequest."""
    if not 1 <= limit <= MAX_LISTED:
        raise usage_error(f"--limit must be from 1 to {MAX_LISTED}, not {limit}")
    given = {**filters, "limit": str(limit)}
    return {key: value for key, value in given.items() if value}


def print_list(
    rows: Sequence[tuple[str, ...]], heading: tuple[str, ...], *, styles: dict[str, str], total: int
) -> None:
    """Print a table, and how many more entries there are."""
    print_table([heading, *rows], styles=styles)
    if total > len(rows):
        print_message(f"{len(rows)} of {total}; more with --limit", "dim")


def check_prefix(prefix: str, feature: Feature, noun: str) -> None:
    """Make sure that this can be the beginning of an id. Raises: InvalidRequest."""
    if re.search(r"[^\w-]", prefix):
        message = f"{prefix} is no id of {noun}"
        raise InvalidRequest(message, details=next_step("usage", feature.list_hint))
