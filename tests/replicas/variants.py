"""Gateways that are not as they should be, by name: broken on purpose, or with half of a mechanism.

A test starts its replicas with a variant to see that the checker notices what is broken, or that
clients do not notice what is missing.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from openclaw_a2a.model.ids import RunId, SessionKey
from openclaw_a2a.ports import HeldSession
from openclaw_a2a.store import commands, rules
from openclaw_a2a.store.postgres import link, replicas
from openclaw_a2a.store.postgres.change_feed import ChangeFeed
from openclaw_a2a.store.postgres.statement import Statement
from openclaw_a2a.store.postgres.writer import PostgresWriter

RARE_POLL_S = 30.0
EARLY_S = 0.05
"""How long before its commit a change is told: the commit of a busy database."""


def _ignore_fences() -> None:
    """A replica that was taken for dead writes on, for its runs and under its name."""
    lock = Statement.lock
    keys = {"run": "t.id = x.id", "writer": "t.name = x.name"}

    def lock_any(self: Statement, table: str, *, key: str, **named: Any) -> None:
        lock(self, table, key=keys.get(table, key), **named)

    def find_run(runs: Any, run_id: RunId, fence: int) -> Any:
        return runs[run_id] if run_id in runs else check_fence(runs, run_id, fence)

    async def keep_name(*_: object) -> None:
        pass

    check_fence = rules.check_fence
    _patch(Statement, "lock", lock_any)
    _patch(rules, "check_fence", find_run)
    _patch(link.WriteLink, "check_name", keep_name)
    _patch(link, "_READ", link._READ.replace("AND NOT is_gone", ""))
    is_live = replicas.IS_LIVE.format(owner="$2")
    hold = replicas._HOLD.replace(f"AND {is_live}", "")
    _patch(replicas, "_HOLD", hold.replace(f"NOT {is_live}", "false"))


def _skip_session_lock() -> None:
    """Every replica takes every session for its own."""

    async def hold_session(self: replicas.PostgresReplicas, _: SessionKey) -> HeldSession:
        return HeldSession(self.id, -1)

    _patch(replicas.PostgresReplicas, "hold_session", hold_session)


def _notify_before_commit() -> None:
    """The others are told of a change before it is there to be read."""
    write_batch = PostgresWriter._write_batch

    async def notify_and_write(self: PostgresWriter, group: list[Any]) -> list[Any]:
        changed = [
            one.command.change.head.id
            for one in group
            if isinstance(one.command, commands.ChangeTask)
        ]
        changed += [
            one.command.submission.run.task_id
            for one in group
            if isinstance(one.command, commands.Submit)
        ]
        if changed and self.on_committed is not None:
            self.on_committed(changed, ())
            await asyncio.sleep(EARLY_S)
        return await write_batch(self, group)

    _patch(PostgresWriter, "_write_batch", notify_and_write)
    _patch(PostgresWriter, "_report", lambda self, batch: None)


def _lose_notifications() -> None:
    """No notification of a change, a request or an answer arrives."""
    receive = ChangeFeed._receive

    def receive_some(self: ChangeFeed, connection: Any, pid: int, channel: str, text: str) -> None:
        if text.startswith(("p", "j")):
            receive(self, connection, pid, channel, text)

    _patch(ChangeFeed, "_receive", receive_some)


def _poll_rarely() -> None:
    """Nothing is asked for in time, so everything hangs on the notifications."""
    _patch(replicas, "_POLL_S", RARE_POLL_S)
    _patch(replicas, "_SHORT_POLL_S", RARE_POLL_S)


def _patch(owner: Any, name: str, value: object) -> None:
    assert hasattr(owner, name), f"{owner} has no {name} any more"
    setattr(owner, name, value)


VARIANTS: dict[str, Callable[[], None]] = {
    "ignore-fences": _ignore_fences,
    "skip-session-lock": _skip_session_lock,
    "notify-before-commit": _notify_before_commit,
    "lose-notifications": _lose_notifications,
    "poll-rarely": _poll_rarely,
}


def apply_variants(names: str) -> None:
    """Change this process as the names say, which are separated by commas."""
    for name in names.split(",") if names else ():
        VARIANTS[name]()
