"""One request of the `remote` commands: which target and task, its progress, its outcome."""

import shlex
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar, cast

import anyio
import msgspec

from openclaw_a2a.cli.commands.remote import MessageOptions, RemoteOptions
from openclaw_a2a.cli.errors import DONE, FAILED, INTERRUPTED, UNREACHABLE, USAGE_ERROR, usage_error
from openclaw_a2a.cli.options import join_text, parse_json_object
from openclaw_a2a.cli.render.stream import StreamView
from openclaw_a2a.cli.render.terminal import WaitIndicator, print_data, print_json, print_message
from openclaw_a2a.library.remote_agents import (
    Recipient,
    RemoteAgents,
    SendOptions,
    TaskOptions,
    build_send_request,
    build_task_request,
)
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.records import StreamBody
from openclaw_a2a.model.task import StatusUpdate
from openclaw_a2a.protocol import v03
from openclaw_a2a.protocol.v03 import MessageV03, message_from_v03
from openclaw_a2a.remote.handles import HANDLE_PREFIX, TaskHandle
from openclaw_a2a.remote.result import (
    RemoteResult,
    RemoteTask,
    continuation_of_failure,
)
from openclaw_a2a.settings.files import write_private_file

_SPINNER_DELAY_S = 0.4
_SHORT_ID = 8
_UUID_LENGTH = 36
_FAILED_STATES = frozenset({"failed", "rejected", "canceled"})
_LOCAL_CODES = frozenset({"VALIDATION_ERROR", "TARGET_RESOLUTION_ERROR"})
_UNREACHABLE_ERRORS = frozenset(
    {
        "CircuitOpen",
        "ConnectError",
        "ConnectTimeout",
        "ReadError",
        "RemoteProtocolError",
        "WriteError",
    }
)
_TIMED_OUT = "request timed out"
_SEE_TARGETS = "See the targets there are: openclaw-a2a targets list"
_NAME_THE_TASK = "Name the task by its id, and its agent with --target or --url."
_STEPS = {
    "TARGET_RESOLUTION_ERROR": _SEE_TARGETS,
    "UNKNOWN_TASK_HANDLE": _NAME_THE_TASK,
    "EXPIRED_TASK_HANDLE": _NAME_THE_TASK,
}

_Found = TypeVar("_Found")
_message_decoder = msgspec.json.Decoder(MessageV03)


class LastRemoteTask:
    """The files of these commands. The store of a gateway is never touched."""

    def __init__(self, data: Path) -> None:
        self._path = data / "remote" / "last.json"
        self._known: bytes | None = None
        self.handles = data / "remote" / "handles"

    def save(self, continuation: JsonObject) -> None:
        """Remember the last target and task; ignored where nothing can be written."""
        body = msgspec.json.encode(continuation)
        if body != self._known:
            with suppress(OSError):
                write_private_file(self._path, body)
            # Also after a failure: a full disk is not retried for each update.
            self._known = body

    def load(self) -> JsonObject:
        """The last. Raises: InvalidRequest (there is none)."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=JsonObject)
        except (OSError, msgspec.MsgspecError):
            step = 'Send something first: openclaw-a2a remote send --target ALIAS "hello"'
            message = "there is nothing to go on with"
            raise usage_error(message, step, code="nothing-to-continue") from None


def remote_exit_code(result: RemoteResult) -> int:
    """0 unless it failed, or the task ended badly."""
    if result.ok:
        return FAILED if result.task and result.task.state in _FAILED_STATES else DONE
    if result.code in _LOCAL_CODES:
        return USAGE_ERROR
    cause = result.details.get("cause")
    names = {result.details.get("errorName")}
    if isinstance(cause, dict):
        names.add(cast("JsonObject", cause).get("name"))
    return UNREACHABLE if names & _UNREACHABLE_ERRORS else FAILED


def report_remote_failure(result: RemoteResult, agent: str = "") -> int:
    """Print the failure and its agent on standard error; the exit code."""
    at = f"{agent}: " if agent and result.code not in _LOCAL_CODES else ""
    print_message(f"error {result.code}: {at}{result.message}", "red")
    for line in result.problems:
        print_message(f"  {line}")
    step = _next_step(result)
    if step:
        print_message(step)
    return remote_exit_code(result)


def print_envelope(envelope: JsonObject, *, pretty: bool = True) -> None:
    """Print the envelope of a request, a failure with its hint."""
    result = RemoteResult.from_envelope(envelope)
    if not result.ok:
        envelope = {**envelope, "error": {**envelope["error"], "hint": _next_step(result)}}
    print_json(envelope, pretty=pretty)


def _next_step(result: RemoteResult) -> str:
    paths = [error.get("instancePath") for error in result.details.get("errors", [])]
    if "/target_alias" in paths or "/target_url" in paths:
        return _SEE_TARGETS
    if "variable" in result.details:
        return f"Set {result.details['variable']}, or change the target in the settings."
    if result.message == _TIMED_OUT:
        return "Give it longer with --timeout SECONDS."
    hint = str(result.details.get("hint", ""))
    return _STEPS.get(result.code) or (f"{hint[0].upper()}{hint[1:]}." if hint else "")


def run_with_agents(
    agents: RemoteAgents, work: Callable[[RemoteAgents], Awaitable[_Found]]
) -> _Found:
    """Do the work in this process, while the agents are open."""

    async def go() -> _Found:
        async with agents:
            return await work(agents)

    return anyio.run(go)


class RemoteStreamView(StreamView):
    """Shows the events of a remote agent, which have a `kind`."""

    def draw_event(self, event: JsonObject) -> None:
        """Show one Message, Task or event; what is none of these is left out."""
        body, kind = msgspec.json.encode(event), event.get("kind")
        try:
            if kind == "task":
                shown = StreamBody(task=v03.decode_task(body))
            elif kind == "message":
                shown = StreamBody(message=message_from_v03(_message_decoder.decode(body)))
            elif isinstance(update := v03.decode_event(body), StatusUpdate):
                shown = StreamBody(status_update=update)
            else:
                shown = StreamBody(artifact_update=update)
        except msgspec.MsgspecError:
            return
        self.draw(shown)

    def finish(self) -> None:
        """Nothing more comes: end the line."""
        self._end_line()


class RemoteRequest:
    """One request: the agent and task it is for, how it is shown, what is known of it so far."""

    def __init__(
        self, remote: RemoteAgents, memory: LastRemoteTask, options: RemoteOptions, *, as_json: bool
    ) -> None:
        self._remote = remote
        self._memory = memory
        self._options = options
        self._as_json = as_json
        self._screen = RemoteStreamView()
        self._spinner = WaitIndicator(state="asking")
        self._task: RemoteTask | None = None

    async def send(
        self, text: tuple[str, ...], message: MessageOptions, *, is_followed: bool
    ) -> int:
        """Send a message and show the answer, as it comes or when it is complete; the exit code."""
        self._spinner.label = self._agent
        to, more = self._resolve_message(message)
        request = build_send_request(to, join_text(text), more)
        if not request["parts"]:
            hello = self._options.command('send "hello"')
            raise usage_error("there is nothing to send", f"Say something: {hello}")
        if is_followed:
            return await self._follow(request)
        envelope = await self._execute(request)
        if envelope["ok"] and not self._as_json:
            self._screen.draw_event(envelope["raw"])
        return self._finish(envelope)

    async def act(self, action: str, task: str | None) -> int:
        """Watch, query or cancel a task; the exit code."""
        self._spinner.label = self._agent
        to, naming = self._resolve_task(task)
        naming["timeout_s"] = self._options.seconds
        request = build_task_request(action, to, naming)
        if action == "watch":
            return await self._follow(request)
        envelope = await self._execute(request)
        result = RemoteResult.from_envelope(envelope)
        if result.ok and not self._as_json and result.task is not None:
            print_data(f"task     {result.task.id}")
            if result.context_id:
                print_data(f"context  {result.context_id}")
            print_data(f"state    {result.task.state or 'unknown'}")
            if result.text:
                print_data(f"\n{result.text}")
        code = self._finish(envelope)
        return DONE if result.ok else code

    def interrupted(self) -> int:
        """Print how to follow or stop the task; the exit code."""
        self._screen.finish()
        if self._task is None:
            print_message("Interrupted. If the message was sent, its agent may still be working.")
        else:
            self._print_next_step()
        return INTERRUPTED

    @property
    def _agent(self) -> str:
        """The given target, else the default, else the only one; may be empty."""
        config = self._remote.config
        default = config.default_target or (config.targets[0] if len(config.targets) == 1 else None)
        return self._options.name or (default.alias if default else "")

    def _resolve_task(self, name: str | None) -> tuple[Recipient, TaskOptions]:
        """The task of this name; without one, the last. Raises: InvalidRequest."""
        if name is None:
            if self._options.name:
                step = "Give its id before or after --target."
                raise usage_error("which task is not said", step)
            last = self._memory.load()
            if "task" not in last:
                message = "the last answer was a message and no task"
                raise usage_error(message, "Give the task's id, and --target.")
            return last, {}
        found = [one for one in self._remote.handles if self._matches(one, name)]
        # A task may have several handles; the one used last comes first.
        found = [one for one in found if name in (one.name, one.task_id)] or found
        if len({(one.task_id, one.target.base_url) for one in found}) > 1:
            shown = ", ".join(dict.fromkeys(one.task_id for one in found))
            raise usage_error(f"several tasks begin with {name}: {shown}", "Give more of the id.")
        if found:
            return found[0].name, {}
        return (name, {}) if name.startswith(HANDLE_PREFIX) else (self._target(), {"task_id": name})

    def _resolve_message(self, message: MessageOptions) -> tuple[Recipient, SendOptions]:
        """Where a message goes, and what it carries. Raises: InvalidRequest."""
        more: SendOptions = {
            "timeout_s": self._options.seconds,
            "require_task": message.require_task,
        }
        if message.file:
            more["files"] = list(message.file)
        if message.data is not None:
            step = "Such as: --data '{\"a\": 1}'"
            more["data"] = parse_json_object(message.data, what="--data", step=step)
        if message.context:
            more["context_id"] = message.context
        if message.continue_last:
            if message.task or message.context or self._options.name:
                raise usage_error(
                    "--continue goes on with the last task or context and with no other",
                    "Leave out --continue, or --task, --context, --target and --url.",
                )
            return self._memory.load(), more
        if message.task is None:
            return self._target(), more
        to, naming = self._resolve_task(message.task)
        return to, {**more, **naming}

    def _target(self) -> str | None:
        if self._options.target and self._options.url:
            raise usage_error("--target and --url both name the agent", "Leave out one of them.")
        return self._agent or None

    def _matches(self, handle: TaskHandle, name: str) -> bool:
        url = self._options.url
        is_there = self._options.target in (None, handle.target.alias) and (
            url is None or url.rstrip("/") == handle.target.base_url.rstrip("/")
        )
        return is_there and (handle.name.startswith(name) or handle.task_id.startswith(name))

    async def _follow(self, request: JsonObject) -> int:
        """Send it and show everything as it comes; the exit code."""
        envelope: JsonObject = {}
        with anyio.CancelScope() as following:

            def show(update: JsonObject) -> None:
                try:
                    self._show(update)
                except BrokenPipeError:  # raised here it would fail the request
                    following.cancel()

            envelope = await self._with_spinner(self._remote.follow(request, show))
        if following.cancelled_caught:
            raise BrokenPipeError
        self._note(envelope)
        if self._as_json:
            print_envelope(envelope, pretty=False)
        elif envelope["ok"] and "events" not in envelope["raw"]:
            self._screen.draw_event(envelope["raw"])
        return self._finish(envelope)

    async def _execute(self, request: JsonObject) -> JsonObject:
        envelope = await self._with_spinner(self._remote.execute(request))
        self._note(envelope)
        if self._as_json:
            print_envelope(envelope)
        return envelope

    async def _with_spinner(self, work: Awaitable[JsonObject]) -> JsonObject:
        if self._as_json:
            return await work
        envelope: JsonObject = {}
        # The spinner lives in the group of the request: it ends with it, also by an interrupt.
        async with anyio.create_task_group() as group:
            group.start_soon(self._spin)
            try:
                envelope = await work
            finally:
                # Stop the spinner before clearing its line: a last tick could draw it again.
                group.cancel_scope.cancel()
                self._spinner.clear()
        return envelope

    async def _spin(self) -> None:
        """Show the spinner until cancelled; a request that is answered at once shows none."""
        await anyio.sleep(_SPINNER_DELAY_S)
        while sys.stderr.isatty():
            if not self._screen.is_mid_line:
                self._spinner.show()
            await anyio.sleep(_SPINNER_DELAY_S)

    def _show(self, update: JsonObject) -> None:
        self._note(update)
        if self._as_json:
            print_json(update, pretty=False)
            return
        self._spinner.clear()
        self._screen.draw_event(update["raw"])

    def _note(self, envelope: JsonObject) -> None:
        """Store the task on disk, so that the next command can continue it."""
        result = RemoteResult.from_envelope(envelope)
        continuation = result.continuation or continuation_of_failure(result.details)
        if continuation is None:
            return
        # With every update, not at the end: after a kill the task can still be found.
        self._memory.save(continuation)
        self._task = result.task or self._task
        if self._task is not None and self._task.state:
            self._spinner.state = self._task.state

    def _finish(self, envelope: JsonObject) -> int:
        result = RemoteResult.from_envelope(envelope)
        self._screen.finish()
        if self._as_json or result.ok:
            code = remote_exit_code(result)
        else:
            code = report_remote_failure(result, self._spinner.label)
        if not self._as_json:
            self._print_next_step()
        return code

    def _print_next_step(self) -> None:
        task = self._task
        if task is None or task.is_over:
            return
        shown = task.id[:_SHORT_ID] if len(task.id) == _UUID_LENGTH else shlex.quote(task.id)
        if task.is_waiting:
            answer = self._options.command(f'send --task {shown} "..."')
            print_message(f"Answer with: {answer}")
        else:
            print_message(f"The task goes on. Follow it: {self._options.command(f'watch {shown}')}")
            print_message(f"Stop it: {self._options.command(f'cancel {shown}')}")
