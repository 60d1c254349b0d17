"""Ask for tasks that cannot be read with the official a2a-sdk 1.x client; print what it raises.

Usage: errors_1_0.py BASE_URL BINDING TASK_ID...
"""

import asyncio
import json
import sys

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import GetTaskRequest


async def raised(client, task_id):
    try:
        await client.get_task(GetTaskRequest(id=task_id))
    except Exception as error:
        return type(error).__name__
    return None


async def main(url, binding, task_ids):
    async with httpx.AsyncClient(timeout=240, headers={"A2A-Version": "1.0"}) as http:
        config = ClientConfig(httpx_client=http, supported_protocol_bindings=[binding])
        client = ClientFactory(config).create(await A2ACardResolver(http, url).get_agent_card())
        return {task_id: await raised(client, task_id) for task_id in task_ids}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))))
