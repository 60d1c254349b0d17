"""Knows which runs of an OpenClaw gateway belong to our tasks, and which tasks are paused."""

from collections import OrderedDict
from typing import Final, Literal, Self

import msgspec

from openclaw_a2a.model.ids import Json, JsonObject, TaskId
from openclaw_a2a.model.message import JsonStruct

RUN_PREFIX: Final = "a2a-"
"""Prefix of the idempotency keys of our turns; OpenClaw uses the key as the run id."""

DELIVERY_PREFIX: Final = "session-note-"
"""Prefix of the runs that process messages we delivered into a session."""

_MAX_ADOPTED: Final = 10_000


def may_be_recovery(run_id: str) -> bool:
    """True if OpenClaw may have started the run itself, to resume an interrupted one."""
    return bool(run_id) and not run_id.startswith((RUN_PREFIX, DELIVERY_PREFIX))


class Pause(JsonStruct, frozen=True, omit_defaults=False):
    """The question or approval a paused task waits for; stored with the task as resume token."""

    kind: Literal["question", "approval"]
    id: str
    run_id: str

    @property
    def resume(self) -> JsonObject:
        """The resume token."""
        return msgspec.to_builtins(self)

    @classmethod
    def from_resume(cls, resume: Json) -> Self | None:
        """The pause of a resume token; None when it is not one of ours."""
        try:
            return msgspec.convert(resume, cls)
        except msgspec.ValidationError:
            return None


class RunRegistry:
    """Written by turns, read by the background watcher of the same gateway connection.

    A run is ours by its prefix, or because a turn adopted it: a restarted OpenClaw resumes an
    interrupted turn under a run id of its own.
    """

    def __init__(self) -> None:
        self._adopted: OrderedDict[str, None] = OrderedDict()
        self._pauses: dict[TaskId, Json] = {}

    def adopt(self, run_id: str) -> None:
        """Record that a turn of ours continues under this run id."""
        self._adopted[run_id] = None
        self._adopted.move_to_end(run_id)
        if len(self._adopted) > _MAX_ADOPTED:
            self._adopted.popitem(last=False)

    def is_ours(self, run_id: str) -> bool:
        """True for runs that a turn of ours started or adopted."""
        return run_id.startswith(RUN_PREFIX) or run_id in self._adopted

    def add_pause(self, task_id: TaskId, resume: Json) -> None:
        """Record that the task waits. Call it before `InputRequired` is emitted."""
        # In that order the watcher cannot miss an answer that is given at once.
        self._pauses[task_id] = resume

    def remove_pause(self, task_id: TaskId) -> None:
        """Record that the task no longer waits. Call it before the pause is resolved."""
        # In that order the watcher does not report our own answer as one given elsewhere.
        self._pauses.pop(task_id, None)

    def find_resume(self, task_id: TaskId) -> Json:
        """The resume token of a paused task; None when it does not wait."""
        return self._pauses.get(task_id)

    def list_pauses(self) -> list[tuple[TaskId, Pause]]:
        """The paused tasks, and what they wait for."""
        read = ((task_id, Pause.from_resume(resume)) for task_id, resume in self._pauses.items())
        return [(task_id, pause) for task_id, pause in read if pause is not None]
