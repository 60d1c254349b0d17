"""Serving an adapter from a script, wherever in it: outside an event loop or inside one."""

import asyncio
import inspect
import ipaddress
import signal
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from socket import socket
from types import FrameType
from typing import Any, cast

import msgspec
import uvicorn

from openclaw_a2a.agents.adapter import AgentAdapter
from openclaw_a2a.app.adapters_app import AdapterGateway, Serving, to_a2a
from openclaw_a2a.app.adapters_card import OVERRIDES
from openclaw_a2a.app.banner import tell
from openclaw_a2a.app.logs import configure_logs
from openclaw_a2a.app.server import DrainingServer, listen
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.ports import Agent
from openclaw_a2a.settings import LogSettings, base_url, is_loopback

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

    def __init__(self, serving: Serving, listener: socket, options: JsonObject) -> None:
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
