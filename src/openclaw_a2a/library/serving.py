"""Serving an adapter from a script, wherever in it: outside an event loop or inside one."""

import asyncio
import inspect
import ipaddress
import re
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from socket import socket
from types import FrameType
from typing import Any, cast

import msgspec
import uvicorn

from openclaw_a2a.agents import CallableAgent
from openclaw_a2a.agents.adapter import AdapterAgent, AgentAdapter
from openclaw_a2a.app.banner import tell
from openclaw_a2a.app.gateway import Gateway, build_app
from openclaw_a2a.app.lifecycle import DrainingServer, listen, serve_gateway
from openclaw_a2a.app.logging import configure_logs
from openclaw_a2a.library.agent_card import OVERRIDES
from openclaw_a2a.library.asgi_app import AdapterGateway, ServedAgent, to_a2a
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.ports import Agent
from openclaw_a2a.settings import (
    LoadedSettings,
    LogSettings,
    Settings,
    base_url,
    is_loopback,
    load_settings,
)

_OF_THE_APP = OVERRIDES | {"task_store", "auth", "allow_private_webhooks"}
_OF_UVICORN = inspect.signature(uvicorn.Config).parameters.keys()
_LEVELS = ("debug", "info", "warning", "error")
_LOOK_S = 0.2


def serve_agent(
    adapter: AgentAdapter | Agent | Callable[..., Json],
    agent_card: Json = None,
    host: str = "127.0.0.1",
    port: int = 9000,
    log_level: str = "info",
    *,
    allow_anonymous: bool = False,
    **kw: Json,
) -> None:
    """Serve an adapter (or an agent, or a function) until a signal comes.

    Further arguments are those of `to_a2a`; what it does not know goes to uvicorn. Without a card
    the address on it is made of host and port. It blocks in either case: called inside a running
    event loop it serves from a thread with a loop of its own, and the loop it was called in stands
    still meanwhile. (To serve beside other things, run `to_a2a` in a server of your own.)

    A host that other machines reach is refused without `auth`, unless `allow_anonymous` says that
    everybody there may use the agent.

    Raises: PortTaken, ValueError, TypeError.
    """
    if log_level not in _LEVELS:
        raise ValueError(f"log_level is {log_level!r}; it must be one of {', '.join(_LEVELS)}.")
    if not (allow_anonymous or kw.get("auth") is not None or is_loopback(host)):
        raise ValueError(
            f"host {host!r} can be reached from other machines, and no caller has to show a token;"
            " give auth= (a token), listen on 127.0.0.1, or insist with allow_anonymous=True."
        )
    for name in kw.keys() - _OF_THE_APP - _OF_UVICORN:
        raise TypeError(f"serve_agent takes no argument {name!r}, and neither does uvicorn.")
    log = LogSettings(level=cast("Any", log_level))
    configure_logs(log)
    listener = listen(host, port)
    try:
        own = {key: value for key, value in kw.items() if key in _OF_THE_APP}
        if agent_card is None:
            own.setdefault("url", f"{base_url(_shown(host), listener.getsockname()[1])}/")
        serving = msgspec.structs.replace(to_a2a(adapter, agent_card, **own).serving, log=log)
        rest = {key: value for key, value in kw.items() if key not in _OF_THE_APP}
        _run(_Service(serving, listener, rest))
    finally:
        listener.close()


class _Announced(DrainingServer):
    """Says that it is ready when it is: signals are waited for, and so are callers."""

    words = ""

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        tell(self.words, "Stop it: Ctrl-C")


class _Service:
    """One server for one adapter."""

    def __init__(self, serving: ServedAgent, listener: socket, options: JsonObject) -> None:
        self._serving = serving
        self._listener = listener
        self._options = options
        self._server: _Announced | None = None
        self._is_stopped = False

    async def serve(self) -> None:
        """Serve until somebody says stop."""
        async with self._serving.gateway() as gateway:
            stop_s = gateway.settings.server.stop_seconds
            self._server = _Announced(self._config(gateway), gateway, stop_s)
            card = self._serving.card
            self._server.words = f"{card.name} is ready at {card.url}"
            if not self._is_stopped:
                await self._server.serve(sockets=[self._listener])

    def stop(self, number: int, frame: FrameType | None) -> None:
        """A signal came; from any thread."""
        self._is_stopped = True
        if self._server is not None:
            self._server.handle_exit(number, frame)

    def _config(self, gateway: AdapterGateway) -> uvicorn.Config:
        usual: JsonObject = {
            "interface": "asgi3",
            "http": "httptools",
            "proxy_headers": False,
            "log_level": "warning",
            "access_log": False,
            "server_header": False,
            "timeout_graceful_shutdown": 2,
        }
        options: JsonObject = {**usual, **self._options, "lifespan": "off"}
        return uvicorn.Config(partial(self._serving.answer, gateway), **options)


def _run(service: _Service) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        _in_new_loop(service.serve())
    else:
        _in_thread(service)


def _in_new_loop(work: Coroutine[Any, Any, None]) -> None:
    factory = uvicorn.Config(_unused, loop="auto").get_loop_factory()
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(work)


def _in_thread(service: _Service) -> None:
    """Serve from a thread; signals, which come to the main thread only, are passed on to it."""
    failures: list[BaseException] = []

    def work() -> None:
        try:
            _in_new_loop(service.serve())
        except BaseException as error:  # raised again where the server was called
            failures.append(error)

    thread = threading.Thread(target=work, name="serve_agent")
    is_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if is_main else ()
    before = [(number, signal.signal(number, service.stop)) for number in numbers]
    try:
        thread.start()
        while thread.is_alive():
            thread.join(_LOOK_S)
    finally:
        for number, known in before:
            signal.signal(number, known)
    if failures:
        raise failures[0]


def _shown(host: str) -> str:
    """The host as callers on this machine may say it."""
    try:
        return "localhost" if not host or ipaddress.ip_address(host).is_unspecified else host
    except ValueError:
        return host


async def _unused(*_: object) -> None:
    """Uvicorn wants an application before it tells which event loop it would take."""


def serve(
    answer: Callable[..., Any] | Agent | AgentAdapter,
    *,
    name: str | None = None,
    port: int | None = None,
    settings: Mapping[str, Json] | None = None,
) -> int:
    """Serve a function (or any Agent or AgentAdapter) as an A2A agent until the process is stopped.

    The function takes the text (and, when it wants, the turn) and returns or yields the answer;
    it may be sync, async or a generator. `name` stands on the agent card. Settings come from the
    settings file and the environment as for `openclaw-a2a up`; `settings` has dotted paths
    (`{"limits.runs": 4}`) and wins. Unless they say otherwise, tasks are kept in a database of
    this agent's own below the data folder.

    When it cannot start it says why on stderr and ends the script with exit code 2.
    """
    shown = name or getattr(answer, "__name__", type(answer).__name__)
    try:
        loaded = _load(shown, {**_flags(shown, port), **(settings or {})})
        agent = _agent(answer)

        def gateway(final: Settings) -> Gateway:
            return build_app(final, agents={final.default_account.default_agent_id: agent})

        return serve_gateway(loaded, gateway)
    except GatewayError as error:
        print(f"error {error.code}: {error.message}", file=sys.stderr)
        raise SystemExit(2) from None


def _agent(answer: Callable[..., Any] | Agent | AgentAdapter) -> Agent:
    if isinstance(answer, AgentAdapter):
        return AdapterAgent(answer)
    if hasattr(answer, "recovery"):
        return cast("Agent", answer)
    return CallableAgent(cast("Callable[..., Any]", answer))


def _flags(name: str, port: int | None) -> dict[str, Json]:
    flags: dict[str, Json] = {
        "channels.a2a.accounts.default.label": name,
        "channels.a2a.accounts.default.agentStyle": "task-generating",
        # A script serves its own agent and nobody else's.
        "openclaw.enabled": False,
    }
    if port is not None:
        flags["server.port"] = port
    return flags


def _load(name: str, overrides: Mapping[str, Json]) -> LoadedSettings:
    loaded = load_settings(overrides=overrides)
    if any(path == "data" or path.startswith("store.") for path in loaded.origins):
        return loaded
    folder = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "agent"
    own = Path(loaded.settings.data) / "agents" / folder
    return load_settings(overrides={**overrides, "data": str(own)})
