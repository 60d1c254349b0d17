"""Hides from peers what only the operator may see: ids of approvals, and folders."""

import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, cast

import msgspec

from openclaw_a2a.model.agent_event import (
    AgentEvent,
    Block,
    Failed,
    InputRequired,
    MessageEnd,
    Note,
    PartDelta,
    Reply,
    Report,
    Started,
    Stopped,
    TextDelta,
    TextPreview,
    ToolProgress,
    ToolReply,
)
from openclaw_a2a.model.message import Part, secret_tail
from openclaw_a2a.model.validation import is_object

_HIDDEN: Final = "..."
_ID_MARK: Final = "gateway id="
_DENIED_ID: Final = re.compile(_ID_MARK + "[0-9a-f-]{8,}")
_OPEN_ID: Final = re.compile(_ID_MARK + r"[0-9a-f-]*\Z")
_LONG_ID: Final = re.compile("[0-9a-f-]{16,}")
_MIN_FOLDER_CHARS: Final = 6
"""A shorter folder, such as `/tmp`, reveals nothing and is a part of many other texts."""

_TEXT_FIELDS: Final[dict[type[AgentEvent], str | None]] = {
    Started: None,
    TextPreview: "text",
    PartDelta: "part",
    Block: "text",
    Reply: "parts",
    MessageEnd: None,
    ToolReply: "parts",
    ToolProgress: "payload",
    Note: "text",
    InputRequired: "prompt",
    Failed: "reason",
    Stopped: None,
    Report: "metadata",
}
"""Where each kind of event has text for the peer; deltas are a stream and treated as one."""
_BESIDE_TEXT: Final = (Started, ToolReply, ToolProgress, Note, Report)
"""Events within a message, whose text continues after them."""
_HIDDEN_MEMBERS: Final = frozenset({"cwd", "approvalId", "approvalSlug"})
_SLUG_CHARS: Final = 8
"""OpenClaw also shows the first characters of an id."""


class ApprovalRedactor:
    """Hides ids of approvals, and folders, from peers that may not approve.

    These are the agent's workspace and the folders of commands. Invariant: no joined text of a
    message has, up to any event that was shown, an id or folder, or the beginning of one at its
    end: that is held back until the next piece, or the end of the message, shows what it is.
    """

    def __init__(self, workspace: str, approvals: Mapping[str, str]) -> None:
        self._workspace = workspace.rstrip("/\\")
        self._approvals = approvals
        """The folders of commands by the ids of their approvals; it grows during a run."""
        self._held = ""

    async def redact(self, events: AsyncGenerator[AgentEvent]) -> AsyncGenerator[AgentEvent]:
        """The events of a run as the peer may see them."""
        async with aclosing(events):
            async for event in events:
                for shown in self.redact_event(event):
                    yield shown
        for shown in self._release():
            yield shown

    def redact_event(self, event: AgentEvent) -> list[AgentEvent]:
        """The event as the peer may see it, after text that was held back."""
        if isinstance(event, TextDelta):
            return self._show_delta(event)
        if isinstance(event, Reply):
            self._held = ""  # the reply is the whole message
        released = [] if isinstance(event, _BESIDE_TEXT) else self._release()
        field = _TEXT_FIELDS[type(event)]
        if field is not None:
            hidden = {field: self._hide_in(getattr(event, field), self._secrets())}
            event = msgspec.structs.replace(event, **hidden)
        return [*released, event]

    def redact_parts(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """The parts of a message as the peer may see them."""
        return self._hide_in(parts, self._secrets())

    def _show_delta(self, delta: TextDelta) -> list[AgentEvent]:
        secrets = self._secrets()
        text = _replace(self._held + delta.text, secrets)
        size = secret_tail(text, [*secrets, _ID_MARK])
        if (denied := _OPEN_ID.search(text)) is not None:
            size = max(size, len(text) - denied.start())
        shown, self._held = text[: len(text) - size], text[len(text) - size :]
        return [TextDelta(self._hide(shown, secrets))] if shown else []

    def _release(self) -> list[AgentEvent]:
        text, self._held = self._hide(self._held, self._secrets()), ""
        return [TextDelta(text)] if text else []

    def _secrets(self) -> list[str]:
        """The longest first: one may be a part of another."""
        folders = {self._workspace, *(one.rstrip("/\\") for one in self._approvals.values())}
        folders = {one for one in folders if len(one) >= _MIN_FOLDER_CHARS}
        return sorted(filter(None, {*self._approvals, *folders}), key=len, reverse=True)

    def _hide(self, text: str, secrets: Iterable[str]) -> str:
        text = _replace(text, secrets)
        for approval_id in self._approvals:
            if approval_id[:_SLUG_CHARS] in text and _LONG_ID.fullmatch(approval_id):
                sizes = range(len(approval_id), _SLUG_CHARS - 1, -1)
                text = _replace(text, [approval_id[:size] for size in sizes])
        # A denied command names its approval, also one decided before this process started.
        return _DENIED_ID.sub(_ID_MARK + _HIDDEN, text)

    def _hide_in(self, value: Any, secrets: Sequence[str]) -> Any:
        """The value, with what is hidden also in the names of members."""
        if isinstance(value, str):
            return self._hide(value, secrets)
        if is_object(value):
            return {
                self._hide(key, secrets): self._hide_in(one, secrets)
                for key, one in value.items()
                if key not in _HIDDEN_MEMBERS
            }
        if isinstance(value, list | tuple):
            items = [self._hide_in(one, secrets) for one in cast("Sequence[Any]", value)]
            return tuple(items) if isinstance(value, tuple) else items
        if isinstance(value, Part):
            return msgspec.structs.replace(
                value,
                text=self._hide_in(value.text, secrets),
                data=self._hide_in(value.data, secrets),
                filename=self._hide_in(value.filename, secrets),
                metadata=self._hide_in(value.metadata, secrets),
            )
        return value


def _replace(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, _HIDDEN)
    return text
