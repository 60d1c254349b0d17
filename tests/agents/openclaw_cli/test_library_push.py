"""Webhooks of `OpenClawAgentAdapter`: notified once, when the task has ended."""

import asyncio
import json
from contextlib import asynccontextmanager

import anyio
import pytest
from a2a.compat.v0_3 import types as old_sdk
from tests.store.flat_store import FlatStore

from openclaw_a2a.library.openclaw_adapter import OpenClawAgentAdapter
from openclaw_a2a.model.errors import InvalidParams, StoreUnavailable
from openclaw_a2a.store import MemoryStore


class Receiver:
    """A webhook on loopback that keeps what it receives."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.url = ""
        self.requests: list[tuple[dict[str, str], dict]] = []
        self.arrived = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])
        }
        body = await reader.readexactly(int(headers["content-length"]))
        self.requests.append((headers, json.loads(body)))
        writer.write(f"HTTP/1.1 {self.status} X\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()
        self.arrived.set()

    async def next_notification(self) -> tuple[dict[str, str], dict]:
        with anyio.fail_after(240):
            await self.arrived.wait()
        return self.requests[0]


@asynccontextmanager
async def receiving(status: int = 200):
    receiver = Receiver(status)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    async with server:
        yield receiver


@pytest.fixture
async def adapter(openclaw):
    path = str(openclaw.program)
    async with OpenClawAgentAdapter(openclaw_path=path, env_vars=openclaw.variables) as made:
        yield made


def v1(text: str, push: dict | None = None) -> dict:
    configuration = {"taskPushNotificationConfig": push} if push else {}
    return {
        "message": {"role": "ROLE_USER", "parts": [{"text": text}]},
        "configuration": configuration,
    }


@pytest.mark.requirement("openclaw.push.new")
async def test_webhook_of_1_0_gets_the_last_status(adapter):
    async with receiving() as receiver:
        task = await adapter.handle(v1("hi", {"url": receiver.url, "token": "secret"}))
        headers, body = await receiver.next_notification()
    assert headers["authorization"] == "Bearer secret"
    assert headers["content-type"] == "application/json"
    update = body["statusUpdate"]
    assert (update["taskId"], update["contextId"]) == (task.id, task.context_id)
    assert update["status"]["state"] == "TASK_STATE_COMPLETED"
    assert update["status"]["message"]["parts"] == [{"text": "echo: hi"}]


@pytest.mark.requirement("openclaw.push.old")
async def test_webhook_of_0_3_gets_the_whole_task(adapter):
    async with receiving() as receiver:
        params = old_sdk.MessageSendParams(
            message=old_sdk.Message(
                role=old_sdk.Role.user,
                message_id="m",
                parts=[old_sdk.Part(root=old_sdk.TextPart(text="hi"))],
            ),
            configuration=old_sdk.MessageSendConfiguration(
                push_notification_config=old_sdk.PushNotificationConfig(url=receiver.url)
            ),
        )
        task = await adapter.handle(params)
        headers, body = await receiver.next_notification()
    assert "authorization" not in headers
    assert (body["kind"], body["id"]) == ("task", task.id)
    assert body["status"]["state"] == "completed"
    assert body["artifacts"][0]["name"] == "response"


@pytest.mark.requirement("openclaw.push.once")
async def test_webhook_is_notified_of_a_cancel_and_then_dropped(openclaw, adapter):
    async with receiving(status=204) as receiver:
        task = await adapter.handle(v1("hang"))
        assert await adapter.set_push_notification_config(task.id, {"url": receiver.url}) is True
        assert (await adapter.get_push_notification_config(task.id)).url == receiver.url
        await adapter.cancel_task(task.id)
        _, body = await receiver.next_notification()
        assert body["statusUpdate"]["status"]["state"] == "TASK_STATE_CANCELED"
        assert await adapter.get_push_notification_config(task.id) is None
        assert await adapter.delete_push_notification_config(task.id) is False
        assert len(receiver.requests) == 1


async def test_webhook_is_notified_of_a_failure(openclaw, adapter):
    openclaw.program.chmod(0o644)
    async with receiving() as receiver:
        await adapter.handle(v1("hi", {"url": receiver.url}))
        _, body = await receiver.next_notification()
    assert body["statusUpdate"]["status"]["state"] == "TASK_STATE_FAILED"


@pytest.mark.requirement("openclaw.push.refused")
@pytest.mark.parametrize("status", [400, 500, 302])
async def test_webhook_that_refuses_is_not_notified_again(adapter, status, caplog):
    async with receiving(status) as receiver:
        task = await adapter.handle(v1("hi", {"url": receiver.url}))
        await receiver.next_notification()
        await logged(caplog, f"answered {status}")
    assert len(receiver.requests) == 1
    assert (await adapter.get_task(task.id)).status.message.text == "echo: hi"


async def test_unreachable_webhook_does_not_affect_the_task(adapter, caplog):
    async with receiving() as receiver:
        url = receiver.url
    task = await adapter.handle(v1("hi", {"url": url}))
    await logged(caplog, "webhook.notification_failed")
    assert (await adapter.get_task(task.id)).status.message.text == "echo: hi"


async def logged(caplog, words: str) -> None:
    with anyio.fail_after(240):
        while words not in caplog.text:  # noqa: ASYNC110 - a log line cannot be awaited
            await anyio.sleep(0.01)


async def test_webhook_can_be_removed(openclaw, adapter):
    async with receiving() as receiver:
        task = await adapter.handle(v1("hang", {"url": receiver.url}))
        assert await adapter.delete_push_notification_config(task.id) is True
        assert await adapter.delete_push_notification_config(task.id) is False
        await adapter.cancel_task(task.id)
    assert receiver.requests == []


@pytest.mark.parametrize("is_set_later", [False, True])
async def test_webhook_outlives_the_process_with_its_task(openclaw, tmp_path, is_set_later):
    def adapter() -> OpenClawAgentAdapter:
        return OpenClawAgentAdapter(
            openclaw_path=str(openclaw.program),
            env_vars=openclaw.variables,
            task_store=tmp_path / "tasks.db",
        )

    async with receiving() as receiver:
        config = {"url": receiver.url, "token": "secret"}
        async with adapter() as first:
            task = await first.handle(v1("hang", None if is_set_later else config))
            if is_set_later:
                assert await first.set_push_notification_config(task.id, config) is True
            await openclaw.working()
        assert receiver.requests == []
        async with adapter() as second:
            await second.get_task(task.id)
            headers, body = await receiver.next_notification()
            assert await second.get_push_notification_config(task.id) is None
    assert headers["authorization"] == "Bearer secret"
    assert body["statusUpdate"]["taskId"] == task.id
    assert body["statusUpdate"]["status"]["state"] == "TASK_STATE_FAILED"


async def test_store_that_fails_under_a_webhook_is_logged(openclaw, caplog):
    class Torn(FlatStore):
        async def read_delivery(self, scope, delivery_id, *, only_own=False):
            raise StoreUnavailable("the disk is gone; get another")

    path, store = str(openclaw.program), Torn(MemoryStore())
    async with OpenClawAgentAdapter(
        openclaw_path=path, env_vars=openclaw.variables, task_store=store
    ) as adapter:
        await adapter.handle(v1("hi", {"url": "http://127.0.0.1:9/hook"}))
        await logged(caplog, "the disk is gone")


async def test_unknown_task_has_no_webhook(adapter):
    assert await adapter.set_push_notification_config("nobody", {"url": "http://x"}) is False
    assert await adapter.get_push_notification_config("nobody") is None


async def test_webhook_without_an_address_is_ignored_or_refused(openclaw, adapter):
    task = await adapter.handle(v1("hang", {"url": "", "token": "t"}))
    assert await adapter.get_push_notification_config(task.id) is None
    with pytest.raises(InvalidParams):
        await adapter.set_push_notification_config(task.id, {"token": "t"})


async def test_credentials_are_sent_with_their_scheme(adapter):
    async with receiving() as receiver:
        login = {"scheme": "Basic", "credentials": "dTpw"}
        await adapter.handle(v1("hi", {"url": receiver.url, "authentication": login}))
        headers, _ = await receiver.next_notification()
    assert headers["authorization"] == "Basic dTpw"
