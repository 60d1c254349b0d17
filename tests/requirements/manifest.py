"""Every rule the gateway keeps, by id."""

from .accounts import ACCOUNTS
from .adapters import ADAPTERS
from .agent_calls import AGENT_CALLS
from .calls import CALLS, RPC
from .cards import CARDS
from .objectives import OBJECTIVES
from .promises import PROMISES
from .remote_agent import REMOTE_AGENT
from .requirement import Requirement
from .stores import STORES
from .transcripts import PROMOTION, TRANSCRIPT
from .turns import TURNS
from .wires import ERRORS, SEMANTICS, SHAPES, VERSIONS

ALL: tuple[Requirement, ...] = (
    *ACCOUNTS,
    *CARDS,
    *RPC,
    *CALLS,
    *TURNS,
    *PROMOTION,
    *TRANSCRIPT,
    *STORES,
    *VERSIONS,
    *SHAPES,
    *ERRORS,
    *SEMANTICS,
    *PROMISES,
    *ADAPTERS,
    *REMOTE_AGENT,
    *OBJECTIVES,
    *AGENT_CALLS,
)
"""The rules in reading order."""

REQUIREMENTS: dict[str, Requirement] = {rule.id: rule for rule in ALL}
"""The rules by id."""
