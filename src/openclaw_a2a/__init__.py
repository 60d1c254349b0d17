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
    from openclaw_a2a.app.adapters import load_a2a_agent, load_adapter
    from openclaw_a2a.app.adapters_app import to_a2a
    from openclaw_a2a.app.adapters_card import build_agent_card
    from openclaw_a2a.app.adapters_serve import serve_agent
    from openclaw_a2a.app.openclaw_adapter import OpenClawAgentAdapter
    from openclaw_a2a.app.remote_agents import RemoteAgents
    from openclaw_a2a.app.remote_results import RemoteAgentFailed
    from openclaw_a2a.app.scripts import serve
    from openclaw_a2a.model.card import AgentCard
    from openclaw_a2a.model.message import Message, Part
    from openclaw_a2a.model.task import Task
    from openclaw_a2a.model.turn import Turn
    from openclaw_a2a.ports import Agent, Recovery

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

_ROOMS = {
    "AdapterMetadata": "agents",
    "Agent": "ports",
    "AgentAdapter": "agents",
    "AgentCard": "model.card",
    "CancelledByAdapter": "agents",
    "Message": "model.message",
    "OpenClawAgentAdapter": "app.openclaw_adapter",
    "Part": "model.message",
    "Recovery": "ports",
    "RemoteAgentFailed": "app.remote_results",
    "RemoteAgents": "app.remote_agents",
    "Task": "model.task",
    "Turn": "model.turn",
    "build_agent_card": "app.adapters_card",
    "load_a2a_agent": "app.adapters",
    "load_adapter": "app.adapters",
    "register_adapter": "agents",
    "serve": "app.scripts",
    "serve_agent": "app.adapters_serve",
    "to_a2a": "app.adapters_app",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
