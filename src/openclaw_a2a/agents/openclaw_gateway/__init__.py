"""A running OpenClaw gateway as an agent: the main road to OpenClaw."""

from openclaw_a2a.agents.openclaw_gateway.agent import OpenClawGatewayAgent
from openclaw_a2a.agents.openclaw_gateway.options import OpenClawGatewayOptions

__all__ = ["OpenClawGatewayAgent", "OpenClawGatewayOptions"]
