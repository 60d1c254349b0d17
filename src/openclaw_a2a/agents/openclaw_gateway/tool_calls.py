"""The tool calls of a run as they are told on: each step once."""

from typing import Final

from msgspec import Raw

from openclaw_a2a.agents.openclaw_gateway.frames import read_as
from openclaw_a2a.agents.openclaw_gateway.turn_events import Item, ToolStep
from openclaw_a2a.model.ids import Json
from openclaw_a2a.model.reply import ToolPhase, ToolProgress

_MOST_BYTES: Final = 256 * 1024
_PHASES: Final = {
    "start": ToolPhase.START,
    "update": ToolPhase.UPDATE,
    "result": ToolPhase.RESULT,
    "end": ToolPhase.RESULT,
}


class ToolCalls:
    """Which steps of which calls have been told."""

    def __init__(self) -> None:
        self._begun: set[str] = set()
        self._ended: set[str] = set()

    @property
    def open_calls(self) -> list[str]:
        """The calls that have begun and not ended."""
        return sorted(self._begun - self._ended)

    def take(self, step: ToolStep) -> ToolProgress | None:
        """A step with its content."""
        phase = _PHASES.get(step.phase)
        if phase is None or not self._is_new(step.tool_call_id, phase):
            return None
        content = {
            ToolPhase.START: step.args,
            ToolPhase.UPDATE: step.partial_result,
            ToolPhase.RESULT: step.result,
        }[phase]
        return ToolProgress(
            phase, step.name, step.tool_call_id, payload=_bounded(content), is_error=step.is_error
        )

    def take_item(self, item: Item) -> ToolProgress | None:
        """A step as those hear it who did not begin the run: without its content."""
        phase = _PHASES.get(item.phase)
        if item.kind != "tool" or phase is None or phase is ToolPhase.UPDATE:
            return None
        if not self._is_new(item.tool_call_id, phase):
            return None
        is_error = phase is ToolPhase.RESULT and item.status not in {"completed", ""}
        shown = {"title": item.title, "status": item.status, "error": item.error}
        payload = {name: value for name, value in shown.items() if value}
        return ToolProgress(phase, item.name, item.tool_call_id, payload=payload, is_error=is_error)

    def _is_new(self, call_id: str, phase: ToolPhase) -> bool:
        if not call_id or call_id in self._ended:
            return False
        if phase is ToolPhase.RESULT:
            self._ended.add(call_id)
        elif phase is ToolPhase.START:
            if call_id in self._begun:
                return False
            self._begun.add(call_id)
        return True


def _bounded(content: Raw) -> Json:
    """The content, unless it is so large that showing it would end the task."""
    size = len(memoryview(content))
    if size > _MOST_BYTES:
        return {"leftOut": f"{size} bytes; a tool's content is shown up to {_MOST_BYTES}"}
    return read_as(object, content)
