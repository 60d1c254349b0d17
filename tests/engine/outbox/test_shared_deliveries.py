"""Deliveries of several gateways on one database: each is sent by one of them, and none is lost."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.engine.controlled_agent import TIMEOUT_S, ControlledAgent
from tests.engine.harness import Harness, in_time
from tests.engine.outbox.outbox_harness import OutboxHarness
from tests.engine.test_replication import CommitWithoutAnswer, Replica, StartReplica
from tests.engine.test_replication import (
    start_replica as start_replica,
)
from tests.replicas.cluster import repeat_until
from tests.server.push.webhook_receiver import WebhookReceiver, eventually, status

from openclaw_a2a.engine.outbox.delivery_tracking import Phase
from openclaw_a2a.engine.outbox.outbox import Outbox
from openclaw_a2a.model.agent_event import InputRequired, Reply
from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.errors import StoreUnavailable
from openclaw_a2a.ports import DeliveryPage, DeliveryStore
from openclaw_a2a.store.postgres import link as link_module

Json = Any

HYBRID = {"defaultAgentId": "main", "agentStyle": "hybrid"}
"""An account whose agent may answer without a task."""
PUSH: dict[str, Json] = {"push.allowPrivate": True, "push.attempts": 1}


@pytest.fixture
async def receiver() -> AsyncIterator[WebhookReceiver]:
    receiver = WebhookReceiver()
    await receiver.open()
    yield receiver
    await receiver.close()


def states_at(receiver: WebhookReceiver, path: str) -> list[str]:
    """The states that a webhook was sent, in order."""
    bodies = [post.json for post in receiver.posts if post.path == path]
    updates = [body.get("statusUpdate") or body.get("task") for body in bodies]
    return [update["status"]["state"] for update in updates if update is not None]


async def add_webhook(replica: Replica, task_id: str, url: str, name: str) -> None:
    """Have a webhook told about a task, by this replica."""
    config = {"taskId": task_id, "id": name, "url": url}
    answer = await replica.call("CreateTaskPushNotificationConfig", config)
    assert "error" not in answer, answer


def outbox_of(replica: Replica) -> Outbox:
    """The outbox of a replica."""
    return replica.gateway.push.outboxes[replica.gateway.engines[replica.gateway.settings.store]]


async def pause_and_end(receiver: WebhookReceiver, a: Replica, task: Json, *paths: str) -> None:
    """Have a task ask a question, and end after the answer; its webhooks are told of each."""

    def are_told(state: str) -> bool:
        return all(state in states_at(receiver, path) for path in paths)

    await eventually(lambda: are_told("TASK_STATE_WORKING"))
    run = await a.agent.next_run()
    run.end(InputRequired("which one?"))
    await eventually(lambda: are_told("TASK_STATE_INPUT_REQUIRED"))
    await a.send("the first", blocking=False, taskId=task["id"], contextId=task["contextId"])
    (await a.agent.next_run()).end(Reply.of_text("done"))
    await eventually(lambda: are_told("TASK_STATE_COMPLETED"))


async def test_a_webhook_gets_each_status_once_when_another_replica_has_one_for_the_task_too(
    start_replica: StartReplica, receiver: WebhookReceiver
) -> None:
    a, b = await start_replica(**PUSH), await start_replica(**PUSH)
    task = await a.send("hello", blocking=False)
    await add_webhook(a, task["id"], receiver.url("/a"), "a")
    await add_webhook(b, task["id"], receiver.url("/b"), "b")
    await pause_and_end(receiver, a, task, "/a", "/b")
    for replica in (a, b):
        await replica.stop()  # attempts under way end before
    for path in ("/a", "/b"):
        posts = [post.body for post in receiver.posts if post.path == path]
        assert len(posts) == len(set(posts)), states_at(receiver, path)


async def test_a_webhook_that_is_replaced_at_another_replica_gets_each_status_once(
    start_replica: StartReplica, receiver: WebhookReceiver
) -> None:
    a, b = await start_replica(**PUSH), await start_replica(**PUSH)
    task = await a.send("hello", blocking=False)
    await add_webhook(a, task["id"], receiver.url("/old"), "one")
    await eventually(lambda: "TASK_STATE_WORKING" in states_at(receiver, "/old"))
    await add_webhook(b, task["id"], receiver.url("/new"), "one")
    await pause_and_end(receiver, a, task, "/new")
    for replica in (a, b):
        await replica.stop()
    posts = [post.body for post in receiver.posts if post.path == "/new"]
    assert len(posts) == len(set(posts)), states_at(receiver, "/new")
    assert "TASK_STATE_COMPLETED" not in states_at(receiver, "/old")


async def test_a_delivery_that_one_replica_gave_up_is_repeated_by_the_one_that_is_asked(
    start_replica: StartReplica, receiver: WebhookReceiver
) -> None:
    a, b = await start_replica(**PUSH), await start_replica(**PUSH)
    receiver.always = status(500)
    task = await a.send("hello", blocking=False)
    await add_webhook(a, task["id"], receiver.url(), "one")
    store = a.gateway.engines[a.gateway.settings.store].store

    async def is_dead() -> bool:
        deliveries = await store.deliveries.list_task_deliveries(None, task["id"])
        return [one.state for one in deliveries] == [DeliveryState.DEAD]

    assert await repeat_until(is_dead, deadline_s=TIMEOUT_S)
    receiver.always = status(200)
    [delivery] = await store.deliveries.list_task_deliveries(None, task["id"])
    await outbox_of(b).redeliver(delivery.id)
    await pause_and_end(receiver, a, task, "/hook")


async def test_replicas_send_what_a_gateway_that_had_the_database_for_itself_left(
    start_replica: StartReplica, receiver: WebhookReceiver
) -> None:
    """And it can have the database for itself again afterwards."""
    alone = {**PUSH, "store.replicas": False}
    before = await start_replica(**alone)
    task = await before.send("hello", blocking=False)
    await add_webhook(before, task["id"], receiver.url(), "one")
    (await before.agent.next_run()).end(InputRequired("which one?"))
    await eventually(lambda: "TASK_STATE_INPUT_REQUIRED" in states_at(receiver, "/hook"))
    await before.stop()

    a = await start_replica(**PUSH)
    await a.send("the first", blocking=False, taskId=task["id"], contextId=task["contextId"])
    (await a.agent.next_run()).end(Reply.of_text("done"))
    await eventually(lambda: "TASK_STATE_COMPLETED" in states_at(receiver, "/hook"))
    await a.stop()

    after = await start_replica(**alone)
    other = await after.send("hello", blocking=False)
    (await after.agent.next_run()).end(Reply.of_text("done"))
    await after.wait_ended(other["id"])


async def test_a_stored_message_whose_write_was_given_up_has_one_turn_and_its_webhook(
    start_replica: StartReplica, receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its agent may not be asked twice, and had not been asked."""
    monkeypatch.setattr(link_module, "HOLD_S", 0.2)
    alone = await start_replica(lease_s=3, **PUSH, **{"store.replicas": False})
    cut = alone.link._connection = CommitWithoutAnswer(alone.link)
    said = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    webhook = {"taskPushNotificationConfig": {"url": receiver.url()}}
    message = {"message": said, "configuration": {"returnImmediately": True, **webhook}}
    assert "error" in await alone.call("SendMessage", message)
    await cut.release()
    (await alone.agent.next_run("hello")).end(Reply.of_text("done"))
    await eventually(lambda: "TASK_STATE_COMPLETED" in states_at(receiver, "/hook"))
    assert len(alone.agent.turns) == 1


class FailingSearch:
    """A delivery store with pages of one delivery; one of the reads of a page fails."""

    def __init__(self, inner: DeliveryStore, failing_read: int) -> None:
        self._inner = inner
        self._reads_left = failing_read

    async def list_unfinished_deliveries(self, *, after: DeliveryId, limit: int) -> DeliveryPage:
        self._reads_left -= 1
        if self._reads_left == 0:
            raise StoreUnavailable("the connection was lost")
        return await self._inner.list_unfinished_deliveries(after=after, limit=min(limit, 1))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize("failing_read", [1, 2])
async def test_deliveries_of_another_replica_are_sent_although_the_store_fails_in_the_search(
    tmp_path: Path, failing_read: int
) -> None:
    harness = Harness("memory", tmp_path, ControlledAgent())
    await harness.open()
    task_id = (await harness.send()).record.task_id
    rig = OutboxHarness(harness, task_id)
    rows = [
        msgspec.structs.replace(rig.row, id=DeliveryId(one), body=one.encode())
        for one in ("d1", "d2", "d3")
    ]
    for row in rows:
        assert await harness.store.deliveries.put_delivery(row, within=9)
    rig.outbox._store = FailingSearch(harness.store.deliveries, failing_read)
    rig.outbox.start()
    await eventually(lambda: len(rig.sender.attempts) == len(rows))
    await rig.outbox.stop()
    await harness.close()


async def test_a_delivery_of_a_task_that_another_replica_is_yet_to_create_is_kept(
    start_replica: StartReplica, receiver: WebhookReceiver
) -> None:
    hybrid = {"channels.a2a.accounts.default": HYBRID}
    a, b = await start_replica(**PUSH, **hybrid), await start_replica(**PUSH, **hybrid)
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    hook = {"taskPushNotificationConfig": {"id": "one", "url": receiver.url()}}
    params = {"message": message, "configuration": hook}
    sending = asyncio.create_task(b.call("SendMessage", params))
    run = await b.agent.next_run()
    engine, outbox = a.gateway.engines[a.gateway.settings.store], outbox_of(a)
    at_b = b.gateway.engines[b.gateway.settings.store].store.deliveries
    page = await at_b.list_unfinished_deliveries(after=DeliveryId(""), limit=9)
    [delivery] = page.deliveries
    assert await engine.store.tasks.read_task(None, delivery.task_id) is None
    assert engine.replication is not None
    await engine.replication.store.take_delivery(delivery.id)
    outbox.scan()

    async def is_examined() -> bool:
        tracked = outbox._tracked.get(delivery.id)
        is_stored = await at_b.read_delivery(None, delivery.id) is not None
        return not is_stored or (tracked is not None and tracked.phase is Phase.SCHEDULED)

    assert await repeat_until(is_examined, deadline_s=TIMEOUT_S)
    assert await at_b.read_delivery(None, delivery.id) is not None
    run.end(InputRequired("which one?"))
    await sending
    await eventually(lambda: "TASK_STATE_INPUT_REQUIRED" in states_at(receiver, "/hook"))


async def test_a_delivery_of_a_message_that_another_replica_answered_without_a_task_is_deleted(
    start_replica: StartReplica, receiver: WebhookReceiver
) -> None:
    hybrid = {"channels.a2a.accounts.default": HYBRID}
    a, b = await start_replica(**PUSH, **hybrid), await start_replica(**PUSH, **hybrid)
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    hook = {"taskPushNotificationConfig": {"id": "one", "url": receiver.url()}}
    params = {"message": message, "configuration": hook}
    sending = asyncio.create_task(b.call("SendMessage", params))
    run = await b.agent.next_run()
    at_b = b.gateway.engines[b.gateway.settings.store].store.deliveries
    page = await at_b.list_unfinished_deliveries(after=DeliveryId(""), limit=9)
    [delivery] = page.deliveries
    engine = a.gateway.engines[a.gateway.settings.store]
    assert engine.replication is not None
    await engine.replication.store.take_delivery(delivery.id)
    outbox_of(a).scan()
    run.end(Reply.of_text("hi"))
    assert "message" in (await sending)["result"]

    async def is_deleted() -> bool:
        return await at_b.read_delivery(None, delivery.id) is None

    assert await repeat_until(is_deleted, deadline_s=TIMEOUT_S)


class HeldRead:
    """A delivery store whose answers about the deliveries of a task wait for the test."""

    def __init__(self, inner: DeliveryStore) -> None:
        self._inner = inner
        self.is_read = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def list_task_deliveries(self, *args: Any, **named: Any) -> list[Delivery]:
        found = await self._inner.list_task_deliveries(*args, **named)
        self.is_read.set()
        await self.may_answer.wait()
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def test_deliveries_that_are_lost_while_they_are_read_are_not_sent(tmp_path: Path) -> None:
    harness = Harness("memory", tmp_path, ControlledAgent())
    await harness.open()
    rig = OutboxHarness(harness, (await harness.send()).record.task_id)
    await rig.put_row()
    held = rig.outbox._store = HeldRead(harness.store.deliveries)
    checking = asyncio.create_task(rig.check())
    await in_time(held.is_read.wait())
    rig.outbox.drop()
    held.may_answer.set()
    await in_time(checking)
    assert rig.phase is Phase.GONE
    await harness.close()
