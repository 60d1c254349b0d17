"""Who can answer: the agents that come with the gateway, and how others are added."""

from openclaw_a2a.agents.adapter import (
    AdapterMetadata,
    AgentAdapter,
    CancelledByAdapter,
    RequestContext,
)
from openclaw_a2a.agents.callable import CallableAgent
from openclaw_a2a.agents.command import CommandAgent, CommandOptions
from openclaw_a2a.agents.echo import EchoAgent
from openclaw_a2a.agents.loader import adapter_names, register_adapter
from openclaw_a2a.agents.program_adapter import ProgramAdapter
from openclaw_a2a.agents.registry import Adapter, AgentRegistry, build_agent

__all__ = [
    "Adapter",
    "AdapterMetadata",
    "AgentAdapter",
    "AgentRegistry",
    "CallableAgent",
    "CancelledByAdapter",
    "CommandAgent",
    "CommandOptions",
    "EchoAgent",
    "ProgramAdapter",
    "RequestContext",
    "adapter_names",
    "build_agent",
    "register_adapter",
]
