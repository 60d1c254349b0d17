"""The tool `remote_agent` with a test clock, and a record of everything it returned."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.net.safe_resolver import ResolveHost
from openclaw_a2a.ports import Store
from openclaw_a2a.remote.config import parse_config
from openclaw_a2a.remote.handles import RecordHandleStore
from openclaw_a2a.remote.result_builder import StreamUpdate
from openclaw_a2a.remote.tool import RemoteAgentTool
from openclaw_a2a.remote.transport.http_transport import TargetConnections


class ToolHarness:
    """The tool with a configuration, and every envelope it has given."""

    def __init__(
        self,
        connections: TargetConnections,
        config: Json,
        *,
        environment: Mapping[str, str],
        store: Store | None,
        now: Callable[[], datetime] | None,
    ) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=UTC)
        self.updates: list[JsonObject] = []
        self.envelopes: list[JsonObject] = []
        self.has_update = asyncio.Event()
        self.tool = RemoteAgentTool(
            parse_config(config),
            connections,
            now=now or (lambda: self.time),
            new_id=lambda: str(uuid.uuid4()),
            environment=environment,
            handle_store=None if store is None else RecordHandleStore(store),
        )

    def advance(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)

    async def execute(self, action: str, **request: Json) -> JsonObject:
        """The envelope of a request; its updates are in `updates`."""
        self.updates = []
        self.has_update.clear()
        envelope = await self.tool.execute({"action": action, **request}, self._on_update)
        self.envelopes += [*self.updates, envelope]
        return envelope

    async def _on_update(self, update: StreamUpdate) -> None:
        self.updates.append(update.envelope())
        self.has_update.set()

    async def send(self, text: str, **request: Json) -> JsonObject:
        return await self.execute("send", parts=[{"kind": "text", "text": text}], **request)

    async def fail(self, action: str, **request: Json) -> JsonObject:
        """The error of a request that fails."""
        envelope = await self.execute(action, **request)
        assert envelope["ok"] is False, envelope
        return envelope["error"]

    async def fail_send(self, text: str = "hi", **request: Json) -> JsonObject:
        return await self.fail("send", parts=[{"kind": "text", "text": text}], **request)


@asynccontextmanager
async def open_tool(
    config: Json,
    *,
    environment: Mapping[str, str] | None = None,
    store: Store | None = None,
    limit: int = 1024 * 1024,
    resolve: ResolveHost | None = None,
    now: Callable[[], datetime] | None = None,
) -> AsyncGenerator[ToolHarness]:
    """The tool, as long as the context lasts; its clock stands still unless `now` is given."""
    policy = parse_config(config).policy
    async with TargetConnections(policy, limit=limit, resolve=resolve) as connections:
        harness = ToolHarness(
            connections, config, environment=environment or {}, store=store, now=now
        )
        try:
            yield harness
        finally:
            await harness.tool.close()


def target(url: str, alias: str = "peer", **more: Json) -> JsonObject:
    return {"alias": alias, "baseUrl": url, **more}


def one_target(url: str, *, policy: JsonObject | None = None, **more: Json) -> JsonObject:
    """A configuration with one target, which is the default."""
    return {
        "enabled": True,
        "defaults": {"timeoutMs": 10_000},
        "targets": [target(url, default=True, **more)],
        "policy": policy or {},
    }
