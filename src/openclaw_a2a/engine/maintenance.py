"""What an engine does by itself while it lives: keep its leases, end what broke, forget the old."""

from datetime import timedelta

import msgspec

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.recovery import fail_run
from openclaw_a2a.log import get_logger
from openclaw_a2a.ports import Retention

log = get_logger(__name__)

BROKEN = "The gateway could not store what the agent did; the work was stopped."


class MaintenanceSchedule(msgspec.Struct, frozen=True):
    """How often, and how long things are kept."""

    sweep_s: float = 60.0
    ended_s: float = 30 * 86400.0
    keep_ended: int = 1_000_000
    message_s: float = 86400.0
    undelivered_s: float = 30 * 86400.0
    """How much longer ended tasks are kept of which something is still to be brought."""


async def renew_leases(engine: Engine) -> None:
    """Renew this engine's leases, and end the runs the store once refused to take."""
    while True:
        await engine.clock.sleep(engine.limits.lease_s / 3)
        try:
            await engine.store.tasks.renew_leases(engine.owner, lease_until=engine.lease_end())
            await _end_abandoned(engine)
        except Exception:  # whatever it is, the next round must come: leases would run out
            log.exception("leases-not-renewed")


async def _end_abandoned(engine: Engine) -> None:
    records, engine.abandoned = engine.abandoned, []
    for record in records:
        await fail_run(engine, record, BROKEN)


async def purge_expired(engine: Engine, times: MaintenanceSchedule) -> None:
    """Delete what is past its time: ended tasks, message records, kept records."""
    while True:
        try:
            await purge_once(engine, times)
        except Exception:  # whatever it is, the next round must come
            log.exception("retention-failed")
        await engine.clock.sleep(times.sweep_s)


async def purge_once(engine: Engine, times: MaintenanceSchedule) -> int:
    """One round of forgetting; how many tasks went."""
    now = engine.clock.now()
    ended_before = now - timedelta(seconds=times.ended_s)
    retention = Retention(
        ended_before=ended_before,
        keep_ended=times.keep_ended,
        messages_before=now - timedelta(seconds=times.message_s),
        records_before=now,
        undelivered_before=ended_before - timedelta(seconds=times.undelivered_s),
    )
    gone = await engine.store.tasks.purge(retention)
    total = gone.count
    while gone.next_after is not None:
        gone = await engine.store.tasks.purge(
            msgspec.structs.replace(retention, after=gone.next_after)
        )
        total += gone.count
    return total
