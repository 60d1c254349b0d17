"""Actions of the operator on pages: cancel, answer, retry, decide, send.

All of it is audited: `ActionRequest.audited` writes the entry.
"""

from base64 import b64decode
from collections.abc import Awaitable, Collection
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec

from openclaw_a2a.dashboard.requests import (
    ActionRequest,
    ActionResult,
    invalid_member,
    read_form_text,
)
from openclaw_a2a.engine.approvals import ApprovalCache, ApprovalService
from openclaw_a2a.engine.audit_log import acting
from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.tasks.active_task import TaskCreated
from openclaw_a2a.engine.tasks.cancel import cancel_task
from openclaw_a2a.engine.tasks.queries import find_any_task, get_task, task_json
from openclaw_a2a.engine.tasks.results import wait_created
from openclaw_a2a.engine.tasks.submit import SubmitRequest, submit
from openclaw_a2a.model.errors import RouteNotFound, TaskNotFound
from openclaw_a2a.model.file_content import clean_filename
from openclaw_a2a.model.ids import AccountId, ContextId, MessageId, PeerName, TaskId
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.records import TaskHead, decode_task
from openclaw_a2a.model.session_keys import OPERATOR_NAME
from openclaw_a2a.model.task import Task
from openclaw_a2a.model.turn import Scope

MAX_UPLOAD_BYTES = 16 * 1024 * 1024
"""How large the form of a message with files may be."""
_Result = TypeVar("_Result")


class Actions:
    """Changes what the pages show."""

    def __init__(
        self,
        engines: Collection[Engine],
        approvals: ApprovalService,
        cache: ApprovalCache,
    ) -> None:
        self._engines = engines
        self._approvals = approvals
        self._cache = cache

    async def cancel(self, request: ActionRequest) -> ActionResult:
        """Stop a task. Raises: TaskNotFound, TaskNotCancelable, TaskNotLive, AgentUnavailable."""
        engine, head = await self._find(request)
        await self._audited(
            request, "task-canceled", cancel_task(engine, None, head.id), task=head.id
        )
        return ActionResult("The task was canceled.", task_address(head.id), head.id)

    async def answer(self, request: ActionRequest) -> ActionResult:
        """Answer a task that waits, for its caller. Raises: InvalidParams, TaskNotWaiting, ..."""
        text = read_form_text(request)
        engine, head = await self._find(request)
        message = Message(
            MessageId(engine.new_id()), Role.USER, (Part(text=text),), head.context_id, head.id
        )
        await self._audited(
            request,
            "operator-action",
            self._submit(engine, head.scope, message, request, is_answer=True),
            task=head.id,
            action="dashboard/answer",
        )
        return ActionResult("The answer was sent.", task_address(head.id), head.id)

    async def retry(self, request: ActionRequest) -> ActionResult:
        """Send the first message of a task again, as a new task in a context of its own."""
        engine, head = await self._find(request)
        stored = await get_task(engine, None, head.id)
        task = decode_task(task_json(stored))
        first = next((one for one in task.history if one.role is Role.USER), None)
        if first is None:
            raise TaskNotFound(f"task {task.id} has no message that could be sent again")
        message = Message(
            MessageId(engine.new_id()),
            Role.USER,
            first.parts,
            metadata=first.metadata,
            extensions=first.extensions,
            reference_task_ids=(task.id,),
        )
        made = await self._audited(
            request,
            "operator-action",
            self._submit(engine, head.scope, message, request),
            task=task.id,
            action="dashboard/retry",
        )
        return ActionResult("A new task does it again.", task_address(made.id), made.id)

    async def decide(self, request: ActionRequest) -> ActionResult:
        """Allow or deny an approval. Raises: ApprovalNotFound, ApprovalOver, AgentUnavailable."""
        [approval_id], decision = request.segments, request.form.get("decision")
        if decision not in ("allow", "deny"):
            raise invalid_member("decision", "must be allow or deny")
        allow = decision == "allow"
        work = self._approvals.decide(approval_id, allow=allow)
        await self._audited(request, "approval-decided", work, action=decision)
        self._cache.forget()
        done = "allowed" if allow else "denied"
        return ActionResult(f"It was {done}.", "/dashboard", approval_id)

    async def send(self, request: ActionRequest) -> ActionResult:
        """Send a message with files to the agent of an account, as the operator.

        Raises: InvalidParams, RouteNotFound, PartNotAccepted, ...
        """
        [account] = request.segments
        files = _read_files(request.form.get("files", ""))
        # A file needs no words.
        text = "" if files and not request.form.get("text", "").strip() else read_form_text(request)
        engine = next((one for one in self._engines if account in one.accounts), None)
        if engine is None:
            raise RouteNotFound(f"there is no account {account[:80]}; see the list of agents")
        scope = Scope(PeerName(OPERATOR_NAME), AccountId(account))
        context = request.form.get("context", "")
        parts = ((Part(text=text),) if text else ()) + files
        message = Message(
            MessageId(engine.new_id()), Role.USER, parts, ContextId(context) if context else None
        )
        made = await self._audited(
            request,
            "operator-action",
            self._submit(engine, scope, message, request),
            action="dashboard/send",
        )
        location = task_address(made.id)
        if request.form.get("chat"):
            query = urlencode({"context": made.context_id})
            location = f"/dashboard/agents/{quote(account, safe='')}?{query}#chat"
        return ActionResult("The message was sent.", location, made.id)

    async def _find(self, request: ActionRequest) -> tuple[Engine, TaskHead]:
        engine, found = await find_any_task(self._engines, request.segments[0])
        return engine, found.head

    async def _submit(
        self,
        engine: Engine,
        scope: Scope,
        message: Message,
        request: ActionRequest,
        *,
        is_answer: bool = False,
    ) -> Task:
        rules = engine.accounts.get(scope.account)
        if rules is None:
            raise RouteNotFound(f"account {scope.account} does not run; nothing was sent")
        asked = SubmitRequest(
            scope, message, is_blocking=False, is_answer=is_answer, address=request.address
        )
        rules = msgspec.structs.replace(rules, is_task_generating=True)
        created = await wait_created(engine, await submit(engine, asked, rules))
        if not isinstance(created, TaskCreated):
            raise TaskNotFound("the message was answered without a task; send it again")
        return created.task

    async def _audited(
        self,
        request: ActionRequest,
        event: str,
        work: Awaitable[_Result],
        *,
        task: str = "",
        action: str = "",
    ) -> _Result:
        acting.set((request.who, request.address))
        with request.audited(event, action=action or f"dashboard/{event}", task=task):
            return await work


def task_address(task_id: TaskId) -> str:
    """The address of the page of a task."""
    return f"/dashboard/tasks/{task_id}"


class _File(msgspec.Struct):
    name: str
    type: str
    content: str
    """In base64."""


def _read_files(text: str) -> tuple[Part, ...]:
    """The files of a form: a JSON list of `{name, type, content}`. Raises: InvalidParams."""
    if not text:
        return ()
    try:
        files = msgspec.json.decode(text, type=list[_File])
        contents = [b64decode(one.content, validate=True) for one in files]
    except (ValueError, RecursionError):
        reason = "must be a JSON list of {name, type, content in base64}"
        raise invalid_member("files", reason) from None
    return tuple(
        [
            Part.of_bytes(
                content,
                media_type=one.type or "application/octet-stream",
                filename=clean_filename(one.name) or None,
            )
            for one, content in zip(files, contents, strict=True)
        ]
    )
