"""After a crash: every unfinished run is gone on with, repeated or failed. None stays `working`."""

import asyncio
from collections import Counter
from datetime import datetime

import msgspec

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.tasks.cancel import closing_words
from openclaw_a2a.engine.tasks.journal import Journal
from openclaw_a2a.engine.tasks.subscription import PAGE_SIZE
from openclaw_a2a.engine.transcript.content import OUTPUT_PREFIX, OutputModes
from openclaw_a2a.engine.transcript.transcript import ArtifactCounters, EventContext, Transcript
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import AgentUnavailable, GatewayError, StoreUnavailable
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.records import Entry, RunRecord, StoredTask
from openclaw_a2a.model.states import is_terminal
from openclaw_a2a.model.task import ArtifactUpdate, Event, Task, TaskState, TaskStatus
from openclaw_a2a.ports import Recovery, SupportsOrphanCleanup

log = get_logger(__name__)

INTERRUPTED = (
    "The gateway stopped while the agent was working, and this agent's work cannot be repeated "
    "safely. Send the message again under a new message id to have it done anew."
)
INTERRUPTED_CALL = (
    "The gateway was restarted while {agent} was working, and its work cannot be repeated safely; "
    "call it again."
)
GAVE_UP = (
    "The gateway stopped {attempts} times while the agent was working on this; "
    "it was not tried again."
)
ORPHANED = "Nobody works on this task any more: it was left by another program, or by a crash."

_LEFTOVERS_AT_ONCE = 8


async def recover_runs(engine: Engine, *, expired_at: datetime | None) -> int:
    """Take over the unfinished runs of engines that are gone; how many there were."""
    records = await engine.store.tasks.claim_runs(
        engine.owner, lease_until=engine.lease_end(), expired_at=expired_at
    )
    await _end_leftovers(engine, records)
    waiting = Counter(record.task_id for record in records)
    for record in records:
        waiting[record.task_id] -= 1
        await _recover_run(engine, record, goes_on=waiting[record.task_id] > 0)
    if records:
        log.info("runs-recovered", count=len(records))
    return len(records)


async def fail_orphaned_tasks(engine: Engine) -> int:
    """End active tasks that nobody works on (another program's records); how many there were."""
    orphans = await engine.store.tasks.list_orphaned_tasks()
    for task_id in orphans:
        stored = await engine.store.tasks.read_task(None, task_id)
        if stored is not None and task_id not in engine.active_tasks:
            words = closing_words(engine, stored)
            failed = words.status_text(TaskState.FAILED, ORPHANED)
            await engine.journal_of(stored).end([failed], run=None)
    if orphans:
        log.info("orphans-failed", count=len(orphans))
    return len(orphans)


async def _end_leftovers(engine: Engine, records: list[RunRecord]) -> None:
    """Nothing that is left of a run may work on beside what happens to the run now."""
    few = asyncio.Semaphore(_LEFTOVERS_AT_ONCE)
    async with asyncio.TaskGroup() as group:
        for record in records:
            if record.is_started:
                group.create_task(_end_leftovers_of(engine, record, few))


async def _end_leftovers_of(engine: Engine, record: RunRecord, few: asyncio.Semaphore) -> None:
    try:
        agent = engine.agents.find(record.binding.agent_id)
        if isinstance(agent, SupportsOrphanCleanup):
            async with few, asyncio.timeout(engine.limits.cancel_s):
                await agent.end_orphans(record.id)
    except Exception as error:  # one broad catch: whatever is left, the run must be recovered
        reason = str(error) or type(error).__name__
        log.warning("leftovers-not-ended", run_id=record.id, reason=reason)


async def _recover_run(engine: Engine, record: RunRecord, *, goes_on: bool) -> None:
    stored = await engine.store.tasks.read_task(None, record.task_id)
    if stored is not None and is_terminal(stored.head.state):
        await fail_run(engine, record, INTERRUPTED)
        return
    if not record.is_started:
        await _go_on(engine, record, stored)
        return
    reason = _why_not_again(engine, record)
    if reason is not None:
        await fail_run(engine, record, reason, goes_on=goes_on)
        return
    again = msgspec.structs.replace(record, attempt=record.attempt + 1)
    await engine.store.tasks.start_run(again.id, fence=again.fence, attempt=again.attempt)
    await _go_on(engine, again, stored)


def _why_not_again(engine: Engine, record: RunRecord) -> str | None:
    """Why a run that had begun must not be asked of its agent again; None when it may."""
    try:
        recovery = engine.agents.find(record.binding.agent_id).recovery
    except AgentUnavailable as error:
        return error.message
    if recovery is Recovery.FAIL:
        is_call = record.options.provenance is not None
        agent = record.binding.agent_id
        return INTERRUPTED_CALL.format(agent=agent) if is_call else INTERRUPTED
    if record.attempt >= engine.limits.attempts and recovery is Recovery.REPEAT:
        return GAVE_UP.format(attempts=record.attempt)
    return None


async def _go_on(engine: Engine, record: RunRecord, stored: StoredTask | None) -> None:
    live = engine.revive(stored) if stored is not None else None
    # A run whose message is not in the history yet has written nothing that it could write over.
    if live is not None and record.attempt > 1 and live.has_message(record):
        entries = await _all_events(engine, record)
        live.restarts_at = _numbers_before(entries)
        left_open = [event.artifact.artifact_id for event in _closings(entries)]
        live.journal.view.open_artifacts = dict.fromkeys(left_open)
    engine.relaunch(record, live)


async def fail_run(
    engine: Engine, record: RunRecord, reason: str, *, goes_on: bool = False
) -> None:
    """End an interrupted run: its task says why (a direct run becomes a failed task).

    With `goes_on` more messages wait on the task: it says why and stays `working`.
    What the store does not take now is tried again by upkeep.
    """
    state = TaskState.WORKING if goes_on else TaskState.FAILED
    try:
        async with engine.task_lock(record.task_id):
            await _fail_run(engine, record, (state, reason))
    except GatewayError as error:
        log.warning("run-not-recovered", run_id=record.id, reason=error.message)
        if isinstance(error, StoreUnavailable):
            engine.abandoned.append(record)


async def _fail_run(engine: Engine, record: RunRecord, last_word: tuple[TaskState, str]) -> None:
    stored = await engine.store.tasks.read_task(None, record.task_id)
    if stored is None:
        await _fail_direct(engine, record, last_word[1])
    elif is_terminal(stored.head.state):
        await engine.journal_of(stored).end([], run=record)
    else:
        await _fail_task(engine, record, stored, last_word)


async def _fail_task(
    engine: Engine, record: RunRecord, stored: StoredTask, last_word: tuple[TaskState, str]
) -> None:
    words = closing_words(engine, stored)
    events: list[Event] = list(_closings(await _all_events(engine, record)))
    events.append(words.status_text(*last_word))
    await engine.journal_of(stored).end(events, run=record)


async def _fail_direct(engine: Engine, record: RunRecord, reason: str) -> None:
    now = engine.clock.now()
    status = TaskStatus(TaskState.SUBMITTED, timestamp=now)
    task = Task(record.task_id, record.context_id, status, history=(record.message,))
    journal = Journal.of_new(
        engine.store.tasks, task, scope=record.scope, binding=record.binding, now=now
    )
    stamp = EventContext(record.task_id, record.context_id, engine.clock.now, engine.new_id)
    words = Transcript(stamp, modes=OutputModes(()), is_task=True, numbering=ArtifactCounters())
    await journal.end([words.submitted(), *words.fail(reason)], run=record)


async def _all_events(engine: Engine, record: RunRecord) -> list[Entry]:
    entries: list[Entry] = []
    while True:
        after = entries[-1].sequence if entries else 0
        page = await engine.store.tasks.read_events(record.task_id, after=after, limit=PAGE_SIZE)
        entries += page
        if len(page) < PAGE_SIZE:
            return entries


def _closings(entries: list[Entry]) -> list[ArtifactUpdate]:
    """One closing event for each artifact that the interrupted run left open."""
    latest: dict[str, ArtifactUpdate] = {}
    for entry in entries:
        event = entry.event
        if isinstance(event, ArtifactUpdate):
            latest[event.artifact.artifact_id] = event
    return [_closing(event) for event in latest.values() if not event.last_chunk]


def _closing(event: ArtifactUpdate) -> ArtifactUpdate:
    artifact = msgspec.structs.replace(event.artifact, parts=(Part(text=""),))
    return msgspec.structs.replace(event, artifact=artifact, append=True, last_chunk=True)


def _numbers_before(entries: list[Entry]) -> ArtifactCounters:
    """What the task had before the interrupted run: each run begins `submitted`."""
    begins = [entry.sequence for entry in entries if entry.state is TaskState.SUBMITTED]
    start = begins[-1] if begins else 0
    earlier = [entry.event for entry in entries if entry.sequence < start and entry.state is None]
    ids = {event.artifact.artifact_id for event in earlier if isinstance(event, ArtifactUpdate)}
    return ArtifactCounters(
        outputs=sum(artifact_id.startswith(OUTPUT_PREFIX) for artifact_id in ids),
        tool_results=sum(artifact_id.startswith("tool-result-") for artifact_id in ids),
    )
