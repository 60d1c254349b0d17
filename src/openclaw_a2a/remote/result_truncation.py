"""Truncates results that are too large for a model; the full text stays readable in files."""

import contextlib
import hashlib
import re
import secrets
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import as_list, is_list, is_object
from openclaw_a2a.settings import write_private_file

_REF = re.compile(r"res_[A-Za-z0-9_-]{20,64}")
_CONTENTS = ("text", "bytes")
_MIN_CUT_CHARS = 256
"""Shorter texts are never cut."""

_REPLACEABLE = (("raw",), ("summary", "artifacts"), ("error", "details"))
"""Members that are replaced by a reference when cutting texts was not enough, in this order."""


class ResultStore:
    """Stored texts in one folder; only their owner can read them, and they expire."""

    def __init__(self, folder: Path, *, limit: int, ttl: timedelta) -> None:
        self._folder = folder
        self._limit = limit
        self._ttl = ttl

    def fits(self, envelope: JsonObject) -> bool:
        """True when the envelope is within the limit."""
        return len(msgspec.json.encode(envelope)) <= self._limit

    def truncate(self, envelope: JsonObject, owner: str) -> JsonObject:
        """The envelope within the limit: long texts are cut and refer to the full text."""
        if self.fits(envelope):
            return envelope
        references: dict[str, str] = {}

        def refer(text: str, start: int) -> JsonObject:
            if text not in references:  # equal texts are stored once
                references[text] = self.store(text, owner)
            name, size = references[text], max(start, 65536)
            return {
                "ref": name,
                "total_bytes": len(text.encode("utf-8", "replace")),
                "read": f"GET /results/{name}?from={start}&bytes={size} has the rest",
            }

        room = max(_MIN_CUT_CHARS, self._limit // (2 * max(1, _count_long(envelope))))
        cut: JsonObject = _cut(envelope, room, refer)
        for *parents, name in _REPLACEABLE:
            # References to full texts may go a little over the limit.
            if len(msgspec.json.encode(cut)) <= self._limit * 1.5:
                break
            whole, shown = envelope, cut
            for parent in parents:
                whole, shown = whole.get(parent, {}), shown.get(parent, {})
            if name in whole:
                text = msgspec.json.encode(whole[name]).decode()
                replaced = {"artifact_ref": refer(text, 0)}
                shown[name] = [replaced] if isinstance(whole[name], list) else replaced
        return cut

    def store(self, text: str, owner: str) -> str:
        """Store a text; the reference with which its owner reads it."""
        reference = f"res_{secrets.token_urlsafe(24)}"
        write_private_file(self._folder_of(owner) / reference, text.encode("utf-8", "replace"))
        return reference

    def read(self, reference: str, owner: str, start: int, count: int) -> tuple[bytes, int] | None:
        """Some bytes of a stored text and its size; None when it is not this owner's, or gone."""
        if not _REF.fullmatch(reference):
            return None
        path = self._folder_of(owner) / reference
        try:
            with path.open("rb") as stream:
                total = path.stat().st_size
                stream.seek(min(start, total))
                return stream.read(count), total
        except FileNotFoundError:
            return None

    def delete_expired(self, now: datetime) -> int:
        """Delete texts that have expired by then; how many there were."""
        before = (now - self._ttl).timestamp()
        deleted = 0
        for path in self._folder.glob("*/res_*"):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < before:
                    path.unlink()
                    deleted += 1
        return deleted

    def _folder_of(self, owner: str) -> Path:
        return self._folder / hashlib.sha256(owner.encode()).hexdigest()[:16]


def _cut(value: Json, room: int, refer: Callable[[str, int], JsonObject]) -> Json:
    """The value with every long text cut to `room`; `refer` makes references to full texts."""
    if is_list(value):
        return [_cut(item, room, refer) for item in value]
    if not is_object(value):
        return value
    shown: JsonObject = {}
    for key, member in value.items():
        begin = _beginning(member, room) if isinstance(member, str) else member
        if begin == member:
            shown[key] = _cut(member, room, refer)
            continue
        reference = refer(member, len(begin.encode("utf-8", "replace")))
        if key == "bytes":  # base64 stays readable up to the cut
            shown[key] = begin[: len(begin) - len(begin) % 4]
        else:
            total, how = reference["total_bytes"], reference["read"]
            shown[key] = f"{begin}\n[cut here: {total} bytes in all; {how}]"
        if key in _CONTENTS:
            shown["artifact_ref"] = reference
    return shown


def _beginning(text: str, room: int) -> str:
    """The beginning of a text that takes at most `room` bytes as JSON, with its escapes."""
    begin = text[:room]
    while len(msgspec.json.encode(begin)) > room + 2:
        begin = begin[: len(begin) // 2]
    return begin


def _count_long(value: Json) -> int:
    if isinstance(value, str):
        return int(len(value) > _MIN_CUT_CHARS)
    items = value.values() if is_object(value) else as_list(value)
    return sum(map(_count_long, items))
