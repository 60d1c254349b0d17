"""Stopping: every waiting request gets a response, and unfinished work is found again."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.server.conftest import MakeGateway
from tests.server.gateway_process import RPC, GatewayProcess, RawResponse, head, message

pytestmark = pytest.mark.slow

SETTINGS = {
    # No heartbeat: it would begin the response of a waiting stream, which then has no status 503.
    "server": {"stopSeconds": 20, "heartbeatSeconds": 600},
    "agents": {
        "main": {"adapter": "command", "command": ["sleep", "600"], "input": "stdin"},
    },
    "channels": {
        "a2a": {
            "accounts": {
                "default": {"agentStyle": "hybrid"},
                "tasks": {"agentStyle": "task-generating"},
            }
        }
    },
}


def _is_draining(response: RawResponse) -> bool:
    [detail] = response.json["error"]["data"]
    is_named = detail["metadata"]["code"] == "draining"
    return is_named and response.status == 503 and int(response.headers["retry-after"]) >= 1


async def _eventually(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something in another process, which tells nobody."""
    async with asyncio.timeout(240):
        while True:
            if await is_so():
                return
            await asyncio.sleep(0.02)


async def _runs_begun(gateway: GatewayProcess, count: int) -> None:
    """Wait until so many programs of the gateway run."""
    assert gateway.process is not None
    process_id = gateway.process.pid

    async def are_there() -> bool:
        return _child_count(process_id) >= count

    await _eventually(are_there)


def _child_count(process_id: int) -> int:
    children = Path(f"/proc/{process_id}/task/{process_id}/children")
    return len(children.read_text(encoding="utf-8").split())


@pytest.mark.requirement("door.drain")
async def test_every_waiting_request_is_answered_when_the_gateway_stops(
    make_gateway: MakeGateway,
) -> None:
    gateway = make_gateway(SETTINGS)
    await gateway.start()
    rpc = "/agents/tasks/a2a/jsonrpc"
    at_once = message("a", "m-1", returnImmediately=True)
    task = (await gateway.call("SendMessage", at_once, path=rpc)).json
    waiting = [
        asyncio.create_task(gateway.call("SendMessage", message("b", "m-2"))),
        asyncio.create_task(gateway.call("SendStreamingMessage", message("c", "m-3"))),
    ]
    task_id = task["result"]["task"]["id"]
    call = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}
    body = json.dumps(call).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    size = b"content-length: %d" % len(body)
    writer.write(head(b"POST", rpc, size, port=gateway.port) + body)
    async with asyncio.timeout(240):
        begun = await reader.readuntil(b"\r\n\r\n")  # a stream that has begun is not refused
    await _runs_begun(gateway, 3)
    gateway.terminate()
    await _refuses(gateway)
    assert [_is_draining(response) for response in await asyncio.gather(*waiting)] == [True, True]
    async with asyncio.timeout(240):
        followed = RawResponse(begun + await reader.read())
    writer.close()
    assert followed.status == 200
    assert b"event: error" not in followed.body
    assert await gateway.wait() == 0
    assert "Traceback" not in gateway.log()
    assert "ASGI" not in gateway.log()
    await gateway.start()
    recovered = await gateway.call("GetTask", {"id": task_id}, path=rpc)
    assert recovered.json["result"]["status"]["state"] in (
        "TASK_STATE_FAILED",
        "TASK_STATE_SUBMITTED",
        "TASK_STATE_WORKING",
    )


async def _refuses(gateway: GatewayProcess) -> None:
    """A new message is refused while runs may still go on."""

    async def has_heard() -> bool:
        return (await gateway.ask(b"GET", "/readyz")).status == 503

    await _eventually(has_heard)
    assert _is_draining(await gateway.call("SendMessage", message("d", "m-4")))


@pytest.mark.requirement("door.drain")
async def test_a_request_still_being_sent_at_the_stop_gets_503(
    make_gateway: MakeGateway,
) -> None:
    gateway = make_gateway({"server": {"stopSeconds": 0}})
    await gateway.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    expecting = (b"content-length: 100", b"expect: 100-continue")
    writer.write(head(b"POST", RPC, *expecting, port=gateway.port))
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    gateway.terminate()
    response = RawResponse(await reader.read())
    writer.close()
    assert response.status == 503
    assert response.json["error"]["code"] == "A2A_STOPPING"
    assert int(response.headers["retry-after"]) >= 1
    assert await gateway.wait() == 0
    assert "Traceback" not in gateway.log()
