"""A proxy between our gateway and OpenClaw: records requests, and drops frames on demand."""

import asyncio
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import websockets
from websockets.asyncio.server import ServerConnection, serve

Json = Any
_MOST_BYTES = 2**25


@dataclass
class DroppedFrames:
    """Frames that do not come through: those with these words, there or on the way back."""

    words: str
    is_way_back: bool
    happened: threading.Event = field(default_factory=threading.Event)


class RecordingProxy:
    """Passes the frames of WebSockets on. `asked` and `answers` are those of requests, in order."""

    def __init__(self, behind: str) -> None:
        self.asked: list[Json] = []
        self.answers: list[Json] = []
        self.port = 0
        self._behind = behind
        self._losing: list[DroppedFrames] = []
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(10)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def turns(self, session_key: str) -> list[Json]:
        """The parameters of the turns that were asked for in a session."""
        asked = [one["params"] for one in self.asked if one["method"] == "agent"]
        return [one for one in asked if one["sessionKey"] == session_key]

    def results(self, run_id: str) -> list[Json]:
        """What OpenClaw said of a run that had ended."""
        run_turn: list[Json] = [one.get("payload") or {} for one in self.answers]
        return [one["result"] for one in run_turn if one.get("runId") == run_id and "result" in one]

    @contextmanager
    def losing(self, words: str, *, is_way_back: bool = False) -> Generator[threading.Event]:
        """Lose every frame with these words; the event tells that it happened."""
        losing = DroppedFrames(words, is_way_back)
        self._losing.append(losing)
        try:
            yield losing.happened
        finally:
            self._losing.remove(losing)

    def close(self) -> None:
        """End it."""
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        async with serve(self._pass, "127.0.0.1", 0, max_size=_MOST_BYTES) as server:
            self.port = next(iter(server.sockets)).getsockname()[1]
            self._ready.set()
            await self._end.wait()

    async def _pass(self, our_gateway: ServerConnection) -> None:
        with suppress(OSError, websockets.WebSocketException):
            async with websockets.connect(
                self._behind, max_size=_MOST_BYTES, proxy=None
            ) as openclaw:
                pumps = {
                    asyncio.create_task(self._pump(our_gateway, openclaw, is_way_back=False)),
                    asyncio.create_task(self._pump(openclaw, our_gateway, is_way_back=True)),
                }
                _, left = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                for pump in left:
                    pump.cancel()
                await asyncio.wait(pumps)

    async def _pump(self, source: Json, target: Json, *, is_way_back: bool) -> None:
        with suppress(websockets.ConnectionClosed):
            async for raw in source:
                if not is_way_back:
                    self.asked.append(json.loads(raw))
                elif '"type":"res"' in raw:
                    self.answers.append(json.loads(raw))
                if not self._is_lost(raw, is_way_back=is_way_back):
                    await target.send(raw)

    def _is_lost(self, raw: str, *, is_way_back: bool) -> bool:
        fitting = [
            one for one in self._losing if one.words in raw and one.is_way_back == is_way_back
        ]
        for one in fitting:
            one.happened.set()
        return bool(fitting)
