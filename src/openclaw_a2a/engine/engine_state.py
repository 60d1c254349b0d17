"""State machine of an engine that stops: states, signals, and the transition table.

    SERVING      accepts messages
    DRAINING     the operator drains this replica: it accepts only what its own runs need
    FINISHING    the gateway stops: nothing is accepted, runs may end
    STOPPING     runs are interrupted, and stay in the store for the next start
    FORCING      what still runs is cancelled even in its clean-up, and commits no end

Invariant
  1. An engine never goes back to an earlier state: what was refused once stays refused. A signal
     for a state that is passed changes nothing, because a gateway drains and then stops, and a
     second signal of the process may come at any moment.
  2. FORCING comes after STOPPING only: every run was interrupted, and had time to end by itself.
"""

from enum import Enum


class EngineState(Enum):
    """How far the end of an engine has come."""

    SERVING = "serving"
    DRAINING = "draining"
    FINISHING = "finishing"
    STOPPING = "stopping"
    FORCING = "forcing"

    __hash__ = object.__hash__  # members are single objects; hashing their names costs a call


class EngineSignal(Enum):
    """What ends an engine."""

    DRAIN = "drain"
    """The operator drains this replica."""
    FINISH = "finish"
    """The gateway stops, and waits for its runs."""
    STOP = "stop"
    """The time for runs is over."""
    FORCE = "force"
    """Interrupted runs did not end in time."""

    __hash__ = object.__hash__


INTERRUPTING = frozenset({EngineState.STOPPING, EngineState.FORCING})
"""The states in which a run does not start, and is left in the store as it is."""

TRANSITIONS: dict[EngineState, dict[EngineSignal, EngineState]] = {
    EngineState.SERVING: {
        EngineSignal.DRAIN: EngineState.DRAINING,
        EngineSignal.FINISH: EngineState.FINISHING,
        EngineSignal.STOP: EngineState.STOPPING,
    },
    EngineState.DRAINING: {
        EngineSignal.DRAIN: EngineState.DRAINING,
        EngineSignal.FINISH: EngineState.FINISHING,
        EngineSignal.STOP: EngineState.STOPPING,
    },
    EngineState.FINISHING: {
        EngineSignal.DRAIN: EngineState.FINISHING,
        EngineSignal.FINISH: EngineState.FINISHING,
        EngineSignal.STOP: EngineState.STOPPING,
    },
    EngineState.STOPPING: {
        EngineSignal.DRAIN: EngineState.STOPPING,
        EngineSignal.FINISH: EngineState.STOPPING,
        EngineSignal.STOP: EngineState.STOPPING,
        EngineSignal.FORCE: EngineState.FORCING,
    },
    EngineState.FORCING: dict.fromkeys(EngineSignal, EngineState.FORCING),
}
