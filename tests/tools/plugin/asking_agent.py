"""An agent in a process of its own, `python asking_agent.py PORT FOLDER`, that asks back."""

import sys
from collections.abc import Iterator

from openclaw_a2a import Turn, serve
from openclaw_a2a.model.agent_event import InputRequired


def answer(text: str, turn: Turn) -> Iterator[str | InputRequired]:
    if turn.resume is not None:
        yield f"checked after {text}"
    elif "hosts" in text:
        yield InputRequired("Restart them if needed?", resume={})
    else:
        yield "release 5"


if __name__ == "__main__":
    style = {"channels.a2a.accounts.default.agentStyle": "task-generating"}
    quiet = {"data": sys.argv[2], "log.level": "error"}
    sys.exit(serve(answer, name="Ops", port=int(sys.argv[1]), settings={**quiet, **style}))
