"""Follows calls while they go on: drawn again and again on a terminal, line by line elsewhere."""

import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from openclaw_a2a.cli.call_draw import answer_lines, debate_lines, head_lines, summary, table_lines
from openclaw_a2a.cli.call_shown import COMPLETED, PENDING, ShownCall
from openclaw_a2a.cli.calls_door import list_calls, show_call
from openclaw_a2a.cli.failure import DONE, FAILED, INTERRUPTED
from openclaw_a2a.cli.live import Line, Redrawn
from openclaw_a2a.cli.operator import Operator
from openclaw_a2a.cli.output import is_narrow, say, show, show_json, show_lines
from openclaw_a2a.cli.patience import Patience
from openclaw_a2a.model.ids import Json

_PAUSE_S = 0.3
_SHOWN = {"limit": "20"}
_Answer = TypeVar("_Answer")


def watch_one(operator: Operator, call_id: str, *, as_json: bool) -> int:
    """Follow a call until nothing more is to be expected of it; the exit code."""
    try:
        call = follow_call(operator, call_id, View(as_json=as_json))
    except KeyboardInterrupt:
        say("Interrupted. The call goes on.")
        return INTERRUPTED
    if not as_json:
        show_lines(answer_lines(call))
    return exit_code(call)


def follow_call(operator: Operator, call_id: str, view: "View") -> ShownCall:
    """Show a call until nothing more is to be expected of it; as it is then."""
    while True:
        call, body = view.ask(lambda: show_call(operator, call_id))
        calls = [call, *call.parts] if call.status == PENDING else [*call.parts, call]
        view.show(calls, _call_lines(call), [msgspec.json.decode(body)])
        if call.is_over:
            return call
        time.sleep(_PAUSE_S)


def exit_code(call: ShownCall) -> int:
    """Whether the call came to something."""
    is_failed = call.is_debate and call.result.get("status") == "error"
    return DONE if call.status == COMPLETED and not is_failed else FAILED


def watch_all(operator: Operator, *, as_json: bool) -> int:
    """Follow the newest calls until Ctrl-C; the exit code."""
    view = View(as_json=as_json)
    try:
        while True:
            found, body = view.ask(lambda: list_calls(operator, _SHOWN))
            lines = table_lines(found.calls, datetime.now(UTC), is_short=is_narrow())
            sent = msgspec.json.decode(body)["calls"]
            view.show(found.calls[::-1], lines, sent[::-1])
            time.sleep(_PAUSE_S)
    except KeyboardInterrupt:
        return DONE


class View:
    """Shows calls as they are now, again and again; a quiet one only asks for them."""

    def __init__(self, *, as_json: bool, is_quiet: bool = False) -> None:
        self._as_json = as_json
        self._is_quiet = is_quiet
        self._is_drawn = sys.stdout.isatty() and not as_json
        self._drawing = Redrawn()
        self._patience = Patience()
        self._known: dict[str, Json] = {}

    def ask(self, question: Callable[[], _Answer]) -> _Answer:
        """The answer of a gateway that may go away for a while once it was there.

        Raises: AgentError.
        """
        return self._patience.ask(question, self._drawing.leave)

    def show(self, calls: Sequence[ShownCall], lines: list[Line], sent: list[Json]) -> None:
        """Show how things are now: all of it on a terminal, elsewhere what has changed.

        `calls` and `sent` are in the order in which they are told.
        """
        if self._is_quiet:
            return
        if self._is_drawn:
            self._drawing.draw(lines)
        elif self._as_json:
            for one in sent:
                if self._is_news(one["correlationId"], one):
                    show_json(one, pretty=False)
        else:
            now = datetime.now(UTC)
            for call in calls:
                if self._is_news(call.correlation_id, (call.status, call.state)):
                    show(summary(call, now))

    def _is_news(self, name: str, facts: Json) -> bool:
        is_news = self._known.get(name) != facts
        self._known[name] = facts
        return is_news


def _call_lines(call: ShownCall) -> list[Line]:
    now = datetime.now(UTC)
    lines = [*head_lines(call, now)]
    return [*lines, ("", None), *debate_lines(call, now)] if call.is_debate else lines
