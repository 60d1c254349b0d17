"""An agent of a running OpenClaw gateway."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import ClassVar, Final, Self, cast

import anyio
import msgspec

from openclaw_a2a.agents.openclaw_gateway.agent_directory import (
    OpenClawAgents,
    list_agents_over_http,
    only_agent,
)
from openclaw_a2a.agents.openclaw_gateway.approvals import (
    as_approval,
    pending_approvals,
    resolve_approval,
)
from openclaw_a2a.agents.openclaw_gateway.attachments import build_attachments
from openclaw_a2a.agents.openclaw_gateway.background_events import BackgroundWatcher
from openclaw_a2a.agents.openclaw_gateway.connect import GatewayLimits, GatewaySite
from openclaw_a2a.agents.openclaw_gateway.connection import (
    GatewayConnection,
    acquire_connection,
    release_connection,
    resolve_address,
)
from openclaw_a2a.agents.openclaw_gateway.http_fallback import HttpFallback, HttpRunRequest
from openclaw_a2a.agents.openclaw_gateway.media import SessionRef
from openclaw_a2a.agents.openclaw_gateway.options import OpenClawGatewayOptions
from openclaw_a2a.agents.openclaw_gateway.protocol import RUN_EVENTS
from openclaw_a2a.agents.openclaw_gateway.run_follower import RunFollower
from openclaw_a2a.agents.openclaw_gateway.run_registry import RUN_PREFIX, Pause
from openclaw_a2a.agents.openclaw_gateway.run_request import RunRequest, Timeouts, build_prompt
from openclaw_a2a.agents.openclaw_gateway.session_delivery import SessionDelivery, provenance_params
from openclaw_a2a.agents.openclaw_gateway.sessions import openclaw_session_key, session_agent_id
from openclaw_a2a.agents.openclaw_gateway.subscription import EventFilter
from openclaw_a2a.agents.openclaw_gateway.turn import GatewayTurn
from openclaw_a2a.model.agent_event import AgentEvent, Approval, BackgroundEvent, RecentTask
from openclaw_a2a.model.card import AgentProfile
from openclaw_a2a.model.errors import AgentError, AgentUnavailable, TaskNotCancelable
from openclaw_a2a.model.ids import Json, JsonObject, SessionKey, TaskId
from openclaw_a2a.model.turn import Binding, Turn
from openclaw_a2a.ports import (
    DeliveryFailed,
    MessageAccepted,
    Recovery,
    SessionGone,
    SessionMessage,
)

_RETRY_S: Final = 15.0
_BEFORE_HTTP_S: Final = 2.0
_HTTP_S: Final = 600.0


class OpenClawGatewayAgent:
    """Answers turns by runs inside OpenClaw, and finds them again after every kind of break.

    A run of ours has the name `a2a-` and the engine's run id, so that it can be asked for after a
    restart, and told from the runs of others by its name alone.
    """

    options_type: ClassVar[type[msgspec.Struct]] = OpenClawGatewayOptions

    def __init__(
        self,
        options: OpenClawGatewayOptions,
        *,
        environ: Mapping[str, str] | None = None,
        patience: Timeouts | None = None,
    ) -> None:
        self._patience = patience or Timeouts()
        self.recovery = Recovery.FAIL if options.road == "http" else Recovery.REATTACH
        self._options = options
        self._environ = environ
        device_key = options.device_key.removeprefix("file:")
        self._site = GatewaySite(options.socket_url, options.token, device_key)
        self._link: GatewayConnection | None = None
        self._is_leaving = False
        self._is_on_http = False
        """True when only HTTP was open at the last turn."""
        self._roster = OpenClawAgents()
        self._tasks: dict[str, TaskId] = {}
        """Our tasks by the runs that are being followed."""
        connect_s = options.connect_seconds
        self._notes = SessionDelivery(self._use, connect_s=connect_s, patience=self._patience)

    @classmethod
    def from_options(
        cls, options: OpenClawGatewayOptions, *, environment: Mapping[str, str] | None
    ) -> Self:
        """The agent that the settings ask for."""
        return cls(options, environ=environment)

    # ---------------------------------------------------------------- turns

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Answer the turn. Closing the iterator ends the run inside OpenClaw.

        Raises: AgentUnavailable (OpenClaw is out of reach), AgentFailed (it refused or failed).
        """
        try:
            link = await self._link_for_turn(turn)
            agent_id = "" if link is None else await self._agent_id(link)
        except asyncio.CancelledError:
            await self._stop_unseen(turn)
            raise
        events = self._over_http(turn) if link is None else self._over_link(link, turn, agent_id)
        async with aclosing(events):
            async for event in events:
                yield event

    async def _over_link(
        self, link: GatewayConnection, turn: Turn, agent_id: str
    ) -> AsyncGenerator[AgentEvent]:
        errand = await self._errand(link, turn, agent_id)
        with link.subscribe(EventFilter(RUN_EVENTS, errand.session.session_key)) as listening:
            visit = GatewayTurn(link, listening, turn, errand=errand, patience=self._patience)
            self._tasks[visit.run_id] = turn.task_id
            try:
                for event in await visit.begin():
                    yield event
                while not visit.is_over:
                    for event in await visit.next():
                        yield event
            finally:
                self._tasks.pop(visit.run_id, None)
                if not self._is_leaving:
                    with anyio.CancelScope(shield=True):
                        await visit.stop()

    async def _over_http(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        options = self._options
        address = resolve_address(self._site, self._environ)
        agent_id = options.agent_id or only_agent(await list_agents_over_http(address), options.url)
        attached = build_attachments(turn, GatewayLimits())
        question = HttpRunRequest(
            agent_id,
            openclaw_session_key(turn.session_key, agent_id),
            build_prompt(turn, attached.notes),
            attached.images,
            turn.attempt,
        )
        road = HttpFallback(address, timeout_s=options.timeout_seconds or _HTTP_S)
        events = cast("AsyncGenerator[AgentEvent]", road.run(question))
        async with aclosing(events):
            async for event in events:
                yield event

    async def _link_for_turn(self, turn: Turn) -> GatewayConnection | None:
        """The connection; None when OpenClaw is to be asked over HTTP.

        A run that was begun before may be under way in an OpenClaw that is only late, as after a
        start of the machine: it is waited for as long as for a connection that broke, and never
        asked for over HTTP, where it could only be begun anew.
        """
        if self._options.road == "http":
            return None
        link, patience_s = self._use(), self._options.connect_seconds
        if _is_begun(turn):
            await link.wait_connected(max(patience_s, self._patience.reconnect_s))
            return link
        if self._options.road == "websocket":
            await link.wait_connected(patience_s)
            return link
        try:
            await link.wait_connected(min(patience_s, _BEFORE_HTTP_S))
        except AgentUnavailable:
            road = HttpFallback(link.address, timeout_s=_BEFORE_HTTP_S)
            self._is_on_http = await road.is_open()
            if self._is_on_http:
                return None
            await link.wait_connected(max(0.0, patience_s - _BEFORE_HTTP_S))
        self._is_on_http = False
        return link

    async def _stop_unseen(self, turn: Turn) -> None:
        """The turn is broken off before its run was found again: that has to end as well."""
        if self._is_leaving or self._options.road == "http" or not _is_begun(turn):
            return
        pause = Pause.from_resume(turn.resume)
        run_id = RUN_PREFIX + turn.run_id if pause is None else pause.run_id
        with anyio.CancelScope(shield=True):
            await self._stop_run(turn.session_key, run_id)

    async def _stop_run(self, session_key: SessionKey, run_id: str) -> None:
        """End a run that nobody follows. Raises: AgentUnavailable, AgentFailed."""
        link = await self._connected()
        agent_id = await self._agent_id(link)
        shelf = SessionRef(agent_id, openclaw_session_key(session_key, agent_id))
        with link.subscribe(EventFilter(RUN_EVENTS, shelf.session_key)) as listening:
            errand = RunRequest(TaskId(""), run_id, shelf)
            following = RunFollower(link, listening, errand, self._patience)
            following.is_at_work = True
            await following.stop()

    async def _errand(self, link: GatewayConnection, turn: Turn, agent_id: str) -> RunRequest:
        options = self._options
        attached = build_attachments(turn, link.limits)
        session_key = openclaw_session_key(turn.session_key, agent_id)
        run_id = RUN_PREFIX + turn.run_id
        params: JsonObject = {
            "agentId": agent_id,
            "sessionKey": session_key,
            "message": build_prompt(turn, attached.notes),
            "idempotencyKey": run_id,
            "attachments": list(attached.images),
            "thinking": options.thinking,
            "timeout": options.timeout_seconds,
            "extraSystemPrompt": options.extra_system_prompt,
            **await provenance_params(link, session_key, turn.provenance),
        }
        return RunRequest(
            turn.task_id,
            run_id,
            SessionRef(agent_id, session_key, self._workspace(agent_id)),
            params={name: value for name, value in params.items() if value not in ("", None, [])},
            may_approve=turn.may_approve,
        )

    async def _agent_id(self, link: GatewayConnection) -> str:
        """The agent inside OpenClaw; asked for when the options do not name it."""
        wanted = self._options.agent_id
        if self._roster.find(wanted) is None:
            await self._roster.refresh(link)
        if wanted:
            return wanted
        return only_agent(self._roster.agents, self._options.url)

    def _known_id(self) -> str:
        """The same, as far as it is known without asking; empty when it is not."""
        agents = self._roster.agents
        return self._options.agent_id or (agents[0].id if len(agents) == 1 else "")

    def _workspace(self, agent_id: str) -> str:
        known = self._roster.find(agent_id)
        return known.workspace if known is not None else ""

    # ---------------------------------------------------------------- pauses and approvals

    async def cancel_pause(self, binding: Binding, resume: Json) -> None:
        """Stop the run that waits. Raises: TaskNotCancelable."""
        pause = Pause.from_resume(resume)
        if pause is None:
            return
        try:
            await self._stop_run(binding.session_key, pause.run_id)
        except AgentError as error:
            raise TaskNotCancelable(
                f"what the task waits for could not be ended: {error.message}"
            ) from error

    async def approvals(self) -> tuple[Approval, ...]:
        """The commands of this agent that wait for a decision. Raises: AgentUnavailable."""
        link = await self._connected()
        agent_id = await self._agent_id(link)
        waiting = await pending_approvals(link)
        paused = {pause.run_id: task_id for task_id, pause in link.runs.list_pauses()}
        tasks = {**paused, **self._tasks}
        own = [one for one in waiting if (one.request.agent_id or agent_id) == agent_id]
        return tuple(as_approval(one, tasks) for one in own)

    async def decide(self, approval_id: str, *, allow: bool) -> None:
        """Decide once. Raises: ApprovalNotFound, ApprovalOver, AgentUnavailable."""
        await resolve_approval(await self._connected(), approval_id, allow=allow)

    # ---------------------------------------------------------------- sessions of its own

    def owns_session(self, session_key: SessionKey) -> bool:
        """True when the session is this agent's inside OpenClaw, and can be spoken to."""
        known = self._known_id()
        is_open = self._options.road != "http"  # where nothing can be put into a session
        return is_open and bool(known) and session_agent_id(session_key) == known.lower()

    def host_session_key(self, session_key: SessionKey) -> SessionKey | None:
        """How OpenClaw calls a session of ours; None before its agent is known."""
        known = self._known_id()
        return SessionKey(openclaw_session_key(session_key, known)) if known else None

    async def deliver(self, note: SessionMessage) -> MessageAccepted | SessionGone | DeliveryFailed:
        """Put a note into a session, once; it is a turn there as soon as the session is free."""
        return await self._notes.deliver(note)

    async def wait_processed(self, note: SessionMessage) -> bool:
        """Wait until that turn has ended; False when the note has to be given again."""
        return await self._notes.wait_processed(note)

    # ---------------------------------------------------------------- the rest of its life

    async def background_events(
        self, recent: Sequence[RecentTask]
    ) -> AsyncIterator[BackgroundEvent]:
        """What happens in our sessions outside our turns, for as long as it is listened to."""
        if self._options.road == "http":  # nobody tells anything there without being asked
            await anyio.sleep_forever()
        link = self._use()
        agent_id = await self._agent_id_at_last(link)
        watch = BackgroundWatcher(
            link,
            agent_id,
            workspace=lambda: self._workspace(agent_id),
            connected=lambda: self._roster.refresh(link),
        )
        events = cast("AsyncGenerator[BackgroundEvent]", watch.events(recent))
        async with aclosing(events):
            async for event in events:
                yield event

    async def _agent_id_at_last(self, link: GatewayConnection) -> str:
        """The agent's id, however long it takes until OpenClaw can be asked for it."""
        while True:
            try:
                await link.wait_connected(_RETRY_S)
                return await self._agent_id(link)
            except AgentError:
                if self._options.agent_id:
                    return self._options.agent_id
                await anyio.sleep(_RETRY_S)

    def unavailable_reason(self) -> str | None:
        """Why it cannot answer now, in one sentence with what to do; None when it can."""
        if self._link is None or self._is_on_http:
            return None
        wanted, known = self._options.agent_id, self._roster.agents
        if wanted and known and self._roster.find(wanted) is None:
            names = ", ".join(agent.id for agent in known)
            return f"OpenClaw has no agent {wanted}, only {names}; correct the option agentId."
        return self._link.unavailable_reason()

    def profile(self) -> AgentProfile | None:
        """What OpenClaw says of the agent; None before it was asked."""
        known = self._roster.find(self._known_id())
        return None if known is None else known.profile

    async def close(self) -> None:
        """Let go of the connection; runs inside OpenClaw go on."""
        link, self._link = self._link, None
        if link is not None:
            await release_connection(link)

    def detach(self) -> None:
        """The gateway stops: runs that are broken off from now on go on inside OpenClaw."""
        self._is_leaving = True

    def _use(self) -> GatewayConnection:
        if self._link is None:
            self._link = acquire_connection(self._site, environ=self._environ)
        return self._link

    async def _connected(self) -> GatewayConnection:
        link = self._use()
        await link.wait_connected(self._options.connect_seconds)
        return link


def _is_begun(turn: Turn) -> bool:
    """True when a run inside OpenClaw may be under way for the turn before it is sent."""
    return turn.attempt > 1 or turn.resume is not None
