"""An agent with background events and pauses that a test controls."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import anyio
from tests.conformance.asgi_client import TIMEOUT_S
from tests.conformance.scripted_agent import ScriptedAgent

from openclaw_a2a.model.agent_event import (
    BackgroundEvent,
    BackgroundReply,
    PauseResolved,
    RecentTask,
)
from openclaw_a2a.model.ids import Json, SessionKey, TaskId
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.turn import Binding

Event = BackgroundEvent | Exception


class BackgroundAgent(ScriptedAgent):
    """Its runs are scripted or conducted; what it says later is given by the test."""

    def __init__(self, *steps: object) -> None:
        super().__init__(*steps)  # pyright: ignore[reportArgumentType] - steps, as there
        self.listened: list[Sequence[RecentTask]] = []
        """The recent tasks it was given, for each time somebody began to listen."""
        self.is_heard = asyncio.Event()
        self.ended: list[tuple[Binding, Json]] = []
        self.refusal: Exception | None = None
        self.may_end = asyncio.Event()
        self.may_end.set()
        self._events: asyncio.Queue[tuple[Event, asyncio.Event]] = asyncio.Queue()

    async def background_events(
        self, recent: Sequence[RecentTask]
    ) -> AsyncGenerator[BackgroundEvent]:
        """What the test tells."""
        self.listened.append(recent)
        self.is_heard.set()
        try:
            while True:
                event, taken = await self._events.get()
                if isinstance(event, Exception):
                    taken.set()
                    raise event
                yield event
                taken.set()
        finally:
            self.is_heard.clear()

    async def cancel_pause(self, binding: Binding, resume: Json) -> None:
        """End what waits, unless the test does not let it."""
        await self.may_end.wait()
        if self.refusal is not None:
            raise self.refusal
        self.ended.append((binding, resume))

    async def tell(self, event: Event) -> None:
        """Say this outside any run; returns when it was taken."""
        taken = asyncio.Event()
        self._events.put_nowait((event, taken))
        with anyio.fail_after(TIMEOUT_S):
            await taken.wait()

    async def reply(self, text: str, *, reply_id: str = "r-1", turn: int = -1) -> BackgroundReply:
        """Say something in the session of a turn, when no run is under way."""
        reply = BackgroundReply(self.session(turn), reply_id, (Part.of_text(text),))
        await self.tell(reply)
        return reply

    async def end_wait(self, task_id: str, *, resume: Json, reason: str = "allowed") -> None:
        """Say that what the task waited for is decided."""
        await self.tell(PauseResolved(TaskId(task_id), reason, resume))

    def session(self, turn: int = -1) -> SessionKey:
        """The session of a turn that was asked."""
        return self.turns[turn].session_key

    async def wait_heard(self) -> None:
        """Wait until somebody listens."""
        with anyio.fail_after(TIMEOUT_S):
            await self.is_heard.wait()
