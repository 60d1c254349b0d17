"""Why a run was turned away before it began, so that it can be tried again in another way."""

import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from enum import Enum
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from openclaw_a2a.agents.openclaw_cli.answer import CommandOutput, failure_reason, read_document
from openclaw_a2a.agents.openclaw_cli.command import MAX_ARGUMENT_BYTES, CliRequest, build_command
from openclaw_a2a.agents.openclaw_cli.options import OpenClawCliOptions
from openclaw_a2a.agents.openclaw_cli.state_directory_queue import (
    EXCLUSIVE,
    PARALLEL,
    UNKNOWN,
    StateDirectoryQueue,
    is_exclusive,
    queue_for,
)
from openclaw_a2a.agents.process.child import ChildProcess, ProcessSpec, start_process
from openclaw_a2a.agents.process.orphans import end_orphans
from openclaw_a2a.model.agent_event import Note
from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable
from openclaw_a2a.model.ids import JsonObject, RunId
from openclaw_a2a.settings.loading.environment import process_environment
from openclaw_a2a.settings.openclaw.config_file import state_folder


class StartFailure(Enum):
    """What stands in the way; the value is what OpenClaw says then."""

    DIRECTORY_BUSY = "failed to acquire gateway state ownership"
    GATEWAY_RUNS = "Run without --local"
    NO_GATEWAY = "Gateway not reachable"


def find_start_failure(finished: CommandOutput) -> StartFailure | None:
    """What kept the run from beginning; None when it began, or failed for another reason."""
    if finished.exit_code == 0:
        return None
    text = failure_reason(finished)
    return next((trouble for trouble in StartFailure if trouble.value in text), None)


TIMED_OUT = "timedOutAfterSeconds"
"""In the details of the error of a run that took too long."""

_NOT_FOUND = (
    "The program {program} (or the interpreter it names) was not found; install OpenClaw, or say"
    " where it is: openclawPath in the settings, openclaw_path in Python."
)
_BUSY_NOTE = "Another program uses OpenClaw's state directory; waiting until it is free."
_GATEWAY_NOTE = "An OpenClaw gateway holds the state directory; asking that gateway."
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 10.0
_LARGE_BYTES = 256 * 1024
_MOST_DETOURS = 2
_Found = TypeVar("_Found")


class OpenClawRunner:
    """Runs `openclaw agent` for each question; programs inherit `environment` (None: ours)."""

    def __init__(
        self, options: OpenClawCliOptions, *, environment: Mapping[str, str] | None = None
    ) -> None:
        self._options = options
        self._environment = environment
        self._children: set[ChildProcess] = set()
        self._asks_gateway = options.gateway_mode is True

    async def run(self, question: CliRequest) -> AsyncGenerator[Note | JsonObject]:
        """Notes while it waits for others, and then the document with the answer.

        Questions of one session wait for each other.

        Raises: AgentUnavailable (it cannot be started), AgentFailed (it failed, wrote what cannot
        be read, or took too long; then the details have `TIMED_OUT`).
        """
        session_lane = queue_for(f"{id(self)} {question.session}", width=EXCLUSIVE)
        async with session_lane.slot(), aclosing(self._ask(question)) as events:
            async for event in events:
                yield event

    async def _ask(self, question: CliRequest) -> AsyncGenerator[Note | JsonObject]:
        attempt = _Attempt(self._options.timeout)
        while True:
            if self._asks_gateway:
                finished = await self._run(question, attempt, is_local=False)
                trouble = await _read(find_start_failure, finished)
            else:
                finished, trouble = await self._run_in_lane(question, attempt)
            if trouble is None or not self._can_go_on(trouble, attempt):
                break
            if trouble is not StartFailure.NO_GATEWAY:
                yield Note(_BUSY_NOTE if trouble is StartFailure.DIRECTORY_BUSY else _GATEWAY_NOTE)
            if trouble is StartFailure.DIRECTORY_BUSY:
                await attempt.pause()
        if trouble is StartFailure.GATEWAY_RUNS:
            raise _gateway_holds_it()
        yield await _read(read_document, finished)

    async def close(self) -> None:
        """End every program that still runs."""
        for child in tuple(self._children):
            await child.kill_tree(grace_s=self._options.kill_grace_seconds)

    def unavailable_reason(self) -> str | None:
        """Why the command cannot be run; None when it can, as far as can be seen."""
        program = self._options.openclaw_path
        if shutil.which(program, path=self._variables().get("PATH")) is not None:
            return None
        return _NOT_FOUND.format(program=program)

    async def end_orphans(self, run_id: RunId) -> None:
        """End what a killed gateway left running for this run, with all it started.

        Raises: AgentFailed when something refuses to end.
        """
        await end_orphans(run_id, grace_s=self._options.kill_grace_seconds)

    # ---------------------------------------------------------------- whose turn it is

    async def _run_in_lane(
        self, question: CliRequest, attempt: "_Attempt"
    ) -> tuple[CommandOutput, StartFailure | None]:
        """One run when the state directory is ours; turned away by our own runs, it waits again."""
        lane = await self._lane()
        while True:
            async with lane.slot(is_next=attempt.is_repeated) as place:
                finished = await self._run(question, attempt, is_local=True)
                trouble = await _read(find_start_failure, finished)
                if trouble is None:
                    lane.learn_parallel(place)
                if trouble is not StartFailure.DIRECTORY_BUSY or not lane.has_others:
                    return finished, trouble
                lane.learn_exclusive()

    async def _lane(self) -> StateDirectoryQueue:
        directory, width = await anyio.to_thread.run_sync(self._look_around)
        return queue_for(directory, width=width)

    def _look_around(self) -> tuple[str, int]:
        """The state directory, and how many runs the installed OpenClaw lets into it."""
        variables = self._variables()
        known = is_exclusive(self._options.openclaw_path, variables.get("PATH"))
        folder = state_folder(variables)
        width = UNKNOWN if known is None else EXCLUSIVE if known else PARALLEL
        return ("" if folder is None else os.path.realpath(folder)), width

    def _variables(self) -> dict[str, str]:
        return {**process_environment(self._environment), **self._options.env}

    def _can_go_on(self, trouble: StartFailure, attempt: "_Attempt") -> bool:
        """True when there is another way; then the next run takes it."""
        if trouble is StartFailure.DIRECTORY_BUSY:
            return True
        if self._options.gateway_mode != "auto":
            return False
        self._asks_gateway = trouble is StartFailure.GATEWAY_RUNS
        attempt.detours += 1
        return attempt.detours <= _MOST_DETOURS

    # ---------------------------------------------------------------- one run

    async def _run(
        self, question: CliRequest, attempt: "_Attempt", *, is_local: bool
    ) -> CommandOutput:
        async with _message_file(question.text) as message_file:
            argv = build_command(
                self._options.openclaw_path,
                question,
                thinking=self._options.thinking,
                is_local=is_local,
                message_file=message_file,
            )
            child = self._spawn(argv, question.run_id)
            self._children.add(child)
            try:
                return await attempt.collect(child, self._options.max_output_bytes)
            finally:
                await child.kill_tree(grace_s=self._options.kill_grace_seconds)
                self._children.discard(child)

    def _spawn(self, argv: tuple[str, ...], run_id: str) -> ChildProcess:
        options = self._options
        launch = ProcessSpec(
            argv=argv,
            environment=self._environment,
            variables=options.env,
            cwd=str(Path(options.working_directory).expanduser())
            if options.working_directory
            else "",
            output_grace_s=options.kill_grace_seconds,
            run_name=run_id,
            kept_error_bytes=min(options.max_output_bytes, 1024 * 1024),
        )
        try:
            return start_process(launch)
        except AgentUnavailable as error:
            if isinstance(error.__cause__, FileNotFoundError):
                sentence = _NOT_FOUND.format(program=options.openclaw_path)
                raise AgentUnavailable(sentence) from error.__cause__
            raise


class _Attempt:
    """The time of one question: what it runs and waits for others counts, its place in line not."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._left_s = timeout_s
        self._pause_s = _FIRST_PAUSE_S
        self.is_repeated = False
        self.detours = 0
        """How often the way to OpenClaw was changed: a gateway in the way may be out of reach."""

    async def collect(self, child: ChildProcess, most_bytes: int) -> CommandOutput:
        """What the program writes, and how it ends."""
        self.is_repeated = True
        began = anyio.current_time()
        try:
            with anyio.fail_after(self._left_s):
                output = await _read_all(child, most_bytes)
                exit_code = await child.wait()
        except TimeoutError:
            raise self._too_late() from None
        finally:
            self._left_s -= anyio.current_time() - began
        return CommandOutput(exit_code, output, child.error_tail(most_bytes).encode())

    async def pause(self) -> None:
        """Wait a little longer each time, as long as there is time."""
        if self._left_s <= self._pause_s:
            raise self._too_late()
        self._left_s -= self._pause_s
        await anyio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def _too_late(self) -> AgentFailed:
        seconds = f"{self._timeout_s:g}"
        return AgentFailed(
            f"OpenClaw did not finish within {seconds} seconds and was ended; ask for less, or"
            " raise its timeout.",
            details={TIMED_OUT: self._timeout_s},
        )


async def _read_all(child: ChildProcess, most_bytes: int) -> bytes:
    output = bytearray()
    while piece := await child.read():
        output += piece
        if len(output) > most_bytes:
            raise AgentFailed(
                f"OpenClaw wrote more than {most_bytes} bytes and was ended; ask for less, or"
                " raise maxOutputBytes."
            )
    return bytes(output)


async def _read(reader: Callable[[CommandOutput], _Found], finished: CommandOutput) -> _Found:
    """What the reader finds; large outputs are read beside everything else that goes on."""
    if len(finished.output) + len(finished.errors) < _LARGE_BYTES:
        return reader(finished)
    return await anyio.to_thread.run_sync(reader, finished)


def _gateway_holds_it() -> AgentFailed:
    return AgentFailed(
        "An OpenClaw gateway is running on this state directory, so the command cannot run beside"
        ' it: set gatewayMode to true (or "auto") to ask that gateway, or stop it with'
        " `openclaw gateway stop`."
    )


@asynccontextmanager
async def _message_file(text: str) -> AsyncGenerator[str]:
    """The path of a file with the text when that is too long for an argument, else nothing."""
    content = text.encode()
    if len(content) <= MAX_ARGUMENT_BYTES:
        yield ""
        return
    path = await anyio.to_thread.run_sync(_write_private, content)
    try:
        yield str(path)
    finally:
        path.unlink(missing_ok=True)


def _write_private(content: bytes) -> Path:
    descriptor, name = tempfile.mkstemp(prefix="openclaw-a2a-", suffix=".txt")
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    return Path(name)
