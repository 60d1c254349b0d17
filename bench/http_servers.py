"""`./dev bench http`: what HTTP itself costs, for one application behind different servers.

The application reads the body of a request and answers with a task of the usual size. It is an ASGI
application, which every server runs; our own protocol can also be asked without the dictionaries of
ASGI (`ours`), as the gateway does it, or with them (`ours-asgi`).

Run by itself (python http_servers.py KIND PORT) it is one of the servers.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

BODY = b'{"jsonrpc":"2.0","id":1,"result":{"task":{"id":"%b"}}}' % (b"x" * 900)
HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]
LOAD = ["send", "--conns", "16", "--duration", "1.5", "--no-check"]
ROUNDS = 7
KINDS = ("uvicorn", "granian", "ours-asgi", "ours")


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answer one request of an ASGI server."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})


class NativeApp:
    """The same for our own protocol."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """What uvicorn looks for when it starts; it is not called."""
        await app(scope, receive, send)

    async def respond(self, request: Any) -> None:
        """Answer one request."""
        request.take_body(1 << 20)
        await request.respond(200, BODY)


def serve(kind: str, port: int) -> None:
    """Serve until the process is stopped."""
    if kind == "granian":
        from granian import Granian

        Granian(
            f"{Path(__file__).stem}:app",
            port=port,
            interface="asgi",
            loop="uvloop",
            log_enabled=False,
        ).serve()
        return
    import uvicorn

    options: dict[str, Any] = {"http": "httptools"}
    if kind != "uvicorn":
        from functools import partial

        from openclaw_a2a.http.connection_table import ConnectionTable
        from openclaw_a2a.http.server_protocol import ServerProtocol
        from openclaw_a2a.settings import Limits, ServerSettings

        table = ConnectionTable(Limits(), ServerSettings(port=port))
        options["http"] = partial(ServerProtocol, table=table)
    uvicorn.run(
        NativeApp() if kind == "ours" else app,
        port=port,
        loop="uvloop",
        interface="asgi3",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        **options,
    )


@contextmanager
def started(kind: str, data: Path) -> Iterator[tuple[str, str]]:
    """The address and the process id of a server, until the block ends."""
    from servers import (
        HERE,
        LOADER_CORE,
        PEER_PYTHON,
        SERVER_CORE,
        free_port,
        program_environment,
        stop,
        wait_for_port,
    )

    port, python = free_port(), sys.executable if kind.startswith("ours") else PEER_PYTHON
    command = [python, str(HERE / "http_servers.py"), kind, str(port)]
    if LOADER_CORE:
        command = ["taskset", "-c", SERVER_CORE, *command]
    with (data / f"{kind}.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=HERE, env=program_environment(), stdout=log, stderr=log
        )
        try:
            wait_for_port(port, process, data / f"{kind}.log")
            yield f"http://127.0.0.1:{port}/", str(process.pid)
        finally:
            stop(process)


def measure_http(data: Path) -> dict:
    """Server CPU of a request in microseconds, medians of interleaved rounds, and the spread."""
    from compare import compare
    from servers import LOADER_CORE

    with ExitStack() as stack:
        servers = {kind: stack.enter_context(started(kind, data)) for kind in KINDS}
        targets = {kind: url for kind, (url, _) in servers.items()}
        pids = {kind: pid for kind, (_, pid) in servers.items()}
        result = compare(LOAD, targets, pids=pids, rounds=ROUNDS, core=LOADER_CORE)
    return {kind: row["cpu_us_per_op"] for kind, row in result["targets"].items()}


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
