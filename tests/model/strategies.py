"""Strategies for tasks, messages and events as they are stored and shown."""

import base64
from datetime import UTC, datetime

from hypothesis import strategies as st

from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.task import (
    Artifact,
    ArtifactUpdate,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)

texts = st.text(max_size=12)
ids = st.sampled_from(["a", "b", "c", "d"])
"""Few ids, so that events meet again."""

scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
objects = st.none() | st.dictionaries(texts, values, min_size=1, max_size=3)
raws = st.binary(max_size=9).map(lambda content: base64.b64encode(content).decode())
names = st.none() | st.text(min_size=1, max_size=8)
extensions = st.lists(st.text(min_size=1, max_size=5), max_size=2).map(tuple)
times = st.none() | st.datetimes(
    min_value=datetime(1970, 1, 2), max_value=datetime(2200, 1, 1), timezones=st.just(UTC)
)

parts = (
    st.builds(Part, text=texts, metadata=objects)
    | st.builds(Part, raw=raws, media_type=names, filename=names)
    | st.builds(Part, url=st.text(min_size=1, max_size=9), media_type=names)
    | st.builds(Part, data=values)
)
part_lists = st.lists(parts, max_size=3).map(tuple)
messages = st.builds(
    Message,
    message_id=ids,
    role=st.sampled_from(Role),
    parts=part_lists,
    context_id=st.none() | ids,
    task_id=st.none() | ids,
    metadata=objects,
    extensions=extensions,
    reference_task_ids=st.lists(ids, max_size=2).map(tuple),
)
statuses = st.builds(
    TaskStatus, state=st.sampled_from(TaskState), message=st.none() | messages, timestamp=times
)
artifacts = st.builds(
    Artifact,
    artifact_id=ids,
    parts=part_lists,
    name=names,
    description=names,
    metadata=objects,
    extensions=extensions,
)
tasks = st.builds(
    Task,
    id=st.just("t"),
    context_id=st.just("c"),
    status=statuses,
    artifacts=st.lists(artifacts, max_size=3, unique_by=lambda one: one.artifact_id).map(tuple),
    history=st.lists(messages, max_size=3, unique_by=lambda one: one.message_id).map(tuple),
    metadata=objects,
)
events = st.builds(
    StatusUpdate,
    task_id=st.just("t"),
    context_id=st.just("c"),
    status=statuses,
    metadata=objects,
) | st.builds(
    ArtifactUpdate,
    task_id=st.just("t"),
    context_id=st.just("c"),
    artifact=artifacts,
    append=st.booleans(),
    last_chunk=st.booleans(),
    metadata=objects,
)
