"""What the commands for remote agents remember in the data folder: how to go on with the last."""

from contextlib import suppress
from pathlib import Path

import msgspec

from openclaw_a2a.model.errors import InvalidRequest
from openclaw_a2a.model.ids import JsonObject

_FOLDER = "remote"


class RemoteMemory:
    """The files of these commands. The store of a gateway is never touched."""

    def __init__(self, data: Path) -> None:
        self._path = data / _FOLDER / "last.json"
        self._known: bytes | None = None
        self.handles = data / _FOLDER / "handles"

    def remember(self, continuation: JsonObject) -> None:
        """Keep this as the last; where nothing can be written, nothing is remembered."""
        from openclaw_a2a.remote.handles.handle_store import write_private_file

        body = msgspec.json.encode(continuation)
        if body != self._known:
            with suppress(OSError):
                write_private_file(self._path, body)
            self._known = body

    def recall(self) -> JsonObject:
        """The last. Raises: InvalidRequest (there is none)."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=JsonObject)
        except (OSError, msgspec.MsgspecError):
            step = 'Send something first: openclaw-a2a remote send --target ALIAS "hello"'
            raise InvalidRequest(
                "there is nothing to go on with",
                details={"code": "nothing-to-continue", "nextStep": step},
            ) from None
