"""Truncates results that are too large for a model; the full text stays readable in files."""

import contextlib
import hashlib
import re
import secrets
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import cast

import msgspec

from openclaw_a2a.model.ids import Json, JsonObject

_REF = re.compile(r"res_[A-Za-z0-9_-]{20,64}")
_CONTENTS = ("text", "bytes")
_MIN_CUT_CHARS = 256
"""Shorter texts are never cut."""

_REPLACEABLE = (("raw",), ("summary", "artifacts"), ("error", "details"))
"""Members that are replaced by a reference when cutting texts was not enough, in this order."""


class ResultExcerpt(msgspec.Struct, frozen=True):
    """Some bytes of a stored text, and its total size."""

    content: bytes
    total: int


class ResultStore:
    """Stored texts in one folder; only their owner can read them, and they expire."""

    def __init__(
        self, folder: Path, *, limit: int, ttl: timedelta, now: Callable[[], datetime]
    ) -> None:
        self._folder = folder
        self._limit = limit
        self._ttl = ttl
        self._now = now

    def truncate(self, envelope: JsonObject, owner: str) -> JsonObject:
        """The envelope within the limit: long texts are cut and refer to the full text."""
        size = len(msgspec.json.encode(envelope))
        if size <= self._limit:
            return envelope
        room = max(_MIN_CUT_CHARS, self._limit // (2 * max(1, _count_long(envelope))))
        cut = cast("JsonObject", _Cutter(self, owner, room).cut(envelope))
        for path in _REPLACEABLE:
            if self._is_too_large(cut):
                self._replace_member(path, envelope, cut, owner)
        return cut

    def _is_too_large(self, cut: JsonObject) -> bool:
        # References to full texts may go a little over the limit.
        return len(msgspec.json.encode(cut)) > self._limit * 1.5

    def _replace_member(
        self, path: tuple[str, ...], whole: JsonObject, cut: JsonObject, owner: str
    ) -> None:
        """Replace a member that has no long texts to cut by a reference to its JSON."""
        *parents, name = path
        for parent in parents:
            whole, cut = whole.get(parent, {}), cut.get(parent, {})
        if name not in whole:
            return
        text = msgspec.json.encode(whole[name]).decode()
        shown = {"artifact_ref": _reference(self.store(text, owner), text, start=0)}
        cut[name] = [shown] if isinstance(whole[name], list) else shown

    def store(self, text: str, owner: str) -> str:
        """Store a text; the reference with which its owner reads it."""
        reference = f"res_{secrets.token_urlsafe(24)}"
        folder = self._folder_of(owner)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / reference).write_bytes(text.encode("utf-8", "replace"))
        return reference

    def read(self, reference: str, owner: str, *, start: int, count: int) -> ResultExcerpt | None:
        """Some bytes of a stored text; None when this owner has no text with the reference."""
        if not _REF.fullmatch(reference):
            return None
        path = self._folder_of(owner) / reference
        try:
            with path.open("rb") as stream:
                total = path.stat().st_size
                stream.seek(min(start, total))
                return ResultExcerpt(stream.read(count), total)
        except FileNotFoundError:
            return None

    def delete_expired(self) -> int:
        """Delete expired texts; how many there were."""
        before = (self._now() - self._ttl).timestamp()
        deleted = 0
        for path in self._folder.glob("*/res_*"):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < before:
                    path.unlink()
                    deleted += 1
        return deleted

    def _folder_of(self, owner: str) -> Path:
        return self._folder / hashlib.sha256(owner.encode()).hexdigest()[:16]


class _Cutter:
    """Cuts every long text of one envelope; equal texts are stored once."""

    def __init__(self, results: ResultStore, owner: str, room: int) -> None:
        self._results = results
        self._owner = owner
        self._room = room
        self._stored: dict[str, str] = {}

    def cut(self, value: Json) -> Json:
        if isinstance(value, dict):
            return self._cut_object(cast("JsonObject", value))
        if isinstance(value, list):
            return [self.cut(item) for item in cast("list[Json]", value)]
        return value

    def _cut_object(self, value: JsonObject) -> JsonObject:
        shown: JsonObject = {}
        for key, member in value.items():
            if isinstance(member, str) and _beginning(member, self._room) != member:
                shown[key] = self._shorten(member, key)
                if key in _CONTENTS:
                    shown["artifact_ref"] = self._reference(member)
            else:
                shown[key] = self.cut(member)
        return shown

    def _shorten(self, text: str, key: str) -> str:
        begin = _beginning(text, self._room)
        if key == "bytes":
            return begin[: len(begin) - len(begin) % 4]
        reference = self._reference(text)
        return f"{begin}\n[cut here: {reference['total_bytes']} bytes in all; {reference['read']}]"

    def _reference(self, text: str) -> JsonObject:
        if text not in self._stored:
            self._stored[text] = self._results.store(text, self._owner)
        shown = len(_beginning(text, self._room).encode("utf-8", "replace"))
        return _reference(self._stored[text], text, start=shown)


def _beginning(text: str, room: int) -> str:
    """The beginning of a text that takes at most `room` bytes as JSON, with its escapes."""
    begin = text[:room]
    while len(msgspec.json.encode(begin)) > room + 2:
        begin = begin[: len(begin) // 2]
    return begin


def _reference(name: str, text: str, *, start: int) -> JsonObject:
    return {
        "ref": name,
        "total_bytes": len(text.encode("utf-8", "replace")),
        "read": f"GET /results/{name}?from={start}&bytes={max(start, 65536)} has the rest",
    }


def _count_long(value: Json) -> int:
    if isinstance(value, str):
        return int(len(value) > _MIN_CUT_CHARS)
    if isinstance(value, dict):
        return sum(map(_count_long, cast("JsonObject", value).values()))
    if isinstance(value, list):
        return sum(map(_count_long, cast("list[Json]", value)))
    return 0
