"""Finds and runs the command that a command line names, and turns failures into exit codes."""

import os
import traceback
from functools import partial
from importlib.metadata import version
from pathlib import Path

from cyclopts import App, CoercionError, CycloptsError, MissingArgumentError, UnusedCliTokensError
from cyclopts.exceptions import RepeatArgumentError

from openclaw_a2a.cli.errors import INTERRUPTED, report_failure, usage_error, wants_messages
from openclaw_a2a.cli.overview import ALIASES, COMMANDS
from openclaw_a2a.cli.render.terminal import print_json, print_message
from openclaw_a2a.model.errors import GatewayError, GatewayFault
from openclaw_a2a.settings import report_hidden_file

_USAGES = {
    "send": "Usage: openclaw-a2a send [OPTIONS] TEXT...",
    "call": "Usage: openclaw-a2a call [OPTIONS] AGENT SKILL [INPUT]",
    "debate": "Usage: openclaw-a2a debate [OPTIONS] FILE",
}
_KINDS: dict[object, str] = {int: "a whole number", float: "a number"}


def build_commands() -> App:
    """The commands; the code of each is loaded when it is used."""
    app = App(
        name="openclaw-a2a",
        version=lambda: version("openclaw-a2a"),
        version_flags=["--version"],
        help_format="plaintext",
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    for name, (place, _) in COMMANDS.items():
        more = {"usage": _USAGES[name]} if name in _USAGES else {}
        app.command(f"openclaw_a2a.cli.commands.{place}", name, alias=ALIASES.get(name), **more)
    return app


def dispatch(arguments: list[str]) -> int:
    """Run one command line; its exit code. Raises: BrokenPipeError (the reader has left)."""
    as_json = _wants_json(arguments)
    try:
        _check_encoding(arguments)
        with report_hidden_file(partial(_print_hidden_file, as_json=as_json)):
            result = build_commands()(
                _protect_lone_dash(arguments), exit_on_error=False, print_error=False
            )
    except CycloptsError as error:
        return _report_failure(_usage_problem(error, arguments), arguments)
    except GatewayError as error:
        return _report_failure(error, arguments)
    except KeyboardInterrupt:
        if as_json:
            failure = {"code": "interrupted", "message": "interrupted with Ctrl-C", "hint": ""}
            print_json({"error": failure}, pretty=False)
        else:
            print_message("Interrupted.")
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:
        traceback.print_exc()
        message = f"{type(error).__name__}: {error}"
        step = "This is a fault of openclaw-a2a. Please report it with the lines above."
        return report_failure(GatewayFault(message, details={"nextStep": step}), as_json=as_json)
    return result if isinstance(result, int) else 0


def _report_failure(error: GatewayError, arguments: list[str]) -> int:
    """Report it where the reader looks: the standard error of `up` is the log of a gateway."""
    if arguments[0] == "up":
        from openclaw_a2a.app.logging import is_for_people
        from openclaw_a2a.cli.commands.gateway import log_not_started
        from openclaw_a2a.settings import check_settings

        settings = check_settings().loaded.settings.log
        if not is_for_people(settings):
            return log_not_started(error, settings)
    return report_failure(error, as_json=_wants_json(arguments))


def _print_hidden_file(used: Path, hidden: Path, *, as_json: bool) -> None:
    """Print which of two settings files is used, so that no setting seems to be lost."""
    if wants_messages(as_json=as_json):
        print_message(f"Used: {used}. Not read: {hidden}", "yellow")


def _wants_json(arguments: list[str]) -> bool:
    """Read off the command line itself, because it may be the command line that is wrong."""
    flags = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in flags


def _check_encoding(arguments: list[str]) -> None:
    """Refuse what could be neither sent nor stored. Raises: InvalidRequest."""
    for one in arguments:
        try:
            one.encode()
        except UnicodeEncodeError:
            shown = repr(os.fsencode(one))[1:]
            step = "Write it in UTF-8; a file goes by another name."
            raise usage_error(f"the argument {shown} is not UTF-8 text", step) from None


def _usage_problem(error: CycloptsError, arguments: list[str]) -> GatewayError:
    known = [*COMMANDS, *ALIASES.values()]
    words = [word for word in arguments[:1] if word in known]
    return usage_error(
        _describe_usage(error), f"See: {' '.join(['openclaw-a2a', *words, '--help'])}"
    )


def _describe_usage(error: CycloptsError) -> str:
    """Why a command line is wrong, where the parser's own words are those of its programmers."""
    command = " ".join(error.command_chain or ())
    if isinstance(error, UnusedCliTokensError):
        return f"too many arguments for {command}: {' '.join(error.unused_tokens or ())}"
    if isinstance(error, RepeatArgumentError):
        return f"{error.token.keyword} is given more than once"
    name = error.argument.name if error.argument is not None else ""
    if isinstance(error, MissingArgumentError):
        is_option = name.startswith("-")
        return f"{name} needs a value" if is_option else f"{command} needs {name}"
    if isinstance(error, CoercionError) and error.token is not None:
        given = f'not "{error.token.value}"'
        if error.target_type is bool:
            return f"{name} is a switch and takes no value, {given}"
        if error.target_type in _KINDS:
            return f"{name} must be {_KINDS[error.target_type]}, {given}"
    return str(error)


def _protect_lone_dash(arguments: list[str]) -> list[str]:
    """The arguments with a lone `-` where the parser takes it for text and not for an option."""
    if "-" not in arguments or "--" in arguments:
        return arguments
    return [*(one for one in arguments if one != "-"), "--", "-"]
