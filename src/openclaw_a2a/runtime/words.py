"""What an agent said last in a task, as text."""

import json

import msgspec

from openclaw_a2a.model.ids import Json
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.task import Task
from openclaw_a2a.runtime.output import OUTPUT_PREFIX


def last_words(task: Task) -> str:
    """The last text of the agent; structured data counts as its JSON."""
    spoken = [one for one in task.artifacts if one.artifact_id.startswith(OUTPUT_PREFIX)]
    return next((text for one in reversed(spoken) if (text := text_of(one.parts))), "")


def status_words(task: Task) -> str:
    """What the task's status says."""
    message = task.status.message
    return "" if message is None else text_of(message.parts).strip()


def text_of(parts: tuple[Part, ...]) -> str:
    """The text of parts that belong together; data only where there is no text."""
    texts = [part.text for part in parts if part.text]
    if "".join(texts).strip():
        return "".join(texts)
    data: list[Json] = [part.data for part in parts if part.data is not msgspec.UNSET]
    return json.dumps(data[-1], ensure_ascii=False) if data else ""
