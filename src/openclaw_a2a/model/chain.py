"""How the chain of agents that a call came through travels from gateway to gateway."""

CHAIN_KEY = "openclaw/v1/chain"
"""Where the chain travels in the metadata of A2A messages: the ids of the agents, first first."""

CHAIN_HOSTS_KEY = "openclaw/v1/chainHosts"
"""Beside it, on which gateway each of them lives: half the world's agents are called `main`."""

BETWEEN_GATEWAYS = frozenset({CHAIN_KEY, CHAIN_HOSTS_KEY})
"""Metadata that gateways tell each other, and that says nothing to an agent."""
