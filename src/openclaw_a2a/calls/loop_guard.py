"""The chain of agents that a call came through, so that calls cannot go round in circles."""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from itertools import takewhile
from typing import cast

import msgspec

from openclaw_a2a.calls.repository import CallRepository
from openclaw_a2a.engine.tasks.run import ActiveRun
from openclaw_a2a.model.call import Call, Caller, CallId
from openclaw_a2a.model.ids import AgentId, Json, JsonObject, RunId, SessionKey
from openclaw_a2a.model.records import RunRecord
from openclaw_a2a.model.turn import CHAIN_HOSTS_KEY as HOSTS_KEY
from openclaw_a2a.model.turn import CHAIN_KEY as METADATA_KEY

_MOST_KEPT = 64
_MOST_NAME = 200
_AT = "@"


def read_chain(metadata: Mapping[str, Json] | None, own_host: str) -> tuple[AgentId, ...]:
    """The chain that came with a message; what is no chain is an empty one.

    Agents of other gateways are `<id>@<gateway>`. Where nothing is said about gateways, an id
    counts as one of ours.
    """
    given = metadata or {}
    names = _texts(given.get(METADATA_KEY))
    hosts = _texts(given.get(HOSTS_KEY))
    if len(hosts) != len(names):
        return tuple(AgentId(name) for name in names)
    return tuple(_qualified(*pair, own_host) for pair in zip(names, hosts, strict=True))


def chain_metadata(chain: Sequence[AgentId], own_host: str) -> JsonObject:
    """The chain as it travels with a message to another gateway."""
    if not chain:
        return {}
    parts = [one.partition(_AT) for one in chain]
    return {
        METADATA_KEY: [name for name, _, _ in parts],
        HOSTS_KEY: [host or own_host for _, _, host in parts],
    }


def chain_violation(chain: Sequence[AgentId], target: AgentId, *, max_depth: int) -> str | None:
    """Why the chain must not go on to the target; None when it may."""
    path = " -> ".join([*chain, target])
    if target in chain:
        return f"loop: {target} is in the chain of calls already ({path})"
    if len(chain) > max_depth:
        return f"depth: the chain of calls is longer than {max_depth} ({path})"
    return None


def _qualified(name: str, host: str, own_host: str) -> AgentId:
    plain = name.replace(_AT, "-")
    return AgentId(plain if host == own_host else f"{plain}{_AT}{host}")


def _texts(value: Json) -> list[str]:
    items = cast("list[Json]", value) if isinstance(value, list) else []
    texts = [item for item in items if isinstance(item, str) and 0 < len(item) <= _MOST_NAME]
    return texts[:_MOST_KEPT]


HostSession = Callable[[AgentId, SessionKey], SessionKey | None]
"""How an agent's host calls a session of ours; None before that is known."""

_SPARE = 256
"""So many runs that are over may be remembered before they are cleared away."""


class RunIndex:
    """The sessions in which the runs of one engine are."""

    def __init__(self, runs: dict[RunId, ActiveRun], host_session: HostSession) -> None:
        """`runs` are those that live, the newest at the end."""
        self._runs = runs
        self._host_session = host_session
        self._known: dict[RunId, ActiveRun] = {}
        self._in_session: dict[SessionKey, deque[ActiveRun]] = {}
        self._unplaced: list[ActiveRun] = []
        """Runs of which nobody can say yet how their host calls their session."""

    def run_in(self, session_key: SessionKey) -> RunRecord | None:
        """The run that is under way in a session, by our name for it or by its host's."""
        self._catch_up()
        runs = self._in_session.get(session_key, deque())
        while runs and not self._is_alive(runs[0]):
            runs.popleft()
        started = (run.record for run in runs if self._is_alive(run) and run.record.is_started)
        return next(started, None)

    def _catch_up(self) -> None:
        """Take up the runs that came since the last time: they are at the end."""
        if len(self._known) > 2 * len(self._runs) + _SPARE:
            self._known, self._in_session, self._unplaced = {}, {}, []
        came = [*takewhile(self._is_new, reversed(self._runs.values()))][::-1]
        for run in came:
            self._known[run.record.id] = run
            self._note(run, run.record.binding.session_key)
        unplaced, self._unplaced = self._unplaced, []
        for run in (*unplaced, *came):
            self._place(run)

    def _place(self, run: ActiveRun) -> None:
        binding = run.record.binding
        there = self._host_session(binding.agent_id, binding.session_key)
        if there is None and self._is_alive(run):
            self._unplaced.append(run)
        elif there is not None and there != binding.session_key:
            self._note(run, there)

    def _note(self, run: ActiveRun, session_key: SessionKey) -> None:
        self._in_session.setdefault(session_key, deque()).append(run)

    def _is_new(self, run: ActiveRun) -> bool:
        return self._known.get(run.record.id) is not run

    def _is_alive(self, run: ActiveRun) -> bool:
        return self._runs.get(run.record.id) is run


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
    reason = chain_violation(past.chain, target, max_depth=rules.max_depth)
    if reason is not None:
        return reason
    turns = past.lineage.count(target)
    if turns > rules.max_ping_pong_turns or len(past.lineage) >= _LONGEST:
        return (
            f"loop: {past.chain[-1]} has called {target} {turns} times in answer to answers; "
            f"{rules.max_ping_pong_turns} are allowed (tools.agentToAgent.maxPingPongTurns)"
        )
    return None


class CallHistory:
    """Knows the past of callers from what is under way in their sessions."""

    def __init__(
        self,
        runs: Collection[RunIndex],
        book: CallRepository,
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
