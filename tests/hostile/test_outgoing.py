"""Outgoing requests of a gateway process: addresses of callers never lead into this machine.

The process has a DNS server of this test's own, in a mount namespace with its own resolv.conf.
"""

import contextlib
import gzip
import ipaddress
import json
import random
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.cli.conftest import COMMAND, served
from tests.ports import free_port

Json = Any
DEADLINE_S = 240.0
RPC = "/a2a/jsonrpc"
PUBLIC = "192.88.200.1"  # an address of the open internet, which is never reached from here
MAX_GROWTH_KB = 150 * 1024
BOMB_BYTES = 1024 * 1024 * 1024

NAMES = {
    "loop.test": ["127.0.0.1"],
    "any.test": ["0.0.0.0"],
    "lan.test": ["10.0.0.7"],
    "carrier.test": ["100.64.1.1"],
    "metadata.test": ["169.254.169.254"],
    "azure.test": ["168.63.129.16"],
    "mixed.test": [PUBLIC, "127.0.0.1"],
    "six.test": ["::1"],
    "unique.test": ["fd00:ec2::254"],
    "mapped.test": ["::ffff:127.0.0.1"],
    "nat.test": ["64:ff9b::7f00:1"],
    "tunnel.test": ["2002:7f00:1::1"],
}
"""What the DNS server knows; the port of an address is never given by a name."""

SPELLINGS = [
    *("http://127.0.0.1:{}/", "http://127.1:{}/", "http://127.0.1:{}/", "http://127.0.0.1.:{}/"),
    *("http://2130706433:{}/", "http://0x7f000001:{}/", "http://0x7f.0.0.1:{}/"),
    *("http://0177.0.0.1:{}/", "http://017700000001:{}/", "http://127.0.0.0x1:{}/"),
    *("http://0:{}/", "http://0.0.0.0:{}/", "http://127.127.127.127:{}/"),
    *("http://localhost:{}/", "http://LOCALHOST:{}/", "http://localhost.:{}/"),
    *("http://a.localhost:{}/", "http://printer.local:{}/", "http://db.internal:{}/"),
    *("http://intranet:{}/", "http://router.home.arpa:{}/"),
    *("http://10.0.0.1:{}/", "http://172.16.3.4:{}/", "http://192.168.1.1:{}/"),
    *("http://100.100.100.200:{}/", "http://169.254.169.254/latest/meta-data/?{}"),
    *("http://168.63.129.16/?{}", "http://192.0.0.192/?{}", "http://192.88.99.1/?{}"),
    *("http://224.0.0.1:{}/", "http://255.255.255.255:{}/"),
    *("http://[::1]:{}/", "http://[::]:{}/", "http://[0:0:0:0:0:0:0:1]:{}/"),
    *("http://[::ffff:127.0.0.1]:{}/", "http://[::ffff:7f00:1]:{}/", "http://[::127.0.0.1]:{}/"),
    *("http://[::ffff:0:127.0.0.1]:{}/", "http://[64:ff9b::127.0.0.1]:{}/"),
    *("http://[64:ff9b:1::7f00:1]:{}/", "http://[2002:7f00:1::]:{}/", "http://[fe80::1]:{}/"),
    *("http://[fe80::1%25lo]:{}/", "http://[fd00:ec2::254]:{}/", "http://[fec0::1]:{}/"),
    "http://example.com@127.0.0.1:{}/",
    "http://example.com:80@127.0.0.1:{}/",
    "http://example.com\\@127.0.0.1:{}/",
    "http://127.0.0.1:{}\\@example.com/",
    "http:\\\\127.0.0.1:{}/",
    "http:/\\127.0.0.1:{}/",
    "http:///127.0.0.1:{}/",
    "http:127.0.0.1:{}/",
    "//127.0.0.1:{}/",
    "http://127.0.0.1%2f:{}/",
    "http://127.0.0.1%00.example.com:{}/",
    "http://%31%32%37.0.0.1:{}/",
    "http://127%2e0%2e0%2e1:{}/",
    "http://\uff11\uff12\uff17.\uff10.\uff10.\uff11:{}/",
    "http://127。0。0。1:{}/",
    "http://①②⑦.⓪.⓪.①:{}/",
    "http://ⓛocalhost:{}/",
    "http://loca\u00adlhost:{}/",
    "http://exam\tple.com:{}/",
    "http://127.0.0.1\n:{}/",
    "file:///etc/passwd?{}",
    "gopher://127.0.0.1:{}/",
    "unix:///run/docker.sock?{}",
]


class Listener:
    """A server on loopback that must not be reached; it counts who did."""

    def __init__(self) -> None:
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                listener.requests.append(self.path)
                listener.respond(self)

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *_: object) -> None:
                pass

        self.requests: list[str] = []
        self.respond: Callable[[BaseHTTPRequestHandler], None] = _not_found
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _not_found(request: BaseHTTPRequestHandler) -> None:
    request.send_error(404)


class DnsServer:
    """Answers A and AAAA from `names`; each look-up of `rebinding` takes the next address.

    Names below `silent.test` get no answer at all: who looks them up waits in vain.
    """

    def __init__(self, address: str) -> None:
        self.names: dict[str, list[str]] = dict(NAMES)
        self.rebinding: dict[str, list[str]] = {}
        self.asked: list[str] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, 53))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                query, sender = self._socket.recvfrom(4096)
                if not query:  # shut down
                    return
                if b"\x06silent\x04test" not in query.lower():
                    self._socket.sendto(self._answer(query), sender)
            except OSError:
                return

    def _answer(self, query: bytes) -> bytes:
        labels, place = [], 12
        while query[place]:
            labels.append(query[place + 1 : place + 1 + query[place]].decode("ascii").lower())
            place += 1 + query[place]
        kind = struct.unpack(">H", query[place + 1 : place + 3])[0]
        name = ".".join(labels)
        known = list(self.names.get(name, ()))
        if kind == 1 and name in self.rebinding:
            self.asked.append(name)
            answers = self.rebinding[name]
            known = [answers.pop(0) if len(answers) > 1 else answers[0]]
        wanted = 4 if kind == 1 else 6
        found = [one for one in map(ipaddress.ip_address, known) if one.version == wanted]
        is_known = bool(known) or name in self.rebinding
        head = query[:2] + struct.pack(
            ">HHHHH", 0x8180 | (0 if is_known else 3), 1, len(found), 0, 0
        )
        records = b"".join(
            b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 0, len(one.packed)) + one.packed
            for one in found
        )
        return head + query[12 : place + 5] + records


class Gateway:
    """The gateway under attack."""

    def __init__(self, address: str, home: Path, dns: DnsServer) -> None:
        self.address, self.home, self.dns = address, home, dns
        self._http = httpx2.Client(base_url=address, timeout=DEADLINE_S)
        self._count = 0

    def rpc(self, method: str, params: Json) -> Json:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self._http.post(RPC, json=body, headers={"a2a-version": "1.0"}).json()

    def send(self, *parts: Json, **configuration: Json) -> Json:
        self._count += 1
        message = {"messageId": f"m-{self._count}", "role": "ROLE_USER", "parts": [*parts]}
        return self.rpc("SendMessage", {"message": message, "configuration": configuration})

    def send_link(self, url: str) -> Json:
        return self.send({"text": "see"}, {"url": url, "mediaType": "image/png"})

    def tool(self, **arguments: Json) -> Json:
        token = (self.home / "operator.token").read_text("ascii").strip()
        headers = {"authorization": f"Bearer {token}"}
        return self._http.post("/tools/remote_agent", json=arguments, headers=headers).json()

    def call_target(self, **target: str) -> Json:
        return self.tool(action="send", parts=[{"kind": "text", "text": "hi"}], **target)

    def peak_kb(self) -> int:
        """The most memory that the process had."""
        [pid] = {
            path.parent.name
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if str(self.home).encode() in _read(path) and b"from openclaw_a2a.cli" in _read(path)
        }
        status = Path(f"/proc/{pid}/status").read_text("ascii")
        return int(status.partition("VmHWM:")[2].split()[0])

    def deliveries(self) -> Json:
        token = (self.home / "operator.token").read_text("ascii").strip()
        headers = {"authorization": f"Bearer {token}"}
        return self._http.get("/operator/deliveries", headers=headers).json()["deliveries"]

    def close(self) -> None:
        self._http.close()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@contextlib.contextmanager
def gateway_in(home: Path, **sections: Json) -> Iterator[Gateway]:
    """A gateway whose names are resolved by a DNS server of ours."""
    chance = random.SystemRandom()  # seeds of tests are the same in every worker
    address = ".".join(["127", *(str(chance.randint(1, 250)) for _ in range(3))])
    try:
        dns = DnsServer(address)
    except PermissionError:
        pytest.skip("a DNS server needs port 53, which this user may not open")
    with contextlib.closing(dns):
        resolver = home / "resolv.conf"
        resolver.write_text(f"nameserver {address}\noptions attempts:1 timeout:5\n", "ascii")
        mount = f'mount --bind {resolver} /etc/resolv.conf && exec "$@"'
        isolated = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
        can_mount = shutil.which("unshare") is not None and (
            subprocess.run([*isolated, "true"], capture_output=True, check=False).returncode == 0
        )
        if not can_mount:
            pytest.skip("a process with its own resolv.conf needs mount namespaces")
        settings = {
            "agents": {"main": {"adapter": "echo"}},
            "server": {"stopSeconds": 0},
            "channels": {
                "a2a": {
                    "accounts": {
                        "default": {
                            "defaultAgentId": "main",
                            "agentStyle": "task-generating",
                            "defaultInputModes": ["text/plain", "image/*"],
                        }
                    }
                }
            },
            **sections,
        }
        port, config = free_port(), home / "gateway.json5"
        config.write_text(json.dumps(settings), "utf-8")
        up = [*COMMAND, "up", "--config", str(config), "--port", str(port), "--data", str(home)]
        with served([*isolated, *up], home, port) as served_at:
            gateway = Gateway(served_at, home, dns)
            with contextlib.closing(gateway):
                yield gateway


@pytest.fixture
def listener() -> Iterator[Listener]:
    running = Listener()
    yield running
    running.close()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    outbound = {"enabled": True, "policy": {"allowTargetUrlOverride": True}}
    push = {"timeoutSeconds": 1}
    with gateway_in(tmp_path_factory.mktemp("outgoing"), outbound=outbound, push=push) as running:
        yield running


@pytest.mark.requirement("wire.push.private-addresses", "files.private")
def test_no_spelling_of_this_machine_is_accepted_anywhere(
    gateway: Gateway, listener: Listener
) -> None:
    assert len(SPELLINGS) > 60
    task_id = gateway.send({"text": "hi"})["result"]["task"]["id"]
    accepted: list[tuple[str, str]] = []
    for spelling in SPELLINGS:
        url = spelling.format(listener.port)
        push = gateway.rpc("CreateTaskPushNotificationConfig", {"taskId": task_id, "url": url})
        if push.get("error", {}).get("code") != -32602:
            accepted.append(("webhook", url))
        if "error" not in gateway.send_link(url):
            accepted.append(("file link", url))
        if gateway.call_target(target_url=url).get("ok") is not False:
            accepted.append(("target", url))
    assert accepted == []
    assert listener.requests == []


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_leads_into_this_network_is_not_connected_to(
    gateway: Gateway, listener: Listener, name: str
) -> None:
    url = f"http://{name}:{listener.port}/a.png"
    refused = gateway.send_link(url)
    assert "message.parts[1]" in refused["error"]["message"]
    assert name in refused["error"]["message"]
    failed = gateway.call_target(target_url=url)
    assert failed["ok"] is False
    assert "private" in str(failed["error"])
    push = {"url": url, "token": "t"}
    sent = gateway.send({"text": "hi"}, taskPushNotificationConfig=push)
    task_id = sent["result"]["task"]["id"]
    [delivery] = wait_for(
        lambda: [one for one in gateway.deliveries() if one["taskId"] == task_id],
        lambda found: found and found[0]["state"] == "dead",
    )
    assert "private network" in str(delivery)
    assert listener.requests == []


def test_a_name_that_is_rebound_is_never_connected_to(gateway: Gateway, listener: Listener) -> None:
    names = ("webhook.rebind.test", "target.rebind.test")
    for name in names:
        gateway.dns.rebinding[name] = [PUBLIC, "127.0.0.1"]
    first = gateway.call_target(target_url=f"http://{names[1]}:{listener.port}/", timeout_ms=1500)
    assert first["ok"] is False
    second = gateway.call_target(target_url=f"http://{names[1]}:{listener.port}/")
    assert "private" in str(second["error"])
    push = {"url": f"http://{names[0]}:{listener.port}/"}
    sent = gateway.send({"text": "hi"}, taskPushNotificationConfig=push)
    task_id = sent["result"]["task"]["id"]
    wait_for(
        lambda: [one for one in gateway.deliveries() if one["taskId"] == task_id],
        lambda found: found and found[0]["state"] == "dead",
    )
    assert gateway.dns.asked.count(names[0]) >= 2
    assert listener.requests == []


def test_a_link_to_a_public_or_an_unknown_name_is_accepted(gateway: Gateway) -> None:
    gateway.dns.names["public.test"] = [PUBLIC]
    for name in ("public.test", "nowhere.test"):
        assert "result" in gateway.send_link(f"https://{name}/a.png")


def test_names_without_an_answer_hide_no_name_that_leads_into_this_network(
    gateway: Gateway, listener: Listener
) -> None:
    """Look-ups have a deadline. A name that was not looked up in time was accepted."""
    links = [{"url": f"http://{one}.silent.test/a.png", "mediaType": "image/png"} for one in "abcd"]
    private = {"url": f"http://lan.test:{listener.port}/a.png", "mediaType": "image/png"}
    refused = gateway.send({"text": "see"}, *links, private)
    assert "message.parts" in refused.get("error", {}).get("message", ""), refused


# ------------------------------------------------- answers of servers that the operator named


def wait_for(read: Callable[[], Json], is_enough: Callable[[Json], bool]) -> Json:
    deadline = time.monotonic() + DEADLINE_S
    while not is_enough(found := read()):
        assert time.monotonic() < deadline, found
    return found


def redirecting(to: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def respond(request: BaseHTTPRequestHandler) -> None:
        request.send_response(302)
        request.send_header("location", to)
        request.send_header("content-length", "0")
        request.end_headers()

    return respond


def compressed(content: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    def respond(request: BaseHTTPRequestHandler) -> None:
        with contextlib.suppress(OSError):
            request.send_response(200)
            request.send_header("content-type", "application/json")
            request.send_header("content-encoding", "gzip")
            request.send_header("content-length", str(len(content)))
            request.end_headers()
            request.wfile.write(content)

    return respond


def endless(request: BaseHTTPRequestHandler) -> None:
    with contextlib.suppress(OSError):
        request.send_response(200)
        request.send_header("content-type", "application/json")
        request.end_headers()
        for _ in range(16 * 1024):
            request.wfile.write(b" " * 64 * 1024)


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, Listener]]:
    """A gateway whose operator allows a target and webhooks on loopback."""
    peer = Listener()
    with contextlib.closing(peer):
        target = {"alias": "peer", "baseUrl": peer.url}
        sections = {
            "outbound": {"enabled": True, "targets": [target]},
            "push": {"allowPrivate": True, "timeoutSeconds": 5},
        }
        with gateway_in(tmp_path_factory.mktemp("trusting"), **sections) as running:
            yield running, peer


def test_a_redirect_is_not_followed(trusting: tuple[Gateway, Listener], listener: Listener) -> None:
    gateway, peer = trusting
    peer.respond = redirecting(f"{listener.url}/latest/meta-data")
    assert gateway.call_target(target_alias="peer")["ok"] is False
    gateway.send({"text": "hi"}, taskPushNotificationConfig={"url": f"{peer.url}/hook"})
    wait_for(lambda: peer.requests, lambda found: "/hook" in found)
    assert gateway.send({"text": "still here"})["result"]
    assert listener.requests == []


@pytest.mark.parametrize("kind", ["gzip", "endless"])
def test_an_answer_that_grows_without_end_costs_no_memory(
    trusting: tuple[Gateway, Listener], kind: str
) -> None:
    gateway, peer = trusting
    before = gateway.peak_kb()
    peer.respond = compressed(bomb()) if kind == "gzip" else endless
    failed = gateway.call_target(target_alias="peer")
    assert failed["ok"] is False, failed
    hook = f"/{kind}"
    gateway.send({"text": "hi"}, taskPushNotificationConfig={"url": f"{peer.url}{hook}"})
    wait_for(lambda: peer.requests, lambda found: hook in found)
    assert gateway.send({"text": "still here"})["result"]
    assert gateway.peak_kb() - before < MAX_GROWTH_KB


def bomb() -> bytes:
    """A gibibyte of blanks, in about a megabyte."""
    whole = bytearray()
    member = gzip.compress(b" " * (16 * 1024 * 1024), 9)
    for _ in range(BOMB_BYTES // (16 * 1024 * 1024)):
        whole += member
    return bytes(whole)
