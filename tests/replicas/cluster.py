"""Several gateways over one PostgreSQL behind one address, as processes that can be made to fail.

The database, the proxies and the host of sessions belong to the test. A replica that ends by itself
while it starts, because it cannot reach the database, is started again as a service manager does.
"""

import asyncio
import hashlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from tests.calls.session_host import SessionHost
from tests.crash.gateway_process import Endpoint, Json
from tests.ports import free_port
from tests.postgres_server import PostgresServer, server_folder
from tests.replicas.proxies import Proxy, round_robin

from openclaw_a2a.auth.tokens import TokenKind, TokenStore
from openclaw_a2a.settings import TOKENS_FILE

ROOT = Path(__file__).parents[2]
START_DEADLINE_S = STOP_DEADLINE_S = 180.0
PEERS = ("alice", "bob")


def peer_token(name: str) -> str:
    return f"token-of-{name}"


class Replica:
    """A gateway process with a port, a folder and a link to the database of its own."""

    def __init__(self, folder: Path, name: str, arguments: list[str]) -> None:
        self.name = name
        self.folder = folder
        self.port = free_port()
        self.database: Proxy | None = None
        self.config = folder / "gateway.json5"
        self._log = folder / "log.txt"
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def spawn(self) -> None:
        """Start, and do not wait."""
        module = "tests.replicas.replica_server"
        command = [sys.executable, "-m", module, str(self.config), self.name, *self._arguments]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT
            )

    async def start(self) -> None:
        """Start and wait until it is ready to serve."""
        self.spawn()
        await self.wait_ready()

    async def wait_ready(self) -> None:
        async with asyncio.timeout(START_DEADLINE_S):
            while not await self._is_ready():
                if self._process is not None and self._process.poll() is not None:
                    self.spawn()
                await asyncio.sleep(0.02)  # the process tells nobody when it is ready

    async def _is_ready(self) -> bool:
        with suppress(OSError):
            async with asyncio.timeout(2):
                return b'"ready":true' in await Endpoint(self.port).request("GET", "/readyz", b"")
        return False

    def kill(self) -> None:
        """End the process without warning."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """End the process as a service manager does, and wait until it has ended."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(STOP_DEADLINE_S)

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def output(self) -> str:
        """Everything it has printed since its first start."""
        return self._log.read_text(encoding="utf-8") if self._log.exists() else ""


class Cluster:
    """The running replicas and what is around them."""

    def __init__(
        self, folder: Path, *, count: int, lease_s: float, variants: str = "", plans: bool = False
    ) -> None:
        """`plans`: agents work through plans, too."""
        self.folder = folder
        self.has_plans = plans
        self._variants = variants
        self.lease_s = lease_s
        self.host = SessionHost()
        self.database = PostgresServer(server_folder(secrets.token_hex(8)))
        self.journal = folder / "agents.jsonl"
        self.journal.touch()
        self.replicas: list[Replica] = []
        self._count = count
        self.front_port = 0
        self.tool_token = ""

    def settings_of(self, replica: Replica) -> Json:
        """The settings file of a replica. All of them are the same but for ports and folders."""
        assert replica.database is not None
        store: Json = {
            "kind": "postgres",
            "url": f"postgres://postgres@127.0.0.1:{replica.database.port}/postgres",
            "schema": "replicas",
            "connections": 4,
        }
        sections: Json = {}
        if self._count > 1:
            store.update(replicas=True, replicaName=replica.name)
            sections["lease"] = {"seconds": self.lease_s}
        agents = ("repeatable", "fragile", "hybrid", "asker", "worker")
        accounts = {
            "default": {"defaultAgentId": "repeatable", "agentStyle": "task-generating"},
            "fragile": {"defaultAgentId": "fragile", "agentStyle": "task-generating"},
            "hybrid": {"defaultAgentId": "hybrid", "agentStyle": "hybrid"},
        }
        return {
            **sections,
            "server": {"port": replica.port, "stopSeconds": 0},
            "data": str(replica.folder),
            "store": store,
            "log": {"format": "json"},
            "agents": {name: {"adapter": "echo"} for name in agents},
            "channels": {"a2a": {"accounts": accounts, "security": {"peers": _peers()}}},
            "tools": {"agentToAgent": {"enabled": True, "allow": ["*"]}},
            "opt": {"enabled": self.has_plans, "requireActivation": False, "backoffSeconds": 0.05},
            "limits": {
                "perPeerRate": 0,
                "perPeerRequests": 0,
                "perPeerRuns": 60,
                "cancelSeconds": 120,  # a cancellation outlasts the faults
            },
        }

    async def open(self, stack: AsyncExitStack) -> None:
        """Start everything; the stack stops it."""
        host_port = await self.host.open()
        stack.push_async_callback(self.host.close)
        await asyncio.to_thread(self.database.create)
        stack.push_async_callback(asyncio.to_thread, self.database.remove)
        await asyncio.to_thread(self.database.start)
        for number in range(self._count):
            name = f"replica-{number}"
            arguments = [str(self.journal), str(host_port), self._variants]
            replica = Replica(self.folder / name, name, arguments)
            await self._connect(replica, stack)
            self.replicas.append(replica)
            stack.callback(_end, replica)
        self._share_token()
        await asyncio.gather(*(replica.start() for replica in self.replicas))
        front = Proxy(round_robin([replica.port for replica in self.replicas]))
        await front.open()
        stack.push_async_callback(front.close)
        self.front_port = front.port

    async def _connect(self, replica: Replica, stack: AsyncExitStack) -> None:
        replica.database = Proxy(lambda: [self.database.port])
        await replica.database.open()
        stack.push_async_callback(replica.database.close)
        replica.config.write_text(json.dumps(self.settings_of(replica)), encoding="utf-8")

    def _share_token(self) -> None:
        """One tool token for all: an operator copies the file, or has it on a shared disk."""
        first, *others = self.replicas
        self.tool_token = TokenStore(first.folder).create("host", TokenKind.HOST)
        for other in others:
            shutil.copy(first.folder / TOKENS_FILE, other.folder / TOKENS_FILE)

    def outputs(self) -> dict[str, str]:
        return {replica.name: replica.output() for replica in self.replicas}


def _end(replica: Replica) -> None:
    with suppress(ProcessLookupError, AssertionError):
        replica.resume()
        replica.kill()


def _peers() -> Json:
    return {
        name: {"tokens": ["sha256:" + hashlib.sha256(peer_token(name).encode()).hexdigest()]}
        for name in PEERS
    }


@asynccontextmanager
async def running_cluster(
    folder: Path, *, count: int, lease_s: float, variants: str = "", plans: bool = False
) -> AsyncIterator[Cluster]:
    """A cluster until the block ends; `variants.py` has the names of its variants."""
    async with AsyncExitStack() as stack:
        cluster = Cluster(folder, count=count, lease_s=lease_s, variants=variants, plans=plans)
        await cluster.open(stack)
        yield cluster


# ---------------------------------------------------------------- nginx

_NGINX = """
daemon off;
worker_processes 1;
error_log {folder}/nginx-error.log;
pid {folder}/nginx.pid;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  include {config};
}}
"""


def _balancer(cluster: "Cluster", port: int) -> str:
    """The configuration of `deploy/`, for these replicas."""
    text = (ROOT / "deploy" / "nginx.conf").read_text(encoding="utf-8")
    names = re.findall(r"^  server ([\w.:-]+) ", text, re.MULTILINE)
    first = text.index(f"  server {names[0]} ")
    line = text[first : text.index("\n", first) + 1]
    servers = "".join(
        line.replace(names[0], f"127.0.0.1:{replica.port}") for replica in cluster.replicas
    )
    rest = re.sub(r"^  server [\w.:-]+ .*\n", "", text, flags=re.MULTILINE)
    rest = rest[:first] + servers + rest[first:]
    return re.sub(r"listen \d+;", f"listen 127.0.0.1:{port};", rest)


@asynccontextmanager
async def nginx_in_front(cluster: Cluster, program: str) -> AsyncIterator[int]:
    """The port of an nginx in front of the replicas, without sticky sessions."""
    port, folder = free_port(), cluster.folder
    balancer, config = folder / "balancer.conf", folder / "nginx.conf"
    balancer.write_text(_balancer(cluster, port), encoding="utf-8")
    config.write_text(_NGINX.format(folder=folder, config=balancer), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        *(program, "-p", str(folder), "-e", str(folder / "nginx-error.log"), "-c", str(config)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(START_DEADLINE_S):
            while not await _takes_connections(port):
                assert process.returncode is None, (folder / "nginx-error.log").read_text("utf-8")
                await asyncio.sleep(0.02)  # the process tells nobody when it is ready
        yield port
    finally:
        process.terminate()
        await process.wait()


async def _takes_connections(port: int) -> bool:
    with suppress(OSError):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        return True
    return False


# ---------------------------------------------------------------- times


async def repeat_until(
    done: Callable[[], Awaitable[bool]], *, deadline_s: float, pause_s: float = 0.02
) -> bool:
    """Ask again and again; False when the time is over."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        if await done():
            return True
        await asyncio.sleep(pause_s)  # other processes work, and tell nobody when they are done
    return False
