"""`to_a2a`: an adapter as an ASGI application."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from openclaw_a2a.agents.adapter import AgentAdapter
from openclaw_a2a.app.gateway import Gateway
from openclaw_a2a.http.asgi import AsgiScope, Receive, Send
from openclaw_a2a.library.agent_card import build_agent_card, parse_agent_card
from openclaw_a2a.library.authentication import CallerFunction, Tokens
from openclaw_a2a.library.embedded_gateway import ServedAgent
from openclaw_a2a.library.loading import as_agent, as_store
from openclaw_a2a.model.ids import Json
from openclaw_a2a.ports import Agent, Store
from openclaw_a2a.settings import PushSettings

STOP_TIMEOUT_S = 5.0
"""How long runs may continue when the server stops."""


def to_a2a(
    adapter: AgentAdapter | Agent | Callable[..., Json],
    agent_card: Json = None,
    task_store: Store | str | Path | None = None,
    *,
    auth: CallerFunction | Tokens | None = None,
    allow_private_webhooks: bool = False,
    **card_overrides: Json,
) -> "AdapterApp":
    """An ASGI application that serves an adapter (or an agent, or a function) over A2A.

    The card is at `/.well-known/agent-card.json` and `/.well-known/agent.json`, JSON-RPC of both
    protocol generations at `/`, HTTP+JSON below it. `agent_card` is an AgentCard, a dict or a card
    of a2a-sdk; without one it is built from the adapter and the overrides. Tasks are kept in
    memory, or in `task_store`: a store, or the path of a SQLite file. `auth` has the tokens that
    callers must show (one, several, or by the caller's name), or is a function of the headers that
    returns who calls. Push notifications go to public addresses, unless `allow_private_webhooks`.

    Raises: TypeError, ValueError.
    """
    agent = as_agent(adapter)
    if agent_card is not None and card_overrides:
        names = ", ".join(sorted(card_overrides))
        raise TypeError(f"Give a card or overrides, not both: {names} would not be seen.")
    card = (
        build_agent_card(agent, **card_overrides)
        if agent_card is None
        else parse_agent_card(agent_card, agent)
    )
    served = ServedAgent(
        agent=agent,
        card=card,
        store=as_store(task_store),
        auth=auth,
        push=PushSettings(allow_private=allow_private_webhooks),
    )
    served.authenticator()  # problems with the tokens are raised now
    return AdapterApp(served)


class AdapterApp:
    """The ASGI application. It starts with its server's lifespan, else with the first request.

    `async with` it where no lifespan stops it.
    """

    def __init__(self, served: ServedAgent) -> None:
        self.served = served
        self._gateway: Gateway | None = None
        self._starting = asyncio.Lock()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer one request, or follow the lifespan of the server."""
        if scope["type"] == "lifespan":
            await self._follow_lifespan(receive, send)
        elif scope["type"] == "http":
            gateway = self._gateway or await self.start()
            await self.served.serve_request(gateway, scope, receive, send)

    async def start(self) -> Gateway:
        """Open the store and recover what a crash interrupted; once."""
        async with self._starting:
            if self._gateway is None:
                self._gateway = await self.served.build_gateway().__aenter__()
            return self._gateway

    async def stop(self, within_s: float = STOP_TIMEOUT_S) -> None:
        """Let runs end within that time, then close the store, the adapter and everything else."""
        gateway, self._gateway = self._gateway, None
        if gateway is not None:
            try:
                await gateway.drain(within_s)
            finally:
                await gateway.__aexit__(None, None, None)

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop."""
        await self.stop()

    async def _follow_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.start()
        except Exception as error:  # the server reports it and ends
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})
