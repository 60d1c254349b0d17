"""The authenticated caller and its permissions."""

from collections.abc import Collection
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
    `is_host`: the caller is the host of agents, and may say for which agent and session it calls.
    `owner` is the name under which it owns what it makes with tools; without one, its name.
    """

    name: PeerName
    scopes: frozenset[Scope] = A2A_SCOPES
    accounts: frozenset[str] | None = None
    agents: frozenset[str] | None = None
    is_host: bool = False
    owner: PeerName = PeerName("")

    def check_account(self, account: AccountId, agent: AgentId) -> None:
        """Refuse credentials that are not for A2A at this account. Raises: InsufficientScope."""
        # One message for all three, so that it does not reveal which accounts or agents exist.
        if (
            Scope.A2A not in self.scopes
            or (self.accounts is not None and account not in self.accounts)
            or (self.agents is not None and agent not in self.agents)
        ):
            raise self._refusal(Scope.A2A)

    def check_scope(self, scope: Scope) -> None:
        """Refuse credentials that are not for this part. Raises: InsufficientScope."""
        if scope not in self.scopes or not can_be_limited(
            {scope}, accounts=self.accounts, agents=self.agents, is_host=self.is_host
        ):
            raise self._refusal(scope)

    def _refusal(self, scope: Scope) -> InsufficientScope:
        text = f"the credentials of {self.name} are not valid here; ask the operator for others"
        return InsufficientScope(text, scope=scope.value)


def can_be_limited(
    scopes: Collection[Scope],
    *,
    accounts: Collection[str] | None,
    agents: Collection[str] | None,
    is_host: bool,
) -> bool:
    """True when these limits are enforced in all these scopes.

    `accounts` and `agents` limit A2A. In tools only a host has agents: those that it calls for.
    """
    if accounts is None and agents is None:
        return True
    others = {scope for scope in scopes if scope is not Scope.A2A}
    return not others or (is_host and accounts is None and others == {Scope.TOOLS})


LOCAL_PRINCIPAL = Principal(LOCAL_PEER)
"""The user of the gateway's own machine, where no credentials are needed."""
