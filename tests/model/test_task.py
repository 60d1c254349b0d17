"""How events change a task: the rule that every reader and every store agrees on."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.model.strategies import events, tasks

from openclaw_a2a.model.ids import ArtifactId, ContextId, MessageId, TaskId
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.task import (
    Artifact,
    ArtifactUpdate,
    Event,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
    apply_event,
)

TASK = Task(TaskId("t"), ContextId("c"), TaskStatus(TaskState.SUBMITTED))


def said(message_id: str, text: str = "hello") -> Message:
    return Message(MessageId(message_id), Role.AGENT, (Part.of_text(text),))


def status(state: TaskState, message: Message | None = None) -> StatusUpdate:
    return StatusUpdate(TASK.id, TASK.context_id, TaskStatus(state, message))


def piece(text: str, *, append: bool = False, artifact_id: str = "a", **more: object) -> Event:
    artifact = Artifact(ArtifactId(artifact_id), (Part.of_text(text),))
    artifact = msgspec.structs.replace(artifact, **more)
    return ArtifactUpdate(TASK.id, TASK.context_id, artifact, append)


def after(*changes: Event) -> Task:
    task = TASK
    for change in changes:
        task = apply_event(task, change)
    return task


def texts_of(task: Task) -> list[list[str | None]]:
    return [[part.text for part in artifact.parts] for artifact in task.artifacts]


@pytest.mark.requirement("store.task.merge-status")
def test_status_replaces_the_status_and_its_message_joins_the_history() -> None:
    task = after(status(TaskState.WORKING, said("1")), status(TaskState.COMPLETED, said("2")))
    assert task.status == TaskStatus(TaskState.COMPLETED, said("2"))
    assert [message.message_id for message in task.history] == ["1", "2"]


@pytest.mark.requirement("store.task.merge-status")
def test_message_joins_the_history_once() -> None:
    again = status(TaskState.COMPLETED, said("1", "hello again"))
    task = after(status(TaskState.WORKING, said("1")), again)
    assert task.history == (said("1"),)
    assert task.status.message == said("1", "hello again")


def test_status_without_message_leaves_the_history_alone() -> None:
    assert after(status(TaskState.WORKING)).history == ()


def test_artifact_with_a_new_id_is_added_at_the_end() -> None:
    task = after(piece("one"), piece("two", artifact_id="b"))
    assert texts_of(task) == [["one"], ["two"]]


@pytest.mark.requirement("store.task.merge-artifact")
def test_appended_artifact_gets_more_parts_and_keeps_its_position() -> None:
    task = after(piece("one"), piece("two", artifact_id="b"), piece("more", append=True))
    assert texts_of(task) == [["one", "more"], ["two"]]


@pytest.mark.requirement("store.task.merge-artifact")
def test_artifact_that_does_not_append_replaces_the_one_with_its_id() -> None:
    old = piece("old", name="name", metadata={"a": 1})
    task = after(old, piece("other", artifact_id="b"), piece("new"))
    assert texts_of(task) == [["new"], ["other"]]
    assert task.artifacts[0].name is None
    assert task.artifacts[0].metadata is None


def test_append_to_an_unknown_artifact_adds_it() -> None:
    assert texts_of(after(piece("one", append=True))) == [["one"]]


@pytest.mark.requirement("store.task.merge-artifact")
def test_append_merges_metadata_and_keeps_names_that_are_not_given_again() -> None:
    first = piece("1", name="name", description="what", metadata={"a": 1, "b": 1})
    task = after(first, piece("2", append=True, metadata={"b": 2}))
    artifact = task.artifacts[0]
    assert (artifact.name, artifact.description) == ("name", "what")
    assert artifact.metadata == {"a": 1, "b": 2}


def test_append_may_rename_the_artifact() -> None:
    task = after(piece("1", name="old"), piece("2", append=True, name="new", description="what"))
    assert (task.artifacts[0].name, task.artifacts[0].description) == ("new", "what")


@given(tasks, st.lists(events, max_size=12))
def test_ids_stay_unique_and_in_the_order_in_which_they_came(
    task: Task, changes: list[Event]
) -> None:
    for change in changes:
        old, task = task, apply_event(task, change)
        old_ids = [artifact.artifact_id for artifact in old.artifacts]
        new_ids = [artifact.artifact_id for artifact in task.artifacts]
        assert new_ids[: len(old_ids)] == old_ids
        assert len(set(new_ids)) == len(new_ids)
        assert task.history[: len(old.history)] == old.history
        assert len({message.message_id for message in task.history}) == len(task.history)


@given(tasks, events)
def test_event_changes_only_what_it_names(task: Task, change: Event) -> None:
    new = apply_event(task, change)
    assert (new.id, new.context_id, new.metadata) == (task.id, task.context_id, task.metadata)
    if isinstance(change, StatusUpdate):
        assert new.status == change.status
        assert new.artifacts == task.artifacts
        return
    assert (new.status, new.history) == (task.status, task.history)
    for before, now in zip(task.artifacts, new.artifacts, strict=False):
        assert now == before or now.artifact_id == change.artifact.artifact_id


@given(tasks, events)
def test_old_task_is_left_as_it_was(task: Task, change: Event) -> None:
    before = msgspec.json.encode(task)
    apply_event(task, change)
    assert msgspec.json.encode(task) == before
