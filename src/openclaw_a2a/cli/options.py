"""Options and inputs that several commands share; the gateway, agent and task that they mean."""

import shlex
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
from cyclopts import Parameter

from openclaw_a2a.cli.errors import code_of, usage_error
from openclaw_a2a.cli.render.terminal import print_message
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.model.task import Task
from openclaw_a2a.settings import local_gateway, normalize_base_url, read_command_environment

if TYPE_CHECKING:
    from openclaw_a2a.cli.a2a_client import Client

_Read = TypeVar("_Read")

PAGE = 100
_MOST_PAGES = 100
_SHOWN = 5


def switch(help_text: str, *, name: str | None = None) -> Parameter:
    """A flag that is off unless it is given; it has no opposite."""
    return Parameter(name=name, negative=(), show_default=False, help=help_text)


JsonFlag = Annotated[bool, switch("Print JSON.", name="--json")]
ConfigFlag = Annotated[
    Path | None, Parameter(name="--config", help="The settings file, instead of the usual places.")
]
YesFlag = Annotated[bool, switch("Do not ask.")]
LimitFlag = Annotated[int, Parameter(help="How many at most.")]
DataFlag = Annotated[Path | None, Parameter(help="The data folder.")]


def data_override(data: Path | None) -> dict[str, Json]:
    """The data folder of the command line, as an override of the settings."""
    return {"data": str(data.expanduser().absolute())} if data else {}


def format_command(words: str, **flags: object) -> str:
    """A command to type next, with the flags that have a value."""
    given = [f" --{name} {shlex.quote(str(value))}" for name, value in flags.items() if value]
    return f"openclaw-a2a {words}{''.join(given)}"


@Parameter(name="*")
@dataclass(frozen=True)
class FolderOptions:
    """The gateway whose data folder is meant, and the form of the output."""

    config: ConfigFlag = None
    data: Annotated[Path | None, Parameter(help="The data folder of the gateway.")] = None
    as_json: JsonFlag = False

    def folder(self) -> Path:
        """Its data folder. Raises: SettingsInvalid."""
        return local_gateway(self.config, overrides=data_override(self.data)).data


DEFAULT_FOLDER = FolderOptions()


@Parameter(name="*")
@dataclass(frozen=True)
class Connection:
    """The address of a gateway or agent, the token for it, and the form of the output."""

    as_json: JsonFlag = False
    url: Annotated[
        str | None,
        Parameter(
            help="Address of the agent or of its card; default: the gateway that runs with the "
            "data folder, else the one in the settings."
        ),
    ] = None
    token: Annotated[str | None, Parameter(help="Bearer token; better: OPENCLAW_A2A_TOKEN.")] = None
    config: ConfigFlag = None
    data: Annotated[Path | None, Parameter(help="The data folder of the gateway.")] = None

    def command(self, words: str) -> str:
        """A command to type next, for the same agent. A token is never part of it."""
        return format_command(words, url=self.url, config=self.config, data=self.data)

    def answer_hint(self, task_id: str) -> str:
        """What to do about a task that waits for an answer."""
        answer = self.command(f'send --task {task_id} "..."')
        return f"Answer with: {answer}"


NO_CONNECTION = Connection()


@Parameter(name="*")
@dataclass(frozen=True)
class GatewayOptions:
    """Which gateway of this machine to call with the admin token."""

    url: Annotated[
        str | None,
        Parameter(
            help="Address of the gateway; default: the one that runs with the data folder, else "
            "the one in the settings."
        ),
    ] = None
    config: ConfigFlag = None
    data: Annotated[Path | None, Parameter(help="The data folder of the gateway.")] = None

    def command(self, words: str) -> str:
        """A command to type next, for the same gateway."""
        return format_command(words, url=self.url, config=self.config, data=self.data)


@Parameter(name="*")
@dataclass(frozen=True)
class AdminOptions(GatewayOptions):
    """Which gateway to call, and whether its answer is printed as JSON."""

    as_json: JsonFlag = False


DEFAULT_ADMIN = AdminOptions()


# -------------------------------------------------------------------- inputs


def read_standard_input() -> str:
    """All of standard input. Raises: InvalidRequest (it is no text)."""
    try:
        text = sys.stdin.read()
        text.encode()  # in some locales bytes that are no text are read as lone surrogates
    except UnicodeError:
        message = "standard input is not UTF-8 text"
        raise usage_error(message, "Convert it first, or send it as a file.") from None
    return text


def join_text(text: tuple[str, ...]) -> str:
    """The text of the command line; a lone `-` reads standard input."""
    if text == ("-",):
        return read_standard_input().rstrip("\n")
    return " ".join(text)


def read_file(file: str, step: str = "") -> bytes:
    """The content of a file; `-` is standard input. Raises: InvalidRequest."""
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).expanduser().read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise usage_error(f"{file} cannot be read: {reason}", step) from None


def parse_json_object(content: str | bytes, *, what: str, step: str) -> JsonObject:
    """The JSON object in a text; `what` names it in the error. Raises: InvalidRequest."""
    try:
        return msgspec.json.decode(content, type=JsonObject)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise usage_error(f"{what} is no JSON object: {error}", step) from None


def confirm(question: str, unasked: str) -> bool:
    """Ask on the terminal. Raises: InvalidRequest (`unasked`, when there is no terminal)."""
    if not sys.stdin.isatty():
        raise usage_error(unasked, "Say it with --yes.", code="confirmation-needed")
    print_message(question)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


# -------------------------------------------------------------------- agents and their tasks


class TaskList(JsonStruct, frozen=True, omit_defaults=False):
    """A page of tasks as the protocol has it."""

    tasks: tuple[Task, ...] = ()
    next_page_token: str = ""
    total_size: int = 0


@contextmanager
def connect(connection: Connection) -> Generator["Client"]:
    """A client for the agent that flags, environment or settings name, in this order.

    Raises: SettingsInvalid, InvalidRequest.
    """
    # The HTTP library takes a while to load; commands that need no gateway do without.
    from openclaw_a2a.cli.a2a_client import Client

    around = read_command_environment()
    url = connection.url or around.url
    if not url:
        overrides = data_override(connection.data)
        url = local_gateway(connection.config, overrides=overrides).public_address
    token = connection.token or around.token
    if token and not (token.isascii() and token.isprintable()):
        source = "--token" if connection.token else "OPENCLAW_A2A_TOKEN"
        raise usage_error(f"{source} has characters that no token has", "Copy the token again.")
    client = Client(parse_address(url), token)
    try:
        yield client
    except AgentFailed as error:
        if code_of(error) == "task-not-found":
            step = (
                f"See the tasks there are: {connection.command('tasks list')}    "
                "(with --all: those of every caller, for the operator)"
            )
            error.details.setdefault("nextStep", step)
        raise
    finally:
        client.close()


def parse_address(text: str) -> str:
    """The address with its scheme completed. Raises: InvalidRequest."""
    address = normalize_base_url(text if "://" in text else f"http://{text}")
    if address is None:
        raise usage_error(f"{text} is no address", "Give one such as http://127.0.0.1:9900.")
    return address


def list_tasks(client: "Client", filters: JsonObject) -> Iterator[TaskList]:
    """Page after page of tasks. Raises: AgentFailed, AgentUnavailable."""
    token = ""
    for _ in range(_MOST_PAGES):
        params = {**filters, "pageToken": token} if token else filters
        page = decode_response(client.call("ListTasks", params), TaskList)
        yield page
        token = page.next_page_token
        if not token:
            return


def find_task(client: "Client", prefix: str) -> str:
    """The id of the task whose id is or begins with this.

    Raises: AgentFailed (no such task), InvalidRequest (several, or nothing given).
    """
    if not prefix.strip():
        raise usage_error("the task's id is empty", "Give the task's id, or its beginning.")
    try:
        client.call("GetTask", {"id": prefix, "historyLength": 0})
    except AgentFailed as error:
        if code_of(error) != "task-not-found":
            raise
        pages = list_tasks(client, {"pageSize": PAGE, "historyLength": 0})
        found = [one.id for page in pages for one in page.tasks if one.id.startswith(prefix)]
        if not found:
            raise
    else:
        return prefix
    if len(found) > 1:
        shown = ", ".join(found[:_SHOWN]) + (", ..." if len(found) > _SHOWN else "")
        message = f"{len(found)} tasks begin with {prefix}: {shown}"
        raise usage_error(message, "Give more of the id.", code="task-ambiguous")
    return found[0]


def decode_response(body: bytes, kind: type[_Read]) -> _Read:
    """What an agent sent, read. Raises: AgentFailed."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError) as error:
        message = f"the agent sent something that is not A2A 1.0: {error}"
        raise AgentFailed(message, details={"code": "answer-unreadable"}) from None
