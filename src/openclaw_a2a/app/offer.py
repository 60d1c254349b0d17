"""Makes the tools that the settings turn on: today the calling of remote agents."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

import msgspec
import structlog

from openclaw_a2a.app.outbound_section import PATH
from openclaw_a2a.model.errors import Problem, SettingsInvalid
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.outbound.config import OutboundConfig
from openclaw_a2a.outbound.failure import RemoteFailure
from openclaw_a2a.outbound.handles import HandleKeeper
from openclaw_a2a.outbound.results import Results
from openclaw_a2a.ports import Clock
from openclaw_a2a.runtime.ids import new_id
from openclaw_a2a.settings import Settings
from openclaw_a2a.settings.inherited import inherited_variables
from openclaw_a2a.tools.table import OnUpdate, Tool, ToolCaller, ToolTable
from openclaw_a2a.tools.updates import stop

if TYPE_CHECKING:
    from openclaw_a2a.outbound.network import Network
    from openclaw_a2a.outbound.remote_agent import RemoteAgent

log = structlog.get_logger(__name__)

FOLDER = "results"
_SWEEP_S = 3600.0
_TOO_FAR = (
    "answer with what is known already; tools.agentToAgent.maxDepth says how far calls may go"
)


class Offer(msgspec.Struct, frozen=True):
    """The tools there are, and what was too large to be told at once."""

    table: ToolTable
    results: Results
    remote: "RemoteAgent | None" = None
    """What calls remote agents, when that is on."""

    def beside(self, tools: Iterable[Tool]) -> "Offer":
        """The same, with more tools."""
        return msgspec.structs.replace(self, table=ToolTable([*self.table, *tools]))


class Chains(Protocol):
    """Knows through which agents somebody came to call a tool."""

    def said_with(self, caller: ToolCaller) -> JsonObject:
        """What goes along with a message to a remote agent."""
        ...

    def too_far(self, caller: ToolCaller) -> str | None:
        """Why it must not go on from here; None when it may."""
        ...


class Surrounding(msgspec.Struct, frozen=True):
    """What tools need from around them; None: this process's own."""

    clock: Clock
    environment: Mapping[str, str] | None = None
    keeper: HandleKeeper | None = None
    chains: "Chains | None" = None


@asynccontextmanager
async def open_offer(
    settings: Settings, config: OutboundConfig, around: Surrounding
) -> AsyncGenerator[Offer]:
    """The tools of these settings, as long as the context lasts. Raises: SettingsInvalid."""
    results = Results(
        settings.data / FOLDER,
        limit=config.policy.max_result_bytes,
        keep=timedelta(milliseconds=config.task_handles.ttl_ms),
        now=around.clock.now,
    )
    if not config.enabled:
        yield Offer(ToolTable(), results)
        return
    # The client of A2A takes long to load, so it is loaded for those who use it.
    from openclaw_a2a.outbound.network import Network

    sweeping = asyncio.create_task(_sweep(results, around.clock))
    try:
        async with Network(config.policy, limit=settings.limits.artifact_bytes) as network:
            agent = _build(config, network, around)
            try:
                await agent.open()
                tool = _tool(agent, results, around.chains)
                yield Offer(ToolTable([tool]), results, agent)
            finally:
                await agent.close()
    finally:
        await stop(sweeping)


def _build(config: OutboundConfig, network: "Network", around: Surrounding) -> "RemoteAgent":
    from openclaw_a2a.outbound.remote_agent import RemoteAgent

    try:
        return RemoteAgent(
            config,
            network,
            now=around.clock.now,
            new_id=new_id,
            environment=inherited_variables(around.environment),
            keeper=around.keeper,
        )
    except RemoteFailure as failure:
        problem = Problem(f"{PATH}.targets", failure.message, "unsupported")
        raise SettingsInvalid(f"{problem.path}: {problem.message}", problems=(problem,)) from None


def _tool(agent: "RemoteAgent", results: Results, chains: Chains | None) -> Tool:
    from openclaw_a2a.outbound.remote_agent import LABEL, NAME
    from openclaw_a2a.outbound.validate import action_of

    async def run(arguments: Json, caller: ToolCaller, tell: OnUpdate) -> JsonObject:
        reason = None if chains is None else chains.too_far(caller)
        if reason is not None and action_of(arguments) == "send":
            return agent.refuse(arguments, reason, _TOO_FAR)
        said_with = None if chains is None else chains.said_with(caller)
        envelope = await agent.execute(arguments, tell, said_with=said_with)
        try:
            return await asyncio.to_thread(results.fit, envelope, caller.name)
        except OSError as error:  # the answer is too large for a model, but it is there
            log.warning("result-not-kept", tool=NAME, reason=str(error))
            return envelope

    return Tool(NAME, LABEL, agent.description, agent.schema, run)


async def _sweep(results: Results, clock: Clock) -> None:
    while True:
        try:
            await asyncio.to_thread(results.forget_old)
        except OSError as error:
            log.warning("results-not-forgotten", reason=str(error))
        await clock.sleep(_SWEEP_S)
