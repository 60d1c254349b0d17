"""OpenClaw run by its command `openclaw agent`, for machines where no OpenClaw gateway runs."""

from openclaw_a2a.agents.openclaw_cli.agent import OpenClawCliAgent
from openclaw_a2a.agents.openclaw_cli.command import OpenClawCliOptions

__all__ = ["OpenClawCliAgent", "OpenClawCliOptions"]
