"""What happens in our sessions of an OpenClaw gateway when no turn of ours is under way.

A cron job, another channel or a late tool may speak in a session; somebody at OpenClaw may answer
a question that a task of ours waits with. Events only say where to look: what is told is read
from the session's history, so that a message is told under the same id whether it was heard live
or found after the connection was away.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

import anyio
import msgspec

from openclaw_a2a.agents.openclaw_gateway.connection import GatewayConnection
from openclaw_a2a.agents.openclaw_gateway.history import (
    ForeignReplies,
    HistoryEntry,
    foreign_replies,
    read_full_content,
    read_history,
    with_full_content,
)
from openclaw_a2a.agents.openclaw_gateway.media import is_link, omitted_file, workspace_path
from openclaw_a2a.agents.openclaw_gateway.protocol import Wire, decode_as
from openclaw_a2a.agents.openclaw_gateway.run_registry import Pause
from openclaw_a2a.agents.openclaw_gateway.sessions import openclaw_session_key
from openclaw_a2a.agents.openclaw_gateway.subscription import (
    EventFilter,
    EventReceived,
    EventsDropped,
    EventSubscription,
    Reconnected,
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
"""How long after its end a run is looked at: its media join the history a little later."""

_EVENTS: Final = frozenset({"chat", "question.resolved", "exec.approval.resolved"})
_ENDS: Final = frozenset({"final", "error", "aborted"})
_ASK_S: Final = 20.0
_RETRY_S: Final = 5.0
_CONNECT_S: Final = 60.0
_MOST_ENTRIES: Final = 60
_MOST_SESSIONS: Final = 100
_MOST_DUE: Final = 1000
_MOST_TOLD: Final = 5000
_PENDING: Final = "pending"


def our_session(name: str, agent_id: str) -> SessionKey | None:
    """The session that OpenClaw calls so; None for one that is not ours.

    The way back of `session_at_openclaw`.
    """
    rest = name.removeprefix(f"agent:{agent_id.lower()}:")
    if rest == name:
        return None
    if rest.startswith("a2a:"):
        return SessionKey(name)
    via, _, place = rest.removeprefix("via-").partition(":")
    is_ours = rest.startswith("via-") and place.startswith("a2a:")
    return SessionKey(f"agent:{via}:{place}") if is_ours else None


class BackgroundWatcher:
    """Watches the sessions that one agent of a gateway keeps for us.

    `connected` is awaited whenever the connection is (again) there, before anything is looked at.
    `workspace` tells the agent's workspace, as far as it is known.
    """

    def __init__(
        self,
        link: GatewayConnection,
        agent_id: str,
        *,
        workspace: Callable[[], str],
        connected: Callable[[], Awaitable[None]],
    ) -> None:
        self._link = link
        self._agent_id = agent_id
        self._workspace = workspace
        self._connected = connected
        self._sessions: OrderedDict[SessionKey, float | None] = OrderedDict()
        """Sessions to look after, those used last at the end; since when (milliseconds) it is
        late there, where that is known."""
        self._due: dict[_Look, float] = {}
        """What is to be looked at, and when."""
        self._told: OrderedDict[str, None] = OrderedDict()

    async def events(self, recent: Sequence[RecentTask]) -> AsyncIterator[BackgroundEvent]:
        """What is late, for as long as it is listened to; first what `recent` tasks missed."""
        self._look_after(recent)
        with self._link.subscribe(EventFilter(_EVENTS)) as listening:
            await self._catch_up()
            while True:
                look = self._next_due()
                if look is not None:
                    for event in await self._look(look):
                        yield event
                elif await self._misses_something(listening):
                    await self._catch_up()

    def _look_after(self, recent: Sequence[RecentTask]) -> None:
        for task in reversed(recent):
            name = openclaw_session_key(task.session_key, self._agent_id)
            if our_session(name, self._agent_id) is not None:  # else others speak there as well
                self._note_session(task.session_key)
                self._sessions[task.session_key] = task.status_at.timestamp() * 1000
            if task.is_paused and self._link.runs.find_resume(task.task_id) is None:
                self._link.runs.add_pause(task.task_id, task.resume)

    def _note_session(self, session: SessionKey) -> None:
        self._sessions.setdefault(session, None)
        self._sessions.move_to_end(session)
        if len(self._sessions) > _MOST_SESSIONS:
            self._sessions.popitem(last=False)

    async def _catch_up(self) -> None:
        """Have every session and pause looked at once, as soon as there is a connection."""
        while True:
            try:
                await self._link.wait_connected(_CONNECT_S)
                await self._connected()
            except AgentError:
                await anyio.sleep(_RETRY_S)
            else:
                break
        for _, pause in self._link.runs.list_pauses():
            self._make_due(_Look(pause_id=pause.id), in_s=0)
        for session in reversed(self._sessions):
            self._make_due(_Look(session), in_s=0)

    # ---------------------------------------------------------------- hearing

    async def _misses_something(self, listening: EventSubscription) -> bool:
        """Take what comes next, or wait until something is due; True: events may be lost."""
        wait_s = None
        if self._due:
            wait_s = max(0.0, min(self._due.values()) - anyio.current_time())
        heard = await listening.next(wait_s)
        if isinstance(heard, EventReceived):
            self._take(heard)
        return isinstance(heard, Reconnected | EventsDropped)

    def _take(self, heard: EventReceived) -> None:
        told = decode_as(_Told, heard.payload)
        if told is None:
            return
        if heard.event != "chat":
            if any(pause.id == told.id for _, pause in self._link.runs.list_pauses()):
                self._make_due(_Look(pause_id=told.id), in_s=SETTLE_S)
        elif told.state in _ENDS and (session := our_session(told.session_key, self._agent_id)):
            self._note_session(session)
            if not self._link.runs.is_ours(told.run_id):
                self._make_due(_Look(session, told.run_id), in_s=SETTLE_S)

    def _make_due(self, look: "_Look", *, in_s: float) -> None:
        if len(self._due) < _MOST_DUE:
            self._due[look] = anyio.current_time() + in_s

    def _next_due(self) -> "_Look | None":
        now = anyio.current_time()
        look = next((look for look, due_at in self._due.items() if due_at <= now), None)
        if look is not None:
            del self._due[look]
        return look

    # ---------------------------------------------------------------- looking

    async def _look(self, look: "_Look") -> Sequence[BackgroundEvent]:
        if look.session is None:
            return await self._pauses_over(look.pause_id)
        try:
            return await self._late_replies(look, look.session)
        except AgentUnavailable as error:
            log.info("openclaw-history-unread", session=look.session, reason=error.message)
            self._make_due(look, in_s=_RETRY_S)
            return ()

    async def _late_replies(self, look: "_Look", session: SessionKey) -> list[BackgroundReply]:
        replies = await self._replies(session)
        if look.run_id:
            entries = replies.of_run(look.run_id)
        else:
            entries = _missed(replies, self._sessions.get(session))
        whole = [await self._whole(session, entry) for entry in entries]
        told = [self._late_reply(session, entry) for entry in whole]
        return [reply for reply in told if reply is not None]

    async def _replies(self, session: SessionKey) -> ForeignReplies:
        """The foreign replies in a session; none when the gateway refuses to show it.

        Raises: AgentUnavailable.
        """
        name = openclaw_session_key(session, self._agent_id)
        params: JsonObject = {"sessionKey": name, "limit": _MOST_ENTRIES}
        try:
            answer = await self._link.call("chat.history", params, timeout_s=_ASK_S)
        except AgentFailed as error:
            log.info("openclaw-history-unread", session=session, reason=error.message)
            return ForeignReplies((), ())
        return foreign_replies(read_history(answer), self._link.runs.is_ours)

    def _late_reply(self, session: SessionKey, entry: HistoryEntry) -> BackgroundReply | None:
        """The entry as a late reply; None when it was told before or says nothing."""
        if entry.id in self._told:
            return None
        self._told[entry.id] = None
        if len(self._told) > _MOST_TOLD:
            self._told.popitem(last=False)
        parts = background_reply_parts(entry, self._workspace())
        return BackgroundReply(session, entry.id, parts) if parts else None

    async def _whole(self, session: SessionKey, entry: HistoryEntry) -> HistoryEntry:
        """All that the entry says. Raises: AgentUnavailable."""
        if not entry.is_cut or entry.id in self._told:
            return entry
        name = openclaw_session_key(session, self._agent_id)
        content = await read_full_content(self._link, name, entry.id)
        return entry if content is None else with_full_content(entry, decode_as(object, content))

    # ---------------------------------------------------------------- pauses

    async def _pauses_over(self, pause_id: str) -> list[PauseResolved]:
        """The tasks that wait for this, when it is over: told once; none while it lasts."""
        waiting = [one for one in self._link.runs.list_pauses() if one[1].id == pause_id]
        over: list[PauseResolved] = []
        for task_id, pause in waiting:
            status = await self._status_of(pause)
            resume = self._link.runs.find_resume(task_id)
            if status != _PENDING and resume is not None:
                self._link.runs.remove_pause(task_id)
                over.append(PauseResolved(task_id, _reason(pause, status), resume))
        return over

    async def _status_of(self, pause: Pause) -> str:
        method = "question.get" if pause.kind == "question" else "approval.get"
        try:
            answer = await self._link.read(_Asked, method, {"id": pause.id}, timeout_s=_ASK_S)
        except AgentFailed:
            return "forgotten"  # as OpenClaw does with what ended long ago, or before a restart
        except AgentUnavailable:
            return _PENDING  # it is looked at again when the connection is back
        return (answer.question or answer.approval or answer).status or _PENDING


class _Look(msgspec.Struct, frozen=True):
    """Something to look at: a run in a session, all that a session missed, or a pause."""

    session: SessionKey | None = None
    run_id: str = ""
    pause_id: str = ""


class _Told(Wire, frozen=True):
    id: str = ""
    run_id: str = ""
    session_key: str = ""
    state: str = ""


class _Status(Wire, frozen=True):
    status: str = ""


class _Asked(_Status, frozen=True):
    question: _Status | None = None
    approval: _Status | None = None


_ENDED_HOW: Final = {
    "answered": "was answered at OpenClaw",
    "allowed": "was allowed",
    "denied": "was denied",
    "expired": "was not decided in time",
    "cancelled": "was withdrawn",
}


def background_reply_parts(entry: HistoryEntry, workspace: str) -> tuple[Part, ...]:
    """A late reply's parts: its text, and one data part with whatever else it has.

    Of files only their place in the workspace or their public address is told.
    """
    shown = [_public(reference, workspace) for reference in entry.media_urls]
    urls = [url for url in shown if url is not None]
    hidden = [
        omitted_file(reference, "it is not in the agent's workspace").text
        for reference, url in zip(entry.media_urls, shown, strict=True)
        if url is None
    ]
    lost = [omitted_file(name, "OpenClaw could not deliver it").text for name in entry.lost_files]
    text = "\n\n".join(filter(None, (entry.text, *hidden, *lost)))
    extras: JsonObject = {
        "mediaUrls": urls,
        "channelData": entry.channel_data,
        "isError": entry.is_error,
        "audioAsVoice": entry.audio_as_voice,
        "replyToId": entry.reply_to_id,
    }
    known = {name: value for name, value in extras.items() if value}
    texts = (Part.of_text(text),) if text else ()
    return (*texts, Part.of_data(known)) if known else texts


def _public(reference: str, workspace: str) -> str | None:
    """What a peer may see of a reference; None when that is nothing."""
    if is_link(reference) or reference.startswith("/api/chat/media/"):
        return reference
    return workspace_path(reference, workspace)


def _missed(replies: ForeignReplies, since_ms: float | None) -> tuple[HistoryEntry, ...]:
    """What was said after our last run; by the clock only where that run is not shown any more."""
    if replies.later is not None:
        return replies.later
    return tuple(entry for entry in replies.all if since_ms is not None and entry.at_ms > since_ms)


def _reason(pause: Pause, status: str) -> str:
    what = "The agent's question" if pause.kind == "question" else "The approval"
    return f"{what} {_ENDED_HOW.get(status, 'does not wait for an answer any more')}."
