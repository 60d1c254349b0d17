"""Read models of tasks in lists: rows, counts, search, and the page of tasks."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from openclaw_a2a.dashboard.requests import PageRequest
from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.scheduling.fair_queue import Pacer
from openclaw_a2a.engine.tasks.queries import LARGE_BYTES, task_json
from openclaw_a2a.engine.transcript.task_text import parts_text, status_text
from openclaw_a2a.model.errors import CorruptRecord, InvalidParams, Problem
from openclaw_a2a.model.ids import AccountId, AgentId, ContextId, Json, PeerName, TaskId
from openclaw_a2a.model.message import JsonStruct, Role, format_timestamp
from openclaw_a2a.model.records import TaskHead, decode_task, read_held_message
from openclaw_a2a.model.task import PAUSED, TERMINAL, Task, TaskState
from openclaw_a2a.model.validation import as_list, as_object
from openclaw_a2a.ports import (
    RecentHead,
    StatusQuery,
    SupportsTaskSearch,
    TaskFilter,
    TaskKey,
    TaskSearch,
)

_PAGE_SIZE = 50
_TITLE_CHARS = 160
_NOTE_CHARS = 600
_MAX_TITLES = 8192
_SEARCHED_AT_ONCE = 200
_MAX_SEARCHED = 4000
"""How many tasks one search reads; the next page goes on after them."""
_SEARCH_FRESH_S = 5.0
_MAX_SEARCHES = 32
_PLACE = "place-"
"""Before the place at which a search of the store goes on."""

TABS: Mapping[str, frozenset[TaskState]] = {
    "all": frozenset(),
    "waiting": PAUSED,
    "working": frozenset({TaskState.SUBMITTED, TaskState.WORKING}),
    "completed": frozenset({TaskState.COMPLETED}),
    "failed": frozenset({TaskState.FAILED, TaskState.REJECTED}),
    "canceled": frozenset({TaskState.CANCELED}),
}
"""The tabs of the page of tasks, with the states of each."""

_SHOWS_NOTE = PAUSED | {TaskState.FAILED, TaskState.REJECTED}


class TaskSummary(JsonStruct, frozen=True, omit_defaults=False):
    """A task in a list. `note`: what it asks, or why it failed; `is_held`: the operator decides."""

    id: TaskId
    context_id: ContextId
    caller: PeerName
    account: AccountId
    agent: AgentId | None
    state: str
    title: str
    note: str
    status_at: datetime
    created_at: datetime
    is_held: bool = False


class TaskListPage(JsonStruct, frozen=True, omit_defaults=False):
    """The page of tasks: a tab, its rows, and where the next page begins.

    `searched_until`: a search has looked at tasks down to this time, and the next page goes on.
    """

    tab: str
    counts: dict[str, int]
    tasks: tuple[TaskSummary, ...]
    total_size: int
    next: str = ""
    query: str = ""
    caller: str = ""
    account: str = ""
    agent: str = ""
    searched_until: datetime | None = None


_Found = tuple[tuple[TaskSummary, ...], str, datetime | None]
"""Rows, the `after` of the next page, and how far back was looked."""


class _KeptSearch(NamedTuple):
    made_at: float
    began_at: datetime
    found: _Found


class TaskReader:
    """Reads tasks of all callers, from the stores of all engines."""

    def __init__(self, engines: Collection[Engine]) -> None:
        self._engines = engines
        # The title of a task never changes, and its note not after its end. The oldest entry goes
        # first.
        self._texts: OrderedDict[TaskId, tuple[str, str | None]] = OrderedDict()
        # A page that is open is made again and again, and a search looks at the whole store.
        self._searches: OrderedDict[TaskSearch, _KeptSearch] = OrderedDict()
        self._searching = asyncio.Lock()

    async def count_states(self, chosen: TaskFilter) -> dict[TaskState, int]:
        """How many tasks are in each state, from the counters that the store keeps."""
        counts: dict[TaskState, int] = {}
        for state in TaskState:
            one = msgspec.structs.replace(chosen, state=state)
            numbers = [await engine.store.tasks.count_tasks(one) for engine in self._engines]
            counts[state] = sum(numbers)
        return counts

    async def list_heads(self, query: StatusQuery) -> list[tuple[Engine, RecentHead]]:
        """The tasks with the newest status, of all stores."""
        found = [
            (engine, one)
            for engine in self._engines
            for one in await engine.store.tasks.list_by_status(query)
        ]
        if len(self._engines) > 1:  # a store has sorted its own
            found.sort(key=lambda one: (one[1].head.status_at, one[1].head.id), reverse=True)
        return found[: query.limit]

    async def list_rows(self, query: StatusQuery) -> tuple[TaskSummary, ...]:
        """The same as rows."""
        return tuple([await self.row(*one) for one in await self.list_heads(query)])

    async def row(self, engine: Engine, found: RecentHead) -> TaskSummary:
        """A task as a row."""
        head = found.head
        title, note = self._texts.get(head.id, (None, None))
        if title is None or (note is None and head.state in _SHOWS_NOTE):
            task = await read_small_task(engine, head.id)
            title = "" if task is None else task_title(task)
            note = "" if task is None else status_text(task)[:_NOTE_CHARS]
            is_final = task is not None and head.state in TERMINAL
            self._keep_texts(head.id, title, note if is_final else None)
        return make_row(head, title, note or "", is_held=_is_held(found.resume))

    def _keep_texts(self, task_id: TaskId, title: str, note: str | None) -> None:
        self._texts[task_id] = title, note
        if len(self._texts) > _MAX_TITLES:
            self._texts.popitem(last=False)

    async def list_page(self, request: PageRequest) -> TaskListPage:
        """The page of tasks for the query of its address. Raises: InvalidParams."""
        query = request.query
        tab = query.get("tab", "all")
        if tab not in TABS:
            raise _invalid("tab", f"must be one of {', '.join(TABS)}")
        caller, account = query.get("caller", ""), query.get("account", "")
        chosen = TaskFilter(
            principal=PeerName(caller) if caller else None,
            account=AccountId(account) if account else None,
        )
        counts = tab_counts(await self.count_states(chosen))
        wanted = StatusQuery(
            _PAGE_SIZE, TABS[tab], principal=chosen.principal, account=chosen.account
        )
        text, agent = query.get("q", "").strip(), query.get("agent", "").strip()
        after, searched_until = query.get("after", ""), None
        if text or agent:
            rows, after, searched_until = await self._search(wanted, text, agent, after)
        else:
            wanted = msgspec.structs.replace(wanted, after=_read_key(after))
            rows = await self.list_rows(wanted)
            is_full = len(rows) == _PAGE_SIZE
            after = _write_key(TaskKey(rows[-1].status_at, rows[-1].id)) if is_full else ""
        return TaskListPage(
            tab,
            counts,
            rows,
            counts[tab],
            next=after,
            query=text,
            caller=caller,
            account=account,
            agent=agent,
            searched_until=searched_until,
        )

    async def _search(self, wanted: StatusQuery, text: str, agent: str, after: str) -> "_Found":
        """Rows that match, where to go on, and how far back was looked."""
        for engine in self._engines:
            # What people paste, nearly always: a whole id.
            known = await engine.store.tasks.measure_task(None, TaskId(text))
            if known is not None:
                return (await self.row(engine, RecentHead(known.head)),), "", None
        stores = [engine.store for engine in self._engines]
        if len(stores) == 1 and isinstance(stores[0], SupportsTaskSearch):
            search = TaskSearch(
                text,
                _SEARCHED_AT_ONCE,
                agent=agent,
                states=wanted.states,
                principal=wanted.principal,
                account=wanted.account,
                before=_read_place(after),
            )
            return await self._search_store(stores[0], search)
        return await self._scan(
            msgspec.structs.replace(wanted, after=_read_key(after)), text, agent
        )

    async def _search_store(self, store: SupportsTaskSearch, search: TaskSearch) -> "_Found":
        # One at a time: however many pages are open, searches take one thread.
        async with self._searching:
            kept = self._searches.get(search)
            if kept is None or time.monotonic() - kept.made_at > _SEARCH_FRESH_S:
                [engine] = self._engines
                began_at = engine.clock.now()
                found = await self._look_through(store, search)
                kept = _KeptSearch(time.monotonic(), began_at, found)
                self._searches[search] = kept
                self._searches.move_to_end(search)
                if len(self._searches) > _MAX_SEARCHES:
                    self._searches.popitem(last=False)
        # A page further back is of older tasks: it stays as it was found.
        return kept.found if search.before is not None else await self._update(search, kept)

    async def _update(self, search: TaskSearch, kept: "_KeptSearch") -> "_Found":
        """What was found, with the tasks that have another status since, as they are now."""
        query = StatusQuery(_PAGE_SIZE, principal=search.principal, account=search.account)
        newest = await self.list_heads(query)
        changed = [one for one in newest if one[1].head.status_at >= kept.began_at]
        rows, after, searched_until = kept.found
        matching: dict[TaskId, TaskSummary] = {}
        for engine, found in changed:
            is_in_tab = not search.states or found.head.state in search.states
            if is_in_tab and await self._matches(engine, found.head, search.text, search.agent):
                matching[found.head.id] = await self.row(engine, found)
        outdated = {found.head.id for _, found in changed} - matching.keys()
        updated = [matching.pop(one.id, one) for one in rows if one.id not in outdated]
        # What is left was not found before. If there are more pages, older tasks are on those.
        oldest = rows[-1].created_at if after and rows else None
        added = [one for one in matching.values() if oldest is None or one.created_at >= oldest]
        added.sort(key=lambda one: (one.created_at, one.id), reverse=True)
        return (*added, *updated), after, searched_until

    async def _look_through(self, store: SupportsTaskSearch, search: TaskSearch) -> "_Found":
        [engine] = self._engines
        rows: list[TaskSummary] = []
        matches = await store.search_tasks(search)
        for _ in range(_MAX_SEARCHED // _SEARCHED_AT_ONCE):
            pacer = Pacer()
            for place, one in matches.found:
                await pacer.pause()  # others have their turn meanwhile
                if await self._matches(engine, one.head, search.text, search.agent):
                    rows.append(await self.row(engine, one))
                    if len(rows) == _PAGE_SIZE:
                        return tuple(rows), f"{_PLACE}{place}", one.head.created_at
            if matches.next_before is None:
                return tuple(rows), "", None
            if len(matches.found) < search.limit:
                break  # it has looked as far back as one search does
            search = msgspec.structs.replace(search, before=matches.next_before)
            matches = await store.search_tasks(search)
        return tuple(rows), f"{_PLACE}{matches.next_before}", matches.looked_back_to

    async def _scan(self, wanted: StatusQuery, text: str, agent: str) -> "_Found":
        """The same in a store that does not search: so many tasks are read, and no more."""
        rows: list[TaskSummary] = []
        wanted = msgspec.structs.replace(wanted, limit=_SEARCHED_AT_ONCE)
        last: TaskKey | None = None
        pacer = Pacer()
        for _ in range(_MAX_SEARCHED // _SEARCHED_AT_ONCE):
            page = await self.list_heads(wanted)
            for engine, found in page:
                last = TaskKey(found.head.status_at, found.head.id)
                await pacer.pause()  # others have their turn meanwhile
                if await self._matches(engine, found.head, text, agent):
                    rows.append(await self.row(engine, found))
                    if len(rows) == _PAGE_SIZE:
                        return tuple(rows), _write_key(last), last.status_at
            if len(page) < _SEARCHED_AT_ONCE:
                return tuple(rows), "", None
            wanted = msgspec.structs.replace(wanted, after=last)
        is_over = last is None
        return tuple(rows), "" if is_over else _write_key(last), None if is_over else last.status_at

    async def _matches(self, engine: Engine, head: TaskHead, text: str, agent: str) -> bool:
        agent_id = "" if head.binding is None else head.binding.agent_id
        if agent and agent_id != agent:
            return False
        lower = text.lower()
        names = (head.id, head.context_id, head.scope.principal, agent_id)
        if any(lower in name.lower() for name in names):
            return True
        task = await read_small_task(engine, head.id)
        if task is None:
            return False
        texts = [parts_text(message.parts) for message in task.history]
        texts += [parts_text(artifact.parts) for artifact in task.artifacts]
        return any(lower in one.lower() for one in texts)


def tab_counts(counts: Mapping[TaskState, int]) -> dict[str, int]:
    """How many tasks each tab has."""
    return {tab: sum(counts[state] for state in (states or counts)) for tab, states in TABS.items()}


async def read_small_task(engine: Engine, task_id: TaskId) -> Task | None:
    """The task with its content; None when it is large, damaged, or gone."""
    try:
        measured = await engine.store.tasks.measure_task(None, task_id)
        if measured is None or measured.size > LARGE_BYTES:
            return None
        stored = await engine.store.tasks.read_task(None, task_id)
        return None if stored is None else decode_task(task_json(stored))
    except CorruptRecord:
        return None


def task_title(task: Task) -> str:
    """The first line of the first message; of a call, the skill and its input."""
    first = next((one for one in task.history if one.role is Role.USER), None)
    whole = "" if first is None else parts_text(first.parts).strip()
    text = _call_title(whole) or " ".join(whole.partition("\n")[0][: 4 * _TITLE_CHARS].split())
    if not text and first is not None:
        text = ", ".join(part.filename or part.kind for part in first.parts)
    return text if len(text) <= _TITLE_CHARS else f"{text[: _TITLE_CHARS - 1]}…"


class _Invocation(msgspec.Struct, tag="skill_invocation", tag_field="kind"):
    """The message of a call of one agent to another, as far as a title needs it."""

    skill: str
    input: msgspec.Raw = msgspec.Raw(b"{}")


class _Debate(msgspec.Struct):
    """The message that begins a debate."""

    topic: str
    proposer: msgspec.Raw


def _call_title(text: str) -> str:
    """Of a message between agents, which is JSON, what a person wants to read; else nothing."""
    try:
        if text.startswith('{"kind": "skill_invocation"'):
            found = msgspec.json.decode(text, type=_Invocation)
            given = _input_text(msgspec.json.decode(found.input))
            return f"{found.skill}: {given}" if given else found.skill
        if text.startswith('{"topic":'):
            return f"debate: {msgspec.json.decode(text, type=_Debate).topic}"
    except (ValueError, RecursionError):
        pass
    return ""


def _input_text(value: Json) -> str:
    """The texts and numbers in the input of a call."""
    inner = [*as_object(value).values(), *as_list(value)]
    if inner:
        return " · ".join(filter(None, map(_input_text, inner)))
    return " ".join(str(value).split()) if isinstance(value, str | int | float) else ""


def make_row(head: TaskHead, title: str, note: str, *, is_held: bool = False) -> TaskSummary:
    """The row of a task."""
    return TaskSummary(
        id=head.id,
        context_id=head.context_id,
        caller=head.scope.principal,
        account=head.scope.account,
        agent=None if head.binding is None else head.binding.agent_id,
        state=head.state.label,
        title=title,
        note=note if head.state in _SHOWS_NOTE else "",
        status_at=head.status_at,
        created_at=head.created_at,
        is_held=is_held,
    )


def _is_held(resume: bytes | None) -> bool:
    try:
        return read_held_message(resume) is not None
    except CorruptRecord:
        return False


def _write_key(key: TaskKey) -> str:
    # With all digits of the time: stores keep microseconds, and two pages must not overlap.
    return f"{key.status_at.isoformat()}~{key.id}"


def _read_key(text: str) -> TaskKey | None:
    if not text:
        return None
    moment, _, task_id = text.partition("~")
    try:
        at = datetime.fromisoformat(moment)
        if at.tzinfo is None:
            raise ValueError("it has no time zone")
        format_timestamp(at)  # a time that no store can hold is refused here
    except (ValueError, OverflowError):
        raise _invalid("after", "must be the `next` of the page before") from None
    return TaskKey(at, TaskId(task_id))


def _read_place(text: str) -> int | None:
    place = text.removeprefix(_PLACE)
    if not text:
        return None
    if not (text.startswith(_PLACE) and place.isdecimal() and len(place) < 19):
        raise _invalid("after", "must be the `next` of the page before")
    return int(place)


def _invalid(name: str, reason: str) -> InvalidParams:
    return InvalidParams(f"{name}: {reason}", problems=(Problem(name, reason),))
