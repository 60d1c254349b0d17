"""Who can answer: the agents that come with the gateway, and how others are added."""

from openclaw_a2a.agents.callable import CallableAgent
from openclaw_a2a.agents.command import CommandAgent, CommandOptions
from openclaw_a2a.agents.echo import EchoAgent
from openclaw_a2a.agents.registry import (
    Adapter,
    AgentRegistry,
    adapter_names,
    build_agent,
    register_adapter,
)

__all__ = [
    "Adapter",
    "AgentRegistry",
    "CallableAgent",
    "CommandAgent",
    "CommandOptions",
    "EchoAgent",
    "adapter_names",
    "build_agent",
    "register_adapter",
]
