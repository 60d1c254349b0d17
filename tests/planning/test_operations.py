"""The operation log: lines encoded and decoded, and arbitrary bytes."""

import json
import random
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.planning.checked_objective import CheckedObjective

from openclaw_a2a.model.errors import CorruptRecord
from openclaw_a2a.planning import operations
from openclaw_a2a.planning.model import (
    ObjectiveStatus,
    PlanStatus,
    PlanTaskStatus,
    is_valid_id,
    next_timestamp,
    parse_timestamp,
    to_datetime,
    to_timestamp,
)
from openclaw_a2a.planning.operations import Operation, decode_operation, encode_operation
from openclaw_a2a.planning.state import ObjectiveState, apply, replay

IDS = st.sampled_from(["obj-1", "obj-2", "plan-1", "plan-2", "task-a", "task-b", ""])
METADATA = st.dictionaries(st.text(max_size=3), st.none() | st.integers() | st.text(max_size=3))
KINDS = operations.AnyOperationData.__args__


def facts(
    kind: type[operations.AnyOperationData],
) -> st.SearchStrategy[operations.AnyOperationData]:
    """Facts of one kind about few things, with or without what may be left out."""
    known = {
        name: st.lists(IDS, max_size=3).map(tuple) if name == "dependencies" else IDS
        for name in kind.__struct_fields__
        if name in ("id", "plan_id", "a2a_task_id", "dependencies")
    }
    statuses = {
        name: st.sampled_from(list(STATUSES[kind.op.partition(".")[0]]))
        for name in kind.__struct_fields__
        if name == "status"
    }
    more = {name: METADATA for name in kind.__struct_fields__ if name == "metadata"}
    return st.builds(kind, **known, **statuses, **more)


STATUSES = {"objective": ObjectiveStatus, "plan": PlanStatus, "task": PlanTaskStatus}
FACTS = st.one_of(
    st.builds(operations.UnknownOperation, st.text(max_size=5)),
    *(facts(kind) for kind in KINDS if kind is not operations.UnknownOperation),
)
MOMENTS = st.datetimes(datetime(1971, 1, 1), datetime(8998, 1, 1), timezones=st.just(UTC))


def line(**members: object) -> bytes:
    whole = {"v": 1, "seq": 1, "ts": "2026-01-05T10:00:00.000Z", "op": "archive", "data": {}}
    return json.dumps(whole | members).encode()


@pytest.fixture
def full(checked: CheckedObjective) -> CheckedObjective:
    """An objective with every kind of operation in its log."""
    checked.call(
        "plans/create",
        objectiveId="obj-n1",
        name="Venue",
        tasks=[{"name": "List"}, {"name": "Book", "dependencies": ["task-0"]}],
    )
    checked.finish("List", "Book")
    assert {operation.op for operation in map(fact_of, checked.log)} == set(OPS)
    return checked


OPS = (
    "objective.create",
    "objective.update",
    "plan.create",
    "plan.update",
    "task.create",
    "task.update",
    "task.link",
    "archive",
)


def fact_of(text: bytes) -> operations.AnyOperationData:
    return decode_operation(text).data


@pytest.mark.requirement("opt.storage.line", "opt.storage.operations")
def test_every_line_has_the_members_of_the_contract(full: CheckedObjective) -> None:
    lines = [json.loads(text) for text in full.log]
    assert {tuple(one) for one in lines} == {("v", "seq", "ts", "op", "data")}
    assert [one["seq"] for one in lines] == list(range(1, len(lines) + 1))
    assert all(b"\n" not in text for text in full.log)


def test_lines_come_back_as_they_were_written(full: CheckedObjective) -> None:
    assert [encode_operation(decode_operation(text)) for text in full.log] == full.log


@pytest.mark.requirement("opt.storage.replay")
def test_a_log_replays_to_the_objective(full: CheckedObjective) -> None:
    replayed = replay(full.log)
    assert (replayed.state, replayed.warnings) == (full.state, ())


@pytest.mark.requirement("opt.storage.cut-off")
@pytest.mark.parametrize("cut", [1, 10, 60])
def test_a_half_written_last_line_is_left_out_and_reported(
    full: CheckedObjective, cut: int
) -> None:
    whole = b"\n".join(full.log)
    replayed = replay(whole[:-cut].split(b"\n"))
    assert replayed.state == replay(full.log[:-1]).state
    [warning] = replayed.warnings
    assert "cannot be read" in warning


@pytest.mark.requirement("opt.storage.broken-line")
def test_a_broken_line_in_the_middle_is_left_out_and_reported(full: CheckedObjective) -> None:
    lines = [*full.log]
    lines[2] = b'{"v":1,"seq":3,\xff\n'
    replayed = replay(lines)
    assert replayed.state is not None
    assert [task.name for task in replayed.state.tasks.values()] == ["Book"]
    assert [task.task_index for task in replayed.state.tasks.values()] == [1]
    assert "cannot be read" in replayed.warnings[0]


@pytest.mark.requirement("opt.storage.gaps")
def test_a_gap_in_the_numbers_is_reported_and_does_no_harm(full: CheckedObjective) -> None:
    lines = [text.replace(b'"seq":', b'"seq":1') for text in full.log]
    replayed = replay(lines)
    assert replayed.state is not None
    assert replayed.state.to_objective() == full.state.to_objective()
    assert all("has number" in warning for warning in replayed.warnings)


def test_blank_lines_are_nothing(full: CheckedObjective) -> None:
    lines = [one for text in full.log for one in (text, b"\n", b"  ")]
    assert replay(lines).state == full.state


def test_no_lines_are_no_objective() -> None:
    assert replay(()).state is None
    assert replay((line(op="plan.create", data={"id": "p", "name": "P"}),)).state is None


def test_a_log_of_another_program_may_leave_members_out() -> None:
    lines = [
        line(op="objective.create", data={"id": "obj-123", "name": "Party", "createdAt": "x"}),
        line(seq=2, op="plan.create", data={"id": "plan-1", "name": "Venue"}),
        line(seq=3, op="task.create", data={"id": "task-a", "planId": "plan-1", "name": "List"}),
        line(seq=4, op="task.link", data={"id": "task-a", "a2aTaskId": "t-1"}),
    ]
    replayed = replay(lines)
    assert replayed.warnings == ()
    assert replayed.state is not None
    task = replayed.state.tasks_of("plan-1")[0]
    assert (task.status.value, task.a2a_task_id, task.objective_id) == (
        "submitted",
        "t-1",
        "obj-123",
    )


@pytest.mark.parametrize(
    ("op", "data"),
    [
        ("objective.create", {"id": "obj-1", "name": "again"}),
        ("objective.create", {"id": "obj-2", "name": "another"}),
        ("objective.update", {"id": "obj-2", "name": "another"}),
        ("plan.create", {"id": "plan-1", "name": "again"}),
        ("plan.update", {"id": "plan-9", "name": "x"}),
        ("task.create", {"id": "task-a", "planId": "plan-1", "name": "again"}),
        ("task.create", {"id": "task-z", "planId": "plan-9", "name": "x"}),
        ("task.update", {"id": "task-z", "status": "working"}),
        ("task.link", {"id": "task-z", "a2aTaskId": "t"}),
        ("archive", {"id": "obj-2"}),
        ("objective.explode", {"id": "obj-1"}),
    ],
)
def test_an_operation_that_does_not_fit_is_left_out_and_reported(op: str, data: dict) -> None:
    lines = [
        line(op="objective.create", data={"id": "obj-1", "name": "Party"}),
        line(seq=2, op="plan.create", data={"id": "plan-1", "name": "Venue"}),
        line(seq=3, op="task.create", data={"id": "task-a", "planId": "plan-1", "name": "List"}),
    ]
    before = replay(lines)
    after = replay([*lines, line(seq=4, op=op, data=data)])
    assert after.state is not None
    assert before.state is not None
    assert after.state.to_objective() == before.state.to_objective()
    (warning,) = after.warnings
    assert op in warning
    assert "left out" in warning


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"{}",
        b"[" * 100_000,
        line(v=2),
        line(v="1"),
        line(seq=-1),
        line(seq=2**60),
        line(seq=1.5),
        line(ts="yesterday"),
        line(ts="2026-01-05T10:00:00"),
        line(ts="2026-13-05T10:00:00Z"),
        line(ts="0001-01-01T00:00:00+14:00"),
        line(ts="9999-12-31T23:59:59.999Z"),
        line(ts=5),
        line(op=5),
        line(data=[]),
        line(data=None),
        line(op="objective.create"),
        line(op="objective.create", data={"id": "o", "name": "n", "status": "great"}),
        line(op="objective.create", data={"id": "o", "name": "n", "metadata": []}),
        line(op="task.create", data={"id": "t", "planId": "p", "name": "n", "taskIndex": -1}),
        line()[:-1],
        line() + b"{}",
    ],
)
def test_a_line_that_cannot_be_read_says_so(text: bytes) -> None:
    with pytest.raises(CorruptRecord, match="cannot be read"):
        decode_operation(text)


@given(st.binary() | st.builds(lambda cut: line()[:cut], st.integers(0, 80)))
def test_any_bytes_are_an_operation_or_cannot_be_read(text: bytes) -> None:
    try:
        assert isinstance(decode_operation(text), Operation)
    except CorruptRecord as error:
        assert "cannot be read" in error.message


@given(st.lists(st.tuples(st.integers(0, 2**53), FACTS), max_size=30))
def test_any_operations_give_a_state_or_none_and_no_state_is_ever_changed(
    happened: list[tuple[int, operations.AnyOperationData]],
) -> None:
    at = parse_timestamp("2026-01-05T10:00:00Z")
    assert at is not None
    state: ObjectiveState | None = None
    lines: list[bytes] = []
    for seq, data in happened:
        operation = Operation(seq, at, data)
        before = msgspec.json.encode(state)
        new, warning = apply(None if state is None else state.copy(), operation)
        assert msgspec.json.encode(state) == before
        assert warning is None or data.op in warning
        if new is not None:
            new.to_objective()
        state = new
        lines.append(encode_operation(operation))
    assert replay(lines).state == state


@given(st.integers(0, 2**32), st.lists(st.binary(max_size=40), max_size=5))
def test_a_log_with_garbage_lines_replays_the_others(seed: int, rubbish: list[bytes]) -> None:
    checked = CheckedObjective()
    checked.call("objectives/create", name="Party")
    checked.call("plans/create", objectiveId="obj-n1", name="P", tasks=[{"name": "A"}])
    checked.finish("A")
    lines = [*checked.log]
    chance = random.Random(seed)
    for one in rubbish:
        lines.insert(chance.randrange(1, len(lines) + 1), one.replace(b"\n", b""))
    replayed = replay(lines)
    assert replayed.state == checked.state


@given(MOMENTS)
def test_timestamps_sort_by_their_text(time: datetime) -> None:
    moment = to_timestamp(time)
    assert len(moment) == 24
    assert parse_timestamp(moment) == moment
    assert next_timestamp(moment, moment) > moment
    assert to_datetime(next_timestamp(moment, moment)) > to_datetime(moment)


@pytest.mark.parametrize(
    ("text", "is_own"),
    [
        ("obj-123", True),
        ("plan-a-b-3", True),
        ("obj-" + "x" * 60, True),
        ("obj-" + "x" * 61, False),
        ("obj-", False),
        ("obj-a_b", False),
        ("obj-A", False),
        ("obj-a-", False),
        ("obj-../x", False),
        ("task-1", False),
        ("party", False),
        ("", False),
    ],
)
def test_ids_that_callers_may_choose_make_file_names_of_their_own(text: str, is_own: bool) -> None:
    assert is_valid_id(text) == is_own
