"""Carries one request to a remote agent out, and shows what comes of it."""

import shlex
from collections.abc import Awaitable
from typing import TYPE_CHECKING

import anyio

from openclaw_a2a.cli.failure import DONE, INTERRUPTED
from openclaw_a2a.cli.output import say, show, show_json
from openclaw_a2a.cli.remote_failure import exit_code_of, report
from openclaw_a2a.cli.remote_memory import RemoteMemory
from openclaw_a2a.cli.remote_screen import RemoteScreen, Spinner
from openclaw_a2a.cli.remote_whom import Whom
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.remote.result.remote_result import (
    RemoteResult,
    RemoteTask,
    continuation_of_failure,
)

if TYPE_CHECKING:
    from openclaw_a2a.library.remote_agents import RemoteAgents

_SHORT_ID = 8
_UUID = 36


class Call:
    """One request in progress: how it is shown, and what is known of it so far."""

    def __init__(self, whom: Whom, memory: RemoteMemory, *, as_json: bool) -> None:
        self._whom = whom
        self._memory = memory
        self._as_json = as_json
        self._screen = RemoteScreen()
        self._spinner = Spinner(self._screen)
        self._task: RemoteTask | None = None

    def name_agent(self, name: str) -> None:
        """Say which agent it is, as far as that is known."""
        self._spinner.label = name

    async def follow(self, remote: "RemoteAgents", request: JsonObject) -> int:
        """Do it and show everything as it comes; the exit code."""
        envelope = await self._while_turning(remote.follow(request, self._show))
        self._note(envelope)
        if self._as_json:
            show_json(envelope, pretty=False)
        elif envelope["ok"] and "events" not in envelope["raw"]:
            self._screen.draw_event(envelope["raw"])
        return self._end(envelope)

    async def ask(self, remote: "RemoteAgents", request: JsonObject) -> int:
        """Do it and show the answer at once; the exit code."""
        envelope = await self._while_turning(remote.execute(request))
        self._note(envelope)
        if self._as_json:
            show_json(envelope)
        elif envelope["ok"]:
            self._screen.draw_event(envelope["raw"])
        return self._end(envelope)

    async def look(self, remote: "RemoteAgents", request: JsonObject) -> int:
        """Do it and show the task that it is about; the exit code."""
        envelope = await self._while_turning(remote.execute(request))
        self._note(envelope)
        if self._as_json:
            show_json(envelope)
        elif envelope["ok"]:
            _show_task(RemoteResult.from_envelope(envelope))
        code = self._end(envelope)
        return DONE if envelope["ok"] else code

    def interrupted(self) -> int:
        """Say what goes on although nobody listens any more; the exit code."""
        self._screen.finish()
        if self._task is None:
            say("Interrupted. If the message was sent, its agent may still be working.")
        else:
            self._say_how_to_go_on()
        return INTERRUPTED

    async def _while_turning(self, work: Awaitable[JsonObject]) -> JsonObject:
        if self._as_json:
            return await work
        envelope: JsonObject = {}
        async with anyio.create_task_group() as group:
            group.start_soon(self._spinner.turn)
            try:
                envelope = await work
            finally:
                group.cancel_scope.cancel()
                self._spinner.clear()
        return envelope

    def _show(self, update: JsonObject) -> None:
        self._note(update)
        if self._as_json:
            show_json(update, pretty=False)
            return
        self._spinner.clear()
        self._screen.draw_event(update["raw"])

    def _note(self, envelope: JsonObject) -> None:
        result = RemoteResult.from_envelope(envelope)
        continuation = result.continuation or continuation_of_failure(result.details)
        if continuation is None:
            return
        self._memory.remember(continuation)
        self._task = result.task or self._task
        if self._task is not None and self._task.state:
            self._spinner.state = self._task.state

    def _end(self, envelope: JsonObject) -> int:
        result = RemoteResult.from_envelope(envelope)
        self._screen.finish()
        if self._as_json:
            return exit_code_of(result)
        code = exit_code_of(result) if result.ok else report(result, self._spinner.label)
        if result.ok or self._task is not None:
            self._say_how_to_go_on()
        return code

    def _say_how_to_go_on(self) -> None:
        task = self._task
        if task is None or task.is_over:
            return
        shown = task.id[:_SHORT_ID] if len(task.id) == _UUID else shlex.quote(task.id)
        if task.is_waiting:
            answer = self._whom.command(f'send --task {shown} "..."')
            say(f"Answer with: {answer}")
        else:
            say(f"The task goes on. Follow it: {self._whom.command(f'watch {shown}')}")
            say(f"Stop it: {self._whom.command(f'cancel {shown}')}")


def _show_task(result: RemoteResult) -> None:
    if result.task is None:
        return
    show(f"task     {result.task.id}")
    if result.context_id:
        show(f"context  {result.context_id}")
    show(f"state    {result.task.state or 'unknown'}")
    if result.text:
        show(f"\n{result.text}")
