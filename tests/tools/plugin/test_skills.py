"""What the skills tell models and agents to do works."""

import json
import re
import shlex
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cyclopts import App
from tests.ports import free_port
from tests.tools.plugin.conftest import Machine

from openclaw_a2a.auth.tokens import TokenStore
from openclaw_a2a.cli.dispatch import build_commands
from openclaw_a2a.tools.openclaw_plugin import PLUGIN_FOLDER, PLUGIN_ID

Json = Any
SKILLS = {folder.name: folder / "SKILL.md" for folder in (PLUGIN_FOLDER / "skills").iterdir()}
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`(openclaw-a2a [^`]+)`")
AGENT = Path(__file__).with_name("asking_agent.py")
PLACE = '"<summary.continuation>"'
DEADLINE_S = 240.0


def blocks(skill: str, language: str) -> list[str]:
    text = SKILLS[skill].read_text("utf-8")
    return [body for kind, body in BLOCK.findall(text) if kind == language]


NAMES = {"remote-agents", "agent-calls", "objectives", "openclaw-a2a-gateway"}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_skill_has_a_name_and_one_line_about_it(name: str) -> None:
    text = SKILLS[name].read_text("utf-8")
    head = re.match(r"---\nname: ([a-z0-9-]+)\ndescription: (.+)\n---\n", text)
    assert head is not None
    assert head[1] == name
    assert len(head[2]) < 160
    assert len(text) < 5000


def test_the_manifest_names_the_folder_of_the_skills() -> None:
    assert set(SKILLS) == NAMES
    assert json.loads((PLUGIN_FOLDER / "openclaw.plugin.json").read_text("utf-8"))["skills"] == [
        "./skills"
    ]


@pytest.fixture
def ops(tmp_path: Path) -> Iterator[str]:
    """A remote agent that answers, and asks back when it is to check hosts."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, AGENT, str(port), str(tmp_path / "ops")],
        stdin=subprocess.DEVNULL,
        cwd=tmp_path,
    )
    url = f"http://127.0.0.1:{port}"
    wait_until(lambda: is_ready(f"{url}/readyz"))
    yield url
    process.terminate()
    process.wait(240)


def is_ready(url: str) -> bool:
    with suppress(OSError):
        urllib.request.urlopen(url, timeout=2).close()
        return True
    return False


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)  # another process has to do it; nothing here can be awaited


@pytest.mark.requirement("remote.tool.skills")
def test_the_documented_calls_work_one_after_the_other(
    start_gateway: Callable[..., Json], ops: str, tmp_path: Path
) -> None:
    target = {"alias": "ops", "baseUrl": ops, "default": True}
    outbound = {"enabled": True, "targets": [target]}
    ours = start_gateway(
        {"data": str(tmp_path), "agents": {"a": {"adapter": "echo"}}, "outbound": outbound}
    )
    token = TokenStore(tmp_path).create("model")

    def call(text: str, continuation: Json = None) -> Json:
        body = text.replace(PLACE, json.dumps(continuation))
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        address = f"{ours.url}/tools/remote_agent"
        answer = httpx2.post(address, content=body, headers=headers, timeout=240).json()
        assert answer["ok"] is True, answer
        return answer["summary"]

    list_targets, ask, give_away, status, answer_it = blocks("remote-agents", "json")
    assert [one["target_alias"] for one in call(list_targets)["targets"]] == ["ops"]
    assert call(ask)["message_text"] == "release 5"
    kept = call(give_away)["continuation"]

    def is_paused() -> bool:
        return call(status, kept)["continuation"]["task"]["status"] == "input-required"

    wait_until(is_paused)
    done = call(answer_it, kept)
    assert "checked after yes, go ahead" in done["message_text"]
    after = done["continuation"]
    assert after["task"]["can_send"] is False
    more = {"target": after["target"], "conversation": after["conversation"]}
    assert call(answer_it, more)["message_text"] == "release 5"


HELPER = """
import json, sys
asked = json.loads(sys.stdin.read())
print(json.dumps({"output": asked["input"], "confidence": 0.8}))
"""


def test_the_documented_agent_calls_work_one_after_the_other(
    start_gateway: Callable[..., Json], tmp_path: Path
) -> None:
    command = [sys.executable, "-c", HELPER]
    helper = {"adapter": "command", "command": command, "input": "stdin"}
    ours = start_gateway(
        {
            "data": str(tmp_path),
            "agents": {"main": {"adapter": "echo"}, "helper": helper},
            "tools": {"agentToAgent": {"enabled": True, "allow": ["*"]}},
        }
    )
    token = TokenStore(tmp_path).create("model")
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}

    def call(tool: str, text: str) -> Json:
        address = f"{ours.url}/tools/{tool}"
        return httpx2.post(address, content=text, headers=headers, timeout=240).json()

    list_skills, ask, look = blocks("agent-calls", "json")
    known = call("agent_call", list_skills)["output"]["skills"]
    assert [one["name"] for one in known] == ["ping", "list_skills"]
    pending = call("agent_call", ask)
    assert pending["status"] == "pending"
    asked = look.replace("<correlationId>", pending["correlationId"])
    wait_until(lambda: call("agent_poll", asked)["status"] != "working")
    assert call("agent_poll", asked)["output"] == json.loads(ask)["input"]


def test_the_skill_documents_every_tool_for_calls() -> None:
    manifest = json.loads((PLUGIN_FOLDER / "openclaw.plugin.json").read_text("utf-8"))
    about_calls = {"agent_call", "agent_call_batch", "debate_call", "agent_poll"}
    assert about_calls <= set(manifest["contracts"]["tools"])
    text = SKILLS["agent-calls"].read_text("utf-8")
    assert [name for name in about_calls if f"`{name}`" not in text] == []


def test_the_documented_plans_work_one_after_the_other(
    start_gateway: Callable[..., Json], tmp_path: Path
) -> None:
    ours = start_gateway(
        {
            "data": str(tmp_path),
            "agents": {"main": {"adapter": "echo"}, "helper": {"adapter": "echo"}},
            "opt": {"enabled": True, "tools": True},
        }
    )
    token = TokenStore(tmp_path).create("model")
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    known: dict[str, str] = {}

    def call(tool: str, text: str) -> Json:
        for place, name in known.items():
            text = text.replace(place, name)
        address = f"{ours.url}/tools/{tool}"
        answer = httpx2.post(address, content=text, headers=headers, timeout=240).json()
        assert answer["status"] == "ok", answer
        return answer

    create, plan, run, look, read, change = blocks("objectives", "json")
    known["<objective.id>"] = call("objective_create", create)["objective"]["id"]
    made = call("plan_create", plan)["plan"]
    known |= {"<plan.id>": made["id"], "<task.id>": made["tasks"][0]["id"]}
    changed = call("plan_update", change)["plan"]
    assert changed["tasks"][0]["description"] == "Two are enough."
    call("objective_update", run)
    wait_until(lambda: call("objective_status", look)["objective"]["status"] == "completed")
    assert "List venues" in call("step_read", read)["result"]
    assert call("objective_status", "{}")["totalSize"] == 1


def test_the_skill_documents_every_tool_for_plans() -> None:
    manifest = json.loads((PLUGIN_FOLDER / "openclaw.plugin.json").read_text("utf-8"))
    tools = {
        name for name in manifest["contracts"]["tools"] if re.match("objective_|plan_|step_", name)
    }
    assert len(tools) == 7
    text = SKILLS["objectives"].read_text("utf-8")
    assert [name for name in tools if f"`{name}`" not in text] == []


@pytest.fixture
def app() -> App:
    return build_commands()


def commands() -> list[list[str]]:
    """The commands that agents are shown, in blocks and in sentences."""
    text = SKILLS["openclaw-a2a-gateway"].read_text("utf-8")
    lines = [line[2:] for line in console("openclaw-a2a-gateway")]
    return [shlex.split(line) for line in [*lines, *INLINE.findall(text)]]


def console(skill: str) -> list[str]:
    return [line for block in blocks(skill, "console") for line in block.splitlines()]


def test_the_documented_commands_exist(app: App) -> None:
    assert len(commands()) > 8
    for program, *words in commands():
        assert program == "openclaw-a2a"
        app.parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.requirement("remote.tool.skills")
def test_the_commands_lead_to_a_gateway_that_calls_the_remote_agent(
    machine: Machine, ops: str, monkeypatch
) -> None:
    monkeypatch.setenv("OPS_TOKEN", "secret")
    shown = [line[2:] for line in console("openclaw-a2a-gateway")]
    adding, *configuring, _doctor, check = [shlex.split(line) for line in shown]
    file = machine.home / "openclaw-a2a.json5"
    machine.settings()
    for _, *words in [adding, *configuring, check]:
        code, printed = machine.run(
            *[word.replace("https://ops.example.org", ops) for word in words]
        )
        assert code == 0, printed
        if words == adding[1:]:
            assert "outbound.enabled" in printed
            text = file.read_text("utf-8")
            assert text.count("targets: [") == 1
            file.write_text(text.replace("targets: [", "enabled: true, targets: ["), "utf-8")
    assert [line.split(" ")[0] for line in machine.said] == ["plugins", "config"]
    assert "secret" not in file.read_text("utf-8")


def test_the_plugin_is_called_what_openclaw_calls_it() -> None:
    text = SKILLS["openclaw-a2a-gateway"].read_text("utf-8")
    named = re.findall(r"openclaw plugins (?:reload|uninstall) ([\w-]+)", text)
    assert named == [PLUGIN_ID, PLUGIN_ID]


def test_every_reason_that_agents_can_look_up_is_one_the_plugin_gives() -> None:
    table = SKILLS["openclaw-a2a-gateway"].read_text("utf-8")
    source = (PLUGIN_FOLDER / "index.js").read_text("utf-8")
    for reason in ("gateway_unreachable", "token_refused", "token_unreadable"):
        assert f"`{reason}`" in table
        assert f'"{reason}"' in source
