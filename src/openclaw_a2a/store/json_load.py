"""Reads the directory of a json-file store as the last process left it."""

import msgspec
import structlog

from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.store.json_files import JsonFiles
from openclaw_a2a.store.json_lines import decode_line, replay, standing_lines
from openclaw_a2a.store.json_record import BadRecord, file_name, parse_record, task_id_of
from openclaw_a2a.store.ledger import Ledger
from openclaw_a2a.store.records_folder import LOG_NAME, RecordsFolder

log = structlog.get_logger(__name__)


class Loaded(msgspec.Struct, frozen=True):
    """What the directory holds; `broken` says for a task why its record cannot be read."""

    ledger: Ledger
    broken: dict[TaskId, str]


def load_folder(folder: RecordsFolder, files: JsonFiles) -> Loaded:
    """Everything in the directory; what the last process had not finished is finished now."""
    loaded = Loaded(Ledger(), {})
    _load_records(folder, loaded)
    touched = _replay_log(folder, loaded.ledger)
    # A broken record stays as it is, for its owner to look at.
    loaded.ledger.forget(loaded.broken, None)
    for task_id in touched - loaded.broken.keys():
        files.put_row(task_id, loaded.ledger.tasks.get(task_id))
    files.save()
    files.compact(standing_lines(loaded.ledger))
    return loaded


def _load_records(folder: RecordsFolder, loaded: Loaded) -> None:
    for file in folder.record_files():
        try:
            content, modified_at = folder.read(file)
            row = parse_record(content, modified_at=modified_at)
            if file_name(row.head.id) != file.name:
                raise BadRecord(f"the file is not named for its task {row.head.id!r}")
        except (BadRecord, OSError) as error:
            log.warning("record-broken", file=str(file), reason=str(error))
            if (task_id := task_id_of(file.name)) is not None:
                loaded.broken[task_id] = f"{file}: {error}"
        else:
            loaded.ledger.put_task(row)


def _replay_log(folder: RecordsFolder, ledger: Ledger) -> set[TaskId]:
    """Let everything in the log happen again; the tasks it is about."""
    touched: set[TaskId] = set()
    for number, text in enumerate(folder.read_log().split(b"\n"), start=1):
        if not text:
            continue
        try:
            line = decode_line(text)
        except msgspec.DecodeError as error:
            # The last line of a process that died while writing it; it was never acknowledged.
            log.warning("log-line-ignored", file=LOG_NAME, line=number, reason=str(error))
            continue
        touched.update(replay(ledger, line))
    return touched
