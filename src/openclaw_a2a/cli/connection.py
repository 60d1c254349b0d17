"""Which agent a command talks to, and which task it means."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import msgspec

from openclaw_a2a.cli.errors import code_of
from openclaw_a2a.cli.flags import Connection
from openclaw_a2a.model.errors import AgentFailed, InvalidRequest
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.model.task import Task
from openclaw_a2a.settings import normalize_base_url, read_command_environment, server_address

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
    url = parse_address(connection.url or around.url or server_address(connection.config))
    client = Client(url, connection.token or around.token)
    try:
        yield client
    except AgentFailed as error:
        if code_of(error) == "task-not-found":
            step = f"See the tasks there are: {connection.command('tasks list')}"
            error.details.setdefault("nextStep", step)
        raise
    finally:
        client.close()


def parse_address(text: str) -> str:
    """The address that people mean. Raises: InvalidRequest."""
    address = normalize_base_url(text if "://" in text else f"http://{text}")
    if address is None:
        raise InvalidRequest(
            f"{text} is no address",
            details={"code": "usage", "nextStep": "Give one such as http://127.0.0.1:9900."},
        )
    return address


def get_task(client: "Client", task_id: str) -> bytes:
    """One task as it was sent. Raises: AgentFailed, AgentUnavailable."""
    return client.call("GetTask", {"id": task_id})


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
        step = "Give the task's id, or its beginning."
        raise InvalidRequest("the task's id is empty", details={"code": "usage", "nextStep": step})
    try:
        client.call("GetTask", {"id": prefix, "historyLength": 0})
    except AgentFailed as error:
        if code_of(error) != "task-not-found":
            raise
        return _find_by_prefix(client, prefix, error)
    return prefix


def _find_by_prefix(client: "Client", prefix: str, not_found: AgentFailed) -> str:
    found: list[str] = []
    for page in list_tasks(client, {"pageSize": PAGE, "historyLength": 0}):
        found += [task.id for task in page.tasks if task.id.startswith(prefix)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise not_found
    shown = ", ".join(found[:_SHOWN]) + (", ..." if len(found) > _SHOWN else "")
    raise InvalidRequest(
        f"{len(found)} tasks begin with {prefix}: {shown}",
        details={"code": "task-ambiguous", "nextStep": "Give more of the id."},
    )


def decode_response(body: bytes, kind: type[_Read]) -> _Read:
    """What an agent sent, read. Raises: AgentFailed."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        message = f"the agent sent something that is not A2A 1.0: {error}"
        raise AgentFailed(message, details={"code": "answer-unreadable"}) from None
