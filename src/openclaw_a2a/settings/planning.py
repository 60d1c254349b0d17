"""Objectives and plans: what the members of that section do not tell by themselves is checked."""

from collections.abc import Collection
from pathlib import Path

import msgspec

from openclaw_a2a.model.ids import AgentId
from openclaw_a2a.settings.report import Report, nearest
from openclaw_a2a.settings.shape import PlanningSettings


def complete_planning(
    section: PlanningSettings, *, folder: Path, agents: Collection[AgentId], report: Report
) -> PlanningSettings:
    """The section with its folder; what is wrong is a problem, what has no effect a warning."""
    planner = section.planner.strip()
    if planner and planner not in agents:
        message = f"there is no agent {planner}; {nearest(planner, list(agents))}"
        report.problem("opt.planner", message, "unknown-agent")
    if section.tools and not section.enabled:
        report.warning("opt.tools", "has no effect; set opt.enabled to true", "unavailable")
    return msgspec.structs.replace(section, directory=str(folder), planner=planner)
