"""Calls between agents: the answer comes back to the caller's own session, once."""
