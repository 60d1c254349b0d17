"""A gateway in a process of its own, `python busy_gateway.py PORT FOLDER`, for many live tasks.

Its agent streams, a piece at a time, until there is a file `stop` in the folder.
"""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio

from openclaw_a2a import Turn, serve

FOLDER = Path(sys.argv[2])
MANY = 2000


async def answer(text: str, _: Turn) -> AsyncIterator[str]:
    for number in range(10_000):
        if await anyio.Path(FOLDER / "stop").exists():
            break
        yield f"{text}: piece {number}\n"
        await anyio.sleep(2)


if __name__ == "__main__":
    settings = {
        "data": str(FOLDER),
        "store.path": str(FOLDER / "state.db"),
        "log.level": "error",
        "server.stopSeconds": 0,
        "limits.runs": MANY,
        "limits.perPeerRuns": MANY,
        "limits.perPeerRate": 0,
        "limits.perPeerRequests": 0,
    }
    sys.exit(serve(answer, name="Busy", port=int(sys.argv[1]), settings=settings))
