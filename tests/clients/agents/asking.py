"""An agent as a process of its own, which does as the text says; its port is the first argument.

count   says `one two three`, piece by piece
hold    says `holding` and goes on until cancelled
fail    fails
other   asks `Really?`, and does it when answered
"""

import sys

import anyio

from openclaw_a2a import Turn, serve
from openclaw_a2a.model.agent_event import InputRequired, Note


async def answer(text: str, turn: Turn):
    if turn.resume is not None:
        yield f"{turn.resume['wanted']}: {text}"
    elif text == "count":
        for word in ("one ", "two ", "three"):
            yield word
    elif text == "hold":
        yield "holding"
        await anyio.sleep_forever()
    elif text == "fail":
        raise RuntimeError("no luck today")
    else:
        yield Note("Looking around")
        yield InputRequired("Really?", resume={"wanted": text})


if __name__ == "__main__":
    serve(answer, name="Asker", port=int(sys.argv[1]))
