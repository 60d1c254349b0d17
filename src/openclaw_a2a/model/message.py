"""Messages and their parts in the JSON form of A2A 1.0, and timestamps in JSON."""

import base64
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import Enum
from typing import Self

import msgspec
from msgspec import UNSET, UnsetType

from openclaw_a2a.model.ids import ContextId, Json, JsonObject, MessageId, TaskId


class JsonStruct(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", gc=False):
    """Base of everything that is stored or sent as JSON: frozen, camelCase, defaults left out."""


class Role(Enum):
    """The sender of a message."""

    USER = "ROLE_USER"
    AGENT = "ROLE_AGENT"
    UNSPECIFIED = "ROLE_UNSPECIFIED"


class Part(JsonStruct, frozen=True):
    """One piece of content: exactly one of text, raw, url and data is set.

    `raw` is standard base64 with padding; `content` gives its bytes.
    """

    text: str | None = None
    raw: str | None = None
    url: str | None = None
    data: Json | UnsetType = UNSET
    filename: str | None = None
    media_type: str | None = None
    metadata: JsonObject | None = None

    @classmethod
    def of_text(cls, text: str) -> Self:
        """A text part."""
        return cls(text=text)

    @classmethod
    def of_data(cls, data: Json) -> Self:
        """A structured data part."""
        return cls(data=data)

    @classmethod
    def of_bytes(cls, content: bytes, *, media_type: str, filename: str | None = None) -> Self:
        """A file part that carries its content."""
        raw = base64.b64encode(content).decode("ascii")
        return cls(raw=raw, media_type=media_type, filename=filename)

    @classmethod
    def of_url(
        cls, url: str, *, media_type: str | None = None, filename: str | None = None
    ) -> Self:
        """A file part that points at its content."""
        return cls(url=url, media_type=media_type, filename=filename)

    @property
    def is_file(self) -> bool:
        """True for inline and for linked files."""
        return self.raw is not None or self.url is not None

    @property
    def content(self) -> bytes:
        """The bytes of an inline file; empty for every other kind."""
        return base64.b64decode(self.raw) if self.raw else b""

    @property
    def kind(self) -> str:
        """The kind of content, in the words of 0.3: text, file or data."""
        if self.text is not None:
            return "text"
        return "file" if self.is_file else "data"

    @property
    def root(self) -> Self:
        """The part itself; code written for the 0.3 SDK unwraps parts by this name."""
        return self


class Message(JsonStruct, frozen=True):
    """One message of a user or an agent."""

    message_id: MessageId
    role: Role
    parts: tuple[Part, ...]
    context_id: ContextId | None = None
    task_id: TaskId | None = None
    metadata: JsonObject | None = None
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[TaskId, ...] = ()

    @property
    def text(self) -> str:
        """The text parts, joined by a blank line."""
        return "\n\n".join(part.text for part in self.parts if part.text is not None)


def format_timestamp(moment: datetime) -> str:
    """An aware time in ISO 8601, in UTC with milliseconds: 2026-01-05T10:00:00.000Z."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def secret_tail(text: str, secrets: Iterable[str]) -> int:
    """How many characters at the end of a streamed text may be the beginning of a secret.

    Code that hides secrets holds them back until the next piece shows what they are.
    """
    longest = 0
    for secret in secrets:
        tail = text[-(len(secret) - 1) :]
        start = tail.find(secret[0])
        while start >= 0 and not secret.startswith(tail[start:]):
            start = tail.find(secret[0], start + 1)
        if start >= 0:
            longest = max(longest, len(tail) - start)
    return longest
