"""After a crash: every unfinished run is continued, repeated or failed. None stays `working`.

A claimed run falls into one of these cases
    its task has ended             the run is removed
    its task is damaged            it is left, for a start after the repair; others go on
    it never asked its agent       it runs now, whatever the agent's `recovery` says
    Recovery.REATTACH              it runs again; the agent finds its work by the run id
    Recovery.REPEAT                it runs again, at most `limits.attempts` times
    Recovery.FAIL, or no agent     its task fails with the reason

A replica does the same when it takes over the runs of another one (`Replication.take_over`).
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from enum import Enum
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.tasks.journal import PAGE_SIZE, UNLIMITED
from openclaw_a2a.engine.transcript.assistant_message import OUTPUT_PREFIX, published_output
from openclaw_a2a.engine.transcript.transcript import ArtifactCounters
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import (
    AgentUnavailable,
    Conflict,
    CorruptRecord,
    GatewayError,
    LeaseLost,
    StoreUnavailable,
)
from openclaw_a2a.model.ids import ArtifactId, Json, RunId, TaskId
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.records import Entry, RunRecord, StoredTask
from openclaw_a2a.model.task import PAUSED, TERMINAL, ArtifactUpdate, Event, TaskState
from openclaw_a2a.ports import Recovery, SupportsOrphanCleanup

log = get_logger(__name__)

_INTERRUPTED = (
    "The gateway stopped while the agent was working, and this agent's work cannot be repeated "
    "safely. Send the message again under a new message id to have it done anew."
)
INTERRUPTED_CALL = (
    "The gateway was restarted while {agent} was working, and its work cannot be repeated safely; "
    "call it again."
)
TOO_MANY_ATTEMPTS = (
    "The gateway stopped {attempts} times while the agent was working on this; "
    "it was not tried again."
)
ORPHANED = (
    "No run exists for this task: a crash or another program left it active. Send the message "
    "again."
)

_RETRY_S = 1.0

Result = TypeVar("Result")

# A clean-up scans the processes of the machine, and it all happens before the gateway serves.
_MAX_PARALLEL_CLEANUPS = 8


async def recover_runs(engine: Engine, *, is_starting: bool = False) -> int:
    """Take over the unfinished runs of engines that are gone; the number of runs.

    Raises: StoreUnavailable (before anything is claimed, or at the start of an engine that has the
    store for itself).
    """
    gives_up = is_starting and engine.replication is None
    with engine.recoveries.begin() as set_sessions:
        # Each claimed run has a new fence: the store refuses late writes of its former owner.
        records = await engine.store.tasks.claim_runs(engine.owner)
        set_sessions(record.session_key for record in records)
        # First of all: a repeated run must not run beside processes of its first attempt.
        await _end_orphans(engine, records)
        # A task may have several interrupted runs. Only the last of them may end it: the others
        # leave it `working` for the next message.
        waiting = Counter(record.task_id for record in records)
        continued: list[_Continued] = []
        for record in records:
            waiting[record.task_id] -= 1
            has_next = waiting[record.task_id] > 0
            try:
                prepare = partial(_prepare_run, engine, record, has_next=has_next)
                found = await _until_available(engine, prepare, gives_up=gives_up)
            except CorruptRecord as error:
                _log_damaged(record.task_id, error)
                continue
            if found is not None:
                continued.append(found)
        await _restart_runs(engine, continued, gives_up=gives_up)
    if records:
        log.info("recovery.runs_recovered", count=len(records))
    return len(records)


async def fail_orphaned_tasks(
    engine: Engine, among: Collection[TaskId] | None = None, *, reason: str = ORPHANED
) -> int:
    """Fail active tasks without a run: all of them, or only `among`; the number of tasks."""
    orphans = await engine.store.tasks.list_orphaned_tasks()
    if among is not None:
        orphans = [task_id for task_id in orphans if task_id in among]
    for task_id in orphans:
        # The lock, because `end_stored_task` needs the task as it is stored now. Whatever held the
        # lock before may have ended the task.
        async with engine.task_lock(task_id):
            try:
                stored = await engine.store.tasks.read_task(None, task_id)
                is_over = stored is None or stored.head.state in TERMINAL
                if stored is None or is_over or task_id in engine.active_tasks:
                    continue
                await engine.end_stored_task(stored, TaskState.FAILED, reason)
            except CorruptRecord as error:
                _log_damaged(task_id, error)
    if orphans:
        log.info("recovery.orphans_failed", count=len(orphans))
    return len(orphans)


def _log_damaged(task_id: TaskId, error: CorruptRecord) -> None:
    """A task that cannot be read cannot be ended either: nothing is written over what is left."""
    log.error("recovery.task_damaged", task_id=task_id, reason=error.message)


async def _end_orphans(engine: Engine, records: list[RunRecord]) -> None:
    """End what a killed gateway left running, such as programs."""
    slots = asyncio.Semaphore(_MAX_PARALLEL_CLEANUPS)

    async def end_orphans_of(record: RunRecord) -> None:
        try:
            agent = engine.agents[record.binding.agent_id]
            if isinstance(agent, SupportsOrphanCleanup):
                async with slots, asyncio.timeout(engine.limits.cancel_s):
                    await agent.end_orphans(record.id)
        except Exception as error:  # one broad catch: the run must be recovered anyway
            reason = str(error) or type(error).__name__
            log.warning("recovery.orphans_not_ended", run_id=record.id, reason=reason)

    async with asyncio.TaskGroup() as group:
        # A run that had not started has asked no agent: nothing of it can be left.
        for record in records:
            if record.is_started:
                group.create_task(end_orphans_of(record))


def _is_ours(engine: Engine, record: RunRecord) -> bool:
    """False when this replica has another name since it claimed the run.

    The run is that of a replica that is gone: the next take-over finds it.
    """
    if record.owner == engine.owner:
        return True
    reason = "this replica has another id by now"
    log.warning("recovery.run_not_restarted", run_id=record.id, reason=reason)
    return False


class _Continued(NamedTuple):
    """A run to continue: its task, and of one that is repeated the events."""

    record: RunRecord
    stored: StoredTask | None
    entries: list[Entry]


async def _restart_runs(engine: Engine, continued: list[_Continued], *, gives_up: bool) -> None:
    # Committed before the agents are called: a gateway that a run crashes again and again must
    # reach the limit of attempts. One group, so that a crash in between counts for none of them.
    async def count() -> dict[RunId, BaseException | None]:
        records = [one.record for one in continued]
        started = [one for one in records if one.is_started and one.owner == engine.owner]
        writes = [
            engine.store.tasks.start_run(one.id, fence=one.fence, attempt=one.attempt)
            for one in started
        ]
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        for error in outcomes:
            if isinstance(error, StoreUnavailable):
                raise error
        return {one.id: error for one, error in zip(started, outcomes, strict=True)}

    counted = await _until_available(engine, count, gives_up=gives_up)
    # In the order of their tickets, so that their sessions get the order of arrival back; and
    # nothing is awaited in between: a run that ended before the next one of its task is queued
    # would end the task, and that message would never be answered.
    for one in continued:
        error = counted.get(one.record.id)
        if isinstance(error, LeaseLost):  # another engine has claimed it since
            log.warning("recovery.run_not_restarted", run_id=one.record.id, reason=error.message)
        elif isinstance(error, BaseException):
            raise error
        elif _is_ours(engine, one.record):
            _restart_run(engine, *one)


async def _until_available(
    engine: Engine, step: Callable[[], Awaitable[Result]], *, gives_up: bool
) -> Result:
    """A step of a recovery, repeated while the store is unavailable.

    The claimed runs are this engine's by then: no other engine recovers them. An engine that starts
    and has the store for itself gives up, and with it its gateway, which recovers when it is
    started again.
    """
    while True:
        try:
            return await step()
        except StoreUnavailable as error:
            if gives_up:
                raise
            log.warning("recovery.delayed", reason=error.message)
        await engine.clock.sleep(_RETRY_S)


async def _prepare_run(engine: Engine, record: RunRecord, *, has_next: bool) -> _Continued | None:
    """Read what the run needs to be continued; None when it is not."""
    if not _is_ours(engine, record):
        return None
    stored = await engine.store.tasks.read_task(None, record.task_id)
    if record.id in engine.doubtful_runs and not _is_asked_early(engine, record):
        # Stored as started, because its turn had come. Its sender got an error instead.
        record = msgspec.structs.replace(record, is_started=False)
    # A run that had not started is simply queued again, whatever its agent allows.
    reason = None
    if stored is not None and stored.head.state in TERMINAL:
        # The task ended before the crash and only its run is left: `fail_run` removes the run and
        # adds no status, so the reason is not used.
        reason, has_next = _INTERRUPTED, False
    elif record.is_started and record.options.hold is None:  # a held run asks no agent
        reason = _reason_to_fail(engine, record)
    if reason is not None:
        # The store was unavailable: maintenance tries again.
        outcome = await fail_run(engine, record, reason, has_next=has_next)
        if outcome is FailOutcome.RETRY:
            engine.abandoned.append(record)
        return None
    if record.is_started:
        record = msgspec.structs.replace(record, attempt=record.attempt + 1)
    is_repeated = stored is not None and record.attempt > 1
    entries = await _read_all_events(engine, record) if is_repeated else []
    return _Continued(record, stored, entries)


def _is_asked_early(engine: Engine, record: RunRecord) -> bool:
    """True for an agent that may be asked before its message is stored."""
    agent = engine.agents.get(record.binding.agent_id)
    return agent is not None and agent.recovery is Recovery.REPEAT


def _restart_run(
    engine: Engine, record: RunRecord, stored: StoredTask | None, entries: list[Entry]
) -> None:
    active = engine.activate(stored) if stored is not None else None
    if active is not None and record.attempt > 1:
        # The agent starts over, so the artifact numbers start where they were before the
        # interrupted attempt. Of what that one published only the rest follows, or a text that
        # differs; artifacts that it left open are closed. No snapshot says which are open, so all
        # events are read.
        projection = active.journal.projection
        # A run whose message is not in the history yet has no artifacts that it could replace.
        if projection.has_message(record.message.message_id):
            active.restart_counters = _counters_before_run(entries)
            left_open = [event.artifact.artifact_id for event in _closing_events(entries)]
            projection.open_artifacts = dict.fromkeys(left_open)
            begin = _begin_of_run(entries)
            if _was_paused(entries, begin):
                # Not stored with a run that was queued before the pause: its turn made it the
                # answer. Without it a second answer would be accepted behind this one.
                options = msgspec.structs.replace(record.options, is_answer=True)
                record = msgspec.structs.replace(record, options=options)
            steps = [_tool_step(entry.event) for entry in entries if entry.sequence > begin]
            # A run that is repeated calls its tools anew; one that is joined has called them.
            is_joined = engine.agents[record.binding.agent_id].recovery is Recovery.REATTACH
            active.published = published_output(
                projection.artifacts(OUTPUT_PREFIX)[active.restart_counters.outputs :],
                left_open,
                [step for step in steps if step is not None] if is_joined else (),
            )
    engine.restart_run(record, active)


def _reason_to_fail(engine: Engine, record: RunRecord) -> str | None:
    """Why a run that had started must not be repeated; None when it may."""
    try:
        recovery = engine.agents[record.binding.agent_id].recovery
    except AgentUnavailable as error:
        return error.message
    if recovery is Recovery.FAIL:
        is_call = record.options.provenance is not None
        agent = record.binding.agent_id
        return INTERRUPTED_CALL.format(agent=agent) if is_call else _INTERRUPTED
    # A re-attached run is not done again, only followed, so its attempts are not limited.
    if record.attempt >= engine.limits.attempts and recovery is Recovery.REPEAT:
        return TOO_MANY_ATTEMPTS.format(attempts=record.attempt)
    return None


class FailOutcome(Enum):
    """What came of `fail_run`."""

    FAILED = "failed"
    LEFT = "left"
    """It is not ours any more, or its task cannot be changed: nothing is left to do."""
    RETRY = "retry"
    """The store is unavailable, or the task was changed meanwhile: it must be tried again."""


async def fail_run(
    engine: Engine, record: RunRecord, reason: str, *, has_next: bool = False
) -> FailOutcome:
    """End an interrupted run: its task gets the reason (a direct run becomes a failed task).

    With `has_next` another message waits on the task, which therefore stays `working`.
    """
    state = TaskState.WORKING if has_next else TaskState.FAILED
    try:
        # The lock: a message or a cancellation may come for the same task while we look at it.
        async with engine.task_lock(record.task_id):
            transcript = engine.own_transcript(record.task_id, record.context_id)
            stored = await engine.store.tasks.read_task(None, record.task_id)
            events: list[Event] = []
            if stored is None:
                _, journal = engine.new_journal(record, engine.clock.now())
                journal.limits = UNLIMITED
                events = [transcript.submitted(), *transcript.fail(reason)]
            else:
                journal = engine.journal_of(stored, is_limited=False)
                if stored.head.state not in TERMINAL:
                    closing = _closing_events(await _read_all_events(engine, record))
                    if not journal.projection.has_message(record.message.message_id):
                        # The crash came between the start of its run and the commit with which
                        # it joins the history.
                        begin = [transcript.submitted()]
                        journal.append(begin, run=record, message=record.message)
                    events = [*closing, transcript.status_text(state, reason)]
            # Fails with LeaseLost when another engine has claimed the run since: it is not ours.
            await journal.end(events, run=record)
    except GatewayError as error:
        log.warning("recovery.run_not_failed", run_id=record.id, reason=error.message)
        # The last text of an abandoned run may be committed after the task was read. The subclasses
        # of Conflict are final: the run is not ours, or the task has ended.
        is_passing = isinstance(error, StoreUnavailable) or type(error) is Conflict
        return FailOutcome.RETRY if is_passing else FailOutcome.LEFT
    return FailOutcome.FAILED


async def _read_all_events(engine: Engine, record: RunRecord) -> list[Entry]:
    entries: list[Entry] = []
    while True:
        after = entries[-1].sequence if entries else 0
        page = await engine.store.tasks.read_events(
            None, record.task_id, after=after, limit=PAGE_SIZE
        )
        entries += page
        if len(page) < PAGE_SIZE:
            return entries


def _closing_events(entries: list[Entry]) -> list[ArtifactUpdate]:
    """One closing event for each artifact that the interrupted run left open."""
    latest: dict[str, ArtifactUpdate] = {}
    for entry in entries:
        event = entry.event
        if isinstance(event, ArtifactUpdate):
            latest[event.artifact.artifact_id] = event
    return [
        msgspec.structs.replace(
            event,
            artifact=msgspec.structs.replace(event.artifact, parts=(Part(text=""),)),
            append=True,
            last_chunk=True,
        )
        for event in latest.values()
        if not event.last_chunk
    ]


def _begin_of_run(entries: list[Entry]) -> int:
    """The event with which the interrupted run began: each begins with `submitted`."""
    begins = [entry.sequence for entry in entries if entry.state is TaskState.SUBMITTED]
    return begins[-1] if begins else 0


def _was_paused(entries: list[Entry], begin: int) -> bool:
    """True when the task waited for its caller when the run began with this event."""
    states = [entry.state for entry in entries if entry.sequence < begin and entry.state]
    return bool(states) and states[-1] in PAUSED


def _tool_step(event: Event) -> tuple[ArtifactId, str] | None:
    """The tool call and its phase, if the event is about one."""
    if not isinstance(event, ArtifactUpdate):
        return None
    metadata = event.artifact.metadata or {}
    phase: Json = metadata.get("phase")
    is_step = metadata.get("source") == "tool" and phase in {"start", "result"}
    return (event.artifact.artifact_id, str(phase)) if is_step else None


def _counters_before_run(entries: list[Entry]) -> ArtifactCounters:
    """The artifacts before the interrupted run."""
    start = _begin_of_run(entries)
    earlier = [entry.event for entry in entries if entry.sequence < start and entry.state is None]
    ids = {event.artifact.artifact_id for event in earlier if isinstance(event, ArtifactUpdate)}
    return ArtifactCounters.count(ids)
