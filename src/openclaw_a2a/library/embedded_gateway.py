"""A gateway for one agent that Python code supplies, without settings files."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import msgspec

from openclaw_a2a.app.gateway import Embedding, Gateway, build_app
from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.outbox.delivery_channel import DeliveryChannel
from openclaw_a2a.engine.tasks.turn_builder import AccountRules
from openclaw_a2a.engine.transcript.single_artifact import SingleArtifactTranscript
from openclaw_a2a.engine.transcript.transcript import Transcript
from openclaw_a2a.http.asgi import AsgiScope, Receive, Send
from openclaw_a2a.library.agent_card import StaticCard
from openclaw_a2a.library.authentication import (
    CallerFunction,
    FunctionAuthenticator,
    OpenAuthenticator,
    identify_caller,
    token_authenticator,
)
from openclaw_a2a.model.card import AgentCard
from openclaw_a2a.model.ids import AccountId, AgentId, Json
from openclaw_a2a.ports import Agent, Store
from openclaw_a2a.server.account_endpoint import Authenticator
from openclaw_a2a.server.cards import BEARER_REQUIREMENTS, BEARER_SCHEMES
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

ACCOUNT = AccountId("default")
AGENT = AgentId("main")

_ANY_MODE = ("*/*",)
_MAX_BODY_BYTES = 16 * 1024 * 1024
_STORE = StoreSettings(kind=StoreKind.MEMORY)


class ServedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent, and how it is served. Tasks are kept in memory unless there is a `store`."""

    agent: Agent
    card: AgentCard
    store: Store | None = None
    auth: Json = None
    push: PushSettings = PushSettings()
    log: LogSettings = LogSettings()
    limits: Limits = Limits()
    retention: RetentionSettings = RetentionSettings()
    transcript_type: type[Transcript] = SingleArtifactTranscript
    channels: Mapping[str, Callable[[Engine], DeliveryChannel]] = {}

    def authenticator(self) -> Authenticator:
        """Identifies callers as `auth` says. Raises: ValueError, TypeError."""
        if self.auth is None:
            return OpenAuthenticator([urlsplit(self.card.url).hostname or ""])
        return FunctionAuthenticator() if callable(self.auth) else token_authenticator(self.auth)

    @property
    def rules(self) -> AccountRules:
        """The agent is given every message, and everything it answers is shown."""
        return AccountRules(
            ACCOUNT,
            AGENT,
            input_modes=_ANY_MODE,
            output_modes=_ANY_MODE,
            max_parts=self.limits.parts,
            accepts_empty=True,
            transcript_type=self.transcript_type,
        )

    def build_gateway(self) -> Gateway:
        """A gateway with one account at `/` and one agent, not started yet."""
        settings, authenticator, card = self._settings(), self.authenticator(), self.card
        if authenticator.needs_token and not card.security_schemes:
            card = msgspec.structs.replace(
                card, security_schemes=BEARER_SCHEMES, security_requirements=BEARER_REQUIREMENTS
            )
        embedding = Embedding(
            rules=self.rules,
            authenticator=authenticator,
            card=StaticCard(settings.default_account, card),
            store=self.store,
            channels=self.channels,
        )
        return build_app(settings, agents={AGENT: self.agent}, embedding=embedding)

    async def serve_request(
        self, gateway: Gateway, scope: AsgiScope, receive: Receive, send: Send
    ) -> None:
        """Answer one request below the path that the application is mounted at."""
        mount = cast("str", scope.get("root_path") or "")
        scope = {**scope, "path": cast("str", scope["path"]).removeprefix(mount) or "/"}
        if callable(self.auth):
            await identify_caller(cast("CallerFunction", self.auth), scope)
        await gateway.asgi(scope, receive, send)

    def _settings(self) -> Settings:
        return Settings(
            data=Path(),
            server=ServerSettings(),
            store=_STORE,
            agents={},
            accounts=(_account(self.card),),
            peers={},
            limits=self.limits,
            retention=self.retention,
            lease=LeaseSettings(),
            log=self.log,
            push=self.push,
        )


def embedded_engine(gateway: Gateway) -> Engine:
    """The one engine of a started gateway that was built here."""
    return gateway.engines[_STORE]


def _account(card: AgentCard) -> Account:
    return Account(
        id=ACCOUNT,
        enabled=True,
        label=card.name,
        description=card.description,
        public_base_url=card.url.rstrip("/"),
        default_agent_id=AGENT,
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
