"""Validation and building of `remote_agent` requests."""
