"""Agents of a running OpenClaw gateway, over its WebSocket protocol."""

from openclaw_a2a.agents.openclaw_gateway.agent import OpenClawGatewayAgent, OpenClawGatewayOptions

__all__ = ["OpenClawGatewayAgent", "OpenClawGatewayOptions"]
