"""Which runs of an OpenClaw gateway are ours, and what our paused tasks wait for."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, Literal, Self

import msgspec

from openclaw_a2a.model.ids import Json, JsonObject, TaskId
from openclaw_a2a.model.message import JsonStruct

RUN_PREFIX: Final = "a2a-"
"""How the idempotency keys begin that we give to OpenClaw; they become its run ids."""

DELIVERY_PREFIX: Final = "session-note-"
"""How the runs begin that answer what we put into somebody's session."""

_MOST_ADOPTED: Final = 10_000


def may_be_recovery(run_id: str) -> bool:
    """True for a run with which OpenClaw may go on with an interrupted one: we began it not."""
    return bool(run_id) and not run_id.startswith((RUN_PREFIX, DELIVERY_PREFIX))


class Pause(JsonStruct, frozen=True, omit_defaults=False):
    """What a paused task waits for; as a `resume` token it is kept with the task."""

    kind: Literal["question", "approval"]
    id: str
    run_id: str

    @property
    def resume(self) -> JsonObject:
        """The token that the task is paused with."""
        return msgspec.to_builtins(self)

    @classmethod
    def from_resume(cls, resume: Json) -> Self | None:
        """The pause that a token speaks of; None when it is no token of ours."""
        try:
            return msgspec.convert(resume, cls)
        except msgspec.ValidationError:
            return None


class RunRegistry:
    """What one gateway's runs are to us. Turns write into it; whoever watches sessions reads it.

    A run is ours by its name, or because a turn adopted it: OpenClaw goes on with an interrupted
    turn under a name of its own.
    """

    def __init__(self) -> None:
        self._adopted: OrderedDict[str, None] = OrderedDict()
        self._pauses: dict[TaskId, Json] = {}

    def adopt(self, run_id: str) -> None:
        """A turn of ours goes on under this run id; what it says is that turn's answer."""
        self._adopted[run_id] = None
        self._adopted.move_to_end(run_id)
        if len(self._adopted) > _MOST_ADOPTED:
            self._adopted.popitem(last=False)

    def is_ours(self, run_id: str) -> bool:
        """True for runs that a turn of ours began or adopted."""
        return run_id.startswith(RUN_PREFIX) or run_id in self._adopted

    def add_pause(self, task_id: TaskId, resume: Json) -> None:
        """The task waits; `resume` is `Pause.resume`. Call it before `InputRequired` is told."""
        self._pauses[task_id] = resume

    def remove_pause(self, task_id: TaskId) -> None:
        """The task waits no longer. Call it before the question or approval is resolved."""
        self._pauses.pop(task_id, None)

    def find_resume(self, task_id: TaskId) -> Json:
        """The token that the task waits with; None when it does not wait."""
        return self._pauses.get(task_id)

    def list_pauses(self) -> Iterable[tuple[TaskId, Pause]]:
        """The tasks that wait, and for what."""
        read = ((task_id, Pause.from_resume(resume)) for task_id, resume in self._pauses.items())
        return [(task_id, pause) for task_id, pause in read if pause is not None]
