"""The process: listening socket, HTTP server, signals, shutdown, and the banner."""

import asyncio
import errno
import gc
import os
import shlex
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import uvicorn

from openclaw_a2a.app.gateway import VERSION, Gateway, build_app
from openclaw_a2a.app.logging import is_for_people, logging_to_stderr
from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.http.connection_table import ConnectionTable
from openclaw_a2a.http.server_protocol import ServerProtocol
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import PortTaken
from openclaw_a2a.server.cards import account_url
from openclaw_a2a.server.health import AgentAvailability
from openclaw_a2a.settings import (
    Account,
    LoadedSettings,
    RunningGateway,
    Settings,
    announce_gateway,
    base_url,
)
from openclaw_a2a.settings.openclaw_config import OpenClawInstallation

log = get_logger(__name__)

# Systems without a limit have one all the same; some programs that agents start count up to it.
_MOST_FILES = 1_048_576

# So that the banner can say that an agent, such as OpenClaw, is not there.
_FIRST_STATES_S = 0.15


def uvicorn_options(gateway: Gateway) -> dict[str, Any]:
    """Options of every uvicorn server that we run."""
    settings = gateway.settings
    table = ConnectionTable(settings.limits, settings.server, gateway.supervisor)
    return {
        "interface": "asgi3",
        "http": partial(ServerProtocol, table=table),
        "ws": "none",
        "timeout_keep_alive": settings.server.idle_seconds,
        # Authentication relies on the real address of the client; a header must not replace it.
        "proxy_headers": False,
        # The gateway is opened and closed around the server.
        "lifespan": "off",
        "log_config": None,  # its default would configure the logging of the whole process
        "log_level": "warning",
        "access_log": False,
        "server_header": False,
        # After the drain: only slow readers and idle connections are left by then.
        "timeout_graceful_shutdown": 2,
    }


_Result = TypeVar("_Result")


class DrainingServer(uvicorn.Server):
    """Uvicorn that drains the gateway on the first signal and exits on the second.

    Once it accepts requests and handles signals it says so: `print_ready` does it for people.
    """

    def __init__(
        self, config: uvicorn.Config, gateway: Gateway, *, url: str, print_ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._url = url
        self._print_ready = print_ready
        self._stop_s = gateway.settings.server.stop_seconds
        self._loop = asyncio.get_running_loop()
        self._is_for_people = is_for_people(gateway.settings.log)
        self._supervisor = Supervisor("stop")
        self._is_draining = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn: begin to accept requests."""
        raise_file_limit()
        await super().startup(sockets)
        # The log of programs is JSON lines only: they get an event instead of the text.
        if self._is_for_people:
            self._print_ready()
        else:
            self._log_ready()

    def _log_ready(self) -> None:
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        availability, store = self._gateway.availability, self._gateway.settings.store
        log.info(
            "gateway.ready",
            version=VERSION,
            url=self._url,
            host=host,
            port=port,
            accounts={one.account: one.agent for one in availability.current()},
            unavailable=list(availability.unavailable_reasons()),
            store=store.kind.value,
            path=store.place or None,
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by uvicorn in a signal handler: continue on the event loop."""
        # A handler interrupts the loop anywhere; `serve_agent` may also call from another thread.
        self._loop.call_soon_threadsafe(self._begin_stop, signal.Signals(sig).name)

    def _begin_stop(self, name: str) -> None:
        runs, seconds = self._gateway.run_count, self._stop_s
        if self._is_draining:  # the second signal: leave at once
            self._report_left(runs)
            self.force_exit = self.should_exit = True
            return
        if not self._is_for_people:
            log.info("gateway.stopping", signal=name, seconds=seconds)
        elif runs and seconds:
            count = "1 run" if runs == 1 else f"{runs} runs"
            print_lines(
                f"Stopping: {count} may go on for {seconds:g} s; Ctrl-C again leaves at once."
            )
        else:
            print_lines("Stopping.")
        self._is_draining = True
        # Uvicorn still serves meanwhile: callers see the end of their runs.
        self._supervisor.spawn("drain", self._drain())

    async def _drain(self) -> None:
        try:
            left = await self._gateway.drain(self._stop_s)
            if not self.should_exit:
                self._report_left(left)
        finally:
            # Also after a failure: uvicorn polls this flag, and nothing else ends it.
            self.should_exit = True

    def _report_left(self, left: int) -> None:
        if not left:
            return
        if not self._is_for_people:
            log.info("gateway.runs_unfinished", count=left, note="they continue at the next start")
        elif left == 1:
            print_lines("1 run was left; it goes on at the next start, or fails with a reason.")
        else:
            print_lines(
                f"{left} runs were left; they go on at the next start, or fail with a reason."
            )


def serve_gateway(loaded: LoadedSettings, build: Callable[[Settings], Gateway] = build_app) -> int:
    """Serve a gateway until a signal comes; the exit code. It is built when its port is known.

    Raises: SettingsInvalid, StoreLocked, PortTaken and other reasons not to start.
    """
    with logging_to_stderr(loaded.settings.log):
        for warning in loaded.warnings:
            log.warning("settings.warning", path=warning.path, reason=warning.message)
        return run_in_new_loop(_serve(loaded, build))


def run_in_new_loop(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run in an event loop of the kind that uvicorn chooses (uvloop where there is one)."""
    config = uvicorn.Config("no application is needed", loop="auto", log_config=None)
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        return runner.run(work)


async def _serve(loaded: LoadedSettings, build: Callable[[Settings], Gateway]) -> int:
    host, port = loaded.settings.server.host, loaded.settings.server.port
    with listen(host, port) as listener, ExitStack() as afterwards:
        settings = loaded.with_port(listener.getsockname()[1])
        # A large store is loaded at start: nothing of it is garbage, so nothing is looked for.
        gc.disable()
        afterwards.callback(gc.enable)  # also when the gateway could not be opened
        gateway = build(settings)
        gateway.loaded = loaded
        async with gateway:
            # Freeze what was created at start, and collect garbage cycles less often: a message
            # creates hundreds of small objects and no cycles, so collections find nothing.
            gc.collect()
            gc.freeze()
            gc.set_threshold(50_000, 20, 20)
            gc.enable()
            config = uvicorn.Config(gateway.asgi, **uvicorn_options(gateway))
            await gateway.availability.wait_settled(_FIRST_STATES_S)
            server = DrainingServer(
                config,
                gateway,
                url=settings.server.public_base_url
                or base_url(settings.server.host, settings.server.port),
                print_ready=lambda: _print_banner(gateway, loaded.openclaw),
            )
            with _announced(settings):
                await server.serve(sockets=[listener])
    return 0


def raise_file_limit() -> None:
    """Raise the limit of open files to the maximum: each connection needs one."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError) as error:  # macOS has a limit below the one that it names
        log.warning("gateway.file_limit_kept", files=soft, wanted=most, reason=str(error))


@contextmanager
def _announced(settings: Settings) -> Generator[None]:
    """Announce this gateway to commands that use its data folder, whatever its port."""
    server = settings.server
    address = base_url(server.host, server.port)
    running = RunningGateway(
        pid=os.getpid(),
        address=address,
        public_address=server.public_base_url or address,
        port=server.port,
        started_at=datetime.now(UTC),
    )
    with ExitStack() as announcement:
        try:
            announcement.enter_context(announce_gateway(settings.data, running))
        except OSError as error:  # commands then look where the settings say
            log.warning("gateway.not_announced", folder=str(settings.data), reason=str(error))
        yield


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises: PortTaken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    # A restart must not wait for the closed connections of the process before it.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        # Bound before the gateway is built: with port 0 its addresses are known only then.
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(
                f"port {port} on {host} is taken, perhaps by another gateway; "
                "stop what listens there or choose another port"
            ) from None
        raise PortTaken(f"cannot listen on {host} port {port}: {error.strerror}") from None
    # Not listening yet: until uvicorn starts to, clients are refused and not kept waiting.
    listener.setblocking(False)
    return listener


# -------------------------------------------------------------------- what people read

_DEFAULT_URL = "http://127.0.0.1:9900"
"""Where commands look for a gateway by default."""

_PROGRAM = "openclaw-a2a"
_OPENCLAW = "openclaw-gateway"
_COLUMN = 12
_USUAL_CARD = "/.well-known/agent-card.json"


def _print_banner(gateway: Gateway, found: OpenClawInstallation | None = None) -> None:
    """Print what runs, where, and what to do next; `found` is the OpenClaw of this machine."""
    settings, server = gateway.settings, gateway.settings.server
    local = base_url(server.host, server.port)
    lines = [f"openclaw-a2a is ready at {server.public_base_url or local}"]
    if server.public_base_url != local:
        host = f"[{server.host}]" if ":" in server.host else server.host
        lines.append(f"listening on {host}:{server.port}")
    lines.append("")
    accounts = sorted(settings.accounts, key=lambda account: account.id != "default")
    available = {one.account: one for one in gateway.availability.current()}
    for account in accounts:
        lines += _account_lines(account, gateway, available.get(account.id))
    lines += _other_agent_lines(gateway)
    lines += [f"  {'openclaw':<12} {text}" for text in _openclaw_texts(gateway, found)]
    where = settings.store.place or "nothing survives a stop"
    lines += [f"  {'store':<12} {settings.store.kind.value} ({where})", ""]
    if reasons := gateway.availability.unavailable_reasons():
        lines += [*(f"Unavailable: {reason}" for reason in reasons), ""]
    running = [account for account in accounts if account.is_running]
    if running:
        lines.append(f"Try it:  {_first_command(running[0], needs_token=not settings.is_open)}")
    if (link := gateway.dashboard_link()) is not None:
        lines.append(f"See it:  {local}{link}")
    print_lines(*lines, "Stop it: Ctrl-C")


def print_lines(*lines: str) -> None:
    """Print lines on standard error, if they can be written there."""
    # A closed pipe or a full disk must not keep the gateway from starting or stopping.
    with suppress(OSError):
        print("\n".join(lines), file=sys.stderr, flush=True)


def _account_lines(
    account: Account, gateway: Gateway, availability: AgentAvailability | None
) -> list[str]:
    if availability is None:
        reason = f"  {_padded(account.label)} not running: {account.not_running_reason}"
        return [reason] if account.enabled else []
    agent_id = account.default_agent_id
    is_supplied = agent_id in gateway.supplied_agents
    kind = "Python" if is_supplied else gateway.settings.agents[agent_id].adapter
    state = "" if availability.is_available else ", unavailable"
    return [
        f"  {_padded(availability.name)} agent {agent_id} ({kind}){state}",
        f"  {'':<12} card  {account_url(account, account.agent_card_path)}",
    ]


def _padded(name: str) -> str:
    """A name in the first column; some characters take two cells of a terminal, some none."""
    from rich.cells import cell_len  # not before there is a banner

    return name + " " * max(0, _COLUMN - cell_len(name))


def _other_agent_lines(gateway: Gateway) -> list[str]:
    """The agents of the settings that no account serves."""
    settings = gateway.settings
    served = {account.default_agent_id for account in settings.accounts if account.is_running}
    others = [name for name in settings.agents if name not in served | {*gateway.supplied_agents}]
    if not others:
        return []
    has_callers = settings.tools.agent_to_agent.enabled or settings.opt.enabled
    unreached = "no client reaches them: name each in an account"
    reach = "reached by calls and plans only" if has_callers else unreached
    return [f"  {'no account':<12} {', '.join(others)} ({reach})"]


def _openclaw_texts(gateway: Gateway, found: OpenClawInstallation | None) -> list[str]:
    """The OpenClaw gateways in use, or how to connect one."""
    agents = gateway.settings.agents
    mine = [one for name, one in agents.items() if name not in gateway.supplied_agents]
    if found is not None and not found.is_readable:
        return [f"its config cannot be read; see: {program()} doctor"]
    if any(one.is_placeholder for one in mine):
        return [f"not found; to add it: {program()} connect openclaw"]
    urls = dict.fromkeys(one.options.get("url") for one in mine if one.adapter == _OPENCLAW)
    return [url for url in urls if isinstance(url, str)]


def _first_command(account: Account, *, needs_token: bool) -> str:
    """A command that sends to this account, from the folder where the gateway runs."""
    token = "OPENCLAW_A2A_TOKEN=<token> " if needs_token else ""
    address = account_url(account, account.agent_card_path).removesuffix(_USUAL_CARD)
    flag = "" if address == _DEFAULT_URL else f" --url {address}"
    return f'{token}{program()} send{flag} "hello"'


def program() -> str:
    """The command as a shell in this folder finds it."""
    script = Path(sys.executable).with_name(_PROGRAM)
    if shutil.which(_PROGRAM) or not script.is_file():
        return _PROGRAM
    here = Path.cwd()
    return shlex.quote(str(script.relative_to(here) if script.is_relative_to(here) else script))
