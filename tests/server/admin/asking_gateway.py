"""A gateway process whose agent has waiting approvals: `python -m ... CONFIG`."""

import sys
from pathlib import Path

from tests.server.admin.asking_agent import AskingAgent, approval

from openclaw_a2a.app.gateway import build_app
from openclaw_a2a.app.lifecycle import serve_gateway
from openclaw_a2a.model.ids import AgentId
from openclaw_a2a.settings import load_settings

TRICKY = "rm -rf /\n\x1b[2Jecho harmless \u202e"


def main() -> int:
    """Serve until a signal comes."""
    asking = AskingAgent(
        approval("aaaa-1111", command="git push", minute=1),
        approval("aaaa-2222", command=TRICKY, minute=2),
        approval("bbbb-3333", minute=3),
        approval("cccc-4444", minute=4),
    )
    agents = {AgentId("main"): asking, AgentId("down"): AskingAgent(trouble="it is switched off")}
    return serve_gateway(
        load_settings(Path(sys.argv[1])), lambda settings: build_app(settings, agents=agents)
    )


if __name__ == "__main__":
    sys.exit(main())
