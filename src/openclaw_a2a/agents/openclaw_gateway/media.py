"""Files that an answer refers to, fetched through OpenClaw and only from the agent's workspace.

OpenClaw passes on any path the model wrote, also one outside the workspace. A reference is
therefore never opened here: it is requested from the gateway by its path in the workspace, or
omitted.
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
from openclaw_a2a.agents.openclaw_gateway.connection import GatewayConnection
from openclaw_a2a.agents.openclaw_gateway.handshake import GatewayAddress
from openclaw_a2a.agents.openclaw_gateway.http_fallback import open_http_client
from openclaw_a2a.agents.openclaw_gateway.protocol import Wire
from openclaw_a2a.agents.openclaw_gateway.runs import SessionRef
from openclaw_a2a.model.errors import AgentError
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.message import Part

MAX_FILE_BYTES: Final = 10 * 1024 * 1024  # the largest file that is fetched
_MAX_BYTES: Final = 20 * 1024 * 1024  # the largest size of all files of one answer together
MAX_FILES: Final = 20  # the most references of one answer that are fetched
_FETCH_TIMEOUT_S: Final = 30.0
_ROUTE: Final = "/__openclaw__/assistant-media"
_UNKNOWN_TYPE: Final = "application/octet-stream"
_MAX_NAME: Final = 80

_LINE: Final = re.compile(r" {0,3}MEDIA:[ \t]*(\S.*?)\s*", re.IGNORECASE)
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:")
_DRIVE: Final = re.compile(r"[a-zA-Z]:")
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def split_media(text: str) -> tuple[str, tuple[str, ...]]:
    """The text without its `MEDIA:` lines, and the references in those lines.

    OpenClaw removes them from streamed text and from a run's result; texts from a session's history
    and from `agent.wait` still have them. Lines in code blocks stay.
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
    """The reference as a path relative to the workspace; None for anything outside of it.

    The result has no `..` and is not absolute, on any operating system.
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
    """True for an http(s) address."""
    try:
        parts = urlsplit(reference)
    except ValueError:
        return False
    is_web = parts.scheme in {"http", "https"} and bool(parts.hostname)
    return is_web and not re.search(r"[\s\x00-\x1f\ud800-\udfff]", reference)


async def fetch_media(
    connection: GatewayConnection, session: SessionRef, references: Sequence[str]
) -> tuple[Part, ...]:
    """The parts for these references, in order and without duplicates.

    A link becomes a file part with that link, a file of the workspace one with its content. What
    cannot be fetched becomes a text part with the reason; nothing is raised for it.
    """
    parts: list[Part] = []
    remaining = _MAX_BYTES
    for reference in tuple(dict.fromkeys(references))[:MAX_FILES]:
        part = await _fetch(connection, session, reference, remaining)
        remaining -= len(part.content)
        parts.append(part)
    return tuple(parts)


async def _fetch(
    connection: GatewayConnection, session: SessionRef, reference: str, remaining: int
) -> Part:
    if is_link(reference):
        return Part.of_url(reference, media_type=media_type_of(reference))
    path = workspace_path(reference, session.workspace)
    if path is None:
        return Part.of_text(omitted_text(reference, "it is not in the agent's workspace"))
    try:
        content, media_type = await _read(connection, session, path, min(remaining, MAX_FILE_BYTES))
    except _Unavailable as error:
        return Part.of_text(omitted_text(reference, str(error)))
    name = path.rpartition("/")[2]
    by_name = media_type_of(name)
    media_type = media_type if by_name == _UNKNOWN_TYPE else by_name
    return Part.of_bytes(content, media_type=media_type, filename=name)


class _Unavailable(Exception):
    """The file cannot be fetched; the message says why."""


class _WorkspaceFile(Wire, frozen=True):
    content: str
    encoding: str = ""
    mime_type: str = _UNKNOWN_TYPE


class _WorkspaceResponse(Wire, frozen=True):
    file: _WorkspaceFile


async def _read(
    connection: GatewayConnection, session: SessionRef, path: str, max_bytes: int
) -> tuple[bytes, str]:
    """The file by the protocol, which returns text and small images only, else by HTTP."""
    try:
        params: JsonObject = {"agentId": session.agent_id, "path": path}
        response = await connection.call("agents.workspace.get", params, timeout_s=_FETCH_TIMEOUT_S)
    except AgentError:
        return await _download(connection.address, session, path, max_bytes)
    try:
        file = msgspec.convert(response, _WorkspaceResponse).file
        is_base64 = file.encoding == "base64"
        content = (
            base64.b64decode(file.content) if is_base64 else file.content.encode("utf-8", "replace")
        )
    except (msgspec.ValidationError, binascii.Error, ValueError):
        raise _Unavailable("OpenClaw did not send its content in a readable form") from None
    if len(content) > max_bytes:
        raise _too_large(max_bytes)
    return content, file.mime_type


async def _download(
    address: GatewayAddress, session: SessionRef, path: str, max_bytes: int
) -> tuple[bytes, str]:
    # Without ./ in front OpenClaw may not resolve it relative to the workspace.
    query = {"source": f"./{path}", "sessionKey": session.session_key, "agentId": session.agent_id}
    content = bytearray()
    try:
        async with (
            open_http_client(address, timeout_s=_FETCH_TIMEOUT_S) as client,
            client.stream("GET", _ROUTE, params=query) as response,
        ):
            if response.status_code != 200:
                raise _Unavailable("OpenClaw does not have it, or does not allow it")
            async for piece in response.aiter_bytes():
                content += piece
                if len(content) > max_bytes:
                    raise _too_large(max_bytes)
            declared = response.headers.get("content-type", "")
    except (httpx2.HTTPError, httpx2.InvalidURL):
        raise _Unavailable("OpenClaw could not be asked for it") from None
    return bytes(content), declared.partition(";")[0].strip() or _UNKNOWN_TYPE


def _too_large(max_bytes: int) -> _Unavailable:
    return _Unavailable(f"it has more than the {max(max_bytes, 0)} bytes that are left for files")


def omitted_text(reference: str, reason: str) -> str:
    """The text in the place of a file. Of its path only the file name is disclosed."""
    last = re.split(r"[/\\]", reference.rstrip("/\\"))[-1]
    name = _UNPRINTABLE.sub(" ", last)[:_MAX_NAME] or "without a name"
    return f"[The file {name} is left out: {reason}.]"


def _fence_after(line: str, fence: str) -> str:
    """The fence of the code block that is open after this line; empty outside of code."""
    found = _FENCE.match(line)
    if found is None:
        return fence
    mark = found[1]
    if not fence:
        return mark
    closes = mark[0] == fence[0] and len(mark) >= len(fence) and not line.strip().strip(mark[0])
    return "" if closes else fence
