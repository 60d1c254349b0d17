"""Read models of who may call (tokens and peers) and of who changed what (the audit log)."""

import os
from collections import Counter
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import anyio.to_thread

from openclaw_a2a.auth.principal import Scope
from openclaw_a2a.auth.tokens import Token, TokenKind, TokenStore
from openclaw_a2a.dashboard.requests import (
    ActionRequest,
    ActionResult,
    PageRequest,
    invalid_member,
    read_choice,
)
from openclaw_a2a.engine.audit_file import AUDIT_FILE, decode_line
from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.http.rate_limit import RequestLimit
from openclaw_a2a.http.request_limits import RefusalCounts
from openclaw_a2a.http.sse_stream import SseStreams
from openclaw_a2a.model.ids import JsonObject, PeerName
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.ports import StatusQuery, TaskFilter
from openclaw_a2a.settings import Limits

_LISTED = 300
_MAX_CALLERS = 100
_TAIL_BYTES = 512 * 1024
_KINDS = {"a2a": TokenKind.PEER, "dashboard": TokenKind.PEER, "tools": TokenKind.TOOL}
"""What tokens that are made from a page may be for: none that could make more of them."""
_CALLERS = "/dashboard/callers"


class TokenView(JsonStruct, frozen=True, omit_defaults=False):
    """A token, without its text, which is stored nowhere."""

    id: str
    name: str
    kind: str
    scopes: tuple[str, ...]
    accounts: tuple[str, ...] | None
    agents: tuple[str, ...] | None
    created_at: datetime
    expires_at: datetime | None
    used_at: datetime | None
    is_valid: bool


class CallerLimits(JsonStruct, frozen=True, omit_defaults=False):
    """What one caller may have at most; `requests` is per minute, and 0 limits nothing."""

    requests: float
    runs: int
    queue: int
    streams: int


class CallerUsage(JsonStruct, frozen=True, omit_defaults=False):
    """What a caller has now, and what it has had.

    `requests` count against its rate now; those of `local` are not limited, and not counted.
    `refusals` are requests that were answered with an error since the start of the gateway.
    """

    name: str
    is_peer: bool
    tokens: int
    tasks: int
    failed: int
    requests: int
    runs: int
    queued: int
    streams: int
    refusals: int


class CallersPage(JsonStruct, frozen=True, omit_defaults=False):
    """Who may call, and who does. `is_open`: on this machine no credentials are needed.

    `is_cut`: there are more callers; those that use least are left out.
    """

    tokens: tuple[TokenView, ...]
    peers: tuple[str, ...]
    is_open: bool
    limits: CallerLimits
    usage: tuple[CallerUsage, ...]
    is_cut: bool = False


class CallerUsageReader:
    """Reads what callers use, from the counters with which the gateway limits them."""

    def __init__(
        self,
        engines: Collection[Engine],
        limits: Limits,
        *,
        rate: RequestLimit,
        streams: SseStreams,
        refusals: RefusalCounts,
    ) -> None:
        self._engines = engines
        self._rate = rate
        self._streams = streams
        self._refusals = refusals
        self.limits = CallerLimits(
            requests=limits.per_peer_requests,
            runs=limits.share(limits.per_peer_runs, limits.runs),
            queue=limits.share(limits.per_peer_queue, limits.queue),
            streams=limits.share(limits.per_peer_streams, limits.streams),
        )

    async def read(
        self, peers: Collection[str], tokens: Mapping[str, int]
    ) -> tuple[tuple[CallerUsage, ...], bool]:
        """The callers that use most, and whether there are more.

        `tokens` says how many tokens for A2A each name has.
        """
        runs: Counter[str] = Counter()
        queued: Counter[str] = Counter()
        for engine in self._engines:
            for run in engine.runs.values():
                (runs if run.slot.has_turn else queued)[run.record.scope.principal] += 1
        requests, streams = self._rate.usage(), self._streams.by_caller()
        refusals = self._refusals.by_caller
        names = {*peers, *tokens, *runs, *queued, *requests, *refusals, *await self._recent()}
        names |= {name for name in streams if name is not None}
        order = sorted(names, key=lambda one: (-runs[one], -queued[one], one))
        found = [
            CallerUsage(
                name=name,
                is_peer=name in peers,
                tokens=tokens.get(name, 0),
                tasks=await self._count(TaskFilter(PeerName(name))),
                failed=await self._count(TaskFilter(PeerName(name), state=TaskState.FAILED)),
                requests=requests.get(PeerName(name), 0),
                runs=runs[name],
                queued=queued[name],
                streams=streams.get(name, 0),
                refusals=refusals[name],
            )
            for name in order[:_MAX_CALLERS]
        ]
        return tuple(found), len(names) > _MAX_CALLERS

    async def _recent(self) -> set[str]:
        """Who has sent the tasks that changed last."""
        query = StatusQuery(_MAX_CALLERS)
        return {
            one.head.scope.principal
            for engine in self._engines
            for one in await engine.store.tasks.list_by_status(query)
        }

    async def _count(self, chosen: TaskFilter) -> int:
        return sum([await engine.store.tasks.count_tasks(chosen) for engine in self._engines])


class Callers:
    """Reads, makes and revokes tokens."""

    def __init__(self, folder: Path, peers: Collection[str], usage: CallerUsageReader) -> None:
        """`peers` are those of the settings."""
        self._usage = usage
        self._store = TokenStore(folder, peers=peers, are_commands=False)
        self._peers = tuple(sorted(peers))

    async def list(self, _: PageRequest) -> JsonStruct:
        """The page. Raises: CorruptRecord (the token file)."""
        used, now = self._store.last_used(), datetime.now(UTC)
        tokens = [_view(one, used.get(one.id), now) for one in self._store.list_tokens()]
        is_open = not self._peers and not self._store.peers_need_tokens()
        peer_tokens = Counter(one.name for one in tokens if one.kind == TokenKind.PEER.value)
        usage, is_cut = await self._usage.read(self._peers, peer_tokens)
        return CallersPage(
            tuple(reversed(tokens)), self._peers, is_open, self._usage.limits, usage, is_cut
        )

    async def create(self, request: ActionRequest) -> ActionResult:
        """Make a token; its text is in the result, and nowhere else.

        Raises: InvalidParams, CorruptRecord.
        """
        name, days = request.form.get("name", "").strip(), request.form.get("days", "")
        wanted = read_choice(request.form, "scope", _KINDS)
        if days and not (days.isdecimal() and 1 <= int(days[:6]) <= 3650):
            raise invalid_member("days", "must be from 1 to 3650, or left out")
        expires_at = datetime.now(UTC) + timedelta(days=int(days)) if days else None
        create = partial(
            self._store.create,
            name,
            _KINDS[wanted],
            scopes={Scope(wanted)},
            expires_at=expires_at,
        )
        with request.audited("token-created", action="dashboard", target=name):
            # In a thread: the file is written under a lock that a command may hold.
            text = await anyio.to_thread.run_sync(create)
        message = f"The token of {name}, which is not shown again: {text}"
        return ActionResult(message, _CALLERS, name, text)

    async def revoke(self, request: ActionRequest) -> ActionResult:
        """Make a token invalid, at once. Raises: InvalidParams, CorruptRecord."""
        [token_id] = request.segments
        known = {one.id: one.name for one in self._store.list_tokens()}
        if token_id not in known:
            raise invalid_member("id", "is not that of a token")
        with request.audited("token-revoked", action="dashboard", target=known[token_id]):
            await anyio.to_thread.run_sync(self._store.revoke, token_id)
        return ActionResult("The token is not valid any more.", _CALLERS, token_id)


_FILTERS = ("event", "who", "outcome")


class AuditPage(JsonStruct, frozen=True, omit_defaults=False):
    """The newest entries of the audit log that the filters choose, the last one first.

    `choices` are the values there are for each filter; `query` is a text that entries have
    somewhere; `searched` is how many entries were looked at.
    """

    entries: tuple[JsonObject, ...]
    event: str
    who: str
    outcome: str
    query: str
    choices: dict[str, tuple[str, ...]]
    searched: int


class AuditReader:
    """Reads the end of the audit log in a data folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / AUDIT_FILE

    async def read(self, request: PageRequest) -> JsonStruct:
        """The page."""
        wanted = {name: request.query.get(name, "") for name in _FILTERS}
        text = request.query.get("q", "").strip()
        lines = await anyio.to_thread.run_sync(self._read_tail)
        choices: dict[str, set[str]] = {name: set() for name in _FILTERS}
        entries: list[JsonObject] = []
        for line in reversed(lines):
            try:
                entry = decode_line(line)
            except (ValueError, RecursionError):
                continue  # `audit verify` is for finding damage
            for name, values in choices.items():
                values.add(str(entry.get(name, "")))
            is_chosen = all(not value or entry.get(name) == value for name, value in wanted.items())
            is_found = not text or text.lower() in str([*entry.values()]).lower()
            if is_chosen and is_found and len(entries) < _LISTED:
                entries.append(entry)
        return AuditPage(
            tuple(entries),
            **wanted,
            query=text,
            choices={name: tuple(sorted(values - {""})) for name, values in choices.items()},
            searched=len(lines),
        )

    def _read_tail(self) -> list[bytes]:
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _TAIL_BYTES))
                lines = file.read(_TAIL_BYTES).splitlines()
        except FileNotFoundError:
            return []
        return lines[1:] if size > _TAIL_BYTES else lines


def _view(token: Token, used_at: datetime | None, now: datetime) -> TokenView:
    return TokenView(
        id=token.id,
        name=token.name,
        kind=token.kind.value,
        scopes=tuple(sorted(one.value for one in token.scopes)),
        accounts=None if token.accounts is None else tuple(sorted(token.accounts)),
        agents=None if token.agents is None else tuple(sorted(token.agents)),
        created_at=token.created_at,
        expires_at=token.expires_at,
        used_at=used_at,
        is_valid=token.is_valid(now),
    )
