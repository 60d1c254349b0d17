"""Draws what a remote agent does: its text as it comes, its states, and that somebody waits."""

import sys
import time

import anyio
import msgspec

from openclaw_a2a.cli.live import FRAMES
from openclaw_a2a.cli.output import clean, styled
from openclaw_a2a.cli.screen import Screen
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.records import StreamBody
from openclaw_a2a.model.task import StatusUpdate
from openclaw_a2a.protocol import v03
from openclaw_a2a.protocol.v03 import MessageV03, message_from_v03

_FRAME_S = 0.1
_MOST_LABEL = 40
_PATIENCE_S = 0.4
"""What is answered sooner needs no sign that somebody waits."""

_message_decoder = msgspec.json.Decoder(MessageV03)


class RemoteScreen(Screen):
    """Shows what a remote agent says, which comes in the discriminated form."""

    def draw_event(self, event: JsonObject) -> None:
        """Show one Message, Task or event; what is none of these is left out."""
        body = read_event(event)
        if body is not None:
            self.draw(body)

    @property
    def is_mid_line(self) -> bool:
        """True while a line of text is not complete."""
        return self._is_mid_line

    def finish(self) -> None:
        """Nothing more comes: end the line."""
        self._end_line()


def read_event(event: JsonObject) -> StreamBody | None:
    """What the agent said, read; None when it is nothing that can be shown."""
    body, kind = msgspec.json.encode(event), event.get("kind")
    try:
        if kind == "task":
            return StreamBody(task=v03.decode_task(body))
        if kind == "message":
            return StreamBody(message=message_from_v03(_message_decoder.decode(body)))
        told = v03.decode_event(body)
    except msgspec.MsgspecError:
        return None
    if isinstance(told, StatusUpdate):
        return StreamBody(status_update=told)
    return StreamBody(artifact_update=told)


class Spinner:
    """A line on a terminal that moves while nothing else is said; nothing anywhere else."""

    def __init__(self, screen: RemoteScreen) -> None:
        self._screen = screen
        self._since = time.monotonic()
        self._is_drawn = False
        self.label = ""
        self.state = "asking"

    async def turn(self) -> None:
        """Move until cancelled."""
        await anyio.sleep(_PATIENCE_S)
        frame = 0
        while sys.stderr.isatty():
            if not self._screen.is_mid_line:
                self._draw(FRAMES[frame % len(FRAMES)])
            frame += 1
            await anyio.sleep(_FRAME_S)

    def clear(self) -> None:
        """Take the line away, so that something can be said."""
        if self._is_drawn:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
        self._is_drawn = False

    def _draw(self, frame: str) -> None:
        seconds = int(time.monotonic() - self._since)
        told = " · ".join(filter(None, [clean(self.label)[:_MOST_LABEL], self.state]))
        line = styled(f"{frame} {told} · {seconds} s", "dim", sys.stderr)
        print(f"\r\x1b[2K{line}", end="", file=sys.stderr, flush=True)
        self._is_drawn = True
