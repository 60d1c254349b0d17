"""Limits of requests while they are read and answered: time, bytes of bodies, lines in the log."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Protocol

import msgspec

from openclaw_a2a.engine.supervisor import Supervisor, TimeoutQueue
from openclaw_a2a.model.errors import BodyTooSlow, Overloaded
from openclaw_a2a.model.ids import LOCAL_PEER, Json, JsonObject

WRITE_TIMEOUT_S = 60.0
"""For servers without a write timeout. Our own disconnects such a client earlier
(`server.sendSeconds`, http/server_protocol.py).
"""

LARGE_BODY_BYTES = 64 * 1024
"""From this size on the bytes of a body are counted."""

_BODIES_RETRY_S = 5.0
_MOST_BURSTS = 4096
_COUNTED_MINUTES = 30
_COUNTED_CALLERS = 10_000


class Deadline:
    """One timeout for all running operations of a kind; each is awaited by its own task."""

    def __init__(
        self,
        seconds: float,
        make_error: Callable[[float], Exception],
        supervisor: Supervisor | None = None,
    ) -> None:
        self._make_error = make_error
        # By task: a task reads one body or writes one chunk at a time.
        self._timeouts = TimeoutQueue[asyncio.Task[object]](
            "request deadlines", seconds, self._cancel, supervisor or Supervisor()
        )
        self._expired: set[asyncio.Task[object]] = set()

    def start(self) -> "asyncio.Task[object] | None":
        """The current task begins an operation."""
        task = asyncio.current_task()
        if task is not None:
            self._timeouts.start(task)
        return task

    def stop(self, task: "asyncio.Task[object] | None") -> None:
        """End an operation, however it ended. Raises: the deadline's error, when it expired."""
        if task is None:
            return
        self._timeouts.pending.pop(task, None)
        # Called in a `finally`: the error raised here replaces our own CancelledError.
        if task in self._expired:
            self._expired.discard(task)
            # If another cancellation arrived besides ours, that one wins.
            if task.uncancel() == 0:
                raise self._make_error(self._timeouts.seconds)

    def _cancel(self, task: "asyncio.Task[object]") -> None:
        self._expired.add(task)
        task.cancel()


class _Burst(msgspec.Struct):
    ends_at: float
    write: Callable[..., None]
    kind: JsonObject
    count: int = 0


class RefusalCounts:
    """How many requests were answered with each error, and how many of each caller.

    By code in the last half an hour, by caller since the start. Codes are those of `GatewayError`,
    so they are few; of callers the first ten thousand are counted.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._minutes: deque[tuple[int, Counter[str]]] = deque(maxlen=_COUNTED_MINUTES)
        self.by_caller: Counter[str] = Counter()

    def count(self, code: str, caller: str | None) -> None:
        """Count a request; `caller` is None when it is not known."""
        minute = int(self._monotonic() // 60)
        if not self._minutes or self._minutes[-1][0] != minute:
            self._minutes.append((minute, Counter()))
        self._minutes[-1][1][code] += 1
        if caller is not None and (
            caller in self.by_caller or len(self.by_caller) < _COUNTED_CALLERS
        ):
            self.by_caller[caller] += 1

    def by_code(self) -> dict[str, int]:
        """The counts of the last half an hour, the largest first."""
        since = int(self._monotonic() // 60) - _COUNTED_MINUTES
        total: Counter[str] = Counter()
        for minute, counts in self._minutes:
            if minute > since:
                total += counts
        return dict(total.most_common())


class EventBursts:
    """Logs the first of many equal events at once, and after a minute how many more came.

    For events that unknown clients can cause without limit. At most `_MOST_BURSTS` kinds are
    counted separately; all others count as one kind.
    """

    def __init__(self, seconds: float = 60.0, *, supervisor: Supervisor | None = None) -> None:
        self._seconds = seconds
        # Insertion order is the order of their ends: every burst gets the same time.
        self._bursts: dict[tuple[Json, ...], _Burst] = {}
        self._timer = (supervisor or Supervisor()).timer("event counts", self._log_counts)
        self.refusals = RefusalCounts()
        """How often requests were answered with errors."""

    def report(
        self, write: Callable[..., None], event: str, kind: JsonObject, **fields: Json
    ) -> None:
        """Log or count an event; events of the same kind count together, whatever their fields."""
        key = (event, *kind.values())
        if key not in self._bursts and len(self._bursts) >= _MOST_BURSTS:
            kind = dict.fromkeys(kind, "others")
            key = (event, *kind.values())
        burst = self._bursts.get(key)
        if burst is not None:
            burst.count += 1
            return
        write(event, **(kind | fields))
        ends_at = asyncio.get_running_loop().time() + self._seconds
        self._bursts[key] = _Burst(ends_at, write, kind)
        self._timer.start(self._seconds)

    def _log_counts(self) -> float | None:
        now = asyncio.get_running_loop().time()
        for key, burst in list(self._bursts.items()):
            if burst.ends_at > now:
                break
            del self._bursts[key]
            if burst.count:
                burst.write(key[0], **burst.kind, count=burst.count, seconds=self._seconds)
        # Looked up now: writing a line may have reported another event.
        return min((burst.ends_at for burst in self._bursts.values()), default=None)


class BodySender(Protocol):
    """The request whose body is counted (`HttpRequest`)."""

    caller: str | None
    held_by: "RequestBodies | None"


class RequestBodies:
    """Limits the bodies of requests until they are decoded: their time and their total size.

    A client may leave many large bodies unfinished. So the bytes of large ones are counted as they
    arrive, in total and per caller. A caller may have a quarter of the total (`local`, which is
    then the only caller, all of it). Small bodies are not counted: connections are limited.
    """

    def __init__(
        self,
        seconds: float,
        max_bytes: int = 256 * 1024 * 1024,
        *,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.deadline = Deadline(
            seconds,
            lambda limit: BodyTooSlow(
                f"the request body did not arrive within {limit:g} seconds (server.bodySeconds);"
                " send it again",
                details={"seconds": limit, "setting": "server.bodySeconds"},
            ),
            supervisor,
        )
        self._max_bytes = max_bytes
        self._total = 0
        self._of_callers: dict[str, int] = {}
        self._of_requests: dict[BodySender, tuple[str, int]] = {}

    def hold(self, request: BodySender, size: int) -> None:
        """Report that `size` bytes of a body have arrived. Raises: Overloaded."""
        caller, before = self._of_requests.get(request, (request.caller or "", 0))
        others = self._total - before
        own_others = self._of_callers.get(caller, 0) - before
        share = self._max_bytes if caller == LOCAL_PEER else self._max_bytes // 4
        # One body is always possible, however large: maxBodyBytes limits it.
        is_over = own_others and own_others + size > share
        if is_over or (others and others + size > self._max_bytes):
            raise Overloaded(
                "too many large request bodies arrive at the same time; send fewer at once",
                retry_after_s=_BODIES_RETRY_S,
                setting="limits.bodiesBytes",
            )
        self._total = others + size
        self._of_callers[caller] = own_others + size
        self._of_requests[request] = caller, size
        request.held_by = self

    def release(self, request: BodySender) -> None:
        """The body of a request is decoded, or dropped."""
        request.held_by = None
        caller, size = self._of_requests.pop(request, ("", 0))
        self._total -= size
        left = self._of_callers.pop(caller, 0) - size
        if left > 0:
            self._of_callers[caller] = left


class ClientTooSlow(Exception):
    """A client stopped reading its response."""


def write_deadline(
    seconds: float = WRITE_TIMEOUT_S, supervisor: Supervisor | None = None
) -> Deadline:
    """How long a client may leave a chunk of a stream unread; past it: ClientTooSlow."""
    return Deadline(
        seconds, lambda limit: ClientTooSlow(f"the client read nothing for {limit:g} s"), supervisor
    )
