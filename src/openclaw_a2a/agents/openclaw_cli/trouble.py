"""Why a run was turned away before it began, so that it can be tried again in another way."""

from enum import Enum

from openclaw_a2a.agents.openclaw_cli.answer import Finished, failure_text


class Trouble(Enum):
    """What stands in the way; the value is what OpenClaw says then."""

    DIRECTORY_BUSY = "failed to acquire gateway state ownership"
    GATEWAY_RUNS = "Run without --local"
    NO_GATEWAY = "Gateway not reachable"


def find_trouble(finished: Finished) -> Trouble | None:
    """What kept the run from beginning; None when it began, or failed for another reason."""
    if finished.exit_code == 0:
        return None
    text = failure_text(finished)
    return next((trouble for trouble in Trouble if trouble.value in text), None)
