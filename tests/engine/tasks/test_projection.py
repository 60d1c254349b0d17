"""A task while it is worked on: the same as applying its events one by one."""

from hypothesis import given
from hypothesis import strategies as st
from tests.model.strategies import events, messages, tasks

from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.task import Event, Task, apply_event


@given(tasks, st.lists(events, max_size=12))
def test_projection_equals_the_task_that_its_events_make(task: Task, changes: list[Event]) -> None:
    view = TaskProjection(task)
    for change in changes:
        view.apply(change)
        task = apply_event(task, change)
        assert view.task() == task


@given(tasks, st.lists(messages, max_size=6))
def test_message_joins_the_history_once_per_id(task: Task, more: list[Message]) -> None:
    view = TaskProjection(task)
    for message in more:
        is_known = view.has_message(message.message_id)
        before = len(view.history)
        view.add_message(message)
        assert len(view.history) == before + (not is_known)
        assert view.has_message(message.message_id)
    ids = [message.message_id for message in view.task().history]
    assert len(set(ids)) == len(ids)


@given(tasks)
def test_artifacts_are_found_by_id_prefix(task: Task) -> None:
    view = TaskProjection(task)
    assert len(view.artifact_ids) == len(view.artifacts()) == len(task.artifacts)
    assert sum(len(view.artifacts(letter)) for letter in "abcd") == len(task.artifacts)
    assert view.artifacts("z") == []
