"""What a turn is about, how patient it is, and what it says on bad days."""

from typing import Final

import msgspec

from openclaw_a2a.agents.openclaw_gateway.media import Shelf
from openclaw_a2a.model.ids import JsonObject, TaskId


class Patience(msgspec.Struct, frozen=True):
    """How long things may take, in seconds."""

    connection_s: float = 300.0
    """Until a connection that broke is there again, or a gateway answers again."""
    recovery_s: float = 180.0
    """Until a restarted gateway goes on with an interrupted run."""
    quiet_s: float = 120.0
    """After so long a silence the run is looked for."""
    wait_s: float = 60.0
    """How long one question for a run's end waits."""
    glance_s: float = 5.0
    """The same for a run that is not to be seen."""
    stop_s: float = 60.0
    """Until a run that is to be stopped has ended."""
    settle_s: float = 5.0
    """After so long it is told to stop once more."""


LOST: Final = (
    "The connection to OpenClaw was lost in the middle of the turn; it is being made again."
)
RESTARTED: Final = (
    "OpenClaw was restarted in the middle of this turn; what it does with the turn is awaited."
)
NOT_RECOVERED: Final = (
    "OpenClaw was restarted in the middle of this turn and did not go on with it; what it had done"
    " by then is done. Send the message again to have it done anew."
)
NOT_STOPPED: Final = (
    "OpenClaw was told to stop the run and did not confirm that it has; it may go on there."
    " Look at the session in OpenClaw."
)
GONE: Final = "OpenClaw does not know the run of this task any more; send the message again."


class Errand(msgspec.Struct, frozen=True):
    """What a turn is about: whose it is, where it runs, and how it is asked for.

    `params` are those of `agent`; None for a run that was begun by an earlier turn.
    """

    task_id: TaskId
    run_id: str
    shelf: Shelf
    params: JsonObject | None = None
    may_approve: bool = False
    open_calls: tuple[str, ...] | None = None
    """For a run that had paused: the tool calls that waited then; what was before them is told."""
