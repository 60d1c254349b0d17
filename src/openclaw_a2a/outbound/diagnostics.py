"""Which media types a send asked for and which the peer's card offers, to explain failures."""

from collections.abc import Iterable
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from openclaw_a2a.model.ids import JsonObject

UNKNOWN = "unknown"
_TYPES = {
    "csv": "text/csv",
    "gif": "image/gif",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "json": "application/json",
    "md": "text/markdown",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "ogg": "audio/ogg",
    "pdf": "application/pdf",
    "png": "image/png",
    "svg": "image/svg+xml",
    "txt": "text/plain",
    "wav": "audio/wav",
    "webm": "video/webm",
    "webp": "image/webp",
}


def diagnose(
    parts: list[JsonObject], output_modes: Iterable[str], card: JsonObject | None
) -> JsonObject:
    """What was asked and what is offered; `card` is the normalised card, None when unknown."""
    inputs = [_input_mode(part) for part in parts]
    requested_inputs = _clean(inputs)
    requested_outputs = _clean(output_modes)
    offered_inputs = _offered(card, "default_input_modes", "input_modes")
    offered_outputs = _offered(card, "default_output_modes", "output_modes")
    return {
        "requested_input_modes": requested_inputs,
        "advertised_input_modes": offered_inputs,
        "unsupported_input_modes": _missing(requested_inputs, offered_inputs),
        "requested_output_modes": requested_outputs,
        "advertised_output_modes": offered_outputs,
        "unsupported_output_modes": _missing(requested_outputs, offered_outputs),
        "unknown_file_attachments": [index for index, mode in enumerate(inputs) if mode == UNKNOWN],
    }


def _input_mode(part: JsonObject) -> str:
    if part["kind"] == "text":
        return "text/plain"
    if part["kind"] == "data":
        return "application/json"
    given = (part.get("mime_type") or "").strip()
    return given or _by_name(part.get("name")) or _by_name(_path(part.get("uri"))) or UNKNOWN


def _path(uri: str | None) -> str | None:
    try:
        return urlsplit(uri).path if uri else None
    except ValueError:
        return None


def _by_name(name: str | None) -> str | None:
    extension = PurePosixPath(name or "").suffix.lower().removeprefix(".")
    return _TYPES.get(extension)


def _offered(card: JsonObject | None, defaults: str, of_skills: str) -> list[str]:
    if card is None:
        return []
    modes = list(card.get(defaults) or ())
    for skill in card.get("skills") or ():
        modes += skill.get(of_skills) or ()
    return _clean(modes)


def _missing(requested: list[str], offered: list[str]) -> list[str]:
    return [mode for mode in requested if mode not in offered and mode != UNKNOWN]


def _clean(modes: Iterable[str]) -> list[str]:
    cleaned = (mode.strip().lower() for mode in modes)
    return list(dict.fromkeys(mode for mode in cleaned if mode))
