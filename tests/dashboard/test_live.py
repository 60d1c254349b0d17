"""Pages are updated from the journal: what changed, once, and only while somebody looks."""

import asyncio
import time
from collections import Counter

import anyio
import msgspec
from tests.dashboard.conftest import OpenDashboard, Setup

from openclaw_a2a.dashboard.live import PAUSE_S, REFRESH_S, LivePages, PageKey, PageSubscription
from openclaw_a2a.model.agent_event import TextDelta
from openclaw_a2a.model.ids import TaskId


async def test_a_page_that_is_open_shows_a_new_task(setup: Setup) -> None:
    async with setup.follow("/dashboard/tasks") as events:
        _, empty = await events.next()
        assert msgspec.json.decode(empty)["tasks"] == []
        task_id = await setup.start()
        _, changed = await events.next()
        assert [one["id"] for one in msgspec.json.decode(changed)["tasks"]] == [task_id]


async def test_the_page_of_a_task_follows_its_text_to_the_end(setup: Setup) -> None:
    task_id = await setup.start()
    run = await setup.agent.next_run()
    async with setup.follow(f"/dashboard/tasks/{task_id}") as events:
        await run.emit(TextDelta("one "))
        await run.finish(TextDelta("two"))
        while True:
            page = msgspec.json.decode((await events.next())[1])
            if page["task"]["state"] == "completed":
                break
    assert page["conversation"][-1]["parts"][0]["text"] == "one two"


async def test_a_page_that_comes_back_gets_what_differs_and_nothing_twice(setup: Setup) -> None:
    async with setup.follow("/dashboard/tasks") as events:
        seen, _ = await events.next()
    first = await setup.start("one")
    async with setup.follow("/dashboard/tasks", seen=seen) as events:
        seen, part = await events.next()
        assert [one["id"] for one in msgspec.json.decode(part)["tasks"]] == [first]
    # What it has seen does not come again: the next event is about the next change.
    async with setup.follow("/dashboard/tasks", seen=seen) as events:
        second = await setup.start("two")
        _, part = await events.next()
        assert {one["id"] for one in msgspec.json.decode(part)["tasks"]} == {first, second}


async def test_a_browser_gets_the_part_of_the_page_that_changes(setup: Setup) -> None:
    from tests.conformance.asgi_client import Request
    from tests.dashboard.conftest import Events

    browser = await setup.sign_in()
    html = (await browser.get("/dashboard/tasks")).body.decode()
    address = html.partition('hx-sse:connect="')[2].partition('"')[0].replace("&amp;", "&")
    async with browser.http.open(Request("GET", address)) as active:
        events = Events(active)
        await setup.start("paint the fence")
        _, part = await events.next()
    assert "paint the fence" in part
    assert "<html" not in part
    assert browser.csrf not in part


async def test_nobody_is_told_of_commits_while_no_page_is_open(setup: Setup) -> None:
    [engine] = setup.gateway.engines.values()
    assert not engine.wakeups.observers
    async with setup.follow("/dashboard") as events:
        await events.next()
        assert engine.wakeups.observers
    assert not engine.wakeups.observers
    # The next reader starts it again.
    async with setup.follow("/dashboard/tasks") as events:
        await events.next()
        task_id = await setup.start()
        _, part = await events.next()
    assert task_id in part


async def test_pages_that_do_not_exist_cannot_be_followed(setup: Setup) -> None:
    for at in ("/dashboard/none", "/operator/tasks", "", "/dashboard/tasks/x/cancel"):
        response = await setup.program.get(f"/dashboard/live?at={at}")
        assert response.status == 404


async def test_many_changes_are_one_part(setup: Setup) -> None:
    async with setup.follow("/dashboard/tasks") as events:
        await events.next()
        started = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(40):
                group.create_task(setup.start(f"task {number}"))
        parts = 0
        while True:
            page = msgspec.json.decode((await events.next())[1])
            parts += 1
            if page["counts"]["all"] == page["counts"]["working"] == 40:
                break
        elapsed = time.monotonic() - started
    # However long it took: between two parts there is a pause.
    assert parts <= elapsed / PAUSE_S + 1


class CountingPages:
    """Live pages whose parts say how often each was made."""

    def __init__(self, setup: Setup) -> None:
        self.made: Counter[str] = Counter()
        engines = setup.gateway.engines.values()
        self.live = LivePages(engines, self._make, setup.gateway.supervisor)

    async def _make(self, key: PageKey) -> bytes:
        self.made[key.address] += 1
        return f"{key.address} {self.made[key.address]}".encode()

    def read(self, address: str, task_id: str | None = None) -> PageSubscription:
        key = PageKey(address, may_act=True, task_id=None if task_id is None else TaskId(task_id))
        return PageSubscription(self.live, key, None)


async def next_part(reader: PageSubscription) -> str:
    with anyio.fail_after(240):
        while not (events := await reader.next_events(1)):
            pass
    return events[0].body.decode()


async def test_a_page_is_made_once_for_all_its_readers(setup: Setup) -> None:
    pages, started = CountingPages(setup), time.monotonic()
    readers = [pages.read("/dashboard") for _ in range(50)]
    for one in readers:
        await next_part(one)
    await setup.start()
    for one in readers:
        await next_part(one)
    # Once, once more for the change, and again only after a pause, however long reading took.
    assert pages.made["/dashboard"] <= 2 + (time.monotonic() - started) / PAUSE_S
    for one in readers:
        one.stop()


async def test_a_change_makes_only_the_pages_that_it_concerns(setup: Setup) -> None:
    first, pages = await setup.start("one"), CountingPages(setup)
    run = await setup.agent.next_run()
    started = time.monotonic()
    listing, own, other = pages.read("/list"), pages.read("/own", first), pages.read("/other", "no")
    for one in (listing, own, other):
        await next_part(one)
    await run.emit(TextDelta("more"))
    for one in (listing, own):
        assert int((await next_part(one)).rpartition(" ")[2]) >= 2
    # Once, and again only because of its age.
    assert pages.made["/other"] <= 1 + (time.monotonic() - started) / REFRESH_S
    for one in (listing, own, other):
        one.stop()


async def test_nothing_is_made_while_nobody_reads(setup: Setup) -> None:
    pages = CountingPages(setup)
    reader = pages.read("/dashboard")
    await next_part(reader)
    reader.stop()
    made = pages.made.total()
    [engine] = setup.gateway.engines.values()
    assert not engine.wakeups.observers
    for number in range(5):
        await setup.start(f"task {number}")
    # The next reader gets a part that is made for it, and none was made in between.
    assert await next_part(pages.read("/dashboard")) == f"/dashboard {made + 1}"


async def test_a_form_is_no_live_page(open_dashboard: OpenDashboard) -> None:
    setup = await open_dashboard({"opt.enabled": True})
    address = "/dashboard/objectives/obj-1/edit/obj-1"
    response = await setup.program.get(f"/dashboard/live?at={address}")
    assert response.status == 404
