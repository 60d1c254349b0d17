"""The HTTP+JSON door of A2A 1.0: paths decide."""

from collections.abc import Awaitable, Callable
from functools import partial

from openclaw_a2a.http.asgi import HttpRequest, error_headers
from openclaw_a2a.http.sse_stream import last_event_id
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import (
    GatewayError,
    GatewayFault,
    RouteNotFound,
    UnsupportedOperation,
    VersionNotSupported,
)
from openclaw_a2a.protocol import errors, v1
from openclaw_a2a.protocol.requests import PushRequest, SendRequest, TaskRequest
from openclaw_a2a.protocol.rest_query import (
    decode_get_query,
    decode_list_query,
    decode_push_list_query,
)
from openclaw_a2a.protocol.versions import ProtocolVersion, read_version
from openclaw_a2a.server import objectives_endpoint, operations, task_list
from openclaw_a2a.server.account_endpoint import AccountEndpoint
from openclaw_a2a.server.jsonrpc import DIALECTS
from openclaw_a2a.server.rest_request import REST_FRAMES, RestRequest

log = get_logger(__name__)

_DIALECT = DIALECTS[ProtocolVersion.V1]
_ROOTS = frozenset({"message:send", "message:stream", "tasks", "extendedAgentCard"})


async def serve(exchange: HttpRequest, *, endpoint: AccountEndpoint, prefix: str) -> None:
    """Answer one request below the account's own path."""
    try:
        scope = endpoint.admit(exchange)
        _check_version(exchange)
        segments = exchange.path[len(prefix) :].strip("/").split("/")
        if segments[0] in objectives_endpoint.REST_ROOTS:
            await objectives_endpoint.serve_rest(
                RestRequest(exchange, endpoint, scope, ""), segments
            )
        else:
            step, task_id = _find(exchange.method, segments)
            await step(RestRequest(exchange, endpoint, scope, task_id))
    except GatewayError as error:
        await answer_error(exchange, error)
    except Exception:  # the edge of a request: whatever broke is ours, and told in one sentence
        log.exception("request-broken", path=exchange.path)
        await answer_error(exchange, GatewayFault("internal error"))


async def answer_error(exchange: HttpRequest, error: GatewayError) -> None:
    """Answer with a google.rpc.Status."""
    status, body = errors.rest_error(error)
    await exchange.respond(status, body, headers=error_headers(error))


def _check_version(exchange: HttpRequest) -> None:
    if read_version(exchange.protocol_version()) is ProtocolVersion.V03:
        raise VersionNotSupported(
            "HTTP+JSON is spoken here in A2A 1.0; 0.3 is spoken as JSON-RPC",
            details={"supportedVersions": [ProtocolVersion.V1.value]},
        )


Step = Callable[[RestRequest], Awaitable[None]]


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


async def _send(visit: RestRequest) -> None:
    request = await _read_send(visit)
    planning = visit.endpoint.planning_of(visit.http)
    result = await operations.send(visit.endpoint, visit.scope, request, planning=planning)
    await visit.respond(_DIALECT.sent(result, request.history_length))


async def _send_streaming(visit: RestRequest) -> None:
    request = await _read_send(visit)
    cursor = last_event_id(visit.http)
    planning = visit.endpoint.planning_of(visit.http)
    send = operations.send_streaming
    opening = partial(send, visit.endpoint, visit.scope, request, cursor=cursor, planning=planning)
    await visit.endpoint.streams.serve(visit.http, opening, REST_FRAMES)


async def _read_send(visit: RestRequest) -> SendRequest:
    make_id = visit.endpoint.message_id_maker(visit.http)
    return _DIALECT.decode_send(await visit.read_body(), make_message_id=make_id)


async def _list(visit: RestRequest) -> None:
    request = decode_list_query(visit.http.query())
    await visit.respond(await task_list.list_tasks(visit.endpoint, visit.scope, request))


async def _get(visit: RestRequest) -> None:
    request = decode_get_query({**visit.http.query(), "id": visit.task_id})
    body = await operations.get(visit.endpoint, visit.scope, request)
    await visit.respond(_DIALECT.task(body, request.history_length))


async def _cancel(visit: RestRequest) -> None:
    await visit.skip_body()
    request = TaskRequest(id=visit.task_id)
    await visit.respond(await operations.cancel_task(visit.endpoint, visit.scope, request))


async def _subscribe(visit: RestRequest) -> None:
    await visit.skip_body()
    opening = partial(
        operations.subscribe,
        visit.endpoint,
        visit.scope,
        TaskRequest(id=visit.task_id),
        cursor=last_event_id(visit.http),
        allow_ended=False,
    )
    await visit.endpoint.streams.serve(visit.http, opening, REST_FRAMES)


async def _delete(visit: RestRequest) -> None:
    await operations.delete_task(visit.endpoint, visit.scope, visit.task_id)
    await visit.respond(b"{}")


async def _create_push(visit: RestRequest, config_id: str) -> None:
    visit.endpoint.push_configs()
    wish = v1.decode_push_config(await visit.read_body(), task_id=visit.task_id)
    config = await operations.create_push(visit.endpoint, visit.scope, wish)
    await visit.respond(_DIALECT.push(config))


async def _list_push(visit: RestRequest, config_id: str) -> None:
    request = decode_push_list_query(visit.http.query(), task_id=visit.task_id)
    page = await operations.list_push(visit.endpoint, visit.scope, request)
    await visit.respond(_DIALECT.push_list(page))


async def _get_push(visit: RestRequest, config_id: str) -> None:
    request = PushRequest(task_id=visit.task_id, id=config_id)
    config = await operations.find_push(visit.endpoint, visit.scope, request)
    await visit.respond(_DIALECT.push(config))


async def _delete_push(visit: RestRequest, config_id: str) -> None:
    request = PushRequest(task_id=visit.task_id, id=config_id)
    await operations.remove_push(visit.endpoint, visit.scope, request)
    await visit.respond(b"{}")


async def _extended_card(_visit: RestRequest) -> None:
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
_PUSH: dict[tuple[str, bool], Callable[[RestRequest, str], Awaitable[None]]] = {
    ("POST", False): _create_push,
    ("GET", False): _list_push,
    ("GET", True): _get_push,
    ("DELETE", True): _delete_push,
}
"""By method, and whether the path names a configuration."""
