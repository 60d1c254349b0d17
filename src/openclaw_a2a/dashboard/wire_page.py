"""Read model of the wire tab of a task: its requests and responses as they came and went.

Held are the newest exchanges of this process (`WireLog`). Of a task whose exchanges are not
held, the same is rebuilt from what the store has, and marked as rebuilt. No secret leaves this
module: of headers and query parameters, only the values of those that are known to hold none are
shown; members of bodies that are named like secrets, and credentials in addresses, are hidden.
"""

import re
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from http import HTTPStatus
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

import msgspec

from openclaw_a2a.dashboard.requests import PageRequest, read_choice
from openclaw_a2a.dashboard.task_content import read_edge_events
from openclaw_a2a.dashboard.task_list import TaskSummary
from openclaw_a2a.dashboard.task_page import TaskDetailsReader
from openclaw_a2a.http.asgi import HELD_BYTES, Header, HeldExchange, HttpRequest
from openclaw_a2a.http.sse_stream import SSE_HEADERS
from openclaw_a2a.http.wire_log import WireLog
from openclaw_a2a.model.errors import CorruptRecord
from openclaw_a2a.model.ids import Json, JsonObject, TaskId
from openclaw_a2a.model.message import JsonStruct, Message, Role
from openclaw_a2a.model.records import Entry
from openclaw_a2a.model.task import Task
from openclaw_a2a.model.validation import as_list, as_object, object_at
from openclaw_a2a.protocol import v03, v1
from openclaw_a2a.protocol.jsonrpc import encode_result
from openclaw_a2a.protocol.versions import METHODS_V03, METHODS_V1, ProtocolVersion

HIDDEN = "•••"
_REBUILT_EVENTS = 50
"""So many of the first events of a task, and of the last ones, are rebuilt."""
_SHOWN_HEADERS = frozenset(
    b"accept accept-encoding accept-language a2a-extensions a2a-version allow cache-control"
    b" connection content-disposition content-encoding content-length content-type date expect host"
    b" last-event-id origin retry-after sec-fetch-dest sec-fetch-mode sec-fetch-site server"
    b" traceparent transfer-encoding user-agent vary www-authenticate x-a2a-extensions"
    b" x-accel-buffering x-forwarded-for x-forwarded-proto x-request-id".split()
)
_SHOWN_PARAMETERS = frozenset(
    {
        "A2A-Version",
        "contextId",
        "historyLength",
        "includeArtifacts",
        "pageSize",
        "status",
        "statusTimestampAfter",
        "tenant",
    }
)
_SCHEME = re.compile(r"(Basic|Bearer|Digest|DPoP|Negotiate)\s", re.IGNORECASE)
_SECRET_NAME = re.compile(
    r"token|secret|passw|credential|api[-_]?key|private[-_]?key|authorization|cookie|signature",
    re.IGNORECASE,
)
_MEMBER = re.compile(r'(\s*)("(?:[^"\\]|\\.)*"): (.*?)(,?)')
_LOOSE_MEMBER = re.compile(r'"((?:[^"\\]|\\.)*)"\s*:\s*"(?:[^"\\]|\\.)*"?')
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)(?:"|\\?\Z)')
"""A string of JSON; the last one may be cut off."""
_ADDRESS = re.compile(r"\s*https?://", re.IGNORECASE)
_KINDS_V03 = {"statusUpdate": "status-update", "artifactUpdate": "artifact-update"}
_LIST_METHODS = frozenset({"ListTasks"})


class WireHeader(JsonStruct, frozen=True, omit_defaults=False):
    """A header. `is_hidden`: its value may be a secret, and is not shown."""

    name: str
    value: str
    is_hidden: bool = False


class WireBody(JsonStruct, frozen=True, omit_defaults=False):
    """A body, with line breaks for reading. `size` is that on the wire; `is_cut`: it is longer."""

    text: str
    size: int
    is_cut: bool = False


class WireFrame(JsonStruct, frozen=True, omit_defaults=False):
    """One event of a stream; a comment, which keeps the connection open, has a text alone."""

    id: str
    event: str
    summary: str
    text: str


class WireExchange(JsonStruct, frozen=True, omit_defaults=False):
    """A request and its response. `seconds` is None, and `status` may be 0, while it goes on.

    `operation` is the JSON-RPC method, or the method and path of HTTP+JSON. A stream has `frames`
    in the place of the text of its response.
    """

    started_at: datetime
    seconds: float | None
    caller: str
    address: str
    binding: str
    version: str
    operation: str
    request_line: str
    request_headers: tuple[WireHeader, ...]
    request: WireBody
    status: int
    reason: str
    response_headers: tuple[WireHeader, ...]
    response: WireBody
    frames: tuple[WireFrame, ...]
    is_stream: bool


class RebuiltExchange(JsonStruct, frozen=True, omit_defaults=False):
    """What the store has of a task in the form of one version, as a stream would carry it.

    `left_out` events between the first and the last ones are not in `frames`.
    """

    version: str
    operation: str
    request: WireBody
    frames: tuple[WireFrame, ...]
    left_out: int


class WirePage(JsonStruct, frozen=True, omit_defaults=False):
    """The wire tab of a task. `held` and `limit` are of all tasks: what this process has now.

    `missing` says why there are no exchanges: `off`, `restarted` (the task is older than the
    process, which was `started_at`), `replaced` by newer ones, or `not-http`.
    """

    task: TaskSummary
    exchanges: tuple[WireExchange, ...]
    rebuilt: RebuiltExchange
    held: int
    limit: int
    started_at: datetime
    missing: str = ""


class WireReader:
    """Makes the wire tab of tasks. `log` is None when no exchanges are held."""

    def __init__(
        self, tasks: TaskDetailsReader, log: WireLog | None, *, started_at: datetime
    ) -> None:
        self._tasks = tasks
        self._log = log
        self._started_at = started_at

    async def read(self, request: PageRequest) -> WirePage:
        """The page as it is now. Raises: TaskNotFound, CorruptRecord, InvalidParams."""
        versions = [one.value for one in ProtocolVersion]
        version = read_choice(request.query, "version", versions, ProtocolVersion.V1.value)
        engine, head, row, task = await self._tasks.read_summary(request.segments[0])
        entries = await read_edge_events(engine, head, _REBUILT_EVENTS, _REBUILT_EVENTS)
        log = self._log
        now = engine.clock.now()
        exchanges = () if log is None else tuple(_find_exchanges(log, head.id, now))
        return WirePage(
            task=row,
            exchanges=exchanges,
            rebuilt=_rebuild(task, entries, ProtocolVersion(version), head.sequence),
            held=0 if log is None else len(log),
            limit=0 if log is None else log.limit,
            started_at=self._started_at,
            missing="" if exchanges else self._explain_missing(row),
        )

    def _explain_missing(self, task: TaskSummary) -> str:
        log = self._log
        if log is None or not log.limit:
            return "off"
        if task.created_at < self._started_at:
            return "restarted"
        return "replaced" if len(log) == log.limit else "not-http"


# -------------------------------------------------------------------- what is held


def _find_exchanges(log: WireLog, task_id: TaskId, now: datetime) -> Iterator[WireExchange]:
    """The exchanges that name the task, the oldest first; lists of tasks are not about one."""
    # As a whole JSON string: the same text within a message has its quotes escaped.
    needle, place = msgspec.json.encode(task_id), f"/tasks/{task_id}"
    clock = time.monotonic()
    for request, held in log:
        if place in request.path or held.mentions(needle):
            shown = _show_exchange(
                request, held, now - timedelta(seconds=clock - request.started_at)
            )
            if shown.operation not in _LIST_METHODS:
                yield shown


class _Envelope(msgspec.Struct):
    method: str = ""


def _show_exchange(request: HttpRequest, held: HeldExchange, at: datetime) -> WireExchange:
    method = _rpc_method(held.received)
    is_stream = held.frames is not None
    sent = b"".join(held.frames) if held.frames is not None else held.sent
    path = request.path + _show_query(request.query_string)
    headers: Sequence[Header] = SSE_HEADERS if is_stream else held.headers
    return WireExchange(
        started_at=at,
        seconds=None if held.ended_at is None else round(held.ended_at - request.started_at, 6),
        caller=request.caller or "",
        address=request.client_address,
        binding="JSON-RPC" if method else "HTTP+JSON",
        version=_find_version(request, method),
        operation=method or f"{request.method} {request.path}",
        request_line=f"{request.method} {path} HTTP/{request.http_version}",
        request_headers=tuple(_show_headers(request.header_lines)),
        request=_show_body(held.received, held.received_size),
        status=request.status,
        reason=HTTPStatus(request.status).phrase if request.status else "",
        response_headers=tuple(_show_headers([*headers, *request.response_headers])),
        response=WireBody(
            "" if is_stream else hide_secrets(sent), held.sent_size, held.sent_size > len(sent)
        ),
        frames=tuple(_split_frames(sent)) if is_stream else (),
        is_stream=is_stream,
    )


def _rpc_method(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_Envelope).method
    except (ValueError, RecursionError):
        # The body may be longer than what is held of it; its method stands at the beginning.
        found = re.search(rb'"method"\s*:\s*"([\w/]{1,80})"', body)
        return "" if found is None else found[1].decode()


def _find_version(request: HttpRequest, method: str) -> str:
    if method in METHODS_V03:
        return ProtocolVersion.V03.value
    if method in METHODS_V1 or not method:
        return ProtocolVersion.V1.value
    return request.protocol_version() or ""


def _show_body(body: bytes, size: int) -> WireBody:
    return WireBody(hide_secrets(body), size, size > len(body))


def _split_frames(chunks: bytes) -> Iterator[WireFrame]:
    *whole, last = chunks.split(b"\n\n")
    for frame in whole if not last else [*whole, last]:
        fields = {"id": "", "event": ""}
        texts: list[bytes] = []
        for line in frame.split(b"\n"):
            name, _, value = line.partition(b": ")
            if name == b"data":
                texts.append(value)
            elif name in (b"id", b"event"):
                fields[name.decode()] = value.decode(errors="replace")
            elif line:
                texts.append(line)
        data = b"\n".join(texts)
        yield WireFrame(summary=_summarize(data), text=hide_secrets(data), **fields)


def _summarize(data: bytes) -> str:
    """What a frame is about, in a few words."""
    try:
        value: Json = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return data[:80].decode(errors="replace")
    whole = as_object(value)
    result = as_object(whole.get("result", whole))
    for kind in ("task", "statusUpdate", "artifactUpdate", "message", "error"):
        found = as_object(result.get(kind, whole.get(kind)))
        if found or result.get("kind") == _KINDS_V03.get(kind, kind):
            return f"{kind} {_detail(found or result)}".strip()
    return ""


def _detail(found: JsonObject) -> str:
    state = object_at(found, "status").get("state") or ""
    artifact = object_at(found, "artifact")
    if artifact:
        texts = [as_object(part).get("text") for part in as_list(artifact.get("parts"))]
        text = " ".join(" ".join(one for one in texts if isinstance(one, str)).split())
        # What it says: most frames of a stream are pieces of the same artifact.
        return f"{artifact.get('artifactId') or ''} {text}"[:160].strip()
    return str(state or found.get("message") or "")[:160]


# -------------------------------------------------------------------- what is rebuilt


def _rebuild(
    task: Task | None, entries: Sequence[Entry], version: ProtocolVersion, count: int
) -> RebuiltExchange:
    is_v1 = version is ProtocolVersion.V1
    first = None if task is None else _first_message(task)
    request = b""
    if first is not None:
        message = msgspec.json.encode(first if is_v1 else v03.message_to_v03(first))
        method = b"SendStreamingMessage" if is_v1 else b"message/stream"
        request = b'{"jsonrpc":"2.0","id":1,"method":"%b","params":{"message":%b}}' % (
            method,
            message,
        )
    encode = v1.encode_stream_body if is_v1 else v03.transcode
    frames: list[WireFrame] = []
    for entry in entries:
        try:
            body = encode_result(b"1", encode(entry.body))
            summary, text = _summarize(body), hide_secrets(body[:HELD_BYTES])
        except (CorruptRecord, ValueError) as error:
            summary, text = "damaged", f"(event {entry.sequence} is damaged: {error})"
        frames.append(WireFrame(str(entry.sequence), "", summary, text))
    return RebuiltExchange(
        version=version.value,
        operation="SendStreamingMessage" if is_v1 else "message/stream",
        request=_show_body(request[:HELD_BYTES], len(request)),
        frames=tuple(frames),
        left_out=count - len(entries),
    )


def _first_message(task: Task) -> Message | None:
    first = next((one for one in task.history if one.role is Role.USER), None)
    if first is None:
        return None
    # The task and its context were made for this message; a client did not name them.
    return msgspec.structs.replace(first, task_id=None, context_id=None)


# -------------------------------------------------------------------- secrets


def _show_headers(headers: Sequence[Header]) -> Iterator[WireHeader]:
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        if raw_name.lower() in _SHOWN_HEADERS:
            yield WireHeader(name, value)
        else:
            # The scheme of credentials is no secret, and tells which kind was used.
            scheme = _SCHEME.match(value)
            yield WireHeader(name, f"{scheme[1]} {HIDDEN}" if scheme else HIDDEN, is_hidden=True)


def _show_query(raw: bytes) -> str:
    if not raw:
        return ""
    pairs = parse_qsl(raw.decode("latin-1"), keep_blank_values=True)
    shown = [
        f"{quote(name, safe='')}={quote(value) if name in _SHOWN_PARAMETERS else HIDDEN}"
        for name, value in pairs
    ]
    return f"?{'&'.join(shown)}"


def hide_secrets(body: bytes) -> str:
    """A body for reading: JSON on many lines, numbers as they were written, without secrets."""
    try:
        text = msgspec.json.format(body, indent=2).decode()
    except (ValueError, RecursionError):  # no JSON, or the beginning of one
        text = body.decode(errors="replace")
        return _TEXT.sub(_hide_address, _LOOSE_MEMBER.sub(_hide_loosely, text))
    lines: list[str] = []
    secret_depth: int | None = None
    """How far the line is indented that opened an object or a list with a secret name."""
    for line in text.split("\n"):
        depth = len(line) - len(line.lstrip())
        if secret_depth is not None and depth <= secret_depth:
            secret_depth = None
            lines.append(line)  # its closing bracket
            continue
        member = _MEMBER.fullmatch(line)
        name = "" if member is None else msgspec.json.decode(member[2], type=str)
        value = line.strip() if member is None else member[3]
        is_secret = secret_depth is not None or _is_secret(name)
        if is_secret and value[:1] in "[{" and value not in ("{}", "[]", "{},", "[],"):
            if secret_depth is None:
                secret_depth = depth
        elif is_secret and value.startswith('"'):
            comma = "," if line.endswith(",") else ""
            before = line[: len(line) - len(value) - len(comma)] if member else " " * depth
            line = f'{before}"{HIDDEN}"{comma}'
        else:
            line = _TEXT.sub(_hide_address, line)
        lines.append(line)
    return "\n".join(lines)


def _is_secret(name: str) -> bool:
    # The token of a page is a position in a list.
    return _SECRET_NAME.search(name) is not None and "page" not in name.lower()


def _hide_loosely(found: re.Match[str]) -> str:
    return f'"{found[1]}": "{HIDDEN}"' if _is_secret(_unescape(found[1])) else found[0]


def _hide_address(found: re.Match[str]) -> str:
    """An address without the credentials, the query and the fragment that it may carry."""
    text = _unescape(found[1])
    if not _ADDRESS.match(text):
        return found[0]
    try:
        parts = urlsplit(text)
    except ValueError:
        return f'"{HIDDEN}"'
    host = parts.netloc.rpartition("@")[2]
    place = f"{HIDDEN}@{host}" if host != parts.netloc else host
    query, fragment = (HIDDEN if one else "" for one in (parts.query, parts.fragment))
    if (place, query, fragment) == (parts.netloc, "", ""):
        return found[0]
    shown = urlunsplit((parts.scheme, place, parts.path, query, fragment))
    return msgspec.json.encode(shown).decode()


def _unescape(literal: str) -> str:
    """What a string of JSON says; of one that is broken, what it looks like."""
    try:
        return msgspec.json.decode(f'"{literal}"', type=str)
    except ValueError:
        return literal.replace("\\/", "/")
