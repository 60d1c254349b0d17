"""The tools that the gateway offers, and what they are made of."""

from collections.abc import Awaitable, Callable, Iterable, Iterator

import msgspec

from openclaw_a2a.auth.tool_tokens import ToolCaller
from openclaw_a2a.model.ids import Json, JsonObject

BuildUpdate = Callable[[], JsonObject]
OnUpdate = Callable[[BuildUpdate], None]
"""Reports progress. The update is built only when somebody is shown it: it may be large."""

RunTool = Callable[[Json, ToolCaller, OnUpdate], Awaitable[JsonObject]]


def ignore_update(_build: BuildUpdate) -> None:
    """For callers that want the result only."""


def _ignore_result(_result: JsonObject) -> None:
    pass


class Tool(msgspec.Struct, frozen=True):
    """A tool. It answers every call with an object and raises nothing but a cancellation."""

    name: str
    label: str
    description: str
    schema: JsonObject
    run: RunTool
    on_written: Callable[[JsonObject], None] = _ignore_result
    """Called when a result was written to the caller's connection."""

    def describe(self) -> JsonObject:
        """The tool for those who may call it."""
        return {
            "name": self.name,
            "label": self.label,
            "description": self.description,
            "inputSchema": self.schema,
        }


class ToolRegistry:
    """The tools that are offered, by name."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def find(self, name: str) -> Tool | None:
        """The tool, when it is offered."""
        return self._tools.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in the order of registration."""
        return tuple(self._tools)
