"""`token`: make, list and revoke tokens for callers of tools."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from openclaw_a2a.auth.tool_tokens import TOOL_TOKENS_FILE, TokenKind, ToolToken, ToolTokens
from openclaw_a2a.cli.errors import DONE
from openclaw_a2a.cli.flags import ConfigFlag, JsonFlag, data_override
from openclaw_a2a.cli.render.terminal import print_data, print_json, print_message, print_table
from openclaw_a2a.model.errors import InvalidRequest, NotAllowed
from openclaw_a2a.settings import local_gateway

app = App(name="token", help="Create, list and revoke tool tokens.")

_SEE = "See who has one: openclaw-a2a token list"


@Parameter(name="*")
@dataclass(frozen=True)
class Folder:
    """The gateway whose tokens are meant."""

    config: ConfigFlag = None
    data: Annotated[Path | None, Parameter(help="The data folder of the gateway.")] = None

    def tokens(self) -> ToolTokens:
        """Its tokens. Raises: SettingsInvalid."""
        gateway = local_gateway(self.config, overrides=data_override(self.data))
        return ToolTokens(gateway.data / TOOL_TOKENS_FILE)


FOLDER = Folder()


@app.command
def create(
    *,
    tool: Annotated[str, Parameter(help="A name for who calls tools with it.")],
    host: Annotated[
        bool,
        Parameter(negative=(), help="Its holder may say for which agent and session it calls."),
    ] = False,
    folder: Folder = FOLDER,
    as_json: JsonFlag = False,
) -> int:
    """Make a token with which tools may be called. It is shown once and kept hashed.

    A running gateway knows it at once. A name that has a token gets a second one, so that one can
    be replaced by the other.
    """
    kind = TokenKind.HOST if host else TokenKind.TOOL
    try:
        text = folder.tokens().create(tool, kind)
    except OSError as error:
        raise _not_written(error) from None
    if as_json:
        print_json({"name": tool, "kind": kind, "token": text})
        return DONE
    print_data(text)
    print_message(
        "Keep it now: it is not shown again. Callers send it as `Authorization: Bearer <token>`."
    )
    return DONE


@app.command(name="list")
def list_(*, folder: Folder = FOLDER, as_json: JsonFlag = False) -> int:
    """List who has a token; the tokens themselves are not kept."""
    tokens = folder.tokens().list_tokens()
    if as_json:
        print_json({"tokens": [_shown(token) for token in tokens]})
    elif tokens:
        rows = [("NAME", "KIND", "CREATED")]
        rows += [(one.name, one.kind.value, f"{one.created_at:%Y-%m-%d %H:%M}Z") for one in tokens]
        print_table(rows)
    else:
        print_message(
            "Nobody has a token for tools. Make one: openclaw-a2a token create --tool NAME"
        )
    return DONE


@app.command
def revoke(
    name: Annotated[str, Parameter(help="The name the tokens were made for.")],
    /,
    *,
    folder: Folder = FOLDER,
    as_json: JsonFlag = False,
) -> int:
    """Revoke every token of a name, at once."""
    try:
        count = folder.tokens().revoke(name)
    except OSError as error:
        raise _not_written(error) from None
    if not count:
        raise InvalidRequest(
            f"nobody called {name} has a token",
            details={"code": "token-not-found", "nextStep": _SEE},
        )
    if as_json:
        print_json({"name": name, "revoked": count})
    else:
        print_data(f"{name}  {count} revoked")
    return DONE


def _shown(token: ToolToken) -> dict[str, object]:
    return {"name": token.name, "kind": token.kind, "createdAt": token.created_at}


def _not_written(error: OSError) -> NotAllowed:
    return NotAllowed(
        f"the tokens cannot be written: {error.strerror or error}",
        details={
            "code": "token-file",
            "nextStep": "Name the gateway's data folder with --data.",
        },
    )
