"""Learns what became of outcomes that hosts have taken: seen by their callers, or lost."""

from collections.abc import Callable
from datetime import datetime

import msgspec
import structlog

from openclaw_a2a.calls.book import CallBook
from openclaw_a2a.model.call import Call, CallId, CallStatus
from openclaw_a2a.model.errors import AgentError, GatewayError
from openclaw_a2a.model.ids import SessionKey, TaskId
from openclaw_a2a.ports import SessionNote, SessionSink
from openclaw_a2a.runtime.engine import Engine

log = structlog.get_logger(__name__)

SOURCE_TOOL = "agent_call"
_BEFORE_AGAIN_S = 1.0
"""A host that takes a note and loses it over and over is not kept busy with it."""

FindSink = Callable[[SessionKey], SessionSink | None]


class Seeing:
    """Follows notes in the sessions of callers, each until it was dealt with."""

    def __init__(
        self,
        engine: Engine,
        book: CallBook,
        *,
        find_sink: FindSink,
        look_at: Callable[[TaskId], None],
    ) -> None:
        """`look_at` has the outbox look at the deliveries of a task again."""
        self._book = book
        self._store = engine.store
        self._now = engine.clock.now
        self._clock = engine.clock
        self._spawn = engine.spawn
        self._find_sink = find_sink
        self._look_at = look_at
        self.dealing: set[CallId] = set()
        """Calls whose outcome was brought, and whose callers are dealing with it."""

    def sink_of(self, call: Call) -> SessionSink | None:
        """Who puts notes into the session that called."""
        session_key = call.caller.session_key
        return None if session_key is None else self._find_sink(session_key)

    def watch(self, call: Call) -> None:
        """Learn when a call that was brought has been dealt with."""
        sink = self.sink_of(call)
        if sink is not None:
            self._spawn(self._see(call.id, sink, note_of(call, "", is_fresh=False)))

    async def _see(self, call_id: CallId, sink: SessionSink, note: SessionNote) -> None:
        self.dealing.add(call_id)
        try:
            is_seen = await self._learn(sink, note)
            while not await self._note(call_id, is_seen=is_seen):
                await self._clock.sleep(_BEFORE_AGAIN_S)
        except BaseException:
            self.dealing.discard(call_id)
            raise

    async def _learn(self, sink: SessionSink, note: SessionNote) -> bool:
        try:
            return await sink.until_seen(note)
        except AgentError as error:
            log.warning("note-not-followed", note_id=note.id, reason=error.message)
            return False

    async def _note(self, call_id: CallId, *, is_seen: bool) -> bool:
        """Note that a call was seen, or lost by its host; False when that was not possible."""
        try:
            edit = self.seen if is_seen else await self._when_lost(call_id)
            changed = await self._book.change(call_id, edit)
        except GatewayError as error:
            log.warning("call-not-noted", call_id=call_id, reason=error.message)
            return False
        self.dealing.discard(call_id)  # at once: lost, it may be brought again by somebody else
        if changed is not None and not is_seen:
            await self._clock.sleep(_BEFORE_AGAIN_S)
            self._look_at(changed.task_id)
        return True

    async def _when_lost(self, call_id: CallId) -> Callable[[Call], Call | None]:
        """What is noted of a lost outcome: it is brought again, as long as the answer is there."""
        call = self._book.find(call_id)
        if call is None or await self._store.read_task(None, call.task_id) is not None:
            return _lost
        return self._gone

    def _gone(self, call: Call) -> Call | None:
        if _lost(call) is None:
            return None
        reason = "its host lost it, and the callee's task is forgotten by now"
        log.warning("call-discarded", call_id=call.id, callee=call.callee, reason=reason)
        return discarded(call, self._now(), reason)

    def seen(self, call: Call) -> Call | None:
        """The call once its caller has seen what came of it."""
        if call.seen_at is not None:
            return None
        now = self._now()
        if call.discarded_at is not None:  # it was never brought: its caller came for it
            return msgspec.structs.replace(call, seen_at=now)
        return msgspec.structs.replace(call, seen_at=now, delivered_at=call.delivered_at or now)


def discarded(call: Call, now: datetime, reason: str) -> Call:
    """The call when its outcome is not brought at all."""
    return msgspec.structs.replace(
        call, status=CallStatus.DISCARDED, discarded_at=now, reason=reason
    )


def note_of(call: Call, text: str, *, is_fresh: bool) -> SessionNote:
    """What is put into the session that called."""
    own = call.caller.session_key or call.return_to
    return SessionNote(call.id, own, text, SOURCE_TOOL, call.session_key, is_fresh=is_fresh)


def _lost(call: Call) -> Call | None:
    """The call when its host lost what it had taken: it is brought again."""
    if call.delivered_at is None or call.seen_at is not None:
        return None
    return msgspec.structs.replace(call, delivered_at=None)
