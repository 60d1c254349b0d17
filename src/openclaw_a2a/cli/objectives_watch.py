"""Follows objectives while they go on: a tree that is drawn live, or line by line elsewhere."""

import itertools
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from openclaw_a2a.cli.failure import DONE, FAILED, INTERRUPTED
from openclaw_a2a.cli.live import FRAMES, Line, Redrawn
from openclaw_a2a.cli.objectives_door import list_objectives, show_objective
from openclaw_a2a.cli.objectives_draw import facts, table_lines, whole_lines
from openclaw_a2a.cli.objectives_shown import COMPLETED, ShownObjective
from openclaw_a2a.cli.operator import Operator
from openclaw_a2a.cli.output import is_narrow, say, show, show_json
from openclaw_a2a.cli.patience import Patience
from openclaw_a2a.model.ids import Json

_PAUSE_S = 0.2
_SHOWN = {"limit": "20"}
_Answer = TypeVar("_Answer")


def watch_one(operator: Operator, objective_id: str, *, answer: str, as_json: bool) -> int:
    """Follow an objective until it is over; the exit code. `answer` says how to answer it."""
    view = View(as_json=as_json)
    try:
        for moving in itertools.cycle(FRAMES):
            found, body = view.ask(lambda: show_objective(operator, objective_id))
            lines = whole_lines(found, datetime.now(UTC), moving=moving, room=view.room - 2)
            hint: list[Line] = [("", None), (answer, "dim")] if found.asks else []
            view.show([found], [*lines, *hint], [msgspec.json.decode(body)])
            if found.is_over:
                return DONE if found.status == COMPLETED else FAILED
            time.sleep(_PAUSE_S)
    except KeyboardInterrupt:
        say("Interrupted. The objective goes on.")
    return INTERRUPTED


def watch_all(operator: Operator, *, as_json: bool) -> int:
    """Follow the newest objectives until Ctrl-C; the exit code."""
    view = View(as_json=as_json)
    try:
        while True:
            found, body = view.ask(lambda: list_objectives(operator, _SHOWN))
            lines = table_lines(found.objectives, datetime.now(UTC), is_short=is_narrow())
            view.show(found.objectives, lines, msgspec.json.decode(body)["objectives"])
            time.sleep(_PAUSE_S)
    except KeyboardInterrupt:
        return DONE


class View:
    """Shows objectives as they are now, again and again."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._is_drawn = sys.stdout.isatty() and not as_json
        self._drawing = Redrawn()
        self._patience = Patience()
        self._known: dict[str, Json] = {}

    @property
    def room(self) -> int:
        """How many lines there is room for."""
        return shutil.get_terminal_size().lines - 1

    def ask(self, question: Callable[[], _Answer]) -> _Answer:
        """The answer of a gateway that may go away for a while. Raises: AgentError."""
        return self._patience.ask(question, self._drawing.leave)

    def show(
        self, objectives: Iterable[ShownObjective], lines: list[Line], sent: list[Json]
    ) -> None:
        """Show how things are now: all of it on a terminal, elsewhere what has changed."""
        if self._is_drawn:
            self._drawing.draw(lines)
        elif self._as_json:
            for one in sent[::-1]:
                if self._is_news(one["id"], one):
                    show_json(one, pretty=False)
        else:
            for one in [*objectives][::-1]:
                self._tell(one)

    def _tell(self, objective: ShownObjective) -> None:
        for item_id, name, status in facts(objective):
            if self._is_news(item_id, status):
                show(f"{objective.id}  {name} · {status}")

    def _is_news(self, name: str, status: Json) -> bool:
        is_news = self._known.get(name) != status
        self._known[name] = status
        return is_news
