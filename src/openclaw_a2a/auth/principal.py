"""Who a caller is and what it may do: the result of authentication."""

from enum import Enum

import msgspec

from openclaw_a2a.model.errors import InsufficientScope
from openclaw_a2a.model.ids import LOCAL_PEER, AccountId, AgentId, PeerName


class Scope(Enum):
    """A part of the gateway that credentials may be valid for."""

    A2A = "a2a"
    TOOLS = "tools"
    DASHBOARD = "dashboard"
    ADMIN = "admin"


A2A_SCOPES = frozenset({Scope.A2A})


class Principal(msgspec.Struct, frozen=True):
    """An authenticated caller. Only its name is passed on; the rest is checked at the endpoint.

    `accounts` and `agents` are those that the credentials are limited to; None means all.
    """

    name: PeerName
    scopes: frozenset[Scope] = A2A_SCOPES
    accounts: frozenset[str] | None = None
    agents: frozenset[str] | None = None

    def check_account(self, account: AccountId, agent: AgentId) -> None:
        """Refuse credentials that are not for A2A at this account. Raises: InsufficientScope."""
        # One message for all three: it does not tell which accounts or agents there are.
        if (
            Scope.A2A not in self.scopes
            or (self.accounts is not None and account not in self.accounts)
            or (self.agents is not None and agent not in self.agents)
        ):
            raise InsufficientScope(
                f"the credentials of {self.name} are not valid for this agent;"
                " ask the operator for others",
                scope=Scope.A2A.value,
            )


LOCAL_PRINCIPAL = Principal(LOCAL_PEER)
"""The user of the gateway's own machine, where no credentials are needed."""
