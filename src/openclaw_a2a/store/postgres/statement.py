"""A batch as one SQL statement: lock, check every assumption, and write, or write nothing.

The statement is a chain of common table expressions. Those named `have_` lock the rows that the
batch expects and `ok` compares; every write depends on `ok`. Rows travel as arrays, one parameter
per column, so that the text depends only on which kinds of rows a batch has: the server keeps a
plan for each of these few texts.

In READ COMMITTED a row that another transaction holds is waited for and then compared in its newest
version, so an assumption that was checked holds until the commit. Rows that must be absent cannot
be locked; of two writers that add the same key, one fails at the unique index and decides again.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Protocol

from openclaw_a2a.model.delivery import Delivery
from openclaw_a2a.model.records import RunRecord, TaskHead, encode_json
from openclaw_a2a.ports import Record
from openclaw_a2a.store.columns import CODE_OF, DELIVERY_CODE_OF, RunInput
from openclaw_a2a.store.postgres.batch import (
    ABSENT,
    PRESENT,
    Batch,
    DeliveryChange,
    RecordChange,
    TaskChange,
)

Rows = Sequence[tuple[Any, ...]]

_IF_OK = "(SELECT ok FROM ok)"
_RUN_COLUMNS = (
    "id, task, context, principal, account, session_key, message_id, owner, fence, "
    "is_started, attempt, input, resume, agent"
)
_DELIVERY_COLUMNS = (
    "id, kind, task, body, cursor, next_at, created_at, updated_at, state, attempts, reason"
)


class Statement:
    """The text and the parameters of a batch."""

    def __init__(self, *, writer: "Writer") -> None:
        self._parts: list[str] = []
        self._writes: list[str] = []
        self._checks: list[str] = []
        self._has_tickets = False
        self.values: list[Any] = []
        self.writer = writer

    @property
    def text(self) -> str:
        """Returns one row: whether it was written, and the tickets."""
        checks = " AND ".join(self._checks) or "true"
        chain = [*self._parts, f"ok AS MATERIALIZED (SELECT {checks} AS ok)", *self._writes]
        return f"WITH {', '.join(chain)} SELECT ok, {self._tickets()} AS tickets FROM ok"

    def _tickets(self) -> str:
        if not self._has_tickets:
            return "'{}'::bigint[]"
        return "ARRAY(SELECT number FROM ticket ORDER BY number)"

    def value(self, value: object) -> str:
        """The place of a parameter."""
        self.values.append(value)
        return f"${len(self.values)}"

    def rows(self, columns: str, types: str, rows: Rows) -> str:
        """A table `x` of parameters, in their order."""
        places = [
            f"{self.value(list(column))}::{kind}[]"
            for kind, column in zip(types.split(), zip(*rows, strict=True), strict=True)
        ]
        return f"unnest({', '.join(places)}) AS x({columns})"

    # ---------------------------------------------------------------- checks

    def lock(self, table: str, *, key: str, columns: str, source: str, count: int) -> None:
        """Lock rows that must be there; all of them must be found.

        In the order of their columns, the key first, so that no two writers deadlock.
        """
        query = (
            f"SELECT {columns} FROM {table} t JOIN {source} ON {key} ORDER BY 1, 2 FOR UPDATE OF t"
        )
        self._parts.append(f"have_{table} AS MATERIALIZED ({query})")
        self._checks.append(f"(SELECT count(*) FROM have_{table}) = {self.value(count)}::bigint")

    def refuse(self, table: str, *, key: str, source: str) -> None:
        """None of these rows may be there."""
        self._checks.append(f"NOT EXISTS (SELECT FROM {table} t JOIN {source} ON {key})")

    def write(self, name: str, text: str) -> None:
        """A write; its text contains the condition."""
        self._writes.append(f"{name} AS ({text})")

    def give_tickets(self, runs: Sequence[str]) -> None:
        """Number runs in order of arrival: the array is evaluated in its order."""
        self._has_tickets = True
        self.write(
            "ticket",
            "SELECT x.id, nextval('run_ticket') AS number "
            f"FROM unnest({self.value(list(runs))}::text[]) AS x(id) WHERE {_IF_OK}",
        )

    def mark_writer(self, writer: "Writer", number: int) -> None:
        """Note the number of the batch, to tell after a lost connection whether it was written.

        Only if the writer is still the one that wrote the batch before.
        """
        row = (writer.name, writer.instance, number - 1)
        self.lock(
            "writer",
            key="t.name = x.name AND t.instance = x.instance AND t.batch = x.batch "
            "AND NOT t.is_gone",
            columns="t.name, t.batch",
            source=self.rows("name, instance, batch", "text text bigint", [row]),
            count=1,
        )
        self.write(
            "marked",
            f"UPDATE writer SET batch = {self.value(number)}::bigint, tickets = {self._tickets()}, "
            f"lease_until = now() + {self.value(writer.lease_time)}::interval "
            f"WHERE name = {self.value(writer.name)} AND {_IF_OK}",
        )


class Writer(Protocol):
    """The writer of a batch."""

    name: str
    instance: str
    lease_time: timedelta

    @property
    def shard(self) -> int: ...


def build_statement(batch: Batch, *, writer: Writer, number: int) -> Statement:
    """The statement that writes a batch as number `number` of this writer."""
    statement = Statement(writer=writer)
    _write_tasks(statement, batch)
    _write_runs(statement, batch)
    _write_messages(statement, batch)
    if batch.deliveries:
        _write_deliveries(statement, batch)
    if batch.records:
        _write_records(statement, batch)
    if batch.logs:
        _write_logs(statement, batch)
    statement.mark_writer(writer, number)
    return statement


# -------------------------------------------------------------------- tasks


def _write_tasks(statement: Statement, batch: Batch) -> None:
    known = [(name, task) for name, task in batch.tasks.items() if task.found >= 0]
    new = [(name, task) for name, task in batch.tasks.items() if task.found == ABSENT]
    sources: list[str] = []
    if known:
        rows = [(name, task.found, task.head is not None) for name, task in known]
        statement.lock(
            "task",
            key="t.id = x.id AND t.sequence = x.sequence",
            columns="t.id, t.number, t.principal, t.account, t.state, x.is_changed",
            source=statement.rows("id, sequence, is_changed", "text bigint boolean", rows),
            count=len(rows),
        )
        sources.append("SELECT id, number FROM have_task")
    if new:
        source = statement.rows("id", "text", [(name,) for name, _ in new])
        statement.refuse("task", key="t.id = x.id", source=source)
        rows = [_task_row(task, task.head) for _, task in new if task.head is not None]
        columns = (
            "id, principal, account, context, state, status_at, created_at, sequence, binding, "
            "resume"
        )
        types = "text text text text smallint timestamptz timestamptz bigint bytea bytea"
        statement.write(
            "new_task",
            f"INSERT INTO task ({columns}) SELECT {columns} "
            f"FROM {statement.rows(columns, types, rows)} WHERE {_IF_OK} RETURNING id, number",
        )
        sources.append("SELECT id, number FROM new_task")
    changed = [
        (*_task_row(task, task.head), task.sets_resume)
        for _, task in known
        if task.head is not None
    ]
    if changed:
        _update_tasks(statement, changed)
    if batch.cleared:
        cleared = statement.value(sorted(batch.cleared))
        statement.write(
            "cleared",
            f"UPDATE task SET resume = NULL WHERE id = ANY ({cleared}::text[]) "
            f"AND resume IS NOT NULL AND {_IF_OK}",
        )
    counted = [
        (head.scope.principal, head.scope.account, CODE_OF[head.state] or 0)
        for head in (task.head for task in batch.tasks.values())
        if head is not None
    ]
    if counted:
        _count_tasks(statement, counted, has_known=bool(known))
        _write_content(statement, batch, " UNION ALL ".join(sources))


def _task_row(task: TaskChange, head: TaskHead) -> tuple[Any, ...]:
    binding = None if head.binding is None else encode_json(head.binding)
    names = (head.id, head.scope.principal, head.scope.account, head.context_id)
    times = (head.status_at, head.created_at)
    return (*names, CODE_OF[head.state] or 0, *times, head.sequence, binding, task.resume)


def _update_tasks(statement: Statement, changed: Rows) -> None:
    kept = [(row[0], row[4], row[5], *row[7:]) for row in changed]
    columns = "id, state, status_at, sequence, binding, resume, sets_resume"
    types = "text smallint timestamptz bigint bytea bytea boolean"
    statement.write(
        "changed_task",
        "UPDATE task t SET state = x.state, status_at = x.status_at, sequence = x.sequence, "
        "binding = x.binding, "
        "resume = CASE WHEN x.sets_resume THEN x.resume ELSE t.resume END "
        f"FROM {statement.rows(columns, types, kept)} WHERE t.id = x.id AND {_IF_OK}",
    )


def _count_tasks(statement: Statement, counted: Rows, *, has_known: bool) -> None:
    """Move the tally with the states, in the same statement, so that it is always exact."""
    gone = (
        "SELECT principal, account, state, -1 AS change FROM have_task WHERE is_changed UNION ALL "
        if has_known
        else ""
    )
    source = statement.rows("principal, account, state", "text text smallint", counted)
    shard = statement.value(statement.writer.shard)
    statement.write(
        "counted",
        "INSERT INTO tally AS y (principal, account, state, shard, count) "
        f"SELECT principal, account, state, {shard}::smallint, sum(change) FROM ({gone}"
        f"SELECT x.principal, x.account, x.state, 1 AS change FROM {source}) d WHERE {_IF_OK} "
        "GROUP BY principal, account, state HAVING sum(change) <> 0 ORDER BY 1, 2, 3 "
        "ON CONFLICT (principal, account, state, shard) "
        "DO UPDATE SET count = y.count + excluded.count",
    )


def _write_content(statement: Statement, batch: Batch, numbers: str) -> None:
    """The events, snapshots and contents of tasks."""
    join = f"JOIN ({numbers}) n ON n.id = x.task WHERE {_IF_OK}"
    if batch.events:
        rows = [
            (name, entry.sequence, CODE_OF[entry.state], entry.body) for name, entry in batch.events
        ]
        source = statement.rows("task, sequence, state, body", "text bigint smallint bytea", rows)
        statement.write(
            "new_event",
            "INSERT INTO event (task, sequence, state, body) "
            f"SELECT n.number, x.sequence, x.state, x.body FROM {source} {join}",
        )
    snapshots = [
        (name, *task.snapshot) for name, task in batch.tasks.items() if task.snapshot is not None
    ]
    if snapshots:
        source = statement.rows("task, sequence, body", "text bigint bytea", snapshots)
        statement.write(
            "new_snapshot",
            "INSERT INTO snapshot (task, sequence, body) "
            f"SELECT n.number, x.sequence, x.body FROM {source} {join} "
            "ON CONFLICT (task) DO UPDATE SET sequence = excluded.sequence, body = excluded.body",
        )
    if batch.contents:
        rows = [(name, digest, body) for (name, digest), body in batch.contents.items()]
        source = statement.rows("task, hash, body", "text bytea bytea", rows)
        statement.write(
            "new_content",
            "INSERT INTO content (task, hash, body) "
            f"SELECT n.number, x.hash, x.body FROM {source} {join} ON CONFLICT DO NOTHING",
        )


# -------------------------------------------------------------------- runs and messages


def _write_runs(statement: Statement, batch: Batch) -> None:
    known = [(name, run) for name, run in batch.runs.items() if run.found is not None]
    if known:
        rows = [(name, run.found) for name, run in known]
        statement.lock(
            "run",
            key="t.id = x.id AND t.fence = x.fence",
            columns="t.id, t.principal, t.account, t.message_id",
            source=statement.rows("id, fence", "text bigint", rows),
            count=len(rows),
        )
    if batch.accepted:
        statement.give_tickets(batch.accepted)
    # A run that began and ended within the batch never gets a row.
    new = [
        (run.new, run.attempt)
        for run in batch.runs.values()
        if run.new is not None and not run.is_ended
    ]
    if new:
        _insert_runs(statement, batch, new)
    started = [
        (name, run.attempt) for name, run in known if run.attempt is not None and not run.is_ended
    ]
    if started:
        source = statement.rows("id, attempt", "text integer", started)
        statement.write(
            "started_run",
            "UPDATE run t SET is_started = true, attempt = x.attempt "
            f"FROM {source} WHERE t.id = x.id AND {_IF_OK}",
        )
    ended = [name for name, run in known if run.is_ended]
    if ended:
        names = statement.value(ended)
        statement.write(
            "ended_run",
            f"DELETE FROM run WHERE id = ANY ({names}::text[]) AND {_IF_OK}",
        )


def _insert_runs(
    statement: Statement, batch: Batch, new: list[tuple[RunRecord, int | None]]
) -> None:
    rows: list[tuple[Any, ...]] = []
    for run, attempt in new:
        content = encode_json(RunInput(run.message, run.binding, run.options))
        content = batch.refer_to_contents(run.task_id, content)
        names = (run.id, run.task_id, run.context_id, run.scope.principal, run.scope.account)
        session = (run.session_key, run.message.message_id, run.owner, run.fence)
        is_started = run.is_started or attempt is not None
        state = (is_started, run.attempt if attempt is None else attempt, content, run.resume)
        rows.append((*names, *session, *state, run.binding.agent_id))
    types = "text text text text text text text text bigint boolean integer bytea bytea text"
    source = statement.rows(_RUN_COLUMNS, types, rows)
    shown = ", ".join(f"x.{one}" for one in _RUN_COLUMNS.split(", "))
    # The time of the lease is of earlier versions: runs belong to their owner as long as it lives.
    statement.write(
        "new_run",
        f"INSERT INTO run ({_RUN_COLUMNS}, ticket, lease_until) "
        f"SELECT {shown}, k.number, 'infinity'::timestamptz "
        f"FROM {source} JOIN ticket k ON k.id = x.id",
    )


def _write_messages(statement: Statement, batch: Batch) -> None:
    if batch.new_messages:
        keys = list(batch.new_messages)
        key = "t.principal = x.principal AND t.account = x.account AND t.message_id = x.message_id"
        source = statement.rows("principal, account, message_id", "text text text", keys)
        statement.refuse("message", key=key, source=source)
        rows = [
            (*key, sent.body_hash, sent.run.id, sent.run.task_id, sent.created_at, answer)
            for key, (sent, answer) in batch.new_messages.items()
        ]
        columns = "principal, account, message_id, body_hash, run, task, created_at, answer"
        types = "text text text bytea text text timestamptz bytea"
        statement.write(
            "new_message",
            f"INSERT INTO message ({columns}) SELECT {columns} "
            f"FROM {statement.rows(columns, types, rows)} WHERE {_IF_OK}",
        )
    if batch.answers:
        source = statement.rows("run, answer", "text bytea", list(batch.answers.items()))
        statement.write(
            "answered",
            "UPDATE message t SET answer = x.answer "
            f"FROM {source} JOIN have_run r ON r.id = x.run WHERE t.principal = r.principal "
            "AND t.account = r.account AND t.message_id = r.message_id AND t.run = x.run "
            f"AND {_IF_OK}",
        )


# -------------------------------------------------------------------- deliveries


def _write_deliveries(statement: Statement, batch: Batch) -> None:
    changes = batch.deliveries
    # Each delivery that must be there; its body only where that is the version.
    found = [(name, one.body) for name, one in changes.items() if one.found == PRESENT]
    if found:
        statement.lock(
            "delivery",
            key="t.id = x.id AND (x.body IS NULL OR t.body = x.body)",
            columns="t.id, t.kind",
            source=statement.rows("id, body", "text bytea", found),
            count=len(found),
        )
    types = "text text text bytea bigint timestamptz timestamptz timestamptz smallint integer text"
    name = statement.writer.name
    put = [
        (*_delivery_row(one.row), one.owner or name)
        for one in changes.values()
        if one.row and one.is_put
    ]
    if put:
        columns = f"{_DELIVERY_COLUMNS}, owner"
        assigned = ", ".join(f"{one} = excluded.{one}" for one in _DELIVERY_COLUMNS.split(", ")[1:])
        statement.write(
            "put_delivery",
            f"INSERT INTO delivery ({columns}) SELECT {columns} "
            f"FROM {statement.rows(columns, f'{types} text', put)} WHERE {_IF_OK} "
            f"ORDER BY id ON CONFLICT (id) DO UPDATE SET {assigned}, owner = excluded.owner",
        )
    updated = [_delivery_row(one.row) for one in changes.values() if one.row and not one.is_put]
    if updated:
        # Not its kind, task and body: they are what it is.
        assigned = ", ".join(f"{one} = x.{one}" for one in _DELIVERY_COLUMNS.split(", ")[4:])
        statement.write(
            "updated_delivery",
            f"UPDATE delivery t SET {assigned} "
            f"FROM {statement.rows(_DELIVERY_COLUMNS, types, updated)} "
            f"WHERE t.id = x.id AND {_IF_OK}",
        )
    _delete_deliveries(statement, [(name, one) for name, one in changes.items()])


def _delete_deliveries(statement: Statement, changes: Iterable[tuple[str, DeliveryChange]]) -> None:
    deleted = [name for name, one in changes if one.row is None]
    if deleted:
        statement.write(
            "deleted_delivery",
            f"DELETE FROM delivery WHERE id = ANY ({statement.value(deleted)}::text[]) "
            f"AND {_IF_OK}",
        )


def _delivery_row(delivery: Delivery) -> tuple[Any, ...]:
    names = (delivery.id, delivery.kind, delivery.task_id, delivery.body, delivery.cursor)
    times = (delivery.next_at, delivery.created_at, delivery.updated_at)
    code = DELIVERY_CODE_OF[delivery.state]
    return (*names, *times, code, delivery.attempts, stored_reason(delivery.reason))


def stored_reason(reason: str | None) -> str | None:
    """A reason as PostgreSQL takes it: what a receiver answered may have zero characters."""
    return None if reason is None else reason.replace("\0", "\ufffd")


# -------------------------------------------------------------------- records


def _write_records(statement: Statement, batch: Batch) -> None:
    changes = batch.records
    found = [
        (*key, None if one.found == PRESENT else one.found)
        for key, one in changes.items()
        if one.found >= 0 or one.found == PRESENT
    ]
    key = "t.kind = x.kind AND t.id = x.id"
    if found:
        statement.lock(
            "record",
            key=f"{key} AND (x.version IS NULL OR t.version = x.version)",
            columns="t.kind, t.id",
            source=statement.rows("kind, id, version", "text text integer", found),
            count=len(found),
        )
    absent = [key for key, one in changes.items() if one.found == ABSENT]
    if absent:
        source = statement.rows("kind, id", "text text", absent)
        statement.refuse("record", key=key, source=source)
    _insert_records(statement, changes.values())
    updated = [_record_row(one.row) for one in changes.values() if one.row and not one.is_put]
    if updated:
        columns, types = (
            "kind, id, body, expires_at, version",
            "text text bytea timestamptz integer",
        )
        statement.write(
            "updated_record",
            "UPDATE record t SET body = x.body, expires_at = x.expires_at, version = x.version "
            f"FROM {statement.rows(columns, types, updated)} WHERE {key} AND {_IF_OK}",
        )
    deleted = [key for key, one in changes.items() if one.row is None and one.found != ABSENT]
    if deleted:
        source = statement.rows("kind, id", "text text", deleted)
        statement.write(
            "deleted_record",
            f"DELETE FROM record t USING {source} WHERE {key} AND {_IF_OK}",
        )


def _insert_records(statement: Statement, changes: Iterable[RecordChange]) -> None:
    put = [(one.found, _record_row(one.row)) for one in changes if one.row and one.is_put]
    if not put:
        return
    # Numbered together, in their order: the inserts below run in any.
    keys = [row[:2] for _, row in put]
    statement.write(
        "record_order",
        "SELECT x.kind, x.id, nextval('record_number') AS number "
        f"FROM {statement.rows('kind, id', 'text text', keys)} WHERE {_IF_OK}",
    )
    # A new one has no ON CONFLICT: where another writer was faster, the batch is decided again.
    new = [row for found, row in put if found == ABSENT]
    replaced = [row for found, row in put if found != ABSENT]
    columns, types = "kind, id, body, expires_at, version", "text text bytea timestamptz integer"
    conflict = (
        "ON CONFLICT (kind, id) DO UPDATE SET body = excluded.body, "
        "expires_at = excluded.expires_at, version = excluded.version, number = excluded.number"
    )
    for name, rows, ending in (("new_record", new, ""), ("put_record", replaced, conflict)):
        if rows:
            statement.write(
                name,
                f"INSERT INTO record ({columns}, number) "
                "SELECT x.kind, x.id, x.body, x.expires_at, x.version, o.number "
                f"FROM {statement.rows(columns, types, rows)} "
                f"JOIN record_order o ON o.kind = x.kind AND o.id = x.id {ending}",
            )


def _record_row(record: Record) -> tuple[Any, ...]:
    return record.kind, record.id, record.body, record.expires_at, record.version


# -------------------------------------------------------------------- logs


def _write_logs(statement: Statement, batch: Batch) -> None:
    changes = batch.logs
    key = "t.kind = x.kind AND t.id = x.id"
    found = [
        (*name, None if one.found == PRESENT else one.found)
        for name, one in changes.items()
        if one.found != 0
    ]
    if found:
        statement.lock(
            "log",
            key=f"{key} AND (x.sequence IS NULL OR t.sequence = x.sequence)",
            columns="t.kind, t.id, t.number",
            source=statement.rows("kind, id, sequence", "text text bigint", found),
            count=len(found),
        )
    new = [(*name, one.sequence, one.closes) for name, one in changes.items() if one.found == 0]
    sources: list[str] = []
    if new:
        source = statement.rows("kind, id", "text text", [row[:2] for row in new])
        statement.refuse("log", key=key, source=source)
        source = statement.rows("kind, id, sequence, is_closed", "text text bigint boolean", new)
        statement.write(
            "new_log",
            "INSERT INTO log (kind, id, sequence, is_closed, updated_at, owner) "
            "SELECT kind, id, sequence, is_closed, now(), "
            f"{statement.value(statement.writer.name)}::text FROM {source} WHERE {_IF_OK} "
            "RETURNING kind, id, number",
        )
        sources.append("SELECT kind, id, number FROM new_log")
    extended = [
        (*name, one.sequence, one.closes, one.reopens)
        for name, one in changes.items()
        if one.found > 0
    ]
    if extended:
        columns = "kind, id, sequence, closes, reopens"
        source = statement.rows(columns, "text text bigint boolean boolean", extended)
        statement.write(
            "extended_log",
            "UPDATE log t SET sequence = x.sequence, updated_at = now(), "
            "is_closed = x.closes OR (t.is_closed AND NOT x.reopens) "
            f"FROM {source} WHERE {key} AND {_IF_OK}",
        )
        sources.append("SELECT kind, id, number FROM have_log")
    _write_lines(statement, batch, sources)


def _write_lines(statement: Statement, batch: Batch, sources: list[str]) -> None:
    lines = [(*name, *line) for name, one in batch.logs.items() for line in one.lines]
    if lines:
        source = statement.rows("kind, id, sequence, body", "text text bigint bytea", lines)
        statement.write(
            "new_line",
            "INSERT INTO log_line (log, sequence, body) SELECT n.number, x.sequence, x.body "
            f"FROM {source} JOIN ({' UNION ALL '.join(sources)}) n "
            f"ON n.kind = x.kind AND n.id = x.id WHERE {_IF_OK}",
        )
    deleted = [name for name, one in batch.logs.items() if one.is_deleted]
    if deleted:
        source = statement.rows("kind, id", "text text", deleted)
        statement.write(
            "deleted_line",
            "DELETE FROM log_line l USING have_log t "
            f"JOIN {source} ON t.kind = x.kind AND t.id = x.id "
            f"WHERE l.log = t.number AND {_IF_OK}",
        )
        source = statement.rows("kind, id", "text text", deleted)
        statement.write(
            "deleted_log",
            f"DELETE FROM log t USING {source} WHERE t.kind = x.kind AND t.id = x.id AND {_IF_OK}",
        )
