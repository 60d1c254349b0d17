"""A store between the engine and a real one: its writes can be held, lost or refused."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from tests.engine.controlled_agent import TIMEOUT_S
from tests.store.flat_store import FlatStore

from openclaw_a2a.model.errors import StoreUnavailable
from openclaw_a2a.model.ids import RunId, TaskId
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import (
    Accepted,
    Commit,
    Duplicate,
    Store,
    Submission,
)

Result = TypeVar("Result")
Write = tuple[str, Callable[[], Awaitable[Any]], "asyncio.Future[Any]"]


class ControlledStore(FlatStore):
    """Passes everything on, except for what the test wants otherwise.

    `hold` keeps writes back until `release`; `cut` is the moment of a crash: what was kept back,
    and whatever comes later, never happens and is never answered. `refuse` names the writes that
    fail.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.refused: frozenset[str] = frozenset()
        self.writes: list[str] = []
        """The writes that were let through, by name."""
        self.passing: set[asyncio.Future[Any]] = set()
        """Those of them that are not durable yet, and reads: a store may rest in between."""
        self.resting: dict[str, asyncio.Event] = {}
        """Reads, by name, that have read and go on when the event is set."""
        self._is_holding = False
        self._is_cut = False
        self._is_silent = False
        self._unanswered: list[tuple[asyncio.Future[Any], asyncio.Future[Any]]] = []
        self._held: deque[Write] = deque()
        self._arrival = asyncio.Event()

    # ---------------------------------------------------------------- what a test does

    def hold(self) -> None:
        """Keep writes back from now on."""
        self._is_holding = True

    def release(self) -> None:
        """Let everything through, from now on too."""
        self._is_holding = False
        while self._held:
            self._pass(self._held.popleft())

    async def let_through(self, count: int = 1) -> None:
        """Let so many writes through, each as soon as it is there; returns when they are done."""
        for _ in range(count):
            await self._wait_until(lambda: bool(self._held))
            await asyncio.wait([self._pass(self._held.popleft())])

    async def let_through_until(self, name: str) -> None:
        """Let writes through up to and including the next of this name."""
        while True:
            await self._wait_until(lambda: bool(self._held))
            is_last = self._held[0][0] == name
            await self.let_through()
            if is_last:
                return

    @property
    def held(self) -> list[str]:
        """The names of the writes that wait."""
        return [name for name, _, _ in self._held]

    async def wait_held(self, name: str) -> None:
        """Wait until a write of this name is kept back."""
        await self._wait_until(lambda: name in self.held)

    async def _wait_until(self, is_there: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not is_there():
                self._arrival.clear()
                await self._arrival.wait()

    def delay_answers(self) -> None:
        """From now on writes are made, and the engine does not hear of it."""
        self._is_silent = True

    async def wait_unanswered(self) -> None:
        """Wait until a write was made that the engine has not heard of."""
        await self._wait_until(lambda: bool(self._unanswered))

    def answer(self) -> None:
        """Let the engine hear of all that was written, from now on too."""
        self._is_silent = False
        delayed, self._unanswered = self._unanswered, []
        for done, future in delayed:
            self._answer(done, future)

    def cut(self) -> None:
        """The process is dead: nothing more reaches the store."""
        self._is_cut = True
        self._held.clear()

    def refuse(self, *names: str) -> None:
        """Fail these writes from now on, as a full disk would."""
        self.refused = frozenset(names)

    def refuse_held(self, name: str) -> None:
        """Fail the first write of this name that is kept back."""
        self.take_held(name).set_exception(
            StoreUnavailable(f"the disk is full; {name} was not written")
        )

    async def pass_held(self, name: str) -> None:
        """Let the first write of this name through that is kept back; returns when it is done."""
        await asyncio.wait([self._pass(self._find_held(name))])

    def take_held(self, name: str) -> "asyncio.Future[Any]":
        """Never make the first write of this name that is kept back; what its writer waits for."""
        return self._find_held(name)[2]

    def _find_held(self, name: str) -> Write:
        write = next(write for write in self._held if write[0] == name)
        self._held.remove(write)
        return write

    # ---------------------------------------------------------------- what an engine sees

    def _write(
        self, name: str, perform: Callable[[], Awaitable[Result]]
    ) -> "asyncio.Future[Result]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._is_cut:
            return future
        if name in self.refused:
            future.set_exception(StoreUnavailable(f"the disk is full; {name} was not written"))
            return future
        if self._is_holding:
            self._held.append((name, perform, future))
            self._arrival.set()
            return future
        return self._pass((name, perform, future))

    def _pass(self, write: Write) -> "asyncio.Future[Any]":
        name, perform, future = write
        self.writes.append(name)
        done = asyncio.ensure_future(perform())
        if done.done():
            self._answer(done, future)
        else:
            self.passing.add(done)
            done.add_done_callback(lambda done: self._answer(done, future))
        return future

    def _answer(self, done: "asyncio.Future[Any]", future: "asyncio.Future[Any]") -> None:
        self.passing.discard(done)
        if self._is_silent:
            self._unanswered.append((done, future))
            self._arrival.set()
            return
        if future.done() or self._is_cut or done.cancelled():
            return
        error = done.exception()
        if error is None:
            future.set_result(done.result())
        else:
            future.set_exception(error)

    def __getattr__(self, name: str) -> Any:
        """Everything else, reads above all: they pass, and count as long as they last."""
        found = super().__getattr__(name)
        if not callable(found):
            return found
        if not iscoroutinefunction(found):
            return lambda *args, **named: self._track(found(*args, **named))

        async def pass_on(*args: Any, **named: Any) -> Any:
            going = asyncio.get_running_loop().create_future()
            self.passing.add(going)
            try:
                result = await found(*args, **named)
                if name in self.resting:
                    await self.resting[name].wait()
                return result
            finally:
                self.passing.discard(going)
                going.set_result(None)

        return pass_on

    def _track(self, result: Any) -> Any:
        """Other writes, of records and deliveries, pass as well, and count until they are made."""
        if isinstance(result, asyncio.Future) and not result.done():
            self.passing.add(result)
            result.add_done_callback(self.passing.discard)
        return result

    def submit(self, submission: Submission) -> Awaitable[Accepted | Duplicate]:
        return self._write("submit", lambda: self.inner.tasks.submit(submission))

    def commit(self, change: Commit) -> "asyncio.Future[None]":
        return self._write("commit", lambda: self.inner.tasks.commit(change))

    def start_run(self, run_id: RunId, *, fence: int, attempt: int) -> Awaitable[None]:
        start = self.inner.tasks.start_run
        return self._write("start_run", lambda: start(run_id, fence=fence, attempt=attempt))

    def finish_run(self, run_id: RunId, *, fence: int, answer: bytes) -> Awaitable[None]:
        finish_run = self.inner.tasks.finish_run
        return self._write("finish_run", lambda: finish_run(run_id, fence=fence, answer=answer))

    def delete_task(self, scope: Scope, task_id: TaskId) -> Awaitable[bool]:
        return self._write("delete_task", lambda: self.inner.tasks.delete_task(scope, task_id))
