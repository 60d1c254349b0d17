"""A gateway whose agent says whatever its caller said, in every place in which an agent can.

    python hostile_gateway.py PORT FOLDER CORPUS

CORPUS is a file with a JSON list of texts. The card of the agent has all of them.
"""

import json
import sys
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from openclaw_a2a.app import build_app
from openclaw_a2a.app.gateway import Gateway
from openclaw_a2a.app.lifecycle import serve_gateway
from openclaw_a2a.model.agent_event import (
    AgentEvent,
    Approval,
    Failed,
    InputRequired,
    Note,
    PartDelta,
    Report,
    TextDelta,
    ToolPhase,
    ToolProgress,
)
from openclaw_a2a.model.ids import AgentId
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Recovery
from openclaw_a2a.settings import Settings, load_settings

FAILS = "fails"


class HostileAgent:
    """Repeats the text of its caller as notes, tools, files, data, reports, questions, errors."""

    recovery = Recovery.REPEAT

    def __init__(self, corpus: Sequence[str]) -> None:
        self._corpus = corpus

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Say it."""
        text = turn.body
        if turn.context_id == FAILS:
            yield Failed(text)
            return
        picture = f'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)">{text}</svg>'
        yield Note(text)
        yield ToolProgress(ToolPhase.START, text, text, {text: text})
        yield ToolProgress(ToolPhase.RESULT, text, text, {"output": text}, is_error=True)
        yield TextDelta(text)
        yield PartDelta(
            Part.of_bytes(picture.encode(), media_type="image/svg+xml", filename=f"{text}.svg")
        )
        yield PartDelta(Part.of_bytes(b"x", media_type="text/html", filename=f"{text}.html"))
        yield PartDelta(Part.of_url(f"https://evil.example/{text}", filename=text))
        yield PartDelta(Part.of_data({text: [text, {"a": text}]}))
        yield Report({"model": text, "provider": text, "usage": {"input": text}, text: text})
        yield InputRequired(text)

    async def approvals(self) -> tuple[Approval, ...]:
        """What waits for a decision: all of it, as commands."""
        now = datetime.now(UTC)
        return tuple(
            Approval(f"a-{number}", text, now, None, cwd=text, warning=text)
            for number, text in enumerate(self._corpus)
        )

    async def decide(self, approval_id: str, *, allow: bool) -> None:
        """Nothing is done."""

    async def close(self) -> None:
        """Nothing is held."""


def main(port: str, folder: str, corpus: str) -> int:
    """Serve it."""
    texts = json.loads(Path(corpus).read_text(encoding="utf-8"))
    agent = HostileAgent(texts)
    skills = [
        {"id": f"s{number}", "name": text, "description": text, "tags": [text]}
        for number, text in enumerate(texts)
    ]
    account = {
        "defaultAgentId": "main",
        "agentStyle": "task-generating",
        "defaultOutputModes": ["*/*"],
        "description": "\n".join(texts),
        "skills": skills,
    }
    overrides = {
        "data": folder,
        "server.port": int(port),
        "openclaw.enabled": False,
        "agents.main.adapter": "echo",
        "channels.a2a.accounts.default": account,
        "tools.agentToAgent": {"enabled": True, "allow": ["*"]},
        "opt": {"enabled": True, "maxTasksPerPlan": 100},
        # A remote agent is this one: its card is the same.
        "outbound": {
            "enabled": True,
            "targets": [{"alias": "odd", "baseUrl": f"http://127.0.0.1:{port}"}],
        },
        "log.level": "warning",
        "server.stopSeconds": 1,
    }
    settings = Path(folder).parent / "hostile.json5"
    settings.write_text("{}", encoding="utf-8")

    def build(loaded: Settings) -> Gateway:
        return build_app(loaded, agents={AgentId("main"): agent})

    return serve_gateway(load_settings(settings, overrides=overrides, environ={}), build)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
