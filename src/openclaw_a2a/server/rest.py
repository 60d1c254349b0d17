"""The HTTP+JSON binding of A2A 1.0."""

from collections.abc import Awaitable, Callable
from functools import partial

from openclaw_a2a.http.asgi import HttpRequest, error_headers
from openclaw_a2a.http.router import Router
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
from openclaw_a2a.protocol.requests import PushConfigRequest, SendRequest
from openclaw_a2a.protocol.rest_query import (
    decode_get_query,
    decode_list_query,
    decode_push_list_query,
)
from openclaw_a2a.protocol.versions import ProtocolVersion, read_version
from openclaw_a2a.server import objectives_endpoint, operations
from openclaw_a2a.server.account_endpoint import AccountEndpoint
from openclaw_a2a.server.operations import check_tenant, encode_send_result
from openclaw_a2a.server.rest_request import REST_FRAMES, RestRequest
from openclaw_a2a.server.task_list import list_tasks

log = get_logger(__name__)

RestHandler = Callable[[RestRequest], Awaitable[None]]
_ROOTS = frozenset({"message:send", "message:stream", "tasks", "extendedAgentCard"})


async def serve(http: HttpRequest, *, endpoint: AccountEndpoint, prefix: str) -> None:
    """Respond to one request below an account's HTTP+JSON path."""
    try:
        scope = endpoint.admit(http)
        if read_version(http.protocol_version()) is ProtocolVersion.V03:
            raise VersionNotSupported(
                "HTTP+JSON is spoken here in A2A 1.0; 0.3 is spoken as JSON-RPC",
                details={"supportedVersions": [ProtocolVersion.V1.value]},
            )
        path = http.path[len(prefix) :].strip("/")
        if path.partition("/")[0] in objectives_endpoint.REST_ROOTS:
            request = RestRequest(http, endpoint, scope)
            await objectives_endpoint.serve_rest(request, path.split("/"))
            return
        handler, params = _find_handler(http.method, path)
        await handler(RestRequest(http, endpoint, scope, params))
    except GatewayError as error:
        if isinstance(error, GatewayFault):
            log.warning("rest.request_failed", code=error.code, reason=error.message)
        await _respond_error(http, error)
    except Exception:  # the edge of a request: an unexpected error must not reach the peer
        log.exception("rest.request_crashed", path=http.path)
        await _respond_error(http, GatewayFault("internal error"))


async def _respond_error(http: HttpRequest, error: GatewayError) -> None:
    """Respond with a google.rpc.Status."""
    status, body = errors.rest_error(error)
    await http.respond(status, body, headers=error_headers(error))


def _find_handler(method: str, path: str) -> tuple[RestHandler, tuple[str, ...]]:
    """Raises: RouteNotFound, InvalidParams (the path begins with a tenant)."""
    root, slash, _ = path.partition("/")
    if slash and root not in _ROOTS:
        check_tenant(root)
    found = _ROUTER.find(method, path)
    if found is None:
        raise RouteNotFound(
            f"there is no {method} /{path} here; see the agent card for the addresses"
        )
    return found


# ---------------------------------------------------------------------------- messages and tasks


async def _send(request: RestRequest) -> None:
    send = await _decode_send(request)
    planning = request.endpoint.planning_of(request.http)
    result = await operations.send(request.endpoint, request.scope, send, planning=planning)
    await request.respond(encode_send_result(v1, result, send.history_length))


async def _send_streaming(request: RestRequest) -> None:
    open_stream = partial(
        operations.send_streaming,
        request.endpoint,
        request.scope,
        await _decode_send(request),
        cursor=last_event_id(request.http),
        planning=request.endpoint.planning_of(request.http),
    )
    await request.endpoint.streams.serve(request.http, open_stream, REST_FRAMES)


async def _decode_send(request: RestRequest) -> SendRequest:
    make_id = request.endpoint.message_id_maker(request.http)
    send = v1.decode_send(await request.read_body(), make_message_id=make_id)
    check_tenant(send.tenant)
    return send


async def _list(request: RestRequest) -> None:
    query = decode_list_query(request.http.query())
    check_tenant(query.tenant)
    await request.respond(
        await list_tasks(request.endpoint.engine.store.tasks, request.scope, query)
    )


async def _get(request: RestRequest) -> None:
    query = decode_get_query(request.http.query(), task_id=request.task_id)
    check_tenant(query.tenant)
    task = await operations.get(request.endpoint, request.scope, request.task_id)
    await request.respond(v1.encode_task_result(task, query.history_length))


async def _cancel(request: RestRequest) -> None:
    await request.skip_body()
    task = await operations.cancel(request.endpoint, request.scope, request.task_id)
    await request.respond(task)


async def _subscribe(request: RestRequest) -> None:
    await request.skip_body()
    open_stream = partial(
        operations.subscribe,
        request.endpoint,
        request.scope,
        request.task_id,
        cursor=last_event_id(request.http),
        allow_finished=v1.STREAMS_FINISHED_TASKS,
    )
    await request.endpoint.streams.serve(request.http, open_stream, REST_FRAMES)


async def _delete(request: RestRequest) -> None:
    await operations.delete(request.endpoint, request.scope, request.task_id)
    await request.respond(b"{}")


# --------------------------------------------------------------------------- push configurations


async def _create_push(request: RestRequest) -> None:
    configs = request.endpoint.push_configs()
    new = v1.decode_push_config(await request.read_body(), task_id=request.task_id)
    check_tenant(new.tenant)
    config = await configs.create(request.scope, request.task_id, new)
    await request.respond(v1.encode_push_config(config))


async def _list_push(request: RestRequest) -> None:
    query = decode_push_list_query(request.http.query(), task_id=request.task_id)
    configs = request.endpoint.push_configs()
    check_tenant(query.tenant)
    page = await configs.list_page(request.scope, query)
    await request.respond(v1.encode_push_list(page.configs, page.next_page_token))


async def _get_push(request: RestRequest) -> None:
    config = await request.endpoint.push_configs().find(request.scope, _named_config(request))
    await request.respond(v1.encode_push_config(config))


async def _delete_push(request: RestRequest) -> None:
    await request.endpoint.push_configs().delete(request.scope, _named_config(request))
    await request.respond(b"{}")


def _named_config(request: RestRequest) -> PushConfigRequest:
    return PushConfigRequest(task_id=request.task_id, id=request.params[1])


async def _extended_card(_: RestRequest) -> None:
    raise UnsupportedOperation("this agent has no extended card; its public card says everything")


def _build_router() -> Router[RestHandler]:
    router = Router[RestHandler]()
    router.add_route("POST", "message:send", _send)
    router.add_route("POST", "message:stream", _send_streaming)
    router.add_route("GET", "extendedAgentCard", _extended_card)
    router.add_route("GET", "tasks", _list)
    router.add_route("GET", "tasks/{}", _get)
    router.add_route("DELETE", "tasks/{}", _delete)
    router.add_route("POST", "tasks/{}:cancel", _cancel)
    router.add_route("GET", "tasks/{}:subscribe", _subscribe)
    router.add_route("POST", "tasks/{}:subscribe", _subscribe)
    router.add_route("POST", "tasks/{}/pushNotificationConfigs", _create_push)
    router.add_route("GET", "tasks/{}/pushNotificationConfigs", _list_push)
    router.add_route("GET", "tasks/{}/pushNotificationConfigs/{*}", _get_push)
    router.add_route("DELETE", "tasks/{}/pushNotificationConfigs/{*}", _delete_push)
    return router


_ROUTER = _build_router()
