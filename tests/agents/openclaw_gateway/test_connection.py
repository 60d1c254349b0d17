"""The connection to a gateway: authentication, sharing, requests, subscriptions and failures."""

import asyncio
import base64
import hashlib
import json
from pathlib import Path

import anyio
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from tests.agents.openclaw_gateway.conftest import ENVIRON, Json
from tests.agents.openclaw_gateway.scripted_gateway import (
    HELLO,
    TOKEN,
    GatewayRequest,
    Refusal,
    ScriptedGateway,
)

from openclaw_a2a.agents.openclaw_gateway.connection import (
    ConnectionLost,
    EventReceived,
    EventsDropped,
    GatewayConnection,
    Reconnected,
    ResponseReceived,
    acquire_connection,
    release_connection,
)
from openclaw_a2a.agents.openclaw_gateway.handshake import GatewaySite
from openclaw_a2a.agents.openclaw_gateway.protocol import error_code
from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable


async def connected(gateway: ScriptedGateway, *, token: str = TOKEN) -> GatewayConnection:
    connection = acquire_connection(GatewaySite(gateway.url, "env:IT"), environ={"IT": token})
    await connection.wait_connected(5)
    return connection


async def test_the_connect_request_has_token_capabilities_and_scopes(
    gateway: ScriptedGateway,
) -> None:
    connection = await connected(gateway)
    (request,) = gateway.methods("connect")
    assert request.params["auth"] == {"token": TOKEN}
    assert request.params["caps"] == ["tool-events", "approvals"]
    assert {"operator.approvals", "operator.questions"} <= set(request.params["scopes"])
    assert connection.limits.max_payload == 100_000
    assert connection.unavailable_reason() is None
    await release_connection(connection)


async def test_agents_of_one_gateway_share_a_connection_until_the_last_one_leaves(
    gateway: ScriptedGateway,
) -> None:
    one, other = await connected(gateway), await connected(gateway)
    assert one is other
    assert gateway.entries == 1
    await release_connection(one)
    assert await other.call("agents.list", {}, timeout_s=60)
    await release_connection(other)
    await gateway.wait_empty()
    again = await connected(gateway)
    assert again is not one
    await release_connection(again)


async def expect_unavailable(connection: GatewayConnection) -> str:
    with pytest.raises(AgentUnavailable) as raised, anyio.fail_after(240):
        await connection.wait_connected(8)
    assert connection.unavailable_reason() == raised.value.message
    await release_connection(connection)
    return raised.value.message


async def test_a_wrong_token_is_reported_immediately_with_the_fix(gateway: ScriptedGateway) -> None:
    connection = acquire_connection(GatewaySite(gateway.url, "env:IT"), environ={"IT": "wrong"})
    reason = await expect_unavailable(connection)
    assert "does not accept the token" in reason
    assert "wrong" not in reason


async def test_a_missing_token_is_reported(gateway: ScriptedGateway) -> None:
    connection = acquire_connection(GatewaySite(gateway.url, "env:NOT_SET"), environ=ENVIRON)
    assert "NOT_SET" in await expect_unavailable(connection)


async def test_a_corrected_token_is_found_without_a_restart(gateway: ScriptedGateway) -> None:
    environ = {"IT": "wrong"}
    connection = acquire_connection(GatewaySite(gateway.url, "env:IT"), environ=environ)
    with pytest.raises(AgentUnavailable):
        await connection.wait_connected(5)
    environ["IT"] = TOKEN
    with anyio.fail_after(240):
        while connection.hello is None:
            try:
                await connection.wait_connected(5)
            except AgentUnavailable:
                await anyio.sleep(0.02)
    await release_connection(connection)


class FaultyAtFirst(dict[str, str]):
    """An environment whose first lookup raises."""

    def get(self, key: str, default: Json = None, /) -> Json:
        if not self.pop("broken before", None):
            self["broken before"] = "yes"
            raise RuntimeError("unexpected")
        return super().get(key, default)


async def test_an_internal_error_does_not_end_the_connection_loop(gateway: ScriptedGateway) -> None:
    connection = acquire_connection(
        GatewaySite(gateway.url, "env:IT"), environ=FaultyAtFirst(IT=TOKEN)
    )
    await connection.wait_connected(5)
    await release_connection(connection)


@pytest.mark.parametrize(("version", "fix"), [(3, "update OpenClaw"), (5, "update openclaw-a2a")])
async def test_another_protocol_version_is_reported_with_what_to_update(
    gateway: ScriptedGateway, version: int, fix: str
) -> None:
    @gateway.on("connect")
    async def refuse(request: GatewayRequest) -> None:
        raise Refusal("INVALID_REQUEST", code="PROTOCOL_MISMATCH", expectedProtocol=version)

    connection = acquire_connection(GatewaySite(gateway.url), environ={})
    assert fix in await expect_unavailable(connection)


async def test_a_hello_of_an_old_protocol_is_refused(gateway: ScriptedGateway) -> None:
    gateway.hello = {**HELLO, "protocol": 3}
    connection = acquire_connection(GatewaySite(gateway.url, "env:IT"), environ={"IT": TOKEN})
    assert "update OpenClaw" in await expect_unavailable(connection)


async def test_required_pairing_is_reported_with_the_commands(gateway: ScriptedGateway) -> None:
    @gateway.on("connect")
    async def refuse(request: GatewayRequest) -> None:
        raise Refusal("NOT_PAIRED", code="PAIRING_REQUIRED")

    connection = acquire_connection(GatewaySite(gateway.url, "env:IT"), environ={"IT": TOKEN})
    assert "openclaw devices approve" in await expect_unavailable(connection)


async def test_a_device_signs_the_challenge_with_its_key(
    gateway: ScriptedGateway, tmp_path: Path
) -> None:
    private = ed25519.Ed25519PrivateKey.generate()
    key = tmp_path / "device.pem"
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    connection = acquire_connection(
        GatewaySite(gateway.url, "env:IT", str(key)), environ={"IT": TOKEN}
    )
    await connection.wait_connected(5)
    params = gateway.methods("connect")[0].params
    device, client = params["device"], params["client"]
    claims = ("v3", device["id"], client["id"], client["mode"], params["role"])
    rest = (",".join(params["scopes"]), str(device["signedAt"]), TOKEN, device["nonce"])
    signed = "|".join((*claims, *rest, client["platform"], "")).encode()
    private.public_key().verify(unpadded(device["signature"]), signed)
    public = unpadded(device["publicKey"])
    assert public == private.public_key().public_bytes_raw()
    assert device["id"] == hashlib.sha256(public).hexdigest()
    await release_connection(connection)


@pytest.mark.parametrize("content", [None, b"no key", b""])
async def test_an_unusable_device_key_is_reported_with_the_command_to_make_one(
    gateway: ScriptedGateway, tmp_path: Path, content: bytes | None
) -> None:
    key = tmp_path / "device.pem"
    if content is not None:
        key.write_bytes(content)
    connection = acquire_connection(
        GatewaySite(gateway.url, "env:IT", str(key)), environ={"IT": TOKEN}
    )
    assert "openssl genpkey" in await expect_unavailable(connection)


def unpadded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


async def test_a_starting_gateway_is_retried(gateway: ScriptedGateway) -> None:
    @gateway.on("connect")
    async def not_yet(request: GatewayRequest) -> None:
        del gateway.script["connect"]
        error: Json = {"code": "UNAVAILABLE", "message": "starting", "retryable": True}
        await request.refuse(error)

    connection = await connected(gateway)
    assert len(gateway.methods("connect")) == 2
    await release_connection(connection)


async def test_a_slow_greeting_is_waited_for(gateway: ScriptedGateway) -> None:
    may_answer = asyncio.Event()

    @gateway.on("connect")
    async def slow(request: GatewayRequest) -> None:
        await may_answer.wait()
        gateway.connections.add(request.connection)
        await request.answer(gateway.hello)

    connection = acquire_connection(GatewaySite(gateway.url), environ={})
    with pytest.raises(AgentUnavailable, match="did not answer within"):
        await connection.wait_connected(0.05)
    may_answer.set()
    await connection.wait_connected(5)
    await release_connection(connection)


async def test_a_silent_gateway_is_reported(gateway: ScriptedGateway) -> None:
    gateway.sends_challenge = False
    connection = acquire_connection(GatewaySite(gateway.url), environ={})
    with pytest.raises(AgentUnavailable, match="openclaw gateway status"):
        await connection.wait_connected(0.1)
    await release_connection(connection)


async def test_an_unreachable_gateway_is_reported(free_tcp_port: int) -> None:
    connection = acquire_connection(GatewaySite(f"ws://127.0.0.1:{free_tcp_port}"), environ={})
    with pytest.raises(AgentUnavailable, match="openclaw gateway run"):
        await connection.wait_connected(0.5)
    assert connection.unavailable_reason() is not None
    await release_connection(connection)


async def test_a_refused_request_has_its_error_code(gateway: ScriptedGateway) -> None:
    @gateway.on("boom")
    async def boom(request: GatewayRequest) -> None:
        raise Refusal("INVALID_REQUEST", "no such thing", reason="THING_NOT_FOUND")

    connection = await connected(gateway)
    with pytest.raises(AgentFailed, match="no such thing") as refused:
        await connection.call("boom", {}, timeout_s=60)
    assert error_code(refused.value) == "THING_NOT_FOUND"
    await release_connection(connection)


async def test_a_call_that_is_never_answered_ends_in_time(gateway: ScriptedGateway) -> None:
    connection = await connected(gateway)
    with pytest.raises(AgentUnavailable, match="did not answer silence"):
        await connection.call("silence", {}, timeout_s=0.05)
    assert await connection.call("agents.list", {}, timeout_s=60)
    await release_connection(connection)


async def test_a_call_under_way_ends_when_the_connection_breaks(gateway: ScriptedGateway) -> None:
    connection = await connected(gateway)

    async def break_it() -> None:
        await gateway.wait_for("silence")
        gateway.drop()

    async with anyio.create_task_group() as group:
        group.start_soon(break_it)
        with pytest.raises(AgentUnavailable, match="was lost"):
            await connection.call("silence", {}, timeout_s=20)
    await connection.wait_connected(5)
    assert await connection.call("agents.list", {}, timeout_s=60)
    assert gateway.entries == 2
    await release_connection(connection)


async def test_a_message_over_the_gateways_limit_is_not_sent(
    gateway: ScriptedGateway,
) -> None:
    connection = await connected(gateway)
    with pytest.raises(AgentFailed, match="takes at most 100000"):
        await connection.call("agent", {"message": "x" * 100_000}, timeout_s=60)
    assert gateway.methods("agent") == []
    await release_connection(connection)


async def test_garbage_and_strange_events_change_nothing(gateway: ScriptedGateway) -> None:
    connection = await connected(gateway)
    with connection.subscribe(frozenset({"agent"}), "s") as subscription:
        for raw in ("not json", "[]", "{}", '{"type":7}', '{"type":"event"}', b"\xff\xfe", "null"):
            await gateway.send_raw(raw)
        await gateway.send_raw('{"type":"res","id":"unknown","ok":true,"payload":{}}')
        await gateway.send_raw('{"type":"surprise"}')
        await gateway.emit("unknown.event", {"sessionKey": "s"})
        await gateway.emit("agent", {"sessionKey": 7, "runId": {}})
        await gateway.emit("agent", {"sessionKey": "s", "runId": "r", "stream": "x"})
        received = await subscription.next(240)
    assert isinstance(received, EventReceived)
    assert received.origin.stream == "x"
    assert gateway.entries == 1
    await release_connection(connection)


async def test_subscribers_get_events_of_their_session_and_responses_to_their_requests(
    gateway: ScriptedGateway,
) -> None:
    @gateway.on("agent")
    async def twice(request: GatewayRequest) -> None:
        await request.event("agent", {"sessionKey": "other"})
        await request.answer({"status": "accepted"})
        await request.event("agent", {"sessionKey": "mine"})
        await request.answer({"status": "ok"})

    connection = await connected(gateway)
    with connection.subscribe(frozenset({"agent"}), "mine") as subscription:
        request_id = await connection.post("agent", {}, subscription)
        items = [await subscription.next(240) for _ in range(3)]
    assert [type(one) for one in items] == [ResponseReceived, EventReceived, ResponseReceived]
    assert isinstance(items[0], ResponseReceived)
    assert items[0].request_id == request_id
    await release_connection(connection)


async def test_a_slow_subscriber_gets_events_dropped_and_delays_no_other(
    gateway: ScriptedGateway,
) -> None:
    connection = await connected(gateway)
    with connection.subscribe(frozenset({"agent"})) as slow:
        event = json.dumps({"type": "event", "event": "agent", "payload": {"text": "x" * 100}})
        for _ in range(5000):
            await gateway.send_raw(event)
        assert await connection.call("agents.list", {}, timeout_s=60)
        assert isinstance(await slow.next(240), EventsDropped)
    await release_connection(connection)


async def test_a_response_is_kept_for_a_slow_subscriber(gateway: ScriptedGateway) -> None:
    connection = await connected(gateway)
    with connection.subscribe(frozenset({"agent"})) as slow:
        await connection.post("agents.list", {}, slow)
        assert await connection.call("chat.history", {}, timeout_s=60)
        event = json.dumps({"type": "event", "event": "agent", "payload": {}})
        for _ in range(5000):
            await gateway.send_raw(event)
        assert await connection.call("agents.list", {}, timeout_s=60)
        items = [await slow.next(240) for _ in range(2)]
    assert [type(one) for one in items] == [EventsDropped, ResponseReceived]
    await release_connection(connection)


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_subscribers_learn_of_a_lost_connection_and_of_the_new_one(
    gateway: ScriptedGateway, is_restarted: bool
) -> None:
    connection = await connected(gateway)
    with connection.subscribe(frozenset({"agent"}), "s") as subscription:
        if is_restarted:
            gateway.restart()
        else:
            gateway.drop()
        assert isinstance(await subscription.next(240), ConnectionLost)
        back = await subscription.next(240)
        assert isinstance(back, Reconnected)
        assert back.is_restarted is is_restarted
    await release_connection(connection)


async def test_a_connection_closes_while_it_is_connecting(free_tcp_port: int) -> None:
    connection = acquire_connection(GatewaySite(f"ws://127.0.0.1:{free_tcp_port}"), environ={})
    with anyio.fail_after(240):
        await release_connection(connection)
