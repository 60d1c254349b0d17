"""Task handles of one person, kept in a folder of small files beside no gateway's store."""

import contextlib
import os
import secrets
from pathlib import Path

import msgspec

from openclaw_a2a.outbound.handles import Handle, Revive
from openclaw_a2a.outbound.kept_handle import decode_handle, encode_handle


class HandleFolder:
    """One file for each handle, so that two processes never overwrite each other's.

    What cannot be written is not kept, and `is_durable` says so from then on.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._states: dict[str, str | None] = {}
        self._held: dict[str, Handle] = {}
        self.is_durable = True

    def keep(self, handle: Handle) -> None:
        """Write its file; when only its words changed, not before `settle`."""
        is_known = self._states.get(handle.name, "new") == handle.heard.state
        self._held[handle.name] = handle
        if not is_known:
            self._write_held()

    def drop(self, name: str) -> None:
        """Delete its file."""
        self._held.pop(name, None)
        with contextlib.suppress(OSError):
            self._file(name).unlink()

    async def settle(self) -> None:
        """Write what is not written yet."""
        self._write_held()

    def _write_held(self) -> None:
        for name, handle in self._held.items():
            try:
                write_private(self._file(name), encode_handle(handle))
            except OSError:
                self.is_durable = False
            self._states[name] = handle.heard.state
        self._held = {}

    async def load(self, revive: Revive) -> list[Handle]:
        """What the folder holds, least recently used first; credentials are those of today."""
        found: list[tuple[float, Handle]] = []
        for path in self._folder.glob("rah_*.json"):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                handle = decode_handle(path.read_bytes(), revive)
                if handle is not None and handle.name == path.stem:
                    found.append((path.stat().st_mtime, handle))
        return [handle for _, handle in sorted(found, key=lambda one: one[0])]

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.json"


def write_private(path: Path, body: bytes) -> None:
    """Replace a file as a whole; nobody but its owner can read it. Raises: OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(body)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
