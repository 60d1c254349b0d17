"""`serve_agent` in real processes: outside and inside an event loop, and its errors."""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from urllib.parse import urlsplit

import httpx2
import pytest
from tests.agents.processes import is_alive

from openclaw_a2a import serve_agent

pytestmark = pytest.mark.slow

FAKE = Path(__file__).parents[1] / "agents" / "openclaw_cli" / "fake_openclaw.py"
PYTHON_0_3 = Path(__file__).parents[2] / ".dev" / "client-0.3" / "bin" / "python"

ADAPTER = """
import asyncio
from openclaw_a2a import AgentAdapter, load_a2a_agent, serve_agent, register_adapter

@register_adapter("loud")
class Loud(AgentAdapter):
    async def invoke(self, user_input, context_id=None, **kwargs):
        return user_input.upper()

    async def close(self):
        print("closed", flush=True)
"""
PLAIN = """
serve_agent(Loud(), **options)
print("left", flush=True)
"""
AWAITED = """
async def main():
    adapter = await load_a2a_agent({"adapter": "loud"})
    serve_agent(adapter=adapter, **options)
    print("left", flush=True)

asyncio.run(main())
"""


@contextmanager
def script(body, *, variables=None, **options):
    """A process that runs the script; it is ended by a signal, in order."""
    source = f"{ADAPTER}\noptions = {options!r}\n{body}"
    with subprocess.Popen(
        [sys.executable, "-c", source],
        env={**os.environ, **(variables or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def address_of(process):
    for line in process.stderr:
        event = json.loads(line)
        if event["event"] == "gateway.ready":
            return event["url"]
    raise AssertionError("it never logged where it listens")


def ask(url, **headers):
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    envelope = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    return httpx2.post(url, json=envelope, headers=headers, timeout=240)


@pytest.mark.parametrize("body", [PLAIN, AWAITED], ids=["outside a loop", "inside a loop"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_agent_returns_after_a_signal(body, number):
    with script(body, port=0) as process:
        url = address_of(process)
        task = ask(url).json()["result"]["task"]
        assert task["status"]["message"]["parts"] == [{"text": "HI"}]
        process.send_signal(number)
        output, _ = process.communicate(timeout=240)
        assert output.split() == ["closed", "left"]
        assert process.returncode == 0


@pytest.mark.parametrize("body", [PLAIN, AWAITED], ids=["outside a loop", "inside a loop"])
def test_port_in_use_is_reported(body):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with script(body, port=taken.getsockname()[1]) as process:
            _, errors = process.communicate(timeout=240)
    assert process.returncode == 1
    assert "is taken" in errors


@pytest.fixture
def with_openclaw(tmp_path):
    """Variables with which a small `openclaw` is on the path."""
    program = tmp_path / "bin" / "openclaw"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable} -IS\n{FAKE.read_text(encoding='utf-8')}")
    program.chmod(0o755)
    (tmp_path / "state").mkdir()
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "OPENCLAW_STATE_DIR": str(tmp_path / "state")}


def test_example_of_the_contract_serves_openclaw_as_written(with_openclaw):
    source = dedent("""
        async def main():
            adapter = await load_a2a_agent(
                {"adapter": "openclaw", "session_id": "demo", "agent_id": "main", "thinking": "low"}
            )
            serve_agent(adapter=adapter, **options)

        asyncio.run(main())
    """)
    with script(source, variables=with_openclaw, port=0) as process:
        url = address_of(process)
        card = httpx2.get(f"{url}.well-known/agent-card.json", timeout=240).json()
        task = ask(url).json()["result"]["task"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == 0
    assert task["artifacts"][0]["parts"] == [{"text": "echo: hi"}]
    assert card["url"] == url
    assert card["capabilities"]["pushNotifications"] is True


@pytest.mark.requirement("adapter.server.wildcard")
@pytest.mark.parametrize("insisted", [{"auth": "secret"}, {"allow_anonymous": True}])
def test_wildcard_host_is_localhost_on_the_card(insisted):
    with script(PLAIN, host="0.0.0.0", port=0, **insisted) as process:
        url = address_of(process)
        card = httpx2.get(f"{url}.well-known/agent-card.json", timeout=240).json()
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == 0
    assert card["url"].startswith("http://localhost:")


def test_card_of_a_wildcard_host_names_the_host_by_which_it_is_asked_for():
    with script(PLAIN, host="0.0.0.0", port=0, auth="secret") as process:
        address = f"{address_of(process)}.well-known/agent-card.json"
        headers = {"host": "agents.example.com:8080"}
        card = httpx2.get(address, headers=headers, timeout=240).json()
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == 0
    urls = [card["url"], *(one["url"] for one in card["supportedInterfaces"])]
    assert {urlsplit(url).netloc for url in urls} == {"agents.example.com:8080"}


@pytest.mark.requirement("adapter.server.strangers")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "agents.example.com"])
def test_host_that_others_reach_is_refused_without_authentication(host):
    with pytest.raises(ValueError, match="auth=") as refused:
        serve_agent(str.upper, host=host, port=0)
    assert "allow_anonymous=True" in str(refused.value)


def test_options_of_the_app_and_of_the_card_are_taken():
    with script(PLAIN, port=0, auth="secret", name="Shouter") as process:
        url = address_of(process)
        assert ask(url).status_code == 401
        answer = ask(url, authorization="Bearer secret")
        card = httpx2.get(f"{url}.well-known/agent.json", timeout=240).json()
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == 0
    assert answer.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert card["name"] == "Shouter"


def test_given_card_is_served_unchanged():
    card = {"name": "Given", "url": "https://given.example.com/"}
    with script(PLAIN, port=0, agent_card=card) as process:
        url = address_of(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == 0
    assert url == "https://given.example.com/"


@pytest.mark.parametrize(
    ("options", "reason"), [({"log_level": "loud"}, "log_level"), ({"colour": "red"}, "colour")]
)
def test_wrong_option_is_reported(options, reason):
    with script(PLAIN, port=0, **options) as process:
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 1
    assert reason in errors


OLD_CLIENT = """
import asyncio, json, sys
import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import Message, Part, Role, TextPart

async def main(url):
    async with httpx.AsyncClient(timeout=240) as http:
        card = await A2ACardResolver(http, url.rstrip("/")).get_agent_card()
        client = ClientFactory(ClientConfig(httpx_client=http)).create(card)
        message = Message(message_id="m", role=Role.user, parts=[Part(root=TextPart(text="hi"))])
        async for task, _ in client.send_message(message):
            pass
    print(json.dumps([card.name, task.status.state.value, task.artifacts[0].name]))

asyncio.run(main(sys.argv[1]))
"""


def test_official_client_of_the_old_generation_is_answered():
    assert PYTHON_0_3.exists(), "the environment of a2a-sdk 0.3 is not there; `./dev test` makes it"
    with script(PLAIN, port=0) as process:
        url = address_of(process)
        done = subprocess.run(
            [PYTHON_0_3, "-c", OLD_CLIENT, url], capture_output=True, text=True, timeout=240
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == 0
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == '["Loud", "completed", "response"]'


CODER = """
import sys
from openclaw_a2a.agents import ProgramAdapter

class Slow(ProgramAdapter):
    def build_command(self, message, context_key):
        source = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid()))"
        source += "; time.sleep(600)"
        return [sys.executable, "-c", source, message], False

    def parse_output(self, stdout, context_key):
        return stdout, None

serve_agent(Slow(), **options)
"""


def test_after_a_kill_the_next_start_leaves_no_program_and_no_working_task(tmp_path):
    place, options = tmp_path / "pid", {"port": 0, "task_store": str(tmp_path / "tasks.db")}
    os.mkfifo(place)
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": str(place)}]}
    body = {"message": message, "configuration": {"returnImmediately": True}}
    with script(CODER, **options) as first:
        url = address_of(first)
        task = httpx2.post(f"{url}message:send", json=body, timeout=240).json()["task"]
        pid = int(place.read_text())
        first.kill()
    assert is_alive(pid)
    with script(CODER, **options) as second:
        url = address_of(second)
        assert not is_alive(pid)
        seen = httpx2.get(f"{url}tasks/{task['id']}", timeout=240).json()
        second.send_signal(signal.SIGTERM)
        assert second.wait(240) == 0
    assert seen["status"]["state"] == "TASK_STATE_FAILED"
