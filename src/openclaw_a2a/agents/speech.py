"""What a Python function says, in the words of the engine."""

from collections.abc import Iterator
from typing import cast

from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import Json
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.reply import AgentEvent, Block, MessageEnd, Reply, TextDelta, TextPreview


class Speech:
    """Turns results and yielded items into events, and knows whether a message is open."""

    def __init__(self) -> None:
        self._is_open = False

    def whole(self, result: Json) -> Iterator[AgentEvent]:
        """The events of a function's result. Raises: AgentFailed for what is no answer."""
        if isinstance(result, AgentEvent):
            yield result
        elif _is_list_of(result, AgentEvent):
            yield from result
        elif parts := reply_parts(result):
            yield Reply(parts)

    def next(self, item: Json) -> Iterator[AgentEvent]:
        """The events of what a generator yields next. Raises: AgentFailed for what is no answer."""
        if isinstance(item, str):
            item = TextDelta(item) if item else None
        elif self._is_open and not _holds_event(item) and item is not None:
            # Content of its own: the text before it was a message of its own, too.
            yield MessageEnd()
        for event in self.whole(item):
            self._is_open = self._is_open_after(event)
            yield event

    def _is_open_after(self, event: AgentEvent) -> bool:
        if isinstance(event, TextDelta | TextPreview | Block):
            return True
        return self._is_open and not isinstance(event, Reply | MessageEnd)


def reply_parts(value: Json) -> tuple[Part, ...]:
    """The value as the parts of a reply; empty when it says nothing. Raises: AgentFailed."""
    if value is None or value == "":
        return ()
    if isinstance(value, str | Part):
        return (_part(value),)
    if _is_list_of(value, str | Part):
        return tuple(_part(item) for item in value)
    if isinstance(value, dict | list | tuple):
        return (Part.of_data(value),)
    raise AgentFailed(
        f"The function answered with {type(value).__name__}; it must answer with str, Part, dict,"
        " list, AgentEvent or None."
    )


def _part(value: str | Part) -> Part:
    return Part(text=value) if isinstance(value, str) else value


def _holds_event(value: Json) -> bool:
    return isinstance(value, AgentEvent) or (bool(value) and _is_list_of(value, AgentEvent))


def _is_list_of(value: Json, kind: Json) -> bool:
    if not isinstance(value, list | tuple):
        return False
    items = cast("list[Json]", value)
    return all(isinstance(item, kind) for item in items)
