"""The link to a gateway: who is let in, what is shared, and what a bad day does to it."""

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
    Asked,
    Refusal,
    ScriptedGateway,
)

from openclaw_a2a.agents.openclaw_gateway.connect import GatewaySite
from openclaw_a2a.agents.openclaw_gateway.connection import (
    GatewayConnection,
    acquire_connection,
    release_connection,
)
from openclaw_a2a.agents.openclaw_gateway.protocol import error_code
from openclaw_a2a.agents.openclaw_gateway.subscription import (
    ConnectionLost,
    EventFilter,
    EventReceived,
    EventsDropped,
    Reconnected,
    ResponseReceived,
)
from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable


async def connected(gateway: ScriptedGateway, *, token: str = TOKEN) -> GatewayConnection:
    link = acquire_connection(GatewaySite(gateway.url, "env:IT"), environ={"IT": token})
    await link.wait_connected(5)
    return link


async def test_who_we_are_and_what_we_want_is_said_at_the_door(gateway: ScriptedGateway) -> None:
    link = await connected(gateway)
    (asked,) = gateway.methods("connect")
    assert asked.params["auth"] == {"token": TOKEN}
    assert asked.params["caps"] == ["tool-events", "approvals"]
    assert {"operator.approvals", "operator.questions"} <= set(asked.params["scopes"])
    assert link.limits.max_payload == 100_000
    assert link.unavailable_reason() is None
    await release_connection(link)


async def test_agents_of_one_gateway_share_a_connection_until_the_last_one_leaves(
    gateway: ScriptedGateway,
) -> None:
    one, other = await connected(gateway), await connected(gateway)
    assert one is other
    assert gateway.entries == 1
    await release_connection(one)
    assert await other.call("agents.list", {}, timeout_s=5)
    await release_connection(other)
    await gateway.wait_empty()
    again = await connected(gateway)
    assert again is not one
    await release_connection(again)


async def expect_no_entry(link: GatewayConnection) -> str:
    with pytest.raises(AgentUnavailable) as refused, anyio.fail_after(10):
        await link.wait_connected(8)
    assert link.unavailable_reason() == refused.value.message
    await release_connection(link)
    return refused.value.message


async def test_a_wrong_token_is_told_at_once_with_the_fix(gateway: ScriptedGateway) -> None:
    link = acquire_connection(GatewaySite(gateway.url, "env:IT"), environ={"IT": "wrong"})
    said = await expect_no_entry(link)
    assert "does not accept the token" in said
    assert "wrong" not in said


async def test_a_token_that_is_not_there_is_told(gateway: ScriptedGateway) -> None:
    link = acquire_connection(GatewaySite(gateway.url, "env:NOT_SET"), environ=ENVIRON)
    assert "NOT_SET" in await expect_no_entry(link)


async def test_a_corrected_token_is_found_without_a_restart(gateway: ScriptedGateway) -> None:
    environ = {"IT": "wrong"}
    link = acquire_connection(GatewaySite(gateway.url, "env:IT"), environ=environ)
    with pytest.raises(AgentUnavailable):
        await link.wait_connected(5)
    environ["IT"] = TOKEN
    with anyio.fail_after(10):
        while link.hello is None:
            try:
                await link.wait_connected(5)
            except AgentUnavailable:
                await anyio.sleep(0.02)
    await release_connection(link)


class FaultyAtFirst(dict[str, str]):
    """Surroundings that break whoever looks at them for the first time."""

    def get(self, key: str, default: Json = None, /) -> Json:
        if not self.pop("broken before", None):
            self["broken before"] = "yes"
            raise RuntimeError("nobody expected this")
        return super().get(key, default)


async def test_a_fault_of_our_own_does_not_end_the_link(gateway: ScriptedGateway) -> None:
    link = acquire_connection(GatewaySite(gateway.url, "env:IT"), environ=FaultyAtFirst(IT=TOKEN))
    await link.wait_connected(5)
    await release_connection(link)


@pytest.mark.parametrize(("spoken", "fix"), [(3, "update OpenClaw"), (5, "update openclaw-a2a")])
async def test_another_protocol_is_told_with_what_to_update(
    gateway: ScriptedGateway, spoken: int, fix: str
) -> None:
    @gateway.on("connect")
    async def refuse(asked: Asked) -> None:
        raise Refusal("INVALID_REQUEST", code="PROTOCOL_MISMATCH", expectedProtocol=spoken)

    link = acquire_connection(GatewaySite(gateway.url), environ={})
    assert fix in await expect_no_entry(link)


async def test_a_greeting_of_an_old_protocol_is_not_taken(gateway: ScriptedGateway) -> None:
    gateway.hello = {**HELLO, "protocol": 3}
    link = acquire_connection(GatewaySite(gateway.url, "env:IT"), environ={"IT": TOKEN})
    assert "update OpenClaw" in await expect_no_entry(link)


async def test_a_gateway_that_wants_pairing_says_how(gateway: ScriptedGateway) -> None:
    @gateway.on("connect")
    async def refuse(asked: Asked) -> None:
        raise Refusal("NOT_PAIRED", code="PAIRING_REQUIRED")

    link = acquire_connection(GatewaySite(gateway.url, "env:IT"), environ={"IT": TOKEN})
    assert "openclaw devices approve" in await expect_no_entry(link)


async def test_a_device_proves_that_it_holds_its_key(
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
    link = acquire_connection(GatewaySite(gateway.url, "env:IT", str(key)), environ={"IT": TOKEN})
    await link.wait_connected(5)
    params = gateway.methods("connect")[0].params
    device, client = params["device"], params["client"]
    claims = ("v3", device["id"], client["id"], client["mode"], params["role"])
    rest = (",".join(params["scopes"]), str(device["signedAt"]), TOKEN, device["nonce"])
    signed = "|".join((*claims, *rest, client["platform"], "")).encode()
    private.public_key().verify(unpadded(device["signature"]), signed)
    public = unpadded(device["publicKey"])
    assert public == private.public_key().public_bytes_raw()
    assert device["id"] == hashlib.sha256(public).hexdigest()
    await release_connection(link)


@pytest.mark.parametrize("content", [None, b"no key", b""])
async def test_a_device_key_that_cannot_be_used_is_told_with_how_to_make_one(
    gateway: ScriptedGateway, tmp_path: Path, content: bytes | None
) -> None:
    key = tmp_path / "device.pem"
    if content is not None:
        key.write_bytes(content)
    link = acquire_connection(GatewaySite(gateway.url, "env:IT", str(key)), environ={"IT": TOKEN})
    assert "openssl genpkey" in await expect_no_entry(link)


def unpadded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


async def test_a_gateway_that_is_still_starting_is_asked_again(gateway: ScriptedGateway) -> None:
    @gateway.on("connect")
    async def not_yet(asked: Asked) -> None:
        del gateway.script["connect"]
        error: Json = {"code": "UNAVAILABLE", "message": "starting", "retryable": True}
        await asked.refuse(error)

    link = await connected(gateway)
    assert len(gateway.methods("connect")) == 2
    await release_connection(link)


async def test_a_slow_greeting_is_waited_for(gateway: ScriptedGateway) -> None:
    may_answer = asyncio.Event()

    @gateway.on("connect")
    async def slow(asked: Asked) -> None:
        await may_answer.wait()
        gateway.connections.add(asked.connection)
        await asked.answer(gateway.hello)

    link = acquire_connection(GatewaySite(gateway.url), environ={})
    with pytest.raises(AgentUnavailable, match="did not answer within"):
        await link.wait_connected(0.05)
    may_answer.set()
    await link.wait_connected(5)
    await release_connection(link)


async def test_a_gateway_that_says_nothing_is_told(gateway: ScriptedGateway) -> None:
    gateway.greets = False
    link = acquire_connection(GatewaySite(gateway.url), environ={})
    with pytest.raises(AgentUnavailable, match="openclaw gateway status"):
        await link.wait_connected(0.1)
    await release_connection(link)


async def test_nobody_listens_there(free_tcp_port: int) -> None:
    link = acquire_connection(GatewaySite(f"ws://127.0.0.1:{free_tcp_port}"), environ={})
    with pytest.raises(AgentUnavailable, match="openclaw gateway run"):
        await link.wait_connected(0.5)
    assert link.unavailable_reason() is not None
    await release_connection(link)


async def test_a_refused_call_tells_its_code(gateway: ScriptedGateway) -> None:
    @gateway.on("boom")
    async def boom(asked: Asked) -> None:
        raise Refusal("INVALID_REQUEST", "no such thing", reason="THING_NOT_FOUND")

    link = await connected(gateway)
    with pytest.raises(AgentFailed, match="no such thing") as refused:
        await link.call("boom", {}, timeout_s=5)
    assert error_code(refused.value) == "THING_NOT_FOUND"
    await release_connection(link)


async def test_a_call_that_is_never_answered_ends_in_time(gateway: ScriptedGateway) -> None:
    link = await connected(gateway)
    with pytest.raises(AgentUnavailable, match="did not answer silence"):
        await link.call("silence", {}, timeout_s=0.05)
    assert await link.call("agents.list", {}, timeout_s=5)
    await release_connection(link)


async def test_a_call_under_way_ends_when_the_connection_breaks(gateway: ScriptedGateway) -> None:
    link = await connected(gateway)

    async def break_it() -> None:
        await gateway.wait_for("silence")
        gateway.drop()

    async with anyio.create_task_group() as group:
        group.start_soon(break_it)
        with pytest.raises(AgentUnavailable, match="was lost"):
            await link.call("silence", {}, timeout_s=20)
    await link.wait_connected(5)
    assert await link.call("agents.list", {}, timeout_s=5)
    assert gateway.entries == 2
    await release_connection(link)


async def test_a_message_larger_than_the_gateway_takes_is_not_sent(
    gateway: ScriptedGateway,
) -> None:
    link = await connected(gateway)
    with pytest.raises(AgentFailed, match="takes at most 100000"):
        await link.call("agent", {"message": "x" * 100_000}, timeout_s=5)
    assert gateway.methods("agent") == []
    await release_connection(link)


async def test_garbage_and_strange_events_change_nothing(gateway: ScriptedGateway) -> None:
    link = await connected(gateway)
    with link.subscribe(EventFilter(frozenset({"agent"}), "s")) as listening:
        for raw in ("not json", "[]", "{}", '{"type":7}', '{"type":"event"}', b"\xff\xfe", "null"):
            await gateway.say(raw)
        await gateway.say('{"type":"res","id":"unknown","ok":true,"payload":{}}')
        await gateway.say('{"type":"surprise"}')
        await gateway.emit("never.heard.of", {"sessionKey": "s"})
        await gateway.emit("agent", {"sessionKey": 7, "runId": {}})
        await gateway.emit("agent", {"sessionKey": "s", "runId": "r", "stream": "x"})
        heard = await listening.next(5)
    assert isinstance(heard, EventReceived)
    assert heard.origin.stream == "x"
    assert gateway.entries == 1
    await release_connection(link)


async def test_listeners_hear_their_session_only_and_answers_to_their_requests(
    gateway: ScriptedGateway,
) -> None:
    @gateway.on("agent")
    async def twice(asked: Asked) -> None:
        await asked.event("agent", {"sessionKey": "other"})
        await asked.answer({"status": "accepted"})
        await asked.event("agent", {"sessionKey": "mine"})
        await asked.answer({"status": "ok"})

    link = await connected(gateway)
    with link.subscribe(EventFilter(frozenset({"agent"}), "mine")) as listening:
        request_id = await link.post("agent", {}, listening)
        heard = [await listening.next(5) for _ in range(3)]
    assert [type(one) for one in heard] == [ResponseReceived, EventReceived, ResponseReceived]
    assert isinstance(heard[0], ResponseReceived)
    assert heard[0].request_id == request_id
    await release_connection(link)


async def test_a_listener_who_is_too_slow_is_told_and_holds_up_nobody(
    gateway: ScriptedGateway,
) -> None:
    link = await connected(gateway)
    with link.subscribe(EventFilter(frozenset({"agent"}))) as slow:
        event = json.dumps({"type": "event", "event": "agent", "payload": {"text": "x" * 100}})
        for _ in range(5000):
            await gateway.say(event)
        assert await link.call("agents.list", {}, timeout_s=10)
        assert isinstance(await slow.next(5), EventsDropped)
    await release_connection(link)


async def test_an_answer_is_kept_for_a_listener_who_is_too_slow(gateway: ScriptedGateway) -> None:
    link = await connected(gateway)
    with link.subscribe(EventFilter(frozenset({"agent"}))) as slow:
        await link.post("agents.list", {}, slow)
        assert await link.call("chat.history", {}, timeout_s=10)
        event = json.dumps({"type": "event", "event": "agent", "payload": {}})
        for _ in range(5000):
            await gateway.say(event)
        assert await link.call("agents.list", {}, timeout_s=10)
        heard = [await slow.next(5) for _ in range(2)]
    assert [type(one) for one in heard] == [EventsDropped, ResponseReceived]
    await release_connection(link)


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_listeners_are_told_of_a_break_and_of_its_end(
    gateway: ScriptedGateway, is_restarted: bool
) -> None:
    link = await connected(gateway)
    with link.subscribe(EventFilter(frozenset({"agent"}), "s")) as listening:
        if is_restarted:
            gateway.restart()
        else:
            gateway.drop()
        assert isinstance(await listening.next(5), ConnectionLost)
        back = await listening.next(10)
        assert isinstance(back, Reconnected)
        assert back.is_restarted is is_restarted
    await release_connection(link)


async def test_a_link_closes_while_it_tries_to_connect(free_tcp_port: int) -> None:
    link = acquire_connection(GatewaySite(f"ws://127.0.0.1:{free_tcp_port}"), environ={})
    with anyio.fail_after(5):
        await release_connection(link)
