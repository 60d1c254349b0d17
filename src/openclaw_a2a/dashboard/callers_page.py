"""Read models of who may call (tokens and peers) and of who changed what (the audit log)."""

import os
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio.to_thread

from openclaw_a2a.auth.principal import Scope
from openclaw_a2a.auth.tokens import Token, TokenKind, TokenStore
from openclaw_a2a.dashboard.actions import ActionRequest, ActionResult
from openclaw_a2a.dashboard.endpoint import PageRequest
from openclaw_a2a.engine.audit_log import AUDIT_FILE, AuditLog, audit_outcome, decode_line
from openclaw_a2a.model.errors import InvalidParams, Problem
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.message import JsonStruct

_LISTED = 300
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


class CallersPage(JsonStruct, frozen=True, omit_defaults=False):
    """Who may call. `is_open`: on this machine no credentials are needed."""

    tokens: tuple[TokenView, ...]
    peers: tuple[str, ...]
    is_open: bool


class Callers:
    """Reads, makes and revokes tokens."""

    def __init__(self, folder: Path, peers: Collection[str], audit: AuditLog) -> None:
        """`peers` are those of the settings."""
        self._store = TokenStore(folder, peers=peers, are_commands=False)
        self._peers = tuple(sorted(peers))
        self._audit = audit

    async def list(self, _: PageRequest) -> JsonStruct:
        """The page. Raises: CorruptRecord (the token file)."""
        used, now = self._store.last_used(), datetime.now(UTC)
        tokens = [_view(one, used.get(one.id), now) for one in self._store.list_tokens()]
        is_open = not self._peers and not self._store.peers_need_tokens()
        return CallersPage(tuple(reversed(tokens)), self._peers, is_open)

    async def create(self, request: ActionRequest) -> ActionResult:
        """Make a token; its text is in the result, and nowhere else.

        Raises: InvalidParams, CorruptRecord.
        """
        name, wanted = request.form.get("name", "").strip(), request.form.get("scope", "")
        days = request.form.get("days", "")
        if wanted not in _KINDS:
            problem = Problem("scope", f"must be one of {', '.join(_KINDS)}")
            raise InvalidParams(f"scope {problem.message}", problems=(problem,))
        if days and not (days.isdecimal() and 1 <= int(days[:6]) <= 3650):
            problem = Problem("days", "must be from 1 to 3650, or left out")
            raise InvalidParams(f"days {problem.message}", problems=(problem,))
        expires_at = datetime.now(UTC) + timedelta(days=int(days)) if days else None
        text = await self._change(
            request,
            "token-created",
            name,
            lambda: self._store.create(
                name, _KINDS[wanted], scopes={Scope(wanted)}, expires_at=expires_at
            ),
        )
        message = f"The token of {name}, which is not shown again: {text}"
        return ActionResult(message, _CALLERS, name)

    async def revoke(self, request: ActionRequest) -> ActionResult:
        """Make a token invalid, at once. Raises: InvalidParams, CorruptRecord."""
        [token_id] = request.segments
        known = {one.id: one.name for one in self._store.list_tokens()}
        if token_id not in known:
            problem = Problem("id", "is not that of a token")
            raise InvalidParams(f"id {problem.message}", problems=(problem,))
        await self._change(
            request, "token-revoked", known[token_id], lambda: str(self._store.revoke(token_id))
        )
        return ActionResult("The token is not valid any more.", _CALLERS, token_id)

    async def _change(
        self, request: ActionRequest, event: str, target: str, change: Callable[[], str]
    ) -> str:
        error: BaseException | None = None
        try:
            # The file is written under a lock that a command may hold.
            return await anyio.to_thread.run_sync(change)
        except BaseException as raised:  # whatever it is: something may have been changed
            error = raised
            raise
        finally:
            self._audit.record(
                event,
                request.who,
                action="dashboard",
                target=target,
                address=request.address,
                **audit_outcome(error),
            )


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
