"""What the agents of steps said last, for whoever looks at an objective as a whole."""

from collections.abc import Mapping
from typing import cast

from openclaw_a2a.model.ids import JsonObject, TaskId
from openclaw_a2a.planning.objects import FAILED, WAITING
from openclaw_a2a.ports import Store
from openclaw_a2a.runtime.view import TaskView
from openclaw_a2a.runtime.words import status_words

_TOLD = frozenset(status.value for status in WAITING | FAILED)
_MOST_WORDS = 1000


async def with_words(store: Store, shown: JsonObject, tried: Mapping[str, TaskId]) -> JsonObject:
    """The objective, where steps that wait or failed have `said`: the question, or the reason.

    `tried` are the tasks that failed to do steps that are to be tried again.
    """
    for plan in cast("list[JsonObject]", shown.get("plans") or []):
        for task in cast("list[JsonObject]", plan.get("tasks") or []):
            told: str | None = task.get("a2aTaskId") if task["status"] in _TOLD else None
            task_id = tried.get(task["id"]) or told
            if task_id and (words := await _words(store, TaskId(task_id))):
                task["said"] = words
    return shown


async def _words(store: Store, task_id: TaskId) -> str:
    stored = await store.read_task(None, task_id)
    return "" if stored is None else status_words(TaskView.of_stored(stored).task())[:_MOST_WORDS]
