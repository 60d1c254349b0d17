"""Which tasks somebody follows who is not connected, and the way to wake that somebody."""

from collections.abc import Callable, Sequence

from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.stored import Entry


class Watch:
    """Tells one listener when a followed task changes.

    A journal looks at `tasks` after each commit; while nobody follows anything that is all it
    costs.
    """

    __slots__ = ("_tell", "tasks")

    def __init__(self) -> None:
        self.tasks: set[TaskId] = set()
        """The followed tasks that have not ended, or not been told about to the end."""
        self._tell: Callable[[TaskId, bool], None] | None = None

    def listen(self, tell: Callable[[TaskId, bool], None]) -> None:
        """Have somebody told which task changed, and whether it is worth looking at once."""
        self._tell = tell

    def changed(self, task_id: TaskId, entries: Sequence[Entry] = ()) -> None:
        """A task changed, or its run is over. Pieces of artifacts alone can wait a little."""
        if self._tell is not None:
            is_urgent = not entries or any(entry.state is not None for entry in entries)
            self._tell(task_id, is_urgent)
