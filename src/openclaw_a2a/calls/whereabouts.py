"""Which run is under way in a session of a host, without asking every run there is."""

from collections import deque
from collections.abc import Callable
from itertools import takewhile

from openclaw_a2a.model.ids import AgentId, RunId, SessionKey
from openclaw_a2a.model.stored import RunRecord
from openclaw_a2a.runtime.run import LiveRun

HostSession = Callable[[AgentId, SessionKey], SessionKey | None]
"""How an agent's host calls a session of ours; None before that is known."""

_SPARE = 256
"""So many runs that are over may be remembered before they are cleared away."""


class Whereabouts:
    """The sessions in which the runs of one engine are."""

    def __init__(self, runs: dict[RunId, LiveRun], host_session: HostSession) -> None:
        """`runs` are those that live, the newest at the end."""
        self._runs = runs
        self._host_session = host_session
        self._known: dict[RunId, LiveRun] = {}
        self._in_session: dict[SessionKey, deque[LiveRun]] = {}
        self._unplaced: list[LiveRun] = []
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

    def _place(self, run: LiveRun) -> None:
        binding = run.record.binding
        there = self._host_session(binding.agent_id, binding.session_key)
        if there is None and self._is_alive(run):
            self._unplaced.append(run)
        elif there is not None and there != binding.session_key:
            self._note(run, there)

    def _note(self, run: LiveRun, session_key: SessionKey) -> None:
        self._in_session.setdefault(session_key, deque()).append(run)

    def _is_new(self, run: LiveRun) -> bool:
        return self._known.get(run.record.id) is not run

    def _is_alive(self, run: LiveRun) -> bool:
        return self._runs.get(run.record.id) is run
