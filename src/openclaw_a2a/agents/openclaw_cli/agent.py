"""OpenClaw run by its own command, as an agent: slow, but it needs nothing but the program."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from typing import ClassVar, Self

import msgspec

from openclaw_a2a.agents.adapter import EventAgent
from openclaw_a2a.agents.openclaw_cli.answer import parse_answer
from openclaw_a2a.agents.openclaw_cli.command import (
    CliRequest,
    OpenClawCliOptions,
    agent_session,
    argument_text,
)
from openclaw_a2a.agents.openclaw_cli.runner import OpenClawRunner
from openclaw_a2a.agents.prompt import build_prompt
from openclaw_a2a.model.agent_event import AgentEvent, Note, Reply, Report
from openclaw_a2a.model.ids import RunId
from openclaw_a2a.model.turn import Turn

_MAX_NAME = 120


class OpenClawCliAgent(EventAgent):
    """Answers each turn with one run of `openclaw agent`, in the session of the turn's key.

    A run that a crash interrupted has failed: nothing can re-attach to the command, and its work
    may have had effects.
    """

    options_type: ClassVar[type[msgspec.Struct]] = OpenClawCliOptions

    def __init__(
        self, options: OpenClawCliOptions, *, environment: Mapping[str, str] | None = None
    ) -> None:
        self._options = options
        self._runner = OpenClawRunner(options, environment=environment)

    @classmethod
    def from_options(
        cls, options: OpenClawCliOptions, *, environment: Mapping[str, str] | None
    ) -> Self:
        """The agent for an entry of the settings."""
        return cls(options, environment=environment)

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Run the command and yield its answer, whole.

        Raises: AgentUnavailable (it cannot be started), AgentFailed (it failed, wrote what cannot
        be read, or took too long).
        """
        agent_id = self._options.agent_id or turn.agent_id
        omitted = tuple(_omitted_files(turn))
        for note in omitted:
            yield Note(note)
        request = CliRequest(
            text=argument_text(build_prompt(turn, omitted)),
            session=agent_session(turn.session_key, agent_id),
            agent_id=agent_id,
            run_id=turn.run_id,
        )
        async with aclosing(self._runner.run(request)) as events:
            async for event in events:
                if isinstance(event, Note):
                    yield event
                    continue
                answer = parse_answer(event)
                if answer.facts:
                    yield Report({"openclaw": answer.facts})
                if answer.parts:
                    yield Reply(answer.parts)

    def unavailable_reason(self) -> str | None:
        """Why it cannot answer now; None when it can."""
        return self._runner.unavailable_reason()

    async def end_orphans(self, run_id: RunId) -> None:
        """End what a killed gateway left running. Raises: AgentFailed when it refuses to end."""
        await self._runner.end_orphans(run_id)

    async def close(self) -> None:
        """End every run of the command."""
        await self._runner.close()


def _omitted_files(turn: Turn) -> Iterator[str]:
    """A sentence for each file of the message: the command takes text only."""
    for number, part in enumerate(turn.message.parts, 1):
        if part.raw is None and part.url is None:
            continue
        name = argument_text(" ".join((part.filename or "").split())[:_MAX_NAME])
        which = f"part {number} ({name})" if name else f"part {number}"
        yield (
            f"The file in {which} was not given to the agent: OpenClaw's command takes text only."
            " The adapter openclaw-gateway passes files on."
        )
