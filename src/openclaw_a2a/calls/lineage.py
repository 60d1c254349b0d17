"""How a caller came to call: through which agents, and after which answers."""

from collections.abc import Collection, Set

import msgspec

from openclaw_a2a.calls.book import CallBook
from openclaw_a2a.calls.chain import read_chain, why_not
from openclaw_a2a.calls.whereabouts import Whereabouts
from openclaw_a2a.model.call import Call, Caller, CallId
from openclaw_a2a.model.ids import AgentId, SessionKey
from openclaw_a2a.model.stored import RunRecord

_LONGEST = 256


class Past(msgspec.Struct, frozen=True):
    """The agents from the first caller to this one, and those whose answers led it here."""

    chain: tuple[AgentId, ...]
    lineage: tuple[AgentId, ...] = ()


class GuardRules(msgspec.Struct, frozen=True):
    """How far calls may go."""

    max_depth: int = 5
    max_ping_pong_turns: int = 5


def why_not_on(past: Past, target: AgentId, rules: GuardRules) -> str | None:
    """Why calls must not go on to the target; None when they may."""
    reason = why_not(past.chain, target, max_depth=rules.max_depth)
    if reason is not None:
        return reason
    turns = past.lineage.count(target)
    if turns > rules.max_ping_pong_turns or len(past.lineage) >= _LONGEST:
        return (
            f"loop: {past.chain[-1]} has called {target} {turns} times in answer to answers; "
            f"{rules.max_ping_pong_turns} are allowed (tools.agentToAgent.maxPingPongTurns)"
        )
    return None


class Lineage:
    """Knows the past of callers from what is under way in their sessions."""

    def __init__(
        self,
        runs: Collection[Whereabouts],
        book: CallBook,
        *,
        dealing: Set[CallId],
        own_host: str,
    ) -> None:
        """`dealing` are the calls whose outcomes their callers are dealing with."""
        self._runs = runs
        self._book = book
        self._dealing = dealing
        self._own_host = own_host

    def past(self, caller: Caller) -> Past:
        """How this caller came to where it is."""
        if caller.session_key is None:
            return Past((caller.agent_id,))
        run = self._run_in(caller.session_key)
        if run is not None:
            return Past((*self._chain_of(run), caller.agent_id))
        answered = self._answered_in(caller.session_key)
        if answered is not None:
            return Past(answered.chain, (*answered.lineage, answered.callee))
        return Past((caller.agent_id,))

    def _run_in(self, session_key: SessionKey) -> RunRecord | None:
        """The run that is under way in a session, as far as it is one of ours."""
        found = (one.run_in(session_key) for one in self._runs)
        return next((run for run in found if run is not None), None)

    def _answered_in(self, session_key: SessionKey) -> Call | None:
        """The call whose answer the session is dealing with; of several the longest story."""
        calls = [call for one in self._dealing if (call := self._book.find(one)) is not None]
        found = [call for call in calls if call.caller.session_key == session_key]
        return max(found, key=lambda call: len(call.lineage), default=None)

    def _chain_of(self, run: RunRecord) -> tuple[AgentId, ...]:
        """The agents that a run came through, before its own."""
        if run.options.provenance is not None:
            return run.options.provenance.chain
        return read_chain(run.message.metadata, self._own_host)
