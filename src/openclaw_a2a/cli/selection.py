"""Which agent a command talks to, and which task it means."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import msgspec

from openclaw_a2a.cli.errors import code_of, usage_error
from openclaw_a2a.cli.flags import Connection, data_override
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.model.task import Task
from openclaw_a2a.settings import local_gateway, normalize_base_url, read_command_environment

if TYPE_CHECKING:
    from openclaw_a2a.cli.a2a_client import Client

_Read = TypeVar("_Read")

PAGE = 100
_MOST_PAGES = 100
_SHOWN = 5


class TaskList(JsonStruct, frozen=True, omit_defaults=False):
    """A page of tasks as the protocol has it."""

    tasks: tuple[Task, ...] = ()
    next_page_token: str = ""
    page_size: int = 0
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
    """The address that people mean. Raises: InvalidRequest."""
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
