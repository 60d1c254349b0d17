"""`token`: create, list, rotate and revoke the tokens of peers and of callers of tools."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, NamedTuple

from cyclopts import App, Parameter

from openclaw_a2a.auth.principal import Scope
from openclaw_a2a.auth.tokens import Token, TokenKind, TokenStore
from openclaw_a2a.cli.errors import DONE, next_step, usage_error
from openclaw_a2a.cli.options import DEFAULT_FOLDER, FolderOptions
from openclaw_a2a.cli.render.terminal import (
    ItemTable,
    format_duration,
    print_json,
    print_message,
    print_result,
)
from openclaw_a2a.model.errors import NotAllowed
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.settings.sections import ScopeName

app = App(name="token", help="Create, list, rotate and revoke tokens of peers and tools.")

_SEE = "See who has one: openclaw-a2a token list"
_EMPTY = "Nobody has a token. Make one: openclaw-a2a token create NAME (for tools: --tool NAME)"
_KEEP = "Keep it now: it is not shown again. Callers send it as `Authorization: Bearer <token>`."
_NOW_NEEDED = "From now on every A2A caller of this gateway must show a token."
_NONE_LEFT = "No peer has a token now, and none is admitted until you make one."
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_MAX_DAYS = 36_500
_DURATION = re.compile(r"([0-9]{1,9})([smhdw])")


class _Row(NamedTuple):
    token: Token
    last_used: datetime | None


def _expiry(token: Token, now: datetime) -> str:
    if token.expires_at is None:
        return "never"
    left = (token.expires_at - now).total_seconds()
    return f"in {format_duration(left)}" if left > 0 else "expired"


def _limits(token: Token) -> str:
    accounts = [f"account {name}" for name in sorted(token.accounts or ())]
    return ", ".join([*accounts, *(f"agent {name}" for name in sorted(token.agents or ()))]) or "-"


def _scopes(token: Token) -> list[str]:
    return sorted(scope.value for scope in token.scopes)


_TABLE = ItemTable[_Row](
    {
        "ID": lambda row, _: row.token.id,
        "NAME": lambda row, _: row.token.name,
        "KIND": lambda row, _: row.token.kind.value,
        "SCOPES": lambda row, _: ",".join(_scopes(row.token)),
        "CREATED": lambda row, _: f"{row.token.created_at:%Y-%m-%d %H:%M}Z",
        "EXPIRES": lambda row, now: _expiry(row.token, now),
        "LAST USED": lambda row, _: f"{row.last_used:%Y-%m-%d %H:%M}Z" if row.last_used else "-",
        "LIMITED TO": lambda row, _: _limits(row.token),
    },
    optional=("CREATED", "KIND"),
)


ExpiresFlag = Annotated[
    str | None, Parameter(help="How long it is valid, such as 12h or 30d; left out: for ever.")
]


@app.command
def create(
    name: Annotated[str | None, Parameter(help="A name for the peer that calls with it.")] = None,
    /,
    *,
    tool: Annotated[str | None, Parameter(help="A name for who calls tools with it.")] = None,
    scope: Annotated[
        list[ScopeName] | None,
        Parameter(
            negative=(),
            help="What it is valid for, if not for A2A (or --tool: tools); may be repeated.",
        ),
    ] = None,
    account: Annotated[
        list[str] | None,
        Parameter(negative=(), help="Valid at this account only; may be repeated."),
    ] = None,
    agent: Annotated[
        list[str] | None, Parameter(negative=(), help="Valid for this agent only; may be repeated.")
    ] = None,
    expires: ExpiresFlag = None,
    host: Annotated[
        bool,
        Parameter(negative=(), help="Its holder may say for which agent and session it calls."),
    ] = False,
    options: FolderOptions = DEFAULT_FOLDER,
) -> int:
    """Make a token for a peer, or with --tool for tools. It is shown once and kept hashed.

    A running gateway knows it at once. A name that has a token gets a second one, so that one can
    be replaced by the other.
    """
    owner = name or tool
    if owner is None or (name and tool):
        text = "name the peer (token create NAME) or the caller of tools (--tool NAME)"
        raise usage_error(text, _SEE, code="token-name")
    scopes = [Scope(one) for one in scope or ()]
    kind = TokenKind.PEER if name and Scope.TOOLS not in scopes else TokenKind.TOOL
    if host:
        if kind is TokenKind.PEER:
            raise usage_error("--host is for tokens of tools", _SEE, code="token-host")
        kind = TokenKind.HOST
    tokens = TokenStore(options.folder())
    needed_before = tokens.peers_need_tokens()
    expires_at = _parse_expiry(expires)
    with _reporting_writes():
        text = tokens.create(
            owner, kind, scopes=scopes, accounts=account, agents=agent, expires_at=expires_at
        )
    _print_token(tokens, text, as_json=options.as_json)
    if tokens.peers_need_tokens() and not needed_before and not options.as_json:
        print_message(_NOW_NEEDED)
    return DONE


@app.command(name="list")
def list_(*, options: FolderOptions = DEFAULT_FOLDER) -> int:
    """List who has a token; the tokens themselves are not kept."""
    tokens = TokenStore(options.folder())
    used = tokens.last_used()
    rows = [_Row(token, used.get(token.id)) for token in tokens.list_tokens()]
    if options.as_json:
        shown = [{**_token_json(row.token), "lastUsedAt": row.last_used} for row in rows]
        print_json({"tokens": shown})
    else:
        _TABLE.print(rows, empty=_EMPTY)
    return DONE


@app.command
def rotate(
    token: Annotated[str, Parameter(help="Its id, or the name of an owner with one token.")],
    /,
    *,
    grace: Annotated[str, Parameter(help="How long the old one stays valid, such as 1h.")] = "1d",
    expires: ExpiresFlag = None,
    options: FolderOptions = DEFAULT_FOLDER,
) -> int:
    """Make a token like another one, which stays valid for the grace time.

    The new one is valid for the same, and for as long as the old one was meant to be.
    """
    tokens = TokenStore(options.folder())
    span, expires_at = _duration("--grace", grace), _parse_expiry(expires)
    with _reporting_writes():
        text = tokens.rotate(token, grace=span, expires_at=expires_at)
    _print_token(tokens, text, as_json=options.as_json)
    return DONE


@app.command
def revoke(
    token: Annotated[str, Parameter(help="Its id, or a name: then all tokens of that name.")],
    /,
    *,
    options: FolderOptions = DEFAULT_FOLDER,
) -> int:
    """Revoke a token, or every token of a name, at once."""
    tokens = TokenStore(options.folder())
    with _reporting_writes():
        count = tokens.revoke(token)
    if not count:
        raise usage_error(f"there is no token {token}", _SEE, code="token-not-found")
    document = {"name": token, "revoked": count}
    print_result(document, f"{token}  {count} revoked", as_json=options.as_json)
    has_peers = any(Scope.A2A in one.scopes for one in tokens.list_tokens())
    if tokens.peers_need_tokens() and not has_peers and not options.as_json:
        print_message(_NONE_LEFT)
    return DONE


def _print_token(tokens: TokenStore, text: str, *, as_json: bool) -> None:
    token = tokens.find(text.encode())
    document = {**(_token_json(token) if token else {}), "token": text}
    print_result(document, text, as_json=as_json)
    if not as_json:
        print_message(_KEEP)


def _token_json(token: Token) -> JsonObject:
    return {
        "id": token.id,
        "name": token.name,
        "kind": token.kind,
        "scopes": _scopes(token),
        "accounts": None if token.accounts is None else sorted(token.accounts),
        "agents": None if token.agents is None else sorted(token.agents),
        "createdAt": token.created_at,
        "expiresAt": token.expires_at,
    }


def _parse_expiry(expires: str | None) -> datetime | None:
    return None if expires is None else datetime.now(UTC) + _duration("--expires", expires)


def _duration(flag: str, text: str) -> timedelta:
    found = _DURATION.fullmatch(text)
    seconds = int(found[1]) * _UNITS[found[2]] if found else -1
    if not 0 <= seconds <= _MAX_DAYS * _UNITS["d"]:
        message = f"{flag} {text}: write a number and one of s, m, h, d, w, such as 30d"
        raise usage_error(message, "See: openclaw-a2a token --help", code="duration")
    return timedelta(seconds=seconds)


@contextmanager
def _reporting_writes() -> Generator[None]:
    """Raises: NotAllowed, when the file of the tokens cannot be written."""
    try:
        yield
    except OSError as error:
        message = f"the tokens cannot be written: {error.strerror or error}"
        step = "Name the gateway's data folder with --data."
        raise NotAllowed(message, details=next_step("token-file", step)) from None
