"""An agent of a running OpenClaw gateway, and its options."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Annotated, ClassVar, Final, Literal, Self

import anyio
import msgspec
from msgspec import Meta

from openclaw_a2a.agents.adapter import EventAgent
from openclaw_a2a.agents.openclaw_gateway.agent_directory import OpenClawAgents, only_agent
from openclaw_a2a.agents.openclaw_gateway.attachments import build_attachments
from openclaw_a2a.agents.openclaw_gateway.background_events import BackgroundWatcher
from openclaw_a2a.agents.openclaw_gateway.connection import (
    GatewayConnection,
    acquire_connection,
    release_connection,
)
from openclaw_a2a.agents.openclaw_gateway.handshake import ConnectFailed, GatewaySite
from openclaw_a2a.agents.openclaw_gateway.http_fallback import list_agents_over_http, run_over_http
from openclaw_a2a.agents.openclaw_gateway.pending_input import (
    list_pending_approvals,
    resolve_approval,
    to_approval,
)
from openclaw_a2a.agents.openclaw_gateway.protocol import RUN_EVENTS
from openclaw_a2a.agents.openclaw_gateway.redaction import ApprovalRedactor
from openclaw_a2a.agents.openclaw_gateway.run_follower import RunFollower
from openclaw_a2a.agents.openclaw_gateway.runs import (
    RUN_PREFIX,
    Pause,
    RunRequest,
    SessionRef,
    Timeouts,
    openclaw_session_key,
    session_agent_id,
)
from openclaw_a2a.agents.openclaw_gateway.session_delivery import (
    deliver_message,
    locate_session,
    provenance_params,
    wait_processed,
)
from openclaw_a2a.agents.openclaw_gateway.turn import GatewayTurn
from openclaw_a2a.agents.prompt import build_prompt
from openclaw_a2a.model.agent_event import AgentEvent, Approval, BackgroundEvent, RecentTask
from openclaw_a2a.model.card import AgentProfile
from openclaw_a2a.model.errors import AgentError, AgentFailed, AgentUnavailable, TaskNotCancelable
from openclaw_a2a.model.ids import Json, JsonObject, RunId, SessionKey, TaskId
from openclaw_a2a.model.turn import Binding, Turn
from openclaw_a2a.ports import (
    DeliveryFailed,
    MessageAccepted,
    Recovery,
    SessionGone,
    SessionMessage,
    SessionPresence,
)
from openclaw_a2a.settings.sections import Count, Seconds, Section, about


class OpenClawGatewayOptions(Section, frozen=True):
    """Which OpenClaw, which of its agents, and how it is reached."""

    url: Annotated[
        str, Meta(pattern=r"^(wss?|https?)://"), about("Address of the OpenClaw gateway.")
    ] = "ws://127.0.0.1:18789"
    token: Annotated[
        str,
        Meta(pattern=r"^((env|file|openclaw-config):.+)?$"),
        about("Where its token is: env:NAME or file:PATH."),
    ] = ""
    device_key: Annotated[
        str,
        Meta(pattern=r"^(file:.+)?$"),
        about("Ed25519 key of this device, file:PATH; for gateways that want pairing."),
    ] = ""
    agent_id: Annotated[str, about("OpenClaw's agent; left out when OpenClaw has only one.")] = ""
    thinking: Annotated[
        str, about("Thinking level of a turn; left out: OpenClaw's own choice.")
    ] = ""
    timeout_seconds: Annotated[
        Count | None, about("When OpenClaw gives a turn up; left out: its own limit.")
    ] = None
    connect_seconds: Annotated[Seconds, about("How long a turn waits for the connection.")] = 15.0
    extra_system_prompt: Annotated[
        str, about("Added to the agent's system prompt in every turn.")
    ] = ""
    road: Annotated[
        Literal["auto", "websocket", "http"],
        about("How it is reached; auto takes HTTP where only that is open."),
    ] = "auto"

    @property
    def socket_url(self) -> str:
        """The WebSocket address."""
        scheme, colon, rest = self.url.partition(":")
        return {"http": "ws", "https": "wss"}.get(scheme, scheme) + colon + rest


_AGENT_ID_RETRY_S: Final = 15.0
# Long enough for a gateway on this machine; a turn should not wait longer before it tries HTTP.
_BEFORE_HTTP_S: Final = 2.0
_HTTP_TIMEOUT_S: Final = 600.0


class OpenClawGatewayAgent(EventAgent):
    """Answers turns with runs inside OpenClaw, and rejoins them after any interruption.

    The run id is `a2a-` and the engine's run id: it is known before OpenClaw sees the message, so
    the run can be looked up after a restart and distinguished from foreign runs.
    """

    options_type: ClassVar[type[msgspec.Struct]] = OpenClawGatewayOptions

    def __init__(
        self,
        options: OpenClawGatewayOptions,
        *,
        environ: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self._options = options
        self._environ = environ
        self._timeouts = timeouts or Timeouts()
        device_key = options.device_key.removeprefix("file:")
        self._site = GatewaySite(options.socket_url, options.token, device_key)
        self._connection: GatewayConnection | None = None
        self._is_detached = False
        self._is_left: dict[RunId, bool] = {}
        """The runs that are followed; True: it goes on when its turn is interrupted."""
        self._is_on_http = False  # true when only HTTP was reachable at the last turn
        self._agents = OpenClawAgents()
        self._turns: set[GatewayTurn] = set()

    @classmethod
    def from_options(
        cls, options: OpenClawGatewayOptions, *, environment: Mapping[str, str] | None
    ) -> Self:
        """The agent for these options."""
        return cls(options, environ=environment)

    @property
    def recovery(self) -> Recovery:
        """Runs are rejoined after a restart; over HTTP they have failed."""
        return Recovery.FAIL if self._options.road == "http" else Recovery.REATTACH

    # ---------------------------------------------------------------- turns

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Answer the turn. Closing the iterator ends the run inside OpenClaw.

        Raises: AgentUnavailable (OpenClaw is out of reach), AgentFailed (it refused or failed).
        """
        self._is_left[turn.run_id] = False
        try:
            async with aclosing(await self._start(turn)) as events:
                async for event in events:
                    yield event
        finally:
            self._is_left.pop(turn.run_id, None)

    async def _start(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        try:
            connection = await self._connect_for(turn)
            agent_id = "" if connection is None else await self._find_agent_id(connection)
        except asyncio.CancelledError:
            # A run that an earlier attempt or turn started has to end as well, before the
            # cancellation is committed.
            # Only these: in a first attempt nothing has been sent before the connection is there.
            has_run = self._options.road != "http" and _may_be_started(turn)
            if has_run and not self._leaves(turn):
                with anyio.CancelScope(shield=True):
                    await self.end_detached_run(turn)
            raise
        if connection is None:
            events = await self._start_over_http(turn)
        else:
            events = self._run_over_websocket(connection, turn, agent_id)
        if turn.may_approve:
            return events
        workspace = self._agents.workspace(agent_id)
        approvals: Mapping[str, str] = {} if connection is None else connection.runs.approvals
        return ApprovalRedactor(workspace, approvals).redact(events)

    def _leaves(self, turn: Turn) -> bool:
        return self._is_detached or self._is_left.get(turn.run_id, False)

    async def _run_over_websocket(
        self, connection: GatewayConnection, turn: Turn, agent_id: str
    ) -> AsyncGenerator[AgentEvent]:
        request = await self._build_request(connection, turn, agent_id)
        # Subscribed before the message is sent: no event of the run can be missed.
        with connection.subscribe(RUN_EVENTS, request.session.session_key) as subscription:
            current = GatewayTurn(
                connection, subscription, turn, request=request, timeouts=self._timeouts
            )
            self._turns.add(current)
            try:
                for event in await current.begin():
                    yield event
                while not current.is_over:
                    for event in await current.next():
                        yield event
            finally:
                self._turns.discard(current)
                # The run has ended already when the turn is over; then `stop` returns at once.
                if not self._leaves(turn):
                    # Shielded: a cancelled task must not be committed before its run has ended.
                    with anyio.CancelScope(shield=True):
                        await current.follower.stop()

    async def _start_over_http(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        options = self._options
        try:
            address = self._site.resolve(self._environ)
        except ConnectFailed as failure:
            raise AgentUnavailable(failure.message) from None
        # Before the run is started: its errors then mean that nothing was executed.
        agent_id = options.agent_id or only_agent(await list_agents_over_http(address), options.url)
        timeout_s = options.timeout_seconds or _HTTP_TIMEOUT_S
        return run_over_http(address, turn, agent_id=agent_id, timeout_s=timeout_s)

    async def _connect_for(self, turn: Turn) -> GatewayConnection | None:
        """The connection; None when the turn is to run over HTTP.

        A run that was started before may be active in an OpenClaw that is still starting. It gets
        the time of a reconnect and never falls back to HTTP, where it could only be started anew.
        """
        if self._options.road == "http":
            return None
        connection, timeout_s = self._get_connection(), self._options.connect_seconds
        is_started = _may_be_started(turn)
        if is_started or self._options.road == "websocket":
            wait_s = max(timeout_s, self._timeouts.reconnect_s) if is_started else timeout_s
            await connection.wait_connected(wait_s)
            return connection
        try:
            await connection.wait_connected(min(timeout_s, _BEFORE_HTTP_S))
        except AgentUnavailable:
            # A proxy in between may pass HTTP only. If that fails too, the WebSocket gets the rest
            # of the time.
            with suppress(AgentUnavailable):
                await list_agents_over_http(connection.address)
                self._is_on_http = True
                return None
            self._is_on_http = False
            await connection.wait_connected(max(0.0, timeout_s - _BEFORE_HTTP_S))
        self._is_on_http = False
        return connection

    async def _stop_run(self, session_key: SessionKey, run_id: str) -> None:
        """End a run that no turn follows. Raises: AgentUnavailable, AgentFailed."""
        connection = await self._connect()
        agent_id = await self._find_agent_id(connection)
        session = SessionRef(agent_id, openclaw_session_key(session_key, agent_id))
        with connection.subscribe(RUN_EVENTS, session.session_key) as subscription:
            # Without parameters, so that the follower can never send the message.
            request = RunRequest(TaskId(""), run_id, session)
            follower = RunFollower(connection, subscription, request, self._timeouts)
            follower.attach()
            await follower.stop()

    async def _build_request(
        self, connection: GatewayConnection, turn: Turn, agent_id: str
    ) -> RunRequest:
        options = self._options
        attachments = build_attachments(turn, connection.limits)
        session_key = openclaw_session_key(turn.session_key, agent_id)
        run_id = RUN_PREFIX + turn.run_id
        message = build_prompt(turn, attachments.notes)
        params: JsonObject = {
            "agentId": agent_id,
            "sessionKey": session_key,
            # OpenClaw uses the key as the run id: the run can be looked up without any response.
            "idempotencyKey": run_id,
            "attachments": list(attachments.attached),
            "thinking": options.thinking,
        }
        if attachments.has_only_images:
            params |= {
                "message": message,
                "timeout": options.timeout_seconds,
                "extraSystemPrompt": options.extra_system_prompt,
                **await provenance_params(connection, session_key, turn.provenance),
            }
        else:
            # `chat.send` has no system prompt of a message.
            parts = (options.extra_system_prompt, message)
            params |= {
                "message": "\n\n".join(part for part in parts if part),
                "timeoutMs": options.timeout_seconds and int(options.timeout_seconds * 1000),
                "suppressCommandInterpretation": True,
            }
        return RunRequest(
            turn.task_id,
            run_id,
            SessionRef(agent_id, session_key, self._agents.workspace(agent_id)),
            params={name: value for name, value in params.items() if value not in ("", None, [])},
            may_approve=turn.may_approve,
            method="agent" if attachments.has_only_images else "chat.send",
        )

    async def _find_agent_id(self, connection: GatewayConnection) -> str:
        """The agent's id inside OpenClaw; its only agent when the options name none."""
        wanted = self._options.agent_id
        # Read again while the wanted agent is not in the list, or none is named: the list may have
        # changed since.
        if self._agents.find(wanted) is None:
            await self._agents.refresh(connection)
        return wanted or only_agent(self._agents.agents, self._options.url)

    def _known_agent_id(self) -> str:
        """The same from the cache, without a request; empty when it is not known."""
        agents = self._agents.agents
        return self._options.agent_id or (agents[0].id if len(agents) == 1 else "")

    # ---------------------------------------------------------------- pauses and approvals

    async def cancel_pause(self, binding: Binding, resume: Json) -> None:
        """Stop the paused run. Raises: TaskNotCancelable."""
        pause = Pause.from_resume(resume)
        if pause is None:
            return
        try:
            await self._stop_run(binding.session_key, pause.run_id)
        except AgentError as error:
            raise TaskNotCancelable(
                f"the paused run inside OpenClaw could not be ended: {error.message}"
            ) from error

    async def approvals(self) -> tuple[Approval, ...]:
        """The commands of this agent that wait for a decision. Raises: AgentUnavailable."""
        connection = await self._connect()
        agent_id = await self._find_agent_id(connection)
        pending = await list_pending_approvals(connection)
        paused = {pause.run_id: task_id for task_id, pause in connection.runs.list_pauses()}
        followed = {one.follower.run_id: one.task_id for one in self._turns}
        # A followed run is newer than a pause under the same id.
        tasks = {**paused, **followed}
        own = [one for one in pending if (one.request.agent_id or agent_id) == agent_id]
        return tuple(to_approval(one, tasks) for one in own)

    async def decide(self, approval_id: str, *, allow: bool) -> None:
        """Decide once. Raises: ApprovalNotFound, ApprovalOver, AgentUnavailable."""
        await resolve_approval(await self._connect(), approval_id, allow=allow)

    # ---------------------------------------------------------------- sessions inside OpenClaw

    def owns_session(self, session_key: SessionKey) -> bool:
        """True when the session's key names this agent, and messages can be delivered there."""
        known = self._known_agent_id()
        can_deliver = self._options.road != "http"  # HTTP has no way into a session
        return can_deliver and bool(known) and session_agent_id(session_key) == known.lower()

    def host_session_key(self, session_key: SessionKey) -> SessionKey | None:
        """OpenClaw's key of one of our sessions; None before the agent's id is known."""
        known = self._known_agent_id()
        return SessionKey(openclaw_session_key(session_key, known)) if known else None

    @property
    def host(self) -> str:
        """The address of the OpenClaw that this agent is in; the same for all agents in it."""
        return self._options.socket_url.rstrip("/").lower()

    async def locate_session(self, session_key: SessionKey) -> SessionPresence:
        """Whether this OpenClaw has the session. Raises: AgentUnavailable, AgentFailed."""
        if self._options.road == "http":  # HTTP has no way into a session
            return SessionPresence.ABSENT
        return await locate_session(await self._connect(), session_key.lower())

    async def deliver(
        self, message: SessionMessage
    ) -> MessageAccepted | SessionGone | DeliveryFailed:
        """Put a message into a session, once; it becomes a turn when the session is free."""
        try:
            return await deliver_message(await self._connect(), message)
        except AgentError as error:
            # AgentFailed: OpenClaw works and rejected this message, so that others may succeed.
            return DeliveryFailed(error.message, is_refused=isinstance(error, AgentFailed))

    async def wait_processed(self, message: SessionMessage) -> bool:
        """Wait until that turn has ended; False when the message has to be delivered again."""
        return await wait_processed(self._get_connection(), message, self._timeouts)

    # ---------------------------------------------------------------- lifecycle

    async def background_events(
        self, recent: Sequence[RecentTask]
    ) -> AsyncIterator[BackgroundEvent]:
        """What happens in our sessions outside our turns, until the iterator is closed."""
        if self._options.road == "http":  # HTTP has no events
            # Not a return: the engine would open the stream again and again.
            await anyio.sleep_forever()
        connection, agent_id = self._get_connection(), ""
        # The engine's background loop runs this from the start of the gateway, when OpenClaw may
        # not be up yet.
        while not agent_id:
            try:
                await connection.wait_connected(_AGENT_ID_RETRY_S)
                agent_id = await self._find_agent_id(connection)
            except AgentError:
                agent_id = self._options.agent_id
                if not agent_id:
                    await anyio.sleep(_AGENT_ID_RETRY_S)
        watcher = BackgroundWatcher(connection, agent_id, self._agents, self._timeouts)
        async with aclosing(watcher.events(recent)) as events:
            async for event in events:
                yield event

    def unavailable_reason(self) -> str | None:
        """Why it cannot answer now, in one sentence with what to do; None when it can."""
        if self._connection is None or self._is_on_http:
            return None
        wanted, known = self._options.agent_id, self._agents.agents
        if wanted and known and self._agents.find(wanted) is None:
            names = ", ".join(agent.id for agent in known)
            return f"OpenClaw has no agent {wanted}, only {names}; correct the option agentId."
        return self._connection.unavailable_reason()

    def profile(self) -> AgentProfile | None:
        """OpenClaw's description of the agent; None before it was read."""
        known = self._agents.find(self._known_agent_id())
        return None if known is None else known.profile

    async def close(self) -> None:
        """Release the connection; runs inside OpenClaw continue."""
        # Taken out first: a second `close` finds nothing to release.
        connection, self._connection = self._connection, None
        if connection is not None:
            await release_connection(connection)

    def detach(self) -> None:
        """Called when the gateway stops: turns cancelled later leave their runs active."""
        # The next process re-attaches to them by their run ids.
        self._is_detached = True

    def detach_run(self, run_id: RunId) -> bool:
        """Leave one run to another replica; False when no turn follows it here."""
        if run_id not in self._is_left:
            return False
        self._is_left[run_id] = True
        return True

    async def end_detached_run(self, turn: Turn) -> None:
        """End the run of a turn that nobody follows. Raises: AgentUnavailable, AgentFailed."""
        pause = Pause.from_resume(turn.resume)
        run_id = RUN_PREFIX + turn.run_id if pause is None else pause.run_id
        await self._stop_run(turn.session_key, run_id)

    def _get_connection(self) -> GatewayConnection:
        if self._connection is None:
            self._connection = acquire_connection(self._site, environ=self._environ)
        return self._connection

    async def _connect(self) -> GatewayConnection:
        connection = self._get_connection()
        await connection.wait_connected(self._options.connect_seconds)
        return connection


def _may_be_started(turn: Turn) -> bool:
    """True when OpenClaw may already have a run for the turn."""
    return turn.attempt > 1 or turn.resume is not None
