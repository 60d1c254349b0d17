"""Background loops of an engine: renew its lease, fail abandoned runs, delete what has expired."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.recovery import FailOutcome, fail_orphaned_tasks, fail_run, recover_runs
from openclaw_a2a.engine.tasks.held_tasks import reject_expired
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Clock, Record, Retention, Store, SupportsRunDetach

log = get_logger(__name__)

_JUMP = timedelta(hours=1)
_HOLD_S = 86400.0
_UNDELIVERED = timedelta(days=30)
"""How much longer an ended task is kept while a delivery of it is pending."""
_SAVE_EVERY = timedelta(minutes=30)  # well below a jump, so that the mark is none
_CLOCK_KIND, _CLOCK_ID = "maintenance", "clock"

NOT_STORED = "The gateway could not store what the agent did; the work was stopped."


class MaintenanceSchedule(msgspec.Struct, frozen=True):
    """How often expired data is deleted, and how long it is kept."""

    sweep_s: float = 60.0
    ended_s: float = 30 * 86400.0
    keep_ended: int = 1_000_000
    message_s: float = 86400.0


def start_maintenance(engine: Engine, schedule: MaintenanceSchedule) -> None:
    """Start the loops that keep the lease and delete what has expired."""
    supervisor, sleep = engine.supervisor, engine.clock.sleep
    # A third of the lease: two renewals may fail before another replica takes the work.
    supervisor.run_every("lease", engine.limits.lease_s / 3, partial(maintain, engine), sleep=sleep)
    # Not at the start: a gateway that was started with a wrong clock, or on a copy of its data, can
    # be stopped before it deletes anything.
    clock = RetentionClock(engine.clock, engine.store)
    purge = partial(purge_expired, engine, schedule, clock)
    supervisor.run_every("retention", schedule.sweep_s, purge, sleep=sleep)


async def maintain(engine: Engine) -> None:
    """Renew the lease of a replica, and take up again what the store refused.

    That is the ends of runs and tasks, and messages that it may have stored all the same.

    Raises: GatewayError.
    """
    # The lease first: failing abandoned runs may take long when the store is slow.
    if engine.replication is not None:
        await engine.replication.renew()
    await _fail_abandoned(engine)
    await _recover_doubtful(engine)
    await _fail_orphans(engine)


async def _fail_abandoned(engine: Engine) -> None:
    for record in list(engine.abandoned):
        # It stays in the list until it has failed: the outbox asks `has_run` before it removes a
        # delivery whose task does not exist.
        # While the store is still down it is tried again with the next one.
        outcome = await fail_run(engine, record, NOT_STORED)
        if outcome is not FailOutcome.RETRY:
            engine.abandoned.remove(record)
            turn = engine.detached.pop(record.id, None)
            if turn is not None and outcome is FailOutcome.FAILED:
                # A job: the lease must not wait for an agent.
                engine.supervisor.spawn("end-detached", _end_detached(engine, turn))
            # Only now `has_run` is False, and the outbox can drop deliveries without a task.
            if record.task_id in engine.wakeups.subscribed:
                engine.wakeups.notify(record.task_id)


async def _fail_orphans(engine: Engine) -> None:
    # Those that this engine noted: another replica may be about to end the others.
    if refused := frozenset(engine.orphans):
        await fail_orphaned_tasks(engine, refused, reason=NOT_STORED)
        engine.orphans -= refused - engine.active_tasks.keys()


async def _recover_doubtful(engine: Engine) -> None:
    """Take up messages that were stored although their senders got an error."""
    doubtful = list(engine.doubtful_runs)
    if not doubtful:
        return
    if engine.replication is None:  # replicas look for such runs all the time
        await recover_runs(engine)
        # Their deliveries are stored too. Only now: a delivery without a task or a run is deleted.
        for look in engine.on_recovered:
            look()
    engine.clear_doubtful(doubtful)


async def _end_detached(engine: Engine, turn: Turn) -> None:
    """End the work of a run that has failed: no other replica has taken it over."""
    agent = engine.agents.get(turn.binding.agent_id)
    if not isinstance(agent, SupportsRunDetach):
        return
    try:
        await agent.end_detached_run(turn)
    except Exception as error:  # one broad catch: whatever an agent raises
        reason = str(error) or type(error).__name__
        log.warning("maintenance.agent_not_ended", run_id=turn.run_id, reason=reason)


class RetentionClock:
    """The time by which data expires: the clock of the machine without its jumps.

    A clock that is wrong for a moment must not delete data that is still needed. A jump ahead by
    more than an hour, compared with the elapsed time (`monotonic`) or with the newest stored time,
    is ignored: data expires as if the clock had not jumped, until the gateway has run for a day
    with the new time, across restarts. A gateway that was switched off for weeks cannot be
    distinguished from that, and deletes a day later.
    """

    def __init__(
        self,
        clock: Clock,
        store: Store | None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without a store only jumps while this process runs are noticed."""
        self._clock = clock
        self._store = store
        self._monotonic = monotonic
        self._mark: _ClockMark | None = None
        self._saved: _ClockMark | None = None
        self._looked_at = monotonic()

    async def now(self) -> datetime:
        """The time to use now. Raises: StoreUnavailable."""
        looked_at, before = self._monotonic(), self._looked_at
        wall = self._clock.now()
        if self._mark is None:
            self._mark = await self._load() or _ClockMark(wall)
            elapsed_s = 0.0
        else:
            elapsed_s = looked_at - before
        self._looked_at = looked_at
        self._mark = self._advance(self._mark, wall, elapsed_s)
        await self._save(self._mark)
        return self._mark.trusted

    def _advance(self, mark: "_ClockMark", wall: datetime, elapsed_s: float) -> "_ClockMark":
        expected = mark.trusted + timedelta(seconds=elapsed_s)
        if wall - expected <= _JUMP:  # a clock that was set back deletes nothing too early
            if mark.held_s is not None:
                log.info("maintenance.clock_jump_over", now=wall)
            return _ClockMark(wall)
        held_s = 0.0 if mark.held_s is None else mark.held_s + elapsed_s
        if held_s >= _HOLD_S:
            log.warning("maintenance.clock_jump_accepted", now=wall, before=expected)
            return _ClockMark(wall)
        if mark.held_s is None or elapsed_s == 0:
            log.warning(
                "maintenance.clock_jump_held",
                now=wall,
                expected=expected,
                hint="nothing expires by this jump for a day of running; check the clock if the "
                "gateway was not switched off for so long",
            )
        return _ClockMark(expected, held_s)

    async def _load(self) -> "_ClockMark | None":
        if self._store is None:
            return None
        record = await self._store.records.read_record(_CLOCK_KIND, _CLOCK_ID)
        if record is not None:
            try:
                self._saved = _mark_decoder.decode(record.body)
            except ValueError as error:
                log.warning("maintenance.clock_mark_unreadable", reason=str(error))
            else:
                return self._saved
        # A store of an earlier version: use the time of its newest task.
        newest = await self._store.tasks.list_recent_tasks(1)
        return _ClockMark(newest[0].head.status_at) if newest else None

    async def _save(self, mark: "_ClockMark") -> None:
        saved = self._saved
        # Not with every sweep: an idle gateway should not write to the disk.
        if saved is None or (saved.held_s is None) != (mark.held_s is None):
            is_due = True
        else:
            is_due = abs(mark.trusted - saved.trusted) >= _SAVE_EVERY
        if is_due and self._store is not None:
            body = msgspec.json.encode(mark)
            never = datetime.max.replace(tzinfo=UTC)
            await self._store.records.put_record(Record(_CLOCK_KIND, _CLOCK_ID, body, never))
            self._saved = mark


class _ClockMark(msgspec.Struct, frozen=True, omit_defaults=True):
    """The newest time that is trusted; while a jump is held, for how long it has been."""

    trusted: datetime
    held_s: float | None = None


_mark_decoder = msgspec.json.Decoder(_ClockMark)


async def purge_expired(
    engine: Engine, schedule: MaintenanceSchedule, clock: RetentionClock
) -> None:
    """Delete what has expired: ended tasks, message ids, records. Held tasks are rejected."""
    now = await clock.now()
    await reject_expired(engine, now=now)
    await purge_once(engine, schedule, now=now)


async def purge_once(
    engine: Engine, schedule: MaintenanceSchedule, *, now: datetime | None = None
) -> int:
    """Delete what has expired by `now`; the number of tasks deleted."""
    now = now or engine.clock.now()
    ended_before = now - timedelta(seconds=schedule.ended_s)
    retention = Retention(
        ended_before=ended_before,
        keep_ended=schedule.keep_ended,
        messages_before=now - timedelta(seconds=schedule.message_s),
        records_before=now,
        undelivered_before=ended_before - _UNDELIVERED,
    )
    # In pages, each a transaction of its own: commits of runs get their turn in between.
    tasks = messages = records = 0
    while True:
        purged = await engine.store.tasks.purge(retention)
        tasks, messages = tasks + purged.count, messages + purged.messages
        records += purged.records
        if purged.next_after is None:
            break
        retention = msgspec.structs.replace(retention, after=purged.next_after)
    if tasks or messages or records:
        log.info("maintenance.purged", tasks=tasks, message_ids=messages, records=records)
    for what, count in (("tasks", tasks), ("message ids", messages), ("records", records)):
        engine.audit.record_expired(what, count)
    return tasks
