"""Adapters of the library by name: `load_adapter` and its async twin."""

from abc import ABCMeta
from collections.abc import Callable, Mapping
from os import PathLike, fspath
from typing import cast

import msgspec

from openclaw_a2a.agents.adapter import AgentAdapter, AgentView
from openclaw_a2a.agents.adapter_options import read_options
from openclaw_a2a.agents.function import CallableAdapter
from openclaw_a2a.agents.registry import BUILT_IN, Adapter, BuiltIn, UnknownAdapter, find_adapter
from openclaw_a2a.model.errors import SettingsInvalid
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.ports import Agent, Store
from openclaw_a2a.store import create_store

_LIBRARY: Mapping[str, BuiltIn] = {
    **BUILT_IN,
    "openclaw": BuiltIn("openclaw_a2a.library.openclaw_adapter", "OpenClawAgentAdapter"),
}
"""What Python code gets by name; the settings mean another class by `openclaw`."""


def load_adapter(config: Mapping[str, Json]) -> AgentAdapter:
    """The adapter that `config["adapter"]` names, made of the other members.

    The name is looked up among the registered adapters, then the built-in ones, then those of
    other distributions. `config` is not modified.

    Raises:
        ValueError: there is no key `adapter`, no adapter of this name, or an option is wrong.
        TypeError: `config` is no dict, or the constructor does not take these arguments.
        ImportError: something that the adapter needs is not installed.
    """
    if not isinstance(cast("Json", config), Mapping):
        kind = type(config).__name__
        raise TypeError(f'The configuration is a {kind}; give a dict: {{"adapter": "echo"}}.')
    name = config.get("adapter")
    if not isinstance(name, str) or not name:
        raise ValueError('The configuration needs the name of an adapter: {"adapter": "echo"}.')
    try:
        kind = find_adapter(name, built_in=_LIBRARY)
    except UnknownAdapter as error:
        raise ValueError(str(error)) from None
    arguments = {key: value for key, value in config.items() if key != "adapter"}
    if issubclass(kind, AgentAdapter):
        return kind(**arguments)
    return AgentView(_build(cast("type[Adapter]", kind), arguments))


async def load_a2a_agent(config: Mapping[str, Json]) -> AgentAdapter:
    """The same as `load_adapter`, for code that awaits it."""
    return load_adapter(config)


def as_adapter(answer: AgentAdapter | Agent | Callable[..., Json]) -> AgentAdapter:
    """Whatever can answer, as an adapter: an adapter, an agent of the engine, or a function."""
    if isinstance(answer, AgentAdapter):
        return answer
    if isinstance(answer, ABCMeta):
        raise TypeError(f"{answer.__name__} is a class; make an adapter of it: {answer.__name__}()")
    if hasattr(answer, "run") and hasattr(answer, "recovery"):
        return AgentView(cast("Agent", answer))
    if callable(answer):
        return CallableAdapter(answer)
    raise TypeError(
        f"{type(answer).__name__} cannot answer; give an AgentAdapter, an Agent or a function."
    )


def _build(kind: type[Adapter], arguments: JsonObject) -> Agent:
    fields = msgspec.structs.fields(kind.options_type)
    spelled = {field.name: field.encode_name for field in fields}
    options = {spelled.get(key, key): value for key, value in arguments.items()}
    try:
        checked = read_options(kind.options_type, options, path="")
        return kind.from_options(checked, environment=None)
    except SettingsInvalid as error:
        raise ValueError(error.message) from error


def as_store(given: Json) -> Store | None:
    """The store, not opened yet; the path of a file stands for a SQLite store. None stays None.

    Raises: TypeError for anything else.
    """
    if isinstance(given, str | PathLike):
        return create_store("sqlite", path=fspath(cast("PathLike[str]", given)))
    if given is None or hasattr(given, "tasks"):
        return cast("Store | None", given)
    raise TypeError(
        f"task_store is a {type(given).__name__}; give a store of openclaw_a2a.store, or the path"
        " of a SQLite file."
    )
