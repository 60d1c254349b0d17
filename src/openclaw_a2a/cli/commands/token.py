"""`token`: make, list and revoke tokens for callers of tools."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from openclaw_a2a.auth.tool_tokens import TOOL_TOKENS_FILE, TokenKind, ToolToken, ToolTokens
from openclaw_a2a.cli.errors import DONE, next_step, usage_error
from openclaw_a2a.cli.flags import ConfigFlag, JsonFlag, data_override
from openclaw_a2a.cli.render.terminal import ItemTable, print_json, print_message, print_result
from openclaw_a2a.model.errors import NotAllowed
from openclaw_a2a.settings import local_gateway

app = App(name="token", help="Create, list and revoke tool tokens.")

_SEE = "See who has one: openclaw-a2a token list"
_EMPTY = "Nobody has a token for tools. Make one: openclaw-a2a token create --tool NAME"
_KEEP = "Keep it now: it is not shown again. Callers send it as `Authorization: Bearer <token>`."
_TABLE = ItemTable[ToolToken](
    {
        "NAME": lambda token, _: token.name,
        "KIND": lambda token, _: token.kind.value,
        "CREATED": lambda token, _: f"{token.created_at:%Y-%m-%d %H:%M}Z",
    }
)


@Parameter(name="*")
@dataclass(frozen=True)
class TokenOptions:
    """The gateway whose tokens are meant, and the form of the output."""

    config: ConfigFlag = None
    data: Annotated[Path | None, Parameter(help="The data folder of the gateway.")] = None
    as_json: JsonFlag = False

    def tokens(self) -> ToolTokens:
        """Its tokens. Raises: SettingsInvalid."""
        gateway = local_gateway(self.config, overrides=data_override(self.data))
        return ToolTokens(gateway.data / TOOL_TOKENS_FILE)


DEFAULT_OPTIONS = TokenOptions()


@app.command
def create(
    *,
    tool: Annotated[str, Parameter(help="A name for who calls tools with it.")],
    host: Annotated[
        bool,
        Parameter(negative=(), help="Its holder may say for which agent and session it calls."),
    ] = False,
    options: TokenOptions = DEFAULT_OPTIONS,
) -> int:
    """Make a token with which tools may be called. It is shown once and kept hashed.

    A running gateway knows it at once. A name that has a token gets a second one, so that one can
    be replaced by the other.
    """
    kind = TokenKind.HOST if host else TokenKind.TOOL
    try:
        text = options.tokens().create(tool, kind)
    except OSError as error:
        raise _not_written(error) from None
    document = {"name": tool, "kind": kind, "token": text}
    print_result(document, text, as_json=options.as_json)
    if not options.as_json:
        print_message(_KEEP)
    return DONE


@app.command(name="list")
def list_(*, options: TokenOptions = DEFAULT_OPTIONS) -> int:
    """List who has a token; the tokens themselves are not kept."""
    tokens = options.tokens().list_tokens()
    if options.as_json:
        rows = [{"name": t.name, "kind": t.kind, "createdAt": t.created_at} for t in tokens]
        print_json({"tokens": rows})
    else:
        _TABLE.print(tokens, empty=_EMPTY)
    return DONE


@app.command
def revoke(
    name: Annotated[str, Parameter(help="The name the tokens were made for.")],
    /,
    *,
    options: TokenOptions = DEFAULT_OPTIONS,
) -> int:
    """Revoke every token of a name, at once."""
    try:
        count = options.tokens().revoke(name)
    except OSError as error:
        raise _not_written(error) from None
    if not count:
        raise usage_error(f"nobody called {name} has a token", _SEE, code="token-not-found")
    document = {"name": name, "revoked": count}
    print_result(document, f"{name}  {count} revoked", as_json=options.as_json)
    return DONE


def _not_written(error: OSError) -> NotAllowed:
    message = f"the tokens cannot be written: {error.strerror or error}"
    step = "Name the gateway's data folder with --data."
    return NotAllowed(message, details=next_step("token-file", step))
