"""Base class for adapters that run a program per request, such as command-line coding agents."""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from openclaw_a2a.agents.adapter import AgentAdapter, CancelledByAdapter, closing
from openclaw_a2a.agents.concurrency import SlotQueue, queue_for
from openclaw_a2a.agents.process.child import (
    ChildProcess,
    LimitedProcess,
    ProcessLimits,
    ProcessSpec,
    expand_directory,
    start_process,
)
from openclaw_a2a.agents.process.tree import end_orphans
from openclaw_a2a.engine.engine import new_id
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import Json, JsonObject, RunId
from openclaw_a2a.settings import write_private_file

log = get_logger(__name__)

MAX_OUTPUT_BYTES = 128 * 1024 * 1024
"""What a program may write for one request."""

_GRACE_S = 2.0
"""Time between SIGTERM and SIGKILL."""

_NO_CONTEXT = "default"
# Cancelled tasks whose request has not come; most never will.
_MAX_REMEMBERED = 1000


class ProgramAdapter(AgentAdapter):
    """Answers with what a program writes.

    The program gets the gateway's environment plus `env_vars`, and no standard input. It has
    `timeout` seconds (when it streams: for each line). Requests of one conversation run one at a
    time, those of different conversations in parallel. When a request ends, every process that the
    program started is killed. Subclasses define the program and read its output.
    """

    def __init__(
        self,
        working_dir: str = "",
        timeout: float = 600,
        env_vars: Mapping[str, str] | None = None,
        session_store_path: str = "",
    ) -> None:
        self.working_dir = working_dir
        self.timeout = timeout
        self.env_vars = dict(env_vars or {})
        self.sessions = SessionStore(session_store_path)
        self._requests = ProgramRequestQueue()

    # ---------------------------------------------------------------- what a subclass implements

    @abstractmethod
    def build_command(self, message: str, context_key: str) -> tuple[Sequence[str], bool]:
        """The program with its arguments, and whether it resumes a session.

        `self.sessions.get(context_key)` is the session to resume.
        """

    @abstractmethod
    def parse_output(self, stdout: str, context_key: str) -> tuple[str, str | None]:
        """The answer, and the session to resume next time."""

    def parse_stream_line(self, line: str) -> JsonObject | None:
        """The content of a line: any of `text`, `session_id` and `error`; None: nothing.

        A subclass that overrides it streams.
        """
        del line

    def binary_not_found_message(self) -> str:
        """The error message when there is no such program."""
        return "The program was not found; install it, or correct its path."

    # ---------------------------------------------------------------- the adapter interface

    def supports_streaming(self) -> bool:
        """True when `parse_stream_line` was overridden."""
        return type(self).parse_stream_line is not ProgramAdapter.parse_stream_line

    async def invoke(self, user_input: str, context_id: str | None = None, **kwargs: Json) -> str:
        """Run the program and answer with its output.

        Raises: CancelledByAdapter, AgentUnavailable (it cannot be started), AgentFailed.
        """
        async with self._requests.slot(context_id, kwargs.get("context")) as request:
            while True:  # at most twice: the second try resumes no session
                try:
                    return await self._answer(user_input, request)
                except _StaleSession:
                    self._drop_session(request)

    async def stream(
        self, user_input: str, context_id: str | None = None, **kwargs: Json
    ) -> AsyncIterator[str]:
        """Run the program and yield the text of its lines.

        Raises: CancelledByAdapter, AgentUnavailable (it cannot be started), AgentFailed.
        """
        async with self._requests.slot(context_id, kwargs.get("context")) as request:
            while True:  # at most twice: the second try resumes no session
                try:
                    async with closing(self._stream_texts(user_input, request)) as texts:
                        async for text in texts:
                            yield text
                except _StaleSession:
                    self._drop_session(request)
                else:
                    return

    async def cancel(self, context_id: str | None = None, **kwargs: Json) -> None:
        """End the program of a request; a request that has not begun is marked as cancelled."""
        await self._requests.cancel(context_id, kwargs.get("context"))

    async def close(self) -> None:
        """End every program that still runs."""
        await self._requests.cancel_all()

    async def end_orphans(self, run_id: RunId) -> None:
        """End the program that an earlier process of this server left running for a run."""
        await end_orphans(run_id, grace_s=_GRACE_S)

    # ---------------------------------------------------------------- one run of the program

    async def _answer(self, message: str, request: "ProgramRequest") -> str:
        async with self._start(message, request) as process:
            output = (await process.read_all()).decode("utf-8", "replace")
            await request.check_exit(process, is_silent=not output.strip())
        program = process.limits.program
        if not output.strip():
            raise AgentFailed(f"{program} wrote nothing; its log may say why.")
        text, session_id = self.parse_output(output, request.context_key)
        self.sessions.keep(request.context_key, session_id)
        if not text.strip():
            raise AgentFailed(f"{program} gave no answer in what it wrote.")
        return text

    async def _stream_texts(self, message: str, request: "ProgramRequest") -> AsyncIterator[str]:
        has_answered, is_silent = False, True
        async with self._start(message, request) as process:
            program = process.limits.program
            async with closing(_read_lines(process, request)) as lines:
                async for line in lines:
                    is_silent = is_silent and not line.strip()
                    content = self.parse_stream_line(line) or {}
                    self.sessions.keep(request.context_key, content.get("session_id"))
                    if error := content.get("error"):
                        raise AgentFailed(f"{program} failed: {error}")
                    if text := content.get("text"):
                        has_answered = True
                        yield str(text)
            await request.check_exit(process, is_silent=is_silent)
        if not has_answered:
            raise AgentFailed(f"{program} ended without an answer.")

    @asynccontextmanager
    async def _start(
        self, message: str, request: "ProgramRequest"
    ) -> AsyncGenerator[LimitedProcess]:
        """The running program; nothing of it is left afterwards."""
        arguments, is_resuming = self.build_command(message, request.context_key)
        spec = ProcessSpec(
            argv=tuple(arguments),
            variables=self.env_vars,
            cwd=expand_directory(self.working_dir),
            output_grace_s=_GRACE_S,
            run_name=request.run_name,
            not_found=self.binary_not_found_message(),
        )
        request.may_retry = is_resuming and not request.is_second_try
        # No await between the check and the child: `cancel` sees either no start or the child.
        request.check()
        request.child = start_process(spec)
        limits = ProcessLimits(spec.program, self.timeout, MAX_OUTPUT_BYTES)
        try:
            yield LimitedProcess(request.child, limits)
        finally:
            # `end` is shielded inside, so `child` is only forgotten when nothing of it runs.
            await request.end()
            request.child = None

    def _drop_session(self, request: "ProgramRequest") -> None:
        request.is_second_try = True
        self.sessions.forget(request.context_key)


async def _read_lines(process: LimitedProcess, request: "ProgramRequest") -> AsyncIterator[str]:
    """What a program writes, line by line, each with a timeout of its own."""
    rest: list[bytes] = []
    while piece := await process.read():
        *ended, begun = piece.split(b"\n")
        for line in ended:
            yield b"".join([*rest, line]).decode("utf-8", "replace")
            rest = []
            process.restart_timeout()
        rest.append(begun)
    request.check()  # a program that we ended may have left half a line
    if last := b"".join(rest):
        yield last.decode("utf-8", "replace")


class _StaleSession(Exception):
    """The program did not resume its session and gave no reason."""


class ProgramRequest:
    """One request: its conversation, its program, and whether it was cancelled."""

    def __init__(self, task_id: str, context_key: str, run_name: str) -> None:
        self.task_id = task_id
        self.context_key = context_key
        self.run_name = run_name
        self.is_cancelled = False
        self.is_second_try = False
        self.may_retry = False
        """True while the program resumes a session that may turn out to be stale."""
        self.child: ChildProcess | None = None

    def check(self) -> None:
        """Raises: CancelledByAdapter."""
        if self.is_cancelled:
            raise CancelledByAdapter(f"task {self.task_id} was cancelled")

    async def check_exit(self, process: LimitedProcess, *, is_silent: bool) -> None:
        """Wait for the program's end; `is_silent` when it wrote nothing.

        Raises: CancelledByAdapter (we ended it), _StaleSession, AgentFailed (it failed).
        """
        exit_code = await process.exit_code()
        self.check()
        if exit_code == 0:
            return
        # A program that will not resume its session typically says nothing at all.
        if exit_code > 0 and self.may_retry and is_silent and not process.child.error_tail():
            raise _StaleSession
        raise process.failure(exit_code)

    async def end(self) -> None:
        """End the program and everything it started; nothing of it runs afterwards."""
        if self.child is not None:
            await self.child.kill_tree(grace_s=_GRACE_S)


class ProgramRequestQueue:
    """The requests that wait or run: one at a time in each conversation, all can be cancelled."""

    def __init__(self) -> None:
        self._requests: dict[str, ProgramRequest] = {}
        self._cancelled: dict[str, None] = {}
        """Tasks that were cancelled before their request came, the oldest first."""

    @asynccontextmanager
    async def slot(self, context_id: str | None, context: Json) -> AsyncGenerator[ProgramRequest]:
        """The request, when it may run. Raises: CancelledByAdapter."""
        task_id = _task_id(context) or new_id()
        turn: Json = getattr(context, "turn", None)
        run_name = str(turn.run_id) if turn is not None else task_id
        request = ProgramRequest(task_id, _context_key(context_id, context), run_name)
        # `cancel` may arrive before the request does: it runs in a task of its own.
        request.is_cancelled = task_id in self._cancelled
        self._cancelled.pop(task_id, None)
        # Before the wait for the slot: a queued request can be cancelled, too.
        self._requests[task_id] = request
        try:
            # One queue per adapter and conversation. Queues are shared by name in the event loop,
            # hence `id(self)`; the new queue is used only when none with this name is in use.
            async with queue_for(f"{id(self)} {request.context_key}", SlotQueue()).slot():
                request.check()  # it may have been cancelled while it waited
                yield request
        finally:
            self._requests.pop(task_id, None)

    async def cancel(self, context_id: str | None, context: Json) -> None:
        """Cancel one request; without a context, all of the conversation."""
        task_id = _task_id(context)
        if task_id is None:
            key = _context_key(context_id, context)
            await self._cancel([one for one in self._requests.values() if one.context_key == key])
        elif task_id in self._requests:
            await self._cancel([self._requests[task_id]])
        else:
            self._cancelled[task_id] = None
            while len(self._cancelled) > _MAX_REMEMBERED:
                del self._cancelled[next(iter(self._cancelled))]

    async def cancel_all(self) -> None:
        """Cancel every request."""
        await self._cancel([*self._requests.values()])

    async def _cancel(self, requests: list[ProgramRequest]) -> None:
        # All of them first: ending one lets the next of its conversation begin.
        for request in requests:
            request.is_cancelled = True
        await asyncio.gather(*[request.end() for request in requests])


def _task_id(context: Json) -> str | None:
    return getattr(context, "task_id", None) or None


def _context_key(context_id: str | None, context: Json) -> str:
    """The caller's own conversation where that is known, else the context."""
    own = getattr(context, "session_key", None) or context_id
    return str(own or getattr(context, "context_id", None) or _NO_CONTEXT)


class SessionStore:
    """Session ids of a program by context key, in a JSON file; without a path, in memory.

    A missing or unreadable file counts as empty; a failed write is logged.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path).expanduser() if path else None
        self._sessions: dict[str, str] = {}
        if self._path is not None:
            try:
                content = self._path.read_bytes()
                self._sessions = msgspec.json.decode(content, type=dict[str, str])
            except FileNotFoundError:
                pass
            except (OSError, ValueError, RecursionError) as error:
                log.warning("sessions.read_failed", path=str(self._path), reason=str(error))

    def get(self, context_key: str) -> str | None:
        """The session to resume."""
        return self._sessions.get(context_key)

    def keep(self, context_key: str, session_id: Json) -> None:
        """Resume this session next time; an empty one changes nothing."""
        if session_id and self._sessions.get(context_key) != str(session_id):
            self._sessions[context_key] = str(session_id)
            self._save()

    def forget(self, context_key: str) -> None:
        """Begin a new session next time."""
        if self._sessions.pop(context_key, None) is not None:
            self._save()

    def _save(self) -> None:
        if self._path is None:
            return
        try:
            write_private_file(self._path, msgspec.json.format(msgspec.json.encode(self._sessions)))
        except OSError as error:
            log.warning("sessions.write_failed", path=str(self._path), reason=str(error))
