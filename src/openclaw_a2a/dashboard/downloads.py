"""Content of tasks that is fetched by itself: files of messages, and the journal of a task."""

from openclaw_a2a.dashboard.requests import Download, PageRequest
from openclaw_a2a.dashboard.task_page import IMAGES, TaskDetailsReader, file_parts
from openclaw_a2a.engine.tasks.queries import task_json
from openclaw_a2a.model.errors import BodyTooLarge, RouteNotFound
from openclaw_a2a.model.file_content import clean_filename
from openclaw_a2a.model.records import decode_task

_PAGE = 1000
_MAX_BYTES = 64 * 1024 * 1024


class TaskDownloads:
    """Reads files and journals."""

    def __init__(self, tasks: TaskDetailsReader) -> None:
        self._tasks = tasks

    async def read_file(self, request: PageRequest) -> Download:
        """The bytes of a file in a message or artifact. Raises: TaskNotFound, RouteNotFound."""
        task_id, wanted = request.segments
        _, stored = await self._tasks.read_stored(task_id)
        for name, part in file_parts(decode_task(task_json(stored))):
            if name == wanted and part.raw is not None:
                declared = (part.media_type or "").partition(";")[0].strip().lower()
                # Nothing but pictures has a type of its own: a browser saves the rest.
                media_type = declared if declared in IMAGES else "application/octet-stream"
                filename = clean_filename(part.filename or "") or f"{task_id[:8]}-{name}"
                return Download(part.content, media_type, filename)
        raise RouteNotFound(f"task {task_id[:80]} has no file {wanted[:80]}")

    async def read_journal(self, request: PageRequest) -> Download:
        """Every event of a task, one JSON object in a line. Raises: TaskNotFound, BodyTooLarge."""
        engine, head, _ = await self._tasks.find(request.segments[0])
        lines: list[bytes] = []
        after = size = 0
        while entries := await engine.store.tasks.read_events(
            None, head.id, after=after, limit=_PAGE, max_bytes=_MAX_BYTES
        ):
            lines += [b'{"sequence":%d,"event":%b}\n' % (one.sequence, one.body) for one in entries]
            after, size = entries[-1].sequence, size + sum(len(one.body) for one in entries)
            if size > _MAX_BYTES:
                raise BodyTooLarge(
                    f"the events of task {head.id} are larger than {_MAX_BYTES} bytes; read them"
                    f" with `openclaw-a2a tasks watch {head.id} --json`"
                )
        return Download(b"".join(lines), "application/jsonl", f"{head.id}.jsonl")
