#!/usr/bin/env python3
"""A long mixed load on our gateway that checks every answer and watches memory.

  ./dev soak                  an hour
  ./dev soak --minutes 3      a short one

Callers send, stream, drop streams and resume them, cancel, read and list, all at once. It ends with
status 1 when an answer was wrong, or when the memory or the open files of the gateway were, in the
last quarter of the run, more than 10 % above those of the second quarter. (The first one warms up.)
"""

import argparse
import asyncio
import itertools
import json
import random
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import httpx2

from measure import resident_kb
from servers import Running, started

GROWTH_ALLOWED = 1.10
KEEP_ENDED = 2_000


class Caller:
    """Somebody who uses the gateway and checks what it answers."""

    def __init__(self, http: httpx2.AsyncClient, url: str, seen: Counter[str]):
        self.http, self.url, self.seen = http, url, seen

    async def work(self, until: float) -> None:
        doings = [self.send, self.stream, self.resume, self.cancel, self.read, self.page]
        while time.monotonic() < until:
            doing = random.choice(doings)
            try:
                await doing()
            except (AssertionError, LookupError, ValueError, httpx2.HTTPError) as error:
                self.seen["wrong"] += 1
                print(f"{doing.__name__}: {error!r}", file=sys.stderr)
            self.seen[doing.__name__] += 1

    async def send(self) -> dict:
        text = f"echo:{uuid.uuid4()}"
        task = (await self.call("SendMessage", message(text)))["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
        assert task["artifacts"][0]["parts"][0]["text"] == text, task
        return task

    async def stream(self) -> None:
        events = [event async for _, event in self.events("SendStreamingMessage", chunks(50))]
        assert text_of(events) == "x" * 50 * 64, len(events)
        assert state_of(events[-1]) == "TASK_STATE_COMPLETED", events[-1]

    async def resume(self) -> None:
        """Leave in the middle, come back, and have every event once."""
        seen: list[tuple[int, dict]] = []
        async with aclosing(self.events("SendStreamingMessage", chunks(200))) as events:
            async for item in events:
                seen.append(item)
                if len(seen) >= 3:
                    break
        task_id = seen[0][1]["task"]["id"]
        later = self.events("SubscribeToTask", {"id": task_id}, after=seen[-1][0])
        seen += [item async for item in later]
        assert [number for number, _ in seen] == list(range(len(seen))), seen
        assert text_of(event for _, event in seen) == "x" * 200 * 64

    async def cancel(self) -> None:
        ask = {**message("hold:600"), "configuration": {"returnImmediately": True}}
        task = (await self.call("SendMessage", ask))["task"]
        canceled = await self.call("CancelTask", {"id": task["id"]})
        assert canceled["status"]["state"] == "TASK_STATE_CANCELED", canceled

    async def read(self) -> None:
        task = await self.send()
        again = await self.call("GetTask", {"id": task["id"]})
        assert again == task, again

    async def page(self) -> None:
        page = await self.call("ListTasks", {"pageSize": 20})
        assert len(page["tasks"]) <= 20, page["pageSize"]

    async def call(self, method: str, params: dict) -> dict:
        answer = (await self.http.post(self.url, json=rpc(method, params))).json()
        assert "result" in answer, answer
        return answer["result"]

    async def events(
        self, method: str, params: dict, after: int | None = None
    ) -> AsyncGenerator[tuple[int, dict], None]:
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        body = rpc(method, params)
        async with self.http.stream("POST", self.url, json=body, headers=headers) as response:
            number = -1
            async for line in response.aiter_lines():
                if line.startswith("id:"):
                    number = int(line[3:])
                elif line.startswith("data:"):
                    yield number, json.loads(line[5:])["result"]


numbers = itertools.count()


def rpc(method: str, params: dict) -> dict:
    return {"jsonrpc": "2.0", "id": next(numbers), "method": method, "params": params}


def message(text: str) -> dict:
    message_id = uuid.uuid4().hex
    return {"message": {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]}}


def chunks(count: int) -> dict:
    return message(f"chunks:{count}:64")


def text_of(events) -> str:
    updates = [event["artifactUpdate"] for event in events if "artifactUpdate" in event]
    return "".join(part.get("text", "") for one in updates for part in one["artifact"]["parts"])


def state_of(event: dict) -> str:
    return event["statusUpdate"]["status"]["state"]


async def watch(server: Running, until: float, seen: Counter[str]) -> list[tuple[int, int]]:
    """Memory and open files of the gateway, now and then."""
    samples: list[tuple[int, int]] = []
    pause = max(1.0, (until - time.monotonic()) / 40)
    while time.monotonic() < until:
        await asyncio.sleep(pause)
        files = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
        samples.append((resident_kb(server.pid) or 0, files))
        print(f"memory {samples[-1][0]} KB, files {files}, {dict(seen)}", flush=True)
    return samples


def growth(samples: list[tuple[int, int]], which: int) -> float:
    """The last quarter in relation to the second. (The first one warms up.)"""
    values = [sample[which] for sample in samples]
    quarter = max(1, len(values) // 4)
    return max(values[-quarter:]) / max(values[quarter : 2 * quarter])


async def soak(server: Running, *, minutes: float, callers: int) -> int:
    until = time.monotonic() + minutes * 60
    seen: Counter[str] = Counter()
    limits = httpx2.Limits(max_connections=callers * 2)
    async with (
        httpx2.AsyncClient(timeout=60, limits=limits, headers={"A2A-Version": "1.0"}) as http,
        asyncio.TaskGroup() as group,
    ):
        watching = group.create_task(watch(server, until, seen))
        for _ in range(callers):
            group.create_task(Caller(http, server.url, seen).work(until))
    samples = watching.result()
    memory, files = growth(samples, 0), growth(samples, 1)
    requests = sum(seen.values()) - seen["wrong"]
    print(
        f"{requests} uses, wrong answers: {seen['wrong']}; after warming up memory grew by"
        f" {memory - 1:+.1%} to {samples[-1][0]} KB, open files by {files - 1:+.1%}"
    )
    return 1 if seen["wrong"] or max(memory, files) > GROWTH_ALLOWED else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--callers", type=int, default=16)
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="a2a-soak-") as data,
        started("ours", Path(data), "--keep-ended", str(KEEP_ENDED)) as server,
    ):
        return asyncio.run(soak(server, minutes=args.minutes, callers=args.callers))


if __name__ == "__main__":
    sys.exit(main())
