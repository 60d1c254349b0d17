"""A plain client of our A2A endpoints: JSON-RPC of both versions, and streams."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing, suppress
from itertools import count
from typing import Any

import httpx2

from openclaw_a2a.net.sse_reader import SseReader

Json = Any

TIMEOUT_S = 240.0
ENDED = ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED")

_numbers = count(1)


class RpcFailed(Exception):
    """The call was answered with an error."""

    def __init__(self, error: Json) -> None:
        super().__init__(error)
        self.code: int = error["code"]
        self.message: str = error["message"]


class A2AClient:
    """Speaks 1.0 to one account of a gateway."""

    def __init__(self, http: httpx2.AsyncClient, *, account: str = "", token: str = "") -> None:
        self._http = http
        self._path = f"/agents/{account}/a2a/jsonrpc" if account else "/a2a/jsonrpc"
        self.headers = {"a2a-version": "1.0"}
        if token:
            self.headers["authorization"] = f"Bearer {token}"

    def at(self, *, account: str = "", token: str = "") -> "A2AClient":
        """A client of another account or with another token, over the same connections."""
        return A2AClient(self._http, account=account, token=token)

    async def call(self, method: str, params: Json) -> Json:
        """The result. Raises: RpcFailed."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = await self._http.post(self._path, json=body, headers=self.headers)
        return _result(answer.json())

    async def send(self, text: str, **members: Json) -> Json:
        """The task after SendMessage, which waits for its end or a pause."""
        return (await self.call("SendMessage", message(text, **members)))["task"]

    async def start(self, text: str, **members: Json) -> Json:
        """The task that SendMessage makes without waiting."""
        params = message(text, **members)
        params.setdefault("configuration", {})["returnImmediately"] = True
        return (await self.call("SendMessage", params))["task"]

    async def get(self, task_id: str, **more: Json) -> Json:
        """The task."""
        return await self.call("GetTask", {"id": task_id, **more})

    async def cancel(self, task_id: str) -> Json:
        """The task after CancelTask."""
        return await self.call("CancelTask", {"id": task_id})

    async def stream(
        self, method: str, params: Json, *, last_event_id: int | None = None
    ) -> AsyncGenerator[tuple[int, Json]]:
        """The numbered events of a stream until it ends. Close it (`aclosing`) to leave early."""
        headers = {**self.headers, "accept": "text/event-stream"}
        if last_event_id is not None:
            headers["last-event-id"] = str(last_event_id)
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        reader = SseReader()
        async with AsyncExitStack() as stack:
            opened = self._http.stream("POST", self._path, json=body, headers=headers)
            answer = await stack.enter_async_context(opened)
            if "text/event-stream" not in answer.headers["content-type"]:
                await answer.aread()
                yield 0, _result(answer.json())
                return
            chunks = await stack.enter_async_context(aclosing(answer.aiter_raw()))
            async for chunk in chunks:
                for event in reader.feed(chunk):
                    yield int(event.id or "-1"), _result(json.loads(event.data))

    async def events(self, text: str, **members: Json) -> list[Json]:
        """All events of a SendStreamingMessage that ends by itself."""
        async with asyncio.timeout(TIMEOUT_S):
            stream = self.stream("SendStreamingMessage", message(text, **members))
            return [event async for _, event in stream]

    async def wait_state(self, task_id: str, *states: str) -> Json:
        """The task once it is in one of the states; any end when none is named."""
        wanted = states or ENDED
        return await self.wait_status(task_id, lambda task: task["status"]["state"] in wanted)

    async def wait_status(self, task_id: str, is_wanted: Callable[[Json], bool]) -> Json:
        """The task once it, or a status of it, is as wanted."""
        async with asyncio.timeout(TIMEOUT_S):
            while not is_wanted(task := await self.get(task_id)):
                await self._follow(task_id, is_wanted)
        return task

    async def _follow(self, task_id: str, is_wanted: Callable[[Json], bool]) -> None:
        with suppress(RpcFailed):  # when it has ended meanwhile
            async with aclosing(self.stream("SubscribeToTask", {"id": task_id})) as events:
                async for _, event in events:
                    shown = event.get("statusUpdate") or event.get("task")
                    if shown and is_wanted(shown):
                        return


def message(text: str, **members: Json) -> Json:
    """Params of SendMessage; `configuration` stays outside the message."""
    rest = dict(members)
    params: dict[str, Json] = {}
    if "configuration" in rest:
        params["configuration"] = rest.pop("configuration")
    body = {"messageId": f"m-{next(_numbers)}", "role": "ROLE_USER", "parts": [{"text": text}]}
    return {**params, "message": {**body, **rest}}


def state_of(event: Json) -> str:
    """The state that an event (or a task in it) tells; empty for none."""
    shown: Json = event.get("statusUpdate") or event.get("task") or {}
    return str(shown.get("status", {}).get("state", ""))


def text_of(shown: Json) -> str:
    """The text of a task's artifacts, of an artifact, or of a message."""
    if "artifacts" in shown or "status" in shown:
        return "".join(text_of(one) for one in shown.get("artifacts", []))
    return "".join(part.get("text", "") for part in shown.get("parts", []))


def status_text(task: Json) -> str:
    """The text of the message in a task's status."""
    return text_of(task["status"].get("message", {}))


def _result(envelope: Json) -> Json:
    if "error" in envelope:
        raise RpcFailed(envelope["error"])
    return envelope["result"]
