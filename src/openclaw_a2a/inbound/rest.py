"""The HTTP+JSON door of A2A 1.0: paths decide."""

from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from openclaw_a2a.inbound import listing, operations, opt_rest
from openclaw_a2a.inbound.door import Door
from openclaw_a2a.inbound.http import Exchange
from openclaw_a2a.inbound.jsonrpc import DIALECTS, error_headers
from openclaw_a2a.inbound.streams import last_event_id
from openclaw_a2a.inbound.visit import BARE, Visit
from openclaw_a2a.model.errors import (
    GatewayError,
    GatewayFault,
    RouteNotFound,
    UnsupportedOperation,
    VersionNotSupported,
)
from openclaw_a2a.wire import errors, v1
from openclaw_a2a.wire.requests import PushRequest, SendRequest, TaskRequest
from openclaw_a2a.wire.rest import decode_get_query, decode_list_query, decode_push_list_query
from openclaw_a2a.wire.versions import Wire, read_version

log = structlog.get_logger(__name__)

_DIALECT = DIALECTS[Wire.V1]
_ROOTS = frozenset({"message:send", "message:stream", "tasks", "extendedAgentCard"})


async def serve(exchange: Exchange, door: Door, path: str) -> None:
    """Answer one request; `path` is what follows the door's own path."""
    try:
        scope = door.admit(exchange)
        _check_version(exchange)
        segments = path.strip("/").split("/")
        if segments[0] in opt_rest.ROOTS:
            await opt_rest.serve(Visit(exchange, door, scope, ""), segments)
        else:
            step, task_id = _find(exchange.method, segments)
            await step(Visit(exchange, door, scope, task_id))
    except GatewayError as error:
        await answer_error(exchange, error)
    except Exception:  # the edge of a request: whatever broke is ours, and told in one sentence
        log.exception("request-broken", path=exchange.path)
        await answer_error(exchange, GatewayFault("internal error"))


async def answer_error(exchange: Exchange, error: GatewayError) -> None:
    """Answer with a google.rpc.Status."""
    status, body = errors.rest_error(error)
    await exchange.answer(status, body, headers=error_headers(error))


def _check_version(exchange: Exchange) -> None:
    if read_version(exchange.version()) is Wire.V03:
        raise VersionNotSupported(
            "HTTP+JSON is spoken here in A2A 1.0; 0.3 is spoken as JSON-RPC",
            details={"supportedVersions": [Wire.V1.value]},
        )


Step = Callable[[Visit], Awaitable[None]]


def _find(method: str, segments: list[str]) -> tuple[Step, str]:
    """What a method and path ask for. Raises: RouteNotFound, InvalidParams (a tenant)."""
    if len(segments) > 1 and segments[0] not in _ROOTS:
        operations.check_tenant(segments[0])
    root, rest = segments[0], segments[1:]
    if not rest:
        step = _AT_ROOT.get((method, root))
        if step is not None:
            return step, ""
    elif root == "tasks":
        found = _find_task(method, rest)
        if found is not None:
            return found
    path = "/" + "/".join(segments)
    raise RouteNotFound(f"there is no {method} {path} here; see the agent card for the addresses")


def _find_task(method: str, rest: list[str]) -> tuple[Step, str] | None:
    if len(rest) > 1:
        return _find_push(method, rest)
    task_id, colon, verb = rest[0].rpartition(":")
    if colon and (method, verb) in _ON_TASK:
        return _ON_TASK[method, verb], task_id
    step = _TASK_ITSELF.get(method)
    return None if step is None or not rest[0] else (step, rest[0])


def _find_push(method: str, rest: list[str]) -> tuple[Step, str] | None:
    if rest[1] != "pushNotificationConfigs":
        return None
    config_id = "/".join(rest[2:])
    step = _PUSH.get((method, bool(config_id)))
    return None if step is None else (lambda visit: step(visit, config_id), rest[0])


async def _send(visit: Visit) -> None:
    request = await _read_send(visit)
    planning = visit.door.planning_of(visit.exchange)
    result = await operations.send(visit.door, visit.scope, request, planning=planning)
    await visit.answer(_DIALECT.sent(result, request.history_length))


async def _send_streaming(visit: Visit) -> None:
    request = await _read_send(visit)
    cursor = last_event_id(visit.exchange)
    planning = visit.door.planning_of(visit.exchange)
    send = operations.send_streaming
    opening = partial(send, visit.door, visit.scope, request, cursor=cursor, planning=planning)
    await visit.door.streams.serve(visit.exchange, opening, BARE)


async def _read_send(visit: Visit) -> SendRequest:
    make_id = visit.door.message_id_maker(visit.exchange)
    return _DIALECT.decode_send(await visit.body(), make_message_id=make_id)


async def _list(visit: Visit) -> None:
    request = decode_list_query(visit.exchange.query())
    await visit.answer(await listing.list_tasks(visit.door, visit.scope, request))


async def _get(visit: Visit) -> None:
    request = decode_get_query({**visit.exchange.query(), "id": visit.task_id})
    body = await operations.get(visit.door, visit.scope, request)
    await visit.answer(_DIALECT.task(body, request.history_length))


async def _cancel(visit: Visit) -> None:
    await visit.skip_body()
    request = TaskRequest(id=visit.task_id)
    await visit.answer(await operations.cancel_task(visit.door, visit.scope, request))


async def _subscribe(visit: Visit) -> None:
    await visit.skip_body()
    opening = partial(
        operations.subscribe,
        visit.door,
        visit.scope,
        TaskRequest(id=visit.task_id),
        cursor=last_event_id(visit.exchange),
        allow_ended=False,
    )
    await visit.door.streams.serve(visit.exchange, opening, BARE)


async def _delete(visit: Visit) -> None:
    await operations.delete_task(visit.door, visit.scope, visit.task_id)
    await visit.answer(b"{}")


async def _create_push(visit: Visit, config_id: str) -> None:
    visit.door.push_desk()
    wish = v1.decode_push_config(await visit.body(), task_id=visit.task_id)
    config = await operations.create_push(visit.door, visit.scope, wish)
    await visit.answer(_DIALECT.push(config))


async def _list_push(visit: Visit, config_id: str) -> None:
    request = decode_push_list_query(visit.exchange.query(), task_id=visit.task_id)
    page = await operations.list_push(visit.door, visit.scope, request)
    await visit.answer(_DIALECT.push_list(page))


async def _get_push(visit: Visit, config_id: str) -> None:
    request = PushRequest(task_id=visit.task_id, id=config_id)
    config = await operations.find_push(visit.door, visit.scope, request)
    await visit.answer(_DIALECT.push(config))


async def _delete_push(visit: Visit, config_id: str) -> None:
    request = PushRequest(task_id=visit.task_id, id=config_id)
    await operations.remove_push(visit.door, visit.scope, request)
    await visit.answer(b"{}")


async def _extended_card(_visit: Visit) -> None:
    raise UnsupportedOperation("this agent has no extended card; its public card says everything")


_AT_ROOT: dict[tuple[str, str], Step] = {
    ("POST", "message:send"): _send,
    ("POST", "message:stream"): _send_streaming,
    ("GET", "tasks"): _list,
    ("GET", "extendedAgentCard"): _extended_card,
}
_ON_TASK: dict[tuple[str, str], Step] = {
    ("POST", "cancel"): _cancel,
    ("GET", "subscribe"): _subscribe,
    ("POST", "subscribe"): _subscribe,
}
_TASK_ITSELF: dict[str, Step] = {"GET": _get, "DELETE": _delete}
_PUSH: dict[tuple[str, bool], Callable[[Visit, str], Awaitable[None]]] = {
    ("POST", False): _create_push,
    ("GET", False): _list_push,
    ("GET", True): _get_push,
    ("DELETE", True): _delete_push,
}
"""By method, and whether the path names a configuration."""
