"""openclaw-a2a: the A2A gateway for OpenClaw agents, and for any other agent.

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openclaw_a2a.agents import (
        AdapterMetadata,
        AgentAdapter,
        CallableAgent,
        CancelledByAdapter,
        ProgramAdapter,
        RequestContext,
        register_adapter,
    )
    from openclaw_a2a.library.agent_card import build_agent_card
    from openclaw_a2a.library.asgi_app import to_a2a
    from openclaw_a2a.library.inputs import load_a2a_agent, load_adapter
    from openclaw_a2a.library.openclaw_adapter import OpenClawAgentAdapter
    from openclaw_a2a.library.remote_agents import RemoteAgents
    from openclaw_a2a.library.serving import serve, serve_agent
    from openclaw_a2a.model.agent_event import (
        AgentEvent,
        Block,
        Failed,
        InputRequired,
        MessageEnd,
        Note,
        PartDelta,
        Reply,
        Report,
        Started,
        Stopped,
        TextDelta,
        TextPreview,
        ToolPhase,
        ToolProgress,
        ToolReply,
    )
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
    "AgentEvent",
    "Block",
    "CallableAgent",
    "CancelledByAdapter",
    "Failed",
    "InputRequired",
    "Message",
    "MessageEnd",
    "Note",
    "OpenClawAgentAdapter",
    "Part",
    "PartDelta",
    "ProgramAdapter",
    "Recovery",
    "RemoteAgentFailed",
    "RemoteAgents",
    "Reply",
    "Report",
    "RequestContext",
    "Started",
    "Stopped",
    "Task",
    "TextDelta",
    "TextPreview",
    "ToolPhase",
    "ToolProgress",
    "ToolReply",
    "Turn",
    "build_agent_card",
    "load_a2a_agent",
    "load_adapter",
    "register_adapter",
    "serve",
    "serve_agent",
    "to_a2a",
]

_NAMES = {
    "agents": "AdapterMetadata AgentAdapter CallableAgent CancelledByAdapter ProgramAdapter"
    " RequestContext register_adapter",
    "library.agent_card": "build_agent_card",
    "library.asgi_app": "to_a2a",
    "library.inputs": "load_a2a_agent load_adapter",
    "library.openclaw_adapter": "OpenClawAgentAdapter",
    "library.remote_agents": "RemoteAgents",
    "library.serving": "serve serve_agent",
    "model.agent_event": "AgentEvent Block Failed InputRequired MessageEnd Note PartDelta Reply"
    " Report Started Stopped TextDelta TextPreview ToolPhase ToolProgress ToolReply",
    "model.card": "AgentCard",
    "model.message": "Message Part",
    "model.task": "Task",
    "model.turn": "Turn",
    "ports": "Agent Recovery",
    "remote.result.remote_result": "RemoteAgentFailed",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
