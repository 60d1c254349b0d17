"""Outgoing network access: HTTP client, address checks and SSE reading (`http` is incoming)."""
