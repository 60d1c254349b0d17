"""Addresses of webhooks: none inside the operator's network, whatever its name."""

import asyncio
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ports import free_port
from tests.remote.certificates import make_certificate
from tests.server.push.conftest import Serve
from tests.server.push.gateways import (
    AsgiClient,
    ScriptedAgent,
    V03Client,
    V1Client,
    v03_message,
    v1_message,
)
from tests.server.push.webhook_receiver import WebhookReceiver

from openclaw_a2a.model.agent_event import Reply
from openclaw_a2a.model.url_policy import is_public_address
from openclaw_a2a.server.push.configs import webhook_rejection_reason
from openclaw_a2a.server.push.sender import WebhookOptions, WebhookSender

CREATE = "CreateTaskPushNotificationConfig"
PRIVATE_URLS = [
    "http://127.0.0.1/",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0/",
    "http://10.0.0.1/",
    "http://192.168.1.1:8080/x",
    "http://172.16.0.1/",
    "http://169.254.169.254/latest/meta-data",
    "http://100.64.0.1/",
    "http://[::1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[fe80::1]/",
    "http://[fc00::1]/",
    "http://localhost/",
    "http://LOCALHOST./",
    "http://db.internal/",
    "http://printer.local/",
    "http://intranet/",
]
BAD_URLS = [
    "ftp://example.com/",
    "file:///etc/passwd",
    "javascript:alert(1)",
    "example.com/hook",
    "https://",
    "https:///path",
    "https://user@example.com/",
    "https://user:password@example.com/",
    "https://example.com\\@127.0.0.1/",
    "https://example.com/a b",
    "https://example.com/\r\nX-Evil: 1",
    "https://exämple.com/",
    "https://example.com:99999/",
    "https://[::1/",
]


@pytest.mark.requirement("wire.push.private-addresses")
@pytest.mark.parametrize("url", PRIVATE_URLS)
async def test_a_private_address_is_refused_when_it_is_registered(serve: Serve, url: str) -> None:
    agent = ScriptedAgent(Reply.of_text("done"))
    http = AsgiClient((await serve(agent, settings={"push.allowPrivate": False})).asgi)
    v1, v03 = V1Client(http), V03Client(http)
    task_id = (await v1.send())["task"]["id"]
    turns = len(agent.turns)
    new = {"taskPushNotificationConfig": {"url": url}}
    old = {"pushNotificationConfig": {"url": url}}
    for client, method, params, path in (
        (v1, CREATE, {"taskId": task_id, "url": url}, "url"),
        (v1, "SendMessage", v1_message(configuration=new), "taskPushNotificationConfig.url"),
        (
            v03,
            "tasks/pushNotificationConfig/set",
            {"taskId": task_id, "pushNotificationConfig": {"url": url}},
            "pushNotificationConfig.url",
        ),
        (v03, "message/send", v03_message(configuration=old), "pushNotificationConfig.url"),
    ):
        failed = await client.error(method, params)
        assert failed.code == -32602
        assert path in failed.message
        assert "public address" in failed.message
    assert len(agent.turns) == turns, "nothing was run"


@pytest.mark.requirement("wire.push.private-addresses")
@pytest.mark.parametrize("url", BAD_URLS)
@pytest.mark.parametrize("allow_private", [True, False])
def test_a_url_that_is_not_plain_http_is_refused(url: str, allow_private: bool) -> None:
    assert webhook_rejection_reason(url, allow_private=allow_private)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "http://hooks.example.com:8080/a/b?c=d&e=f#g",
        "https://93.184.216.34/",
        "https://[2606:2800:220:1::1]:8443/x",
    ],
)
def test_a_public_web_address_may_be_a_webhook(url: str) -> None:
    assert webhook_rejection_reason(url, allow_private=False) is None


def test_private_addresses_may_be_allowed() -> None:
    for url in PRIVATE_URLS:
        assert webhook_rejection_reason(url, allow_private=True) is None


@pytest.mark.requirement("wire.push.private-addresses")
@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "172.31.0.1", "192.168.0.1", "169.254.169.254", "0.0.0.0"),
        *("100.64.0.1", "224.0.0.1", "239.1.1.1", "255.255.255.255", "192.0.2.1", "198.18.0.1"),
        *("::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1", "ff0e::1"),
        *("::ffff:10.0.0.1", "::ffff:7f00:1", "64:ff9b::a00:1", "64:ff9b:1::a00:1", "::7f00:1"),
        *("fec0::1", "::ffff:0:7f00:1", "::5efe:7f00:1", "64:ff9b:1:a00:0:100:5db8:d822"),
        *("4000::1", "192.0.0.8", "192.0.0.170"),
        *("2002:7f00:1::", "2002:a00:1::1", "2001:0:0:0:0:0:f5ff:fffe", "2001:db8::1"),
        *("", "example.com", "1.2.3", "1.2.3.4.5"),
    ],
)
def test_no_spelling_of_a_private_address_is_public(address: str) -> None:
    assert not is_public_address(address)


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "2606:2800:220:1::1", "64:ff9b::5db8:d822", "::ffff:93.184.216.34"]
)
def test_public_addresses_are_public(address: str) -> None:
    assert is_public_address(address)


@given(st.ip_addresses(v=6) | st.ip_addresses(v=4))
def test_any_address_can_be_classified(address: object) -> None:
    assert isinstance(is_public_address(str(address)), bool)


@given(st.ip_addresses(v=4, network="10.0.0.0/8"))
def test_a_private_ipv4_address_mapped_to_ipv6_is_private(address: object) -> None:
    number = int.from_bytes(socket.inet_aton(str(address)))
    for coat in ("::ffff:{:x}:{:x}", "64:ff9b::{:x}:{:x}", "2002:{:x}:{:x}::1"):
        assert not is_public_address(coat.format(number >> 16, number & 0xFFFF))


def lying(*addresses: str):
    """A resolver that gives these, whatever it is asked."""
    request: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        request.append(host)
        return list(addresses)

    return resolve, request


def make_poster(resolve, *, allow_private: bool = False, timeout_s: float = 5.0) -> WebhookSender:
    rules = WebhookOptions(timeout_s, allow_private=allow_private, agent_name="test")
    return WebhookSender(rules, resolve=resolve, now=lambda: datetime.now(UTC))


@pytest.mark.requirement("wire.push.private-addresses")
@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.1"], ["93.184.216.34", "127.0.0.1"], ["::1"], ["::ffff:127.0.0.1"], ["10.0.0.1"]],
)
async def test_a_public_name_with_a_private_address_is_not_connected_to(
    receiver: WebhookReceiver, addresses: Sequence[str]
) -> None:
    resolve, _ = lying(*addresses)
    poster = make_poster(resolve)
    url = f"http://hooks.example.com:{receiver.port}/hook"
    missed = await poster.post(url, b"{}", {})
    await poster.close()
    assert missed is not None
    assert missed.is_final
    assert "private network" in missed.reason
    assert receiver.posts == []


@pytest.mark.requirement("wire.push.private-addresses")
async def test_a_name_is_resolved_once_and_the_checked_address_is_used(
    receiver: WebhookReceiver,
) -> None:
    """A name that changes its mind between the check and the connection gains nothing."""
    resolve, request = lying("127.0.0.1")
    poster = make_poster(resolve, allow_private=True)
    url = f"http://no-such-host.invalid:{receiver.port}/hook?a=b"
    assert await poster.post(url, b"{}", {"X-Mark": "1"}) is None
    await poster.close()
    [post] = receiver.posts
    assert request == ["no-such-host.invalid"]
    assert post.headers["host"] == f"no-such-host.invalid:{receiver.port}"
    assert post.path == "/hook?a=b"


async def test_the_next_address_is_tried_when_one_cannot_be_reached(
    receiver: WebhookReceiver,
) -> None:
    resolve, _ = lying("127.0.0.99", "127.0.0.1")
    poster = make_poster(resolve, allow_private=True)
    url = f"http://hooks.example.com:{receiver.port}/"
    missed = await poster.post(url, b"{}", {})
    await poster.close()
    assert missed is None


@contextmanager
def accepting_nobody(port: int) -> Iterator[str]:
    """An address at which connections are neither accepted nor refused."""
    address = "127.0.0.99"
    with socket.create_server((address, port), backlog=0) as full, ExitStack() as waiting:
        for _ in range(4):  # nobody accepts them, so whoever comes next is not even greeted
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        yield address


async def test_the_next_address_is_tried_when_one_times_out(receiver: WebhookReceiver) -> None:
    with accepting_nobody(receiver.port) as address:
        resolve, _ = lying(address, "127.0.0.1")
        poster = make_poster(resolve, allow_private=True, timeout_s=6.0)
        missed = await poster.post(f"http://hooks.example.com:{receiver.port}/", b"{}", {})
        await poster.close()
    assert missed is None


async def test_a_host_that_accepts_no_connection_is_a_failure_with_a_reason_in_words() -> None:
    port = free_port()
    with accepting_nobody(port) as address:
        resolve, _ = lying(address)
        poster = make_poster(resolve, allow_private=True, timeout_s=0.5)
        missed = await poster.post(f"http://hooks.example.com:{port}/", b"{}", {})
        await poster.close()
    assert missed is not None
    assert missed.reason == "hooks.example.com cannot be reached: connection timed out"


async def test_an_unreachable_or_unknown_host_is_a_failure_with_a_reason() -> None:
    resolve, _ = lying("127.0.0.1")
    poster = make_poster(resolve, allow_private=True)
    refused = await poster.post(f"http://hooks.example.com:{free_port()}/", b"{}", {})
    nowhere = await poster.post("http://[::1/", b"{}", {})
    await poster.close()
    assert refused is not None
    assert refused.reason == "hooks.example.com cannot be reached: connection refused"
    assert nowhere is not None
    assert nowhere.is_final


async def test_a_missing_response_times_out(
    receiver: WebhookReceiver,
) -> None:
    receiver.always = None
    resolve, _ = lying("127.0.0.1")
    poster = make_poster(resolve, allow_private=True, timeout_s=3)
    missed = await poster.post(receiver.url(), b"{}", {})
    await poster.close()
    assert missed is not None
    assert "did not answer within 3 s" in missed.reason


async def test_a_response_that_breaks_off_is_a_failure(receiver: WebhookReceiver) -> None:
    receiver.always = b"nonsense\r\n\r\n"
    resolve, _ = lying("127.0.0.1")
    poster = make_poster(resolve, allow_private=True)
    missed = await poster.post(receiver.url(), b"{}", {})
    await poster.close()
    assert missed is not None
    assert "broke" in missed.reason


@pytest.mark.requirement("wire.push.private-addresses")
async def test_the_certificate_is_checked_for_the_host_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = make_certificate(tmp_path, "hooks.example.com")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    names: list[str | None] = []
    context.sni_callback = lambda _socket, name, _context: names.append(name)

    async def response(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(response, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    resolve, _ = lying("127.0.0.1")
    poster = make_poster(resolve, allow_private=True)
    right = await poster.post(f"https://hooks.example.com:{port}/", b"{}", {})
    wrong = await poster.post(f"https://other.example.com:{port}/", b"{}", {})
    await poster.close()
    server.close()
    await server.wait_closed()
    assert right is None
    assert wrong is not None
    assert names == ["hooks.example.com", "other.example.com"]
