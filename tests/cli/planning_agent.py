"""An agent in a process of its own, `python planning_agent.py PORT FOLDER [on [alone]]`, for steps.

The first line of what it is asked says what it does: `ask`, `fail` (until there is a file of that
name), `until FILE`, or anything. Asked for plans it makes one, unless the objective is hopeless;
`alone` there is no planner.
"""

import json
import sys
from collections.abc import AsyncIterator

import anyio

from openclaw_a2a import Turn, serve
from openclaw_a2a.model.agent_event import InputRequired

PLANS = {"plans": [{"name": "Look", "tasks": [{"name": "One"}, {"name": "Two"}]}]}
LOOKS = 12_000
"""How often a file is looked for before the agent goes on without it."""


async def answer(text: str, turn: Turn) -> AsyncIterator[str | InputRequired]:
    word, _, rest = text.splitlines()[0].partition(" ")
    if text.startswith("Make plans"):
        yield "no plans today" if "hopeless" in text else json.dumps(PLANS)
        return
    if word == "fail" and not (rest and await anyio.Path(rest).exists()):
        raise RuntimeError("no luck today")
    if word == "ask" and turn.resume is None:
        yield InputRequired("Window or aisle?", resume={})
        return
    for _ in range(LOOKS if word == "until" else 0):
        if await anyio.Path(rest).exists():
            break
        await anyio.sleep(0.02)
    yield f"done: {word}"


if __name__ == "__main__":
    settings = {
        "data": sys.argv[2],
        "store.path": f"{sys.argv[2]}/state.db",
        "log.level": "error",
        "server.stopSeconds": 0,
        "opt.enabled": sys.argv[3:4] == ["on"],
        "opt.tools": sys.argv[3:4] == ["on"],
        "opt.backoffSeconds": 0,
        **({} if sys.argv[4:] == ["alone"] else {"opt.planner": "main"}),
    }
    sys.exit(serve(answer, name="Planner", port=int(sys.argv[1]), settings=settings))
