"""A real OpenClaw gateway and its model, each in its own process, for tests and benchmarks."""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from tests.openclaw.install import cache_folder, environment, installed
from tests.ports import free_port

Json = Any

AGENTS = ("main", "helper")
FAKE_LLM = Path(__file__).with_name("fake_llm.py")
START_DEADLINE_S = 300.0
MOST_STARTS = 5
TURN_DEADLINE_S = 300.0
WARM_UP_S = 90.0
STOP_DEADLINE_S = 240.0
WAIT_S = 240.0


class FakeModel:
    """The model behind OpenClaw: what it was asked, and when it goes on. See fake_llm.py."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, FAKE_LLM], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()

    def stats(self) -> Json:
        """`requests`, `active`, `max_active` and `client_gone` since it started."""
        return _get_json(f"{self.url}/stats")

    def requests(self, marker: str = "", *, outcome: str = "") -> list[Json]:
        """The requests whose last user message or session key contains the marker, oldest first."""
        return _get_json(f"{self.url}/requests?{urlencode({'marker': marker, 'outcome': outcome})}")

    def wait_for(
        self, marker: str, *, outcome: str = "", count: int = 1, within_s: float = WAIT_S
    ) -> list[Json]:
        """The same, as soon as there are so many. Fails the test when they do not come."""
        wanted = {"marker": marker, "outcome": outcome, "count": count, "wait": within_s}
        found = _get_json(f"{self.url}/requests?{urlencode(wanted)}", timeout_s=within_s + 10)
        assert len(found) >= count, f"{len(found)} of {count} {outcome} requests with {marker}"
        return found

    def release(self, name: str) -> None:
        """Let go whoever waits for `hold:NAME` or `halt:NAME`, now and later."""
        asked = urllib.request.Request(f"{self.url}/release/{quote(name)}", method="POST")
        urllib.request.urlopen(asked, timeout=240).close()

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


class OpenClaw:
    """A gateway on one port and state folder, with the agents `main` and `helper`.

    `start`, `kill` and `stop` may follow each other; port, token and state stay.
    """

    def __init__(self, folder: Path, model: FakeModel, extra: Json | None = None) -> None:
        self.folder = folder
        self.model = model
        self.token = secrets.token_hex(16)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.ws_url = f"ws://127.0.0.1:{self.port}"
        self.program = installed()
        self.config = folder / "openclaw.json"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        config = merged(_configuration(folder, self.port, self.token, model.url), extra or {})
        self.config.write_text(json.dumps(config, indent=2), encoding="utf-8")

    @property
    def pid(self) -> int:
        """The process of the gateway itself."""
        assert self._process is not None, "OpenClaw is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """True from its start to its end."""
        return self._process is not None and self._process.poll() is None

    @property
    def env(self) -> dict[str, str]:
        """The environment in which the program `openclaw` finds this gateway and its state."""
        return {
            **environment(),
            "HOME": str(self.folder),
            "OPENCLAW_STATE_DIR": str(self.folder),
            "OPENCLAW_CONFIG_PATH": str(self.config),
        }

    def workspace(self, agent_id: str) -> Path:
        """The folder in which an agent works."""
        return self.folder / f"workspace-{agent_id}"

    def spawn(self) -> None:
        """Start, and do not wait."""
        assert self._process is None, "OpenClaw runs already"
        # Compiled code is kept between runs. Told that this was arranged by its own launcher,
        # OpenClaw does not start itself once more to arrange it, and our child is the gateway.
        kept = str(cache_folder() / "node-compile-cache")
        compiled = {"NODE_COMPILE_CACHE": kept, "OPENCLAW_PACKAGED_COMPILE_CACHE_RESPAWNED": "1"}
        with (self.folder / "gateway.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.program, "gateway", "run"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**self.env, **compiled},
            )

    def start(self) -> None:
        """Start and wait until it is ready."""
        self.spawn()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Return when it answers turns.

        OpenClaw gives up its own start when a worker of it is not up within 5 s, which happens on
        a busy machine and cannot be configured. Then it is started again.
        """
        deadline = time.monotonic() + START_DEADLINE_S
        starts = 1
        while time.monotonic() < deadline:
            assert self._process is not None
            if self._process.poll() is not None:
                assert starts < MOST_STARTS, f"OpenClaw ended:\n{self.output()}"
                starts += 1
                self.stop()
                self.spawn()
            with suppress(OSError, ValueError):
                if _get_json(f"{self.url}/readyz", timeout_s=10).get("ready"):
                    return
            time.sleep(0.1)  # another process becomes ready; nothing here can be awaited
        raise AssertionError(f"OpenClaw was not ready in {START_DEADLINE_S} s:\n{self.output()}")

    def warm_up(self) -> None:
        """One turn with each agent, since the first one takes seconds.

        One after the other: on a busy machine OpenClaw may give up an agent's database when its
        first turns meet its own maintenance, and only a new start mends that. Then its turns fail,
        or are never answered.
        """
        for _ in range(3):
            with suppress(AssertionError, TimeoutError):
                self._ask_everybody(WARM_UP_S)
                return
            self.stop()
            self.start()
        self._ask_everybody(TURN_DEADLINE_S)

    def _ask_everybody(self, within_s: float) -> None:
        for agent_id in AGENTS:
            self.chat(agent_id, "warm-up", within_s=within_s)

    def chat(
        self,
        agent_id: str,
        text: str,
        *,
        session_key: str | None = None,
        within_s: float = TURN_DEADLINE_S,
    ) -> str:
        """The answer to one message, over OpenClaw's own HTTP endpoint."""
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
        if session_key is not None:
            headers["x-openclaw-session-key"] = session_key
        messages = [{"role": "user", "content": text}]
        body = json.dumps({"model": f"openclaw/{agent_id}", "messages": messages}).encode()
        asked = urllib.request.Request(f"{self.url}/v1/chat/completions", body, headers)
        answer = _get_json(asked, timeout_s=within_s)
        assert "choices" in answer, f"OpenClaw answered {answer}:\n{self.output()}"
        return answer["choices"][0]["message"]["content"]

    def kill(self) -> None:
        """End it without warning, as a crash would."""
        process, self._process = self._process, None
        if process is not None:
            left = descendants(process.pid)
            process.kill()
            process.wait()
            _end_left(left)

    def stop(self) -> None:
        """Ask it to stop, insist after seconds: with a run under way it would take minutes."""
        process, self._process = self._process, None
        if process is None:
            return
        left = descendants(process.pid)
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_DEADLINE_S)
        process.kill()
        process.wait()
        _end_left(left)

    def output(self) -> str:
        """The end of what it has printed since its first start."""
        return (self.folder / "gateway.log").read_text("utf-8", errors="replace")[-8000:]


def descendants(pid: int) -> list[int]:
    """The children of a process and theirs, as they are now."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(folder.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def is_alive(pid: int) -> bool:
    """True while a process runs; a dead one that nobody has reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _end_left(pids: Iterable[int]) -> None:
    """End what a killed OpenClaw leaves: its own children follow it late, or not at all."""
    left = [pid for pid in pids if is_alive(pid)]
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + STOP_DEADLINE_S
    while any(map(is_alive, left)):
        assert time.monotonic() < deadline, f"processes of OpenClaw outlived it: {left}"
        time.sleep(0.02)  # they are not our children; nothing tells when they end


def _configuration(folder: Path, port: int, token: str, model_url: str) -> Json:
    entries = {
        agent: {
            "workspace": str(folder / f"workspace-{agent}"),
            "identity": {"name": agent.title()},
        }
        for agent in AGENTS
    }
    model = {
        "id": "fake-1",
        "name": "Fake 1",
        "reasoning": True,
        "input": ["text", "image"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": 128000,
        "maxTokens": 4096,
    }
    provider = {"apiKey": "fake", "api": "openai-completions", "models": [model]}
    endpoints = {"chatCompletions": {"enabled": True}, "responses": {"enabled": True}}
    return {
        "gateway": {
            "mode": "local",
            "bind": "loopback",
            "port": port,
            "auth": {"mode": "token", "token": token},
            "controlUi": {"enabled": False},
            "http": {"endpoints": endpoints},
        },
        "discovery": {"mdns": {"mode": "off"}},
        "logging": {"file": str(folder / "openclaw.log")},
        "tools": {"toolSearch": False, "exec": {"host": "gateway", "mode": "ask"}},
        "agents": {
            "ownership": "explicit",
            "defaults": {
                "model": {"primary": "fake/fake-1"},
                "workspace": str(folder / "workspace"),
                "skipBootstrap": True,
            },
            "entries": entries,
        },
        "models": {
            "mode": "merge",
            "providers": {"fake": {"baseUrl": f"{model_url}/v1", **provider}},
        },
    }


def merged(config: Json, extra: Json) -> Json:
    """The configuration with what `extra` says differently, at any depth."""
    if not (isinstance(config, dict) and isinstance(extra, dict)):
        return extra
    changed = {key: merged(config.get(key), value) for key, value in extra.items()}
    return {**config, **changed}


def _get_json(url: str | urllib.request.Request, *, timeout_s: float = WAIT_S) -> Json:
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            return json.load(refused)
