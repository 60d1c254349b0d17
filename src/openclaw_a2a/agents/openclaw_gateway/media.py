"""Files that an answer refers to, fetched through OpenClaw and from its agent's workspace only.

OpenClaw passes on whatever path the model wrote, also one outside the workspace, so a reference
is never opened here: it is asked for at the gateway, by its place in the workspace, or refused.
"""

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

import httpx2
import msgspec

from openclaw_a2a.agents.openclaw_cli.answer import media_type_of
from openclaw_a2a.agents.openclaw_gateway.connect import GatewayAddress
from openclaw_a2a.agents.openclaw_gateway.connection import GatewayConnection
from openclaw_a2a.agents.openclaw_gateway.http_fallback import open_http_client
from openclaw_a2a.agents.openclaw_gateway.protocol import Wire
from openclaw_a2a.model.errors import AgentError
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.message import Part

MOST_FILE_BYTES: Final = 10 * 1024 * 1024
"""The largest file that is fetched."""

MOST_BYTES: Final = 20 * 1024 * 1024
"""How much all files of one answer may have together."""

MOST_FILES: Final = 20
"""How many references of one answer are followed."""

_FETCH_S: Final = 30.0
_ROUTE: Final = "/__openclaw__/assistant-media"
_UNKNOWN_TYPE: Final = "application/octet-stream"
_MOST_NAME: Final = 80

_LINE: Final = re.compile(r" {0,3}MEDIA:[ \t]*(\S.*?)\s*", re.IGNORECASE)
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:")
_DRIVE: Final = re.compile(r"[a-zA-Z]:")
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class SessionRef(msgspec.Struct, frozen=True):
    """Where the files of a session are: OpenClaw's agent, its session and its workspace."""

    agent_id: str
    session_key: str
    workspace: str = ""


def split_media(text: str) -> tuple[str, tuple[str, ...]]:
    """The text without its `MEDIA:` lines, and what these refer to.

    OpenClaw has cut them out of what it streams and of a run's result already; texts from a
    session's history and from `agent.wait` still have them. Lines in code stay.
    """
    kept: list[str] = []
    references: list[str] = []
    fence = ""
    for line in text.split("\n"):
        fence = _fence_after(line, fence)
        found = None if fence else _LINE.fullmatch(line)
        reference = found[1].strip('"') if found else ""
        # OpenClaw attaches public addresses only; another one stays in the text there, too.
        if reference and not reference.lower().startswith("http:"):
            references.append(reference)
        else:
            kept.append(line)
    if not references:
        return text, ()
    return "\n".join(kept).strip(), tuple(references)


def workspace_path(reference: str, workspace: str) -> str | None:
    """The reference as a path inside the workspace; None for everything that is not inside.

    The result has no step upwards and no beginning of its own, on no system.
    """
    path = reference.removeprefix("file://").replace("\\", "/")
    root = workspace.replace("\\", "/").rstrip("/")
    if root and path.startswith(f"{root}/"):
        path = path[len(root) + 1 :]
    elif path.startswith(("/", "~")) or _DRIVE.match(path) or _SCHEME.match(path):
        return None
    steps = [step for step in path.split("/") if step not in ("", ".")]
    if not steps or ".." in steps or _UNPRINTABLE.search(path):
        return None
    return "/".join(steps)


def is_link(reference: str) -> bool:
    """True for the address of something on the web."""
    try:
        parts = urlsplit(reference)
    except ValueError:
        return False
    is_web = parts.scheme in {"http", "https"} and bool(parts.hostname)
    return is_web and not re.search(r"[\s\x00-\x1f\ud800-\udfff]", reference)


async def fetch_media(
    link: GatewayConnection, shelf: SessionRef, references: Sequence[str]
) -> tuple[Part, ...]:
    """The parts for these references, in their order and each once.

    A link becomes a file part with that link, a file of the workspace one with its content. In
    the place of what cannot be had stands a sentence that says why; nothing is raised for it.
    """
    parts: list[Part] = []
    room = MOST_BYTES
    for reference in tuple(dict.fromkeys(references))[:MOST_FILES]:
        part = await _fetch(link, shelf, reference, room)
        room -= len(part.content)
        parts.append(part)
    return tuple(parts)


async def _fetch(link: GatewayConnection, shelf: SessionRef, reference: str, room: int) -> Part:
    if is_link(reference):
        return Part.of_url(reference, media_type=media_type_of(reference))
    path = workspace_path(reference, shelf.workspace)
    if path is None:
        return omitted_file(reference, "it is not in the agent's workspace")
    try:
        content, media_type = await _read(link, shelf, path, min(room, MOST_FILE_BYTES))
    except _NotHad as error:
        return omitted_file(reference, str(error))
    name = path.rpartition("/")[2]
    by_name = media_type_of(name)
    media_type = media_type if by_name == _UNKNOWN_TYPE else by_name
    return Part.of_bytes(content, media_type=media_type, filename=name)


class _NotHad(Exception):
    """The file is not there to be had; the words say why."""


async def _read(
    link: GatewayConnection, shelf: SessionRef, path: str, most: int
) -> tuple[bytes, str]:
    """The file's content and type: by the protocol, and by its web address what that refuses.

    The protocol's method shows texts and smaller images only.
    """
    try:
        params: JsonObject = {"agentId": shelf.agent_id, "path": path}
        answer = await link.call("agents.workspace.get", params, timeout_s=_FETCH_S)
    except AgentError:
        return await _download(link.address, shelf, path, most)
    content = _content_of(answer)
    if len(content[0]) > most:
        raise _too_large(most)
    return content


class _WorkspaceFile(Wire, frozen=True):
    content: str
    encoding: str = ""
    mime_type: str = _UNKNOWN_TYPE


class _WorkspaceAnswer(Wire, frozen=True):
    file: _WorkspaceFile


def _content_of(answer: JsonObject) -> tuple[bytes, str]:
    try:
        file = msgspec.convert(answer, _WorkspaceAnswer).file
        if file.encoding == "base64":
            return base64.b64decode(file.content), file.mime_type
        return file.content.encode("utf-8", "replace"), file.mime_type
    except (msgspec.ValidationError, binascii.Error, ValueError):
        raise _NotHad("OpenClaw did not send its content in a readable form") from None


async def _download(
    address: GatewayAddress, shelf: SessionRef, path: str, most: int
) -> tuple[bytes, str]:
    # Only with ./ in front is it certainly taken as a place in the workspace.
    query = {"source": f"./{path}", "sessionKey": shelf.session_key, "agentId": shelf.agent_id}
    try:
        async with (
            open_http_client(address, timeout_s=_FETCH_S) as door,
            door.stream("GET", _ROUTE, params=query) as response,
        ):
            if response.status_code != 200:
                raise _NotHad("OpenClaw does not have it, or does not give it out")
            content = await _read_bounded(response, most)
            declared = response.headers.get("content-type", "")
            return content, declared.partition(";")[0].strip() or _UNKNOWN_TYPE
    except (httpx2.HTTPError, httpx2.InvalidURL):
        raise _NotHad("OpenClaw could not be asked for it") from None


async def _read_bounded(response: httpx2.Response, most: int) -> bytes:
    content = bytearray()
    async for piece in response.aiter_bytes():
        content += piece
        if len(content) > most:
            raise _too_large(most)
    return bytes(content)


def _too_large(most: int) -> _NotHad:
    return _NotHad(f"it has more than the {max(most, 0)} bytes that are left for files")


def omitted_file(reference: str, reason: str) -> Part:
    """A sentence in the place of a file. Of its path only the last name is told."""
    last = re.split(r"[/\\]", reference.rstrip("/\\"))[-1]
    name = _UNPRINTABLE.sub(" ", last)[:_MOST_NAME] or "without a name"
    return Part.of_text(f"[The file {name} is left out: {reason}.]")


def _fence_after(line: str, fence: str) -> str:
    """The fence that code is inside of after this line; empty outside of code."""
    found = _FENCE.match(line)
    if found is None:
        return fence
    mark = found[1]
    if not fence:
        return mark
    closes = mark[0] == fence[0] and len(mark) >= len(fence) and not line.strip().strip(mark[0])
    return "" if closes else fence
