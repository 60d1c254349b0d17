"""An agent that runs OpenClaw by its command: slow, but it needs only the program.

`OpenClawRunner` runs the command for one request: one answer, and nothing is left running.
"""

import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import ClassVar, Self, TypeVar

import anyio
import anyio.to_thread
import msgspec

from openclaw_a2a.agents.adapter import EventAgent
from openclaw_a2a.agents.concurrency import HeldSlot, SlotQueue, queue_for
from openclaw_a2a.agents.openclaw_cli.answer import (
    CommandOutput,
    failure_reason,
    parse_answer,
    read_document,
)
from openclaw_a2a.agents.openclaw_cli.command import (
    MAX_ARGUMENT_BYTES,
    CliRequest,
    OpenClawCliOptions,
    agent_session,
    argument_text,
    build_command,
)
from openclaw_a2a.agents.process.child import (
    ChildProcess,
    LimitedProcess,
    ProcessLimits,
    ProcessSpec,
    expand_directory,
    start_process,
    timed_out,
)
from openclaw_a2a.agents.process.tree import end_orphans
from openclaw_a2a.agents.prompt import build_prompt
from openclaw_a2a.model.agent_event import AgentEvent, Note, Reply, Report
from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import JsonObject, RunId
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.settings.openclaw_config import state_folder
from openclaw_a2a.settings.sources import process_environment

EXCLUSIVE = 1
PARALLEL = 64
UNKNOWN = 2  # a second run may try to start while the first one runs

# The last version that was seen to run several sessions at once; newer ones hold a lock on the
# state directory.
_LAST_PARALLEL = (2026, 3, 2)
# From the resolved program up to the folder with the package file.
_MAX_FOLDERS = 4
_MAX_PACKAGE_BYTES = 1024 * 1024


class StateDirectoryQueue(SlotQueue):
    """The runs of this process on one state directory."""

    def note_refusal(self) -> None:
        """OpenClaw refused a run because of another: from now on one at a time."""
        self._width = EXCLUSIVE

    def note_success(self, slot: HeldSlot) -> None:
        """A run succeeded; if an earlier one still runs, OpenClaw allows them in parallel."""
        if self._width == UNKNOWN and self._running[0] is not slot:
            self._width = PARALLEL
            self._admit()


class _Package(msgspec.Struct):
    name: str = ""
    version: str = ""


def installed_width(program: str, search_path: str | None) -> int:
    """How many runs the installed OpenClaw lets into one state directory, by its package file."""
    found = shutil.which(program, path=search_path)
    if found is None:
        return UNKNOWN
    try:
        for folder in Path(found).resolve().parents[:_MAX_FOLDERS]:
            path = folder / "package.json"
            if not path.is_file() or path.stat().st_size > _MAX_PACKAGE_BYTES:
                continue
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                package = msgspec.json.decode(path.read_bytes(), type=_Package)
                numbers = package.version.partition("-")[0].split(".")
                if package.name == "openclaw" and all(one.isdecimal() for one in numbers):
                    is_newer = tuple(map(int, numbers)) > _LAST_PARALLEL
                    return EXCLUSIVE if is_newer else PARALLEL
    except OSError:
        pass
    return UNKNOWN


_NOT_FOUND = (
    "The program {program} (or the interpreter it names) was not found; install OpenClaw, or say"
    " where it is: openclawPath in the settings, openclaw_path in Python."
)
_BUSY_NOTE = "Another program uses OpenClaw's state directory; waiting until it is free."
_GATEWAY_NOTE = "An OpenClaw gateway holds the state directory; asking that gateway."
_BUSY_BACKOFF = Backoff(first_s=1.0, max_s=10.0)
# Parsing more than this would hold up the event loop noticeably.
_LARGE_BYTES = 256 * 1024
_MAX_ROUTE_CHANGES = 2
_MAX_NAME = 120
_Found = TypeVar("_Found")


class StartFailure(Enum):
    """Why a run did not begin; the value is what OpenClaw writes then."""

    DIRECTORY_BUSY = "failed to acquire gateway state ownership"
    GATEWAY_RUNS = "Run without --local"
    NO_GATEWAY = "Gateway not reachable"


def find_start_failure(output: CommandOutput) -> StartFailure | None:
    """Why the run did not begin; None when it began, or failed for another reason."""
    if output.exit_code == 0:
        return None
    text = failure_reason(output)
    return next((failure for failure in StartFailure if failure.value in text), None)


class OpenClawCliAgent(EventAgent):
    """Answers each turn with one run of `openclaw agent`, in the session of the turn's key.

    A run that a crash interrupted has failed: nothing can re-attach to the command, and its work
    may have had effects.
    """

    options_type: ClassVar[type[msgspec.Struct]] = OpenClawCliOptions

    def __init__(
        self, options: OpenClawCliOptions, *, environment: Mapping[str, str] | None = None
    ) -> None:
        self._options = options
        self._runner = OpenClawRunner(options, environment=environment)

    @classmethod
    def from_options(
        cls, options: OpenClawCliOptions, *, environment: Mapping[str, str] | None
    ) -> Self:
        """The agent for an entry of the settings."""
        return cls(options, environment=environment)

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Run the command and yield its answer, whole.

        Raises: AgentUnavailable (it cannot be started), AgentFailed (it failed, wrote what cannot
        be read, or took too long).
        """
        agent_id = self._options.agent_id or turn.agent_id
        omitted = tuple(_omitted_files(turn))
        for note in omitted:
            yield Note(note)
        request = CliRequest(
            text=argument_text(build_prompt(turn, omitted)),
            session=agent_session(turn.session_key, agent_id),
            agent_id=agent_id,
            run_id=turn.run_id,
        )
        async with aclosing(self._runner.run(request)) as events:
            async for event in events:
                if isinstance(event, Note):
                    yield event
                    continue
                answer = parse_answer(event)
                if answer.facts:
                    yield Report({"openclaw": answer.facts})
                if answer.parts:
                    yield Reply(answer.parts)

    def unavailable_reason(self) -> str | None:
        """Why it cannot answer now; None when it can."""
        return self._runner.unavailable_reason()

    async def end_orphans(self, run_id: RunId) -> None:
        """End what a killed gateway left running. Raises: AgentFailed when it refuses to end."""
        await self._runner.end_orphans(run_id)

    async def close(self) -> None:
        """End every run of the command."""
        await self._runner.close()


def _omitted_files(turn: Turn) -> Iterator[str]:
    """A sentence for each file of the message: the command takes text only."""
    for number, part in enumerate(turn.message.parts, 1):
        if part.raw is None and part.url is None:
            continue
        name = argument_text(" ".join((part.filename or "").split())[:_MAX_NAME])
        which = f"part {number} ({name})" if name else f"part {number}"
        yield (
            f"The file in {which} was not given to the agent: OpenClaw's command takes text only."
            " The adapter openclaw-gateway passes files on."
        )


class OpenClawRunner:
    """Runs `openclaw agent` for each request; programs inherit `environment` (None: ours)."""

    def __init__(
        self, options: OpenClawCliOptions, *, environment: Mapping[str, str] | None = None
    ) -> None:
        self._options = options
        self._environment = environment
        self._children: set[ChildProcess] = set()
        self._uses_gateway = options.gateway_mode is True

    async def run(self, request: CliRequest) -> AsyncGenerator[Note | JsonObject]:
        """Yield notes while it waits for others, and then the document with the answer.

        Requests of one session run one at a time.

        Raises: AgentUnavailable (it cannot be started), AgentFailed (it failed, wrote what cannot
        be read, or took too long; then the details have `TIMED_OUT`).
        """
        session_queue = queue_for(f"session {id(self)} {request.session}", SlotQueue())
        # Before the state directory's queue: a request that waits for its session holds no place
        # there.
        async with session_queue.slot():
            budget = _Budget(self._options)
            while True:
                if self._uses_gateway:
                    output = await self._run_command(request, budget, is_local=False)
                    failure = await _parse(find_start_failure, output)
                else:
                    output, failure = await self._run_local(request, budget)
                if failure is None or not self._can_retry(failure, budget):
                    break
                if failure is StartFailure.GATEWAY_RUNS:
                    yield Note(_GATEWAY_NOTE)
                elif failure is StartFailure.DIRECTORY_BUSY:
                    yield Note(_BUSY_NOTE)
                    await budget.pause()
            if failure is StartFailure.GATEWAY_RUNS:
                raise AgentFailed(
                    "An OpenClaw gateway is running on this state directory, so the command cannot"
                    ' run beside it: set gatewayMode to true (or "auto") to ask that gateway, or'
                    " stop it with `openclaw gateway stop`."
                )
            yield await _parse(read_document, output)

    async def close(self) -> None:
        """End every program that still runs."""
        for child in tuple(self._children):  # a copy: each run discards its own child
            await child.kill_tree(grace_s=self._options.kill_grace_seconds)

    def unavailable_reason(self) -> str | None:
        """Why the command cannot be run; None when it can, as far as can be seen."""
        program = self._options.openclaw_path
        if shutil.which(program, path=self._variables().get("PATH")) is not None:
            return None
        return _NOT_FOUND.format(program=program)

    async def end_orphans(self, run_id: RunId) -> None:
        """End what a killed gateway left running. Raises: AgentFailed when it refuses to end."""
        await end_orphans(run_id, grace_s=self._options.kill_grace_seconds)

    # ---------------------------------------------------------------- the state directory

    async def _run_local(
        self, request: CliRequest, budget: "_Budget"
    ) -> tuple[CommandOutput, StartFailure | None]:
        """Run with `--local` when the state directory is free.

        A run that OpenClaw refused because of another run of ours queues again, at the front.
        """
        variables = self._variables()

        def inspect_installation() -> tuple[str, int]:
            folder = state_folder(variables)
            width = installed_width(self._options.openclaw_path, variables.get("PATH"))
            return ("" if folder is None else os.path.realpath(folder)), width

        directory, width = await anyio.to_thread.run_sync(inspect_installation)
        # By the directory and not by this agent: all agents of this process share OpenClaw's lock.
        queue = queue_for(f"state directory {directory}", StateDirectoryQueue(width))
        while True:
            async with queue.slot(at_front=budget.has_run) as slot:
                output = await self._run_command(request, budget, is_local=True)
                failure = await _parse(find_start_failure, output)
                if failure is None:
                    queue.note_success(slot)
                if failure is not StartFailure.DIRECTORY_BUSY or not queue.has_others:
                    return output, failure
                # Refused because of our own other run, not of a foreign program: the request goes
                # back to the front, and is admitted when that run is over.
                queue.note_refusal()

    def _variables(self) -> dict[str, str]:
        return {**process_environment(self._environment), **self._options.env}

    def _can_retry(self, failure: StartFailure, budget: "_Budget") -> bool:
        """True when the request may be run again; then the next run takes the right route."""
        if failure is StartFailure.DIRECTORY_BUSY:
            return True
        if self._options.gateway_mode != "auto":
            return False
        # A gateway that holds the directory may be out of reach: do not go back and forth forever.
        # Remembered for later requests: each wrong attempt costs about ten seconds.
        self._uses_gateway = failure is StartFailure.GATEWAY_RUNS
        budget.route_changes += 1
        return budget.route_changes <= _MAX_ROUTE_CHANGES

    # ---------------------------------------------------------------- one run

    async def _run_command(
        self, request: CliRequest, budget: "_Budget", *, is_local: bool
    ) -> CommandOutput:
        options = self._options
        # The outermost: the file is removed only when nothing that could read it runs.
        async with _message_file(request.text) as message_file:
            spec = ProcessSpec(
                argv=build_command(options, request, is_local=is_local, message_file=message_file),
                environment=self._environment,
                variables=options.env,
                cwd=expand_directory(options.working_directory),
                output_grace_s=options.kill_grace_seconds,
                run_name=request.run_id,
                kept_error_bytes=min(options.max_output_bytes, 1024 * 1024),
                not_found=_NOT_FOUND.format(program=options.openclaw_path),
            )
            child = start_process(spec)
            self._children.add(child)
            try:
                return await budget.read_output(child)
            finally:
                # The whole tree: the launcher starts a child that would outlive it.
                await child.kill_tree(grace_s=options.kill_grace_seconds)
                self._children.discard(child)


class _Budget:
    """The time of one request: running and waiting for other programs counts, queueing does not."""

    def __init__(self, options: OpenClawCliOptions) -> None:
        self._limits = ProcessLimits(
            "OpenClaw",
            options.timeout,
            options.max_output_bytes,
            timeout_hint="its timeout",
            size_hint="maxOutputBytes",
        )
        self._left_s = options.timeout
        self._pauses = 0
        self.has_run = False
        self.route_changes = 0  # how often the route to OpenClaw (local or gateway) was changed

    async def read_output(self, child: ChildProcess) -> CommandOutput:
        """What the program writes, and how it ends."""
        self.has_run = True
        began = anyio.current_time()
        process = LimitedProcess(child, self._limits, left_s=self._left_s)
        try:
            output = await process.read_all()
            exit_code = await process.exit_code()
        finally:
            self._left_s -= anyio.current_time() - began
        return CommandOutput(exit_code, output, child.error_tail(self._limits.max_bytes).encode())

    async def pause(self) -> None:
        """Wait before the next attempt. Raises: AgentFailed (no time is left)."""
        self._pauses += 1
        delay_s = _BUSY_BACKOFF.delay_s(self._pauses)
        if self._left_s <= delay_s:
            raise timed_out(self._limits)
        self._left_s -= delay_s
        await anyio.sleep(delay_s)


async def _parse(parser: Callable[[CommandOutput], _Found], output: CommandOutput) -> _Found:
    """What the parser finds; large outputs are parsed in a worker thread."""
    if len(output.output) + len(output.errors) < _LARGE_BYTES:
        return parser(output)
    return await anyio.to_thread.run_sync(parser, output)


@asynccontextmanager
async def _message_file(text: str) -> AsyncGenerator[str]:
    """The path of a file with the text when it is too long for an argument, else nothing."""
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
    path = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except OSError:  # such as a full disk: what was written of the message must not stay
        path.unlink(missing_ok=True)
        raise
    return path
