"""Every rule the gateway keeps, by id."""

from tests.requirements.accounts import ACCOUNTS
from tests.requirements.adapters import ADAPTERS
from tests.requirements.agent_calls import AGENT_CALLS
from tests.requirements.calls import CALLS, RPC
from tests.requirements.cards import CARDS
from tests.requirements.objectives import OBJECTIVES
from tests.requirements.promises import PROMISES
from tests.requirements.remote_agent import REMOTE_AGENT
from tests.requirements.requirement import Requirement
from tests.requirements.stores import STORES
from tests.requirements.transcripts import PROMOTION, TRANSCRIPT
from tests.requirements.turns import TURNS
from tests.requirements.wires import ERRORS, SEMANTICS, SHAPES, VERSIONS

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
