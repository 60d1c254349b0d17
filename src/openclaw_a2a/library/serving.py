"""`serve_agent` and `serve`: serving an agent from a script, outside or inside an event loop."""

import asyncio
import inspect
import re
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from socket import socket
from types import FrameType
from typing import Any, cast

import msgspec
import uvicorn

from openclaw_a2a.agents import CallableAgent
from openclaw_a2a.agents.adapter import AgentAdapter
from openclaw_a2a.app.gateway import Gateway, build_app
from openclaw_a2a.app.lifecycle import (
    DrainingServer,
    listen,
    print_lines,
    run_in_new_loop,
    serve_gateway,
    uvicorn_options,
)
from openclaw_a2a.app.logging import logging_to_stderr
from openclaw_a2a.engine.tasks.submit_policy import PolicyCallable
from openclaw_a2a.library.agent_card import OVERRIDES
from openclaw_a2a.library.asgi_app import ServedAgent, to_a2a
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.ports import Agent
from openclaw_a2a.settings import (
    LogSettings,
    Settings,
    base_url,
    is_any_address,
    is_loopback,
    load_settings,
)

_APP_ARGUMENTS = OVERRIDES | {"task_store", "auth", "allow_private_webhooks"}
_UVICORN_ARGUMENTS = inspect.signature(uvicorn.Config).parameters.keys()
_LEVELS = ("debug", "info", "warning", "error")
_SIGNAL_POLL_S = 0.2


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

    Further arguments are those of `to_a2a`; the rest goes to uvicorn. Without a card, the address
    on it is made of host and port; where the host is all addresses (`0.0.0.0`), it is the one by
    which the card is asked for. It always blocks: called inside a running event loop it serves
    from a thread with a loop of its own, and the loop it was called in stands still meanwhile. (To
    serve beside other things, run `to_a2a` in a server of your own.)

    A host that other machines can reach is refused without `auth`, unless `allow_anonymous` lets
    everybody there use the agent.

    Raises: PortTaken, ValueError, TypeError.
    """
    if log_level not in _LEVELS:
        raise ValueError(f"log_level is {log_level!r}; it must be one of {', '.join(_LEVELS)}.")
    if not (allow_anonymous or kw.get("auth") is not None or is_loopback(host)):
        raise ValueError(
            f"host {host!r} can be reached from other machines, and no caller has to show a token;"
            " give auth= (a token), listen on 127.0.0.1, or insist with allow_anonymous=True."
        )
    for name in kw.keys() - _APP_ARGUMENTS - _UVICORN_ARGUMENTS:
        raise TypeError(f"serve_agent takes no argument {name!r}, and neither does uvicorn.")
    app_arguments = {key: value for key, value in kw.items() if key in _APP_ARGUMENTS}
    uvicorn_arguments = {key: value for key, value in kw.items() if key not in _APP_ARGUMENTS}
    log = LogSettings(level=cast("Any", log_level))
    with logging_to_stderr(log), listen(host, port) as listener:
        has_address = agent_card is not None or "url" in app_arguments
        if not has_address:
            address = base_url(host, listener.getsockname()[1])
            app_arguments["url"] = f"{address}/"
        served = to_a2a(adapter, agent_card, **app_arguments).served
        # Callers on other machines reach a host of all addresses by a name that is not known here.
        follows_host = is_any_address(host) and not has_address
        served = msgspec.structs.replace(served, log=log, follows_host=follows_host)
        _run(_Service(served, listener, uvicorn_arguments))


class _Service:
    """One server for one agent."""

    def __init__(self, served: ServedAgent, listener: socket, options: JsonObject) -> None:
        self._served = served
        self._listener = listener
        self._options = options
        self._server: DrainingServer | None = None
        self._is_stopped = False

    async def serve(self) -> None:
        """Serve until `stop` is called or a signal comes."""
        async with self._served.build_gateway() as gateway:
            application = partial(self._served.serve_request, gateway)
            options = {**uvicorn_options(gateway), **self._options}
            options["lifespan"] = "off"
            config = uvicorn.Config(application, **options)
            ready = f"{self._served.card.name} is ready at {self._served.card.url}"
            self._server = DrainingServer(
                config,
                gateway,
                url=self._served.card.url,
                print_ready=lambda: print_lines(ready, "Stop it: Ctrl-C"),
            )
            if not self._is_stopped:
                await self._server.serve(sockets=[self._listener])

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal; may be called in any thread."""
        # The flag first: `serve` reads it after it has set the server, so one of both sees the
        # signal although it arrives between the two.
        self._is_stopped = True
        if self._server is not None:
            self._server.handle_exit(number, frame)


def _run(service: _Service) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        run_in_new_loop(service.serve())
        return
    # Inside a running loop: serve from a thread. Only the main thread gets signals; it passes
    # them on.
    is_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if is_main else ()
    # Uvicorn handles signals only where it runs in the main thread.
    before = [(number, signal.signal(number, service.stop)) for number in numbers]
    with ThreadPoolExecutor(1, thread_name_prefix="serve_agent") as threads:
        done = threads.submit(lambda: run_in_new_loop(service.serve()))
        try:
            while not done.done():
                wait([done], timeout=_SIGNAL_POLL_S)  # with a timeout, so that signals get in
        finally:
            for number, handler in before:
                signal.signal(number, handler)
    # After the handlers are restored: raises what serving raised.
    done.result()


def serve(
    answer: Callable[..., Any] | Agent | AgentAdapter,
    *,
    name: str | None = None,
    port: int | None = None,
    settings: Mapping[str, Json] | None = None,
    policy: PolicyCallable | None = None,
) -> int:
    """Serve a function (or any Agent or AgentAdapter) as an A2A agent until the process is stopped.

    The function takes the text (and optionally the turn) and returns or yields the answer; it may
    be sync, async or a generator. `name` stands on the agent card. Settings come from the settings
    file and the environment as for `openclaw-a2a up`; `settings` has dotted paths
    (`{"limits.runs": 4}`) and wins. Unless they say otherwise, tasks are kept in a database of
    this agent's own below the data folder. `policy` decides about the messages of peers, where no
    rule of the settings does: it gets a `PolicyRequest` and returns "allow", "deny" or "ask".

    When it cannot start it prints the reason on stderr and ends the script with exit code 2.
    """
    label = name or getattr(answer, "__name__", type(answer).__name__)
    overrides: dict[str, Json] = {
        "channels.a2a.accounts.default.label": label,
        "channels.a2a.accounts.default.agentStyle": "task-generating",
        # A script serves its own agent, not the OpenClaw of the machine.
        "openclaw.enabled": False,
        **({} if port is None else {"server.port": port}),
        **(settings or {}),
    }
    try:
        loaded = load_settings(overrides=overrides)
        if not any(path == "data" or path.startswith("store.") for path in loaded.origins):
            folder = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-") or "agent"
            own = Path(loaded.settings.data) / "agents" / folder
            loaded = load_settings(overrides={**overrides, "data": str(own)})
        # Unlike `as_agent`: a function is shown as the other agents of a gateway are.
        is_agent = hasattr(answer, "recovery")
        agent = cast("Agent", answer) if is_agent else CallableAgent(cast("Any", answer))

        def gateway(final: Settings) -> Gateway:
            return build_app(
                final, agents={final.default_account.default_agent_id: agent}, policy=policy
            )

        return serve_gateway(loaded, gateway)
    except GatewayError as error:
        print(f"error {error.code}: {error.message}", file=sys.stderr)
        raise SystemExit(2) from None
