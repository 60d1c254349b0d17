"""What one core can do: how fast can a Python server answer the bench loads at all?

APP=bare     parse the body, keep a task in a dict, answer (no task machinery)
APP=engine   a task engine with the visible semantics of a full server: every event is journaled
             before a subscriber sees it, the task is kept incrementally, its snapshot is written
             once at the end, GetTask and streams work
JOURNAL=none | <SQLite file>   SYNC=NORMAL | FULL   (APP=engine)

Run: python ceiling.py PORT
This is a measuring stick, not a gateway: no identity, no limits, no rules, no cancel.
"""

import asyncio
import os
import queue
import sqlite3
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
import uvicorn

encoder = msgspec.json.Encoder()


class Record(msgspec.Struct, rename="camel", omit_defaults=True):
    pass


class Part(Record):
    text: str | None = None


class Message(Record):
    message_id: str
    role: str
    parts: list[Part]
    context_id: str | None = None
    task_id: str | None = None


class Params(Record):
    message: Message | None = None
    id: str | None = None
    history_length: int | None = None


class Call(msgspec.Struct):
    method: str
    jsonrpc: str = "2.0"
    id: str | int | None = None
    params: Params = msgspec.field(default_factory=Params)


class Status(Record):
    state: str
    timestamp: str | None = None
    message: Message | None = None


class Artifact(Record):
    artifact_id: str
    parts: list[Part]


class Task(Record):
    id: str
    context_id: str
    status: Status
    artifacts: list[Artifact] = []
    history: list[Message] = []


class StatusUpdate(Record):
    task_id: str
    context_id: str
    status: Status


class ArtifactUpdate(Record):
    task_id: str
    context_id: str
    artifact: Artifact
    append: bool = False
    last_chunk: bool = False


decoder = msgspec.json.Decoder(Call)


def new_id() -> str:
    text = os.urandom(16).hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def stamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def result_of(call: Call, result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":' + encoder.encode(call.id) + b',"result":' + result + b"}"


async def read_body(receive) -> bytes:
    event = await receive()
    if not event.get("more_body"):
        return event["body"]
    pieces = [event["body"]]
    while event.get("more_body"):
        event = await receive()
        pieces.append(event["body"])
    return b"".join(pieces)


async def reply(send, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Bare:
    """No task machinery at all."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}

    async def __call__(self, scope, receive, send) -> None:
        call = decoder.decode(await read_body(receive))
        if call.method == "GetTask":
            await reply(send, result_of(call, encoder.encode(self.tasks[call.params.id])))
            return
        message = call.params.message
        status = Status("TASK_STATE_COMPLETED", stamp())
        artifacts = [Artifact("a", message.parts)]
        task = Task(new_id(), message.context_id or new_id(), status, artifacts, [message])
        self.tasks[task.id] = task
        await reply(send, result_of(call, b'{"task":' + encoder.encode(task) + b"}"))


Row = tuple[str, int, bytes, bytes | None]


class Journal:
    """An append-only journal with group commit in one writer thread."""

    def __init__(self, path: str, synchronous: str, loop: asyncio.AbstractEventLoop):
        self.loop = loop
        self.waiting: queue.SimpleQueue[tuple[Row, Callable[[], None]]] = queue.SimpleQueue()
        threading.Thread(target=self._write, args=(path, synchronous), daemon=True).start()

    def append(self, row: Row, when_durable: Callable[[], None]) -> None:
        self.waiting.put((row, when_durable))

    def _write(self, path: str, synchronous: str) -> None:
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute(f"PRAGMA synchronous={synchronous}")
        db.execute(
            "CREATE TABLE IF NOT EXISTS event(task TEXT, sequence INT, body BLOB,"
            " PRIMARY KEY(task, sequence)) WITHOUT ROWID"
        )
        db.execute("CREATE TABLE IF NOT EXISTS task(id TEXT PRIMARY KEY, body BLOB) WITHOUT ROWID")
        while True:
            batch = self._next_batch()
            events, snapshots = [], []
            for (task_id, sequence, body, snapshot), _ in batch:
                events.append((task_id, sequence, body))
                if snapshot is not None:
                    snapshots.append((task_id, snapshot))
            db.execute("BEGIN IMMEDIATE")
            db.executemany("INSERT INTO event VALUES(?,?,?)", events)
            if snapshots:
                db.executemany("INSERT OR REPLACE INTO task VALUES(?,?)", snapshots)
            db.execute("COMMIT")
            self.loop.call_soon_threadsafe(self._tell, [told for _, told in batch])

    def _next_batch(self) -> list[tuple[Row, Callable[[], None]]]:
        batch = [self.waiting.get()]
        try:
            while len(batch) < 512:
                batch.append(self.waiting.get_nowait())
        except queue.Empty:
            pass
        return batch

    @staticmethod
    def _tell(callbacks: list[Callable[[], None]]) -> None:
        for callback in callbacks:
            callback()


class Reader:
    """Somebody who follows a task; None is the end."""

    __slots__ = ("items", "wakeup")

    def __init__(self) -> None:
        self.items: list[bytes | None] = []
        self.wakeup: asyncio.Future | None = None

    def push(self, item: bytes | None) -> None:
        self.items.append(item)
        if self.wakeup is not None and not self.wakeup.done():
            self.wakeup.set_result(None)

    async def take(self) -> list[bytes | None]:
        if not self.items:
            self.wakeup = asyncio.get_running_loop().create_future()
            await self.wakeup
            self.wakeup = None
        taken, self.items = self.items, []
        return taken


class Run:
    """One live task: incremental state, journaled events, readers."""

    def __init__(self, engine: "Engine", message: Message) -> None:
        status = Status("TASK_STATE_SUBMITTED", stamp())
        task_id, context_id = message.task_id or new_id(), message.context_id or new_id()
        self.engine = engine
        self.task = Task(task_id, context_id, status, [], [message])
        self.sequence = 0
        self.readers: list[Reader] = []
        self.artifacts: dict[str, Artifact] = {}
        self.snapshot = b""
        self.ended = asyncio.get_running_loop().create_future()

    def emit_task(self) -> None:
        self._append(b'{"task":' + encoder.encode(self.task) + b"}")

    def emit_status(self, state: str, message: Message | None = None) -> None:
        task = self.task
        if task.status.message:
            task.history.append(task.status.message)
        task.status = Status(state, stamp(), message)
        update = StatusUpdate(task.id, task.context_id, task.status)
        is_last = state == "TASK_STATE_COMPLETED"
        body = b'{"statusUpdate":' + encoder.encode(update) + b"}"
        self._append(body, encoder.encode(task) if is_last else None)

    def emit_text(self, text: str, *, append: bool, last_chunk: bool) -> None:
        task, piece = self.task, Artifact("a", [Part(text)])
        if append:
            self.artifacts["a"].parts.extend(piece.parts)
        else:
            self.artifacts["a"] = Artifact("a", list(piece.parts))
            task.artifacts.append(self.artifacts["a"])
        update = ArtifactUpdate(task.id, task.context_id, piece, append, last_chunk)
        self._append(b'{"artifactUpdate":' + encoder.encode(update) + b"}")

    def _append(self, body: bytes, snapshot: bytes | None = None) -> None:
        sequence = self.sequence
        self.sequence += 1
        if self.engine.journal:
            row = (self.task.id, sequence, body, snapshot)
            self.engine.journal.append(row, lambda: self._show(body, snapshot))
        else:
            self._show(body, snapshot)

    def _show(self, body: bytes, snapshot: bytes | None) -> None:
        for reader in self.readers:
            reader.push(body)
        if snapshot is not None:
            self.snapshot = self.engine.tasks[self.task.id] = snapshot
            for reader in self.readers:
                reader.push(None)
            self.ended.set_result(None)


async def answer(run: Run) -> None:
    """The bench agent."""
    text = run.task.history[0].parts[0].text or ""
    kind, *rest = text.split(":")
    run.emit_task()
    run.emit_status("TASK_STATE_WORKING")
    if kind == "chunks":
        count, piece = int(rest[0]), "x" * int(rest[1])
        for i in range(count):
            run.emit_text(piece, append=i > 0, last_chunk=i == count - 1)
            await asyncio.sleep(0)
    elif kind == "hist":
        for i in range(int(rest[0])):
            note = Message(new_id(), "ROLE_AGENT", [Part(f"step {i}")], run.task.context_id)
            run.emit_status("TASK_STATE_WORKING", note)
            await asyncio.sleep(0)
    elif kind == "hold":
        await asyncio.sleep(float(rest[0]))
    else:
        run.emit_text(text, append=False, last_chunk=True)
    run.emit_status("TASK_STATE_COMPLETED")


class Engine:
    """Journaled tasks with streams."""

    def __init__(self, path: str, synchronous: str) -> None:
        self.tasks: dict[str, bytes] = {}
        self.journal: Journal | None = None
        self.path, self.synchronous = path, synchronous
        self.live: set[asyncio.Task] = set()

    async def __call__(self, scope, receive, send) -> None:
        if self.path != "none" and self.journal is None:
            loop = asyncio.get_running_loop()
            self.journal = Journal(self.path, self.synchronous, loop)
        call = decoder.decode(await read_body(receive))
        if call.method == "GetTask":
            await reply(send, result_of(call, self.tasks[call.params.id]))
        elif call.method == "SendMessage":
            run = self._start(call, None)
            await run.ended
            await reply(send, result_of(call, b'{"task":' + run.snapshot + b"}"))
        else:
            reader = Reader()
            self._start(call, reader)
            await self._stream(call, reader, send)

    def _start(self, call: Call, reader: Reader | None) -> Run:
        run = Run(self, call.params.message)
        if reader:
            run.readers.append(reader)
        job = asyncio.get_running_loop().create_task(answer(run))
        self.live.add(job)
        job.add_done_callback(self.live.discard)
        return run

    @staticmethod
    async def _stream(call: Call, reader: Reader, send) -> None:
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        prefix = b'data: {"jsonrpc":"2.0","id":' + encoder.encode(call.id) + b',"result":'
        is_open = True
        while is_open:
            items = await reader.take()
            is_open = items[-1] is not None
            frames = b"".join([prefix + item + b"}\n\n" for item in items if item is not None])
            await send({"type": "http.response.body", "body": frames, "more_body": is_open})


def main() -> None:
    environ = os.environ
    engine = Engine(environ.get("JOURNAL", "none"), environ.get("SYNC", "NORMAL"))
    app = engine if environ.get("APP", "bare") == "engine" else Bare()
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        log_level="warning",
        access_log=False,
        lifespan="off",
    )


if __name__ == "__main__":
    main()
