"""A batch as one SQL statement: lock, check every assumption, and write, or write nothing.

The statement is a chain of common table expressions. Those named `have_` lock the rows that the
batch expects and `ok` compares; every write depends on `ok`. Rows travel as arrays, one parameter
per column, so that the text depends only on which kinds of rows a batch has: the server keeps a
plan for each of these few texts.

In READ COMMITTED a row that another transaction holds is waited for and then compared in its newest
version, so an assumption that was checked holds until the commit. Rows that must be absent cannot
be locked; of two writers that add the same key, one fails at the unique index and decides again.
"""

from collections.abc import Sequence
from typing import Any

from openclaw_a2a.model.delivery import Delivery
from openclaw_a2a.model.records import RunRecord, TaskHead, encode_json
from openclaw_a2a.ports import Record
from openclaw_a2a.store.columns import CODE_OF, DELIVERY_CODE_OF, RunInput
from openclaw_a2a.store.postgres.batch import ABSENT, PRESENT, Batch, TaskChange
from openclaw_a2a.store.postgres.link import WriteLink
from openclaw_a2a.store.postgres.stored_text import stored_reason

Rows = Sequence[tuple[Any, ...]]

_IF_OK = "(SELECT ok FROM ok)"
_ROWS = "<rows>"
"""Stands for the table `x` of the rows of a write."""
_COLUMNS_BY_TYPE = {
    "text": "id kind task context principal account session_key message_id run owner agent reason "
    "name instance",
    "bigint": "sequence fence cursor batch",
    "integer": "attempt attempts version",
    "smallint": "state",
    "boolean": "is_changed is_started is_closed sets_resume closes reopens",
    "bytea": "body hash binding resume input body_hash answer",
    "timestamptz": "status_at created_at updated_at next_at expires_at",
}
_TYPE_OF = {name: kind for kind, names in _COLUMNS_BY_TYPE.items() for name in names.split()}

_TASK_STATE = "state, status_at, sequence, binding, resume"
_TASK_COLUMNS = f"id, principal, account, context, created_at, {_TASK_STATE}"
_RUN_COLUMNS = (
    "id, task, context, principal, account, session_key, message_id, owner, fence, "
    "is_started, attempt, input, resume, agent"
)
_MESSAGE_COLUMNS = "principal, account, message_id, body_hash, run, task, created_at, answer"
_DELIVERY_COLUMNS = (
    "id, kind, task, body, cursor, next_at, created_at, updated_at, state, attempts, reason"
)
_RECORD_COLUMNS = "kind, id, body, expires_at, version"
_LOG_COLUMNS = "kind, id, sequence, is_closed, owner"
_SAME_KIND_AND_ID = "t.kind = x.kind AND t.id = x.id"


class Statement:
    """The text and the parameters of a batch."""

    def __init__(self, writer: WriteLink) -> None:
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

    def rows(self, columns: str, rows: Rows) -> str:
        """A table `x` of parameters, in their order."""
        places = [
            f"{self.value(list(values))}::{_TYPE_OF[column]}[]"
            for column, values in zip(columns.split(", "), zip(*rows, strict=True), strict=True)
        ]
        return f"unnest({', '.join(places)}) AS x({columns})"

    # ---------------------------------------------------------------- checks

    def lock(self, table: str, *, key: str, columns: str, given: str, rows: Rows) -> None:
        """Lock rows that must be there; all of them must be found.

        `given` are the columns of `rows`, `columns` those that `have_` has. In the order of these,
        the key first, so that no two writers deadlock.
        """
        if rows:
            self._parts.append(
                f"have_{table} AS MATERIALIZED (SELECT {columns} FROM {table} t "
                f"JOIN {self.rows(given, rows)} ON {key} ORDER BY 1, 2 FOR UPDATE OF t)"
            )
            count = self.value(len(rows))
            self._checks.append(f"(SELECT count(*) FROM have_{table}) = {count}::bigint")

    def refuse(self, table: str, key: str, rows: Rows) -> None:
        """No row with one of these keys may be there; `key` are its columns."""
        if rows:
            is_same = " AND ".join(f"t.{one} = x.{one}" for one in key.split(", "))
            source = self.rows(key, rows)
            self._checks.append(f"NOT EXISTS (SELECT FROM {table} t JOIN {source} ON {is_same})")

    # ---------------------------------------------------------------- writes

    def write(self, name: str, text: str) -> None:
        """A write; its text contains the condition."""
        self._writes.append(f"{name} AS ({text})")

    def write_rows(self, name: str, columns: str, rows: Rows, text: str) -> None:
        """A write of rows, if there are any; `_ROWS` is their place in the text."""
        if rows:
            self.write(name, text.replace(_ROWS, self.rows(columns, rows)))

    def give_tickets(self, runs: Sequence[str]) -> None:
        """Number runs in order of arrival: the array is evaluated in its order."""
        self._has_tickets = bool(runs)
        self.write_rows(
            "ticket",
            "id",
            [(run,) for run in runs],
            f"SELECT x.id, nextval('run_ticket') AS number FROM {_ROWS} WHERE {_IF_OK}",
        )

    def mark_writer(self, number: int) -> None:
        """Note the number of the batch, to tell after a lost connection whether it was written.

        Only if the writer is still the one that wrote the batch before.
        """
        writer = self.writer
        self.lock(
            "writer",
            key="t.name = x.name AND t.instance = x.instance AND t.batch = x.batch "
            "AND NOT t.is_gone",
            columns="t.name, t.batch",
            given="name, instance, batch",
            rows=[(writer.name, writer.instance, number - 1)],
        )
        self.write(
            "marked",
            f"UPDATE writer SET batch = {self.value(number)}::bigint, tickets = {self._tickets()}, "
            f"lease_until = now() + {self.value(writer.lease_time)}::interval "
            f"WHERE name = {self.value(writer.name)} AND {_IF_OK}",
        )


def build_statement(batch: Batch, *, writer: WriteLink, number: int) -> Statement:
    """The statement that writes a batch as number `number` of this writer."""
    statement = Statement(writer)
    _write_tasks(statement, batch)
    _write_runs(statement, batch)
    _write_messages(statement, batch)
    _write_deliveries(statement, batch)
    _write_records(statement, batch)
    _write_logs(statement, batch)
    statement.mark_writer(number)
    return statement


def _write_tasks(statement: Statement, batch: Batch) -> None:
    known = [(name, task) for name, task in batch.tasks.items() if task.found != ABSENT]
    statement.lock(
        "task",
        key="t.id = x.id AND t.sequence = x.sequence",
        columns="t.id, t.number, t.principal, t.account, t.state, x.is_changed",
        given="id, sequence, is_changed",
        rows=[(name, task.found, task.head is not None) for name, task in known],
    )
    changed = [(task, task.head) for task in batch.tasks.values() if task.head is not None]
    new = [_task_row(task, head) for task, head in changed if task.found == ABSENT]
    statement.refuse("task", "id", [row[:1] for row in new])
    statement.write_rows(
        "new_task",
        _TASK_COLUMNS,
        new,
        f"INSERT INTO task ({_TASK_COLUMNS}) SELECT {_TASK_COLUMNS} FROM {_ROWS} WHERE {_IF_OK} "
        "RETURNING id, number",
    )
    statement.write_rows(
        "changed_task",
        f"id, {_TASK_STATE}, sets_resume",
        [
            (head.id, *_task_state(task, head), task.sets_resume)
            for task, head in changed
            if task.found != ABSENT
        ],
        "UPDATE task t SET state = x.state, status_at = x.status_at, sequence = x.sequence, "
        "binding = x.binding, "
        "resume = CASE WHEN x.sets_resume THEN x.resume ELSE t.resume END "
        f"FROM {_ROWS} WHERE t.id = x.id AND {_IF_OK}",
    )
    if batch.cleared:
        cleared = statement.value(sorted(batch.cleared))
        statement.write(
            "cleared",
            f"UPDATE task SET resume = NULL WHERE id = ANY ({cleared}::text[]) "
            f"AND resume IS NOT NULL AND {_IF_OK}",
        )
    if changed:
        _count_tasks(statement, [head for _, head in changed], has_known=bool(known))
        sources = [name for name, rows in (("have_task", known), ("new_task", new)) if rows]
        _write_content(statement, batch, sources)


def _task_row(task: TaskChange, head: TaskHead) -> tuple[Any, ...]:
    names = (head.id, head.scope.principal, head.scope.account, head.context_id)
    return (*names, head.created_at, *_task_state(task, head))


def _task_state(task: TaskChange, head: TaskHead) -> tuple[Any, ...]:
    binding = None if head.binding is None else encode_json(head.binding)
    return CODE_OF[head.state], head.status_at, head.sequence, binding, task.resume


def _count_tasks(statement: Statement, heads: list[TaskHead], *, has_known: bool) -> None:
    """Move the tally with the states, in the same statement, so that it is always exact."""
    gone = (
        "SELECT principal, account, state, -1 AS change FROM have_task WHERE is_changed UNION ALL "
        if has_known
        else ""
    )
    shard = statement.value(statement.writer.shard)
    statement.write_rows(
        "counted",
        "principal, account, state",
        [(head.scope.principal, head.scope.account, CODE_OF[head.state]) for head in heads],
        "INSERT INTO tally AS y (principal, account, state, shard, count) "
        f"SELECT principal, account, state, {shard}::smallint, sum(change) FROM ({gone}"
        f"SELECT x.principal, x.account, x.state, 1 AS change FROM {_ROWS}) d WHERE {_IF_OK} "
        "GROUP BY principal, account, state HAVING sum(change) <> 0 ORDER BY 1, 2, 3 "
        "ON CONFLICT (principal, account, state, shard) "
        "DO UPDATE SET count = y.count + excluded.count",
    )


def _write_content(statement: Statement, batch: Batch, sources: list[str]) -> None:
    """The events, snapshots and contents of tasks, whose numbers the sources have."""
    numbers = " UNION ALL ".join(f"SELECT id, number FROM {name}" for name in sources)
    source = f"{_ROWS} JOIN ({numbers}) n ON n.id = x.task WHERE {_IF_OK}"
    statement.write_rows(
        "new_event",
        "task, sequence, state, body",
        [(name, one.sequence, CODE_OF[one.state], one.body) for name, one in batch.events],
        "INSERT INTO event (task, sequence, state, body) "
        f"SELECT n.number, x.sequence, x.state, x.body FROM {source}",
    )
    statement.write_rows(
        "new_snapshot",
        "task, sequence, body",
        [(name, *one.snapshot) for name, one in batch.tasks.items() if one.snapshot is not None],
        "INSERT INTO snapshot (task, sequence, body) "
        f"SELECT n.number, x.sequence, x.body FROM {source} "
        "ON CONFLICT (task) DO UPDATE SET sequence = excluded.sequence, body = excluded.body",
    )
    statement.write_rows(
        "new_content",
        "task, hash, body",
        [(*key, body) for key, body in batch.contents.items()],
        "INSERT INTO content (task, hash, body) "
        f"SELECT n.number, x.hash, x.body FROM {source} ON CONFLICT DO NOTHING",
    )


def _write_runs(statement: Statement, batch: Batch) -> None:
    known = [(name, run) for name, run in batch.runs.items() if run.found is not None]
    statement.lock(
        "run",
        key="t.id = x.id AND t.fence = x.fence",
        columns="t.id, t.principal, t.account, t.message_id",
        given="id, fence",
        rows=[(name, run.found) for name, run in known],
    )
    statement.give_tickets(batch.accepted)
    statement.write_rows(
        "new_run",
        _RUN_COLUMNS,
        # A run that began and ended within the batch never gets a row.
        [
            _run_row(batch, run.new, run.attempt)
            for run in batch.runs.values()
            if run.new is not None and not run.is_ended
        ],
        # The time of the lease is of earlier versions: runs belong to their owner as long as it
        # lives.
        f"INSERT INTO run ({_RUN_COLUMNS}, ticket, lease_until) "
        f"SELECT {_RUN_COLUMNS}, k.number, 'infinity'::timestamptz "
        f"FROM {_ROWS} JOIN ticket k USING (id)",
    )
    statement.write_rows(
        "started_run",
        "id, attempt",
        [
            (name, run.attempt)
            for name, run in known
            if run.attempt is not None and not run.is_ended
        ],
        "UPDATE run t SET is_started = true, attempt = x.attempt "
        f"FROM {_ROWS} WHERE t.id = x.id AND {_IF_OK}",
    )
    _delete_by_id(statement, "run", [name for name, run in known if run.is_ended])


def _run_row(batch: Batch, run: RunRecord, attempt: int | None) -> tuple[Any, ...]:
    content = encode_json(RunInput(run.message, run.binding, run.options))
    content = batch.refer_to_contents(run.task_id, content)
    names = (run.id, run.task_id, run.context_id, run.scope.principal, run.scope.account)
    session = (run.session_key, run.message.message_id, run.owner, run.fence)
    is_started = run.is_started or attempt is not None
    state = (is_started, run.attempt if attempt is None else attempt, content, run.resume)
    return (*names, *session, *state, run.binding.agent_id)


def _delete_by_id(statement: Statement, table: str, names: Sequence[str]) -> None:
    if names:
        ids = statement.value(list(names))
        text = f"DELETE FROM {table} WHERE id = ANY ({ids}::text[]) AND {_IF_OK}"
        statement.write(f"deleted_{table}", text)


def _write_messages(statement: Statement, batch: Batch) -> None:
    statement.refuse("message", "principal, account, message_id", list(batch.new_messages))
    statement.write_rows(
        "new_message",
        _MESSAGE_COLUMNS,
        [
            (*key, sent.body_hash, sent.run.id, sent.run.task_id, sent.created_at, answer)
            for key, (sent, answer) in batch.new_messages.items()
        ],
        f"INSERT INTO message ({_MESSAGE_COLUMNS}) SELECT {_MESSAGE_COLUMNS} "
        f"FROM {_ROWS} WHERE {_IF_OK}",
    )
    statement.write_rows(
        "answered",
        "run, answer",
        list(batch.answers.items()),
        "UPDATE message t SET answer = x.answer "
        f"FROM {_ROWS} JOIN have_run r ON r.id = x.run WHERE t.principal = r.principal "
        "AND t.account = r.account AND t.message_id = r.message_id AND t.run = x.run "
        f"AND {_IF_OK}",
    )


def _write_deliveries(statement: Statement, batch: Batch) -> None:
    changes = batch.deliveries
    statement.lock(
        "delivery",
        key="t.id = x.id AND (x.body IS NULL OR t.body = x.body)",
        columns="t.id, t.kind",
        given="id, body",
        # Each delivery that must be there; its body only where that is the version.
        rows=[(name, one.body) for name, one in changes.items() if one.found == PRESENT],
    )
    columns = f"{_DELIVERY_COLUMNS}, owner"
    assigned = ", ".join(f"{one} = excluded.{one}" for one in columns.split(", ")[1:])
    statement.write_rows(
        "put_delivery",
        columns,
        [
            (*_delivery_row(one.row), one.owner or statement.writer.name)
            for one in changes.values()
            if one.row and one.is_put
        ],
        f"INSERT INTO delivery ({columns}) SELECT {columns} FROM {_ROWS} WHERE {_IF_OK} "
        f"ORDER BY id ON CONFLICT (id) DO UPDATE SET {assigned}",
    )
    # Not its kind, task and body: they are what it is.
    assigned = ", ".join(f"{one} = x.{one}" for one in _DELIVERY_COLUMNS.split(", ")[4:])
    statement.write_rows(
        "updated_delivery",
        _DELIVERY_COLUMNS,
        [_delivery_row(one.row) for one in changes.values() if one.row and not one.is_put],
        f"UPDATE delivery t SET {assigned} FROM {_ROWS} WHERE t.id = x.id AND {_IF_OK}",
    )
    _delete_by_id(statement, "delivery", [name for name, one in changes.items() if not one.row])


def _delivery_row(delivery: Delivery) -> tuple[Any, ...]:
    names = (delivery.id, delivery.kind, delivery.task_id, delivery.body, delivery.cursor)
    times = (delivery.next_at, delivery.created_at, delivery.updated_at)
    code = DELIVERY_CODE_OF[delivery.state]
    return (*names, *times, code, delivery.attempts, stored_reason(delivery.reason))


def _write_records(statement: Statement, batch: Batch) -> None:
    changes = batch.records
    statement.lock(
        "record",
        key=f"{_SAME_KIND_AND_ID} AND (x.version IS NULL OR t.version = x.version)",
        columns="t.kind, t.id",
        given="kind, id, version",
        rows=[
            (*key, None if one.found == PRESENT else one.found)
            for key, one in changes.items()
            if one.found >= 0 or one.found == PRESENT
        ],
    )
    absent = [key for key, one in changes.items() if one.found == ABSENT]
    statement.refuse("record", "kind, id", absent)
    _insert_records(statement, batch)
    statement.write_rows(
        "updated_record",
        _RECORD_COLUMNS,
        [_record_row(one.row) for one in changes.values() if one.row and not one.is_put],
        "UPDATE record t SET body = x.body, expires_at = x.expires_at, version = x.version "
        f"FROM {_ROWS} WHERE {_SAME_KIND_AND_ID} AND {_IF_OK}",
    )
    statement.write_rows(
        "deleted_record",
        "kind, id",
        [key for key, one in changes.items() if one.row is None and one.found != ABSENT],
        f"DELETE FROM record t USING {_ROWS} WHERE {_SAME_KIND_AND_ID} AND {_IF_OK}",
    )


def _insert_records(statement: Statement, batch: Batch) -> None:
    put = [
        (one.found, _record_row(one.row))
        for one in batch.records.values()
        if one.row and one.is_put
    ]
    # Numbered together, in their order: the inserts below run in any.
    statement.write_rows(
        "record_order",
        "kind, id",
        [row[:2] for _, row in put],
        f"SELECT x.kind, x.id, nextval('record_number') AS number FROM {_ROWS} WHERE {_IF_OK}",
    )
    insert = (
        f"INSERT INTO record ({_RECORD_COLUMNS}, number) SELECT {_RECORD_COLUMNS}, o.number "
        f"FROM {_ROWS} JOIN record_order o USING (kind, id)"
    )
    # A new one has no ON CONFLICT: where another writer was faster, the batch is decided again.
    new = [row for found, row in put if found == ABSENT]
    statement.write_rows("new_record", _RECORD_COLUMNS, new, insert)
    statement.write_rows(
        "put_record",
        _RECORD_COLUMNS,
        [row for found, row in put if found != ABSENT],
        f"{insert} ON CONFLICT (kind, id) DO UPDATE SET body = excluded.body, "
        "expires_at = excluded.expires_at, version = excluded.version, number = excluded.number",
    )


def _record_row(record: Record) -> tuple[Any, ...]:
    return record.kind, record.id, record.body, record.expires_at, record.version


def _write_logs(statement: Statement, batch: Batch) -> None:
    changes = batch.logs
    statement.lock(
        "log",
        key=f"{_SAME_KIND_AND_ID} AND (x.sequence IS NULL OR t.sequence = x.sequence)",
        columns="t.kind, t.id, t.number",
        given="kind, id, sequence",
        rows=[
            (*name, None if one.found == PRESENT else one.found)
            for name, one in changes.items()
            if one.found != 0
        ],
    )
    new = [
        (*name, one.sequence, one.closes, statement.writer.name)
        for name, one in changes.items()
        if one.found == 0
    ]
    statement.refuse("log", "kind, id", [row[:2] for row in new])
    statement.write_rows(
        "new_log",
        _LOG_COLUMNS,
        new,
        f"INSERT INTO log ({_LOG_COLUMNS}, updated_at) SELECT {_LOG_COLUMNS}, now() FROM {_ROWS} "
        f"WHERE {_IF_OK} RETURNING kind, id, number",
    )
    extended = [
        (*name, one.sequence, one.closes, one.reopens)
        for name, one in changes.items()
        if one.found > 0
    ]
    statement.write_rows(
        "extended_log",
        "kind, id, sequence, closes, reopens",
        extended,
        "UPDATE log t SET sequence = x.sequence, updated_at = now(), "
        "is_closed = x.closes OR (t.is_closed AND NOT x.reopens) "
        f"FROM {_ROWS} WHERE {_SAME_KIND_AND_ID} AND {_IF_OK}",
    )
    sources = [name for name, rows in (("new_log", new), ("have_log", extended)) if rows]
    _write_lines(statement, batch, sources)


def _write_lines(statement: Statement, batch: Batch, sources: list[str]) -> None:
    """The lines of logs, whose numbers the sources have; and the deletion of logs."""
    numbers = " UNION ALL ".join(f"SELECT kind, id, number FROM {name}" for name in sources)
    statement.write_rows(
        "new_line",
        "kind, id, sequence, body",
        [(*name, *line) for name, one in batch.logs.items() for line in one.lines],
        "INSERT INTO log_line (log, sequence, body) SELECT n.number, x.sequence, x.body "
        f"FROM {_ROWS} JOIN ({numbers}) n ON n.kind = x.kind AND n.id = x.id WHERE {_IF_OK}",
    )
    deleted = [name for name, one in batch.logs.items() if one.is_deleted]
    statement.write_rows(
        "deleted_line",
        "kind, id",
        deleted,
        f"DELETE FROM log_line l USING have_log t JOIN {_ROWS} ON {_SAME_KIND_AND_ID} "
        f"WHERE l.log = t.number AND {_IF_OK}",
    )
    statement.write_rows(
        "deleted_log",
        "kind, id",
        deleted,
        f"DELETE FROM log t USING {_ROWS} WHERE {_SAME_KIND_AND_ID} AND {_IF_OK}",
    )
