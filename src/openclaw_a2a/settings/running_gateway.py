"""The gateways that run with a data folder, each described by a file that its process holds locked.

The lock distinguishes a running gateway from a killed one: the operating system releases it with
the process, while the file stays.
"""

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import msgspec

from openclaw_a2a.model.file_lock import try_lock_file

_FILES = "gateway-*.json"
_MAX_BYTES = 64 * 1024


class RunningGateway(msgspec.Struct, frozen=True, rename="camel"):
    """A gateway process: its addresses for this machine and for peers, and since when it runs."""

    pid: int
    address: str
    public_address: str
    port: int
    started_at: datetime


@contextmanager
def announce_gateway(folder: Path, gateway: RunningGateway) -> Generator[None]:
    """Describe this process in the data folder as long as the block lasts. Raises: OSError."""
    path = folder / f"gateway-{gateway.port}.json"
    draft = folder / f".{path.name}.{secrets.token_hex(8)}"
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        # Locked before it is renamed: other processes only ever find it locked.
        try_lock_file(descriptor)
        os.write(descriptor, msgspec.json.encode(gateway))
        draft.replace(path)
        for other in folder.glob(_FILES):
            if other != path and read_running_gateway(other) is None:
                other.unlink(missing_ok=True)  # left behind by a process that was killed
        yield
    finally:
        with suppress(OSError):
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                path.unlink()
        draft.unlink(missing_ok=True)
        os.close(descriptor)


def find_running_gateways(folder: Path) -> list[RunningGateway]:
    """The gateways that run with this data folder, the newest first."""
    found = [one for path in folder.glob(_FILES) if (one := read_running_gateway(path)) is not None]
    return sorted(found, key=lambda one: one.started_at, reverse=True)


def read_running_gateway(path: Path) -> RunningGateway | None:
    """The gateway that a file describes; None when it does not run, or the file is none of ours."""
    try:
        with path.open("rb") as file:
            # A shared lock, so that readers do not take each other for the gateway. On systems
            # without file locks nothing is found, and the settings decide.
            if try_lock_file(file.fileno(), is_shared=True):
                return None  # no gateway holds it; closing the file releases it again
            return msgspec.json.decode(file.read(_MAX_BYTES), type=RunningGateway)
    except (OSError, ValueError, RecursionError):
        return None
