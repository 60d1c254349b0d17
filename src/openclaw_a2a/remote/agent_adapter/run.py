"""Ending a task at a remote agent: it has ended when the remote agent says so."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Protocol

import anyio
import msgspec

from openclaw_a2a.calls.loop_guard import chain_metadata
from openclaw_a2a.model.agent_event import AgentEvent, InputRequired, Reply, Stopped
from openclaw_a2a.model.errors import AgentError, AgentFailed, AgentUnavailable
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.planning.step_message import EXTENSION_URIS, TASK_KEYS
from openclaw_a2a.ports import Clock, Record, RecordStore
from openclaw_a2a.remote.agent_adapter.event_translator import RemoteEventTranslator
from openclaw_a2a.remote.result.progress import PAUSED
from openclaw_a2a.remote.result.remote_result import RemoteResult, continuation_of_failure

CANCELED = "canceled"
_TASK_NOT_FOUND = -32001
_REQUEST_S = 10.0
_BREATH_S = 0.2


class ToolExecutor(Protocol):
    """The tool `remote_agent`, as far as it is needed here."""

    async def execute(
        self,
        request: Json,
        on_update: Callable[[JsonObject], None] | None = None,
        *,
        said_with: JsonObject | None = None,
        by_extension: Mapping[str, JsonObject] | None = None,
    ) -> JsonObject:
        """Do what a request asks; the envelope of its result."""
        ...


async def end_task(
    remote: ToolExecutor,
    continuation: JsonObject,
    *,
    within_s: float,
    sleep: Callable[[float], Awaitable[None]],
) -> str | None:
    """Have a task canceled; the state it ended in, or None when its agent lets it go on.

    Raises: AgentUnavailable (nobody can be told).
    """
    give_up_at = anyio.current_time() + within_s
    action = "cancel"
    while True:
        left = max(1.0, min(_REQUEST_S, give_up_at - anyio.current_time()))
        request: JsonObject = {"action": action, "continuation": continuation}
        envelope = await remote.execute({**request, "timeout_ms": round(left * 1000)})
        result = RemoteResult.from_envelope(envelope)
        if result.task is not None and result.task.is_over:
            return result.task.state
        if result.details.get("rpcCode") == _TASK_NOT_FOUND:
            return CANCELED  # nobody works on what nobody knows
        is_refused = is_answered(result)
        if is_refused and action == "status":
            return None
        if anyio.current_time() >= give_up_at:
            return _not_ended(result)
        if is_refused:
            action = "status"  # it may have ended before it could be canceled
            give_up_at = anyio.current_time()
            continue
        if result.ok:
            action = "status"  # it was told, and takes its time
        await sleep(_BREATH_S)


def is_answered(result: RemoteResult) -> bool:
    """True when a request failed because the peer said no, and not on the way."""
    status = result.details.get("httpStatus", 0)
    return "rpcCode" in result.details or (400 <= status < 500 and status != 429)


def _not_ended(result: RemoteResult) -> None:
    """It goes on, as far as is known. Raises: AgentUnavailable when that is not known."""
    if not result.ok:
        raise AgentUnavailable(
            f"the remote task could not be canceled and may go on: {result.message}"
        )


KIND = "target-run"
"""The kind of records that say which remote task a run of ours has become."""

_KEEP = timedelta(days=7)
_CANNOT_STREAM = frozenset({-32004, -32601})
"""What peers answer that cannot stream: the operation is not supported, or not known."""

_PEER = "A2A_SDK_ERROR"
_STATUS_S = 30.0
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0


class RemoteTimeouts(msgspec.Struct, frozen=True):
    """How long things may take.

    answer_s  one request that is answered piece by piece; then the task is asked for again
    lost_s    a peer that is away while it works for us
    stop_s    the end of a task that is canceled
    """

    answer_s: float = 600.0
    lost_s: float = 60.0
    stop_s: float = 15.0


class Road(msgspec.Struct, frozen=True):
    """The way to one remote agent, and where runs are noted."""

    alias: str
    remote: ToolExecutor
    store: RecordStore
    clock: Clock
    patience: RemoteTimeouts
    host_id: str = ""


class RemoteRun:
    """A run from its first request to its end; `next` may be broken off and called again."""

    def __init__(self, road: Road, turn: Turn) -> None:
        self.is_over = False
        self.is_stopped = False
        """True when the remote task was canceled for us."""
        self.refusals = 0
        """How often the peer did not cancel its task when that was wanted."""
        self._road = road
        self._turn = turn
        self._telling = RemoteEventTranslator()
        self._continuation = continuation_of(turn.resume)
        self._is_heard = self._is_noted = False
        """True when the remote task is known of this very run, and when that is written down."""
        self._is_stopping = False
        self._ready: list[AgentEvent] = []
        self._is_ended = False
        self._failure: AgentError | None = None
        # Without a bound: the tool keeps all events of a request, and an answer has its own bound.
        self._updates: asyncio.Queue[JsonObject | None] = asyncio.Queue()
        self._work: asyncio.Future[JsonObject] | None = None
        self._action = ""
        self._can_watch = True
        self._tries = 0
        self._lost_at: float | None = None

    # ---------------------------------------------------------------- for the agent

    async def next(self) -> Sequence[AgentEvent]:
        """What there is to tell next; maybe nothing yet. Raises: AgentFailed, AgentUnavailable."""
        if self._work is None:
            await self._begin()
        if not self._ready and not self._is_settled:
            self._take(await self._updates.get())
        await self._note()
        if self._failure is not None and not self._ready:
            raise self._failure
        ready, self._ready = self._ready, []
        self.is_over = self._is_ended
        return ready

    async def stop(self) -> None:
        """Have the remote task ended; `is_stopped` says whether that is so.

        Raises: AgentFailed, AgentUnavailable (it is not known whether it has ended).
        """
        self._is_stopping = True
        if self._work is None:
            await self._recall()
            if self._turn.attempt == 1 and not self._has_task:
                self.is_stopped = True  # nothing was sent
                return
            if not self._has_task:
                self._send(is_followed=True)  # the same message again tells its task
        await self._until_named()
        if not self._is_settled and self._continuation is not None:
            road = self._road
            state = await end_task(
                road.remote,
                self._continuation,
                within_s=road.patience.stop_s,
                sleep=road.clock.sleep,
            )
            self.is_stopped = state == CANCELED

    async def close(self) -> None:
        """Listen no longer; the remote task is left as it is."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait({self._work})

    @property
    def _is_settled(self) -> bool:
        return self._is_ended or self._failure is not None

    @property
    def _has_task(self) -> bool:
        return self._continuation is not None and "task" in self._continuation

    async def _until_named(self) -> None:
        """Wait until the task is known, without which nobody can be told to end it."""
        try:
            async with asyncio.timeout(self._road.patience.stop_s):
                while not self._has_task and not self._is_settled:
                    self._take(await self._updates.get())
        except TimeoutError:
            raise AgentFailed(
                f"The remote agent {self._road.alias} did not say which task it works on, "
                "so it could not be told to stop and may go on."
            ) from None

    # ---------------------------------------------------------------- what is remembered

    async def _begin(self) -> None:
        await self._recall()
        if self._is_noted:
            self._ask("status")
        else:
            self._send(is_followed=True)

    async def _recall(self) -> None:
        """Find out what an earlier life of the gateway had come to."""
        if self._turn.attempt == 1 or self._is_noted:
            return
        record = await self._road.store.read_record(KIND, self._turn.run_id)
        if record is not None:
            self._continuation = msgspec.json.decode(record.body)
            self._is_heard = self._is_noted = True

    async def _note(self) -> None:
        """Write down which task it is, so that another life of the gateway goes on with it."""
        if not self._is_heard or self._is_noted:
            return
        body = msgspec.json.encode(self._continuation)
        expires_at = self._road.clock.now() + _KEEP
        await self._road.store.put_record(Record(KIND, self._turn.run_id, body, expires_at))
        self._is_noted = True

    # ---------------------------------------------------------------- asking

    def _send(self, *, is_followed: bool) -> None:
        turn = self._turn
        request: JsonObject = {
            "parts": [{"kind": "text", "text": turn.message.text}],
            "message_id": turn.run_id,
        }
        if self._continuation is None:
            request["target_alias"] = self._road.alias
        if is_followed:
            request["follow_updates"] = True
        self._ask("send", request)

    def _ask(self, action: str, more: JsonObject | None = None, *, pause_s: float = 0.0) -> None:
        self._action = action
        longest_s = self._road.patience.answer_s
        limit_s = min(_STATUS_S, longest_s) if action == "status" else longest_s
        request: JsonObject = {"action": action, "timeout_ms": round(limit_s * 1000)}
        request |= more or {}
        if self._continuation is not None:
            request["continuation"] = self._continuation
        self._work = asyncio.ensure_future(self._perform(request, pause_s))
        self._work.add_done_callback(lambda _: self._updates.put_nowait(None))

    async def _perform(self, request: JsonObject, pause_s: float) -> JsonObject:
        if pause_s:
            await self._road.clock.sleep(pause_s)
        provenance = self._turn.provenance
        chain = () if provenance is None else provenance.chain
        said_with = chain_metadata(chain, self._road.host_id)
        return await self._road.remote.execute(
            request,
            self._updates.put_nowait,
            said_with=said_with,
            by_extension=_step_metadata(self._turn.message),
        )

    def _ask_again(self, action: str = "status") -> None:
        """Ask after a while, which is longer each time that there is nothing new."""
        pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(self._tries, 10))
        self._tries += 1
        self._ask(action, pause_s=pause_s)

    # ---------------------------------------------------------------- what is heard

    def _take(self, update: JsonObject | None) -> None:
        """An update, or (None) the end of what was asked."""
        if update is not None:
            self._hear(RemoteResult.from_envelope(update))
            return
        if self._work is None:
            return
        result = RemoteResult.from_envelope(self._work.result())
        if not result.ok:
            self._take_failure(result)
            return
        self._lost_at = None
        if "events" not in result.raw:
            self._hear(result)
        if not self._is_settled:
            self._take_end(result)

    def _hear(self, result: RemoteResult) -> None:
        if self._is_settled:
            return
        if result.task is not None:
            self._continuation = result.continuation
            self._is_heard = True
        events = self._telling.take(result.raw)
        self._ready += events
        self._tries = 0 if events else self._tries
        is_status = result.raw["kind"] == "status-update"
        if is_status and result.raw["status"]["state"] in PAUSED:
            self._pause(result)  # also when the peer keeps the stream open

    def _take_end(self, result: RemoteResult) -> None:
        task = result.task
        if task is None or result.envelope["summary"].get("response_kind") != "task":
            self._end(result, "completed")
        elif task.is_over:
            self._end(result, task.state)
        elif task.is_waiting:
            self._pause(result)
        elif self._action == "status" and self._can_watch:
            self._ask("watch")
        else:
            self._ask_again()

    def _take_failure(self, result: RemoteResult) -> None:
        known = continuation_of_failure(result.details)
        if known is not None and "task" in known:
            self._continuation, self._is_heard = known, True
        if self._action == "send" and _was_not_sent(result):
            self._send(is_followed=False)
        elif self._action == "watch" and _cannot_be_watched(result):
            self._can_watch = False
            self._ask_again()
        elif self._has_task and self._may_come_back(result):
            self._ask_again()
        else:
            self._failure = self._as_error(result)

    def _may_come_back(self, result: RemoteResult) -> bool:
        """True when the connection broke and the peer is not away for too long."""
        if "partial_event_count" in result.details:
            return True
        if result.code != _PEER or is_answered(result):
            return False
        now = anyio.current_time()
        self._lost_at = self._lost_at or now
        return now < self._lost_at + self._road.patience.lost_s

    # ---------------------------------------------------------------- the end

    def _end(self, result: RemoteResult, state: str | None) -> None:
        if state == "completed":
            self._is_ended = True
            words = result.text or self._telling.last_words
            if words.strip() and not self._telling.has_spoken:
                self._ready.append(Reply.of_text(words))
        elif state == CANCELED and self._is_stopping:
            self._is_ended = True
            self._ready.append(Stopped())
        else:
            words = self._telling.last_words or "it did not say why"
            what = {"rejected": "rejected the task", CANCELED: "canceled the task"}
            did = what.get(state or "", "failed")
            self._failure = AgentFailed(f"The remote agent {self._road.alias} {did}: {words}")

    def _pause(self, result: RemoteResult) -> None:
        self._is_ended = True
        words = self._telling.last_words or result.text
        prompt = words.strip() or f"The remote agent {self._road.alias} waits for an answer."
        self._ready.append(InputRequired(prompt, {"continuation": result.continuation}))

    def _as_error(self, result: RemoteResult) -> AgentError:
        reasons = "; ".join(result.problems) or str(result.details.get("hint", ""))
        why = f"{result.message} ({reasons})" if reasons else result.message
        text = f"The remote agent {self._road.alias} did not do it: {why}"
        return AgentFailed(text) if is_answered(result) else AgentUnavailable(text)


def continuation_of(resume: Json) -> JsonObject | None:
    """How to go on with the remote task that waits; None when the token names none."""
    try:
        return msgspec.convert(resume, _Token).continuation
    except msgspec.ValidationError:
        return None


class _Token(msgspec.Struct, frozen=True):
    continuation: JsonObject


def _cannot_be_watched(result: RemoteResult) -> bool:
    return is_answered(result) or result.details.get("suggested_action") == "status"


def _was_not_sent(result: RemoteResult) -> bool:
    """True when the peer took nothing because it cannot stream."""
    is_refused = result.details.get("rpcCode") in _CANNOT_STREAM
    return is_refused and not {"task_id", "partial_event_count"} & result.details.keys()


def _step_metadata(message: Message) -> dict[str, JsonObject]:
    """What a step of a plan says of itself, to those who know about plans."""
    keys = {key: value for key, value in (message.metadata or {}).items() if key in TASK_KEYS}
    return dict.fromkeys(sorted(EXTENSION_URIS), keys) if keys else {}
