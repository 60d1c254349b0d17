"""Assembles a run's assistant messages from live chunks and from the history, each exactly once.

A run can be joined in the middle: its chunks carry the message so far, and the session's history
has the messages that ended while the connection was away.
"""

import msgspec

from openclaw_a2a.agents.openclaw_gateway.protocol import TextChunk
from openclaw_a2a.model.agent_event import AgentEvent, MessageEnd, Reply, TextDelta


class FinishedMessage(msgspec.Struct, frozen=True):
    """A finished message: its text, whether all of it was emitted as deltas, and its files."""

    text: str
    is_streamed: bool
    references: tuple[str, ...] = ()

    def plain_event(self) -> AgentEvent:
        """The event that ends the message, without its files."""
        return MessageEnd() if self.is_streamed else Reply.of_text(self.text)


class MessageAssembler:
    """Tracks how much of a run's messages was emitted.

    The current message is `_emitted` while the emitted deltas are a prefix of it, else
    `_replacement`, which is emitted as a whole when the message ends.
    """

    def __init__(self) -> None:
        self._finished: list[str] = []
        self._finished_items: set[str] = set()
        self._item = ""
        self._emitted: list[str] = []
        self._replacement: str | None = None
        self._references: dict[str, None] = {}
        self._is_in_sync = False
        """True while every delta continues the emitted text."""
        self._from_history = ""
        """The last message taken from the history: its live chunks may still arrive."""

    @property
    def is_open(self) -> bool:
        """True while a message is in progress."""
        return bool(self._emitted or self._replacement or self._references)

    @property
    def last(self) -> str:
        """The last finished message; empty when there is none."""
        return self._finished[-1] if self._finished else ""

    def starts_new_message(self, chunk: TextChunk) -> bool:
        """True when the chunk belongs to another message than the current one."""
        is_other = chunk.item_id != self._item and chunk.item_id not in self._finished_items
        return self.is_open and is_other

    def add_chunk(self, chunk: TextChunk) -> TextDelta | None:
        """The new text in the chunk."""
        if chunk.item_id in self._finished_items or self._is_echo(chunk):
            return None
        if chunk.item_id != self._item:
            self._item, self._is_in_sync = chunk.item_id, chunk.delta == chunk.full_text
        self._references.update(dict.fromkeys(chunk.media_urls))
        if self._is_in_sync and not chunk.replace:
            if not chunk.delta:
                return None
            self._emitted.append(chunk.delta)
            return TextDelta(chunk.delta)
        full = chunk.full_text
        return self._reconcile(full if full is not None else self._text() + chunk.delta)

    def mark_out_of_sync(self) -> None:
        """Chunks may have been missed: the next one counts by its full text."""
        self._is_in_sync = False

    def end(self) -> FinishedMessage | None:
        """End the current message."""
        if not self.is_open:
            return None
        message = FinishedMessage(self._text(), self._replacement is None, tuple(self._references))
        self._emitted, self._replacement, self._references = [], None, {}
        self._finished_items.add(self._item)
        self._item, self._is_in_sync = "", False
        self._finished.append(message.text)
        return message

    def finish(self, text: str, references: tuple[str, ...] = ()) -> FinishedMessage | None:
        """End the current message with this full text; the result is what is not emitted yet."""
        if self.is_open:
            if text.strip() and text.strip() != self._text().strip():
                self._replacement = text
            self._references.update(dict.fromkeys(references))
            return self.end()
        is_repeated = text.strip() == self.last.strip()
        if not references and (not text.strip() or is_repeated):
            return None
        self._from_history = text
        self._finished.append(text)
        new_text = "" if is_repeated else text
        return FinishedMessage(new_text, is_streamed=False, references=references)

    def end_before_tool(self, text: str, references: tuple[str, ...]) -> FinishedMessage | None:
        """End the message before a tool call; `text` may be a shortened form of a long one."""
        emitted = self._text()
        if not self.is_open or (len(text) > len(emitted) and text.startswith(emitted)):
            return self.finish(text, references)
        return self.end()

    def is_sent(self, index: int) -> bool:
        """True when the run's message with this index (from 0) was emitted to its end."""
        return index < len(self._finished)

    def _is_echo(self, chunk: TextChunk) -> bool:
        """True for a late chunk of a message that was already emitted from the history."""
        if not self._from_history or self.is_open:
            return False
        full = chunk.full_text
        return bool(full) and self._from_history.startswith(full or "")

    def _text(self) -> str:
        if self._replacement is not None:
            return self._replacement
        # Joined in place: a message of n chunks costs O(n), however often its text is needed.
        if len(self._emitted) > 1:
            self._emitted = ["".join(self._emitted)]
        return self._emitted[0] if self._emitted else ""

    def _reconcile(self, full: str) -> TextDelta | None:
        self._replacement = None
        emitted = self._text()
        self._is_in_sync = full.startswith(emitted)
        if not self._is_in_sync:
            self._replacement = full
            return None
        rest = full[len(emitted) :]
        if not rest:
            return None
        self._emitted.append(rest)
        return TextDelta(rest)
