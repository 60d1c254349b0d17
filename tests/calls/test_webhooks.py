"""Webhooks for callers without a session."""

from collections.abc import AsyncIterator

import pytest
from tests.calls.call_gateway import CallGateway
from tests.server.push.webhook_receiver import WebhookReceiver

CALL = {"agent": "b", "skill": "work", "input": {}}
BUSY = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture
async def receiver() -> AsyncIterator[WebhookReceiver]:
    one = WebhookReceiver()
    await one.open()
    yield one
    await one.close()


@pytest.mark.requirement("calls.inbox.webhook")
async def test_the_answer_is_posted_with_its_token_and_again_after_a_failure(
    gateway: CallGateway, receiver: WebhookReceiver
) -> None:
    (gateway.folder / "hook-token").write_text("s3cret")
    webhook = {"url": receiver.url(), "token": f"file:{gateway.folder / 'hook-token'}"}
    await gateway.reopen({"responseRouting.webhooks": {"script": webhook}})
    receiver.responses.append(BUSY)
    call = await gateway.call_tool(gateway.program_client("script"), "agent_call", CALL)
    first, second = await receiver.wait_posts(2)
    assert first.json == second.json
    assert (second.json["kind"], second.json["correlationId"]) == (
        "skill_response",
        call["correlationId"],
    )
    assert second.headers["authorization"] == "Bearer s3cret"
    assert second.json["output"] == "done"


async def test_callers_without_a_webhook_find_their_answers_in_the_inbox(
    gateway: CallGateway, receiver: WebhookReceiver
) -> None:
    await gateway.reopen({"responseRouting.webhooks": {"script": {"url": receiver.url()}}})
    quiet = await gateway.call_tool(gateway.program_client("quiet"), "agent_call", CALL)
    outcome = await gateway.call_tool(gateway.program_client("script"), "agent_call", CALL)
    [post] = await receiver.wait_posts(1)
    assert post.json["correlationId"] == outcome["correlationId"]
    asked = {"correlationId": quiet["correlationId"]}
    found = await gateway.call_tool(gateway.program_client("quiet"), "agent_poll", asked)
    assert found["output"] == "done"
    assert len(receiver.posts) == 1
