"""Live updates: pages that are open are made again when a task changed, and sent if they differ.

Every event is the whole live part of a page, so a browser that was away needs nothing but the
newest one: its `Last-Event-ID` is a hash of the part it has, and it gets another only if that
differs.

One loop makes the parts of all open pages. Readers of the same page share one, and its frame. After
each round the loop pauses for at least 250 ms, and for so long that making and writing parts takes
no more than a fortieth of the time for which the gateway has a core. While no page is open there
is no loop, and the journal notifies no observer.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Collection, Generator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.http.asgi import error_body
from openclaw_a2a.http.sse_stream import EventStream, StreamEvent, encode_frame
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import TaskId

log = get_logger(__name__)

_Made = TypeVar("_Made")

PAUSE_S = 0.25
_BUSY_PART = 80
"""Of this thread: the threads that read for it take about as much again."""
_MAX_WRITE_S = 0.005
"""What writing to one reader counts for at most: the rest is others' time, while it is slow."""
_SCHEDULE = Path("/proc/thread-self/schedstat")
REFRESH_S = 5.0
"""What does not come from tasks (agents, deliveries) is looked at so often."""


class PageKey(NamedTuple):
    """What readers share: the address of a page, for whom, and in which form."""

    address: str
    may_act: bool
    as_json: bool = False
    task_id: TaskId | None = None
    """The one task that the page is about; None: any change may change it."""


MakePart = Callable[[PageKey], Awaitable[bytes]]


def part_version(part: bytes) -> int:
    """The number of an event that holds this part: short enough for every JavaScript number."""
    return int.from_bytes(hashlib.blake2b(part, digest_size=6).digest())


class _Metered(Generic[_Made]):
    """Awaits an awaitable and measures the CPU time it took in this thread.

    What ran in between is not counted.
    """

    def __init__(self, work: Awaitable[_Made]) -> None:
        self._work = work
        self.spent_s = 0.0

    def __await__(self) -> Generator[Any, Any, _Made]:
        steps = self._work.__await__()
        resume: Callable[[], Any] = partial(next, steps)
        while True:
            started = time.thread_time()
            try:
                awaited = resume()
            except StopIteration as end:
                return end.value
            finally:
                self.spent_s += time.thread_time() - started
            try:
                yield awaited
                resume = partial(next, steps)
            except BaseException as error:  # cancelled: passed on to the work
                resume = partial(steps.throw, error)


def _read_delay_s() -> float:
    """How long this thread was ready to run and had no core; 0 where the system does not say."""
    try:
        return int(_SCHEDULE.read_bytes().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


async def _wait_set(event: asyncio.Event, wait_s: float) -> None:
    """Wait until the event is set; it is set when the time is over."""
    timer = asyncio.get_running_loop().call_later(wait_s, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()


class _Event(NamedTuple):
    sequence: int
    body: bytes


class _Channel:
    """The newest part of one page, and its readers."""

    def __init__(self) -> None:
        self.event: _Event | None = None
        self.made_at = float("-inf")
        self.readers: set[PageSubscription] = set()


class LivePages:
    """The open pages. `make_part` makes the live part of one."""

    def __init__(
        self, engines: Collection[Engine], make_part: MakePart, supervisor: Supervisor
    ) -> None:
        self._engines = engines
        self._make_part = make_part
        self._supervisor = supervisor
        self._channels: dict[PageKey, _Channel] = {}
        self._changed: set[TaskId] = set()
        self._wake = asyncio.Event()
        self._is_running = False
        self._spent_s = 0.0

    def __len__(self) -> int:
        return len(self._channels)

    def open(self, key: PageKey, *, seen: int | None) -> EventStream:
        """A stream of the parts of a page that differ from the one that was seen."""
        return EventStream(None, 0, PageSubscription(self, key, seen))

    def add(self, key: PageKey, reader: "PageSubscription") -> _Channel:
        """A reader waits for the page; the first one of all starts the loop."""
        if not self._channels:
            for engine in self._engines:
                engine.wakeups.observers.add(self._observe)
        channel = self._channels.setdefault(key, _Channel())
        channel.readers.add(reader)
        # The loop may still be in its pause, started for readers that have left since.
        if not self._is_running:
            self._is_running = True
            self._supervisor.spawn("dashboard-live", self._run())
        self._wake.set()
        return channel

    def remove(self, key: PageKey, reader: "PageSubscription") -> None:
        """Remove a reader; a page without readers is no longer made."""
        channel = self._channels.get(key)
        if channel is not None:
            channel.readers.discard(reader)
            if not channel.readers:
                del self._channels[key]
        if not self._channels:
            for engine in self._engines:
                engine.wakeups.observers.discard(self._observe)
            self._wake.set()

    def refresh(self) -> None:
        """Have all open pages made again, after a change to something other than a task."""
        for channel in self._channels.values():
            channel.made_at = float("-inf")
        self._wake.set()

    def _observe(self, task_id: TaskId) -> None:
        # Called after every commit, so it only adds to a set; the first change after a round also
        # wakes the loop.
        if not self._changed:
            self._wake.set()
        self._changed.add(task_id)

    async def _run(self) -> None:
        try:
            while self._channels:
                self._wake.clear()
                changed, self._changed = self._changed, set()
                for key, channel in list(self._channels.items()):
                    if self._is_due(key, channel, changed):
                        refresh = _Metered(self._refresh(key, channel))
                        await refresh
                        self._spent_s += refresh.spent_s
                await self._rest()
                await _wait_set(self._wake, REFRESH_S)
        finally:
            # Nothing is awaited from the check of the channels to here: a reader that comes now
            # starts the loop again.
            self._is_running = False

    async def _rest(self) -> None:
        """Leave the core to others for 79 times what the round has taken.

        Time for which the thread had no core does not count: on a machine that is busy with other
        work, pages would take more than their part of what is left for the gateway.
        """
        rested = 0.0
        while True:
            # Readers write during the first pause, and add what that took.
            started, delay = time.monotonic(), _read_delay_s()
            await asyncio.sleep(max(PAUSE_S, (_BUSY_PART - 1) * self._spent_s - rested))
            rested += time.monotonic() - started - (_read_delay_s() - delay)
            if rested >= (_BUSY_PART - 1) * self._spent_s or not self._channels:
                break
        self._spent_s = 0.0

    def note_written(self, seconds: float) -> None:
        """A reader has written a part; it took so much CPU."""
        self._spent_s += min(seconds, _MAX_WRITE_S)

    def _is_due(self, key: PageKey, channel: _Channel, changed: set[TaskId]) -> bool:
        if channel.event is None or time.monotonic() - channel.made_at >= REFRESH_S:
            return True
        return bool(changed) if key.task_id is None else key.task_id in changed

    async def _refresh(self, key: PageKey, channel: _Channel) -> None:
        channel.made_at = time.monotonic()
        try:
            part = await self._make_part(key)
        except GatewayError as error:
            part = error_body(error, show_faults=True)
            if not key.as_json:
                # Not sent to a page, which shows what it has: its next load says what is wrong.
                return
        except Exception:  # one page that cannot be made must not stop the others
            log.exception("dashboard.page_failed", page=key.address[:200])
            return
        version = part_version(part)
        if channel.event is None or channel.event.sequence != version:
            channel.event = _Event(version, part)
            for reader in channel.readers:
                reader.wake()


class PageSubscription:
    """Reads the parts of a page, the newest one only: a slow reader does not need the others."""

    def __init__(self, pages: LivePages, key: PageKey, seen: int | None) -> None:
        self._pages = pages
        self._key = key
        self._seen = seen
        self._woken = asyncio.Event()
        self._channel = pages.add(key, self)
        self._taken_at: float | None = None
        self.is_over = False

    def wake(self) -> None:
        """There is another part."""
        self._woken.set()

    def stop(self) -> None:
        """The reader is gone."""
        self.is_over = True
        self._pages.remove(self._key, self)
        self._woken.set()

    async def next_events(self, wait_s: float) -> Sequence[StreamEvent]:
        """The newest part, if it is not the one that was seen last."""
        if self._taken_at is not None:
            self._pages.note_written(time.thread_time() - self._taken_at)
            self._taken_at = None
        if not self._has_news():
            self._woken.clear()
            await _wait_set(self._woken, wait_s)
        event = self._channel.event
        if self.is_over or event is None or not self._has_news():
            return ()
        self._seen, self._taken_at = event.sequence, time.thread_time()
        return (event,)

    def _has_news(self) -> bool:
        event = self._channel.event
        return event is not None and event.sequence != self._seen


@lru_cache(maxsize=16)
def _encode_part(sequence: int, body: bytes) -> bytes:
    """The frame of a part, which its readers share."""
    return encode_frame(_encode_lines(body), sequence=sequence)


def _encode_lines(body: bytes) -> bytes:
    return body.replace(b"\r", b"").replace(b"\n", b"\ndata: ")


class PartFrames:
    """Writes parts as server-sent events: HTML has lines, and each is a line of data."""

    def frames(self, events: Sequence[StreamEvent], last: int | None) -> bytes:
        """Events as frames."""
        return b"".join([_encode_part(one.sequence, one.body) for one in events])

    def encode_body(self, body: bytes, *, is_last: bool) -> bytes:
        """The lines of a part."""
        return _encode_lines(body)

    def around_frame(self, sequence: int) -> tuple[bytes, bytes]:
        """What comes before and after a large part."""
        return b"id: %d\ndata: " % sequence, b"\n\n"

    def error_frame(self, error: GatewayError) -> bytes:
        """The end of a stream that is not a usual one."""
        return encode_frame(error_body(error, show_faults=True), event=b"error")

    def streams_early_error(self, error: GatewayError) -> bool:
        """Errors before the first event are plain responses."""
        return False
