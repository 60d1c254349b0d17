"""An adapter as an ASGI application, with an engine, a store and doors of its own."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, cast
from urllib.parse import urlsplit

import msgspec

from openclaw_a2a.agents.adapter import AdapterAgent, AgentAdapter
from openclaw_a2a.agents.registry import AgentRegistry
from openclaw_a2a.app.gateway import Gateway, SystemClock
from openclaw_a2a.engine.tasks.turn_builder import AccountRules
from openclaw_a2a.http.asgi import Receive, Scope, Send
from openclaw_a2a.library.agent_card import StaticCard, build_agent_card, read_card
from openclaw_a2a.library.authentication import (
    CallerFunction,
    FunctionAuthenticator,
    OpenAuthenticator,
    Tokens,
    identify_caller,
    token_authenticator,
)
from openclaw_a2a.library.loading import as_adapter, as_store
from openclaw_a2a.model.card import AgentCard, AgentExtension
from openclaw_a2a.model.ids import AccountId, AgentId, Json
from openclaw_a2a.ports import Agent, Store
from openclaw_a2a.server.account_endpoint import Authenticator
from openclaw_a2a.server.cards import BEARER_REQUIREMENTS, BEARER_SCHEMES, LiveCard
from openclaw_a2a.settings import (
    Account,
    AgentStyle,
    LeaseSettings,
    Limits,
    LogSettings,
    OriginRoutingPolicy,
    PushSettings,
    RetentionSettings,
    ServerSettings,
    Settings,
    StoreKind,
    StoreSettings,
)

STOP_TIMEOUT_S = 5.0
"""How long runs may go on when the server that the application lives in stops."""

_AGENT = AgentId("main")
_MAX_BODY_BYTES = 16 * 1024 * 1024
_EVERYTHING = ("*/*",)


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
    generations at `/`, HTTP+JSON below it. `agent_card` is an AgentCard, a dict or a card of
    a2a-sdk; without one it is built from the adapter and the overrides. Tasks are kept in memory,
    or in `task_store`: a store, or the path of a SQLite file. `auth` has the tokens that callers
    must show (one, several, or by the caller's name), or is a function of the headers that says
    who calls. Push notifications go to public addresses, unless `allow_private_webhooks`.

    Raises: TypeError, ValueError.
    """
    asked = as_adapter(adapter)
    if agent_card is not None and card_overrides:
        names = ", ".join(sorted(card_overrides))
        raise TypeError(f"Give a card or overrides, not both: {names} would not be seen.")
    card = (
        build_agent_card(asked, **card_overrides)
        if agent_card is None
        else read_card(agent_card, asked)
    )
    serving = ServedAgent(
        adapter=asked,
        card=card,
        store=as_store(task_store),
        auth=auth,
        push=PushSettings(allow_private=allow_private_webhooks),
    )
    serving.callers()  # what is wrong with the tokens is said now
    return AdapterApp(serving)


class ServedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """What is served, and how."""

    adapter: AgentAdapter
    card: AgentCard
    store: Store | None = None
    auth: Json = None
    push: PushSettings = PushSettings()
    log: LogSettings = LogSettings()

    def callers(self) -> Authenticator:
        """Who may ask. Raises: ValueError."""
        if self.auth is None:
            return OpenAuthenticator([urlsplit(self.card.url).hostname or ""])
        return FunctionAuthenticator() if callable(self.auth) else token_authenticator(self.auth)

    def gateway(self) -> "AdapterGateway":
        """A gateway for it, not started yet."""
        return AdapterGateway(self)

    async def answer(
        self, gateway: "AdapterGateway", scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer one request: who asks it, and what is below the path we are mounted at."""
        below = cast("str", scope.get("root_path") or "")
        scope = {**scope, "path": cast("str", scope["path"]).removeprefix(below) or "/"}
        if callable(self.auth):
            await identify_caller(cast("CallerFunction", self.auth), scope)
        await gateway.asgi(scope, receive, send)


class AdapterApp:
    """The ASGI application. It starts with its server's lifespan, else with the first request.

    `async with` it where nobody tells it when to stop.
    """

    def __init__(self, serving: ServedAgent) -> None:
        self.serving = serving
        self._gateway: AdapterGateway | None = None
        self._starting = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or live through the life of the server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            gateway = self._gateway or await self.start()
            await self.serving.answer(gateway, scope, receive, send)

    async def start(self) -> "AdapterGateway":
        """Open the store and take up what a crash left behind; once."""
        async with self._starting:
            if self._gateway is None:
                self._gateway = await self.serving.gateway().__aenter__()
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

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.start()
        except Exception as error:  # the server tells it and leaves
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})


class AdapterGateway(Gateway):
    """A gateway with one account at `/` and one agent, the adapter."""

    def __init__(self, serving: ServedAgent) -> None:
        settings = _settings(serving)
        agents = AgentRegistry({_AGENT: AdapterAgent(serving.adapter)})
        super().__init__(settings, agents, SystemClock(), (_AGENT,))
        self._serving = serving

    def _rules(self, account: Account) -> AccountRules:
        return AccountRules(
            account=account.id,
            agent_id=_AGENT,
            input_modes=_EVERYTHING,
            output_modes=_EVERYTHING,
            max_parts=self.settings.limits.parts,
            accepts_empty=True,
        )

    def _callers(self) -> Authenticator:
        return self._serving.callers()

    def _card(
        self, account: Account, *, needs_token: bool, extensions: tuple[AgentExtension, ...]
    ) -> LiveCard:
        card = self._serving.card
        if needs_token and not card.security_schemes:
            card = msgspec.structs.replace(
                card, security_schemes=BEARER_SCHEMES, security_requirements=BEARER_REQUIREMENTS
            )
        return StaticCard(account, card)

    def _make_store(self, store_settings: StoreSettings) -> Store:
        return self._serving.store or super()._make_store(store_settings)

    def _make_token(self) -> None:
        """There is no operator beside the developer."""


def _settings(serving: ServedAgent) -> Settings:
    account = AccountId("default")
    return Settings(
        data=Path(),
        server=ServerSettings(),
        store=StoreSettings(kind=StoreKind.MEMORY),
        agents={},
        accounts=(_account(account, serving.card),),
        peers={},
        limits=Limits(),
        retention=RetentionSettings(),
        lease=LeaseSettings(),
        log=serving.log,
        push=serving.push,
    )


def _account(account: AccountId, card: AgentCard) -> Account:
    return Account(
        id=account,
        enabled=True,
        label=card.name,
        description=card.description,
        public_base_url=card.url.rstrip("/"),
        default_agent_id=_AGENT,
        protocol_version="0.3.0",
        agent_card_path="/.well-known/agent-card.json",
        agent_card_alias="/.well-known/agent.json",
        json_rpc_path="/",
        rest_path="",
        max_body_bytes=_MAX_BODY_BYTES,
        default_input_modes=card.default_input_modes,
        default_output_modes=card.default_output_modes,
        push_notifications=True,
        agent_style=AgentStyle.TASK_GENERATING,
        origin_routing_policy=OriginRoutingPolicy.SUPPRESS_GENERIC_FOLLOWUP,
        skills=card.skills,
    )
