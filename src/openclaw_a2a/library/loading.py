"""What callers hand to the library, made into agents and stores: `load_adapter` and coercions."""

from abc import ABCMeta
from collections.abc import AsyncIterator, Callable, Mapping
from os import PathLike, fspath
from typing import cast

import msgspec

from openclaw_a2a.agents.adapter import AdapterMetadata, AgentAdapter, EventAgent, agent_metadata
from openclaw_a2a.agents.adapter_options import read_options
from openclaw_a2a.agents.function import CallableAdapter
from openclaw_a2a.agents.registry import (
    BUILT_IN,
    Adapter,
    BuiltIn,
    UnknownAdapter,
    find_adapter,
    is_made_from_options,
)
from openclaw_a2a.model.agent_event import AgentEvent
from openclaw_a2a.model.errors import SettingsInvalid
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Agent, Recovery, Store
from openclaw_a2a.store import create_store

_LIBRARY: Mapping[str, BuiltIn] = {
    **BUILT_IN,
    "openclaw": BuiltIn("openclaw_a2a.library.openclaw_adapter", "OpenClawAgentAdapter"),
}
"""What Python code gets by name; in the settings `openclaw` is another class."""


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
    if not is_made_from_options(kind):
        return kind(**arguments)
    agent = _make_from_options(cast("type[Adapter]", kind), arguments)
    return agent if isinstance(agent, AgentAdapter) else _InvocableAgent(agent)


async def load_a2a_agent(config: Mapping[str, Json]) -> AgentAdapter:
    """The same as `load_adapter`, for code that awaits it."""
    return load_adapter(config)


def as_agent(given: AgentAdapter | Agent | Callable[..., Json]) -> Agent:
    """An agent of the engine from whatever can answer. Raises: TypeError."""
    if isinstance(given, _InvocableAgent):
        return given.agent
    if isinstance(given, AgentAdapter):
        return given
    if isinstance(given, ABCMeta):
        raise TypeError(f"{given.__name__} is a class; make an adapter of it: {given.__name__}()")
    if hasattr(given, "run") and hasattr(given, "recovery"):
        return cast("Agent", given)
    if callable(given):
        return CallableAdapter(given)
    raise TypeError(
        f"{type(given).__name__} cannot answer; give an AgentAdapter, an Agent or a function."
    )


def as_store(given: Json) -> Store | None:
    """A store, not opened yet: a path stands for a SQLite file, None stays None.

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


class _InvocableAgent(EventAgent):
    """A registered agent that is no adapter, with `invoke` and `stream` for its caller.

    Only for direct calls: when it is served, the engine gets the `agent` itself.
    """

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    @property
    def recovery(self) -> Recovery:
        return self.agent.recovery

    def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        return self.agent.run(turn)

    async def close(self) -> None:
        await self.agent.close()

    def get_metadata(self) -> AdapterMetadata:
        return agent_metadata(self.agent)


def _make_from_options(kind: type[Adapter], arguments: JsonObject) -> Agent:
    """Arguments are spelled as in Python (`timeout_seconds`) or as in settings."""
    fields = msgspec.structs.fields(kind.options_type)
    spelled = {field.name: field.encode_name for field in fields}
    options = {spelled.get(key, key): value for key, value in arguments.items()}
    try:
        checked = read_options(kind.options_type, options, path="")
        return kind.from_options(checked, environment=None)
    except SettingsInvalid as error:
        raise ValueError(error.message) from error
