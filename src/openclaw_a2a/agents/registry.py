"""Adapter classes by name, their options in the settings, and the agents of a gateway by id."""

import inspect
import sys
import typing
import warnings
from collections.abc import AsyncIterator, Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar, cast

import anyio
import msgspec

from openclaw_a2a.agents.adapter import AgentAdapter
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.agent_event import AgentEvent
from openclaw_a2a.model.errors import AgentUnavailable, GatewayError, Problem, SettingsInvalid
from openclaw_a2a.model.ids import AgentId, Json, JsonObject
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.model.validation import (
    ProblemCollector,
    SchemaValidator,
    camel_case,
    join_path,
    suggest_name,
)
from openclaw_a2a.ports import Agent, Recovery

log = get_logger(__name__)

_Options = TypeVar("_Options", bound=msgspec.Struct)
_Class = TypeVar("_Class", bound=type)

# Per agent, all at once: the stop of the gateway does not grow with the number of agents.
_CLOSE_TIMEOUT_S = 10.0
_LIST_MESSAGE = 'must be a list of strings, for example ["rev"]'
_BY_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def read_options(kind: type[_Options], options: JsonObject, *, path: str) -> _Options:
    """The options as a struct. Raises: SettingsInvalid; paths of problems start with `path`."""
    try:
        return msgspec.convert(options, kind)
    except msgspec.ValidationError as error:
        collector = ProblemCollector()
        known = [field.encode_name for field in msgspec.structs.fields(kind)]
        collector.unknown_keys(path, options, known)
        for problem in SchemaValidator(kind).problems(options):
            if problem.keyword != "unknown":  # reported above, with the nearest name
                is_list = problem.message.startswith("must be an array")
                message = _LIST_MESSAGE if is_list else problem.message
                collector.problem(join_path(path, problem.path), message, problem.keyword)
        problems = collector.problems or [Problem(path, str(error))]
    raise _invalid_options(problems)


def build_adapter(kind: type[AgentAdapter], options: JsonObject, *, path: str) -> AgentAdapter:
    """The adapter for an entry of the settings; its options are arguments of its constructor.

    An option is spelled as the argument is (`working_dir`) or as settings are (`workingDir`).

    Raises: SettingsInvalid with every problem found; paths of problems start with `path`.
    """
    parameters = inspect.signature(kind).parameters.values()
    named = [one for one in parameters if one.kind in _BY_KEYWORD]
    spellings = {camel_case(one.name): one.name for one in named} | {
        one.name: one.name for one in named
    }
    given = {spellings.get(key, key): value for key, value in options.items()}
    collector = ProblemCollector()
    if not any(one.kind is one.VAR_KEYWORD for one in parameters):
        strange = {key: value for key, value in options.items() if key not in spellings}
        collector.unknown_keys(path, strange, sorted(camel_case(one.name) for one in named))
    for parameter in named:
        if parameter.default is parameter.empty and parameter.name not in given:
            place = join_path(path, camel_case(parameter.name))
            collector.problem(place, "is missing; set it", "required")
    arguments = _convert(kind, given, path=path, collector=collector)
    if collector.problems:
        raise _invalid_options(collector.problems)
    try:
        return kind(**arguments)
    except (TypeError, ValueError, ImportError, GatewayError) as error:
        problem = Problem(path, str(error) or type(error).__name__, "value")
        raise _invalid_options([problem]) from error


def _invalid_options(problems: list[Problem]) -> SettingsInvalid:
    sentences = "; ".join(f"{problem.path}: {problem.message}" for problem in problems)
    return SettingsInvalid(f"The agent's options are wrong. {sentences}", problems=tuple(problems))


class _NotJsonError(Exception):
    """An argument is annotated with a type that no JSON value has."""


def _reject(kind: type, value: Json) -> Json:
    raise _NotJsonError


def _convert(
    kind: type[AgentAdapter], given: JsonObject, *, path: str, collector: ProblemCollector
) -> JsonObject:
    """The values as the annotations of the constructor say, as far as they can be checked."""
    try:
        types: dict[str, Json] = typing.get_type_hints(kind.__init__)
    except (NameError, TypeError):  # annotations that only a type checker understands
        types = {}
    converted = dict(given)
    for name in [name for name in given if name in types]:
        try:
            converted[name] = msgspec.convert(given[name], types[name], dec_hook=_reject)
        except msgspec.ValidationError as error:
            message = f"has the wrong kind of value: {error}"
            collector.problem(join_path(path, camel_case(name)), message, "type")
        except (TypeError, _NotJsonError):
            pass  # left to the constructor, which may know better
    return converted


# -------------------------------------------------------------------- adapters by name

ENTRY_POINTS = "openclaw_a2a.adapters"
"""The entry point group in which other distributions offer adapters, by name."""

BUILT_IN_ADAPTERS: Mapping[str, str] = {
    "callable": "openclaw_a2a.agents.function:CallableAdapter",
    "command": "openclaw_a2a.agents.process.command_agent:CommandAgent",
    "echo": "openclaw_a2a.agents.echo:EchoAgent",
    "openclaw": "openclaw_a2a.agents.openclaw_cli:OpenClawCliAgent",
    "openclaw-gateway": "openclaw_a2a.agents.openclaw_gateway:OpenClawGatewayAgent",
}
"""The adapters that settings can name without any registration, as values of entry points."""

_registered: dict[str, type] = {}


class UnknownAdapter(LookupError):
    """There is no adapter of this name; the message lists the known ones."""


class Adapter(Protocol):
    """A class that makes agents from options in the settings."""

    options_type: ClassVar[type[msgspec.Struct]]

    @classmethod
    def from_options(cls, options: Json, *, environment: Mapping[str, str] | None) -> Agent:
        """The agent for options of `options_type`; programs it starts inherit `environment`."""
        ...


def register_adapter(name: str) -> Callable[[_Class], _Class]:
    """Decorates a class, so that `adapter: "<name>"` means it, in the settings and in Python.

    The options of an `AgentAdapter` are the arguments of its constructor; a class that has
    `options_type` and `from_options` is built with those. A name that is in use is reassigned to
    the new class, with a warning. Raises: TypeError for a class that is no adapter.
    """
    if not isinstance(cast("Json", name), str) or not name:
        raise TypeError('An adapter is registered by name: write @register_adapter("name").')

    def register(adapter: _Class) -> _Class:
        is_class = isinstance(cast("Json", adapter), type)
        if not (is_class and (issubclass(adapter, AgentAdapter) or is_made_from_options(adapter))):
            raise TypeError(
                f"{adapter!r} is no adapter; register a class that inherits AgentAdapter."
            )
        if name in _registered or name in BUILT_IN_ADAPTERS:
            warnings.warn(f"The adapter {name} is registered again and replaced.", stacklevel=2)
        _registered[name] = adapter
        return adapter

    return register


def adapter_names() -> tuple[str, ...]:
    """The names that can be loaded, sorted."""
    offered = entry_points(group=ENTRY_POINTS).names
    return tuple(sorted({*_registered, *BUILT_IN_ADAPTERS, *offered}))


def find_adapter(name: str, *, built_in: Mapping[str, str] = BUILT_IN_ADAPTERS) -> type:
    """The class of this name: registered, else built in, else offered by another distribution.

    Raises: UnknownAdapter, ImportError, and whatever its module raises when it is imported.
    """
    if name in _registered:
        return _registered[name]
    own = built_in.get(name)
    if own is None:
        entries = entry_points(group=ENTRY_POINTS, name=name)
    else:
        entries = (EntryPoint(name, own, ENTRY_POINTS),)
    for entry in entries:
        try:
            return entry.load()
        except ImportError as error:
            other = entry.module if entry.dist is None else entry.dist.name
            package = other if own is None else "openclaw-a2a"
            extras = f"[{','.join(entry.extras)}]" if entry.extras else ""
            raise ImportError(
                f"{error}; install it with: pip install '{package}{extras}'", name=error.name
            ) from error
    known = adapter_names()
    nearest = suggest_name(name, [*known])
    listed = "" if nearest.startswith("known") else f" (known: {', '.join(known)})"
    raise UnknownAdapter(f"there is no adapter {name}; {nearest}{listed}")


def build_agent(
    adapter: str,
    options: JsonObject,
    *,
    environment: Mapping[str, str] | None,
    path: str = "",
    folder: Path | None = None,
) -> Agent:
    """The agent for an entry of the settings.

    `path` is where the entry stands in the settings (`agents.main`), `folder` that of their file:
    functions are imported from there. With `environment` None, programs inherit the gateway's own.

    Raises: SettingsInvalid with every problem found.
    """
    try:
        kind = find_adapter(adapter)
    except Exception as error:  # one broad catch: the import runs code of other packages
        reason = f"the adapter {adapter} could not be loaded: {error}; install what it needs"
        if isinstance(error, UnknownAdapter):
            reason = str(error)
        place = f"{path}.adapter" if path else "adapter"
        problem = Problem(place, reason, "adapter")
        raise SettingsInvalid(f"{place}: {reason}.", problems=(problem,)) from error
    if adapter == "callable":
        add_import_folder(folder)
    if not is_made_from_options(kind):
        return build_adapter(kind, options, path=path)
    maker = cast("type[Adapter]", kind)
    checked = read_options(maker.options_type, options, path=path)
    return maker.from_options(checked, environment=environment)


def add_import_folder(folder: Path | None) -> None:
    """Add the folder of the settings file to the import path."""
    if folder is not None and str(folder) not in sys.path:
        # For good, because functions may import while they run; last, so that a file there never
        # hides a module of the gateway.
        sys.path.append(str(folder))


def is_made_from_options(kind: type) -> bool:
    """True for a class with `from_options`; others are called with their options as arguments."""
    return hasattr(kind, "from_options")


# -------------------------------------------------------------------- agents by id


class ElsewhereAgent:
    """Stands for an agent that only other gateways on the same store have."""

    recovery = Recovery.FAIL

    def __init__(self, agent_id: AgentId) -> None:
        self._agent_id = agent_id

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Refuse: messages for the agent go to a gateway that has it."""
        del turn
        for event in ():  # without a loop it would be no iterator
            yield event
        raise AgentUnavailable(f"agent {self._agent_id} is not on this gateway")

    async def close(self) -> None:
        """Nothing to release."""


class AgentRegistry(dict[AgentId, Agent]):
    """The agents of this gateway by id. An unknown id raises AgentUnavailable."""

    def __init__(self, agents: Mapping[AgentId, Agent]) -> None:
        super().__init__(agents)
        self.ids = tuple(sorted(agents))
        """The ids of the configured agents, sorted; internal ones are left out."""
        self.ids_elsewhere = frozenset(
            one for one in self.ids if isinstance(agents[one], ElsewhereAgent)
        )
        """The agents that only other gateways on the same store have."""

    def add_internal(self, agent_id: AgentId, agent: Agent) -> None:
        """Add an agent for tasks that the gateway creates itself."""
        self[agent_id] = agent

    def __missing__(self, agent_id: AgentId) -> Agent:
        known = ", ".join(self.ids) or "none"
        raise AgentUnavailable(
            f"There is no agent {agent_id}; the agents of this gateway are: {known}."
        )

    async def close(self) -> None:
        """Close all agents concurrently; a failing or hanging agent delays no other."""

        async def close(agent_id: AgentId, agent: Agent) -> None:
            # An exception here would cancel the closing of the other agents.
            try:
                with anyio.fail_after(_CLOSE_TIMEOUT_S):
                    await agent.close()
            except Exception:
                log.warning("agent.close_failed", agent_id=agent_id, exc_info=True)

        async with anyio.create_task_group() as group:
            for agent_id, agent in self.items():
                group.start_soon(close, agent_id, agent)
