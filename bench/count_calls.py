#!/usr/bin/env python3
"""Counts the files and Python calls that one operation takes, which no noise of a machine changes.

  .venv/bin/python bench/count_calls.py                             this checkout
  .venv/bin/python bench/count_calls.py --python OTHER/.venv/bin/python     another one
  .venv/bin/python bench/count_calls.py send --files                the files, in order of entry
  .venv/bin/python bench/count_calls.py send --calls                every call, in order
  .venv/bin/python bench/count_calls.py remote_send --libraries     with those of libraries

A gateway process counts the calls of functions of `openclaw_a2a` (all threads) between two
marks; operations come over loopback. The smallest count of several rounds is printed, because
a background loop may wake up in the middle of one. `--libraries` counts all functions written in
Python: work that moved from a library into the package, or out of it, does not change that count.
"""

import argparse
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

Json = Any

ROUNDS = 5
CHUNKS, CALLS, STEPS = 50, 5, 5
ACCOUNT = {"defaultAgentId": "main", "agentStyle": "task-generating"}
SETTLE_S, MOST_S = 0.5, 30.0
EXTENSION = "https://github.com/zeroasterisk/a2a-opt/v1"


# ------------------------------------------------------------------ the gateway that counts


class Counter:
    """Records calls between a byte on one pipe and the next; answers each on the other pipe.

    A thread reads the pipe, so that counting starts and stops although the event loop sleeps.
    """

    def __init__(self, target: Path, commands: int, answers: int, *, with_libraries: bool) -> None:
        self._target = target
        self._commands, self._answers = commands, answers
        self._with_libraries = with_libraries
        self._calls: list[tuple[str, str]] = []
        self._is_counting = False
        threading.Thread(target=self._listen, daemon=True).start()
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def _profile(self, frame: Json, event: str, _argument: Json) -> None:
        if event != "call" or not self._is_counting:
            return
        code = frame.f_code
        _, found, module = code.co_filename.rpartition("/openclaw_a2a/")
        if self._with_libraries:
            self._calls.append((module if found else code.co_filename, code.co_name))
        elif found and not code.co_name.startswith("<"):
            self._calls.append((module, code.co_name))

    def _listen(self) -> None:
        while os.read(self._commands, 1):
            self._is_counting = not self._is_counting
            if not self._is_counting:
                self._target.write_text(json.dumps(self._calls), encoding="utf-8")
                self._calls.clear()
            os.write(self._answers, b"x")


class CountedAgent:
    """Answers `chunks:N` in N pieces, anything else at once; leaves a mark for each run."""

    def __init__(self, marks: Path) -> None:
        from openclaw_a2a.ports import Recovery

        self.recovery = Recovery.REPEAT
        self._marks = marks

    async def run(self, turn: Json) -> AsyncIterator[Json]:
        """Answer the turn."""
        import asyncio

        from openclaw_a2a.model.agent_event import Reply, TextDelta

        kind, _, count = turn.body.partition(":")
        with self._marks.open("ab") as marks:
            marks.write(b"x")
        if kind != "chunks":
            yield Reply.of_text('{"output": "done", "confidence": 0.9}')
            return
        for _ in range(int(count)):
            yield TextDelta("0123456789")
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Nothing is held."""


def serve(
    port: int, data: Path, peer_url: str, pipes: tuple[int, int], *, with_libraries: bool
) -> None:
    """Serve a gateway that counts until it is killed."""
    if "openclaw_a2a.model.agent_event" not in sys.modules:
        _alias_old_modules()
    from openclaw_a2a.app import build_app, serve_gateway
    from openclaw_a2a.model.ids import AgentId
    from openclaw_a2a.settings import load_settings

    config = data / "count.json5"
    settings: Json = {
        "server": {"port": port, "stopSeconds": 0},
        "data": str(data),
        "log": {"level": "error"},
        "agents": {"main": {"adapter": "echo"}, "callee": {"adapter": "echo"}},
        "channels": {
            "a2a": {
                "accounts": {"default": {"defaultAgentId": "main", "agentStyle": "task-generating"}}
            }
        },
        "tools": {"agentToAgent": {"enabled": True, "allow": ["*"]}},
        "opt": {"enabled": True},
    }
    if peer_url:
        target = {"alias": "peer", "baseUrl": peer_url, "default": True}
        settings["outbound"] = {"enabled": True, "targets": [target]}
    config.write_text(json.dumps(settings), encoding="utf-8")
    Counter(data / "calls.json", *pipes, with_libraries=with_libraries)
    loaded = load_settings(config, overrides={}, environ={})
    agents = {AgentId(name): CountedAgent(data / "ran") for name in ("main", "callee")}
    serve_gateway(loaded, lambda found: build_app(found, agents=agents))


def _alias_old_modules() -> None:
    """Let checkouts from before `model.agent_event` be counted too."""
    import importlib.util

    if importlib.util.find_spec("openclaw_a2a.model.agent_event") is None:
        import openclaw_a2a.model.reply as old

        sys.modules["openclaw_a2a.model.agent_event"] = old


# ------------------------------------------------------------------ the operations


@contextmanager
def in_one_packet(connection: http.client.HTTPConnection) -> Iterator[None]:
    """Send head and body together: a body that comes alone makes calls of its own."""
    if connection.sock is None:
        connection.connect()
    cork = getattr(socket, "TCP_CORK", None) or socket.TCP_NOPUSH  # Linux, others
    connection.sock.setsockopt(socket.IPPROTO_TCP, cork, 1)
    yield
    connection.sock.setsockopt(socket.IPPROTO_TCP, cork, 0)


class Gateway:
    """A running gateway that counts."""

    def __init__(self, port: int, pipes: tuple[int, int], data: Path, python: str) -> None:
        self.port = port
        self._commands, self._answers = pipes
        self._data, self._python = data, python
        self._token = ""
        # Kept open, one for each thread: a new connection takes calls of its own.
        self._kept = threading.local()

    def counted(self, operation: Callable[[], None]) -> list[tuple[str, str]]:
        """The calls of one operation."""
        self._switch()
        operation()
        self._switch()
        calls: Json = json.loads((self._data / "calls.json").read_text("utf-8"))
        return [(file, name) for file, name in calls]

    def runs(self) -> int:
        """How often an agent has been run."""
        marks = self._data / "ran"
        return marks.stat().st_size if marks.exists() else 0

    def _switch(self) -> None:
        os.write(self._commands, b"x")
        os.read(self._answers, 1)

    def post(self, path: str, body: Json, *, method: str = "POST", **headers: str) -> Json:
        """One request; the decoded answer, or the text of a stream."""
        if not hasattr(self._kept, "connection"):
            self._kept.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection: http.client.HTTPConnection = self._kept.connection
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        data = None if body is None else json.dumps(body)
        with in_one_packet(connection):
            connection.request(method, path, data, {"Content-Type": "application/json", **named})
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == 200, (answer.status, text[:500])
        is_stream = (answer.getheader("Content-Type") or "").startswith("text/event-stream")
        return text if is_stream or method == "GET" else json.loads(text)

    def rpc(self, method: str, params: Json, **headers: str) -> Json:
        """A JSON-RPC request; its result."""
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = self.post("/a2a/jsonrpc", call, A2A_Version="1.0", **headers)
        if isinstance(answer, bytes):
            return answer
        assert "result" in answer, answer
        return answer["result"]

    def tool(self, name: str, request: Json) -> Json:
        """A call of a tool in a session of `main`."""
        if not self._token:
            self._token = self._create_token()
        return self.post(
            f"/tools/{name}",
            request,
            Authorization=f"Bearer {self._token}",
            X_OpenClaw_Agent_Id="main",
            X_OpenClaw_Session_Key="agent:main:main",
        )

    def _create_token(self) -> str:
        code = (
            "import sys; from pathlib import Path\n"
            "try:\n from openclaw_a2a.auth.tokens import TokenKind, TokenStore\n"
            " tokens = TokenStore(Path(sys.argv[1]))\n"
            "except ImportError:\n"  # an earlier version of the gateway
            " try:\n  from openclaw_a2a.auth.tool_tokens import TokenKind, ToolTokens\n"
            " except ImportError:\n  from openclaw_a2a.tools.tokens import TokenKind, ToolTokens\n"
            " tokens = ToolTokens(Path(sys.argv[1]) / 'tool-tokens.json')\n"
            "print(tokens.create('host', TokenKind.HOST))"
        )
        command = [self._python, "-c", code, str(self._data)]
        return subprocess.check_output(command, text=True).strip()


def message(text: str) -> Json:
    """Parameters of a send."""
    return {
        "message": {
            "messageId": uuid.uuid4().hex,
            "role": "ROLE_USER",
            "parts": [{"text": text}],
        }
    }


def send(gateway: Gateway) -> None:
    """A blocking send."""
    gateway.rpc("SendMessage", message("hello"))


def get(gateway: Gateway) -> Callable[[], None]:
    """Get a task that has ended."""
    task_id = gateway.rpc("SendMessage", message("hello"))["task"]["id"]

    def run() -> None:
        found = gateway.rpc("GetTask", {"id": task_id})
        assert found["id"] == task_id, found

    run()  # so that the counted request has the head of the one before
    return run


def stream(gateway: Gateway, chunks: int) -> None:
    """A streamed answer in so many pieces."""
    gateway.rpc("SendStreamingMessage", message(f"chunks:{chunks}"))


def agent_call(gateway: Gateway, calls: int = 1) -> None:
    """Calls between agents whose answers are waited for, one after the other, to the last commit.

    That they were delivered is committed after the answer.
    """
    request = {"agent": "callee", "skill": "work", "input": {"n": 1}, "wait": True}
    for _ in range(calls):
        answer = gateway.tool("agent_call", request)
        assert "done" in json.dumps(answer), answer
    time.sleep(SETTLE_S)


def remote_send(gateway: Gateway) -> None:
    """A send to a remote agent."""
    request = {"action": "send", "target_alias": "peer", "parts": [{"kind": "text", "text": "hi"}]}
    answer = gateway.tool("remote_agent", request)
    assert answer["ok"], answer


def plan(gateway: Gateway, steps: int) -> Callable[[], None]:
    """Run an objective of so many steps in a chain, to its end."""
    objectives = {"A2A_Extensions": EXTENSION}
    made = gateway.rpc("objectives/create", {"name": "count"}, **objectives)
    objective_id = made["objective"]["id"]
    tasks = [
        {
            "name": f"step {number}",
            "description": "do it",
            **({"dependencies": [f"task-{number - 1}"]} if number else {}),
        }
        for number in range(steps)
    ]
    given = {"objectiveId": objective_id, "name": "plan", "tasks": tasks}
    gateway.rpc("plans/create", given, **objectives)

    def run() -> None:
        before = gateway.runs()
        gateway.rpc("objectives/run", {"id": objective_id}, **objectives)
        # Nothing is asked of the gateway meanwhile: that would be counted too.
        deadline = time.monotonic() + MOST_S
        while gateway.runs() < before + steps:
            assert time.monotonic() < deadline, "the steps were not run"
            time.sleep(0.05)
        time.sleep(SETTLE_S)

    return run


# ------------------------------------------------------------------ counting


def smallest(gateway: Gateway, make: Callable[[], Callable[[], None]]) -> list[tuple[str, str]]:
    """The calls of the round with the fewest, after two rounds that warm everything up."""
    for _ in range(2):
        make()()
    return min((gateway.counted(make()) for _ in range(ROUNDS)), key=len)


def summary(calls: list[tuple[str, str]]) -> Json:
    """How many files, functions, calls, and changes from file to file."""
    files = [file for file, _ in calls]
    return {
        "files": len(set(files)),
        "functions": len(set(calls)),
        "calls": len(calls),
        "switches": sum(one != other for one, other in pairwise(files)),
    }


def per_unit(few: list[tuple[str, str]], many: list[tuple[str, str]], units: int) -> Json:
    """What each further unit costs; its files are those entered more often with more units."""
    counts: dict[tuple[str, str], int] = {}
    for call in many:
        counts[call] = counts.get(call, 0) + 1
    for call in few:
        counts[call] = counts.get(call, 0) - 1
    repeated = [call for call, count in counts.items() if count >= units]
    return {
        "files": len({file for file, _ in repeated}),
        "functions": len(repeated),
        "calls": round((len(many) - len(few)) / units, 1),
    }


def count(gateway: Gateway, names: list[str], *, shows: str) -> Json:
    """The counts of the chosen operations."""
    plain: Json = {
        "send": lambda: lambda: send(gateway),
        "get": lambda: get(gateway),
        "remote_send": lambda: lambda: remote_send(gateway),
    }
    # Counted with more and with fewer of them: what the gateway does beside them goes away.
    repeated: Json = {
        "chunk": (CHUNKS, lambda count: lambda: stream(gateway, count)),
        "agent_call": (CALLS, lambda count: lambda: agent_call(gateway, count)),
        "plan_step": (STEPS, lambda count: plan(gateway, count)),
    }
    figures: Json = {}
    for name in names:
        if name in plain:
            calls = smallest(gateway, plain[name])
            figures[name] = summary(calls)
            if shows == "files":
                figures[name]["order"] = list(dict.fromkeys(file for file, _ in calls))
            elif shows == "calls":
                figures[name]["order"] = [f"{file} {function}" for file, function in calls]
        else:
            units, make = repeated[name]
            few = smallest(gateway, lambda make=make, units=units: make(units))
            many = smallest(gateway, lambda make=make, units=units: make(2 * units))
            figures[name] = per_unit(few, many, units)
            if shows == "calls":
                figures[name]["order"] = [f"{file} {function}" for file, function in few]
    return figures


@contextmanager
def started(
    python: str, data: Path, peer_url: str = "", *, with_libraries: bool = False
) -> Iterator[Gateway]:
    """A gateway process, until the block ends."""
    from servers import free_port, wait_for_port

    data.mkdir()
    port = free_port()
    (theirs, commands), (answers, own) = os.pipe(), os.pipe()
    command = [python, __file__, "serve", str(port), str(data), peer_url, str(theirs), str(own)]
    command += ["libraries"] * with_libraries
    with (data / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=data, stdout=log, stderr=log, pass_fds=(theirs, own)
        )
        try:
            wait_for_port(port, process, data / "log")
            yield Gateway(port, (commands, answers), data, python)
        finally:
            process.kill()
            process.wait()


OPERATIONS = ("send", "get", "chunk", "agent_call", "plan_step", "remote_send")


def count_operations(
    names: Sequence[str],
    python: str = sys.executable,
    shows: str = "",
    *,
    with_libraries: bool = False,
) -> Json:
    """The counts of operations, in gateways that are started for it."""
    with tempfile.TemporaryDirectory(prefix="a2a-count-") as folder:
        data = Path(folder)
        with started(python, data / "peer") as peer:
            url = f"http://127.0.0.1:{peer.port}"
            with started(python, data / "counted", url, with_libraries=with_libraries) as gateway:
                return count(gateway, list(names), shows=shows)


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("operations", nargs="*", metavar="OPERATION", help=", ".join(OPERATIONS))
    parser.add_argument("--python", default=sys.executable, help="of the checkout to count")
    shows = parser.add_mutually_exclusive_group()
    for name in ("files", "calls"):
        shows.add_argument(
            f"--{name}",
            dest="shows",
            action="store_const",
            const=name,
            help=f"list the {name}, too",
        )
    parser.add_argument("--libraries", action="store_true", help="count their calls, too")
    args = parser.parse_args()
    chosen = args.operations or list(OPERATIONS)
    if unknown := [name for name in chosen if name not in OPERATIONS]:
        parser.error(f"no such operation: {', '.join(unknown)}")
    figures = count_operations(chosen, args.python, args.shows, with_libraries=args.libraries)
    for name, row in figures.items():
        order = row.pop("order", ())
        print(f"{name:12} " + "  ".join(f"{key} {value}" for key, value in row.items()))
        for file in order:
            print(f"    {file}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(
            int(sys.argv[2]),
            Path(sys.argv[3]),
            sys.argv[4],
            (int(sys.argv[5]), int(sys.argv[6])),
            with_libraries=sys.argv[7:] == ["libraries"],
        )
    else:
        main()
