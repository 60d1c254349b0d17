"""Files of peers: checks that their bytes match their media type, and makes names safe.

Only the beginning of a file is checked. A type without a known signature is accepted.
"""

import base64
import binascii
import re
from pathlib import PurePosixPath

_HEAD_CHARACTERS = 1024
"""How much of the base64 text is checked; a multiple of four."""

_RIFF, _MP4 = b"RIFF", b"ftyp"
SIGNATURES: dict[str, tuple[bytes, ...]] = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (_RIFF,),
    "image/bmp": (b"BM",),
    "image/tiff": (b"II*\x00", b"MM\x00*"),
    "application/pdf": (b"%PDF-",),
    "application/zip": (b"PK\x03\x04", b"PK\x05\x06"),
    "application/gzip": (b"\x1f\x8b",),
    "audio/wav": (_RIFF,),
    "audio/ogg": (b"OggS",),
    "audio/flac": (b"fLaC",),
    "audio/mpeg": (b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2", b"\xff\xfa"),
    "video/ogg": (b"OggS",),
    "video/webm": (b"\x1a\x45\xdf\xa3",),
}
"""What the bytes of a type begin with."""

_AT_OTHER_PLACES = {
    "image/webp": (8, b"WEBP"),
    "audio/wav": (8, b"WAVE"),
    "video/mp4": (4, _MP4),
    "audio/mp4": (4, _MP4),
}
_SAME_TYPE = {
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "application/x-gzip": "application/gzip",
    "audio/x-wav": "audio/wav",
    "audio/wave": "audio/wav",
    "audio/mp3": "audio/mpeg",
}
_PROGRAMS = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")

_UNSAFE = re.compile(
    # Control codes, separators of paths and streams, and characters that reverse text.
    r"[\x00-\x1f\x7f-\x9f/\\:*?\"<>|\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
_MAX_NAME_BYTES = 200
_PORTS = [f"{port}{number}" for port in ("com", "lpt") for number in range(1, 10)]
_RESERVED = frozenset({"con", "prn", "aux", "nul", *_PORTS})


def content_mismatch(media_type: str, raw: str) -> str | None:
    """Why the base64 content of a file does not match its type; None when it may."""
    declared = media_type.partition(";")[0].strip().lower()
    declared = _SAME_TYPE.get(declared, declared)
    try:
        head = base64.b64decode(raw[:_HEAD_CHARACTERS])
    except binascii.Error:
        return "is not base64"
    signatures = SIGNATURES.get(declared, ())
    place, mark = _AT_OTHER_PLACES.get(declared, (0, b""))
    has_mark = head[place : place + len(mark)] == mark
    if (signatures and not head.startswith(signatures)) or not has_mark:
        return f"says it is {declared}, and its content is not"
    is_text = declared.startswith("text/") or declared in ("application/json", "application/xml")
    if is_text and "charset=utf-16" not in media_type.lower() and _is_binary(head):
        return f"says it is {declared}, and its content is no text"
    return None


def _is_binary(head: bytes) -> bool:
    is_utf16 = head.startswith((b"\xff\xfe", b"\xfe\xff"))
    return (b"\x00" in head and not is_utf16) or head.startswith(_PROGRAMS)


def clean_filename(name: str) -> str:
    """A name that is safe to show and to write: no folders, no control codes, of limited length.

    Empty when nothing of it is left.
    """
    last = name.replace("\\", "/").rpartition("/")[2]
    kept = _UNSAFE.sub("_", last).strip(" .")
    path = PurePosixPath(kept)
    if path.stem.partition(".")[0].lower() in _RESERVED:
        kept = f"_{kept}"
    encoded = kept.encode()
    if len(encoded) <= _MAX_NAME_BYTES:
        return kept
    suffix = path.suffix.encode()[:20].decode(errors="ignore")
    stem = encoded[: _MAX_NAME_BYTES - len(suffix.encode())].decode(errors="ignore")
    return stem + suffix
