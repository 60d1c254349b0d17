"""The agents of a gateway by id, and the adapters they can be made of by name."""

import logging
from collections.abc import Mapping
from typing import ClassVar, Protocol, cast

import anyio
import msgspec

from openclaw_a2a.agents.adapter import AgentAdapter
from openclaw_a2a.agents.bridge import AdapterAgent
from openclaw_a2a.agents.keywords import build_adapter
from openclaw_a2a.agents.loader import UnknownAdapter, find_adapter
from openclaw_a2a.agents.options import read_options
from openclaw_a2a.model.errors import AgentUnavailable, Problem, SettingsInvalid
from openclaw_a2a.model.ids import AgentId, Json, JsonObject
from openclaw_a2a.ports import Agent

_CLOSE_S = 10.0
_log = logging.getLogger(__name__)


class Adapter(Protocol):
    """A class that makes agents from options in the settings."""

    options_type: ClassVar[type[msgspec.Struct]]

    @classmethod
    def from_options(cls, options: Json, *, environment: Mapping[str, str] | None) -> Agent:
        """The agent for options of `options_type`; programs it starts inherit `environment`."""
        ...


def build_agent(
    adapter: str, options: JsonObject, *, environment: Mapping[str, str] | None, path: str = ""
) -> Agent:
    """The agent that an entry of the settings asks for.

    `path` is where the entry stands in the settings (`agents.main`). With `environment` None,
    programs inherit the gateway's own.

    Raises: SettingsInvalid with every problem found.
    """
    kind = _find(adapter, path)
    if issubclass(kind, AgentAdapter):
        return AdapterAgent(build_adapter(kind, options, path=path))
    maker = cast("type[Adapter]", kind)
    checked = read_options(maker.options_type, options, path=path)
    return maker.from_options(checked, environment=environment)


class AgentRegistry:
    """The agents of this gateway."""

    def __init__(self, agents: Mapping[AgentId, Agent]) -> None:
        self._agents = dict(agents)
        self._ids = tuple(sorted(self._agents))

    @property
    def ids(self) -> tuple[AgentId, ...]:
        """The ids of all agents that people know of, sorted."""
        return self._ids

    def add_inner(self, agent_id: AgentId, agent: Agent) -> None:
        """Add an agent for tasks of the gateway's own."""
        self._agents[agent_id] = agent

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


def _find(name: str, path: str) -> type:
    try:
        return find_adapter(name)
    except UnknownAdapter as error:
        raise _no_adapter(path, str(error)) from None
    except Exception as error:  # one broad catch: it is other people's code that is imported
        reason = f"the adapter {name} could not be loaded: {error}; install what it needs"
        raise _no_adapter(path, reason) from error


def _no_adapter(path: str, reason: str) -> SettingsInvalid:
    place = f"{path}.adapter" if path else "adapter"
    return SettingsInvalid(f"{place}: {reason}.", problems=(Problem(place, reason, "adapter"),))
