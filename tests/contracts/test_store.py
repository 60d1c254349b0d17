"""What every kind of store promises about messages, runs and changes of tasks."""

import asyncio

import msgspec
import pytest
from tests.contracts.store_samples import (
    ALICE,
    ALICE_ELSEWHERE,
    BOB,
    Draft,
    StoreHarness,
    direct,
    make_run,
    project_task,
    put_finished,
    time_at,
)

from openclaw_a2a.model.errors import (
    AlreadyExists,
    Conflict,
    LeaseLost,
    MessageIdConflict,
    TaskDeleted,
)
from openclaw_a2a.model.ids import OwnerId, RunId, TaskId
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.ports import Accepted, Duplicate, Store

WORKING, COMPLETED = TaskState.WORKING, TaskState.COMPLETED


async def test_a_new_message_is_accepted_with_a_rising_ticket(store: Store) -> None:
    first = await store.tasks.submit(Draft("t-1").submission())
    second = await store.tasks.submit(direct("t-2"))
    assert isinstance(first, Accepted)
    assert isinstance(second, Accepted)
    assert second.ticket > first.ticket


async def test_a_repeated_message_is_a_duplicate_and_changes_nothing(store: Store) -> None:
    await store.tasks.submit(Draft("t-1").submission())
    again = await store.tasks.submit(Draft("t-1").submission(at=9))
    assert again == Duplicate(RunId("run-t-1"), TaskId("t-1"), None)
    assert (
        project_task(await store.tasks.read_task(ALICE, TaskId("t-1"))).status.timestamp
        == time_at()
    )


async def test_of_many_at_once_with_one_message_id_exactly_one_is_accepted(store: Store) -> None:
    outcomes = await asyncio.gather(*[store.tasks.submit(Draft().submission()) for _ in range(20)])
    assert [type(outcome) for outcome in outcomes] == [Accepted] + [Duplicate] * 19


async def test_of_many_large_messages_at_once_none_is_lost(harness: StoreHarness) -> None:
    drafts = [Draft(f"t-{number}", context=f"c-{number}") for number in range(40)]
    texts = {draft.name: f"{draft.name} " * 160_000 for draft in drafts}
    writes = [
        write
        for draft in drafts
        for write in (
            harness.store.tasks.submit(draft.submission()),
            harness.store.tasks.commit(draft.chunk(texts[draft.name])),
            harness.store.tasks.commit(draft.ended(at=1)),
        )
    ]
    outcomes = await asyncio.gather(*writes)
    tickets = [one.ticket for one in outcomes if isinstance(one, Accepted)]
    assert len(tickets) == len(drafts)
    assert tickets == sorted(tickets)
    store = await harness.reopen() if harness.store.is_durable else harness.store
    for draft in drafts:
        task = project_task(await store.tasks.read_task(ALICE, draft.task.id))
        assert task.status.state is COMPLETED
        [artifact] = task.artifacts
        assert [part.text for part in artifact.parts] == [texts[draft.name]]


async def test_another_body_under_a_message_id_is_a_conflict(store: Store) -> None:
    await store.tasks.submit(direct("t-1"))
    other = msgspec.structs.replace(direct("t-1"), body_hash=b"other")
    with pytest.raises(MessageIdConflict, match="m-t-1"):
        await store.tasks.submit(other)


async def test_a_message_id_belongs_to_its_caller_and_account(store: Store) -> None:
    await store.tasks.submit(direct("t-1"))
    for name, scope in (("t-2", BOB), ("t-3", ALICE_ELSEWHERE)):
        submission = direct(name, scope=scope)
        message = msgspec.structs.replace(submission.run.message, message_id="m-t-1")
        run = msgspec.structs.replace(submission.run, message=message)
        accepted = await store.tasks.submit(msgspec.structs.replace(submission, run=run))
        assert isinstance(accepted, Accepted)


async def test_the_answer_of_a_direct_run_is_stored_with_its_message(store: Store) -> None:
    await store.tasks.submit(direct("t-1"))
    await store.tasks.finish_run(RunId("run-t-1"), fence=1, answer=b'{"answer":1}')
    assert await store.tasks.submit(direct("t-1")) == Duplicate(
        RunId("run-t-1"), TaskId("t-1"), b'{"answer":1}'
    )
    known = await store.tasks.find_duplicate(ALICE, direct("t-1").run.message.message_id)
    assert known is not None
    assert known.answer == b'{"answer":1}'


@pytest.mark.parametrize("is_grouped", [False, True])
async def test_the_answer_of_a_message_that_is_not_deduplicated_leaves_an_older_one_alone(
    store: Store, is_grouped: bool
) -> None:
    first, second = direct("t-1"), direct("t-2")
    run = msgspec.structs.replace(second.run, message=first.run.message)
    second = msgspec.structs.replace(second, run=run, is_deduplicated=False)
    writes = [
        lambda: store.tasks.submit(first),
        lambda: store.tasks.submit(second),
        lambda: store.tasks.finish_run(run.id, fence=1, answer=b"2"),
    ]
    if is_grouped:
        for write in [write() for write in writes]:
            await write
    else:
        for write in writes:
            await write()
    known = await store.tasks.find_duplicate(ALICE, first.run.message.message_id)
    assert known is not None
    assert (known.run_id, known.answer) == (first.run.id, None)


async def test_an_answer_in_the_same_transaction_is_stored(store: Store) -> None:
    submitted = store.tasks.submit(direct("t-1"))
    answered = store.tasks.finish_run(RunId("run-t-1"), fence=1, answer=b"1")
    again = store.tasks.submit(direct("t-1"))
    assert [type(await submitted), await answered] == [Accepted, None]
    assert await again == Duplicate(RunId("run-t-1"), TaskId("t-1"), b"1")


async def test_a_finished_run_cannot_be_finished_again(store: Store) -> None:
    await store.tasks.submit(direct("t-1"))
    await store.tasks.finish_run(RunId("run-t-1"), fence=1, answer=b"1")
    with pytest.raises(LeaseLost):
        await store.tasks.finish_run(RunId("run-t-1"), fence=1, answer=b"2")
    claimed = await store.tasks.claim_runs(OwnerId("b"))
    assert claimed == []


async def test_a_new_message_is_no_duplicate(store: Store) -> None:
    await store.tasks.submit(direct("t-1"))
    message_id = direct("t-1").run.message.message_id
    assert await store.tasks.find_duplicate(BOB, message_id) is None
    assert await store.tasks.find_duplicate(ALICE, direct("t-2").run.message.message_id) is None


async def test_a_duplicate_is_checked_against_its_body(store: Store) -> None:
    submission = direct("t-1")
    message_id = submission.run.message.message_id
    await store.tasks.submit(submission)
    known = await store.tasks.find_duplicate(ALICE, message_id, body_hash=submission.body_hash)
    assert known == Duplicate(submission.run.id, TaskId("t-1"), None)
    with pytest.raises(MessageIdConflict, match="m-t-1"):
        await store.tasks.find_duplicate(ALICE, message_id, body_hash=b"other")


@pytest.mark.requirement("store.task.commit", "store.task.first-snapshot")
async def test_a_commit_changes_head_snapshot_and_events_together(store: Store) -> None:
    draft = Draft()
    await store.tasks.submit(draft.submission())
    created = await store.tasks.read_task(ALICE, TaskId("t-1"))
    assert created is not None
    assert (created.head, created.entries) == (draft.head, ())
    await store.tasks.commit(draft.status(WORKING, at=1))
    await store.tasks.commit(draft.whole(draft.chunk("a")))
    await store.tasks.commit(draft.chunk("b"))
    stored = await store.tasks.read_task(ALICE, TaskId("t-1"))
    assert stored is not None
    assert stored.head == draft.head
    assert stored.head.sequence == 3
    assert project_task(stored) == draft.task
    events = await store.tasks.read_events(None, TaskId("t-1"), after=0, limit=10)
    assert [(event.sequence, event.state) for event in events] == [
        (1, WORKING),
        (2, None),
        (3, None),
    ]


@pytest.mark.requirement("store.task.serialised")
async def test_changes_take_effect_in_the_order_of_the_calls(store: Store) -> None:
    draft = Draft()
    writes = [
        store.tasks.submit(draft.submission()),
        store.tasks.start_run(draft.run.id, fence=1, attempt=1),
        store.tasks.commit(draft.status(WORKING, at=1)),
        *[store.tasks.commit(draft.chunk(str(number))) for number in range(50)],
        store.tasks.commit(draft.ended(at=2)),
    ]
    await asyncio.gather(*writes)
    assert project_task(await store.tasks.read_task(ALICE, TaskId("t-1"))) == draft.task
    events = await store.tasks.read_events(None, TaskId("t-1"), after=0, limit=100)
    assert [event.sequence for event in events] == list(range(1, 53))


@pytest.mark.requirement("store.task.copies")
async def test_a_read_task_does_not_change_with_later_commits(store: Store) -> None:
    draft = Draft()
    await store.tasks.submit(draft.submission())
    before = await store.tasks.read_task(ALICE, TaskId("t-1"))
    await store.tasks.commit(draft.status(WORKING, at=1))
    await store.tasks.commit(draft.chunk("a"))
    assert before is not None
    assert (before.head.sequence, before.entries) == (0, ())


async def test_a_task_is_measured_within_its_scope(store: Store) -> None:
    draft = Draft()
    await store.tasks.submit(draft.submission())
    small = await store.tasks.measure_task(ALICE, TaskId("t-1"))
    await store.tasks.commit(draft.chunk("a" * 100_000))
    large = await store.tasks.measure_task(ALICE, TaskId("t-1"))
    assert small is not None and large is not None
    assert small.size < 10_000 < 100_000 < large.size < 400_000
    assert large.head.sequence == 1
    assert await store.tasks.measure_task(BOB, TaskId("t-1")) is None
    assert await store.tasks.measure_task(ALICE, TaskId("t-2")) is None


async def test_a_commit_that_expects_another_sequence_is_refused(store: Store) -> None:
    draft = Draft()
    await store.tasks.submit(draft.submission())
    change = draft.status(WORKING, at=1)
    for after, error in ((-1, AlreadyExists), (1, Conflict), (7, Conflict)):
        with pytest.raises(Conflict) as refused:
            await store.tasks.commit(msgspec.structs.replace(change, after=after))
        assert refused.type is error
    stored = await store.tasks.read_task(ALICE, TaskId("t-1"))
    assert stored is not None
    assert stored.head.sequence == 0
    assert await store.tasks.read_events(None, TaskId("t-1"), after=0, limit=10) == []


async def test_a_commit_to_a_missing_task_is_refused(store: Store) -> None:
    draft = Draft()
    draft.created()
    change = msgspec.structs.replace(draft.status(WORKING), run_id=None)
    with pytest.raises(TaskDeleted):
        await store.tasks.commit(change)
    assert await store.tasks.read_task(None, TaskId("t-1")) is None


async def test_a_commit_without_its_run_or_with_another_fence_is_refused(store: Store) -> None:
    draft = Draft()
    await store.tasks.submit(draft.submission())
    change = draft.status(WORKING, at=1)
    for stale in ({"run_id": RunId("run-unknown")}, {"fence": 0}, {"fence": 2}):
        with pytest.raises(LeaseLost):
            await store.tasks.commit(msgspec.structs.replace(change, **stale))
    await store.tasks.commit(change)


async def test_a_refused_write_does_not_affect_others_in_its_group(store: Store) -> None:
    one, two = Draft("t-1"), Draft("t-2")
    await asyncio.gather(store.tasks.submit(one.submission()), store.tasks.submit(two.submission()))
    stale = msgspec.structs.replace(one.status(WORKING, at=1), fence=7)
    outcomes = await asyncio.gather(
        store.tasks.commit(two.status(WORKING, at=1)),
        store.tasks.commit(stale),
        store.tasks.submit(msgspec.structs.replace(direct("t-1"), body_hash=b"other")),
        store.tasks.commit(two.chunk("a")),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [
        type(None),
        LeaseLost,
        MessageIdConflict,
        type(None),
    ]
    assert project_task(await store.tasks.read_task(ALICE, TaskId("t-2"))) == two.task


async def test_a_submission_whose_task_changed_leaves_nothing_behind(store: Store) -> None:
    draft = Draft()
    await store.tasks.submit(draft.submission())
    late = Draft()
    run = msgspec.structs.replace(make_run("late"), task_id=TaskId("t-1"))
    submission = msgspec.structs.replace(late.submission(), run=run)
    with pytest.raises(AlreadyExists):
        await store.tasks.submit(submission)
    assert await store.tasks.find_duplicate(ALICE, run.message.message_id) is None
    with pytest.raises(LeaseLost):
        await store.tasks.start_run(run.id, fence=1, attempt=1)


async def test_a_direct_run_can_be_promoted_to_a_task(store: Store) -> None:
    draft = Draft()
    await store.tasks.submit(direct("t-1"))
    change = msgspec.structs.replace(draft.created(), run_id=draft.run.id, fence=1)
    await store.tasks.commit(change)
    assert project_task(await store.tasks.read_task(ALICE, TaskId("t-1"))) == draft.task


async def test_an_ended_run_is_deleted_and_its_task_stays(store: Store) -> None:
    draft = await put_finished(store, "t-1", at=1)
    with pytest.raises(LeaseLost):
        await store.tasks.commit(draft.chunk("late"))
    with pytest.raises(LeaseLost):
        await store.tasks.start_run(draft.run.id, fence=1, attempt=2)
    stored = await store.tasks.read_task(ALICE, TaskId("t-1"))
    assert stored is not None
    assert stored.head.state is COMPLETED


async def test_a_resume_token_is_stored_and_cleared_by_the_next_submission(store: Store) -> None:
    draft = Draft()
    await store.tasks.submit(draft.submission())
    await store.tasks.commit(draft.paused(b"token", at=1))
    assert await store.tasks.read_resume_token(TaskId("t-1")) == b"token"
    draft.run = msgspec.structs.replace(make_run("more"), task_id=TaskId("t-1"), resume=b"token")
    change = draft.whole(draft.status(TaskState.SUBMITTED, at=2))
    change = msgspec.structs.replace(change, run_id=None)
    submission = msgspec.structs.replace(direct("more"), run=draft.run, commit=change)
    await store.tasks.submit(submission)
    assert await store.tasks.read_resume_token(TaskId("t-1")) is None
    [run] = await store.tasks.claim_runs(OwnerId("b"))
    assert run.resume == b"token"


async def test_a_submission_without_a_commit_clears_the_resume_token_too(store: Store) -> None:
    draft = Draft()
    await store.tasks.submit(draft.submission())
    await store.tasks.commit(draft.paused(b"token", at=1))
    run = msgspec.structs.replace(make_run("more"), task_id=TaskId("t-1"))
    await store.tasks.submit(msgspec.structs.replace(direct("more"), run=run))
    assert await store.tasks.read_resume_token(TaskId("t-1")) is None


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("token", [None, b"token"])
async def test_a_submission_may_bring_the_end_of_its_run_with_it(
    harness: StoreHarness, token: bytes | None, restarts: bool
) -> None:
    store, draft = harness.store, Draft()
    submission = draft.submission()
    last = draft.ended(at=1) if token is None else draft.paused(token, at=1)
    whole = msgspec.structs.replace(last, after=-1)
    accepted = await store.tasks.submit(msgspec.structs.replace(submission, commit=whole))
    assert isinstance(accepted, Accepted)
    if restarts:
        store = await harness.reopen()
    assert await store.tasks.claim_runs(OwnerId("b")) == []
    stored = await store.tasks.read_task(ALICE, TaskId("t-1"))
    assert stored is not None
    assert (stored.head, project_task(stored)) == (draft.head, draft.task)
    assert await store.tasks.read_resume_token(TaskId("t-1")) == token
    events = await store.tasks.read_events(ALICE, TaskId("t-1"), after=0, limit=10)
    assert [entry.sequence for entry in events] == [1]
    again = await store.tasks.submit(Draft("t-1").submission(at=9))
    assert again == Duplicate(RunId("run-t-1"), TaskId("t-1"), None)


async def test_a_missing_task_has_no_resume_token(store: Store) -> None:
    assert await store.tasks.read_resume_token(TaskId("t-1")) is None


async def test_claiming_takes_over_all_runs_of_others_in_order_of_arrival(store: Store) -> None:
    names = ["z", "a", "m"]
    for name in names:
        await store.tasks.submit(direct(name))
    await store.tasks.start_run(RunId("run-a"), fence=1, attempt=3)
    claimed = await store.tasks.claim_runs(OwnerId("b"))
    assert [run.id for run in claimed] == ["run-z", "run-a", "run-m"]
    assert [run.is_started for run in claimed] == [False, True, False]
    expected = msgspec.structs.replace(
        direct("a").run,
        owner=OwnerId("b"),
        is_started=True,
        attempt=3,
        fence=2,
        ticket=claimed[1].ticket,
    )
    assert claimed[1] == expected
    again = await store.tasks.claim_runs(OwnerId("b"))
    assert again == []


async def test_after_a_claim_the_old_owner_is_refused(store: Store) -> None:
    draft = Draft()
    await store.tasks.submit(draft.submission())
    await store.tasks.claim_runs(OwnerId("b"))
    change = draft.status(WORKING, at=1)
    with pytest.raises(LeaseLost):
        await store.tasks.commit(change)
    with pytest.raises(LeaseLost):
        await store.tasks.start_run(draft.run.id, fence=1, attempt=1)
    with pytest.raises(LeaseLost):
        await store.tasks.finish_run(draft.run.id, fence=1, answer=b"")
    await store.tasks.commit(msgspec.structs.replace(change, fence=2))


async def test_ten_thousand_events_of_one_task_are_read_in_pages(store: Store) -> None:
    draft = Draft()
    await store.tasks.submit(draft.submission())
    for _ in range(10):
        await store.tasks.commit(draft.whole(draft.chunks(1000)))
    sequences: list[int] = []
    while page := await store.tasks.read_events(
        None, TaskId("t-1"), after=sequences[-1] if sequences else 0, limit=999
    ):
        assert len(page) <= 999
        sequences.extend(entry.sequence for entry in page)
    assert sequences == list(range(1, 10_001))


async def test_events_of_no_task_are_none(store: Store) -> None:
    assert await store.tasks.read_events(None, TaskId("t-1"), after=0, limit=10) == []


async def test_durable_data_survives_a_restart(durable: StoreHarness) -> None:
    store = durable.store
    draft = Draft("t-1")
    await store.tasks.submit(draft.submission())
    await store.tasks.start_run(draft.run.id, fence=1, attempt=1)
    await store.tasks.commit(draft.status(WORKING, at=1, message_id="s-1"))
    await store.tasks.commit(draft.chunk("a"))
    waiting = Draft("t-2")
    await store.tasks.submit(waiting.submission())
    await store.tasks.commit(waiting.paused(b"\x00token", at=2))
    await store.tasks.submit(direct("t-3"))
    await store.tasks.finish_run(RunId("run-t-3"), fence=1, answer=b"\xffanswer")

    store = await durable.reopen()
    stored = await store.tasks.read_task(ALICE, TaskId("t-1"))
    assert stored is not None
    assert (stored.head, project_task(stored)) == (draft.head, draft.task)
    events = await store.tasks.read_events(None, TaskId("t-1"), after=0, limit=10)
    assert [event.sequence for event in events] == [1, 2]
    assert await store.tasks.read_resume_token(TaskId("t-2")) == b"\x00token"
    known = await store.tasks.find_duplicate(ALICE, direct("t-3").run.message.message_id)
    assert known == Duplicate(RunId("run-t-3"), TaskId("t-3"), b"\xffanswer")
    accepted = await store.tasks.submit(direct("t-4"))
    claimed = await store.tasks.claim_runs(OwnerId("b"))
    assert [(run.id, run.is_started) for run in claimed] == [
        ("run-t-1", True),
        ("run-t-4", False),
    ]
    assert isinstance(accepted, Accepted)
    assert accepted.ticket == claimed[1].ticket > claimed[0].ticket
    await store.tasks.commit(msgspec.structs.replace(draft.chunk("b"), fence=2))
    assert project_task(await store.tasks.read_task(ALICE, TaskId("t-1"))) == draft.task


async def test_a_closed_store_refuses_writes(durable: StoreHarness) -> None:
    await durable.store.close()
    with pytest.raises(Exception, match="not open"):
        await durable.store.tasks.submit(direct("t-1"))


async def test_closing_finishes_the_accepted_writes(harness: StoreHarness) -> None:
    writes = [harness.store.tasks.submit(direct(f"t-{number}")) for number in range(100)]
    store = await harness.reopen()
    await asyncio.gather(*writes)
    claimed = await store.tasks.claim_runs(OwnerId("b"))
    assert len(claimed) == 100


@pytest.mark.requirement("store.task.memory")
async def test_a_memory_store_keeps_nothing_for_the_next_process(harness: StoreHarness) -> None:
    await put_finished(harness.store, "t-1", at=1)
    is_durable = harness.store.is_durable
    await harness.store.close()
    harness.store = harness.make()
    await harness.store.open()
    found = await harness.store.tasks.read_task(ALICE, TaskId("t-1"))
    assert (found is not None) == is_durable == (harness.kind != "memory")
