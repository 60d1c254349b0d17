"""Adapters by name: from Python code and from the settings."""

import importlib
import importlib.metadata
import subprocess
import sys
import types
from typing import Any

import httpx2
import pytest

from openclaw_a2a import AgentAdapter, load_a2a_agent, load_adapter, register_adapter
from openclaw_a2a.agents import build_agent
from openclaw_a2a.agents.echo import EchoAgent
from openclaw_a2a.agents.registry import adapter_names, find_adapter
from openclaw_a2a.app import build_app
from openclaw_a2a.model.errors import SettingsInvalid
from openclaw_a2a.settings import load_settings

pytestmark = pytest.mark.usefixtures("own_adapters")


class Greeting(AgentAdapter):
    """Greets."""

    def __init__(
        self, greeting: str, times: int = 1, names: dict[str, str] | None = None, hook: Any = None
    ):
        if times < 1:
            raise ValueError("times must be at least 1")
        self.made_of = (greeting, times, names, hook)

    async def invoke(self, user_input, context_id=None, **kwargs):
        return f"{self.made_of[0]}, {user_input}"


@pytest.mark.requirement("adapter.loader.members")
def test_registered_adapter_gets_the_other_members_as_arguments():
    assert register_adapter("greeting")(Greeting) is Greeting
    config = {"adapter": "greeting", "greeting": "hello", "times": 2}
    adapter = load_adapter(config)
    assert isinstance(adapter, Greeting)
    assert adapter.made_of == ("hello", 2, None, None)
    assert config == {"adapter": "greeting", "greeting": "hello", "times": 2}


async def test_awaitable_loader_returns_the_same():
    register_adapter("greeting")(Greeting)
    adapter = await load_a2a_agent({"adapter": "greeting", "greeting": "hello"})
    assert await adapter.invoke("you") == "hello, you"


@pytest.mark.requirement("adapter.loader.missing-key")
@pytest.mark.parametrize("config", [{}, {"adapter": ""}, {"adapter": None}, {"name": "echo"}])
def test_configuration_without_an_adapter_is_refused(config):
    with pytest.raises(ValueError, match="adapter"):
        load_adapter(config)


@pytest.mark.requirement("adapter.loader.unknown")
def test_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="callable, command, echo, openclaw, openclaw-gateway"):
        load_adapter({"adapter": "nobody"})


def test_argument_that_the_constructor_does_not_take_is_a_type_error():
    register_adapter("greeting")(Greeting)
    with pytest.raises(TypeError, match="loud"):
        load_adapter({"adapter": "greeting", "greeting": "hello", "loud": True})


@pytest.mark.requirement("adapter.loader.again")
def test_name_that_is_registered_again_warns_and_is_replaced():
    register_adapter("greeting")(EchoAgent)
    with pytest.warns(UserWarning, match="greeting"):
        register_adapter("greeting")(Greeting)
    assert isinstance(load_adapter({"adapter": "greeting", "greeting": "x"}), Greeting)


def test_registered_name_overrides_the_built_in_one():
    with pytest.warns(UserWarning, match="echo"):
        register_adapter("echo")(Greeting)
    assert isinstance(load_adapter({"adapter": "echo", "greeting": "x"}), Greeting)


async def test_echo_is_built_in():
    adapter = load_adapter({"adapter": "echo"})
    (part,) = await adapter.invoke("hello")
    assert part.text == "echo: hello"
    assert "".join([piece async for piece in adapter.stream("hello")]) == "echo: hello"


async def test_callable_is_built_in_for_functions_of_every_kind():
    async def stream(text):
        for word in text.split():
            yield word

    plain = load_adapter({"adapter": "callable", "function": str.upper})
    assert [part.text for part in await plain.invoke("hi")] == ["HI"]
    assert not plain.supports_streaming()
    streaming = load_adapter({"adapter": "callable", "function": stream, "name": "Words"})
    assert streaming.supports_streaming()
    assert [piece async for piece in streaming.stream("a b")] == ["a", "b"]
    assert streaming.get_metadata().name == "Words"


def test_callable_is_imported_by_its_path():
    assert load_adapter({"adapter": "callable", "function": "builtins:str.upper"})
    for place in ("builtins", "builtins:nothing", ":x"):
        with pytest.raises(ValueError, match="function"):
            load_adapter({"adapter": "callable", "function": place})


async def test_command_is_built_in_with_argv_or_input_and_text_or_json_lines():
    by_argument = load_adapter({"adapter": "command", "command": ["echo", "-n"]})
    assert [part.text for part in await by_argument.invoke("hi")] == ["hi"]
    source = "import sys; print('{\"reply\": \"' + sys.stdin.read() + '\"}')"
    by_input = load_adapter(
        {
            "adapter": "command",
            "command": [sys.executable, "-c", source],
            "input": "stdin",
            "output": "jsonl",
            "timeout_seconds": 20,
        }
    )
    assert [part.text for part in await by_input.invoke("hi")] == ["hi"]


def test_wrong_option_of_a_built_in_adapter_is_a_value_error():
    with pytest.raises(ValueError, match="command"):
        load_adapter({"adapter": "command"})


def test_openclaw_is_the_adapter_of_the_library():
    adapter = load_adapter({"adapter": "openclaw", "session_id": "demo", "thinking": "low"})
    assert type(adapter).__name__ == "OpenClawAgentAdapter"
    assert isinstance(adapter, AgentAdapter)


@pytest.mark.requirement("adapter.loader.extra")
def test_missing_dependency_names_what_to_install():
    table = {"radio": "openclaw_a2a_needs_radio:Radio [radio]"}
    with pytest.raises(ImportError, match=r"openclaw-a2a\[radio\]"):
        find_adapter("radio", built_in=table)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A distribution that offers two adapters, one of which needs an extra."""
    information = tmp_path / "greeting-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[openclaw_a2a.adapters]\n"
        "installed = offered_adapter:Offered\n"
        "needy = offered_adapter_missing:Offered [radio]\n"
    )
    module = types.ModuleType("offered_adapter")
    module.Offered = Greeting
    monkeypatch.setitem(sys.modules, "offered_adapter", module)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()


@pytest.mark.requirement("adapter.loader.entry-point")
@pytest.mark.usefixtures("installed")
def test_adapter_of_another_distribution_is_loaded():
    assert isinstance(load_adapter({"adapter": "installed", "greeting": "x"}), Greeting)
    assert "installed" in adapter_names()


@pytest.mark.usefixtures("installed")
def test_adapter_of_another_distribution_that_needs_an_extra_names_it():
    with pytest.raises(ImportError, match=r"greeting\[radio\]"):
        load_adapter({"adapter": "needy"})


# ------------------------------------------------------------------------------- the settings


async def test_adapter_by_name_in_the_settings_is_made_of_its_options(tmp_path):
    register_adapter("greeting")(Greeting)
    file = tmp_path / "openclaw-a2a.json5"
    file.write_text(
        '{ store: { kind: "memory" }, agents: { main: { adapter: "greeting", greeting: "hey" } } }'
    )
    settings = load_settings(file, environ={}).settings
    async with build_app(settings) as gateway:
        transport = httpx2.ASGITransport(gateway.asgi)
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:9900"
        ) as http:
            message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "you"}]}
            answer = await http.post("/a2a/rest/message:send", json={"message": message})
    task = answer.json()["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert [(one["name"], one["parts"]) for one in task["artifacts"]] == [
        ("response", [{"text": "hey, you"}])
    ]


def test_every_wrong_option_in_the_settings_is_listed_with_its_path():
    register_adapter("greeting")(Greeting)
    options = {"times": "many", "name": {"a": "b"}, "names": {"a": 1}}
    with pytest.raises(SettingsInvalid) as caught:
        build_agent("greeting", options, environment=None, path="agents.x")
    problems = {problem.path: problem.message for problem in caught.value.problems}
    assert set(problems) == {
        "agents.x.greeting",
        "agents.x.times",
        "agents.x.name",
        "agents.x.names",
    }
    assert "did you mean names?" in problems["agents.x.name"]


def test_error_of_a_constructor_is_a_problem_of_the_settings():
    register_adapter("greeting")(Greeting)
    with pytest.raises(SettingsInvalid, match="times must be at least 1") as caught:
        build_agent("greeting", {"greeting": "x", "times": 0}, environment=None, path="agents.x")
    assert [problem.path for problem in caught.value.problems] == ["agents.x"]


def test_options_are_spelled_like_settings_or_like_arguments():
    class Program(AgentAdapter):
        def __init__(self, working_dir: str = "", **others: Any):
            made_of.append((working_dir, others))

        async def invoke(self, user_input, context_id=None, **kwargs):
            return ""

    made_of = []
    register_adapter("program")(Program)
    build_agent("program", {"workingDir": "/a", "other": 1}, environment=None)
    build_agent("program", {"working_dir": "/b"}, environment=None)
    assert made_of == [("/a", {"other": 1}), ("/b", {})]


def test_nothing_of_openclaw_is_imported_before_it_is_used():
    source = (
        "import sys, openclaw_a2a.agents, openclaw_a2a.app, openclaw_a2a.library.inputs\n"
        "assert 'websockets' not in sys.modules\n"
        "assert not [name for name in sys.modules if 'openclaw_a2a.agents.openclaw' in name]\n"
        "assert 'openclaw_a2a.library.openclaw_adapter' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", source], check=True, timeout=240)
