"""Deliveries that fail, are retried, are given up, and survive a restart."""

import asyncio
import io
from contextlib import redirect_stderr
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.server.push.conftest import OpenReceiver, Serve
from tests.server.push.gateways import AsgiClient, ScriptedAgent, V1Client
from tests.server.push.webhook_receiver import (
    Json,
    WebhookReceiver,
    eventually,
    eventually_found,
    status,
)
from tests.store.flat_store import FlatStore

from openclaw_a2a.app import Gateway
from openclaw_a2a.engine.scheduling.fair_queue import FairQueue, FairSemaphore
from openclaw_a2a.model.agent_event import InputRequired, Reply
from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState, delivery_id
from openclaw_a2a.model.errors import DeliveryNotFound, StoreUnavailable
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.ports import Store
from openclaw_a2a.server.push.sender import retry_after_s

COMPLETED = b"TASK_STATE_COMPLETED"
NOW = datetime(2026, 11, 15, 6, tzinfo=UTC)
BACKOFF = Backoff(first_s=1.0, max_s=60.0)


def hook(receiver: WebhookReceiver, **more: Json) -> Json:
    return {"taskPushNotificationConfig": {"url": receiver.url(), **more}}


def store_of(gateway: Gateway) -> Store:
    [engine] = gateway.engines.values()
    return engine.store


async def dead(gateway: Gateway) -> list[Delivery]:
    return await store_of(gateway).deliveries.list_deliveries(
        DeliveryState.DEAD, after=DeliveryId(""), limit=9
    )


async def wait_at_rest(gateway: Gateway) -> None:
    """Until nobody expects anything more of any task."""
    [engine] = gateway.engines.values()
    await eventually(lambda: not engine.wakeups.subscribed)


# ---------------------------------------------------------------------- rules


@pytest.mark.requirement("promise.push.back-off")
@given(attempts=st.integers(1, 5000), roll=st.floats(0, 1, exclude_max=True))
def test_the_retry_delay_doubles_up_to_its_maximum_and_jitters_by_half(
    attempts: int, roll: float
) -> None:
    whole = min(2.0 ** min(attempts - 1, 60), 60.0)
    pause = BACKOFF.delay_s(attempts, roll=roll)
    assert whole / 2 <= pause <= whole
    assert BACKOFF.delay_s(attempts, roll=0.0) == whole
    assert BACKOFF.delay_s(attempts + 1, roll=roll) >= pause


@pytest.mark.requirement("promise.push.retry-after")
@given(attempts=st.integers(1, 50), wait=st.floats(0, 1e12), roll=st.floats(0, 1))
def test_retry_after_is_respected_up_to_the_maximum_delay(
    attempts: int, wait: float, roll: float
) -> None:
    pause = BACKOFF.delay_s(attempts, roll=roll, retry_after_s=wait)
    assert pause >= min(wait, 60.0)
    assert pause <= 60.0


@pytest.mark.requirement("promise.push.retry-after")
def test_retry_after_is_parsed_as_seconds_or_as_a_date() -> None:
    assert retry_after_s("120", NOW) == 120.0
    assert retry_after_s(format_datetime(NOW + timedelta(seconds=90), usegmt=True), NOW) == 90.0
    assert retry_after_s(format_datetime(NOW - timedelta(seconds=90), usegmt=True), NOW) == 0.0
    assert retry_after_s("Sun, 15 Nov 2026 06:00:30", NOW) == 30.0


@given(st.text() | st.none())
def test_an_invalid_retry_after_is_ignored(header: str | None) -> None:
    wait = retry_after_s(header, NOW)
    assert wait is None or wait >= 0


@given(
    st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3), st.text(max_size=3)), max_size=9)
)
def test_deliveries_of_different_names_have_different_ids(
    names: list[tuple[str, str, str]],
) -> None:
    ids = {delivery_id(kind, TaskId(task), name) for kind, task, name in names}
    assert len(ids) == len(set(names))


@given(
    lanes=st.lists(st.sampled_from("abcd"), max_size=30),
    places=st.integers(1, 8),
    each=st.integers(1, 4),
)
def test_receivers_share_the_slots_fairly(lanes: list[str], places: int, each: int) -> None:
    queue: FairQueue[DeliveryId] = FairQueue(slots=places, slots_each=each)
    for number, lane in enumerate(lanes):
        queue.add(DeliveryId(f"{number}"), lane)
        queue.add(DeliveryId(f"{number}"), lane)
    taken: list[tuple[DeliveryId, str]] = []
    under_way: list[str] = []
    while len(taken) < len(lanes):
        one = queue.acquire()
        if one is None:
            gone = {int(delivery) for delivery, _ in taken}
            waiting = {lane for number, lane in enumerate(lanes) if number not in gone}
            assert len(under_way) == places or all(under_way.count(x) == each for x in waiting)
            queue.release(under_way.pop(0))
            continue
        taken.append(one)
        under_way.append(one[1])
        assert len(under_way) <= places
        assert under_way.count(one[1]) <= each
    for lane in set(lanes):
        numbers = [int(delivery) for delivery, its in taken if its == lane]
        assert numbers == sorted(numbers), "each receiver's in order"


async def test_a_cancelled_waiter_leaves_its_slot_to_the_next() -> None:
    turns = FairSemaphore(slots=1)
    had: list[str] = []
    let_go = asyncio.Event()

    async def have(name: str) -> None:
        async with turns.slot("somebody", is_retry=name == "again"):
            had.append(name)
            await let_go.wait()

    async with asyncio.TaskGroup() as group:
        group.create_task(have("first"))
        given_up = [group.create_task(have("given up")) for _ in range(3)]
        await asyncio.sleep(0)
        group.create_task(have("fresh"))
        group.create_task(have("again"))
        await asyncio.sleep(0)
        assert had == ["first"]
        for one in given_up:
            one.cancel()
        let_go.set()
    assert had == ["first", "again", "fresh"]


# ---------------------------------------------------------------------- giving up


@pytest.mark.requirement("promise.push.dead-letter")
async def test_after_the_last_attempt_a_delivery_is_dead_with_its_reason_and_can_be_retried(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    receiver.always = status(500)
    agent = ScriptedAgent(Reply.of_text("hi"))
    gateway = await serve(agent, settings={"push.attempts": 3}, kind="sqlite")
    await V1Client(AsgiClient(gateway.asgi)).send(configuration=hook(receiver))
    await wait_at_rest(gateway)
    [delivery] = await dead(gateway)
    assert (delivery.attempts, delivery.reason) == (3, "it answered 500")
    assert len(receiver.posts) == 3
    receiver.always = status(204)
    outbox = gateway.push.outboxes[next(iter(gateway.engines.values()))]
    await outbox.redeliver(delivery.id)
    posts = await receiver.wait_for_post(COMPLETED)
    assert [post.body for post in posts[:4]] == [posts[0].body] * 4, "it goes on where it stood"
    await wait_at_rest(gateway)
    assert await dead(gateway) == []
    assert (await outbox.redeliver(delivery.id)).state is DeliveryState.IDLE
    with pytest.raises(DeliveryNotFound):
        await outbox.redeliver(DeliveryId("none"))


@pytest.mark.requirement("promise.push.permanent")
@pytest.mark.parametrize("kind", ["memory", "sqlite", "json-file"])
@pytest.mark.parametrize("refusal", [400, 401, 404, 413, 422])
async def test_a_notification_that_is_refused_for_good_is_skipped_and_the_next_is_sent(
    serve: Serve, receiver: WebhookReceiver, refusal: int, kind: str
) -> None:
    receiver.responses += [status(refusal)]
    gateway = await serve(ScriptedAgent(Reply.of_text("hi")), kind=kind)
    await V1Client(AsgiClient(gateway.asgi)).send(configuration=hook(receiver))
    posts = await receiver.wait_for_post(COMPLETED)
    await wait_at_rest(gateway)
    bodies = [post.body for post in posts]
    assert len(set(bodies)) == len(bodies), "nothing is sent again"
    [skipped] = await store_of(gateway).deliveries.list_deliveries(
        DeliveryState.SKIPPED, after=DeliveryId(""), limit=9
    )
    assert skipped.reason == f"event 1 was skipped: it answered {refusal}"
    assert await dead(gateway) == []


@pytest.mark.requirement("promise.push.permanent")
async def test_a_webhook_that_refuses_every_notification_delays_no_end(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    receiver.always = status(400)
    gateway = await serve(ScriptedAgent(Reply.of_text("hi")))
    await V1Client(AsgiClient(gateway.asgi)).send(configuration=hook(receiver))
    posts = await receiver.wait_for_post(COMPLETED)
    await wait_at_rest(gateway)
    assert len({post.body for post in receiver.posts}) == len(receiver.posts) == len(posts)


@pytest.mark.requirement("promise.push.permanent", "promise.push.dead-letter")
@pytest.mark.parametrize("kind", ["memory", "sqlite", "json-file"])
@pytest.mark.parametrize("refusal", [400, 401, 403, 404])
async def test_a_webhook_that_refuses_as_often_in_a_row_as_it_is_tried_is_given_up(
    serve: Serve, receiver: WebhookReceiver, refusal: int, kind: str
) -> None:
    receiver.always = status(refusal)
    agent = ScriptedAgent(Reply.of_text("hi"))
    gateway = await serve(agent, kind=kind, settings={"push.attempts": 2})
    await V1Client(AsgiClient(gateway.asgi)).send(configuration=hook(receiver))
    await wait_at_rest(gateway)
    [given_up] = await dead(gateway)
    assert (given_up.attempts, len(receiver.posts)) == (2, 2)
    assert f"it answered {refusal}" in (given_up.reason or "")
    # What was refused last is sent first when the operator tries again.
    receiver.always = status(200)
    [engine] = gateway.engines.values()
    await gateway.push.outboxes[engine].redeliver(given_up.id)
    posts = await receiver.wait_for_post(COMPLETED)
    assert posts[2].body == posts[1].body


@pytest.mark.requirement("promise.push.permanent")
async def test_a_notification_that_is_accepted_ends_the_row_of_refusals(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    receiver.responses += [status(400), status(200), status(400)]
    gateway = await serve(ScriptedAgent(Reply.of_text("hi")), settings={"push.attempts": 2})
    await V1Client(AsgiClient(gateway.asgi)).send(configuration=hook(receiver))
    await wait_at_rest(gateway)
    assert len(receiver.posts) >= 3
    assert await dead(gateway) == []


@pytest.mark.requirement("promise.push.permanent")
@pytest.mark.parametrize("trouble", [408, 425, 429, 500, 503])
async def test_a_notification_that_may_be_accepted_later_is_sent_again(
    serve: Serve, receiver: WebhookReceiver, trouble: int
) -> None:
    receiver.responses += [status(trouble)]
    gateway = await serve(ScriptedAgent(Reply.of_text("hi")))
    await V1Client(AsgiClient(gateway.asgi)).send(configuration=hook(receiver))
    first, second, *_ = await receiver.wait_for_post(COMPLETED)
    assert first.body == second.body


@pytest.mark.requirement("promise.push.dead-letter")
async def test_a_webhook_that_answers_410_is_tried_once(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    receiver.always = status(410)
    gateway = await serve(ScriptedAgent(Reply.of_text("hi")))
    await V1Client(AsgiClient(gateway.asgi)).send(configuration=hook(receiver))
    await wait_at_rest(gateway)
    assert [one.reason for one in await dead(gateway)] == ["it answered 410"]
    assert len(receiver.posts) == 1


async def test_creating_a_dead_configuration_again_revives_it(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    receiver.always = status(410)
    gateway = await serve(ScriptedAgent(Reply.of_text("hi")))
    v1 = V1Client(AsgiClient(gateway.asgi))
    task = (await v1.send(configuration=hook(receiver)))["task"]
    await wait_at_rest(gateway)
    receiver.always = status(200)
    await v1.call("CreateTaskPushNotificationConfig", {"taskId": task["id"], "url": receiver.url()})
    assert (await receiver.wait_for_post(b'"task"'))[-1].json["task"]["id"] == task["id"]


@pytest.mark.requirement("promise.push.retry-after")
async def test_the_retry_after_of_a_webhook_is_stored_as_its_next_attempt(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    receiver.always = status(429, Retry_After="40")
    gateway = await serve(
        ScriptedAgent(Reply.of_text("hi")), settings={"push.mostBackoffSeconds": 50.0}
    )
    task = (await V1Client(AsgiClient(gateway.asgi)).send(configuration=hook(receiver)))["task"]
    await receiver.wait_posts(1)

    async def look() -> Delivery | None:
        [row] = await store_of(gateway).deliveries.list_task_deliveries(None, TaskId(task["id"]))
        return row if row.state is DeliveryState.WAITING else None

    found = await eventually_found(look)
    assert (found.next_at - found.updated_at).total_seconds() == pytest.approx(40.0)
    assert found.reason == "it answered 429"


# ---------------------------------------------------------------------- surviving


@pytest.mark.requirement("promise.push.durable")
@pytest.mark.parametrize("kind", ["sqlite", "json-file"])
async def test_undelivered_notifications_are_delivered_after_a_restart(
    serve: Serve, receiver: WebhookReceiver, kind: str
) -> None:
    receiver.always = None
    first = await serve(ScriptedAgent(Reply.of_text("hi")), kind=kind)
    v1 = V1Client(AsgiClient(first.asgi))
    await v1.send(configuration=hook(receiver))
    task = (await v1.send())["task"]
    await receiver.wait_posts(1)
    late = {"taskId": task["id"], "url": receiver.url("/late")}
    await v1.call("CreateTaskPushNotificationConfig", late)
    await first.__aexit__(None, None, None)
    receiver.always = status(200)
    del receiver.posts[:]
    await serve(ScriptedAgent(), kind=kind)
    await eventually(lambda: len(receiver.posts) >= 5)
    by_path = {path: [p for p in receiver.posts if p.path == path] for path in ("/hook", "/late")}
    assert len(by_path["/hook"]) == 4
    assert COMPLETED in by_path["/hook"][-1].body
    assert [post.json["task"]["id"] for post in by_path["/late"]] == [task["id"]]


@pytest.mark.requirement("promise.push.durable")
async def test_a_paused_task_still_notifies_after_a_restart(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    asking = ScriptedAgent(InputRequired("which one?"))
    first = await serve(asking, kind="sqlite")
    task = (await V1Client(AsgiClient(first.asgi)).send(configuration=hook(receiver)))["task"]
    await receiver.wait_for_post(b"TASK_STATE_INPUT_REQUIRED")
    await first.__aexit__(None, None, None)
    second = await serve(ScriptedAgent(Reply.of_text("this one")), kind="sqlite")
    seen = len(receiver.posts)
    await V1Client(AsgiClient(second.asgi)).send(taskId=task["id"])
    posts = (await receiver.wait_for_post(COMPLETED))[seen:]
    assert [next(iter(post.json)) for post in posts].count("artifactUpdate") == 1


async def test_nothing_is_delivered_twice_after_a_clean_stop(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    first = await serve(ScriptedAgent(Reply.of_text("hi")), kind="sqlite")
    await V1Client(AsgiClient(first.asgi)).send(configuration=hook(receiver))
    await receiver.wait_for_post(COMPLETED)
    await wait_at_rest(first)
    await first.__aexit__(None, None, None)
    second = await serve(ScriptedAgent(Reply.of_text("ho")), kind="sqlite")
    await V1Client(AsgiClient(second.asgi)).send(configuration=hook(receiver))
    await eventually(lambda: sum(COMPLETED in post.body for post in receiver.posts) == 2)
    assert len(receiver.posts) == 8


# ---------------------------------------------------------------------- quiet


class CountingStore(FlatStore):
    """Passes everything on and counts the calls."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Json:
        self.asked.append(name)
        return super().__getattr__(name)


async def test_without_configurations_a_send_makes_no_extra_store_call(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    gateway = await serve(ScriptedAgent(Reply.of_text("hi")))
    [engine] = gateway.engines.values()
    v1 = V1Client(AsgiClient(gateway.asgi))
    await v1.send()
    outbox = gateway.push.outboxes[engine]
    counting = CountingStore(engine.store)
    engine.store = outbox._store = counting
    await v1.send()
    assert not [name for name in counting.asked if "deliver" in name or "unfinished" in name]
    assert counting.asked.count("find_duplicate") == 1


class FaultyStore(CountingStore):
    """Fails as often as each of some things is named."""

    def __init__(self, inner: Store, faults: list[str]) -> None:
        super().__init__(inner)
        self._faults = faults

    def __getattr__(self, name: str) -> Json:
        if name in self._faults:
            self._faults.remove(name)
            raise StoreUnavailable("the disk is full")
        return super().__getattr__(name)


@pytest.mark.requirement("promise.push.durable")
@pytest.mark.parametrize("fault", ["list_task_deliveries", "read_delivery", "update_delivery"])
async def test_a_short_store_failure_causes_no_duplicate_notification(
    serve: Serve, receiver: WebhookReceiver, fault: str
) -> None:
    gateway = await serve(ScriptedAgent(Reply.of_text("hi")))
    [engine] = gateway.engines.values()
    v1 = V1Client(AsgiClient(gateway.asgi))
    await v1.send()
    gateway.push.outboxes[engine]._store = FaultyStore(engine.store, [fault] * 3)
    await v1.send(configuration=hook(receiver))
    posts = await receiver.wait_for_post(COMPLETED)
    assert len(posts) == len({post.body for post in posts}) == 4


@pytest.mark.requirement("promise.push.secret")
async def test_secrets_are_in_no_log(serve: Serve, open_receiver: OpenReceiver) -> None:
    receiver = await open_receiver()
    receiver.always = status(500)
    printed = io.StringIO()
    with redirect_stderr(printed):
        settings = {"push.attempts": 2, "log.level": "debug"}
        gateway = await serve(ScriptedAgent(Reply.of_text("hi")), settings=settings)
        secret = {"scheme": "Bearer", "credentials": "SECRET-CREDENTIALS"}
        wish = hook(receiver, token="SECRET-TOKEN", authentication=secret)
        wish["taskPushNotificationConfig"]["url"] += "?key=SECRET-KEY"
        await V1Client(AsgiClient(gateway.asgi)).send(configuration=wish)
        await wait_at_rest(gateway)
    [delivery] = await dead(gateway)
    assert "SECRET" not in printed.getvalue()
    assert "SECRET" not in (delivery.reason or "")
