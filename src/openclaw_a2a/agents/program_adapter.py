"""Adapters that run a program for each request: start it, read it, end it, go on with sessions."""

from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from openclaw_a2a.agents.adapter import AgentAdapter
from openclaw_a2a.agents.process import Launch
from openclaw_a2a.agents.process_leftovers import end_leftovers
from openclaw_a2a.agents.program_requests import GRACE_S, ProgramRequest, ProgramRequests
from openclaw_a2a.agents.program_run import ProgramRun, StaleSession, start
from openclaw_a2a.agents.session_book import SessionBook
from openclaw_a2a.agents.steps import closing
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import Json, JsonObject, RunId


class ProgramAdapter(AgentAdapter):
    """Answers with what a program writes.

    The program inherits the process's own environment and `env_vars`; its input is closed. It has
    `timeout` seconds (when it streams: for each line). Requests of one conversation run one at a
    time, those of different ones in parallel. When a request is over, nothing that the program
    started is left. Subclasses say what to run and how to read it.
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
        self.sessions = SessionBook(session_store_path)
        self._requests = ProgramRequests()

    # ---------------------------------------------------------------- what a subclass says

    @abstractmethod
    def build_command(self, message: str, context_key: str) -> tuple[Sequence[str], bool]:
        """The program with its arguments, and whether it goes on with a session.

        `self.sessions.get(context_key)` is the session to go on with.
        """

    @abstractmethod
    def parse_output(self, stdout: str, context_key: str) -> tuple[str, str | None]:
        """The answer, and the session to go on with next time."""

    def parse_stream_line(self, line: str) -> JsonObject | None:
        """What a line says: any of `text`, `session_id` and `error`; None: nothing.

        A subclass that overrides it streams.
        """
        del line

    def binary_not_found_message(self) -> str:
        """What to tell when there is no such program."""
        return "The program was not found; install it, or correct its path."

    # ---------------------------------------------------------------- what the library asks

    def supports_streaming(self) -> bool:
        """True when `parse_stream_line` was overridden."""
        return type(self).parse_stream_line is not ProgramAdapter.parse_stream_line

    async def invoke(self, user_input: str, context_id: str | None = None, **kwargs: Json) -> str:
        """Run the program and answer with what it wrote.

        Raises: CancelledByAdapter, AgentUnavailable (it cannot be started), AgentFailed.
        """
        async with self._requests.turn(context_id, kwargs.get("context")) as request:
            try:
                return await self._answer(user_input, request)
            except StaleSession:
                self._begin_anew(request)
                return await self._answer(user_input, request)

    async def stream(
        self, user_input: str, context_id: str | None = None, **kwargs: Json
    ) -> AsyncIterator[str]:
        """Run the program and tell what it writes, line by line.

        Raises: CancelledByAdapter, AgentUnavailable (it cannot be started), AgentFailed.
        """
        async with self._requests.turn(context_id, kwargs.get("context")) as request:
            try:
                async with closing(self._pieces(user_input, request)) as pieces:
                    async for text in pieces:
                        yield text
            except StaleSession:
                self._begin_anew(request)
                async with closing(self._pieces(user_input, request)) as pieces:
                    async for text in pieces:
                        yield text

    async def cancel(self, context_id: str | None = None, **kwargs: Json) -> None:
        """End the program of a request; one that has not begun is remembered as cancelled."""
        await self._requests.cancel(context_id, kwargs.get("context"))

    async def close(self) -> None:
        """End every program that still runs."""
        await self._requests.cancel_all()

    async def end_leftovers(self, run_id: RunId) -> None:
        """End the program that an earlier life of this process left running for a run."""
        await end_leftovers(run_id, grace_s=GRACE_S)

    # ---------------------------------------------------------------- one run of the program

    async def _answer(self, message: str, request: ProgramRequest) -> str:
        async with self._run(message, request) as run:
            output = await run.output()
            await run.check_exit(may_be_stale=request.may_retry and not output.strip())
        if not output.strip():
            raise AgentFailed(f"{run.program} wrote nothing; its log may say why.")
        text, session_id = self.parse_output(output, request.context_key)
        self._keep_session(request, session_id)
        if not text.strip():
            raise AgentFailed(f"{run.program} gave no answer in what it wrote.")
        return text

    async def _pieces(self, message: str, request: ProgramRequest) -> AsyncIterator[str]:
        has_answered, is_silent = False, True
        async with self._run(message, request) as run:
            async with closing(run.lines()) as lines:
                async for line in lines:
                    is_silent = is_silent and not line.strip()
                    said = self.parse_stream_line(line) or {}
                    self._keep_session(request, said.get("session_id"))
                    if error := said.get("error"):
                        raise AgentFailed(f"{run.program} failed: {error}")
                    if text := said.get("text"):
                        has_answered = True
                        yield str(text)
            await run.check_exit(may_be_stale=request.may_retry and is_silent)
        if not has_answered:
            raise AgentFailed(f"{run.program} ended without an answer.")

    def _run(self, message: str, request: ProgramRequest) -> ProgramRun:
        arguments, is_resuming = self.build_command(message, request.context_key)
        launch = Launch(
            argv=tuple(arguments),
            variables=self.env_vars,
            cwd=str(Path(self.working_dir).expanduser()) if self.working_dir else "",
            linger_s=GRACE_S,
            name=request.name,
        )
        request.may_retry = is_resuming and not request.is_second_try
        child = start(launch, request, self.binary_not_found_message)
        return ProgramRun(launch.program, child, request, timeout_s=self.timeout)

    def _begin_anew(self, request: ProgramRequest) -> None:
        request.is_second_try = True
        self.sessions.forget(request.context_key)

    def _keep_session(self, request: ProgramRequest, session_id: Json) -> None:
        if session_id:
            self.sessions.keep(request.context_key, str(session_id))
