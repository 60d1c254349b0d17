"""The life of a run: states, signals, and the table that joins them.

    SUBMITTING   the store has not accepted the message, and the agent may not be asked before
    QUEUED       waits for its turn in the session, and until `is_started` is durable
    WORKING      the agent works
    STOPPING     the run was interrupted; its agent has not ended yet
    CLOSING      the agent ended, paused or failed; its stream is being closed
    ENDING       the last events, or the direct answer, are being committed
    REJECTED     the store refused the message: nothing of the run is ever shown
    OVER         nothing more happens

Invariant, for each run
  1. INTERRUPT and REJECT cancel the asyncio task of the run out of QUEUED and WORKING only, hence
     once for each interruption: a second cancellation would hit the clean-up of the agent.
     FORCE is for an agent that hangs in its clean-up, and cancels wherever it is allowed.
  2. In ENDING nothing cancels. What is under way there is the commit that makes the end durable;
     whether the store has taken it could not be known after a cancellation.
  3. Every waiter for the result of the run has it when the run is REJECTED or OVER.
"""

from enum import Enum


class RunState(Enum):
    """Where a run stands in this process; the stored `is_started` is coarser."""

    SUBMITTING = "submitting"
    QUEUED = "queued"
    WORKING = "working"
    STOPPING = "stopping"
    CLOSING = "closing"
    ENDING = "ending"
    REJECTED = "rejected"
    OVER = "over"

    __hash__ = object.__hash__  # members are single objects; hashing their names costs a call


class RunSignal(Enum):
    """What happens to a run."""

    ACCEPT = "accept"
    """The message is durable, or the agent may be asked before it is."""
    START = "start"
    """It is the run's turn, and the store knows that its agent is asked."""
    EVENT = "event"
    """The agent yielded an event, although it was interrupted: it goes on."""
    INTERRUPT = "interrupt"
    """Cancellation, timeout, a refused commit, or the gateway stops."""
    FORCE = "force"
    """The agent is over its time and did not stop when it was interrupted."""
    CLOSE = "close"
    """Nothing more is read from the agent."""
    END = "end"
    """The end of the run is written."""
    REJECT = "reject"
    """The store refused the message; also of a run that started before the store answered."""
    LEAVE = "leave"
    """The asyncio task of the run returns."""

    __hash__ = object.__hash__


# Not SUBMITTING: a cancelled wait would cancel the future of the store, and its answer would be
# lost. `_wait_turn` looks at the flags afterwards.
INTERRUPTIBLE = frozenset({RunState.QUEUED, RunState.WORKING})
CANCELLING = frozenset({RunSignal.INTERRUPT, RunSignal.REJECT, RunSignal.FORCE})

_ANYWHERE = {RunSignal.REJECT: RunState.REJECTED, RunSignal.LEAVE: RunState.OVER}

TRANSITIONS: dict[RunState, dict[RunSignal, RunState]] = {
    RunState.SUBMITTING: {
        RunSignal.ACCEPT: RunState.QUEUED,
        RunSignal.INTERRUPT: RunState.SUBMITTING,  # noticed before the run waits for its turn
        **_ANYWHERE,
    },
    RunState.QUEUED: {
        RunSignal.START: RunState.WORKING,
        RunSignal.INTERRUPT: RunState.STOPPING,
        RunSignal.END: RunState.ENDING,  # it was cancelled before it came here
        **_ANYWHERE,
    },
    RunState.WORKING: {
        RunSignal.INTERRUPT: RunState.STOPPING,
        RunSignal.FORCE: RunState.STOPPING,
        RunSignal.CLOSE: RunState.CLOSING,
        **_ANYWHERE,
    },
    RunState.STOPPING: {
        RunSignal.EVENT: RunState.WORKING,
        RunSignal.INTERRUPT: RunState.STOPPING,
        RunSignal.FORCE: RunState.STOPPING,
        RunSignal.CLOSE: RunState.CLOSING,
        RunSignal.END: RunState.ENDING,  # it was interrupted in the queue: there is no agent
        **_ANYWHERE,
    },
    RunState.CLOSING: {
        RunSignal.INTERRUPT: RunState.CLOSING,
        RunSignal.FORCE: RunState.CLOSING,
        RunSignal.END: RunState.ENDING,
        **_ANYWHERE,
    },
    # No FORCE: the timer of the run is cancelled before END.
    RunState.ENDING: {RunSignal.INTERRUPT: RunState.ENDING, **_ANYWHERE},
    RunState.REJECTED: {
        # A run that started early still goes through its steps; their signals change nothing.
        **dict.fromkeys(RunSignal, RunState.REJECTED),
        RunSignal.LEAVE: RunState.OVER,
    },
    # A stop, a cancellation or the answer of the store may come when the asyncio task has returned.
    RunState.OVER: {RunSignal.INTERRUPT: RunState.OVER, RunSignal.REJECT: RunState.OVER},
}
