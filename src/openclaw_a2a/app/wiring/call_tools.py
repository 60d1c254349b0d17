"""The tools of calls between agents, as the table of tools knows them."""

import re
from collections.abc import Awaitable, Callable

from openclaw_a2a.app.wiring.calls import CallsWiring
from openclaw_a2a.auth.tool_tokens import OPERATOR_NAME, ToolCaller
from openclaw_a2a.calls.debate.request import INPUT_SCHEMA as DEBATE_SCHEMA
from openclaw_a2a.calls.identifiers import agent_of
from openclaw_a2a.calls.loop_guard import chain_metadata, chain_violation
from openclaw_a2a.calls.request import BATCH_SCHEMA, CALL_SCHEMA, POLL_SCHEMA
from openclaw_a2a.model.call import Caller
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import AgentId, Json, JsonObject, SessionKey
from openclaw_a2a.tools.registry import OnUpdate, RunTool, Tool, ignore_update

POLL = "agent_poll"
_UNSAFE = re.compile(r"[^a-z0-9_-]+")
_MOST_NAME = 64

_CALL = (
    "Call a skill of another agent. The answer comes into this session as a skill_response "
    "message when it is there; wait: true waits for it."
)
_BATCH = "Call skills of several agents at once and wait for all answers."
_DEBATE = (
    "Let agents debate a question: one proposes, critics look for flaws, one draws the conclusion."
)
_POLL = "Ask what became of a call, by its correlationId or taskId."


def call_tools(room: CallsWiring) -> list[Tool]:
    """The four tools."""
    desk, caller_of = room.service, CallerResolver(room)

    def made(
        name: str,
        label: str,
        words: tuple[str, JsonObject],
        run: Callable[[Json, Caller], Awaitable[JsonObject]],
    ) -> Tool:
        async def serve(arguments: Json, caller: ToolCaller, _tell: OnUpdate) -> JsonObject:
            try:
                return await run(arguments, caller_of(caller))
            except GatewayError as error:
                return {"status": "error", "error": error.message}

        serving: RunTool = serve
        told = ignore_update if name == POLL else desk.note_told
        return Tool(name, label, *words, serving, told)

    return [
        made("agent_call", "Agent Call", (_CALL, CALL_SCHEMA), desk.agent_call),
        made("agent_call_batch", "Agent Calls", (_BATCH, BATCH_SCHEMA), desk.agent_call_batch),
        made("debate_call", "Debate", (_DEBATE, DEBATE_SCHEMA), desk.debate_call),
        made(POLL, "Agent Poll", (_POLL, POLL_SCHEMA), desk.agent_poll),
    ]


class CallerResolver:
    """From who calls a tool to who calls an agent."""

    def __init__(self, room: CallsWiring) -> None:
        self._hosts = room.hosts

    def __call__(self, caller: ToolCaller) -> Caller:
        """The caller, by the name under which agents of this gateway know it."""
        if caller.name == OPERATOR_NAME:
            return Caller(AgentId(OPERATOR_NAME), caller.name, is_operator=True)
        if caller.session_key is None:
            return Caller(_cleaned(caller.agent_id or caller.name), caller.name)
        session_key = SessionKey(caller.session_key.lower())
        own = self._hosts.agent_in(session_key)
        named = caller.agent_id or agent_of(session_key) or caller.name
        return Caller(own or _cleaned(named), caller.name, session_key)


class CallerChains:
    """Through which agents somebody came to call a tool, for messages to remote agents."""

    def __init__(self, room: CallsWiring) -> None:
        self._room = room
        self._caller_of = CallerResolver(room)

    def said_with(self, caller: ToolCaller) -> JsonObject:
        """The chain as it travels; a program that calls is nobody's business elsewhere."""
        if caller.session_key is None:
            return {}
        return chain_metadata(self._chain(caller), self._room.host_id)

    def too_far(self, caller: ToolCaller) -> str | None:
        """Why the chain must not go on; None when it may."""
        limit = self._room.rules.guard.max_depth
        return chain_violation(self._chain(caller), AgentId("a remote agent"), max_depth=limit)

    def _chain(self, caller: ToolCaller) -> tuple[AgentId, ...]:
        return self._room.lineage.past(self._caller_of(caller)).chain


def _cleaned(name: str) -> AgentId:
    return AgentId(_UNSAFE.sub("-", name.lower()).strip("-")[:_MOST_NAME] or "caller")
