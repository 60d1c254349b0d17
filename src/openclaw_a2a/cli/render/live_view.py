"""Follows something that changes: redrawn on a terminal, change by change elsewhere."""

import sys
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from openclaw_a2a.cli.reconnect import Reconnect
from openclaw_a2a.cli.render.terminal import LiveRegion, print_data, print_json
from openclaw_a2a.model.ids import Json

if TYPE_CHECKING:
    from rich.console import RenderableType

    # The id of something, its state, and the line to print when the state is new.
    Change = tuple[str, Json, str]

_Answer = TypeVar("_Answer")


class LiveView:
    """Shows the current state again and again; a quiet view only fetches it."""

    def __init__(self, *, as_json: bool, is_quiet: bool = False) -> None:
        self._as_json = as_json
        self._is_quiet = is_quiet
        self._is_drawn = sys.stdout.isatty() and not as_json
        self._region = LiveRegion()
        self._reconnect = Reconnect()
        self._known: dict[str, Json] = {}

    def __enter__(self) -> Self:
        """Show until the block ends."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the last page on the terminal."""
        self._region.release()

    def fetch(self, request: Callable[[], _Answer]) -> _Answer:
        """Call the gateway, which may be away for a while once it has answered.

        Raises: AgentError.
        """
        return self._reconnect.call(request, self._region.release)

    def show(
        self,
        page: Sequence["RenderableType"],
        *,
        documents: Iterable[tuple[str, Json]],
        changes: Iterable["Change"],
    ) -> None:
        """Show the page on a terminal; elsewhere the documents (JSON) or lines that are new."""
        if self._is_quiet:
            return
        if self._is_drawn:
            self._region.draw(page)
        elif self._as_json:
            for item_id, document in documents:
                if self._is_new(item_id, document):
                    print_json(document, pretty=False)
        else:
            for item_id, state, line in changes:
                if self._is_new(item_id, state):
                    print_data(line)

    def _is_new(self, item_id: str, state: Json) -> bool:
        is_new = self._known.get(item_id) != state
        self._known[item_id] = state
        return is_new
