"""Results of `remote_agent`."""
