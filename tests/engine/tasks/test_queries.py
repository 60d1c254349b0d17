"""Following: every reader sees the same events in the same order, however slow it is."""

import asyncio

import pytest
from tests.engine.conftest import OpenHarness
from tests.engine.controlled_agent import ControlledAgent, ScriptedAgent
from tests.engine.harness import ALICE, BOB, Harness, read_all, yield_to_others

from openclaw_a2a.engine.outbox.wakeups import QuietFeed, WakeupRegistry
from openclaw_a2a.engine.supervisor import Supervisor, TimeoutQueue
from openclaw_a2a.engine.tasks import queries
from openclaw_a2a.engine.tasks.journal import PAGE_SIZE, EventFeed
from openclaw_a2a.engine.tasks.queries import Subscription
from openclaw_a2a.model.agent_event import InputRequired, Note, Reply
from openclaw_a2a.model.errors import InvalidParams, TaskNotFound
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.records import Entry, decode_task
from openclaw_a2a.model.task import TERMINAL, TaskState

MANY = 3 * PAGE_SIZE


def notes(count: int) -> list[Note]:
    return [Note(f"step {number}") for number in range(count)]


async def test_reader_gets_events_as_they_are_committed(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send()
    run = await agent.next_run()
    follower = await harness.follow(run.turn.task_id)
    seen: list[Entry] = []
    for number in range(3):
        run.tell(Note(f"step {number}"))
        while len(seen) < number + 3:
            seen += await follower.next_events(5)
    assert [entry.sequence for entry in seen] == [1, 2, 3, 4, 5]
    assert not follower.is_over
    run.end()
    seen += await read_all(follower)
    assert seen == await harness.entries(run.turn.task_id)


async def test_nothing_is_shown_before_it_is_durable(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send()
    run = await agent.next_run()
    await harness.reach(run.turn.task_id, lambda seen: len(seen) == 2)
    follower = await harness.follow(run.turn.task_id, cursor=2)
    harness.store.hold()
    run.tell(Note("secret"))
    await harness.store.wait_held("commit")
    assert await follower.next_events(0.02) == []
    assert len(await harness.entries(run.turn.task_id)) == 2
    harness.store.release()
    assert [entry.sequence for entry in await follower.next_events(5)] == [3]


async def test_slow_reader_of_a_live_task_reads_on_from_the_store(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send()
    run = await agent.next_run()
    slow = await harness.follow(run.turn.task_id)
    first = await slow.next_events(5)
    run.tell(*notes(MANY))
    quick = await harness.reach(run.turn.task_id, lambda seen: len(seen) == MANY + 2)
    pages: list[list[Entry]] = []
    while slow.cursor < MANY + 2:
        pages.append(await slow.next_events(5))
    assert first + [entry for page in pages for entry in page] == quick
    assert max(len(page) for page in pages) <= 2 * PAGE_SIZE
    run.end()
    assert [entry.state for entry in await read_all(slow)] == [TaskState.COMPLETED]


@pytest.mark.parametrize(
    "count", [0, 1, PAGE_SIZE - 3, PAGE_SIZE - 2, PAGE_SIZE, 2 * PAGE_SIZE - 3, 2 * PAGE_SIZE]
)
async def test_events_of_an_ended_task_are_read_to_the_end_from_any_cursor(
    open_harness: OpenHarness, count: int
) -> None:
    harness = await open_harness(ScriptedAgent(*notes(count)))
    task = await harness.ended(await harness.send())
    entries = await harness.entries(task.id)
    assert len(entries) == count + 3
    for cursor in {0, 1, count // 2, count + 2, count + 3}:
        assert await read_all(await harness.follow(task.id, cursor=cursor)) == entries[cursor:]


async def test_readers_at_different_cursors_see_one_order(
    harness: Harness, agent: ControlledAgent
) -> None:
    sent = await harness.send()
    run = await agent.next_run()
    readers: list[asyncio.Task[list[Entry]]] = []
    starts: list[int] = []
    for number in range(20):
        run.tell(Note(f"step {number}"))
        await harness.reach(run.turn.task_id, lambda seen, wanted=number + 3: len(seen) >= wanted)
        starts.append(number // 2)
        follower = await harness.follow(run.turn.task_id, cursor=number // 2)
        readers.append(asyncio.ensure_future(read_all(follower)))
    run.end(Reply.of_text("done"))
    await harness.ended(sent)
    entries = await harness.entries(run.turn.task_id)
    for start, reader in zip(starts, readers, strict=True):
        assert await reader == entries[start:]


async def test_reader_without_a_cursor_gets_a_snapshot_and_the_events_after_it(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send()
    run = await agent.next_run()
    run.tell(Note("one"))
    await harness.reach(run.turn.task_id, lambda seen: len(seen) == 3)
    following = await queries.subscribe(harness.engine, ALICE, run.turn.task_id, cursor=None)
    assert following.snapshot is not None
    snapshot = decode_task(following.snapshot)
    assert snapshot.status.message is not None
    assert snapshot.status.message.text == "one"
    run.end(Reply.of_text("done"))
    rest = await read_all(following.subscription)
    assert [entry.sequence for entry in rest] == [4, 5]


async def test_reader_stops_at_a_pause(harness: Harness, agent: ControlledAgent) -> None:
    sent = await harness.send()
    run = await agent.next_run()
    follower = await harness.follow(run.turn.task_id)
    run.end(InputRequired("which one?"))
    seen = await read_all(follower)
    assert seen[-1].state is TaskState.INPUT_REQUIRED
    await harness.ended(sent)
    assert await read_all(await harness.follow(run.turn.task_id, cursor=len(seen))) == []


async def test_reader_that_comes_back_after_a_pause_reads_past_it(
    harness: Harness, agent: ControlledAgent
) -> None:
    sent = await harness.send()
    (await agent.next_run()).end(InputRequired("which one?"))
    task = await harness.ended(sent)
    answered = await harness.send("this", task_id=task.id)
    run = await agent.next_run()
    reading = asyncio.ensure_future(read_all(await harness.follow(task.id, cursor=0)))
    await yield_to_others()
    run.end(Reply.of_text("done"))
    await harness.ended(answered)
    assert await reading == await harness.entries(task.id)
    again = await read_all(await harness.follow(task.id, cursor=0))
    assert again == await harness.entries(task.id)


async def test_a_resumed_reader_misses_nothing_that_is_durable_and_not_published_yet(
    harness: Harness, agent: ControlledAgent
) -> None:
    # The store knows the end of the task before the engine hears that it is written.
    answered = await harness.send()
    run = await agent.next_run()
    task_id = run.turn.task_id
    await harness.reach(task_id, lambda seen: len(seen) == 2)
    harness.store.delay_answers()
    run.end(Reply.of_text("done"))
    await harness.store.wait_unanswered()
    while (await queries.get_task(harness.engine, ALICE, task_id)).head.state not in TERMINAL:
        harness.store.answer()
        harness.store.delay_answers()
        await harness.store.wait_unanswered()
    resumed = await queries.subscribe(harness.engine, ALICE, task_id, cursor=2, until_terminal=True)
    seen = await resumed.subscription.next_events(0.01)
    assert not resumed.subscription.is_over or seen
    harness.store.answer()
    await harness.ended(answered)
    seen += await read_all(resumed.subscription)
    assert seen == (await harness.entries(task_id))[2:]


async def test_wait_for_events_ends_in_time(harness: Harness, agent: ControlledAgent) -> None:
    await harness.send()
    run = await agent.next_run()
    await harness.reach(run.turn.task_id, lambda seen: len(seen) == 2)
    follower = await harness.follow(run.turn.task_id, cursor=2)
    assert await follower.next_events(0.01) == []
    assert not follower.is_over


async def test_reader_that_is_stopped_waits_no_longer(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send()
    run = await agent.next_run()
    await harness.reach(run.turn.task_id, lambda seen: len(seen) == 2)
    follower = await harness.follow(run.turn.task_id, cursor=2)
    waiting = asyncio.ensure_future(follower.next_events(60))
    await yield_to_others()
    follower.stop()
    assert await waiting == []
    assert follower.is_over
    assert not run.stopping.is_set()


async def test_reader_of_a_stopped_engine_waits_no_longer(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send()
    run = await agent.next_run()
    await harness.reach(run.turn.task_id, lambda seen: len(seen) == 2)
    follower = await harness.follow(run.turn.task_id, cursor=2)
    waiting = asyncio.ensure_future(read_all(follower))
    await yield_to_others()
    await harness.engine.stop()
    assert await waiting == []


@pytest.mark.parametrize("cursor", [-1, 4, 10**9])
async def test_cursor_that_the_task_never_had_is_rejected(
    open_harness: OpenHarness, cursor: int
) -> None:
    harness = await open_harness(ScriptedAgent())
    task = await harness.ended(await harness.send())
    with pytest.raises(InvalidParams):
        await harness.follow(task.id, cursor=cursor)


async def test_task_of_another_caller_cannot_be_subscribed_to(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send()
    run = await agent.next_run()
    with pytest.raises(TaskNotFound):
        await queries.subscribe(harness.engine, BOB, run.turn.task_id, cursor=0)


async def test_feed_reports_events_that_left_its_window() -> None:
    feed = EventFeed(10, WakeupRegistry().quiet_feeds)
    assert feed.since(10) == []
    assert feed.since(9) is None
    entries = tuple(Entry(number, b"") for number in range(11, 11 + 4 * PAGE_SIZE))
    for start in range(0, len(entries), 100):
        feed.publish(entries[start : start + 100])
    assert feed.since(10) is None
    last = entries[-1].sequence
    assert feed.since(last - PAGE_SIZE) == list(entries[-PAGE_SIZE:])
    assert feed.since(last) == []
    assert feed.since(last + 5) == []


async def test_feed_that_is_quiet_for_a_while_keeps_no_events_in_memory() -> None:
    dropped = asyncio.Event()

    def drop(feed: QuietFeed) -> None:
        feed.drop_window()
        dropped.set()

    feed = EventFeed(0, TimeoutQueue("quiet feeds", 0.01, drop, Supervisor()))
    first, second = Entry(1, b""), Entry(2, b"")
    feed.publish((first,))
    assert feed.since(0) == [first]
    async with asyncio.timeout(60):
        await dropped.wait()
    assert feed.since(0) is None
    assert feed.since(1) == []
    feed.publish((second,))
    assert feed.since(0) is None, "the first one is in the store only"
    assert feed.since(1) == [second]


async def test_closed_feed_wakes_every_reader(harness: Harness) -> None:
    feed = EventFeed(0, WakeupRegistry().quiet_feeds)
    follower = Subscription(
        harness.store, None, TaskId("none"), cursor=0, feed=feed, wakeups=WakeupRegistry()
    )
    waiting = asyncio.ensure_future(follower.next_events(60))
    await yield_to_others()
    feed.close()
    assert await waiting == []
    assert follower.is_over
