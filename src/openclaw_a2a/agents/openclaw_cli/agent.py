"""OpenClaw by its own command, as an agent: slow, but all it needs is the program."""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import ClassVar, Self

import msgspec

from openclaw_a2a.agents.openclaw_cli.answer import CliAnswer, parse_answer
from openclaw_a2a.agents.openclaw_cli.command import CliRequest, agent_session, argument_text
from openclaw_a2a.agents.openclaw_cli.options import OpenClawCliOptions
from openclaw_a2a.agents.openclaw_cli.runner import OpenClawRunner
from openclaw_a2a.model.agent_event import AgentEvent, Note, Reply, Report
from openclaw_a2a.model.ids import RunId
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Recovery


class OpenClawCliAgent:
    """Answers each turn with one run of `openclaw agent`, in the session of the turn's key.

    A run that was cut off by a crash has failed: the command cannot be attached to again, and its
    work may have had effects.
    """

    options_type: ClassVar[type[msgspec.Struct]] = OpenClawCliOptions
    recovery: Recovery = Recovery.FAIL

    def __init__(
        self, options: OpenClawCliOptions, *, environment: Mapping[str, str] | None = None
    ) -> None:
        self._options = options
        self._program = OpenClawRunner(options, environment=environment)

    @classmethod
    def from_options(
        cls, options: OpenClawCliOptions, *, environment: Mapping[str, str] | None
    ) -> Self:
        """The agent that the settings ask for."""
        return cls(options, environment=environment)

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Ask OpenClaw and tell its answer, whole.

        Raises: AgentUnavailable (it cannot be started), AgentFailed (it failed, wrote what cannot
        be read, or took too long).
        """
        agent_id = self._options.agent_id or turn.agent_id
        question = CliRequest(
            text=argument_text("\n\n".join((turn.body, *map(_fenced, turn.untrusted)))),
            session=agent_session(turn.session_key, agent_id),
            agent_id=agent_id,
            run_id=turn.run_id,
        )
        async with aclosing(self._program.run(question)) as events:
            async for event in events:
                if isinstance(event, Note):
                    yield event
                else:
                    for said in answer_events(parse_answer(event)):
                        yield said

    def unavailable_reason(self) -> str | None:
        """Why it cannot answer now; None when it can."""
        return self._program.unavailable_reason()

    async def end_orphans(self, run_id: RunId) -> None:
        """End the command that a killed gateway left running for this run, with all it started.

        Raises: AgentFailed when something refuses to end.
        """
        await self._program.end_orphans(run_id)

    async def close(self) -> None:
        """End every run of the command."""
        await self._program.close()


def answer_events(answer: CliAnswer) -> list[AgentEvent]:
    """The answer in the words of the engine."""
    facts = Report({"openclaw": answer.facts}) if answer.facts else None
    said = Reply(answer.parts) if answer.parts else None
    return [event for event in (facts, said) if event is not None]


def _fenced(note: str) -> str:
    return f"```\n{note}\n```"
