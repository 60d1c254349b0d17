"""openclaw-a2a: the A2A gateway for OpenClaw agents, and for any other agent.

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openclaw_a2a.agents import (
        AdapterMetadata,
        AgentAdapter,
        CancelledByAdapter,
        register_adapter,
    )
    from openclaw_a2a.library.agent_card import build_agent_card
    from openclaw_a2a.library.asgi_app import to_a2a
    from openclaw_a2a.library.inputs import load_a2a_agent, load_adapter
    from openclaw_a2a.library.openclaw_adapter import OpenClawAgentAdapter
    from openclaw_a2a.library.remote_agents import RemoteAgents
    from openclaw_a2a.library.serving import serve, serve_agent
    from openclaw_a2a.model.card import AgentCard
    from openclaw_a2a.model.message import Message, Part
    from openclaw_a2a.model.task import Task
    from openclaw_a2a.model.turn import Turn
    from openclaw_a2a.ports import Agent, Recovery
    from openclaw_a2a.remote.result.remote_result import RemoteAgentFailed

__all__ = [
    "AdapterMetadata",
    "Agent",
    "AgentAdapter",
    "AgentCard",
    "CancelledByAdapter",
    "Message",
    "OpenClawAgentAdapter",
    "Part",
    "Recovery",
    "RemoteAgentFailed",
    "RemoteAgents",
    "Task",
    "Turn",
    "build_agent_card",
    "load_a2a_agent",
    "load_adapter",
    "register_adapter",
    "serve",
    "serve_agent",
    "to_a2a",
]

_MODULES = {
    "AdapterMetadata": "agents",
    "Agent": "ports",
    "AgentAdapter": "agents",
    "AgentCard": "model.card",
    "CancelledByAdapter": "agents",
    "Message": "model.message",
    "OpenClawAgentAdapter": "library.openclaw_adapter",
    "Part": "model.message",
    "Recovery": "ports",
    "RemoteAgentFailed": "remote.result.remote_result",
    "RemoteAgents": "library.remote_agents",
    "Task": "model.task",
    "Turn": "model.turn",
    "build_agent_card": "library.agent_card",
    "load_a2a_agent": "library.inputs",
    "load_adapter": "library.inputs",
    "register_adapter": "agents",
    "serve": "library.serving",
    "serve_agent": "library.serving",
    "to_a2a": "library.asgi_app",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
