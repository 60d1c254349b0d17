"""Keeps calls from going in circles: by the chain of agents, and by answers that cause calls.

The chain of a caller is that of the run which is active in its session. An agent that calls again
because an answer arrived is in no chain, since its earlier turn has ended; the lineage of answers
counts these calls.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from itertools import takewhile

import msgspec

from openclaw_a2a.calls.repository import CallRepository
from openclaw_a2a.engine.tasks.run import ActiveRun
from openclaw_a2a.model.call import Caller, CallId
from openclaw_a2a.model.ids import AgentId, Json, JsonObject, RunId, SessionKey
from openclaw_a2a.model.records import RunRecord
from openclaw_a2a.model.turn import CHAIN_HOSTS_KEY, CHAIN_KEY
from openclaw_a2a.model.validation import as_list

_MAX_CHAIN = 64
_MAX_NAME = 200
_MAX_LINEAGE = 256
_AT = "@"

HostSessionKey = Callable[[AgentId, SessionKey], SessionKey | None]
"""The key under which an agent's host knows a session of ours; None before that is known."""

_STALE_RUNS = 16
"""How many ended runs may be indexed beyond as many as are active, until the next lookup.

Few: an ended run keeps its task and journal in memory as long as it is indexed.
"""

FindRunElsewhere = Callable[[SessionKey], Awaitable[RunRecord | None]]
"""Finds the started run in a session, by the key of its host, at another replica."""

ReleaseElsewhere = Callable[[SessionKey], AbstractContextManager[None]]
"""While it waits, the started run in a session at another replica holds no run slot there."""


class LoopLimits(msgspec.Struct, frozen=True):
    """How far calls may go."""

    max_depth: int = 5
    max_ping_pong_turns: int = 5


class CallOrigin(msgspec.Struct, frozen=True):
    """How a caller came to call.

    `chain` has the agents from the first caller to this one. `lineage` has the agents whose
    answers led it here, the oldest first.
    """

    chain: tuple[AgentId, ...]
    lineage: tuple[AgentId, ...] = ()


def loop_violation(origin: CallOrigin, target: AgentId, limits: LoopLimits) -> str | None:
    """Why the target must not be called; None when it may."""
    reason = chain_violation(origin.chain, target, max_depth=limits.max_depth)
    if reason is not None:
        return reason
    turns = origin.lineage.count(target)
    if turns > limits.max_ping_pong_turns or len(origin.lineage) >= _MAX_LINEAGE:
        return (
            f"loop: {origin.chain[-1]} has called {target} {turns} times in answer to answers; "
            f"{limits.max_ping_pong_turns} are allowed (tools.agentToAgent.maxPingPongTurns)"
        )
    return None


def chain_violation(chain: Sequence[AgentId], target: AgentId, *, max_depth: int) -> str | None:
    """Why the chain must not continue to the target; None when it may."""
    path = " -> ".join([*chain, target])
    if target in chain:
        return f"loop: {target} is in the chain of calls already ({path})"
    if len(chain) > max_depth:
        return f"depth: the chain of calls is longer than {max_depth} ({path})"
    return None


# -------------------------------------------------------------------- chains between gateways


def read_chain(metadata: Mapping[str, Json] | None, own_host: str) -> tuple[AgentId, ...]:
    """The chain in a message's metadata; empty when there is none that can be read.

    Agents of other gateways are `<id>@<gateway>`. Without a list of gateways all ids count as
    ours.
    """
    given = metadata or {}
    names = _texts(given.get(CHAIN_KEY))
    hosts = _texts(given.get(CHAIN_HOSTS_KEY))
    if len(hosts) != len(names):
        return tuple(AgentId(name) for name in names)
    plain = [name.replace(_AT, "-") for name in names]
    return tuple(
        AgentId(name if host == own_host else f"{name}{_AT}{host}")
        for name, host in zip(plain, hosts, strict=True)
    )


def chain_metadata(chain: Sequence[AgentId], own_host: str) -> JsonObject:
    """The chain as metadata of a message to another gateway."""
    if not chain:
        return {}
    parts = [one.partition(_AT) for one in chain]
    return {
        CHAIN_KEY: [name for name, _, _ in parts],
        CHAIN_HOSTS_KEY: [host or own_host for _, _, host in parts],
    }


def _texts(value: Json) -> list[str]:
    texts = [
        item for item in as_list(value) if isinstance(item, str) and 0 < len(item) <= _MAX_NAME
    ]
    return texts[:_MAX_CHAIN]


# -------------------------------------------------------------------- the origin of a caller


class CallHistory(msgspec.Struct, frozen=True):
    """Finds the origin of callers from what is active in their sessions."""

    runs: "Collection[RunIndex]"
    calls: CallRepository
    in_sessions: Mapping[SessionKey, Set[CallId]]
    """By session, the calls whose outcomes are being sent to it or processed in it."""
    own_host: str
    find_run_elsewhere: FindRunElsewhere | None = None
    """Finds the run in a session that another replica works on; None without replication."""
    release_elsewhere: ReleaseElsewhere | None = None
    """Releases the run slot of such a run."""

    async def origin_of(self, caller: Caller) -> CallOrigin:
        """How this caller came to call. Raises: StoreUnavailable."""
        active, key = self._find_run(caller), caller.session_key
        run = None if active is None else active.record
        if run is None and key is not None and self.find_run_elsewhere is not None:
            run = await self.find_run_elsewhere(key)
        if run is not None:
            provenance = run.options.provenance
            chain = (
                read_chain(run.message.metadata, self.own_host)
                if provenance is None
                else provenance.chain
            )
            return CallOrigin((*chain, caller.agent_id))
        if key is None:
            return CallOrigin((caller.agent_id,))
        # Of several outcomes that the session works on, the one with most history counts.
        found = map(self.calls.find, self.in_sessions.get(key, ()))
        own = [call for call in found if call is not None]
        if self.find_run_elsewhere is not None:  # another replica may have sent them
            own += await self.calls.list_in_session(key)
        answered = max(own, key=lambda call: len(call.lineage), default=None)
        if answered is not None:
            return CallOrigin(answered.chain, (*answered.lineage, answered.callee))
        return CallOrigin((caller.agent_id,))

    def release_run_slot(self, caller: Caller) -> AbstractContextManager[None]:
        """While the caller waits for another agent, its own run holds no run slot."""
        run, key = self._find_run(caller), caller.session_key
        if run is not None:
            return run.slot.released()
        if self.release_elsewhere is None or key is None:
            return nullcontext()
        return self.release_elsewhere(key)

    def _find_run(self, caller: Caller) -> ActiveRun | None:
        """The run in whose turn the caller calls; None outside runs of this gateway."""
        key = caller.session_key
        found = () if key is None else (one.find_run(key) for one in self.runs)
        return next((run for run in found if run is not None), None)


class RunIndex:
    """Index of an engine's active runs by session key, by our keys and by the hosts' keys.

    It is brought up to date on lookup, so that runs of agents that never call cost nothing.
    """

    def __init__(self, runs: dict[RunId, ActiveRun], host_session_key: HostSessionKey) -> None:
        """`runs` are the active ones, the newest last."""
        self._runs = runs
        self._host_session_key = host_session_key
        self._indexed: dict[RunId, ActiveRun] = {}
        self._by_session: dict[SessionKey, deque[ActiveRun]] = {}
        self._without_host_key: list[ActiveRun] = []

    def find_run(self, session_key: SessionKey) -> ActiveRun | None:
        """The started run in a session."""
        self._update()
        # Ended runs are dropped where they stand in the way, so that ending a run costs nothing.
        runs = self._by_session.get(session_key, deque())
        while runs and not self._is_active(runs[0]):
            runs.popleft()
        started = (run for run in runs if self._is_active(run) and run.record.is_started)
        return next(started, None)

    def _update(self) -> None:
        """Index the runs that are new since the last lookup: they are the last ones."""
        # Most of what is indexed has ended: indexing the active runs anew is cheaper than cleaning.
        if len(self._indexed) > 2 * len(self._runs) + _STALE_RUNS:
            self._indexed, self._by_session, self._without_host_key = {}, {}, []
        new = [*takewhile(self._is_new, reversed(self._runs.values()))][::-1]
        for run in new:
            self._indexed[run.record.id] = run
            self._add(run, run.record.binding.session_key)
        unknown, self._without_host_key = self._without_host_key, []
        for run in (*unknown, *new):
            self._add_host_key(run)

    def _add_host_key(self, run: ActiveRun) -> None:
        binding = run.record.binding
        host_key = self._host_session_key(binding.agent_id, binding.session_key)
        if host_key is None and self._is_active(run):
            self._without_host_key.append(run)
        elif host_key is not None and host_key != binding.session_key:
            self._add(run, host_key)

    def _add(self, run: ActiveRun, session_key: SessionKey) -> None:
        self._by_session.setdefault(session_key, deque()).append(run)

    def _is_new(self, run: ActiveRun) -> bool:
        return self._indexed.get(run.record.id) is not run

    def _is_active(self, run: ActiveRun) -> bool:
        return self._runs.get(run.record.id) is run
