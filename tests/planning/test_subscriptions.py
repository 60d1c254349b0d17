"""Subscribers get every change once and in order, also after a reconnect or a restart."""

import asyncio
import gc
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from tests.conformance.asgi_client import Request
from tests.conformance.protocol_clients import Frame, FrameReader
from tests.planning.gateway_harness import PlanningHarness, planning_harness_in

Json = Any
PLACES = ("rpc", "rest")


def asked(objective_id: str, place: str, after: int | None) -> Request:
    """The request of a follower."""
    headers = {} if after is None else {"last-event-id": str(after)}
    if place == "rest":
        path = f"/a2a/rest/objectives/{objective_id}:subscribe"
        return Request("GET", path, {"a2a-version": "1.0", **headers})
    call = {"jsonrpc": "2.0", "id": 1, "method": "objectives/subscribe"}
    body = json.dumps({**call, "params": {"id": objective_id}}).encode()
    return Request("POST", "/a2a/jsonrpc", {"content-type": "application/json", **headers}, (body,))


class Follower:
    """A subscriber of an objective."""

    def __init__(self, frames: FrameReader, place: str) -> None:
        self._frames = frames
        self._place = place
        self.seen: list[tuple[int, Json]] = []

    async def next(self) -> Json | None:
        """What comes next; None when no more is to come."""
        frame = await self._frames.next()
        return None if frame is None else self._take(frame)

    async def until(self, number: int) -> None:
        """Read on until a change."""
        while self.last < number:
            assert await self.next() is not None, "the stream has ended"

    async def rest(self) -> list[Json]:
        """All until the end."""
        return [self._take(frame) for frame in await self._frames.rest()]

    @property
    def last(self) -> int:
        """The number of the last change it has seen."""
        return self.seen[-1][0] if self.seen else 0

    @property
    def numbers(self) -> list[int]:
        return [number for number, _ in self.seen]

    @property
    def changes(self) -> list[Json]:
        """The lines of the log that it has received."""
        return [body["change"] for _, body in self.seen if "change" in body]

    def _take(self, frame: Frame) -> Json:
        body = frame.json if self._place == "rest" else frame.json["result"]
        assert frame.id is not None
        self.seen.append((int(frame.id), body))
        return body


@asynccontextmanager
async def following(
    harness: PlanningHarness,
    objective_id: str,
    *,
    after: int | None = None,
    place: str = "rpc",
    is_slow: bool = False,
) -> AsyncGenerator[Follower]:
    """Follow an objective; leaving the block goes away."""
    request = asked(objective_id, place, after)
    async with harness.client.open(request, is_slow=is_slow) as exchange:
        await exchange.wait_started()
        assert exchange.headers["content-type"].startswith("text/event-stream")
        yield Follower(FrameReader(exchange, lambda _: None), place)


async def read_log(harness: PlanningHarness, objective_id: str) -> list[Json]:
    """All that has happened, as the operator reads it; without whose it is."""
    token = (harness.folder / "operator.token").read_text(encoding="ascii").strip()
    client = harness.client.with_headers(authorization=f"Bearer {token}")
    answer = await client.get(f"/operator/objectives/{objective_id}/export")
    lines = [json.loads(line) for line in answer.body.splitlines()]
    lines[0]["data"].pop("owner", None)
    return lines


async def chain(harness: PlanningHarness, count: int) -> str:
    """An objective whose steps follow each other."""
    objective_id = await harness.objective()
    steps = [
        {"name": f"step {place}", **({"dependencies": [f"task-{place - 1}"]} if place else {})}
        for place in range(count)
    ]
    await harness.plan(objective_id, steps)
    return objective_id


@pytest.mark.requirement("opt.follow.changes")
@pytest.mark.parametrize("place", PLACES)
async def test_a_subscriber_gets_the_objective_and_then_every_change_in_order(
    harness: PlanningHarness, place: str
) -> None:
    objective_id = await chain(harness, 4)
    async with following(harness, objective_id, place=place) as follower:
        first = await follower.next()
        assert first is not None
        assert first["objective"] == await harness.get(objective_id)
        begun = follower.last
        await harness.call("objectives/run", id=objective_id)
        await harness.ends(objective_id)
        lines = await read_log(harness, objective_id)
        await follower.until(len(lines))
    assert follower.numbers == list(range(begun, len(lines) + 1))
    assert follower.changes == lines[begun:]
    last = follower.seen[-1][1]
    assert (last["status"], last["progress"]["percent"]) == ("completed", 100)


@pytest.mark.requirement("opt.follow.cursor")
@pytest.mark.parametrize("place", PLACES)
async def test_a_subscriber_that_reconnects_misses_nothing_and_gets_nothing_twice(
    harness: PlanningHarness, place: str
) -> None:
    objective_id = await chain(harness, 4)
    seen: list[Json] = []
    numbers: list[int] = []
    await harness.call("objectives/run", id=objective_id)
    after = 0
    while not numbers or seen[-1]["op"] != "archive":
        async with following(harness, objective_id, after=after, place=place) as follower:
            await follower.until(after + 1)  # it leaves after each change
        seen += follower.changes
        numbers += follower.numbers
        after = follower.last
    lines = await read_log(harness, objective_id)
    assert numbers == list(range(1, len(lines) + 1))
    assert seen == lines


@pytest.mark.requirement("opt.follow.cursor")
@pytest.mark.parametrize("kind", ["sqlite", "json-file"])
async def test_a_restart_is_no_gap(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    async with planning_harness_in(tmp_path, kind) as harness:
        await harness.open()
        begun, go = asyncio.Event(), asyncio.Event()

        async def work(turn: Any) -> str:
            if turn.body.startswith("step 1"):
                begun.set()
                await go.wait()
            return "done"

        harness.workers["main"].work = work
        objective_id = await chain(harness, 3)
        async with following(harness, objective_id, after=0) as before:
            await harness.call("objectives/run", id=objective_id)
            await begun.wait()
            await harness.until(objective_id, is_working)
            await before.until(4)
            closing = asyncio.ensure_future(harness.close())
            await before.rest()
            await closing
        go.set()
        await harness.open()
        await harness.ends(objective_id)
        lines = await read_log(harness, objective_id)
        async with following(harness, objective_id, after=before.last) as later:
            await later.until(len(lines))
    assert before.numbers + later.numbers == list(range(1, len(lines) + 1))
    assert before.changes + later.changes == lines


def is_working(objective: Json) -> bool:
    """True when the second step is under way."""
    return objective["plans"][0]["tasks"][1]["status"] == "working"


@pytest.mark.parametrize("place", PLACES)
async def test_the_stream_ends_when_the_objective_is_deleted(
    harness: PlanningHarness, place: str
) -> None:
    objective_id = await chain(harness, 1)
    async with AsyncExitStack() as stack:
        followers = [
            await stack.enter_async_context(following(harness, objective_id, place=place))
            for _ in range(3)
        ]
        for follower in followers:
            await follower.next()
        await harness.call("objectives/delete", id=objective_id)
        for follower in followers:
            assert all("change" in body for body in await follower.rest())
    error = await harness.fail("objectives/subscribe", id=objective_id)
    assert error["code"] == -32050


async def test_a_subscription_ends_when_another_objective_gets_the_same_id(
    harness: PlanningHarness,
) -> None:
    message = {
        "messageId": "m-1",
        "role": "ROLE_USER",
        "parts": [{"text": "begin"}],
        "metadata": {"opt/v1/objective": {"id": "obj-again", "name": "first"}},
    }
    wanted = {"message": message, "configuration": {"returnImmediately": True}}
    await harness.call("SendMessage", **wanted)
    async with following(harness, "obj-again", is_slow=True) as follower:
        await follower.next()
        for number in range(20):
            await harness.call("objectives/update", id="obj-again", name=f"name {number}")
        await harness.call("objectives/delete", id="obj-again", cancel=True)
        message["messageId"], message["metadata"] = (
            "m-2",
            {"opt/v1/objective": {"id": "obj-again", "name": "secret"}},
        )
        await harness.call("SendMessage", **wanted)
        for number in range(30):
            await harness.call("objectives/update", id="obj-again", name=f"secret {number}")
        frames = await follower.rest()
    assert "secret" not in json.dumps(frames)


async def test_a_cursor_ahead_of_the_objective_gets_a_snapshot(
    harness: PlanningHarness,
) -> None:
    objective_id = await chain(harness, 1)
    async with following(harness, objective_id, after=1_000_000) as follower:
        first = await follower.next()
        assert first is not None
        assert first["objective"]["id"] == objective_id
        await harness.call("objectives/update", id=objective_id, name="other")
        change = await follower.next()
    assert change is not None
    assert change["change"]["data"]["name"] == "other"


async def test_a_slow_subscriber_delays_nobody_and_gets_everything(
    harness: PlanningHarness,
) -> None:
    objective_id = await chain(harness, 1)
    async with (
        following(harness, objective_id, after=0, is_slow=True) as slow,
        following(harness, objective_id, after=0) as quick,
    ):
        for number in range(60):
            await harness.call("objectives/update", id=objective_id, name=f"name {number}")
        lines = await read_log(harness, objective_id)
        await quick.until(len(lines))
        assert slow.seen == []
        await slow.until(len(lines))
    assert slow.changes == quick.changes == lines


async def test_changes_of_one_objective_are_not_sent_to_subscribers_of_another(
    harness: PlanningHarness,
) -> None:
    mine, other = await chain(harness, 1), await chain(harness, 1)
    async with following(harness, mine, after=0) as follower:
        await follower.until(len(await read_log(harness, mine)))
        await harness.call("objectives/update", id=other, name="other")
        await harness.call("objectives/update", id=mine, name="mine")
        change = await follower.next()
    assert change is not None
    assert change["change"]["data"]["name"] == "mine"


async def test_subscribers_that_left_leave_no_task_or_event_behind(
    harness: PlanningHarness,
) -> None:
    await harness.reopen({"dashboard": {"wireExchanges": 0}})  # which holds the newest requests
    first, *ids = [await chain(harness, 1) for _ in range(11)]

    async def come_and_go(objective_id: str, number: int) -> None:
        async with following(harness, objective_id, is_slow=number % 2 == 0) as follower:
            await follower.next()

    async def stay_until_deleted(objective_id: str) -> None:
        async with following(harness, objective_id) as follower:
            await harness.call("objectives/delete", id=objective_id)
            await follower.rest()

    await come_and_go(first, 0)
    before = count_left()
    for number in range(5):
        await asyncio.gather(*(come_and_go(one, number) for one in ids * 4))
    assert count_left() <= before
    for objective_id in ids:
        await stay_until_deleted(objective_id)
    assert count_left() <= before


def count_left() -> int:
    """How many events, unfinished tasks and streams of changes there are in this process."""
    gc.collect()
    tasks = sum(not task.done() for task in asyncio.all_tasks())
    events = sum(isinstance(one, asyncio.Event) for one in gc.get_objects())
    streams = [one for one in gc.get_objects() if isinstance(one, AsyncGenerator)]
    return tasks + events + sum(one.__name__ in ("operations", "_follow") for one in streams)
