"""OpenClaw with our plugin, as `connect openclaw` installs it, and everything it can reach."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.conftest import GatewayProcess, free_port
from tests.openclaw.conftest import TOKEN_NAME, settings_for
from tests.openclaw.openclaw_process import FakeModel, OpenClaw

Json = Any
OPENCLAW_A2A = str(Path(sys.executable).with_name("openclaw-a2a"))
REMOTE_AGENT = Path(__file__).with_name("remote_agent.py")
PEER_TOKEN = "the-token-of-this-peer"
DEADLINE_S = 240.0


class Call:
    """One connection of the plugin to our gateway: what it sent, and whether it left early."""

    def __init__(self) -> None:
        self.sent = b""
        self.is_left = threading.Event()

    @property
    def headers(self) -> dict[str, str]:
        lines = self.sent.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
        return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}

    @property
    def arguments(self) -> Json:
        return json.loads(self.sent.partition(b"\r\n\r\n")[2])


class Wire:
    """Stands between the plugin and our gateway and sees what passes."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.behind = 0
        self._calls: list[Call] = []
        threading.Thread(target=self._take, daemon=True).start()

    def calls(self, marker: str) -> list[Call]:
        """The calls of tools that contain the marker."""
        wanted = marker.encode()
        return [one for one in self._calls if one.sent.startswith(b"POST") and wanted in one.sent]

    def close(self) -> None:
        self._listening.close()

    def _take(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        call = Call()
        self._calls.append(call)
        try:
            server = socket.create_connection(("127.0.0.1", self.behind))
        except OSError:
            client.close()
            return
        back = threading.Thread(target=_pump, args=(server, client), daemon=True)
        back.start()
        with suppress(OSError):
            while piece := client.recv(65536):
                call.sent += piece
                server.sendall(piece)
        call.is_left.set()
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        back.join()
        server.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
    target.close()


class PluginInstallation:
    """OpenClaw A with the plugin; our gateway `ours`, whose targets are:

    echo     our own inbound, where an agent echoes
    remote   the agent of remote_agent.py
    helper   our inbound on another port, in front of OpenClaw's agent `helper`
    channel  OpenClaw's own A2A channel
    """

    def __init__(self, folder: Path, openclaw: OpenClaw) -> None:
        self.openclaw = openclaw
        self.wire = Wire()
        self.folder = folder
        self.helper = GatewayProcess(
            folder / "helper", settings_for(openclaw), {TOKEN_NAME: openclaw.token}
        )
        self.remote_port = free_port()
        self.our_gateway = GatewayProcess(folder / "ours", {}, {"HOME": str(folder / "ours")})
        self.wire.behind = self.our_gateway.port
        self.our_gateway.config.write_text(json.dumps(self._settings()), "utf-8")

    def _settings(self) -> Json:
        targets = [
            {"alias": "echo", "baseUrl": self.our_gateway.url, "default": True},
            {"alias": "remote", "baseUrl": f"http://127.0.0.1:{self.remote_port}"},
            {"alias": "helper", "baseUrl": f"{self.helper.url}/agents/helper"},
            {
                "alias": "channel",
                "baseUrl": self.openclaw.url,
                "auth": {"type": "bearer", "token": PEER_TOKEN},
            },
        ]
        echo = {"default": {"defaultAgentId": "echo", "agentStyle": "task-generating"}}
        return {
            # What the plugin is told; `up` listens behind the wire.
            "server": {"port": self.wire.port},
            "openclaw": {"configPath": str(self.openclaw.config), "expose": ["main"]},
            "agents": {"echo": {"adapter": "echo"}},
            "channels": {"a2a": {"accounts": echo}},
            "outbound": {"enabled": True, "targets": targets},
        }

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One of our commands, with OpenClaw's program around."""
        env = {**self.openclaw.env, "HOME": str(self.our_gateway.home)}
        env["PATH"] = os.pathsep.join([str(Path(self.openclaw.program).parent), env["PATH"]])
        return subprocess.run(
            [OPENCLAW_A2A, *words, "--config", str(self.our_gateway.config)],
            cwd=self.our_gateway.home,
            env=env,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )

    def ask_openclaw(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One of OpenClaw's commands."""
        return subprocess.run(
            [self.openclaw.program, *words],
            cwd=self.folder,
            env=self.openclaw.env,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )


def channel_config() -> Json:
    """What OpenClaw's config needs for its own A2A channel, and for knowing who owns what."""
    match = {"channel": "a2a", "accountId": "default"}
    return {
        "agents": {"defaults": {"systemAgent": {"agentId": "main"}}},
        "bindings": [{"agentId": "helper", "match": match}],
        "channels": {
            "a2a": {
                "enabled": True,
                "rateLimitPerMinute": 0,
                "peers": {"us": {"token": PEER_TOKEN}},
            }
        },
    }


@contextmanager
def installed_plugin(folder: Path, model: FakeModel) -> Generator[PluginInstallation]:
    """All of it, running; the plugin was put there by our own command."""
    openclaw = OpenClaw(folder / "openclaw", model, channel_config())
    bed = PluginInstallation(folder, openclaw)
    remote: subprocess.Popen[bytes] | None = None
    try:
        connected = bed.run("connect", "openclaw")
        assert connected.returncode == 0, connected.stdout + connected.stderr
        remote = subprocess.Popen(
            [sys.executable, REMOTE_AGENT, str(bed.remote_port), str(folder / "remote")],
            stdin=subprocess.DEVNULL,
            cwd=folder,
        )
        bed.our_gateway.start()
        openclaw.start()
        bed.helper.start()
        openclaw.warm_up()
        _wait_until_ready(f"http://127.0.0.1:{bed.remote_port}/readyz")
        yield bed
    finally:
        bed.helper.stop()
        openclaw.stop()
        bed.our_gateway.stop()
        bed.wire.close()
        if remote is not None:
            remote.terminate()
            remote.wait(20)


def _wait_until_ready(url: str) -> None:
    def is_ready() -> bool:
        with suppress(OSError):
            urllib.request.urlopen(url, timeout=2).close()
            return True
        return False

    wait_until(is_ready)


def wait_until(is_so: Callable[[], bool]) -> None:
    """Return when it is so. Fails the test when it does not become so."""
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)  # other processes have to do it; nothing here can be awaited
