"""The agents of a gateway by id, and the adapters they can be made of by name."""

import importlib.metadata
import logging
import warnings
from collections.abc import Callable, Mapping
from typing import ClassVar, Protocol, TypeVar

import anyio
import msgspec

from openclaw_a2a.agents.command import CommandAgent
from openclaw_a2a.agents.echo import EchoAgent
from openclaw_a2a.agents.options import read_options
from openclaw_a2a.model.errors import AgentUnavailable, Problem, SettingsInvalid
from openclaw_a2a.model.ids import AgentId, Json, JsonObject
from openclaw_a2a.ports import Agent

ENTRY_POINTS = "openclaw_a2a.adapters"
"""The entry point group in which other distributions offer adapters, by name."""

_CLOSE_S = 10.0
_log = logging.getLogger(__name__)


class Adapter(Protocol):
    """A class that makes agents from options in the settings."""

    options_type: ClassVar[type[msgspec.Struct]]

    @classmethod
    def from_options(cls, options: Json, *, environment: Mapping[str, str] | None) -> Agent:
        """The agent for options of `options_type`; programs it starts inherit `environment`."""
        ...


_AdapterClass = TypeVar("_AdapterClass", bound=type[Adapter])

_adapters: dict[str, type[Adapter]] = {"command": CommandAgent, "echo": EchoAgent}


def register_adapter(name: str) -> Callable[[_AdapterClass], _AdapterClass]:
    """Decorates a class, so that `adapter: "<name>"` in the settings means it.

    A name that is taken already is given to the new class, with a warning.
    """

    def register(adapter: _AdapterClass) -> _AdapterClass:
        if name in _adapters:
            warnings.warn(f"The adapter {name} is registered again and replaced.", stacklevel=2)
        _adapters[name] = adapter
        return adapter

    return register


def adapter_names() -> tuple[str, ...]:
    """The names that `build_agent` knows, sorted."""
    return tuple(sorted({*_adapters, *importlib.metadata.entry_points(group=ENTRY_POINTS).names}))


def build_agent(
    adapter: str, options: JsonObject, *, environment: Mapping[str, str] | None, path: str = ""
) -> Agent:
    """The agent that an entry of the settings asks for.

    `path` is where the entry stands in the settings (`agents.main`). With `environment` None,
    programs inherit the gateway's own.

    Raises: SettingsInvalid with every problem found.
    """
    kind = _adapters.get(adapter) or _load_adapter(adapter, path)
    checked = read_options(kind.options_type, options, path=path)
    return kind.from_options(checked, environment=environment)


class AgentRegistry:
    """The agents of this gateway."""

    def __init__(self, agents: Mapping[AgentId, Agent]) -> None:
        self._agents = dict(agents)

    @property
    def ids(self) -> tuple[AgentId, ...]:
        """The ids of all agents, sorted."""
        return tuple(sorted(self._agents))

    def find(self, agent_id: AgentId) -> Agent:
        """The agent. Raises: AgentUnavailable."""
        agent = self._agents.get(agent_id)
        if agent is None:
            known = ", ".join(self.ids) or "none"
            raise AgentUnavailable(
                f"There is no agent {agent_id}; the agents of this gateway are: {known}."
            )
        return agent

    async def close(self) -> None:
        """Close all agents at the same time; one that fails or hangs holds up no other."""
        async with anyio.create_task_group() as group:
            for agent_id, agent in self._agents.items():
                group.start_soon(_close, agent_id, agent)


async def _close(agent_id: AgentId, agent: Agent) -> None:
    try:
        with anyio.fail_after(_CLOSE_S):
            await agent.close()
    except Exception:
        _log.warning("The agent %s could not be closed.", agent_id, exc_info=True)


def _load_adapter(name: str, path: str) -> type[Adapter]:
    found = importlib.metadata.entry_points(group=ENTRY_POINTS, name=name)
    if not found:
        known = ", ".join(adapter_names())
        raise _no_adapter(path, f"there is no adapter {name}; known: {known}")
    try:
        adapter: type[Adapter] = next(iter(found)).load()
    except Exception as error:
        reason = f"the adapter {name} could not be loaded: {error}; install what it needs"
        raise _no_adapter(path, reason) from error
    _adapters.setdefault(name, adapter)
    return _adapters[name]


def _no_adapter(path: str, reason: str) -> SettingsInvalid:
    place = f"{path}.adapter" if path else "adapter"
    return SettingsInvalid(f"{place}: {reason}.", problems=(Problem(place, reason, "adapter"),))
