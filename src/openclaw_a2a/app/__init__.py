"""The only place where parts are joined, and the process that serves them."""

from openclaw_a2a.app.gateway import Gateway, build_app
from openclaw_a2a.app.lifecycle import serve_gateway

__all__ = ["Gateway", "build_app", "serve_gateway"]
