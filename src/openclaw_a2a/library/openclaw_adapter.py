"""OpenClaw run by its own command, as an adapter of the library with tasks of its own."""

import inspect
import secrets
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from contextlib import aclosing, contextmanager
from os import PathLike, fspath
from typing import Annotated, Any, ClassVar, cast

import msgspec
from msgspec import Meta

from openclaw_a2a.agents.adapter import AdapterMetadata, AgentAdapter, EventAgent, RequestContext
from openclaw_a2a.agents.openclaw_cli.agent import OpenClawRunner
from openclaw_a2a.agents.openclaw_cli.answer import CliAnswer, parse_answer
from openclaw_a2a.agents.openclaw_cli.command import (
    THINKING_LEVELS,
    CliRequest,
    CliSession,
    GatewayMode,
    OpenClawCliOptions,
    Thinking,
    argument_text,
    context_session_id,
    message_text,
    peer_session,
)
from openclaw_a2a.agents.process.child import TIMED_OUT
from openclaw_a2a.engine.engine import new_id
from openclaw_a2a.engine.transcript.single_artifact import SingleArtifactTranscript
from openclaw_a2a.engine.transcript.transcript import Transcript
from openclaw_a2a.library.inputs import as_store, read_request
from openclaw_a2a.library.openclaw_tasks import TaskService
from openclaw_a2a.model.agent_event import AgentEvent, Note, Reply, Report
from openclaw_a2a.model.errors import AgentError
from openclaw_a2a.model.ids import LOCAL_PEER, Json, JsonObject, MessageId, RunId
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.task import Event, Task
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.model.validation import suggest_name
from openclaw_a2a.ports import Store
from openclaw_a2a.protocol.requests import NewPushConfig
from openclaw_a2a.settings import RetentionSettings
from openclaw_a2a.store import MemoryStore

_FOREVER_S = 100 * 365 * 86400.0


class CheckedOptions(msgspec.Struct, frozen=True):
    """The arguments, checked."""

    thinking: Thinking
    timeout: Annotated[float, Meta(gt=0)]
    openclaw_path: Annotated[str, Meta(min_length=1)]
    working_directory: str | None
    env_vars: dict[str, str] | None
    async_mode: bool
    task_ttl_seconds: Annotated[float, Meta(ge=0)] | None
    cleanup_interval_seconds: Annotated[float, Meta(gt=0)]
    gateway_mode: GatewayMode


def check_options(**values: Json) -> CheckedOptions:
    """The arguments, checked; `task_store` is checked elsewhere. Raises: ValueError."""
    thinking = values["thinking"]
    if thinking not in THINKING_LEVELS:
        raise ValueError(
            f"thinking is {thinking!r}; it must be one of {', '.join(THINKING_LEVELS)}"
        )
    checked: JsonObject = {}
    for field in msgspec.structs.fields(CheckedOptions):
        value: Json = values[field.name]
        if isinstance(value, PathLike):
            value = fspath(cast("PathLike[str]", value))
        elif isinstance(value, Mapping):
            value = dict(cast("Mapping[str, Json]", value))
        try:
            if value != value:
                raise msgspec.ValidationError("Expected a number")
            checked[field.name] = msgspec.convert(value, field.type)
        except msgspec.ValidationError as error:  # the value is not quoted: it may be a secret
            raise ValueError(f"{field.name} cannot be used: {error}") from None
    return CheckedOptions(**checked)


class OpenClawTimeout(TimeoutError, RuntimeError):
    """OpenClaw took too long; its processes were ended."""


class OpenClawAgentAdapter(AgentAdapter):
    """Runs `openclaw agent --local --json`, once per message.

    `session_id` is the conversation of messages without a context; `agent_id` is the OpenClaw
    agent to ask, when there are several. `thinking` is one of off, minimal, low, medium, high and
    xhigh; `timeout` is in seconds, for the whole command; `env_vars` are added to the process's
    own. With `async_mode`, `handle` returns a task at once, kept in `task_store` (a store, or the
    path of a SQLite file; left out: memory) until `task_ttl_seconds` (None: for ever) after its
    end, purged every `cleanup_interval_seconds`. `gateway_mode`: run without `--local`, or
    `"auto"`: only when a gateway holds the state directory. `name` and `description` stand on the
    card.

    Raises: ValueError for an invalid argument, TypeError for an unknown one.
    """

    def __init__(
        self,
        session_id: str | None = None,
        agent_id: str | None = None,
        thinking: str = "low",
        timeout: float = 300.0,
        openclaw_path: str | PathLike[str] = "openclaw",
        working_directory: str | PathLike[str] | None = None,
        env_vars: Mapping[str, str] | None = None,
        async_mode: bool = True,
        task_store: Store | str | PathLike[str] | None = None,
        task_ttl_seconds: float | None = 3600.0,
        cleanup_interval_seconds: float = 300.0,
        *,
        gateway_mode: GatewayMode = False,
        name: str = "",
        description: str = "",
        **unknown: Json,
    ) -> None:
        for argument in unknown:
            known = list(inspect.signature(OpenClawAgentAdapter).parameters)[:-1]
            hint = suggest_name(argument, known)
            raise TypeError(f"{type(self).__name__} takes no argument {argument!r}; {hint}")
        checked = check_options(
            thinking=thinking,
            timeout=timeout,
            openclaw_path=openclaw_path,
            working_directory=working_directory,
            env_vars=env_vars,
            async_mode=async_mode,
            task_ttl_seconds=task_ttl_seconds,
            cleanup_interval_seconds=cleanup_interval_seconds,
            gateway_mode=gateway_mode,
        )
        self.session_id = session_id or f"a2a-{secrets.token_hex(6)}"
        self.agent_id = agent_id
        self.thinking = checked.thinking
        self.timeout = checked.timeout
        self.openclaw_path = checked.openclaw_path
        self.working_directory = checked.working_directory
        self.env_vars = checked.env_vars or {}
        self.async_mode = checked.async_mode
        self._name = name
        self._description = description
        self._options = OpenClawCliOptions(
            thinking=checked.thinking,
            timeout=checked.timeout,
            openclaw_path=checked.openclaw_path,
            working_directory=checked.working_directory or "",
            env=self.env_vars,
            gateway_mode=checked.gateway_mode,
        )
        self._runner = OpenClawRunner(self._options)
        store = as_store(task_store) or MemoryStore()
        ttl_s = checked.task_ttl_seconds
        retention = RetentionSettings(
            ended_seconds=_FOREVER_S if ttl_s is None else ttl_s,
            sweep_seconds=checked.cleanup_interval_seconds,
        )
        self._tasks: TaskService | None = None
        if self.async_mode:
            agent = _TaskAgent(self._runner, self._turn_request)
            self._tasks = TaskService(agent, store, retention, transcript_type=OpenClawTranscript)

    # ---------------------------------------------------------------- the adapter interface

    async def invoke(
        self, user_input: str, context_id: str | None = None, **kwargs: Json
    ) -> list[Part]:
        """The whole answer.

        Raises: FileNotFoundError (no such program), OpenClawTimeout, RuntimeError (it failed).
        """
        context: RequestContext | None = kwargs.get("context")
        if context is not None and context.turn is not None:
            request = self._turn_request(context.turn)
        else:
            session = CliSession(id=self._context_id_to_session_id(context_id))
            request = self._request(argument_text(user_input.strip()), session)
        return list(_parse(await self._run_command(request)).parts)

    async def end_orphans(self, run_id: RunId) -> None:
        """End the command that a killed process left running for this run."""
        await self._runner.end_orphans(run_id)

    async def close(self) -> None:
        """Stop everything that is under way. May be called again."""
        if self._tasks is not None:
            await self._tasks.close()
        await self._runner.close()

    def get_metadata(self) -> AdapterMetadata:
        """The content of the agent card."""
        name = f"OpenClaw {self.agent_id}" if self.agent_id else "OpenClaw"
        return AdapterMetadata(
            name=self._name or name,
            description=self._description or "An OpenClaw agent on this machine.",
        )

    def supports_streaming(self) -> bool:
        """False: the command writes its answer at its end."""
        return False

    def supports_async_tasks(self) -> bool:
        """True when `handle` returns a task at once."""
        return self.async_mode

    def supports_push_notifications(self) -> bool:
        """True when webhooks can be notified of a task's end."""
        return self.async_mode

    # ---------------------------------------------------------------- one request

    async def handle(self, params: Json) -> Task | Message:
        """Answer a message with a working task, or (`async_mode=False`) with the answer.

        `params` are our structs, a dict in the shape of A2A 1.0 or 0.3, or the params of an SDK.

        Raises: InvalidParams, TypeError; without tasks also what `invoke` raises.
        """
        if self._tasks is not None:
            return await self._tasks.start(read_request(params))
        output = await self.call_framework(await self.to_framework(params), params)
        return await self.from_framework(output, params)

    async def to_framework(self, params: Json) -> JsonObject:
        """The input of the command: the message's text and the session."""
        message = read_request(params).message
        return {
            "message": message_text(message.parts),
            "session_id": self._context_id_to_session_id(message.context_id),
            "agent_id": self.agent_id,
            "thinking": self._options.thinking,
        }

    async def call_framework(self, framework_input: JsonObject, params: Json) -> JsonObject:
        """The JSON document that the command writes. Raises: as `invoke`."""
        del params
        session = CliSession(id=framework_input["session_id"])
        return await self._run_command(self._request(framework_input["message"], session))

    async def from_framework(self, framework_output: JsonObject, params: Json) -> Message:
        """The answer in the document. Raises: RuntimeError when it reports a failure."""
        answer = _parse(framework_output)
        parts = answer.parts or (Part(text=answer.remark),)
        context_id = read_request(params).message.context_id
        return Message(MessageId(new_id()), Role.AGENT, parts, context_id)

    # ---------------------------------------------------------------- tasks

    async def get_task(self, task_id: str) -> Task | None:
        """The task; None: unknown. Raises: RuntimeError (no tasks in this mode)."""
        return await self._task_service().get(task_id)

    async def cancel_task(self, task_id: str) -> Task | None:
        """The task after it was stopped; an ended one is returned as it is; None: unknown."""
        return await self._task_service().cancel(task_id)

    async def delete_task(self, task_id: str) -> bool:
        """Delete an ended task; False: unknown. Raises: ValueError when it has not ended."""
        return await self._task_service().delete(task_id)

    async def set_push_notification_config(self, task_id: str, config: Json) -> bool:
        """Notify this webhook of the task's end; False: unknown task."""
        return await self._task_service().set_webhook(task_id, config)

    async def get_push_notification_config(self, task_id: str) -> NewPushConfig | None:
        """The webhook that will be notified of the task's end."""
        return await self._task_service().find_webhook(task_id)

    async def delete_push_notification_config(self, task_id: str) -> bool:
        """Remove the webhook of the task; False: there was none."""
        return await self._task_service().remove_webhook(task_id)

    def _task_service(self) -> TaskService:
        if self._tasks is None:
            raise RuntimeError(
                "this adapter was made with async_mode=False, so it has no tasks; `handle` returns"
                " the answer itself"
            )
        return self._tasks

    # ---------------------------------------------------------------- the command

    def _context_id_to_session_id(self, context_id: str | None) -> str:
        return context_session_id(context_id, self.session_id)

    def _request(self, text: str, session: CliSession, run_id: str = "") -> CliRequest:
        return CliRequest(text, session, agent_id=self.agent_id or "", run_id=run_id)

    def _turn_request(self, turn: Turn) -> CliRequest:
        # A caller with a name has sessions of its own; the others have that of the context.
        if turn.principal == LOCAL_PEER:
            session = CliSession(id=self._context_id_to_session_id(turn.context_id))
        else:
            session = peer_session(turn.session_key, self.agent_id)
        return self._request(message_text(turn.message.parts), session, turn.run_id)

    async def _run_command(self, request: CliRequest) -> JsonObject:
        with _python_errors():
            # Also when the caller is cancelled: the command has ended when this returns.
            async with aclosing(self._runner.run(request)) as events:
                async for event in events:
                    if not isinstance(event, Note):
                        return event
        raise RuntimeError("OpenClaw ended without an answer.")


class _TaskAgent(EventAgent):
    """Runs the command for the engine that keeps the adapter's tasks."""

    def __init__(self, runner: OpenClawRunner, build_request: Callable[[Turn], CliRequest]) -> None:
        self._runner = runner
        self._build_request = build_request

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Yield the answer; notes are left out, because a task has one message."""
        async with aclosing(self._runner.run(self._build_request(turn))) as events:
            async for event in events:
                if not isinstance(event, Note):
                    answer = parse_answer(event)
                    yield Report({REMARK: answer.remark})
                    if answer.parts:
                        yield Reply(answer.parts)

    async def end_orphans(self, run_id: RunId) -> None:
        """End what a killed process left running for this run."""
        await self._runner.end_orphans(run_id)

    async def close(self) -> None:
        """End every run of the command."""
        await self._runner.close()


def _parse(document: JsonObject) -> CliAnswer:
    with _python_errors():
        return parse_answer(document)


@contextmanager
def _python_errors() -> Generator[None]:
    """Raise errors of the agent as users of the library expect them."""
    try:
        yield
    except AgentError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise FileNotFoundError(error.message) from error
        kind = OpenClawTimeout if TIMED_OUT in error.details else RuntimeError
        raise kind(error.message) from error


REMARK = "remark"
"""The key in a report: the text of the status when the answer is empty."""


class OpenClawTranscript(SingleArtifactTranscript):
    """One artifact `response`, and the same parts as the message of the last status."""

    _answer: tuple[Part, ...] = ()
    _remark: str = ""

    def fail(self, reason: str) -> list[Event]:
        """The run failed: the status is the reason, without a prefix."""
        return Transcript.fail(self, reason)

    def _on_whole(self, event: Reply) -> list[Event]:
        self._answer = self._modes.filter(event.parts)
        return self._on_reply(event)

    def _on_remark(self, event: Report) -> list[Event]:
        self._remark = str(event.metadata.get(REMARK, ""))
        return []

    def _last_parts(self) -> tuple[Part, ...]:
        return self._answer or (Part(text=self._remark),)

    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any], list[Event]]]] = {
        **SingleArtifactTranscript._HANDLERS,
        Reply: _on_whole,
        Report: _on_remark,
    }
