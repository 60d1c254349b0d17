"""Media that an answer refers to, as file parts; nothing is ever opened or fetched here."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.message import Part
from openclaw_a2a.runtime.output import clean_text

_BY_EXTENSION = {
    "gif": "image/gif",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "pdf": "application/pdf",
    "png": "image/png",
    "svg": "image/svg+xml",
    "wav": "audio/wav",
    "webm": "video/webm",
    "webp": "image/webp",
}
_UNKNOWN = "application/octet-stream"


def media_type_of(url: str) -> str:
    """The media type by the extension of the address, whatever its case, query or fragment."""
    bare = url.partition("#")[0].partition("?")[0]
    return _BY_EXTENSION.get(PurePosixPath(bare).suffix[1:].lower(), _UNKNOWN)


def media_parts(payload: JsonObject) -> Iterator[Part]:
    """A file part for each of `mediaUrls`, then `mediaUrl`; the same address counts once."""
    listed = payload.get("mediaUrls")
    urls: list[Json] = [*(listed if isinstance(listed, list) else ()), payload.get("mediaUrl")]
    texts = [url for url in urls if isinstance(url, str) and url.strip()]
    for url in dict.fromkeys(texts):
        safe = clean_text(url)
        yield Part.of_url(safe, media_type=media_type_of(safe))
