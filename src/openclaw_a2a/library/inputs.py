"""Converts what programs pass to the library into agents, stores and requests.

Params may be our structs, dicts of either protocol version, or objects of an a2a-sdk.
"""

from abc import ABCMeta
from collections.abc import AsyncIterator, Callable, Mapping
from os import PathLike, fspath
from typing import cast

import msgspec
from msgspec.structs import fields

from openclaw_a2a.agents.adapter import AdapterMetadata, AgentAdapter, EventAgent, agent_metadata
from openclaw_a2a.agents.function import CallableAdapter
from openclaw_a2a.agents.registry import (
    BUILT_IN_ADAPTERS,
    Adapter,
    UnknownAdapter,
    find_adapter,
    is_made_from_options,
    read_options,
)
from openclaw_a2a.engine.engine import new_id
from openclaw_a2a.model.agent_event import AgentEvent
from openclaw_a2a.model.errors import SettingsInvalid
from openclaw_a2a.model.ids import Json, JsonObject, TaskId
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.model.validation import as_object, is_object
from openclaw_a2a.ports import Agent, Recovery, Store
from openclaw_a2a.protocol import v03, v1
from openclaw_a2a.protocol.requests import NewPushConfig, SendRequest
from openclaw_a2a.protocol.versions import ProtocolVersion
from openclaw_a2a.store import create_store

_LIBRARY: Mapping[str, str] = {
    **BUILT_IN_ADAPTERS,
    "openclaw": "openclaw_a2a.library.openclaw_adapter:OpenClawAgentAdapter",
}
"""Names for Python code; in the settings `openclaw` is another class."""

_OF_INPUTS = {"callable": "openclaw_a2a.library.a2a_adapter:InputsAdapter"}


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
    # In a2a-adapter the argument is `func`, and the function is given a dict.
    is_of_inputs = name == "callable" and "func" in config
    try:
        kind = find_adapter(name, built_in=_OF_INPUTS if is_of_inputs else _LIBRARY)
    except UnknownAdapter as error:
        raise ValueError(str(error)) from None
    arguments = {key: value for key, value in config.items() if key != "adapter"}
    if not is_made_from_options(kind):
        return kind(**arguments)
    maker = cast("type[Adapter]", kind)
    # Arguments are spelled as in Python (`timeout_seconds`) or as in settings.
    spelled = {field.name: field.encode_name for field in fields(maker.options_type)}
    options = {spelled.get(key, key): value for key, value in arguments.items()}
    try:
        checked = read_options(maker.options_type, options, path="")
        agent = maker.from_options(checked, environment=None)
    except SettingsInvalid as error:
        raise ValueError(error.message) from error
    return agent if isinstance(agent, AgentAdapter) else _InvocableAgent(agent)


async def load_a2a_agent(config: Mapping[str, Json]) -> AgentAdapter:
    """The same as `load_adapter`, for code that awaits it."""
    return load_adapter(config)


def as_agent(given: AgentAdapter | Agent | Callable[..., Json]) -> Agent:
    """The engine's agent for an adapter, an agent or a function. Raises: TypeError."""
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


_WEBHOOKS = ("pushNotificationConfig", "taskPushNotificationConfig")


def read_request(params: Json) -> SendRequest:
    """The request; `params` are our structs, a dict of either protocol version or an SDK object.

    Raises: InvalidParams with every problem, TypeError.
    """
    if isinstance(params, SendRequest):
        return params
    if isinstance(params, Message):
        return SendRequest(message=params)
    members = dict(_members(params))
    message, configuration = members.get("message"), members.get("configuration")
    role: Json = as_object(message).get("role")
    is_v1 = isinstance(role, str) and role.startswith("ROLE_")
    if is_object(configuration):
        # The versions name the webhook differently; an empty one counts as none.
        configuration = dict(configuration)
        webhooks: list[Json] = [configuration.pop(name, None) for name in _WEBHOOKS]
        webhook = next((one for one in webhooks if one is not None), None)
        is_empty = is_object(webhook) and not webhook.get("url")
        if webhook is not None and not is_empty:
            configuration[_WEBHOOKS[is_v1]] = webhook
        members["configuration"] = configuration
    if not is_v1:
        return v03.decode_send(msgspec.json.encode(members), make_message_id=new_id)
    members["message"] = {"messageId": new_id(), **as_object(message)}
    return v1.decode_send(msgspec.json.encode(members))


def read_push(config: Json, task_id: TaskId, *, wire: ProtocolVersion) -> NewPushConfig:
    """The push configuration; `wire` is its protocol version where the config does not show it.

    Raises: InvalidParams, TypeError.
    """
    if isinstance(config, NewPushConfig):
        return config
    members = _members(config)
    nested = members.get("pushNotificationConfig")
    members = nested if is_object(nested) else members
    authentication = members.get("authentication")
    if is_object(authentication):
        wire = ProtocolVersion.V03 if "schemes" in authentication else ProtocolVersion.V1
    elif hasattr(config, "model_dump"):
        wire = ProtocolVersion.V03
    if wire is ProtocolVersion.V1:
        return v1.decode_push_config(msgspec.json.encode(members), task_id=task_id)
    both = {"taskId": task_id, "pushNotificationConfig": members}
    return v03.decode_push_config(msgspec.json.encode(both))


def to_json_object(value: Json) -> JsonObject | None:
    """A dict as it is, an object of an a2a-sdk as its JSON, None for anything else."""
    if is_object(value):
        return value
    if hasattr(value, "model_dump"):  # a2a-sdk 0.3: pydantic
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if hasattr(value, "DESCRIPTOR"):  # a2a-sdk 1.0: protocol buffers
        from google.protobuf.json_format import MessageToDict

        return MessageToDict(value)
    return None


def _members(params: Json) -> JsonObject:
    members = to_json_object(params)
    if members is None:
        raise TypeError(
            f"params are a {type(params).__name__}; give a Message, a dict in the shape of A2A 1.0"
            " or 0.3, or the params of an a2a-sdk"
        )
    return members
