"""The built-in agents, and the registry of adapters."""

from openclaw_a2a.agents.adapter import (
    AdapterMetadata,
    AgentAdapter,
    CancelledByAdapter,
    RequestContext,
)
from openclaw_a2a.agents.function import CallableAgent
from openclaw_a2a.agents.process.program_adapter import ProgramAdapter
from openclaw_a2a.agents.registry import (
    AgentRegistry,
    ElsewhereAgent,
    build_agent,
    register_adapter,
)

__all__ = [
    "AdapterMetadata",
    "AgentAdapter",
    "AgentRegistry",
    "CallableAgent",
    "CancelledByAdapter",
    "ElsewhereAgent",
    "ProgramAdapter",
    "RequestContext",
    "build_agent",
    "register_adapter",
]
