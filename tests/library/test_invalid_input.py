"""Error messages of the library for invalid arguments."""

import re

import pytest

from openclaw_a2a import (
    AgentAdapter,
    OpenClawAgentAdapter,
    load_adapter,
    register_adapter,
    serve_agent,
    to_a2a,
)

pytestmark = pytest.mark.usefixtures("own_adapters")


class Loud(AgentAdapter):
    """Answers louder."""

    async def invoke(self, user_input, context_id=None, **kwargs):
        return user_input.upper()


@pytest.mark.parametrize("config", [None, "echo", ["echo"]])
def test_configuration_that_is_not_a_dict_is_refused_with_an_example(config):
    with pytest.raises(TypeError, match=re.escape('{"adapter": "echo"}')):
        load_adapter(config)


@pytest.mark.parametrize("given", [Loud, AgentAdapter])
def test_class_instead_of_an_adapter_is_refused_with_a_hint(given):
    with pytest.raises(TypeError, match=rf"{given.__name__}\(\)"):
        to_a2a(given)


@pytest.mark.parametrize("name", [Loud, "", 5])
def test_decorator_without_a_name_is_refused_with_a_hint(name):
    with pytest.raises(TypeError, match=r'@register_adapter\("name"\)'):
        register_adapter(name)


@pytest.mark.parametrize("thing", [5, dict, Loud()])
def test_only_adapter_classes_are_registered(thing):
    with pytest.raises(TypeError, match="AgentAdapter"):
        register_adapter("thing")(thing)


@pytest.mark.parametrize("auth", [5, True, [5], {"ann": 5}, {"ann": [None]}])
def test_tokens_that_are_not_strings_are_refused(auth):
    with pytest.raises(TypeError, match="auth"):
        to_a2a(Loud(), auth=auth)


def test_invalid_store_is_refused_before_serving():
    with pytest.raises(TypeError, match="task_store"):
        to_a2a(Loud(), task_store=5)


def test_provider_that_is_not_a_dict_is_refused():
    with pytest.raises(TypeError, match="organization"):
        to_a2a(Loud(), provider="Acme")


def test_unknown_option_is_named():
    with pytest.raises(TypeError, match=r"serve_agent takes no argument 'prot'"):
        serve_agent(Loud(), port=0, prot=1)


def test_agent_without_options_refuses_any():
    with pytest.raises(ValueError, match="x: is not a setting; there are none here"):
        load_adapter({"adapter": "echo", "x": 1})


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"timeout": "5"}, "timeout"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": None}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"openclaw_path": ""}, "openclaw_path"),
        ({"openclaw_path": 5}, "openclaw_path"),
        ({"env_vars": "A=b"}, "env_vars"),
        ({"env_vars": {"A": 1}}, "env_vars"),
        ({"gateway_mode": "yes"}, "gateway_mode"),
        ({"task_ttl_seconds": -1}, "task_ttl_seconds"),
        ({"task_ttl_seconds": "1"}, "task_ttl_seconds"),
        ({"cleanup_interval_seconds": None}, "cleanup_interval_seconds"),
        ({"cleanup_interval_seconds": 0}, "cleanup_interval_seconds"),
    ],
)
def test_wrong_argument_of_openclaw_is_named(wrong, named):
    with pytest.raises(ValueError, match=named):
        OpenClawAgentAdapter(**wrong)


@pytest.mark.parametrize("store", [5, object()])
def test_task_store_of_openclaw_is_a_store_or_a_path(store):
    with pytest.raises(TypeError, match="task_store"):
        OpenClawAgentAdapter(task_store=store)


def test_unknown_argument_of_openclaw_is_refused_with_the_nearest_one():
    with pytest.raises(TypeError, match=r"'agentId'.*did you mean agent_id\?"):
        load_adapter({"adapter": "openclaw", "agentId": "main"})
