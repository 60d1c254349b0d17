"""openclaw-a2a: the A2A gateway for OpenClaw agents, and for any other agent.

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openclaw_a2a.agents import register_adapter
    from openclaw_a2a.app.scripts import serve
    from openclaw_a2a.model.card import AgentCard
    from openclaw_a2a.model.message import Message, Part
    from openclaw_a2a.model.task import Task
    from openclaw_a2a.model.turn import Turn
    from openclaw_a2a.ports import Agent, Recovery

__all__ = [
    "Agent",
    "AgentCard",
    "Message",
    "Part",
    "Recovery",
    "Task",
    "Turn",
    "register_adapter",
    "serve",
]

_ROOMS = {
    "Agent": "ports",
    "AgentCard": "model.card",
    "Message": "model.message",
    "Part": "model.message",
    "Recovery": "ports",
    "Task": "model.task",
    "Turn": "model.turn",
    "register_adapter": "agents",
    "serve": "app.scripts",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
