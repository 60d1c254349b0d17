"""Pages are updated from the journal: what changed, once, and only while somebody looks."""

import msgspec
from tests.dashboard.conftest import Setup

from openclaw_a2a.model.agent_event import TextDelta


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
