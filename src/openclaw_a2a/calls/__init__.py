"""Calls between agents: each outcome is delivered once, into the caller's own session."""
