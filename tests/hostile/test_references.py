"""A short message that refers to much."""

from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from tests.conftest import GatewayProcess
from tests.hostile.raw_client import cost_of, quiet_loop


@pytest.mark.slow
async def test_a_short_message_that_refers_to_much_takes_little_memory(
    gateway: GatewayProcess,
) -> None:
    async with httpx.AsyncClient(base_url=gateway.url, timeout=240) as client:
        task = await send(client, "chunks:5:1000000")
        before = memory_of(gateway)
        for _ in range(3):
            await send(client, "echo:x", referenceTaskIds=[task] * 400)
        # Four hundred copies were more than a gigabyte.
        assert memory_of(gateway) - before < 200_000_000


@pytest.mark.slow
async def test_a_task_that_is_named_four_hundred_times_costs_as_much_as_once(
    gateway: GatewayProcess,
) -> None:
    async with httpx.AsyncClient(base_url=gateway.url, timeout=240) as client:
        task = await send(client, "chunks:5:1000000")
        costs: dict[int, float] = {}
        for count in (1, 400):
            await quiet_loop(gateway.pid)
            costs[count] = await cost_of(
                gateway.pid,
                lambda count=count: send(
                    client, f"echo:{uuid4()}", referenceTaskIds=[task] * count
                ),
                times=3,
            )
        assert costs[400] < 3 * costs[1]


async def send(client: httpx.AsyncClient, text: str, **members: object) -> str:
    message = {
        "messageId": text + str(len(members)),
        "role": "ROLE_USER",
        "parts": [{"text": text}],
    }
    params = {"message": message | members}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    answer = (await client.post("/a2a/jsonrpc", json=call)).json()
    return answer["result"]["task"]["id"]


def memory_of(gateway: GatewayProcess) -> int:
    """The most memory that the process has had, in bytes."""
    status = Path(f"/proc/{gateway.pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
