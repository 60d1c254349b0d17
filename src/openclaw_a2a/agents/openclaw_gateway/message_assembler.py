"""The assistant messages of a run as they are told on: each once, none of it twice.

A run's text can be joined in the middle, because its events carry the message so far; and a
session's history has the messages that ended while nobody listened.
"""

import msgspec

from openclaw_a2a.agents.openclaw_gateway.protocol import TextChunk
from openclaw_a2a.model.agent_event import AgentEvent, MessageEnd, Reply, TextDelta


class FinishedMessage(msgspec.Struct, frozen=True):
    """A message that is over: its text, whether all of it was streamed, and its files."""

    text: str
    is_streamed: bool
    references: tuple[str, ...] = ()

    def plain_event(self) -> AgentEvent:
        """The event that ends the message, without its files."""
        return MessageEnd() if self.is_streamed else Reply.of_text(self.text)


class MessageAssembler:
    """What of a run's messages has been told."""

    def __init__(self) -> None:
        self._ended: list[str] = []
        self._item = ""
        self._told: list[str] = []
        self._whole: str | None = None
        """The current message, when what was told is not its beginning (any more)."""
        self._references: dict[str, None] = {}
        self._is_in_step = False
        """True while every delta continues what was told."""
        self._ended_items: set[str] = set()
        self._caught_up = ""
        """The last message that was told from the history: its events may still come."""

    @property
    def is_open(self) -> bool:
        """True while a message is being told."""
        return bool(self._told or self._whole or self._references)

    @property
    def last(self) -> str:
        """The last message that ended; empty when there was none."""
        return self._ended[-1] if self._ended else ""

    def starts_new_message(self, piece: TextChunk) -> bool:
        """True when the piece begins another message than the current one."""
        is_other = piece.item_id != self._item and piece.item_id not in self._ended_items
        return self.is_open and is_other

    def add_chunk(self, piece: TextChunk) -> TextDelta | None:
        """What is new in the piece."""
        if piece.item_id in self._ended_items or self._is_echo(piece):
            return None
        if piece.item_id != self._item:
            self._item, self._is_in_step = piece.item_id, piece.delta == piece.full_text
        self._references.update(dict.fromkeys(piece.media_urls))
        if self._is_in_step and not piece.replace:
            if not piece.delta:
                return None
            self._told.append(piece.delta)
            return TextDelta(piece.delta)
        whole = piece.full_text
        return self._reconcile(whole if whole is not None else self._text() + piece.delta)

    def mark_out_of_sync(self) -> None:
        """Pieces may have been missed: the next one counts by its whole text."""
        self._is_in_step = False

    def end(self) -> FinishedMessage | None:
        """The current message is over."""
        if not self.is_open:
            return None
        said = FinishedMessage(self._text(), self._whole is None, tuple(self._references))
        self._told, self._whole, self._references = [], None, {}
        self._ended_items.add(self._item)
        self._item, self._is_in_step = "", False
        self._ended.append(said.text)
        return said

    def finish(self, text: str, references: tuple[str, ...] = ()) -> FinishedMessage | None:
        """This is the message that is told now, whole; what of it is still to be told."""
        if self.is_open:
            if text.strip() and text.strip() != self._text().strip():
                self._whole = text
            self._references.update(dict.fromkeys(references))
            return self.end()
        if not references and (not text.strip() or text.strip() == self.last.strip()):
            return None
        is_told = text.strip() == self.last.strip()
        self._caught_up = text
        self._ended.append(text)
        return FinishedMessage("" if is_told else text, is_streamed=False, references=references)

    def end_before_tool(self, text: str, references: tuple[str, ...]) -> FinishedMessage | None:
        """The message before a tool call is over; of a long one the text may be shortened."""
        told = self._text()
        if not self.is_open or (len(text) > len(told) and text.startswith(told)):
            return self.finish(text, references)
        return self.end()

    def is_sent(self, number: int) -> bool:
        """True when so many messages of the run, and one more, have been told to their end."""
        return number < len(self._ended)

    def _is_echo(self, piece: TextChunk) -> bool:
        """True for a piece of a message that was told from the history meanwhile."""
        if not self._caught_up or self.is_open:
            return False
        whole = piece.full_text
        return bool(whole) and self._caught_up.startswith(whole or "")

    def _text(self) -> str:
        if self._whole is not None:
            return self._whole
        if len(self._told) > 1:
            self._told = ["".join(self._told)]
        return self._told[0] if self._told else ""

    def _reconcile(self, whole: str) -> TextDelta | None:
        self._whole = None
        told = self._text()
        self._is_in_step = whole.startswith(told)
        if not self._is_in_step:
            self._whole = whole
            return None
        rest = whole[len(told) :]
        if not rest:
            return None
        self._told.append(rest)
        return TextDelta(rest)
