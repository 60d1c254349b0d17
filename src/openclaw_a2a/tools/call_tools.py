"""The tools for calls between agents, and the identity of their callers."""

import hashlib
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager

import msgspec

from openclaw_a2a.auth.tool_tokens import ToolCaller
from openclaw_a2a.calls.debate import DEBATE_SCHEMA
from openclaw_a2a.calls.loop_guard import CallHistory, chain_metadata, chain_violation
from openclaw_a2a.calls.request import BATCH_SCHEMA, CALL_SCHEMA, POLL_SCHEMA
from openclaw_a2a.calls.service import CallService
from openclaw_a2a.calls.session_hosts import SessionHosts
from openclaw_a2a.engine.audit_log import acting
from openclaw_a2a.model.call import Caller
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import AgentId, Json, JsonObject, SessionKey
from openclaw_a2a.model.session_keys import OPERATOR_NAME, session_agent
from openclaw_a2a.tools.registry import OnUpdate, Tool

_UNSAFE = re.compile(r"[^a-z0-9_-]+")
_MAX_NAME = 64

_CALL = (
    "Call a skill of another agent. The answer comes into this session as a skill_response "
    "message when it is there; wait: true waits for it."
)
_BATCH = "Call skills of several agents at once and wait for all answers."
_DEBATE = (
    "Let agents debate a question: one proposes, critics look for flaws, one draws the conclusion."
)
_POLL = "Ask what became of a call, by its correlationId or taskId."

RunCallTool = Callable[[Json, Caller], Awaitable[JsonObject]]


def call_tools(service: CallService, resolve_caller: "CallerResolver") -> list[Tool]:
    """`agent_call`, `agent_call_batch`, `debate_call` and `agent_poll`.

    While calls are switched off they are not offered, and answer that they are forbidden.
    """

    def tool(name: str, label: str, text: str, schema: JsonObject, run: RunCallTool) -> Tool:
        async def run_tool(arguments: Json, caller: ToolCaller, _report: OnUpdate) -> JsonObject:
            try:
                acting.set((caller.name, caller.address))
                return await run(arguments, await resolve_caller(caller))
            except GatewayError as error:
                return {"status": "error", "error": error.message}

        built = Tool(name, label, text, schema, run_tool, is_offered=service.is_enabled)
        if run == service.agent_poll:  # it records its outcome itself, before it answers
            return built
        written, lost = service.mark_written, service.mark_lost
        return msgspec.structs.replace(built, on_written=written, on_lost=lost)

    return [
        tool("agent_call", "Agent Call", _CALL, CALL_SCHEMA, service.agent_call),
        tool("agent_call_batch", "Agent Calls", _BATCH, BATCH_SCHEMA, service.agent_call_batch),
        tool("debate_call", "Debate", _DEBATE, DEBATE_SCHEMA, service.debate_call),
        tool("agent_poll", "Agent Poll", _POLL, POLL_SCHEMA, service.agent_poll),
    ]


class CallerResolver(msgspec.Struct, frozen=True):
    """Resolves the caller of a tool to the caller of an agent."""

    hosts: SessionHosts

    async def __call__(self, caller: ToolCaller) -> Caller:
        """The caller, under the id that agents of this gateway have."""
        if caller.name == OPERATOR_NAME:
            return Caller(AgentId(OPERATOR_NAME), caller.name, is_operator=True)
        if caller.session_key is None:
            agent_id = _clean_id(caller.agent_id) if caller.agent_id else _id_of_name(caller.name)
            return Caller(agent_id, caller.name)
        session_key = SessionKey(caller.session_key.lower())
        own = await self.hosts.find_agent(session_key)
        named = caller.agent_id or session_agent(session_key)
        agent_id = own or (_clean_id(named) if named else _id_of_name(caller.name))
        return Caller(agent_id, caller.name, session_key)


class CallerChains(msgspec.Struct, frozen=True):
    """The chains of tool callers, for messages to remote agents."""

    history: CallHistory
    resolve_caller: CallerResolver
    host_id: str
    max_depth: int

    async def to_remote(self, caller: ToolCaller) -> "RemoteOrigin":
        """How the caller came to call a remote agent."""
        resolved = await self.resolve_caller(caller)
        chain = (await self.history.origin_of(resolved)).chain
        violation = chain_violation(chain, AgentId("a remote agent"), max_depth=self.max_depth)
        is_program = caller.session_key is None
        metadata = {} if is_program else chain_metadata(chain, self.host_id)
        return RemoteOrigin(violation, metadata, self.history.release_run_slot(resolved))


class RemoteOrigin(msgspec.Struct, frozen=True):
    """The chain of a caller that calls a remote agent."""

    violation: str | None
    """Why the chain must not continue there, if so."""
    metadata: JsonObject | None
    """The chain, for the message; empty for a program, as its name is private."""
    released_slot: AbstractContextManager[None]
    """Within it the caller's own run holds no run slot, while it waits for the remote agent."""


def _clean_id(name: str) -> AgentId:
    return AgentId(_UNSAFE.sub("-", name.lower()).strip("-")[:_MAX_NAME] or "caller")


def _id_of_name(name: str) -> AgentId:
    if ":" not in name:
        return _clean_id(name)
    # Subjects of issuers have any characters and lengths: no two may become one agent.
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return AgentId(f"{_clean_id(name)[: _MAX_NAME - len(digest) - 1]}-{digest}")
