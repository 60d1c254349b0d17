"""What the README, the tutorial and the how-tos show really happens."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pyjson5
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from tests.docs.pages import ROOT, Block, all_blocks, blocks, commands, text_of
from tests.ports import free_port

from openclaw_a2a.agents import CallableAgent, build_agent
from openclaw_a2a.app import build_app
from openclaw_a2a.model.agent_event import InputRequired, Note, Reply, TextDelta, ToolProgress
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.turn import Binding, Peer, Turn
from openclaw_a2a.settings import load_settings

COMMAND = str(Path(sys.executable).with_name("openclaw-a2a"))
TUTORIAL = "docs/tutorial/first-agent.md"
FUNCTIONS = "docs/howto/serve-a-function.md"
TOKENS = "docs/howto/give-peers-tokens.md"
PROGRAMS = "docs/howto/serve-a-program.md"
RESUME = "docs/howto/resume-a-stream.md"
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TURN_AROUND = "import sys; print(sys.stdin.read()[::-1])"
DEADLINE_S = 240.0


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("LANG",) if name in os.environ}
    # With our command on it: hints name it as the pages do.
    kept["PATH"] = os.pathsep.join((str(Path(COMMAND).parent), os.environ["PATH"]))
    return {**kept, "HOME": str(home), "NO_COLOR": "1", **more}


def run(*words: str, home: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *words],
        cwd=home,
        env=environment(home, **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.02)  # another process has to do it; nothing here can be awaited


def is_ready(url: str) -> bool:
    with suppress(OSError):
        urllib.request.urlopen(f"{url}/readyz", timeout=2).close()
        return True
    return False


@contextmanager
def script(text: str, home: Path) -> Iterator[str]:
    """Run a script that serves, on a free port instead of its own; its address."""
    port = free_port()
    file = home / "script.py"
    file.write_text(re.sub(r"port=\d+", f"port={port}", text), encoding="utf-8")
    assert f"port={port}" in file.read_text(encoding="utf-8")
    log = home / "script.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(file)],
            cwd=home,
            env=environment(home),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: process.poll() is not None or is_ready(url), "serving")
        assert process.poll() is None, log.read_text(encoding="utf-8")
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE_S)
    assert "Traceback" not in log.read_text(encoding="utf-8")


# ------------------------------------------------------------------------------- the README


@pytest.mark.slow
def test_readme_shows_what_up_prints(start_gateway: Any) -> None:
    gateway = start_gateway(env={"PATH": os.defpath})
    printed = gateway.output().replace(f" --url {gateway.url}", "")
    printed = printed.replace(COMMAND, ".venv/bin/openclaw-a2a")
    printed = printed.replace(gateway.url, "http://127.0.0.1:9900").replace(
        str(gateway.home), "/your/home"
    )
    printed = re.sub(r"code=[\w-]+", "code=...", printed)
    assert printed == text_of("text", "README.md", "is ready")
    assert printed in text_of("console", TUTORIAL, "is ready")


@pytest.mark.slow
def test_readme_shows_what_send_prints(start_gateway: Any, tmp_path: Path) -> None:
    gateway = start_gateway()
    shown = text_of("console", "README.md", "echo: hello").partition("\n")[2]
    sent = run("send", "--url", gateway.url, "hello", home=tmp_path)
    assert UUID.sub("ID", sent.stdout) == UUID.sub("ID", shown)
    assert sent.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", PROGRAMS])
def test_program_answers_as_the_page_shows(page: str, start_gateway: Any, tmp_path: Path) -> None:
    config = pyjson5.decode(text_of("json5", page, "reverser"))
    config["agents"]["reverser"]["command"] = [sys.executable, "-c", TURN_AROUND]
    gateway = start_gateway(config)
    shown = text_of("console", page, "olleh").partition("\n")[2]
    sent = run("send", "--url", gateway.url, "hello", home=tmp_path)
    assert UUID.sub("ID", sent.stdout) == UUID.sub("ID", shown)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", TUTORIAL, FUNCTIONS])
def test_ten_line_script_serves_a_function(page: str, tmp_path: Path) -> None:
    with script(text_of("python", page, "Shouter"), tmp_path) as url:
        sent = run("send", "--url", url, "--json", "quiet please", home=tmp_path)
        card = run("card", url, home=tmp_path)
    *_, last = [json.loads(line) for line in sent.stdout.splitlines()]
    assert last["statusUpdate"]["status"]["message"]["parts"] == [{"text": "QUIET PLEASE "}]
    assert card.stdout.startswith("Shouter ")


@pytest.mark.slow
def test_readme_calls_with_the_official_sdk(start_gateway: Any, tmp_path: Path) -> None:
    gateway = start_gateway()
    text = text_of("python", "README.md", "a2a.client").replace(
        "http://127.0.0.1:9900", gateway.url
    )
    called = subprocess.run(
        [sys.executable, "-c", text],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert called.stderr == ""
    assert called.stdout.splitlines()[-1] == "status_update echo: hello"


class Visitor:
    """Somebody who types what the README says, from its beginning to its end, in one folder."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._port = free_port()
        self._server: subprocess.Popen[bytes] | None = None
        self.printed: dict[str, str] = {}

    def follow(self, block: Block) -> None:
        """Save a file, or type commands."""
        text = block.text.replace("9900", str(self._port))
        if block.language == "json5":
            self._save("openclaw-a2a.json5", text)
        elif block.language == "python":
            self._save("shouter.py" if "serve(" in text else "client.py", text)
        elif block.language == "console":
            joined = text.replace("\\\n", " ")
            for typed in re.findall(r"^\$ (.+)$", joined, flags=re.MULTILINE):
                self._type(shlex.split(typed, comments=True))

    def stop(self) -> None:
        """Ctrl-C in the first terminal."""
        if self._server is not None:
            self._server.send_signal(signal.SIGINT)
            self._server.wait(DEADLINE_S)
            self._server = None

    def _save(self, name: str, text: str) -> None:
        (self._home / name).write_text(text, encoding="utf-8")

    def _type(self, words: list[str]) -> None:
        first = words[0].rpartition("/")[2]
        if words[1:2] == ["up"]:
            self._start([COMMAND, "up"])
        elif words[-1] == "shouter.py":
            self._start([sys.executable, "shouter.py"])
        elif first == "python":
            self._run([sys.executable, *words[1:]], words[-1])
        elif words[1:2] != ["connect"]:  # which needs an OpenClaw
            assert first == "openclaw-a2a", words
            self._run([COMMAND, *words[1:]], " ".join(words[1:]))

    def _start(self, command: list[str]) -> None:
        self.stop()  # as the page says before each of them
        with (self._home / "server.log").open("wb") as log:
            self._server = server = subprocess.Popen(
                command, cwd=self._home, env=self._variables(), stdout=log, stderr=log
            )
        url = f"http://127.0.0.1:{self._port}"
        wait_until(lambda: server.poll() is not None or is_ready(url), "serving")
        assert server.poll() is None, (self._home / "server.log").read_text(encoding="utf-8")

    def _run(self, command: list[str], name: str) -> None:
        done = subprocess.run(
            command,
            cwd=self._home,
            env=self._variables(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, f"{name}:\n{done.stdout}{done.stderr}"
        self.printed[name] = done.stdout

    def _variables(self) -> dict[str, str]:
        return environment(
            self._home,
            OPENCLAW_A2A_SERVER__PORT=str(self._port),
            OPENCLAW_A2A_OPENCLAW__ENABLED="false",
        )


@pytest.mark.slow
def test_readme_examples_work_one_after_the_other(tmp_path: Path) -> None:
    visitor = Visitor(tmp_path)
    try:
        for block in all_blocks("README.md"):
            visitor.follow(block)
    finally:
        visitor.stop()
    assert visitor.printed["send hello"].endswith("olleh\n")
    assert visitor.printed["client.py"].splitlines()[-1] == "status_update olleh"
    assert "neerg dliub" in visitor.printed["remote send is the build green"]
    assert "list_skills" in visitor.printed["call reverser list_skills --wait"]


@pytest.mark.slow
async def test_readme_snippet_for_mcp_works_from_a_checkout(tmp_path: Path) -> None:
    """From any folder: programs that speak MCP start it in a folder of their own."""
    snippet = json.loads(text_of("json", "README.md", "mcpServers"))
    (server,) = snippet["mcpServers"].values()
    checkout = tmp_path / "checkout"
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / ".venv" / "bin" / "openclaw-a2a").symlink_to(COMMAND)
    settings = pyjson5.decode(text_of("json5", "README.md", "reverser"))
    settings["outbound"]["targets"] = [{"alias": "ops", "baseUrl": "http://127.0.0.1:9"}]
    settings["server"] = {"port": free_port()}
    file = checkout / "openclaw-a2a.json5"
    file.write_text(json.dumps(settings), encoding="utf-8")
    command, *arguments = [
        word.replace("/path/to/checkout", str(checkout))
        for word in (server["command"], *server["args"])
    ]
    parameters = StdioServerParameters(
        command=command, args=arguments, cwd=tmp_path, env=environment(tmp_path)
    )
    with (tmp_path / "mcp.log").open("w") as log:
        async with Client(stdio_client(parameters, errlog=log)) as client:
            tools = (await client.list_tools()).tools
    assert "remote_agent" in {tool.name for tool in tools}


def test_readme_tells_how_to_install() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    for command in ("uvx openclaw-a2a", "pipx install openclaw-a2a", "pip install openclaw-a2a"):
        assert command in page


# ------------------------------------------------------------------------------- the tutorial


@pytest.mark.slow
def test_tutorial_kills_the_gateway_and_the_task_goes_on(start_gateway: Any) -> None:
    gateway = start_gateway(pyjson5.decode(text_of("json5", TUTORIAL, "counter")))
    program = text_of("python", TUTORIAL, "range").replace("sleep(1)", "sleep(0.1)")
    (gateway.home / "counter.py").write_text(program, encoding="utf-8")
    said = gateway.home / "sender.log"
    with said.open("wb") as output:
        sender = subprocess.Popen(
            [COMMAND, "send", "--url", gateway.url, "count"],
            env=environment(gateway.home),
            stdout=output,
            stderr=output,
        )
    try:
        wait_until(lambda: b"\n3\n" in said.read_bytes(), "counting")
        gateway.kill()
        wait_until(lambda: b"was lost; trying again" in said.read_bytes(), "noticing")
        gateway.start()
        assert sender.wait(DEADLINE_S) == 0
    finally:
        sender.kill()
        sender.wait()
    lines = said.read_text(encoding="utf-8").splitlines()
    counted = [line for line in lines if line.isdigit()]
    assert counted == [*map(str, range(1, 21))]  # none lost, none twice
    assert lines[-1] == "completed"


@pytest.mark.slow
def test_tutorial_keeps_two_callers_apart(start_gateway: Any, tmp_path: Path) -> None:
    tokens = {"ALICE_TOKEN": "alice-has-a-long-token", "BOB_TOKEN": "bob-has-another-long-one"}
    for name, token in tokens.items():
        assert f"{name}={token}" in text_of("console", TUTORIAL, "export ALICE_TOKEN")
    config = pyjson5.decode(text_of("json5", TUTORIAL, "alice"))
    gateway = start_gateway(config, env=tokens)

    def ask(*words: str, token: str | None = None) -> str:
        more = {"OPENCLAW_A2A_TOKEN": tokens[token]} if token else {}
        return run(*words, home=tmp_path, OPENCLAW_A2A_URL=gateway.url, **more).stdout

    assert ask("send", "hello") == text_of("console", TUTORIAL, "error ").partition("\n")[2]
    assert "echo: a secret" in ask("send", "a secret", token="ALICE_TOKEN")
    assert "echo: a secret" in ask("tasks", "list", token="ALICE_TOKEN")
    assert ask("tasks", "list", token="BOB_TOKEN") in text_of("console", TUTORIAL, "No tasks")


# ------------------------------------------------------------------------------- the how-tos


@pytest.mark.slow
def test_tokens_work_as_the_page_says(start_gateway: Any, tmp_path: Path) -> None:
    config = pyjson5.decode(text_of("json5", TOKENS, "task-generating"))
    exported = text_of("console", TOKENS, "export ").splitlines()[0].split()[2:]
    tokens = dict(one.split("=") for one in exported)
    gateway = start_gateway(config, env=tokens)
    call, answer = text_of("console", TOKENS, "echo: hello").splitlines()
    token = call.split()[1].removeprefix("OPENCLAW_A2A_TOKEN=")
    sent = run("send", "--url", gateway.url, "hello", home=tmp_path, OPENCLAW_A2A_TOKEN=token)
    assert answer in sent.stdout.splitlines()


def read_events(response: httpx2.Response) -> list[tuple[int, dict[str, Any]]]:
    events: list[tuple[int, dict[str, Any]]] = []
    for frame in response.text.split("\n\n"):
        match = re.fullmatch(r"id: (\d+)\ndata: (.*)", frame)
        if match:
            events.append((int(match[1]), json.loads(match[2])))
    return events


def curl(words: list[str], http: httpx2.Client, task_id: str) -> httpx2.Response:
    """What the curl of the page would do, with the task that we have."""
    headers = dict(
        words[index + 1].split(": ", 1) for index, word in enumerate(words) if word == "-H"
    )
    body = words[words.index("-d") + 1] if "-d" in words else None
    path = next(word for word in words if word.startswith("http")).partition(":9900")[2]
    path = UUID.sub(task_id, path)
    return http.request("POST" if body else "GET", path, headers=headers, content=body)


@pytest.mark.slow
def test_stream_is_resumed_as_the_page_says(start_gateway: Any) -> None:
    gateway = start_gateway()
    send, resume = [words for _, words in commands(RESUME)]
    with httpx2.Client(base_url=gateway.url, timeout=DEADLINE_S) as http:
        sent = read_events(curl(send, http, ""))
        task_id = sent[0][1]["task"]["id"]
        resumed = read_events(curl(resume, http, task_id))
        again = read_events(curl([*send, "-H", "Last-Event-ID: 2"], http, ""))
    assert [number for number, _ in sent] == list(range(len(sent)))
    assert resumed == sent[3:]
    assert again == sent[3:]
    shown = [re.findall(r"^id: (\d+)", one.text, re.MULTILINE) for one in blocks("console", RESUME)]
    assert [int(number) for page in shown for number in page] == [number for number, _ in sent]


@pytest.mark.slow
def test_accounts_are_served_as_the_page_says(start_gateway: Any, tmp_path: Path) -> None:
    config = pyjson5.decode(text_of("json5", "docs/howto/several-accounts.md", "reverser"))
    config["agents"]["reverser"]["command"] = [sys.executable, "-c", TURN_AROUND]
    gateway = start_gateway(config)
    sent = run("send", "--url", f"{gateway.url}/agents/reverser", "hello", home=tmp_path)
    assert "olleh" in sent.stdout.splitlines()
    assert sent.stdout.startswith("task ")


def defined(text: str, place: str) -> dict[str, Any]:
    """What a snippet defines, without running its `__main__` part."""
    names: dict[str, Any] = {"__name__": "snippet"}
    exec(compile(text, place, "exec"), names)
    return names


@pytest.fixture
def ask() -> Callable[..., Awaitable[list[Any]]]:
    """Ask an agent one thing."""

    async def run_agent(agent: Any, text: str, resume: Any = None) -> list[Any]:
        now = datetime.now(UTC)
        binding = Binding(
            "main",
            "default",
            "agent:main:a2a:local:c",
            "agent:main:main",
            Peer("c", "context-id"),
            now,
            now,
        )
        message = Message("m", Role.USER, (Part(text=text),))
        turn = Turn("r", "t", "c", message, binding, "local", body=text, resume=resume)
        return [event async for event in agent.run(turn)]

    return run_agent


async def test_functions_on_the_page_answer(ask: Any) -> None:
    named, both, files, tools, safe = (
        defined(block.text, block.place)["answer"]
        for block in blocks("python", FUNCTIONS)
        if "Shouter" not in block.text
    )
    assert await ask(CallableAgent(named), "Rome") == [Reply.of_text("In Rome it rains.")]
    [reply] = await ask(CallableAgent(both), "hi")
    assert reply == Reply.of_text("local said 'hi' in session agent:main:a2a:local:c")
    [reply] = await ask(CallableAgent(files), "hi")
    assert [part.kind for part in reply.parts] == ["text", "file", "data"]
    *first, pause = await ask(CallableAgent(tools), "old mails")
    assert [type(event) for event in first] == [Note, ToolProgress, ToolProgress]
    assert pause == InputRequired("Delete all three?", {"wanted": "old mails"})
    assert await ask(CallableAgent(tools), "yes", pause.resume) == [TextDelta("Deleted: old mails")]
    assert await ask(CallableAgent(safe), "abc") == [Reply.of_text("cba")]


@pytest.mark.usefixtures("own_adapters")
async def test_agents_on_the_page_answer(ask: Any) -> None:
    own, adapter = blocks("python", "docs/reference/agents.md")
    counter = defined(own.text, own.place)["Counter"]()
    assert [type(event) for event in await ask(counter, "go")] == [Note, *[TextDelta] * 3]
    defined(adapter.text, adapter.place)
    greeting = build_agent("greeting", {"greeting": "good day"}, environment=None)
    assert await ask(greeting, "hi") == [Reply.of_text("good day, local")]


async def test_agent_of_the_page_serves_tasks(tmp_path: Path) -> None:
    own = blocks("python", "docs/reference/agents.md")[0]
    counter = defined(own.text, own.place)["Counter"]()
    file = tmp_path / "openclaw-a2a.json5"
    file.write_text('{ store: { kind: "memory" } }', encoding="utf-8")
    settings = load_settings(file, environ={}).settings
    async with build_app(settings, agents={"main": counter}) as gateway:
        transport = httpx2.ASGITransport(gateway.asgi)
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:9900"
        ) as http:
            message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]}
            answer = await http.post("/a2a/rest/message:send", json={"message": message})
    assert answer.json()["task"]["artifacts"][0]["artifactId"] == "assistant-output-0001"
    assert answer.json()["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
