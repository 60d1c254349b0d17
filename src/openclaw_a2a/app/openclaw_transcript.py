"""How an answer of the `openclaw` command is shown as a task of the library."""

from collections.abc import Callable
from typing import Any, ClassVar

from openclaw_a2a.model.message import Part
from openclaw_a2a.model.reply import Reply, Report
from openclaw_a2a.model.task import Event
from openclaw_a2a.runtime.profile import ResponseTranscript
from openclaw_a2a.runtime.transcript import Transcript

REMARK = "remark"
"""In a report: what to say when there is nothing to show."""


class OpenClawTranscript(ResponseTranscript):
    """One artifact `response`, and the same parts as the message of the last status."""

    _answer: tuple[Part, ...] = ()
    _remark: str = ""

    def fail(self, reason: str) -> list[Event]:
        """The run ended badly: the reason is all there is to say."""
        return Transcript.fail(self, reason)

    def _take_whole(self, event: Reply) -> list[Event]:
        self._answer = self._modes.filter(event.parts)
        return self._take_reply(event)

    def _take_remark(self, event: Report) -> list[Event]:
        self._remark = str(event.metadata.get(REMARK, ""))
        return []

    def _last_words(self) -> tuple[Part, ...]:
        return self._answer or (Part(text=self._remark),)

    _TAKES: ClassVar[dict[type, Callable[[Any, Any], list[Event]]]] = {
        **ResponseTranscript._TAKES,
        Reply: _take_whole,
        Report: _take_remark,
    }
