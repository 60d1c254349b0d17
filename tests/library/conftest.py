"""An embedded application, and a small client for it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from openclaw_a2a import AgentAdapter, to_a2a


class Client:
    """Raw requests to an application."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http
        self._number = 0

    def message(self, *parts: Any, **members: Any) -> dict[str, Any]:
        self._number += 1
        shaped = [{"text": part} if isinstance(part, str) else part for part in parts]
        return {
            "messageId": f"m-{self._number}",
            "role": "ROLE_USER",
            "parts": shaped,
            **members,
        }

    async def call(self, method: str, **params: Any) -> Any:
        envelope = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return (await self.http.post("/", json=envelope)).json()

    async def send(self, *parts: Any, wait: bool = True, **members: Any) -> Any:
        """The task that a message ends as."""
        configuration = {"returnImmediately": not wait}
        message = self.message(*parts, **members)
        answer = await self.call("SendMessage", message=message, configuration=configuration)
        return answer["result"]["task"]

    async def stream(self, *parts: Any, **members: Any) -> list[Any]:
        """The events that a message brings about, without the snapshot at the start."""
        message = self.message(*parts, **members)
        answer = await self.http.post("/message:stream", json={"message": message})
        lines = [line for line in answer.text.splitlines() if line.startswith("data: ")]
        return [json.loads(line.removeprefix("data: ")) for line in lines]

    async def state(self, task_id: str) -> str:
        answer = await self.call("GetTask", id=task_id)
        return answer["result"]["status"]["state"]


@pytest.fixture
def serving() -> Any:
    """Serve an adapter in this process: `async with serving(adapter) as client`."""

    @asynccontextmanager
    async def serving(
        adapter: AgentAdapter | Any, *, stop_s: float = 5.0, **options: Any
    ) -> AsyncIterator[Client]:
        app = to_a2a(adapter, **options)
        await app.start()
        try:
            transport = httpx2.ASGITransport(app)
            async with httpx2.AsyncClient(
                transport=transport, base_url="http://test", timeout=240
            ) as http:
                yield Client(http)
        finally:
            await app.stop(stop_s)

    return serving


@pytest.fixture
def text_of() -> Any:
    """The text of a message or an artifact."""

    def text_of(holder: Any) -> str:
        return "".join(part.get("text", "") for part in holder["parts"])

    return text_of
