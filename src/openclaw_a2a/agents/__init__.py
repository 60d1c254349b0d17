"""Who can answer: the agents that come with the gateway, and how others are added."""

from openclaw_a2a.agents.adapter import (
    AdapterMetadata,
    AgentAdapter,
    CancelledByAdapter,
    RequestContext,
)
from openclaw_a2a.agents.echo import EchoAgent
from openclaw_a2a.agents.function import CallableAgent
from openclaw_a2a.agents.process.command_agent import CommandAgent, CommandOptions
from openclaw_a2a.agents.process.program_adapter import ProgramAdapter
from openclaw_a2a.agents.registry import (
    Adapter,
    AgentRegistry,
    ElsewhereAgent,
    adapter_names,
    build_agent,
    register_adapter,
)

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
    "ElsewhereAgent",
    "ProgramAdapter",
    "RequestContext",
    "adapter_names",
    "build_agent",
    "register_adapter",
]
