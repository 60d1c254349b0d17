"""Read model of one task: what it waits for, its timeline, conversation, events and actions."""

import shlex
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from datetime import datetime

import msgspec

from openclaw_a2a.dashboard.requests import PageRequest, read_choice
from openclaw_a2a.dashboard.task_content import (
    MAX_SHOWN_TEXT,
    ShownEvent,
    Utterance,
    choose_events,
    make_conversation,
    read_edge_events,
)
from openclaw_a2a.dashboard.task_list import TaskSummary, make_row, task_title
from openclaw_a2a.dashboard.task_relations import (
    RelatedCall,
    RelatedNode,
    RelatedRemoteTask,
    RunUsage,
    find_calls,
    find_objective,
    make_tree,
    read_usage,
)
from openclaw_a2a.dashboard.task_timeline import (
    Bar,
    make_timeline,
    whole_seconds,
)
from openclaw_a2a.engine.approvals import ApprovalCache, WaitingApproval
from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.outbox.delivery_view import DeliveryReader, DeliveryView
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.tasks.queries import find_any_task, get_task
from openclaw_a2a.engine.transcript.task_text import parts_text, status_text
from openclaw_a2a.model.call import Call
from openclaw_a2a.model.ids import AccountId, ContextId, JsonObject, MessageId
from openclaw_a2a.model.message import JsonStruct, Message, Part, Role
from openclaw_a2a.model.records import Entry, TaskHead, read_held_message
from openclaw_a2a.model.task import (
    ACTIVE,
    PAUSED,
    TERMINAL,
    StatusUpdate,
    Task,
    TaskState,
)
from openclaw_a2a.model.turn import Binding, Scope
from openclaw_a2a.ports import MeasuredTask, TaskQuery

_FIRST_EVENTS, _LAST_EVENTS = 100, 400
"""How many events of a long task a page shows: the first and the last ones."""
_MAX_BYTES = 8 * 1024 * 1024
"""A task that is larger is shown without its content."""
_REASON_CHARS = 400
_SAME_CONTEXT = 20
_CHAT_TURNS = 20

ListCalls = Callable[[], Awaitable[Sequence[Call]]]
FindName = Callable[[str], Awaitable[str]]
FindRemote = Callable[[Engine, TaskHead, Task], Awaitable[Sequence[RelatedRemoteTask]]]

_NEW_ID = "NEW-ID"
_VARIABLE = "OPENCLAW_A2A_TOKEN"


class Headline(JsonStruct, frozen=True, omit_defaults=False):
    """One sentence: what the task waits for, or how it ended; `since` that is so."""

    text: str
    since: datetime


class Commands(JsonStruct, frozen=True, omit_defaults=False):
    """How the same message is sent again from elsewhere."""

    cli: str
    curl: str
    python: str


class TaskDetails(JsonStruct, frozen=True, omit_defaults=False):
    """The page of a task. `facts` is what the agent reported at its last pause or end.

    `session_url` is the session in OpenClaw's own interface; empty: its agent is no OpenClaw.
    """

    task: TaskSummary
    headline: Headline
    session_key: str
    session_url: str
    timeline: tuple[Bar, ...]
    timeline_seconds: float
    conversation: tuple[Utterance, ...]
    events: tuple[ShownEvent, ...]
    event_count: int
    show: str
    order: str
    calls: tuple[RelatedCall, ...]
    related: tuple[RelatedNode, ...]
    deliveries: tuple[DeliveryView, ...]
    same_context: tuple[TaskSummary, ...]
    usage: RunUsage | None
    facts: JsonObject
    metadata: JsonObject
    commands: Commands
    can_cancel: bool
    can_answer: bool
    can_retry: bool
    approval: WaitingApproval | None = None
    size: int = 0
    is_large: bool = False


class ChatTurn(JsonStruct, frozen=True, omit_defaults=False):
    """A message to an agent, and what came of it."""

    task: TaskSummary
    conversation: tuple[Utterance, ...]


class TaskDetailsReader:
    """Makes the page of a task, of any caller and store."""

    def __init__(
        self,
        engines: Collection[Engine],
        approvals: ApprovalCache,
        *,
        list_calls: ListCalls,
        deliveries: DeliveryReader,
        find_remote: FindRemote,
        objective_name: FindName,
        rpc_url: Callable[[AccountId], tuple[str, bool]],
        session_url: Callable[[Binding], str],
    ) -> None:
        """`rpc_url` gives where an account speaks JSON-RPC, and whether callers need a token there.

        `find_remote` gives the tasks at remote agents that a task is, `objective_name` the name of
        an objective (empty: it is gone), and `session_url` the address of a session in the
        interface of its host.
        """
        self._find_remote = find_remote
        self._objective_name = objective_name
        self._session_url = session_url
        self._rpc_url = rpc_url
        self._engines = engines
        self._approvals = approvals
        self._list_calls = list_calls
        self._deliveries = deliveries

    async def read_summary(self, task_id: str) -> tuple[Engine, TaskHead, TaskSummary, Task | None]:
        """The task as a row, and with its content unless it is large. Raises: as `read`."""
        engine, measured = await find_any_task(self._engines, task_id)
        head, task = await _read_content(engine, measured)
        return engine, head, make_row(head, "" if task is None else task_title(task), ""), task

    async def read_chat(self, scope: Scope, context_id: ContextId) -> tuple[ChatTurn, ...]:
        """What was said in a context, the oldest first; of large tasks nothing."""
        for engine in self._engines:
            if scope.account not in engine.accounts:
                continue
            query = TaskQuery(
                scope, _CHAT_TURNS, context_id=context_id, large_bytes=_MAX_BYTES, counts=False
            )
            page = await engine.store.tasks.list_tasks(query)
            heads = sorted([one.head for one in page.tasks], key=lambda head: head.created_at)
            turns = [await self.read_summary(head.id) for head in heads]
            return tuple([await _chat_turn(*turn) for turn in turns])
        return ()

    async def read(self, request: PageRequest) -> TaskDetails:
        """The page as it is now; `show` and `order` choose events.

        Raises: TaskNotFound, CorruptRecord, InvalidParams.
        """
        show = read_choice(request.query, "show", ("", "status", "artifact", "tool"))
        order = read_choice(request.query, "order", ("", "oldest", "newest")) or "oldest"
        engine, measured = await find_any_task(self._engines, request.segments[0])
        head, task = await _read_content(engine, measured)
        now = engine.clock.now()
        entries = await read_edge_events(engine, head, _FIRST_EVENTS, _LAST_EVENTS)
        approval = await self._find_approval(head)
        all_calls = await self._list_calls()
        calls = find_calls(all_calls, head)
        deliveries = await engine.store.deliveries.list_task_deliveries(None, head.id)
        held = read_held_message(await engine.store.tasks.read_resume_token(head.id))
        statuses = list(_statuses(entries))
        asked_at = None if approval is None else approval.asked_at
        timeline = make_timeline(head, entries, calls, deliveries, now, asked_at)
        title = "" if task is None else task_title(task)
        note = "" if task is None else status_text(task)
        metadata = {} if task is None else task.metadata or {}
        objective = find_objective(metadata)
        headline = _headline(engine, head, note, approval, calls)
        url, needs_token = self._rpc_url(_find_account(engine, head))
        if held is not None and head.state is TaskState.AUTH_REQUIRED:
            agent = head.binding.agent_id if head.binding else "its agent"
            text = f"Held for your decision before {agent} sees it: {held.hold.reason}"
            headline = Headline(text, head.status_at)
        return TaskDetails(
            task=make_row(head, title, note, is_held=held is not None),
            headline=headline,
            session_key="" if head.binding is None else head.binding.session_key,
            session_url="" if head.binding is None else self._session_url(head.binding),
            timeline=timeline,
            timeline_seconds=whole_seconds(timeline, now),
            conversation=() if task is None else tuple(make_conversation(task, entries)),
            events=choose_events(entries, show, order),
            event_count=head.sequence,
            show=show,
            order=order,
            calls=tuple(calls),
            related=make_tree(
                head,
                all_calls,
                metadata,
                () if task is None else await self._find_remote(engine, head, task),
                label=title or head.id,
                state=head.state.label,
                objective_name=await self._objective_name(objective) if objective else "",
            ),
            deliveries=tuple([await self._deliveries.view(one) for one in deliveries]),
            same_context=await _same_context(engine, head),
            usage=read_usage(statuses),
            facts=_last_report(statuses),
            metadata=metadata,
            commands=_commands(task, url, needs_token=needs_token),
            can_cancel=head.state not in TERMINAL,
            can_answer=head.state in PAUSED and held is None,
            can_retry=head.state in TERMINAL and task is not None,
            approval=approval,
            size=measured.size,
            is_large=task is None,
        )

    async def _find_approval(self, head: TaskHead) -> WaitingApproval | None:
        if head.state in TERMINAL:
            return None
        known = await self._approvals.current()
        return next((one for one in known.approvals if one.task_id == head.id), None)


async def _read_content(engine: Engine, measured: MeasuredTask) -> tuple[TaskHead, Task | None]:
    """The head and the task as they are now; without the task when it is large."""
    if measured.size > _MAX_BYTES:
        return measured.head, None
    stored = await get_task(engine, None, measured.head.id)
    return stored.head, (await TaskProjection.from_large(stored)).task()


# -------------------------------------------------------------------- the sentence on top


def _headline(
    engine: Engine,
    head: TaskHead,
    note: str,
    approval: WaitingApproval | None,
    calls: Sequence[RelatedCall],
) -> Headline:
    agent = "its agent" if head.binding is None else head.binding.agent_id
    seconds = (head.status_at - head.created_at).total_seconds()
    took, short = format_seconds(seconds), " ".join(note.split())[:_REASON_CHARS]
    reason = f": {short}" if short else "."
    if approval is not None:
        return Headline(f"Waits for your decision: {approval.command}", approval.asked_at)
    if head.state in ACTIVE:
        return Headline(_active_sentence(engine, head, agent, calls), head.status_at)
    texts = {
        TaskState.COMPLETED: f"{agent} completed it in {took}.",
        TaskState.FAILED: f"Failed after {took}{reason}",
        TaskState.CANCELED: f"Canceled after {took}.",
        TaskState.REJECTED: f"Rejected{reason}",
        TaskState.INPUT_REQUIRED: f"Waits for an answer of {head.scope.principal}{reason}",
        TaskState.AUTH_REQUIRED: f"Waits for {head.scope.principal} to sign in{reason}",
    }
    return Headline(texts.get(head.state, head.state.label), head.status_at)


def _active_sentence(
    engine: Engine, head: TaskHead, agent: str, calls: Sequence[RelatedCall]
) -> str:
    run = next((one for one in engine.runs.values() if one.record.task_id == head.id), None)
    if run is None:
        return f"No run of this gateway works on it; it is {head.state.label}."
    if not run.slot.has_turn:
        session = run.record.session_key
        others = [one.record for one in engine.runs.values() if one is not run]
        before = sum(one.session_key == session for one in others)
        if before:
            word = "run" if before == 1 else "runs"
            return f"Queued: {before} other {word} of its session {session} come first."
        return f"Queued: it waits for a free run slot of {agent} (limits.runs)."
    pending = [one.callee for one in calls if one.direction == "out" and one.status == "pending"]
    if pending:
        return f"{agent} works on it, and waits for the answer of {', '.join(pending)}."
    return f"{agent} works on it."


def format_seconds(seconds: float) -> str:
    """A duration for people: 4.2 ms, 0.4 s, 12 s, 3 min 5 s, 2 h 10 min."""
    if seconds < 0.1:
        return f"{max(seconds, 0) * 1000:.3g} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} days"


def _statuses(entries: Sequence[Entry]) -> Iterator[StatusUpdate]:
    for entry in entries:
        if entry.state is not None and isinstance(event := entry.event, StatusUpdate):
            yield event


def _last_report(statuses: Sequence[StatusUpdate]) -> JsonObject:
    """What the agent reported at its last pause or end."""
    for update in reversed(statuses):
        if update.metadata:
            return update.metadata
    return {}


async def _chat_turn(
    engine: Engine, head: TaskHead, row: TaskSummary, task: Task | None
) -> ChatTurn:
    entries = await read_edge_events(engine, head, _FIRST_EVENTS, _LAST_EVENTS)
    return ChatTurn(row, () if task is None else tuple(make_conversation(task, entries)))


# -------------------------------------------------------------------- relations


async def _same_context(engine: Engine, head: TaskHead) -> tuple[TaskSummary, ...]:
    query = TaskQuery(head.scope, _SAME_CONTEXT, context_id=head.context_id, large_bytes=0)
    page = await engine.store.tasks.list_tasks(query)
    return tuple([make_row(one.head, "", "") for one in page.tasks if one.head.id != head.id])


def _find_account(engine: Engine, head: TaskHead) -> AccountId:
    """The account that has the agent of a task: a step of a plan may have that of another one."""
    own, rules = head.scope.account, engine.accounts
    if head.binding is None:
        return own
    agent = head.binding.agent_id
    having = [one for one, rule in rules.items() if rule.agent_id == agent]
    return own if own in having or not having else having[0]


def _commands(task: Task | None, url: str, *, needs_token: bool) -> Commands:
    first = next((one for one in task.history if one.role is Role.USER), None) if task else None
    parts = (Part(text="..."),) if first is None else first.parts
    if sum(len(part.raw or part.text or "") for part in parts) > MAX_SHOWN_TEXT:
        parts = (Part(text="(the message is too long for a command line)"),)
    message = Message(MessageId(_NEW_ID), Role.USER, parts)
    body: JsonObject = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "SendMessage",
        "params": {"message": msgspec.to_builtins(message)},
    }
    text, encoded = parts_text(parts).strip(), msgspec.json.encode(body).decode()
    body = msgspec.json.decode(encoded)  # with lists, as people write them
    base = url.partition("/a2a/")[0]
    # A message with an id that was sent before is answered with the task of that one: each use
    # makes an id. The id comes before the text, which may have the same word in it.
    before, _, after = encoded.partition(_NEW_ID)
    # Not a token itself: pages show none. The command reads the same variable.
    curl_token = f'-H "Authorization: Bearer ${_VARIABLE}" ' if needs_token else ""
    python_os = "import os\n" if needs_token else ""
    python_token = (
        f", 'Authorization': 'Bearer ' + os.environ['{_VARIABLE}']" if needs_token else ""
    )
    return Commands(
        cli=f"openclaw-a2a send --url {shlex.quote(base)} {shlex.quote(text)}",
        curl=(
            f"curl -sS {shlex.quote(url)} -H 'Content-Type: application/json' \\\n"
            f"  -H 'A2A-Version: 1.0' {curl_token}-d {shlex.quote(before)}$(date +%s)-$RANDOM"
            f"{shlex.quote(after)}"
        ),
        python=(
            f"{python_os}import uuid\n\nimport httpx\n\n"
            f"body = {repr(body).replace(repr(_NEW_ID), 'uuid.uuid4().hex', 1)}\n"
            f"headers = {{'A2A-Version': '1.0'{python_token}}}\n"
            f"answer = httpx.post({url!r}, json=body, headers=headers)\n"
            "print(answer.json())"
        ),
    )
