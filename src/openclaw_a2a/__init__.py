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
    from openclaw_a2a.agents import AgentAdapter as BaseA2AAdapter
    from openclaw_a2a.agents import CancelledByAdapter as CancelledByAdapterError
    from openclaw_a2a.library.a2a_adapter import BaseAgentAdapter, build_agent_app
    from openclaw_a2a.library.a2a_adapter import InputsAdapter as CallableAdapter
    from openclaw_a2a.library.agent_card import build_agent_card
    from openclaw_a2a.library.asgi_app import to_a2a
    from openclaw_a2a.library.inputs import load_a2a_agent, load_adapter
    from openclaw_a2a.library.openclaw_adapter import OpenClawAgentAdapter
    from openclaw_a2a.library.openclaw_adapter import OpenClawAgentAdapter as OpenClawAdapter
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
    from openclaw_a2a.model.card import AgentCapabilities, AgentCard, AgentSkill
    from openclaw_a2a.model.message import Message, Part
    from openclaw_a2a.model.task import Task
    from openclaw_a2a.model.turn import Turn
    from openclaw_a2a.ports import Agent, Recovery
    from openclaw_a2a.remote.result import RemoteAgentFailed

    __version__: str

__all__ = [
    "AdapterMetadata",
    "Agent",
    "AgentAdapter",
    "AgentCapabilities",
    "AgentCard",
    "AgentEvent",
    "AgentSkill",
    "BaseA2AAdapter",
    "BaseAgentAdapter",
    "Block",
    "CallableAdapter",
    "CallableAgent",
    "CancelledByAdapter",
    "CancelledByAdapterError",
    "Failed",
    "InputRequired",
    "Message",
    "MessageEnd",
    "Note",
    "OpenClawAdapter",
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
    "__version__",
    "build_agent_app",
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
    "library.a2a_adapter": "BaseAgentAdapter InputsAdapter build_agent_app",
    "library.agent_card": "build_agent_card",
    "library.asgi_app": "to_a2a",
    "library.inputs": "load_a2a_agent load_adapter",
    "library.openclaw_adapter": "OpenClawAgentAdapter",
    "library.remote_agents": "RemoteAgents",
    "library.serving": "serve serve_agent",
    "model.agent_event": "AgentEvent Block Failed InputRequired MessageEnd Note PartDelta Reply"
    " Report Started Stopped TextDelta TextPreview ToolPhase ToolProgress ToolReply",
    "model.card": "AgentCapabilities AgentCard AgentSkill",
    "model.message": "Message Part",
    "model.task": "Task",
    "model.turn": "Turn",
    "ports": "Agent Recovery",
    "remote.result": "RemoteAgentFailed",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

# The names of the package a2a-adapter, so that programs written for it change one import.
_ALIASES = {
    "BaseA2AAdapter": "AgentAdapter",
    "CallableAdapter": "InputsAdapter",
    "CancelledByAdapterError": "CancelledByAdapter",
    "OpenClawAdapter": "OpenClawAgentAdapter",
}


def __getattr__(name: str) -> Any:
    own = _ALIASES.get(name, name)
    if name == "__version__":
        from importlib.metadata import version

        return version("openclaw-a2a")
    if own not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[own]}"), own)
