"""The HTTP+JSON binding, which speaks 1.0 only."""

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple

from openclaw_a2a.http.asgi import ClientDisconnected, HttpRequest, error_headers
from openclaw_a2a.http.router import Router
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import (
    GatewayError,
    GatewayFault,
    RouteNotFound,
    VersionNotSupported,
)
from openclaw_a2a.protocol import errors, v1
from openclaw_a2a.protocol.requests import (
    GetRequest,
    ListRequest,
    NewPushConfig,
    PushConfigRequest,
    PushListRequest,
    SendRequest,
    TaskRequest,
)
from openclaw_a2a.protocol.versions import ProtocolVersion, read_version
from openclaw_a2a.server import objectives_endpoint, operations
from openclaw_a2a.server.account_endpoint import AccountEndpoint
from openclaw_a2a.server.rest_request import RestRequest

log = get_logger(__name__)

_ROOTS = frozenset({"message:send", "message:stream", "tasks", "extendedAgentCard"})


class Route(NamedTuple):
    """How the request of a route is read, and what it does."""

    read: Callable[[RestRequest], Awaitable[Any]]
    operation: Callable[..., Coroutine[Any, Any, Any]]
    is_stream: bool = False


async def serve(http: HttpRequest, *, endpoint: AccountEndpoint, prefix: str) -> None:
    """Respond to one request below an account's HTTP+JSON path."""
    try:
        # Before anything of the request is read, as in `jsonrpc`.
        scope = await endpoint.admit(http)
        if read_version(http.protocol_version()) is ProtocolVersion.V03:
            raise VersionNotSupported(
                "HTTP+JSON is spoken here in A2A 1.0; 0.3 is spoken as JSON-RPC",
                details={"supportedVersions": [ProtocolVersion.V1.value]},
            )
        planning = endpoint.planning_of(http) if http.response_headers else None
        call = RestRequest(http, endpoint, scope, v1, planning)
        path = http.path[len(prefix) :].strip("/")
        root, slash, _ = path.partition("/")
        if root in objectives_endpoint.REST_ROOTS:
            await objectives_endpoint.serve_rest(call, path.split("/"))
            return
        if slash and root not in _ROOTS:
            call.check_tenant(root)  # 1.0 puts the tenant first
        found = ROUTER.find(http.method, path)
        if found is None:
            raise ROUTER.method_error(http.method, path) or RouteNotFound(
                f"there is no {http.method} /{path} here; see the agent card for the addresses"
            )
        route, call.params = found
        request = await route.read(call)
        if request is not None:
            call.check_tenant(request.tenant)
        if route.is_stream:
            open_stream = partial(route.operation, call, request)
            http.rest = await endpoint.streams.open(
                http, open_stream, call, check=endpoint.check_caller
            )
        else:
            await call.respond(await route.operation(call, request))
    except ClientDisconnected:
        pass
    except GatewayError as error:
        http.log_refusal(error, account=endpoint.account.id, agent=endpoint.rules.agent_id)
        await _respond_error(http, error)
    except Exception:  # the edge of a request: an unexpected error must not reach the peer
        log.exception("rest.request_crashed", path=http.path)
        await _respond_error(http, GatewayFault("internal error"))


async def _respond_error(http: HttpRequest, error: GatewayError) -> None:
    """Respond with a google.rpc.Status."""
    status, body = errors.rest_error(error)
    await http.respond(status, body, headers=error_headers(error))


# ---------------------------------------------------------------- reading requests


async def _read_send(call: RestRequest) -> SendRequest:
    call.http.on_refused = call.record_refused_message  # until the message is accepted
    make_id = None if call.planning is None else call.endpoint.new_id
    body, max_parts = await call.read_body(), call.endpoint.rules.max_parts
    return v1.decode_send(body, make_message_id=make_id, max_parts=max_parts)


async def _read_streaming_send(call: RestRequest) -> SendRequest:
    call.endpoint.check_streaming()  # refused before the body is read
    return await _read_send(call)


async def _read_list(call: RestRequest) -> ListRequest:
    return v1.decode_list_query(call.http.query())


async def _read_get(call: RestRequest) -> GetRequest:
    return v1.decode_get_query(call.http.query(), task_id=call.task_id)


async def _read_task(call: RestRequest) -> TaskRequest:
    await call.skip_body()
    return TaskRequest(id=call.task_id)


async def _read_subscribe(call: RestRequest) -> TaskRequest:
    call.endpoint.check_streaming()
    return await _read_task(call)


async def _read_new_push(call: RestRequest) -> NewPushConfig:
    call.endpoint.push_configs()  # refused before the body is read
    return v1.decode_push_config(await call.read_body(), task_id=call.task_id)


async def _read_push_list(call: RestRequest) -> PushListRequest:
    return v1.decode_push_list_query(call.http.query(), task_id=call.task_id)


async def _read_push_item(call: RestRequest) -> PushConfigRequest:
    return PushConfigRequest(task_id=call.task_id, id=call.params[1])


async def _read_nothing(_call: RestRequest) -> None:
    pass


ROUTER = Router[Route]()
for _method, _pattern, _route in (
    ("POST", "message:send", Route(_read_send, operations.send)),
    (
        "POST",
        "message:stream",
        Route(_read_streaming_send, operations.send_streaming, is_stream=True),
    ),
    ("GET", "extendedAgentCard", Route(_read_nothing, operations.extended_card)),
    ("GET", "tasks", Route(_read_list, operations.list_tasks)),
    ("GET", "tasks/{}", Route(_read_get, operations.get)),
    ("DELETE", "tasks/{}", Route(_read_task, operations.delete)),
    ("POST", "tasks/{}:cancel", Route(_read_task, operations.cancel)),
    ("GET", "tasks/{}:subscribe", Route(_read_subscribe, operations.subscribe, is_stream=True)),
    ("POST", "tasks/{}:subscribe", Route(_read_subscribe, operations.subscribe, is_stream=True)),
    ("POST", "tasks/{}/pushNotificationConfigs", Route(_read_new_push, operations.create_push)),
    ("GET", "tasks/{}/pushNotificationConfigs", Route(_read_push_list, operations.list_push)),
    ("GET", "tasks/{}/pushNotificationConfigs/{*}", Route(_read_push_item, operations.get_push)),
    (
        "DELETE",
        "tasks/{}/pushNotificationConfigs/{*}",
        Route(_read_push_item, operations.delete_push),
    ),
):
    ROUTER.add_route(_method, _pattern, _route)
