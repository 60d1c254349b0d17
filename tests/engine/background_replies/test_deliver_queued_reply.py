"""A host hands a reply over that belongs to a task: the contract of queued replies."""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance.asgi_client import AsgiClient
from tests.conformance.protocol_clients import Json, V1Client
from tests.engine.background_replies.background_agent import BackgroundAgent
from tests.engine.background_replies.conftest import GatewayHarness

from openclaw_a2a.app import Gateway
from openclaw_a2a.model.agent_event import Reply
from openclaw_a2a.model.errors import UnsupportedOperation
from openclaw_a2a.model.message import Part
from openclaw_a2a.server.queued_replies import CHANNEL, OutboundRefusal, payload_parts

SAY = {"text": "later"}
OTHER = {"channels.a2a.accounts.other": {"defaultAgentId": "main", "enabled": True}}
OFF = {"channels.a2a.accounts.off": {"defaultAgentId": "main", "enabled": False}}


async def ended(gateways: GatewayHarness, **more: Json) -> tuple[Gateway, V1Client, str]:
    """A gateway and the id of an ended task at its default account."""
    gateway = await gateways.open(BackgroundAgent(Reply.of_text("hi")), **more)
    v1 = V1Client(AsgiClient(gateway.asgi))
    return gateway, v1, (await v1.send())["task"]["id"]


@pytest.mark.requirement("inbound.queued.artifact", "inbound.queued.payload")
async def test_a_queued_reply_is_one_artifact_of_its_task(gateways: GatewayHarness) -> None:
    gateway, v1, task_id = await ended(gateways)
    payload = {
        "text": "later",
        "mediaUrls": ["https://files.example/cat.png"],
        "channelData": {"a": 1},
        "isError": True,
        "audioAsVoice": True,
        "replyToId": "m-1",
    }
    result = await gateway.deliver_queued_reply(
        "a2a:default", task_id, payload, session_key="agent:main:main"
    )
    assert (result.ok, result.error) == (True, None)
    assert re.fullmatch(r"queued-reply-[0-9a-f-]{36}", result.message_id or "")
    task = await v1.get(task_id)
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    late = task["artifacts"][-1]
    rest = {name: payload[name] for name in payload if name != "text"}
    assert late == {
        "artifactId": result.message_id,
        "name": "Queued follow-up reply",
        "parts": [{"text": "later"}, {"data": rest}],
        "metadata": {
            "source": "queued-reply",
            "channel": "a2a",
            "sessionKey": "agent:main:main",
            "to": "a2a:default",
        },
    }


@pytest.mark.requirement("inbound.queued.task-required")
@pytest.mark.parametrize("thread_id", [None, "", "  ", 7, ["t"]])
async def test_a_queued_reply_without_a_task_is_rejected(
    gateways: GatewayHarness, thread_id: Json
) -> None:
    gateway, _, _ = await ended(gateways)
    result = await gateway.deliver_queued_reply("a2a:default", thread_id, SAY)
    assert not result.ok
    assert (result.error or "").startswith("A2A_QUEUED_REPLY_TASK_REQUIRED:")


@pytest.mark.requirement("inbound.queued.account")
@pytest.mark.parametrize(
    ("to", "account_id"),
    [("a2a:nobody", None), ("a2a:default", "nobody"), ("a2a:off", None), ("", "off"), ("x", None)],
)
async def test_a_queued_reply_to_an_account_that_does_not_run_is_rejected(
    gateways: GatewayHarness, to: str, account_id: str | None
) -> None:
    gateway, _, task_id = await ended(gateways, settings={**OTHER, **OFF})
    result = await gateway.deliver_queued_reply(to, task_id, SAY, account_id=account_id)
    assert not result.ok
    assert (result.error or "").startswith("A2A_QUEUED_REPLY_ACCOUNT_NOT_RUNNING:")


@pytest.mark.requirement("inbound.queued.account")
@pytest.mark.parametrize("to", [None, "", "a2a:", "somebody", "a2a:default"])
async def test_the_only_running_account_needs_no_name(
    gateways: GatewayHarness, to: str | None
) -> None:
    gateway, _, task_id = await ended(gateways, settings=OFF)
    assert (await gateway.deliver_queued_reply(to, task_id, SAY)).ok


@pytest.mark.requirement("inbound.queued.unknown-task", "promise.walls.accounts")
async def test_a_queued_reply_to_a_task_of_another_account_is_rejected(
    gateways: GatewayHarness,
) -> None:
    gateway, _, task_id = await ended(gateways, settings=OTHER)
    for account, thread_id in [("default", "no-such-task"), ("other", task_id)]:
        result = await gateway.deliver_queued_reply(f"a2a:{account}", thread_id, SAY)
        assert not result.ok
        assert (result.error or "").startswith("A2A_QUEUED_REPLY_TASK_NOT_FOUND: task not found")
        assert thread_id in (result.error or "")


@pytest.mark.requirement("inbound.queued.nothing")
@pytest.mark.parametrize("payload", [None, {}, {"text": " "}, {"mediaUrls": []}, [], "text", 7])
async def test_an_empty_queued_reply_makes_no_artifact(
    gateways: GatewayHarness, payload: Json
) -> None:
    gateway, v1, task_id = await ended(gateways)
    before = await v1.get(task_id)
    result = await gateway.deliver_queued_reply("a2a:default", task_id, payload)
    assert (result.ok, result.message_id) == (True, None)
    assert await v1.get(task_id) == before


@pytest.mark.requirement("inbound.queued.account")
async def test_a_queued_reply_to_a_gateway_that_stops_is_rejected(gateways: GatewayHarness) -> None:
    gateway, _, task_id = await ended(gateways)
    await gateway.drain(0)
    result = await gateway.deliver_queued_reply("a2a:default", task_id, SAY)
    assert (result.error or "").startswith("A2A_QUEUED_REPLY_ACCOUNT_NOT_RUNNING:")


@pytest.mark.requirement("inbound.queued.bounded")
async def test_a_queued_reply_that_is_too_large_is_rejected_with_a_reason(
    gateways: GatewayHarness,
) -> None:
    gateway, v1, task_id = await ended(gateways, settings={"limits.eventBytes": 2000})
    result = await gateway.deliver_queued_reply(None, task_id, {"text": "x" * 3000})
    assert (result.ok, "limit is 2000" in (result.error or "")) == (False, True)
    assert len((await v1.get(task_id))["artifacts"]) == 1


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
NAMES = ["text", "body", "mediaUrls", "channelData", "isError", "audioAsVoice", "replyToId"]


@given(payload=st.dictionaries(st.sampled_from(NAMES), anything) | anything)
def test_any_payload_of_a_host_becomes_parts_that_can_be_encoded(payload: Any) -> None:
    parts = payload_parts(payload)
    assert len(parts) <= 2
    assert msgspec.json.decode(msgspec.json.encode(parts), type=tuple[Part, ...])[:0] == ()


def test_the_body_is_the_text_when_there_is_none() -> None:
    assert payload_parts({"body": "b"}) == (Part.of_text("b"),)
    assert payload_parts({"text": "t", "body": "b"}) == (Part.of_text("t"),)


@pytest.mark.requirement("inbound.channel.descriptor")
def test_the_channel_has_a_descriptor() -> None:
    assert msgspec.to_builtins(CHANNEL) == {
        "id": "a2a",
        "pluginId": "openclaw-a2a-inbound",
        "label": "A2A Inbound",
        "docsPath": "/channels/a2a",
        "capabilities": {"chatTypes": ("direct",), "reply": False, "blockStreaming": True},
        "queuedReply": {"mode": "protocol"},
    }


@pytest.mark.requirement("inbound.channel.outbound")
async def test_the_channel_sends_nothing_and_names_the_tool_that_does() -> None:
    outbound = OutboundRefusal()
    assert outbound.delivery_mode == "direct"
    for sending in (
        outbound.send_text("a2a:peer", "hi"),
        outbound.send_media("a2a:peer", "https://files.example/a.png", caption="x"),
        outbound.send_payload("a2a:peer", {"text": "hi"}),
    ):
        with pytest.raises(UnsupportedOperation, match="remote_agent") as refused:
            await sending
        assert refused.value.message.startswith("A2A_OUTBOUND_DELIVERY_UNSUPPORTED:")
