"""Reports what happens in our sessions outside our turns: replies of foreign runs, resolved pauses.

A cron job, another channel or a late tool may write into a session; a user of OpenClaw may answer a
question that one of our tasks waits for. Events only say where to look: a reply is read from the
session's history, so that it has the same id whether its event arrived or was missed while the
connection was away.

An entry of the history belongs to the run that it names, or that its idempotency key starts with.
After a crash OpenClaw resumes the interrupted turn in a run of its own: that run has the owner of
the interrupted one.
"""

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final

import anyio
import msgspec

from openclaw_a2a.agents.openclaw_gateway.agent_directory import OpenClawAgents
from openclaw_a2a.agents.openclaw_gateway.connection import (
    EventReceived,
    EventsDropped,
    GatewayConnection,
    Reconnected,
)
from openclaw_a2a.agents.openclaw_gateway.history import (
    HistoryEntry,
    read_history,
    with_full_content,
)
from openclaw_a2a.agents.openclaw_gateway.media import is_link, omitted_text, workspace_path
from openclaw_a2a.agents.openclaw_gateway.protocol import Wire, decode_as
from openclaw_a2a.agents.openclaw_gateway.redaction import ApprovalRedactor
from openclaw_a2a.agents.openclaw_gateway.runs import (
    Pause,
    Timeouts,
    find_our_session,
    openclaw_session_key,
)
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.agent_event import (
    BackgroundEvent,
    BackgroundReply,
    PauseResolved,
    RecentTask,
)
from openclaw_a2a.model.errors import AgentError, AgentFailed, AgentUnavailable
from openclaw_a2a.model.ids import JsonObject, SessionKey
from openclaw_a2a.model.message import Part

log = get_logger(__name__)

SETTLE_S: Final = 2.0
"""Delay between the end of a run and its check: its media join the history a little later."""

_EVENTS: Final = frozenset({"chat", "question.resolved", "exec.approval.resolved"})
_END_STATES: Final = frozenset({"final", "error", "aborted"})
_STATUS_TIMEOUT_S: Final = 20.0
_RETRY_S: Final = 5.0
_CONNECT_TIMEOUT_S: Final = 60.0
# Entries per check; replies further back are not reported.
_HISTORY_LIMIT: Final = 60
# Each new connection reads the history of every watched session, so their number is bounded.
_MAX_SESSIONS: Final = 100
_MAX_CHECKS: Final = 1000
_MAX_REPORTED: Final = 5000
_PENDING: Final = "pending"
_INJECTED: Final = "inject-"
"""Run id prefix in events of a message that was injected into the session; its id follows."""


# -------------------------------------------------------------------- replies of foreign runs


class ForeignReply(msgspec.Struct, frozen=True):
    """A reply and its run; the run of an injected message is empty."""

    run_id: str
    entry: HistoryEntry


class ForeignReplies(msgspec.Struct, frozen=True):
    """The replies in a transcript that answer none of our runs.

    `later` are those after the last entry of ours; None when the transcript shows none of ours.
    """

    all: tuple[ForeignReply, ...]
    later: tuple[ForeignReply, ...] | None

    def after(self, since_ms: float) -> tuple[ForeignReply, ...]:
        """The replies that were written after this time."""
        return tuple(one for one in self.all if one.entry.recorded_at_ms > since_ms)

    def of_run(self, run_id: str) -> tuple[ForeignReply, ...]:
        """The replies of one run, by the run id in its events."""
        injected = run_id.removeprefix(_INJECTED)
        return tuple(
            reply for reply in self.all if run_id == reply.run_id or injected == reply.entry.id
        )


def find_foreign_replies(
    entries: Sequence[HistoryEntry], is_ours: Callable[[str], bool]
) -> ForeignReplies:
    """The replies of runs that are not ours, nor recoveries of ours."""
    replies: list[ForeignReply] = []
    later: list[ForeignReply] | None = None
    recoveries: set[str] = set()
    # The input before the first entry is not shown; it may have been ours.
    input_run, is_input_ours = "", True
    for entry in entries:
        key = entry.idempotency_key or ""
        run_id = entry.marks.run_id or key.rpartition(":")[0] or key
        if entry.is_input:
            input_run = run_id
            if not entry.is_recovery:
                is_input_ours = is_ours(run_id)
            elif is_input_ours:
                recoveries.add(run_id)
        elif not run_id and entry.provider != "openclaw":
            # What names no run belongs to the run of the input before it; what OpenClaw itself
            # says, such as an injected message, belongs to none.
            run_id = input_run
        if is_ours(run_id) or run_id in recoveries:
            later = []
        elif entry.is_foreign_reply:
            replies.append(ForeignReply(run_id, entry))
            if later is not None:
                later.append(replies[-1])
    return ForeignReplies(tuple(replies), None if later is None else tuple(later))


# -------------------------------------------------------------------- the watcher


class _Check(msgspec.Struct, frozen=True):
    """A scheduled check: of a run in a session, of a whole session, of a pause, or of all."""

    session: SessionKey | None = None
    run_id: str = ""
    pause_id: str = ""
    is_of_all_pauses: bool = False


_ALL_PAUSES: Final = _Check(is_of_all_pauses=True)


class BackgroundWatcher:
    """Watches our sessions with one agent of a gateway.

    An event only schedules a check; a check reads the session's history, or the state of the
    pause. `agents` is read again at each new connection, before anything is checked.
    """

    def __init__(
        self,
        connection: GatewayConnection,
        agent_id: str,
        agents: OpenClawAgents,
        timeouts: Timeouts,
    ) -> None:
        self._connection = connection
        self._runs = connection.runs
        self._agent_id = agent_id
        self._agents = agents
        self._timeouts = timeouts
        self._sessions: OrderedDict[SessionKey, float | None] = OrderedDict()
        """Watched sessions, least recently used first, with the end of our last task there (in
        milliseconds) where that is known."""
        self._checks: dict[_Check, float] = {}  # scheduled checks with their due times
        # Against duplicates within this process; after a restart the engine finds the artifact of a
        # reply in the task, by the reply's id.
        self._reported: OrderedDict[str, None] = OrderedDict()

    async def events(self, recent: Sequence[RecentTask]) -> AsyncGenerator[BackgroundEvent]:
        """The events, until the iterator is closed; first those that `recent` tasks missed."""
        # The oldest first, so that the sessions used last are the last to be dropped.
        for task in reversed(recent):
            key = openclaw_session_key(task.session_key, self._agent_id)
            # A shared session, such as the agent's main one, is not watched.
            if find_our_session(key, self._agent_id) is not None:
                self._watch(task.session_key)
                self._sessions[task.session_key] = task.status_at.timestamp() * 1000
            if task.is_paused:
                # `setdefault`: a turn may have paused again since the tasks were read.
                self._runs.pauses.setdefault(task.task_id, task.resume)
        # Subscribed before the first check: what happens during the check is not missed.
        with self._connection.subscribe(_EVENTS) as subscription:
            await self._check_everything()
            while True:
                now = anyio.current_time()
                due = next((one for one, due_at in self._checks.items() if due_at <= now), None)
                if due is not None:
                    # Removed before it runs: an event during the check schedules a new one.
                    del self._checks[due]
                    for event in await self._run_check(due):
                        yield event
                    continue
                # The subscription's queue wakes this wait, or the next check that is due.
                wait_s = min(self._checks.values()) - now if self._checks else None
                item = await subscription.next(wait_s)
                if isinstance(item, EventReceived):
                    self._handle(item)
                # Events were missed. `ConnectionLost` needs no action: `Reconnected` follows it.
                elif isinstance(item, Reconnected | EventsDropped):
                    await self._check_everything()

    def _watch(self, session: SessionKey) -> None:
        self._sessions.setdefault(session, None)
        self._sessions.move_to_end(session)
        if len(self._sessions) > _MAX_SESSIONS:
            self._sessions.popitem(last=False)

    async def _check_everything(self) -> None:
        """Schedule a check of every session and pause, as soon as there is a connection."""
        while True:
            try:
                await self._connection.wait_connected(_CONNECT_TIMEOUT_S)
                break
            # Out of reach for long, or refused for good: tried until the operator mends it.
            except AgentError:
                await anyio.sleep(_RETRY_S)
        await self._agents.refresh(self._connection)
        self._checks[_ALL_PAUSES] = anyio.current_time()
        # The last used first: its owner is the most likely to wait.
        for session in reversed(self._sessions):
            self._schedule(_Check(session), delay_s=0)

    def _handle(self, item: EventReceived) -> None:
        payload = decode_as(_EventPayload, item.payload)
        if payload is None:
            return
        if item.event != "chat":
            # Also for an unknown pause: its run may not have handled the request yet. If it is
            # unknown when it is checked, too, the next check of all pauses finds it resolved.
            self._schedule(_Check(pause_id=payload.id), delay_s=SETTLE_S)
            return
        session = find_our_session(payload.session_key, self._agent_id)
        if session is not None and payload.state in _END_STATES:
            self._watch(session)
            if not self._runs.is_ours(payload.run_id):
                self._schedule(_Check(session, payload.run_id), delay_s=SETTLE_S)

    def _schedule(self, check: _Check, *, delay_s: float) -> None:
        # Dropped when full: the next connection checks every session anyway.
        if len(self._checks) < _MAX_CHECKS:
            self._checks[check] = anyio.current_time() + delay_s

    async def _run_check(self, check: _Check) -> Sequence[BackgroundEvent]:
        if check.is_of_all_pauses:
            # Not by `_schedule`, which drops checks: this one must be there to the end.
            self._checks[check] = anyio.current_time() + self._timeouts.pause_check_s
            # One by one: what is found resolved is reported before the next one is looked at.
            for _, pause in self._runs.list_pauses():
                self._schedule(_Check(pause_id=pause.id), delay_s=0)
            return ()
        if check.session is None:
            return await self._resolved_pauses(check.pause_id)
        try:
            return await self._new_replies(check.session, check.run_id)
        except AgentError as error:
            log.info("openclaw.history_unreadable", session=check.session, reason=error.message)
            if isinstance(error, AgentUnavailable):  # else OpenClaw refuses it for good
                self._schedule(check, delay_s=_RETRY_S)
            return ()

    async def _new_replies(self, session: SessionKey, run_id: str) -> list[BackgroundReply]:
        """The replies of the run, or all that were missed, unless they were reported before.

        Raises: AgentUnavailable, AgentFailed.
        """
        key = openclaw_session_key(session, self._agent_id)
        history = await read_history(self._connection, key, limit=_HISTORY_LIMIT)
        foreign = find_foreign_replies(history.entries, self._runs.is_ours)
        since_ms = self._sessions.get(session)
        if run_id:
            replies = foreign.of_run(run_id)
        elif foreign.later is not None:
            replies = foreign.later
        else:  # our last run is not shown any more: what is newer than its task
            replies = () if since_ms is None else foreign.after(since_ms)
        # Everything is loaded before anything counts as reported: a retry repeats all of it.
        entries = [
            await with_full_content(self._connection, key, reply.entry)
            for reply in replies
            if reply.entry.id not in self._reported
        ]
        reported: list[BackgroundReply] = []
        for entry in entries:
            if entry.id in self._reported:
                continue
            self._reported[entry.id] = None
            if len(self._reported) > _MAX_REPORTED:
                self._reported.popitem(last=False)
            workspace = self._agents.workspace(self._agent_id)
            parts = background_reply_parts(entry, workspace)
            if parts:
                # For every peer: a session does not say who may approve.
                parts = ApprovalRedactor(workspace, self._runs.approvals).redact_parts(parts)
                reported.append(BackgroundReply(session, entry.id, parts))
        return reported

    async def _resolved_pauses(self, pause_id: str) -> list[PauseResolved]:
        """The tasks that waited for this question or approval; empty while it is pending."""
        resolved: list[PauseResolved] = []
        for task_id, pause in self._runs.list_pauses():
            if pause.id != pause_id:
                continue
            status = await self._pause_status(pause)
            # Read after the request: a turn may have answered the pause meanwhile.
            resume = self._runs.pauses.get(task_id)
            if status != _PENDING and resume is not None:
                # Removed before it is reported: the next check must not report it again.
                del self._runs.pauses[task_id]
                what = "The agent's question" if pause.kind == "question" else "The approval"
                how = _RESOLUTIONS.get(status, "does not wait for an answer any more")
                resolved.append(PauseResolved(task_id, f"{what} {how}.", resume))
        return resolved

    async def _pause_status(self, pause: Pause) -> str:
        method = "question.get" if pause.kind == "question" else "approval.get"
        try:
            response = await self._connection.read(
                _PauseResponse, method, {"id": pause.id}, timeout_s=_STATUS_TIMEOUT_S
            )
        except AgentFailed:
            return "forgotten"  # it ended long ago, or before a restart of OpenClaw
        except AgentUnavailable:
            # The connection may stay up, so no reconnect would repeat the check.
            self._schedule(_Check(pause_id=pause.id), delay_s=_RETRY_S)
            return _PENDING
        return (response.question or response.approval or response).status or _PENDING


class _EventPayload(Wire, frozen=True):
    id: str = ""
    run_id: str = ""
    session_key: str = ""
    state: str = ""


class _Status(Wire, frozen=True):
    status: str = ""


class _PauseResponse(_Status, frozen=True):
    question: _Status | None = None
    approval: _Status | None = None


_RESOLUTIONS: Final = {
    "answered": "was answered at OpenClaw",
    "allowed": "was allowed",
    "denied": "was denied",
    "expired": "was not decided in time",
    "cancelled": "was withdrawn",
}


def background_reply_parts(entry: HistoryEntry, workspace: str) -> tuple[Part, ...]:
    """The parts of a reply: its text, and one data part with everything else.

    Of files only their path in the workspace or their public address is disclosed.
    """
    text, references = entry.text_and_media
    texts, public = [text], list[str]()
    for reference in references:
        is_public = is_link(reference) or reference.startswith("/api/chat/media/")
        url = reference if is_public else workspace_path(reference, workspace)
        if url is None:
            texts.append(omitted_text(reference, "it is not in the agent's workspace"))
        else:
            public.append(url)
    texts += [omitted_text(name, "OpenClaw could not deliver it") for name in entry.lost_files]
    text = "\n\n".join(filter(None, texts))
    delivery = entry.delivery
    extras: JsonObject = {
        "mediaUrls": public,
        "channelData": delivery.channel_data,
        "isError": entry.stop_reason == "error",
        "audioAsVoice": delivery.audio_as_voice,
        "replyToId": delivery.reply_to_id,
    }
    known = {name: value for name, value in extras.items() if value}
    said = (Part.of_text(text),) if text else ()
    return (*said, Part.of_data(known)) if known else said
