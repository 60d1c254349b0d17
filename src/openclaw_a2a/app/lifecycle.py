"""The process: listening socket, HTTP server, signals and the order of a stop."""

import asyncio
import errno
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from types import FrameType
from typing import Any, TypeVar

import uvicorn

from openclaw_a2a.app.banner import print_banner, print_lines
from openclaw_a2a.app.gateway import Gateway, build_app
from openclaw_a2a.app.logging import is_for_people, logging_to_stderr
from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.http.connection_table import ConnectionTable
from openclaw_a2a.http.server_protocol import ServerProtocol
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import PortTaken
from openclaw_a2a.settings import (
    LoadedSettings,
    RunningGateway,
    Settings,
    announce_gateway,
    base_url,
)

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
            address = self.servers[0].sockets[0].getsockname()[:2]
            self._gateway.log_ready(self._url, address)

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
        # Uvicorn goes on serving meanwhile: callers see the end of their runs.
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


def serve(loaded: LoadedSettings) -> int:
    """Serve the agents of the settings until a signal comes; the exit code.

    Raises: SettingsInvalid, StoreLocked, PortTaken and other reasons not to start.
    """
    return serve_gateway(loaded, build_app)


def serve_gateway(loaded: LoadedSettings, build: Callable[[Settings], Gateway]) -> int:
    """Serve a gateway until a signal comes; it is built when its port is known."""
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
        async with build(settings) as gateway:
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
                print_ready=lambda: print_banner(gateway, loaded.openclaw),
            )
            with _announced(settings):
                await server.serve(sockets=[listener])
    return 0


def raise_file_limit() -> None:
    """Let the process open as many files as the system lets it: each connection is one."""
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
    """Let commands that use the data folder find this gateway meanwhile, wherever it listens."""
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
