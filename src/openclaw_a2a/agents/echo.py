"""The built-in agent for trying things out: it answers with the message it got."""

import re
from collections.abc import AsyncIterator, Mapping
from typing import ClassVar, Self

import msgspec

from openclaw_a2a.agents.adapter import EventAgent
from openclaw_a2a.model.agent_event import AgentEvent, Reply, TextDelta
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.settings.sections import Section

_WORD = re.compile(r"\S+\s*|\s+")
_MOST_PIECES = 64


class EchoOptions(Section, frozen=True):
    """The echo agent has no options."""


class EchoAgent(EventAgent):
    """Answers `echo: <text>`, word by word; a message of data alone comes back as that data.

    A long text comes in at most 64 pieces, so that a small request cannot cause a flood of events.
    """

    options_type: ClassVar[type[msgspec.Struct]] = EchoOptions
    is_repeatable = True

    @classmethod
    def from_options(cls, options: EchoOptions, *, environment: Mapping[str, str] | None) -> Self:
        """The agent for an entry of the settings."""
        del options, environment
        return cls()

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Yield the text of the message in pieces, or its data."""
        parts = turn.message.parts
        data = tuple(Part.of_data(part.data) for part in parts if part.data is not msgspec.UNSET)
        if data and not any(part.text is not None and part.text.strip() for part in parts):
            yield Reply(data)
            return
        words: list[str] = _WORD.findall(f"echo: {turn.body}")
        step = -(-len(words) // _MOST_PIECES)
        for start in range(0, len(words), step):
            yield TextDelta("".join(words[start : start + step]))
