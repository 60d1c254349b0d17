"""A gateway with tools on a real socket, whose remote agents are itself and one that is silent."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from tests.ports import free_port

from openclaw_a2a.app import build_app
from openclaw_a2a.auth.tokens import TokenKind, TokenStore
from openclaw_a2a.settings import load_settings

DEADLINE_S = 240.0
Json = Any


class SilentAgent:
    """A remote agent whose card is there and who never answers; it notes when a caller leaves."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked = asyncio.Event()
        self.left = asyncio.Event()

    async def __call__(self, scope: Json, receive: Json, send: Json) -> None:
        if scope["type"] != "http":
            return
        if scope["method"] == "GET":
            await self._tell_card(send)
            return
        while (await receive()).get("more_body"):
            pass
        self.asked.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left.set()

    async def _tell_card(self, send: Json) -> None:
        interface = {"url": self.url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        card = {
            "name": "silent",
            "description": "never answers",
            "version": "1",
            "supportedInterfaces": [interface],
            "capabilities": {"streaming": True},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [],
        }
        head = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": json.dumps(card).encode()})


@dataclass
class ToolGateway:
    """The gateway: where it is, who may call its tools, and its silent neighbour."""

    url: str
    folder: Path
    config: Path
    silent: SilentAgent
    clients: list[httpx2.AsyncClient] = field(default_factory=list)

    @property
    def tokens(self) -> TokenStore:
        return TokenStore(self.folder)

    def client(self, name: str = "ann", kind: TokenKind = TokenKind.TOOL) -> httpx2.AsyncClient:
        """A caller with a new token of this name."""
        return self.caller({"authorization": f"Bearer {self.tokens.create(name, kind)}"})

    def caller(self, headers: dict[str, str]) -> httpx2.AsyncClient:
        client = httpx2.AsyncClient(
            base_url=self.url, headers=headers, trust_env=False, timeout=DEADLINE_S
        )
        self.clients.append(client)
        return client


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are for the process that runs the tests."""
        yield


@asynccontextmanager
async def serve_app(app: Json, listener: socket.socket, **options: Json) -> AsyncIterator[None]:
    """The ASGI application on the socket, in this loop; `options` are those of uvicorn."""
    usual = {
        "interface": "asgi3",
        "http": "httptools",
        "proxy_headers": False,
        "lifespan": "off",
        "log_level": "warning",
        "timeout_graceful_shutdown": 1,
    }
    config = uvicorn.Config(app, **usual | options)
    server = _Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await asyncio.wait_for(serving, DEADLINE_S)


def free_socket(port: int = 0) -> tuple[socket.socket, str]:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port or free_port()))
    listener.listen()
    listener.setblocking(False)
    return listener, f"http://127.0.0.1:{listener.getsockname()[1]}"


def settings_for(url: str, silent_url: str, more: dict[str, Json]) -> dict[str, Json]:
    outbound = {
        "enabled": True,
        "targets": [
            {"alias": "me", "baseUrl": url, "default": True},
            {"alias": "silent", "baseUrl": silent_url},
        ],
        "policy": {"maxResultBytes": 20_000},
        **more.pop("outbound", {}),
    }
    server = {"port": int(url.rpartition(":")[2]), "heartbeatSeconds": 0.2}
    return {
        "server": server,
        "store": {"kind": "memory"},
        "agents": {"main": {"adapter": "echo"}},
        "outbound": outbound,
        "tools": {"bodyBytes": 1024 * 1024},
        **more,
    }


@asynccontextmanager
async def serve_gateway(folder: Path, *, port: int = 0, **more: Json) -> AsyncIterator[ToolGateway]:
    """The gateway and its silent neighbour, until the context ends."""
    listener, url = free_socket(port)
    quiet_listener, quiet_url = free_socket()
    silent = SilentAgent(quiet_url)
    config = folder / "gateway.json5"
    config.write_text(json.dumps(settings_for(url, quiet_url, more)), encoding="utf-8")
    overrides = {"data": str(folder)}
    settings = load_settings(config, overrides=overrides, environ={"HOME": str(folder)}).settings
    served = ToolGateway(url, folder, config, silent)
    with closing(listener), closing(quiet_listener):
        async with (
            serve_app(silent, quiet_listener),
            build_app(settings) as gateway,
            serve_app(gateway.asgi, listener),
        ):
            try:
                yield served
            finally:
                for client in served.clients:
                    await client.aclose()
