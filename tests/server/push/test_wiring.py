"""A push configuration that comes with a message to a running task."""

import asyncio

import pytest
from tests.server.push.conftest import Serve
from tests.server.push.gateways import AsgiClient, ScriptedAgent, V1Client
from tests.server.push.webhook_receiver import Json, WebhookReceiver, eventually
from tests.store.flat_store import FlatStore

from openclaw_a2a.model.agent_event import Note, Reply
from openclaw_a2a.ports import Accepted, Duplicate, Store, Submission

COMPLETED = b"TASK_STATE_COMPLETED"


def hook(receiver: WebhookReceiver, **more: Json) -> Json:
    config = {"taskPushNotificationConfig": {"url": receiver.url()}}
    return {"configuration": {**config, **more}}


@pytest.mark.requirement("wire.push.inline")
async def test_a_webhook_that_comes_with_a_message_to_a_running_task_is_notified_at_once(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(AsgiClient((await serve(agent)).asgi))
    task = await v1.start()
    run = await agent.next_run()
    await v1.send(taskId=task["id"], **hook(receiver, returnImmediately=True))
    [post] = await receiver.wait_posts(1)
    assert post.json["task"]["id"] == task["id"]
    await run.finish(Reply.of_text("one"))
    await (await agent.next_run()).finish(Reply.of_text("two"))
    await receiver.wait_for_post(COMPLETED)


class SlowStore(FlatStore):
    """Takes messages in when it is let to, everything else at once."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.opened = asyncio.Event()
        self.asked = asyncio.Event()

    def submit(self, submission: Submission) -> "asyncio.Future[Accepted | Duplicate]":
        self.asked.set()
        return asyncio.ensure_future(self._submit_when_opened(submission))

    async def _submit_when_opened(self, submission: Submission) -> Accepted | Duplicate:
        await self.opened.wait()
        return await self.inner.tasks.submit(submission)


@pytest.mark.requirement("wire.push.inline", "promise.push.durable")
async def test_events_during_the_creation_of_a_configuration_do_not_lose_it(
    serve: Serve, receiver: WebhookReceiver
) -> None:
    agent = ScriptedAgent()
    gateway = await serve(agent)
    [engine] = gateway.engines.values()
    v1 = V1Client(AsgiClient(gateway.asgi))
    task = await v1.start()
    run = await agent.next_run()
    slow = engine.store = SlowStore(engine.store)
    joining = asyncio.ensure_future(
        v1.send(taskId=task["id"], **hook(receiver, returnImmediately=True))
    )
    await slow.asked.wait()
    await run.emit(Note("still at it"))
    await eventually(lambda: not engine.wakeups.subscribed)
    slow.opened.set()
    await joining
    await run.finish(Reply.of_text("one"))
    await (await agent.next_run()).finish(Reply.of_text("two"))
    await receiver.wait_for_post(COMPLETED)
