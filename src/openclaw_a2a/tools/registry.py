"""The one table of tools: what each is called, takes and does."""

from collections.abc import Awaitable, Callable, Iterable, Iterator

import msgspec

from openclaw_a2a.auth.tool_tokens import ToolCaller
from openclaw_a2a.model.ids import Json, JsonObject

OnUpdate = Callable[[JsonObject], None]
RunTool = Callable[[Json, ToolCaller, OnUpdate], Awaitable[JsonObject]]


def ignore_update(_update: JsonObject) -> None:
    """For those who want nothing but the result."""


class Tool(msgspec.Struct, frozen=True):
    """A tool. It answers every call with an object and raises nothing but a cancellation."""

    name: str
    label: str
    description: str
    schema: JsonObject
    run: RunTool
    told: OnUpdate = ignore_update
    """Hears of a result once it was written out to the caller."""

    def listed(self) -> JsonObject:
        """How the tool is shown to whoever may call it."""
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
        """The names, in the order of the table."""
        return tuple(self._tools)
