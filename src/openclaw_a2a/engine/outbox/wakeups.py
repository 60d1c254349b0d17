"""Which tasks somebody follows who is not connected, and the way to wake that somebody."""

from collections.abc import Callable, Sequence

from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.records import Entry
from openclaw_a2a.model.states import is_active


class WakeupRegistry:
    """Tells one listener when a followed task changes.

    A journal looks at `tasks` after each commit; while nobody follows anything that is all it
    costs.
    """

    __slots__ = ("_tell", "subscribed", "wants_every_event")

    def __init__(self) -> None:
        self.subscribed: set[TaskId] = set()
        """The followed tasks that have not ended, or not been told about to the end."""
        self.wants_every_event: set[TaskId] = set()
        """Those of them of which every change is to be told; of the others pauses and the end."""
        self._tell: Callable[[TaskId, bool], None] | None = None

    def set_listener(self, tell: Callable[[TaskId, bool], None]) -> None:
        """Have somebody told which task changed, and whether it is worth looking at once."""
        self._tell = tell

    def notify(self, task_id: TaskId, entries: Sequence[Entry] = ()) -> None:
        """A task changed, or its run is over. Pieces of artifacts alone can wait a little."""
        if self._tell is None:
            return
        states = [entry.state for entry in entries if entry.state is not None]
        if not entries or task_id in self.wants_every_event or not all(map(is_active, states)):
            self._tell(task_id, not entries or bool(states))

    def unsubscribe(self, task_id: TaskId) -> None:
        """Nobody follows the task any more."""
        self.subscribed.discard(task_id)
        self.wants_every_event.discard(task_id)
