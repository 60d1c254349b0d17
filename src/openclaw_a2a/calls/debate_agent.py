"""Debates as an agent: each is a task, whose message says what is to be debated."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable

import msgspec

from openclaw_a2a.calls.debate import Answer, Step, hold_debate
from openclaw_a2a.calls.debate_request import DebateRequest
from openclaw_a2a.model.call import CallId
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.reply import AgentEvent, Note, Reply
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Recovery

AskFor = Callable[[CallId, Step], Awaitable[Answer]]
"""Asks a step of the debate with this call id; the same step again is not asked anew."""


class DebateAgent:
    """Holds the debate that a turn's text describes (a `DebateRequest` as JSON).

    It keeps nothing: after a restart the debate is held again, and steps that were asked before
    have their answers or are still under way, as `ask_for` knows.
    """

    recovery: Recovery = Recovery.REPEAT

    def __init__(self, ask_for: AskFor) -> None:
        self._ask_for = ask_for

    async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        """Hold it: a note for each step forward, then the result. Raises: AgentFailed."""
        request, call_id = _read(turn), _call_id(turn)
        # A debate tells a bounded number of things, so the queue needs no bound of its own.
        told: asyncio.Queue[JsonObject | None] = asyncio.Queue()

        async def hold() -> JsonObject:
            try:
                return await hold_debate(
                    request, lambda step: self._ask_for(call_id, step), told.put_nowait
                )
            finally:
                told.put_nowait(None)

        debate = asyncio.ensure_future(hold())
        try:
            while (progress := await told.get()) is not None:
                yield Note(_sentence(progress))
            result = await debate
        finally:
            debate.cancel()
            await asyncio.wait({debate})
            if not debate.cancelled():
                debate.exception()  # told already, unless nobody listens any more
        yield Reply.of_text(_answer(result))

    async def close(self) -> None:
        """Nothing is held."""


def _read(turn: Turn) -> DebateRequest:
    try:
        return msgspec.json.decode(turn.message.text, type=DebateRequest)
    except msgspec.MsgspecError as error:
        raise AgentFailed(
            f"The message describes no debate: {error}. Use the tool debate_call."
        ) from None


def _call_id(turn: Turn) -> CallId:
    if turn.provenance is None or not turn.provenance.correlation_id:
        raise AgentFailed("A debate is held for a call only. Use the tool debate_call.")
    return CallId(turn.provenance.correlation_id)


def _sentence(progress: JsonObject) -> str:
    """How far the debate is, for people who watch."""
    if "confidences" in progress:
        sure = ", ".join(f"{one:g}" for one in progress["confidences"])
        return f"Round {progress['round']}: the critics have spoken (confidence {sure})."
    words = {"propose": "The proposal is there", "resolve": "The conclusion is there"}
    what = words.get(progress["phase"], f"Refined ({progress['phase'].partition('/')[0]})")
    return f"{what}: confidence {progress['confidence']:g}."


def _answer(result: JsonObject) -> str:
    shown = {
        "output": result,
        "confidence": result["confidence"],
        "assumptions": result["assumptions"],
    }
    # Not with msgspec: what agents say may hold half characters, which only escapes can carry.
    return json.dumps(shown)
