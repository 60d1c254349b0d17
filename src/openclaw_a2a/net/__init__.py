"""Outgoing network access: HTTP client, address checks, retries and SSE reading."""
