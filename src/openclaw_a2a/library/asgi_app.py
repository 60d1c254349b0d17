"""`to_a2a`: an adapter as an ASGI application, on a gateway that needs no settings files."""

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Self, cast
from urllib.parse import urlsplit

import msgspec

from openclaw_a2a.agents.adapter import AgentAdapter
from openclaw_a2a.app.gateway import Embedding, Gateway, build_app
from openclaw_a2a.auth.peers import CERTIFICATE_SCHEME, Credentials, PeerAuthenticator
from openclaw_a2a.auth.principal import LOCAL_PRINCIPAL, Principal
from openclaw_a2a.auth.request_origin import OwnAddresses
from openclaw_a2a.engine.engine import AccountRules, Engine
from openclaw_a2a.engine.outbox.delivery_tracking import DeliveryChannel
from openclaw_a2a.engine.transcript.single_artifact import SingleArtifactTranscript
from openclaw_a2a.engine.transcript.transcript import Transcript
from openclaw_a2a.http.asgi import AsgiScope, HttpRequest, Receive, Send
from openclaw_a2a.library.agent_card import build_agent_card, parse_agent_card, with_slash
from openclaw_a2a.library.inputs import as_agent, as_store
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.card import AgentCard
from openclaw_a2a.model.errors import Unauthenticated
from openclaw_a2a.model.ids import AccountId, AgentId, Json, JsonObject, PeerName
from openclaw_a2a.model.validation import is_object
from openclaw_a2a.ports import Agent, Store
from openclaw_a2a.server.account_endpoint import Authenticator
from openclaw_a2a.server.cards import LiveCard, security_requirements, security_schemes
from openclaw_a2a.settings import (
    Account,
    AgentStyle,
    LeaseSettings,
    Limits,
    LogSettings,
    OriginRoutingPolicy,
    PeerSettings,
    PushSettings,
    RetentionSettings,
    Secret,
    ServerSettings,
    Settings,
    StoreKind,
    StoreSettings,
    is_loopback,
)

log = get_logger(__name__)

# -------------------------------------------------------------------- who calls

CallerFunction = Callable[[dict[str, str]], "str | bool | Awaitable[str | bool | None] | None"]
"""From the headers of a request to its caller: a name, True for an unnamed one, None to refuse."""

Tokens = str | Iterable[str] | Mapping[str, str | Iterable[str]]
"""One token, several, or the tokens of each caller by name."""

_UNNAMED = "peer"
_CALLER_KEY = "openclaw_a2a.caller"
_TOKEN = re.compile(r"[A-Za-z0-9-]+")


class OpenAuthenticator:
    """Accepts every caller; on a loopback address it refuses web pages."""

    needs_token = False

    def __init__(self, url: str) -> None:
        self._own = OwnAddresses(urls=[url])

    def identify(self, request: HttpRequest) -> Principal:
        """Always the same caller. Raises: NotAllowed."""
        server = cast("tuple[str, int | None] | None", request.scope.get("server"))
        # Only on an address of this machine alone: elsewhere every client may call anyway.
        if server is not None and is_loopback(server[0]):
            self._own.check(request)
        return LOCAL_PRINCIPAL


class FunctionAuthenticator:
    """Identifies callers by a function of the developer; the card says how they authenticate."""

    needs_token = False

    def __init__(self, card: AgentCard) -> None:
        found = [_http_scheme(one) for one in (card.security_schemes or {}).values()]
        self._schemes = list(dict.fromkeys(filter(None, found))) or ["Bearer"]

    def identify(self, request: HttpRequest) -> Principal:
        """The caller with the name that the function returned. Raises: Unauthenticated."""
        name = request.scope.get(_CALLER_KEY)
        if name is None:
            raise Unauthenticated(
                "these credentials are not accepted here; send known ones",
                has_credentials=b"authorization" in request.headers,
                schemes=self._schemes,
            )
        return Principal(name)


def _http_scheme(scheme: JsonObject) -> str:
    """The HTTP authentication scheme of a security scheme of a card; empty when there is none."""
    if "apiKeySecurityScheme" in scheme:
        return "ApiKey"
    if "mtlsSecurityScheme" in scheme:
        return CERTIFICATE_SCHEME
    http = scheme.get("httpAuthSecurityScheme")
    if not is_object(http):
        return "Bearer"
    name = str(http.get("scheme", ""))
    return ("Bearer" if name.lower() == "bearer" else name) if _TOKEN.fullmatch(name) else ""


def token_authenticator(tokens: Tokens) -> PeerAuthenticator:
    """Identifies callers by token. Raises: ValueError (no tokens), TypeError."""
    if isinstance(tokens, Mapping):
        by_name = cast("Mapping[str, str | Iterable[str]]", tokens)
        named = {name: _token_list(held) for name, held in by_name.items()}
    else:
        listed = _token_list(tokens)
        several = {f"{_UNNAMED}-{number}": [token] for number, token in enumerate(listed, 1)}
        named = {_UNNAMED: listed} if len(listed) == 1 else several
    if not named or not all(named.values()):
        raise ValueError("auth has no token; give one, or leave auth out.")
    peers = [
        PeerSettings(PeerName(name), tuple(Secret.from_text("auth", token) for token in held))
        for name, held in named.items()
    ]
    return PeerAuthenticator(Credentials(peers), OwnAddresses())


def _token_list(tokens: str | Iterable[str]) -> list[str]:
    given: Json = [tokens] if isinstance(tokens, str) else tokens
    held = list(cast("Iterable[Json]", given)) if isinstance(given, Iterable) else [None]
    if not all(isinstance(one, str) for one in held):
        raise TypeError(
            "auth must be a token, several, a dict of tokens by the caller's name, or a function"
            " of the headers."
        )
    return [token.strip() for token in cast("list[str]", held) if token.strip()]


async def identify_caller(function: CallerFunction, scope: AsgiScope) -> None:
    """Put the caller that the function returns into the scope; an exception refuses the request."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        # RFC 9110, 5.3: repeated headers are one list. The function must not see only the last.
        key, text = name.decode("latin-1"), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    try:
        answer: Json = function(headers)
        if inspect.isawaitable(answer):
            answer = await answer
    except Exception:
        # No name in the scope: `FunctionAuthenticator` refuses. A failure admits no caller.
        log.warning("auth.function_failed", exc_info=True)
        return
    if answer:
        scope[_CALLER_KEY] = PeerName(answer if isinstance(answer, str) else _UNNAMED)


# -------------------------------------------------------------------- the gateway of one agent

ACCOUNT = AccountId("default")
AGENT = AgentId("main")

_ANY_MODE = ("*/*",)
_MAX_BODY_BYTES = 16 * 1024 * 1024


class ServedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent, and how it is served. Tasks are kept in memory unless there is a `store`.

    `follows_host`: the card has the address at which it was requested.
    """

    agent: Agent
    card: AgentCard
    follows_host: bool = False
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
            return OpenAuthenticator(self.card.url)
        if callable(self.auth):
            return FunctionAuthenticator(self.card)
        return token_authenticator(self.auth)

    @property
    def rules(self) -> AccountRules:
        """Rules that pass every message to the agent, and show its whole answer."""
        return AccountRules(
            ACCOUNT,
            AGENT,
            input_modes=_ANY_MODE,
            output_modes=_ANY_MODE,
            max_parts=self.limits.parts,
            max_part_bytes=self.limits.part_bytes,
            accepts_empty=True,
            transcript_type=self.transcript_type,
        )

    @property
    def _card_paths(self) -> list[str]:
        """The paths of the card's addresses, the longest first."""
        paths = {urlsplit(one.url).path.rstrip("/") for one in self.card.supported_interfaces}
        return sorted(paths - {""}, key=len, reverse=True)

    def build_gateway(self) -> Gateway:
        """A gateway with one account at `/` and one agent, not started yet."""
        authenticator, card = self.authenticator(), self.card
        if authenticator.needs_token and not card.security_schemes:
            schemes = security_schemes(has_tokens=True)
            card = msgspec.structs.replace(
                card,
                security_schemes=schemes,
                security_requirements=security_requirements(schemes),
            )
        account = Account(
            id=ACCOUNT,
            enabled=True,
            label=card.name,
            description=card.description,
            public_base_url=card.url.rstrip("/"),
            follows_host=self.follows_host,
            default_agent_id=AGENT,
            protocol_version="0.3.0",
            agent_card_path="/.well-known/agent-card.json",
            agent_card_alias="/.well-known/agent.json",
            json_rpc_path="/",
            rest_path="",
            max_body_bytes=_MAX_BODY_BYTES,
            default_input_modes=card.default_input_modes,
            default_output_modes=card.default_output_modes,
            push_notifications=card.capabilities.push_notifications,
            agent_style=AgentStyle.TASK_GENERATING,
            origin_routing_policy=OriginRoutingPolicy.SUPPRESS_GENERIC_FOLLOWUP,
            skills=card.skills,
        )
        settings = Settings(
            data=Path(),
            server=ServerSettings(),
            store=StoreSettings(kind=StoreKind.MEMORY),
            agents={},
            accounts=(account,),
            peers={},
            limits=self.limits,
            retention=self.retention,
            lease=LeaseSettings(),
            log=self.log,
            push=self.push,
        )
        embedding = Embedding(
            rules=self.rules,
            authenticator=authenticator,
            card=MountedCard(account, card),
            channels=self.channels,
        )
        return build_app(
            settings, agents={AGENT: self.agent}, embedding=embedding, store=self.store
        )

    async def serve_request(
        self, gateway: Gateway, scope: AsgiScope, receive: Receive, send: Send
    ) -> None:
        """Answer one request below the path that the application is mounted at, or its card's."""
        path = cast("str", scope["path"])
        # If it is not mounted, the application itself answers below the path on its card.
        bases = [_mount(scope)] if _mount(scope) else self._card_paths
        base = next((one for one in bases if path == one or path.startswith(f"{one}/")), "")
        scope = {**scope, "path": path.removeprefix(base) or "/"}
        if callable(self.auth):
            await identify_caller(cast("CallerFunction", self.auth), scope)
        await gateway.asgi(scope, receive, send)


class MountedCard(LiveCard):
    """The card of an application that may be mounted in another one.

    Routers redirect requests for the path of a mount to the same path with a slash, and A2A
    clients follow no redirects: below a mount, JSON-RPC is spoken at the address with the slash.
    """

    def __init__(self, account: Account, card: AgentCard) -> None:
        super().__init__(account, lambda _profile: card, lambda: None)
        interfaces = tuple(
            msgspec.structs.replace(one, url=with_slash(one.url))
            if one.protocol_binding == "JSONRPC"
            else one
            for one in card.supported_interfaces
        )
        mounted = msgspec.structs.replace(card, supported_interfaces=interfaces)
        self._mounted = LiveCard(account, lambda _profile: mounted, lambda: None)

    async def serve(self, request: HttpRequest) -> None:
        """Respond with the card for the address at which the request came in."""
        await (self._mounted.serve if _mount(request.scope) else super().serve)(request)


def _mount(scope: AsgiScope) -> str:
    """The path that the application is mounted at; empty: it is not mounted."""
    return cast("str", scope.get("root_path") or "").rstrip("/")


# -------------------------------------------------------------------- the application

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
        # Requests that arrive together must not open the store twice.
        async with self._starting:
            if self._gateway is None:
                self._gateway = await self.served.build_gateway().__aenter__()
            return self._gateway

    async def stop(self, within_s: float = STOP_TIMEOUT_S) -> None:
        """Let runs end within that time, then close the store, the adapter and everything else."""
        async with self._starting:
            # Taken out first: a request that comes during the drain waits for the lock and then
            # starts a new gateway, instead of using one that stops.
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

    async def __aexit__(self, *_: object) -> None:
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
