"""Agents by id, and adapters by name."""

import importlib.metadata
import sys

import anyio
import msgspec
import pytest

from openclaw_a2a.agents import AgentRegistry, build_agent, register_adapter
from openclaw_a2a.agents.echo import EchoAgent
from openclaw_a2a.agents.process.command_agent import CommandAgent
from openclaw_a2a.agents.registry import adapter_names
from openclaw_a2a.model.errors import AgentUnavailable, SettingsInvalid

ADAPTERS = ("callable", "command", "echo", "openclaw", "openclaw-gateway")


pytestmark = pytest.mark.usefixtures("own_adapters")


class GreetingOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    greeting: str = "hi"


class GreetingAgent(EchoAgent):
    options_type = GreetingOptions

    @classmethod
    def from_options(cls, options, *, environment):
        agent = cls()
        agent.made_of = (options.greeting, environment)
        return agent


class ClosingAgent(EchoAgent):
    def __init__(self, how="well"):
        self.how, self.is_closed = how, False

    async def close(self):
        if self.how == "badly":
            raise RuntimeError("no")
        self.is_closed = True


def test_agent_is_found_by_its_id():
    echo = EchoAgent()
    assert AgentRegistry({"main": echo})["main"] is echo


def test_unknown_agent_is_refused_with_the_known_ones():
    with pytest.raises(AgentUnavailable, match=r"nobody.*: b, main\."):
        AgentRegistry({"main": EchoAgent(), "b": EchoAgent()})["nobody"]


async def test_agent_that_cannot_be_closed_delays_no_other(caplog):
    well, badly = ClosingAgent(), ClosingAgent("badly")
    with anyio.fail_after(240):
        await AgentRegistry({"bad": badly, "good": well}).close()
    assert well.is_closed
    assert "bad" in caplog.text


def test_built_in_adapters_are_known():
    assert adapter_names() == ADAPTERS
    assert isinstance(build_agent("echo", {}, environment=None), EchoAgent)
    made = build_agent("command", {"command": ["true"]}, environment=None, path="agents.x")
    assert isinstance(made, CommandAgent)


async def test_options_and_environment_reach_the_program(text, make_turn):
    source = "import os, sys; print(os.environ['ONLY'], sys.argv[1])"
    options = {"command": [sys.executable, "-c", source], "timeoutSeconds": 20}
    agent = build_agent("command", options, environment={"ONLY": "this"})
    assert await text(agent, make_turn()) == "this hello\n"


def test_unknown_adapter_is_refused_with_the_known_ones():
    with pytest.raises(SettingsInvalid) as caught:
        build_agent("comand", {}, environment=None, path="agents.x")
    assert [problem.path for problem in caught.value.problems] == ["agents.x.adapter"]
    assert ", ".join(ADAPTERS) in caught.value.message


def test_every_problem_of_the_options_is_listed():
    options = {
        "command": ["a", 1, None],
        "input": "file",
        "timeoutSecond": 1,
        "timeoutSeconds": 0,
        "env": {"TOKEN": 12345},
        "repeatable": "yes",
        "maxOutputBytes": 1.5,
        "killGraceSeconds": -1,
        "cwd": 4,
    }
    with pytest.raises(SettingsInvalid) as caught:
        build_agent("command", options, environment=None, path="agents.x")
    problems = {problem.path: problem.message for problem in caught.value.problems}
    assert set(problems) == {
        "agents.x.timeoutSecond",
        "agents.x.command[1]",
        "agents.x.command[2]",
        "agents.x.input",
        "agents.x.timeoutSeconds",
        "agents.x.env.TOKEN",
        "agents.x.repeatable",
        "agents.x.maxOutputBytes",
        "agents.x.killGraceSeconds",
        "agents.x.cwd",
    }
    assert "timeoutSeconds" in problems["agents.x.timeoutSecond"]
    assert "12345" not in caught.value.message


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({}, "agents.x.command"),
        ({"command": []}, "agents.x.command"),
        ({"command": "echo hello"}, "agents.x.command"),
        ({"command": ["a"], "timeoutSeconds": float("inf")}, "agents.x.timeoutSeconds"),
        ({"command": ["a"], "timeoutSeconds": float("nan")}, "agents.x.timeoutSeconds"),
    ],
)
def test_wrong_option_is_reported_with_its_path(options, place):
    with pytest.raises(SettingsInvalid) as caught:
        build_agent("command", options, environment=None, path="agents.x")
    assert [problem.path for problem in caught.value.problems] == [place]


def test_echo_has_no_options():
    with pytest.raises(SettingsInvalid):
        build_agent("echo", {"loud": True}, environment=None)


def test_registered_adapter_is_built():
    register_adapter("greeting")(GreetingAgent)
    agent = build_agent("greeting", {"greeting": "hello"}, environment={"A": "b"})
    assert agent.made_of == ("hello", {"A": "b"})
    assert "greeting" in adapter_names()


def test_adapter_registered_again_is_replaced_with_a_warning():
    with pytest.warns(UserWarning, match="echo"):
        register_adapter("echo")(GreetingAgent)
    assert isinstance(build_agent("echo", {}, environment=None), GreetingAgent)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A distribution that offers two adapters, one of which cannot be imported."""
    information = tmp_path / "greeting-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[openclaw_a2a.adapters]\n"
        "installed = greeting_adapter:Greeting\n"
        "broken = greeting_adapter_missing:Greeting\n"
    )
    (tmp_path / "greeting_adapter.py").write_text(
        "from openclaw_a2a.agents.echo import EchoAgent\nclass Greeting(EchoAgent):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield
    sys.modules.pop("greeting_adapter", None)


def test_adapter_of_another_distribution_is_found(installed):
    agent = build_agent("installed", {}, environment=None)
    assert type(agent).__name__ == "Greeting"
    assert set(adapter_names()) == {*ADAPTERS, "broken", "installed"}


def test_adapter_that_cannot_be_imported_is_reported_with_the_reason(installed):
    with pytest.raises(SettingsInvalid, match="greeting_adapter_missing"):
        build_agent("broken", {}, environment=None)
