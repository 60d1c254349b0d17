"""Background loops of an engine: renew leases, fail abandoned runs, delete what has expired."""

from datetime import timedelta

import msgspec

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.recovery import fail_run
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import StoreUnavailable
from openclaw_a2a.ports import Retention

log = get_logger(__name__)

NOT_STORED = "The gateway could not store what the agent did; the work was stopped."


class MaintenanceSchedule(msgspec.Struct, frozen=True):
    """How often expired data is deleted, and how long it is kept."""

    sweep_s: float = 60.0
    ended_s: float = 30 * 86400.0
    keep_ended: int = 1_000_000
    message_s: float = 86400.0
    undelivered_s: float = 30 * 86400.0
    """How much longer an ended task is kept while a delivery of it is pending."""


async def renew_leases(engine: Engine) -> None:
    """Renew this engine's leases, and fail the runs whose end the store refused."""
    while True:
        # A third of the lease: two renewals may fail before another engine could claim a run.
        await engine.clock.sleep(engine.limits.lease_s / 3)
        try:
            # Leases first: failing abandoned runs may take long when the store is slow.
            await engine.store.tasks.renew_leases(engine.owner, lease_until=engine.lease_end())
            await _fail_abandoned(engine)
        except StoreUnavailable as error:
            log.warning("maintenance.leases_not_renewed", reason=error.message)
        except Exception:  # the loop must go on, or the leases run out
            log.exception("maintenance.leases_not_renewed")


async def _fail_abandoned(engine: Engine) -> None:
    for record in list(engine.abandoned):
        # It stays in the list until it has failed: the outbox asks `has_run` before it removes a
        # delivery whose task does not exist.
        # False means that the store is still down; the next renewal tries again.
        if await fail_run(engine, record, NOT_STORED):
            engine.abandoned.remove(record)
            # Only now `has_run` is False, and the outbox can drop deliveries without a task.
            if record.task_id in engine.wakeups.subscribed:
                engine.wakeups.notify(record.task_id)


async def purge_expired(engine: Engine, schedule: MaintenanceSchedule) -> None:
    """Delete what has expired: ended tasks, message ids, records."""
    while True:
        try:
            await purge_once(engine, schedule)
        except StoreUnavailable as error:
            log.warning("maintenance.purge_failed", reason=error.message)
        except Exception:  # the loop must go on
            log.exception("maintenance.purge_failed")
        # After the first sweep, not before it: a gateway that is restarted often would never purge.
        await engine.clock.sleep(schedule.sweep_s)


async def purge_once(engine: Engine, schedule: MaintenanceSchedule) -> int:
    """Delete what has expired now; the number of tasks deleted."""
    now = engine.clock.now()
    ended_before = now - timedelta(seconds=schedule.ended_s)
    retention = Retention(
        ended_before=ended_before,
        keep_ended=schedule.keep_ended,
        messages_before=now - timedelta(seconds=schedule.message_s),
        records_before=now,
        undelivered_before=ended_before - timedelta(seconds=schedule.undelivered_s),
    )
    # In pages, each a transaction of its own: commits of runs get their turn in between.
    purged = await engine.store.tasks.purge(retention)
    total = purged.count
    while purged.next_after is not None:
        retention = msgspec.structs.replace(retention, after=purged.next_after)
        purged = await engine.store.tasks.purge(retention)
        total += purged.count
    return total
