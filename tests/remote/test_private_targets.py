"""An address that only a caller named never leads into a private network."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.remote.certificates import make_certificate
from tests.remote.grpc_peer import relay_to
from tests.remote.scripted_peer import CARD, card_of, message, result, scripted, task
from tests.remote.tool_harness import one_target, open_tool, target

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.net.safe_resolver import ResolveHost
from openclaw_a2a.ports import Store
from openclaw_a2a.remote.config import Policy
from openclaw_a2a.remote.result import RemoteFailure
from openclaw_a2a.remote.targets import Target
from openclaw_a2a.remote.transport.agent_card import EMPTY_CARD, Interface
from openclaw_a2a.remote.transport.client import RemoteClient
from openclaw_a2a.remote.transport.http_transport import TargetConnections
from openclaw_a2a.store import create_store

NAME = "peer.example.com"
FREE = {"allowTargetUrlOverride": True}
ANYWHERE = {**FREE, "allowPrivateTargets": True}
PRIVATE = [
    "http://127.0.0.1:1/",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0.0.0.0/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "https://192.168.1.1:8443/a2a",
    "http://169.254.169.254/latest/meta-data",
    "http://100.64.0.1/",
    "http://224.0.0.1/",
    "http://[::1]/",
    "http://[::]/",
    "http://[::ffff:10.0.0.1]/",
    "http://[64:ff9b::a00:1]/",
    "http://[fe80::1]/",
    "http://[fc00::1]/",
    "http://localhost/",
    "http://LOCALHOST./",
    "http://db.internal/",
    "http://printer.local/",
    "http://intranet/",
]


class FixedResolver:
    """Says where every name leads, and remembers who asked."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append((host, port))
        return self.addresses


def open_unrestricted(resolve: ResolveHost, *, policy: JsonObject | None = None):
    return open_tool({"policy": policy or FREE}, resolve=resolve)


def continuing(url: str, **more: Json) -> JsonObject:
    named = {"target_url": url, "card_path": CARD, "preferred_transports": ["JSONRPC"]}
    return {"target": named, "task": {"task_id": "t-1"}, **more}


def assert_refused(error: JsonObject, host: str | None = None) -> None:
    assert error["code"] == "TARGET_RESOLUTION_ERROR", error
    details = error["details"]
    assert details["reason"] == "private_address_disallowed_by_policy"
    assert details["suggested_action"] == "list_targets"
    assert details["allowPrivateTargets"] is False
    assert "outbound.policy.allowPrivateTargets" in details["hint"]
    if host is not None:
        assert details["host"] == host


@pytest.mark.parametrize("url", PRIVATE)
async def test_a_private_address_is_refused_before_a_look_up(url: str) -> None:
    book = FixedResolver("127.0.0.1")
    async with open_unrestricted(book) as harness:
        assert_refused(await harness.fail_send(target_url=url))
        assert_refused(await harness.fail("status", continuation=continuing(url)))
    assert book.asked == []


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["192.0.2.1", "127.0.0.1"], ["::1"]])
async def test_a_name_with_a_private_address_is_refused_without_a_connection(
    addresses: list[str],
) -> None:
    async with (
        scripted(result(message())) as peer,
        open_unrestricted(FixedResolver(*addresses)) as harness,
    ):
        url = f"http://{NAME}:{peer.port}/"
        assert_refused(await harness.fail_send(target_url=url), NAME)
        assert_refused(await harness.fail("status", continuation=continuing(url)), NAME)
        assert_refused(await harness.fail("watch", task_id="t-1", target_url=url), NAME)
        assert_refused(await harness.fail("cancel", task_id="t-1", target_url=url), NAME)
        for _ in range(5):  # a refusal is not a failure of the peer: its circuit stays closed
            assert_refused(await harness.fail_send(target_url=url), NAME)
    assert peer.requests == []


async def test_a_trusted_continuation_is_checked() -> None:
    async with open_tool({"policy": {"continuationTargets": "trusted"}}) as harness:
        error = await harness.fail("status", continuation=continuing("http://127.0.0.1:1/"))
    assert_refused(error, "127.0.0.1")


@pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON", "GRPC"])
@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_a_name_that_becomes_private_after_its_card_was_read_is_refused(
    transport: str, version: str
) -> None:
    """As in an attack by DNS: every request looks the name up again, over every transport."""
    async with (
        relay_to(None) as relay,
        TargetConnections(Policy(), resolve=FixedResolver("127.0.0.1")) as network,
    ):
        url = f"http://{NAME}:{relay.port}/"
        named = Target("", url, is_caller_named=True)
        interface = Interface(transport, url, version)
        peer = RemoteClient(EMPTY_CARD, interface, network.connector_for(named))
        with pytest.raises(RemoteFailure) as caught:
            await peer.get("t-1", None, {})
        with pytest.raises(RemoteFailure) as caught_in_stream:
            _ = [event async for event in peer.subscribe("t-1", {})]
    assert_refused(caught.value.as_object(), NAME)
    assert_refused(caught_in_stream.value.as_object(), NAME)
    assert relay.connections == 0


async def test_a_configured_target_may_be_private() -> None:
    async with scripted(result(task("WORKING"))) as peer:
        config = one_target(peer.url, policy=FREE)
        async with open_tool(config) as harness:
            assert (await harness.send("hi"))["ok"]
            assert (await harness.send("hi", target_url=peer.url.rstrip("/")))["ok"]
            assert (await harness.send("hi", continuation=continuing(peer.url)))["ok"]
            error = await harness.fail_send(target_url=f"{peer.url}elsewhere")
    assert_refused(error, "127.0.0.1")


async def test_with_the_setting_any_address_may_be_named() -> None:
    async with (
        scripted(result(message())) as peer,
        open_unrestricted(FixedResolver(), policy=ANYWHERE) as harness,
    ):
        assert (await harness.send("hi", target_url=peer.url))["ok"]


@pytest.mark.parametrize("value", ["yes", 1, None, {}])
async def test_an_invalid_setting_allows_nothing(value: Json) -> None:
    policy = {**FREE, "allowPrivateTargets": value}
    async with open_unrestricted(FixedResolver(), policy=policy) as harness:
        assert_refused(await harness.fail_send(target_url="http://127.0.0.1:1/"))


async def test_a_request_to_a_checked_address_keeps_its_host_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = make_certificate(tmp_path, NAME)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    asked_for: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: asked_for.append(name)
    book = FixedResolver("::1", "127.0.0.1")  # nobody listens at the first one
    async with scripted(result(message()), tls=context) as peer:
        url = f"https://{NAME}:{peer.port}/"
        peer.card = card_of(url)
        async with open_unrestricted(book, policy=ANYWHERE) as harness:
            envelope = await harness.send("hi", target_url=url)
            other = f"https://other.example.com:{peer.port}/"
            wrong = await harness.fail("watch", task_id="t-1", target_url=other)
    assert envelope["ok"], envelope
    assert [one.headers["host"] for one in peer.requests] == [f"{NAME}:{peer.port}"] * 2
    assert asked_for == [NAME, NAME, "other.example.com"]
    assert "certificate" in wrong["details"]["hint"]
    assert book.asked == [(NAME, peer.port), (NAME, peer.port), ("other.example.com", peer.port)]


async def test_an_unknown_host_is_unreachable() -> None:
    async def unknown(host: str, port: int) -> list[str]:
        raise OSError(2, "no such name")

    async with open_unrestricted(unknown) as harness:
        error = await harness.fail("watch", task_id="t-1", target_url=f"http://{NAME}/")
    assert error["code"] == "A2A_SDK_ERROR"
    assert f"{NAME} is not known" in error["message"]
    assert "cannot be reached" in error["details"]["hint"]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = create_store("sqlite", path=str(tmp_path / "state.db"))
    await store.open()
    yield store
    await store.close()


async def test_a_stored_handle_obeys_the_current_policy(store: Store) -> None:
    async with scripted(result(task("WORKING"))) as peer:
        async with open_tool({"policy": ANYWHERE}, store=store) as harness:
            envelope = await harness.send("hi", target_url=peer.url)
            kept = envelope["summary"]["continuation"]
        handle, received = kept["task"]["task_handle"], len(peer.requests)
        async with open_tool({"policy": FREE}, store=store) as harness:
            assert_refused(await harness.fail("status", task_handle=handle), "127.0.0.1")
            assert_refused(await harness.fail("status", continuation=kept), "127.0.0.1")
        assert len(peer.requests) == received
        peer.answer = result(task("WORKING")["task"])
        configured = {"policy": FREE, "targets": [target(peer.url)]}
        async with open_tool(configured, store=store) as harness:
            assert (await harness.execute("status", task_handle=handle))["ok"]
