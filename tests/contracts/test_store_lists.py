"""What every kind of store promises about finding, listing and forgetting tasks."""

import asyncio

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.store_samples import (
    ALICE,
    ALICE_ELSEWHERE,
    BOB,
    Draft,
    StoreHarness,
    direct,
    project_task,
    purge_all,
    put_finished,
    time_at,
)

from openclaw_a2a.model.errors import TaskDeleted
from openclaw_a2a.model.ids import ContextId, TaskId
from openclaw_a2a.model.records import decode_task, encode_json
from openclaw_a2a.model.task import Task, TaskState
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import (
    RecentHead,
    Retention,
    StatusQuery,
    Store,
    TaskFilter,
    TaskKey,
    TaskPage,
    TaskQuery,
)

WORKING, COMPLETED = TaskState.WORKING, TaskState.COMPLETED
HOSTILE_IDS = [
    "quote'\"`; DROP TABLE task; --",
    "héllo wörld/..\\%2e%2e",
    "日本語-🦞",
    "\x01\x1b[31m\x7f\t\n\r",
    "e\u0301",
    "é",
    "a" * 256,
    ".",
    "%_*?[]",
]
NOTHING_OLD = Retention(ended_before=time_at(-1), keep_ended=1000, messages_before=time_at(-1))


def ids(page: TaskPage) -> list[str]:
    return [str(task.head.id) for task in page.tasks]


async def put_many(store: Store, count: int, *, scope: Scope = ALICE, first: int = 0) -> None:
    names = range(first, first + count)
    drafts = [(Draft(f"t-{n:03}", scope=scope, context=f"c-{n % 3}"), n) for n in names]
    await asyncio.gather(*[store.tasks.submit(draft.submission(at)) for draft, at in drafts])


async def test_a_task_is_found_by_its_caller_at_its_account_only(store: Store) -> None:
    draft = Draft()
    await store.tasks.submit(draft.submission())
    assert project_task(await store.tasks.read_task(ALICE, TaskId("t-1"))) == draft.task
    assert project_task(await store.tasks.read_task(None, TaskId("t-1"))) == draft.task
    assert await store.tasks.read_task(BOB, TaskId("t-1")) is None
    assert await store.tasks.read_task(ALICE_ELSEWHERE, TaskId("t-1")) is None
    assert await store.tasks.read_task(ALICE, TaskId("t-2")) is None


async def test_no_read_shows_the_tasks_of_another_caller_or_account(store: Store) -> None:
    """Everybody has an active and an ended task in a context of the same name."""
    scopes = {"a": ALICE, "b": BOB, "e": ALICE_ELSEWHERE}
    for name, scope in scopes.items():
        await store.tasks.submit(Draft(f"{name}-active", scope=scope, context="c-1").submission(1))
        await put_finished(store, f"{name}-ended", at=2, scope=scope)
    for name, scope in scopes.items():
        own = [f"{name}-ended", f"{name}-active"]
        for state in (None, COMPLETED, TaskState.SUBMITTED):
            expected = {None: own, COMPLETED: own[:1]}.get(state, own[1:])
            for context in (None, ContextId("c-1")):
                for since in (None, time_at(0)):
                    query = TaskQuery(scope, 10, context, state, since)
                    page = await store.tasks.list_tasks(query)
                    assert (ids(page), page.total) == (expected, len(expected)), query
        others = [f"{other}-{kind}" for other in scopes for kind in ("active", "ended")]
        for other in map(TaskId, others):
            is_own = other in own
            events = await store.tasks.read_events(scope, other, after=0, limit=10)
            assert bool(events) is (other == own[0]), other  # the active one has no events yet
            assert (await store.tasks.read_outline(scope, other) is not None) is is_own
            assert (await store.tasks.measure_task(scope, other) is not None) is is_own


async def test_lists_show_the_callers_tasks_newest_status_first(store: Store) -> None:
    await put_many(store, 4)
    await put_many(store, 3, scope=BOB, first=10)
    page = await store.tasks.list_tasks(TaskQuery(ALICE, 10))
    assert ids(page) == ["t-003", "t-002", "t-001", "t-000"]
    assert (page.has_more, page.total) == (False, 4)
    assert (await store.tasks.list_tasks(TaskQuery(ALICE_ELSEWHERE, 10))).total == 0


async def test_tasks_with_the_same_status_time_are_ordered_by_id(store: Store) -> None:
    for name in ("b", "é", "a", "z", "🦞"):
        await store.tasks.submit(Draft(name).submission(at=5))
    page = await store.tasks.list_tasks(TaskQuery(ALICE, 3))
    rest = await store.tasks.list_tasks(TaskQuery(ALICE, 3, after=TaskKey(time_at(5), TaskId("z"))))
    assert [*ids(page), *ids(rest)] == ["🦞", "é", "z", "b", "a"]


async def test_a_new_status_moves_a_task_to_the_front(store: Store) -> None:
    await put_many(store, 3)
    draft = Draft("t-000", context="c-0")
    draft.created()
    await store.tasks.commit(draft.status(WORKING, at=50))
    assert ids(await store.tasks.list_tasks(TaskQuery(ALICE, 10))) == ["t-000", "t-002", "t-001"]


async def test_listed_tasks_are_whole(store: Store) -> None:
    one, two = Draft("t-1"), Draft("t-2")
    await store.tasks.submit(one.submission(1))
    await store.tasks.submit(two.submission(2))
    await store.tasks.commit(one.chunk("a"))
    await store.tasks.commit(one.chunk("b"))
    await store.tasks.commit(two.ended(at=3))
    page = await store.tasks.list_tasks(TaskQuery(ALICE, 10))
    assert [project_task(task) for task in page.tasks] == [two.task, one.task]
    assert [task.head for task in page.tasks] == [two.head, one.head]


async def test_large_tasks_are_listed_without_content_and_read_by_their_outline(
    store: Store,
) -> None:
    small, large = Draft("t-1"), Draft("t-2")
    await store.tasks.submit(small.submission(1))
    await store.tasks.submit(large.submission(2))
    await store.tasks.commit(large.chunk("x" * 300_000))
    page = await store.tasks.list_tasks(TaskQuery(ALICE, 10, large_bytes=100_000))
    assert page.large == {TaskId("t-2")}
    listed = {task.head.id: task for task in page.tasks}
    assert project_task(listed[TaskId("t-1")]) == small.task
    assert (listed[TaskId("t-2")].head, listed[TaskId("t-2")].snapshot) == (large.head, b"")
    assert await _read_by_outline(store, ALICE, TaskId("t-2")) == large.task
    assert await _read_by_outline(store, BOB, TaskId("t-2")) is None
    assert await store.tasks.read_contents(BOB, TaskId("t-2"), []) is None


async def test_the_snapshot_of_a_task_is_read_when_it_is_complete_and_small(store: Store) -> None:
    running, ended = Draft("t-1"), Draft("t-2")
    await store.tasks.submit(running.submission(1))
    await store.tasks.submit(ended.submission(2))
    await store.tasks.commit(running.chunk("a"))
    await store.tasks.commit(ended.ended(at=3))
    read = store.tasks.read_snapshot
    body = await read(ALICE, TaskId("t-2"), most_bytes=100_000)
    assert body is not None
    assert decode_task(body) == ended.task
    assert await read(ALICE, TaskId("t-2"), most_bytes=len(body)) == body
    assert await read(ALICE, TaskId("t-2"), most_bytes=len(body) - 1) is None
    assert await read(BOB, TaskId("t-2"), most_bytes=100_000) is None
    assert await read(ALICE, TaskId("t-1"), most_bytes=100_000) is None  # it has newer events
    assert await read(ALICE, TaskId("t-3"), most_bytes=100_000) is None


async def _read_by_outline(store: Store, scope: Scope, task_id: TaskId) -> Task | None:
    outline = await store.tasks.read_outline(scope, task_id)
    if outline is None:
        return None
    encoded = encode_json(project_task(outline.stored))
    contents = await store.tasks.read_contents(scope, task_id, outline.keys([encoded]))
    assert contents is not None
    return decode_task(b"".join(outline.fill(encoded, contents)))


async def test_pages_follow_each_other_without_gaps_or_repeats(store: Store) -> None:
    await put_many(store, 25)
    seen: list[str] = []
    after = None
    while True:
        page = await store.tasks.list_tasks(TaskQuery(ALICE, 4, after=after))
        seen.extend(ids(page))
        assert page.total == 25
        if not page.has_more:
            break
        after = TaskKey(page.tasks[-1].head.status_at, page.tasks[-1].head.id)
    assert seen == [f"t-{number:03}" for number in range(24, -1, -1)]


async def test_unchanged_tasks_are_listed_once_while_others_change(store: Store) -> None:
    await put_many(store, 30)
    seen: list[str] = []
    after = None
    for turn in range(100):
        page = await store.tasks.list_tasks(TaskQuery(ALICE, 5, after=after))
        seen.extend(ids(page))
        if not page.has_more:
            break
        after = TaskKey(page.tasks[-1].head.status_at, page.tasks[-1].head.id)
        moving = Draft(f"t-{turn * 4:03}", context=f"c-{turn * 4 % 3}")
        moving.created()
        await store.tasks.commit(moving.status(WORKING, at=100 + turn))
        await store.tasks.submit(Draft(f"new-{turn}").submission(at=200 + turn))
    still = {f"t-{number:03}" for number in range(30) if number % 4 or number > 20}
    assert len(seen) == len(set(seen))
    assert still <= set(seen)


async def test_lists_are_filtered_by_state_context_and_time(store: Store) -> None:
    await put_many(store, 9)
    for number in (1, 4, 5):
        draft = Draft(f"t-{number:03}", context=f"c-{number % 3}")
        draft.created()
        await store.tasks.commit(draft.status(WORKING, at=10 + number))

    async def found(**filters: object) -> tuple[list[str], int]:
        page = await store.tasks.list_tasks(msgspec.structs.replace(TaskQuery(ALICE, 3), **filters))
        return ids(page), page.total

    context = ContextId("c-1")
    assert await found(state=WORKING) == (["t-005", "t-004", "t-001"], 3)
    assert await found(state=COMPLETED) == ([], 0)
    assert await found(context_id=context) == (["t-004", "t-001", "t-007"], 3)
    assert await found(context_id=context, state=WORKING) == (["t-004", "t-001"], 2)
    assert await found(status_since=time_at(8)) == (["t-005", "t-004", "t-001"], 4)
    assert await found(status_since=time_at(8), state=TaskState.SUBMITTED) == (["t-008"], 1)
    assert await found(status_since=time_at(14), context_id=context) == (["t-004"], 1)
    assert await found(status_since=time_at(12), context_id=context, state=TaskState.SUBMITTED) == (
        [],
        0,
    )
    after = TaskKey(time_at(14), TaskId("t-004"))
    assert await found(after=after, state=WORKING) == (["t-001"], 3)
    assert await found(after=after, context_id=context) == (["t-001", "t-007"], 3)


async def test_an_ended_task_can_be_deleted_by_its_caller(store: Store) -> None:
    await put_finished(store, "t-1", at=1)
    assert await store.tasks.delete_task(BOB, TaskId("t-1")) is False
    assert await store.tasks.delete_task(ALICE, TaskId("t-2")) is False
    assert await store.tasks.delete_task(ALICE, TaskId("t-1")) is True
    assert await store.tasks.delete_task(ALICE, TaskId("t-1")) is False
    assert await store.tasks.read_task(None, TaskId("t-1")) is None
    assert await store.tasks.read_events(None, TaskId("t-1"), after=0, limit=10) == []
    page = await store.tasks.list_tasks(TaskQuery(ALICE, 10))
    assert (page.tasks, page.total) == ((), 0)


async def test_a_task_that_has_not_ended_is_not_deleted(store: Store) -> None:
    draft = Draft()
    await store.tasks.submit(draft.submission())
    assert await store.tasks.delete_task(ALICE, TaskId("t-1")) is False
    await store.tasks.commit(draft.paused(b"", at=1))
    assert await store.tasks.delete_task(ALICE, TaskId("t-1")) is False


async def test_a_deleted_task_can_be_created_again(store: Store) -> None:
    await put_finished(store, "t-1", at=1)
    await store.tasks.delete_task(ALICE, TaskId("t-1"))
    again = Draft("t-1")
    change = again.created(at=5)
    await store.tasks.commit(change)
    assert project_task(await store.tasks.read_task(ALICE, TaskId("t-1"))) == again.task
    assert await store.tasks.read_events(None, TaskId("t-1"), after=0, limit=10) == []


async def test_a_commit_to_a_deleted_task_is_refused(store: Store) -> None:
    draft = await put_finished(store, "t-1", at=1)
    await store.tasks.delete_task(ALICE, TaskId("t-1"))
    with pytest.raises(TaskDeleted):
        await store.tasks.commit(msgspec.structs.replace(draft.chunk("late"), run_id=None))


async def test_old_finished_tasks_are_purged(store: Store) -> None:
    for number in range(6):
        await put_finished(store, f"t-{number}", at=number)
    open_task = Draft("open")
    await store.tasks.submit(open_task.submission(at=0))
    retention = msgspec.structs.replace(NOTHING_OLD, ended_before=time_at(3))
    assert await purge_all(store, NOTHING_OLD) == 0
    assert await purge_all(store, retention) == 3
    page = await store.tasks.list_tasks(TaskQuery(ALICE, 10))
    assert ids(page) == ["t-5", "t-4", "t-3", "open"]
    assert page.total == 4
    assert await store.tasks.read_events(None, TaskId("t-1"), after=0, limit=9) == []


async def test_surplus_finished_tasks_are_purged_oldest_first(store: Store) -> None:
    for number in range(6):
        await put_finished(store, f"t-{number}", at=number, scope=(ALICE, BOB)[number % 2])
    retention = msgspec.structs.replace(NOTHING_OLD, keep_ended=2, limit=3)
    assert (await store.tasks.purge(retention)).count == 3
    assert (await store.tasks.purge(retention)).count == 1
    assert await purge_all(store, retention) == 0
    assert ids(await store.tasks.list_tasks(TaskQuery(ALICE, 10))) == ["t-4"]
    assert ids(await store.tasks.list_tasks(TaskQuery(BOB, 10))) == ["t-5"]


async def test_old_messages_are_purged_in_one_call(store: Store) -> None:
    for number in range(10):
        await store.tasks.submit(direct(f"t-{number}", at=number))
    retention = msgspec.structs.replace(NOTHING_OLD, messages_before=time_at(8), limit=3)
    assert await purge_all(store, retention) == 0
    known = [
        number
        for number in range(10)
        if await store.tasks.find_duplicate(ALICE, direct(f"t-{number}").run.message.message_id)
    ]
    assert known == [8, 9]
    await store.tasks.finish_run(direct("t-0").run.id, fence=1, answer=b"nobody waits for it")


@pytest.mark.parametrize("name", HOSTILE_IDS)
async def test_ids_are_stored_unchanged(store: Store, name: str) -> None:
    scope = msgspec.structs.replace(ALICE, principal=name)
    draft = Draft(name, context=name, scope=scope)
    await store.tasks.submit(draft.submission())
    await store.tasks.commit(draft.chunk(name))
    assert project_task(await store.tasks.read_task(scope, TaskId(name))) == draft.task
    page = await store.tasks.list_tasks(TaskQuery(scope, 10, context_id=ContextId(name)))
    assert ids(page) == [name]
    assert await store.tasks.find_duplicate(scope, draft.run.message.message_id) is not None


async def test_ids_that_look_alike_are_different(store: Store) -> None:
    for name in HOSTILE_IDS:
        await store.tasks.submit(Draft(name).submission())
    page = await store.tasks.list_tasks(TaskQuery(ALICE, 100))
    assert sorted(ids(page)) == sorted(HOSTILE_IDS)


@settings(max_examples=20)
@given(moments=st.lists(st.integers(0, 5), max_size=12), limit=st.integers(1, 5))
async def test_any_page_size_walks_through_everything(
    store: Store, moments: list[int], limit: int
) -> None:
    scope = msgspec.structs.replace(ALICE, principal=f"caller {moments} {limit}")
    drafts = [Draft(f"{moments} {limit} {n}", scope=scope) for n in range(len(moments))]
    for draft, at in zip(drafts, moments, strict=True):
        await store.tasks.submit(draft.submission(at))
    keys = [(draft.head.status_at, draft.head.id) for draft in drafts]
    walked: list[str] = []
    after = None
    while (page := await store.tasks.list_tasks(TaskQuery(scope, limit, after=after))).tasks:
        walked.extend(ids(page))
        assert page.has_more == (len(walked) < len(moments))
        after = TaskKey(page.tasks[-1].head.status_at, page.tasks[-1].head.id)
    assert walked == [name for _, name in sorted(keys, reverse=True)]


async def test_the_newest_tasks_of_all_callers_come_with_their_tokens(
    harness: StoreHarness,
) -> None:
    store = harness.store
    drafts = [Draft(f"t-{n}", scope=(ALICE, BOB)[n % 2]) for n in range(4)]
    for n, draft in enumerate(drafts):
        await store.tasks.submit(draft.submission(at=n))
    await store.tasks.commit(drafts[2].paused(b"token", at=9))
    await store.tasks.commit(drafts[0].ended(at=10))
    expected = [
        RecentHead(drafts[3].head),
        RecentHead(drafts[2].head, b"token"),
        RecentHead(drafts[1].head),
    ]
    assert await store.tasks.list_recent_tasks(3) == expected
    assert (await (await harness.reopen()).tasks.list_recent_tasks(3)) == expected
    assert [recent.head.id for recent in await harness.store.tasks.list_recent_tasks(99)][
        -1
    ] == "t-0"


async def test_tasks_of_all_callers_are_chosen_and_counted(harness: StoreHarness) -> None:
    store = harness.store
    scopes = (ALICE, BOB, ALICE_ELSEWHERE)
    drafts = [Draft(f"t-{n}", scope=scopes[n % 3]) for n in range(6)]
    for n, draft in enumerate(drafts):
        await store.tasks.submit(draft.submission(at=n))
    await store.tasks.commit(drafts[0].ended(at=10))
    store = await harness.reopen()
    for chosen, expected in (
        (TaskFilter(), ["t-5", "t-4", "t-3", "t-2", "t-1", "t-0"]),
        (TaskFilter(principal=ALICE.principal), ["t-5", "t-3", "t-2", "t-0"]),
        (TaskFilter(principal=ALICE.principal, account=ALICE.account), ["t-3", "t-0"]),
        (TaskFilter(account=ALICE_ELSEWHERE.account), ["t-5", "t-2"]),
        (TaskFilter(state=TaskState.COMPLETED), ["t-0"]),
        (TaskFilter(principal=BOB.principal, state=TaskState.COMPLETED), []),
    ):
        found = await store.tasks.list_recent_tasks(99, chosen)
        assert [one.head.id for one in found] == expected
        assert await store.tasks.count_tasks(chosen) == len(expected)


async def test_an_empty_store_lists_no_recent_tasks(store: Store) -> None:
    assert await store.tasks.list_recent_tasks(10) == []


async def test_tasks_of_all_callers_are_listed_by_their_newest_status(
    harness: StoreHarness,
) -> None:
    store = harness.store
    scopes = (ALICE, BOB, ALICE_ELSEWHERE)
    drafts = [Draft(f"t-{n}", scope=scopes[n % 3]) for n in range(6)]
    for n, draft in enumerate(drafts):
        await store.tasks.submit(draft.submission(at=n))
    await store.tasks.commit(drafts[0].ended(at=10))
    await store.tasks.commit(drafts[1].paused(b"token", at=9))
    await store.tasks.commit(drafts[4].ended(at=8))
    store = await harness.reopen()
    paused = TaskState.INPUT_REQUIRED
    for chosen, expected in (
        (StatusQuery(99), ["t-0", "t-1", "t-4", "t-5", "t-3", "t-2"]),
        (StatusQuery(2), ["t-0", "t-1"]),
        (StatusQuery(99, frozenset({COMPLETED})), ["t-0", "t-4"]),
        (StatusQuery(99, frozenset({COMPLETED, paused})), ["t-0", "t-1", "t-4"]),
        (StatusQuery(99, frozenset({COMPLETED}), principal=BOB.principal), ["t-4"]),
        (StatusQuery(99, account=ALICE_ELSEWHERE.account), ["t-5", "t-2"]),
        (StatusQuery(99, frozenset({TaskState.FAILED})), []),
    ):
        found = await store.tasks.list_by_status(chosen)
        assert [one.head.id for one in found] == expected
    [waiting] = await store.tasks.list_by_status(StatusQuery(9, frozenset({paused})))
    assert waiting.resume == b"token"


@given(
    limit=st.integers(1, 5),
    moments=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), min_size=1, max_size=12),
)
async def test_pages_of_all_callers_have_every_task_once(
    limit: int, moments: list[tuple[int, int]], store: Store
) -> None:
    existing = {one.head.id for one in await store.tasks.list_by_status(StatusQuery(9999))}
    scopes = (ALICE, BOB, ALICE_ELSEWHERE)
    for at, who in moments:
        draft = Draft(f"p-{len(existing):05}", scope=scopes[who])
        existing.add(draft.head.id)
        await store.tasks.submit(draft.submission(at))
    walked: list[TaskKey] = []
    while page := await store.tasks.list_by_status(
        StatusQuery(limit, after=walked[-1] if walked else None)
    ):
        walked += [TaskKey(one.head.status_at, one.head.id) for one in page]
    assert sorted(one.id for one in walked) == sorted(existing)
    order = [(one.status_at, one.id) for one in walked]
    assert order == sorted(order, reverse=True)
