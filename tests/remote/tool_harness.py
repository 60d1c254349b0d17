"""A desk with the tool on it, for tests: its clock, its store, and what it told meanwhile."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.net.safe_resolver import ResolveHost
from openclaw_a2a.ports import Store
from openclaw_a2a.remote.config import parse_config
from openclaw_a2a.remote.handles.handle_store import RecordHandleStore
from openclaw_a2a.remote.tool import RemoteAgentTool
from openclaw_a2a.remote.transport.http_transport import TargetConnections


class Desk:
    """The tool with a configuration, and everything it has said."""

    def __init__(
        self,
        network: TargetConnections,
        config: Json,
        *,
        environment: Mapping[str, str],
        store: Store | None,
    ) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=UTC)
        self.updates: list[JsonObject] = []
        self.answers: list[JsonObject] = []
        self.has_update = asyncio.Event()
        self.agent = RemoteAgentTool(
            parse_config(config),
            network,
            now=lambda: self.time,
            new_id=lambda: str(uuid.uuid4()),
            environment=environment,
            keeper=None if store is None else RecordHandleStore(store),
        )

    def wait(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)

    async def ask(self, action: str, **request: Json) -> JsonObject:
        """The envelope of a request; its updates are in `updates`."""
        self.updates = []
        self.has_update.clear()
        envelope = await self.agent.execute({"action": action, **request}, self._hear)
        self.answers += [*self.updates, envelope]
        return envelope

    def _hear(self, update: JsonObject) -> None:
        self.updates.append(update)
        self.has_update.set()

    async def send(self, text: str, **request: Json) -> JsonObject:
        return await self.ask("send", parts=[{"kind": "text", "text": text}], **request)

    async def fail(self, action: str, **request: Json) -> JsonObject:
        """The error of a request that fails."""
        envelope = await self.ask(action, **request)
        assert envelope["ok"] is False, envelope
        return envelope["error"]

    async def fail_send(self, text: str = "hi", **request: Json) -> JsonObject:
        return await self.fail("send", parts=[{"kind": "text", "text": text}], **request)


@asynccontextmanager
async def desk_with(
    config: Json,
    *,
    environment: Mapping[str, str] | None = None,
    store: Store | None = None,
    limit: int = 1024 * 1024,
    resolve: ResolveHost | None = None,
) -> AsyncGenerator[Desk]:
    """A desk, as long as the context lasts."""
    policy = parse_config(config).policy
    async with TargetConnections(policy, limit=limit, resolve=resolve) as network:
        desk = Desk(network, config, environment=environment or {}, store=store)
        try:
            yield desk
        finally:
            await desk.agent.close()


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
