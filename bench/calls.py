#!/usr/bin/env python3
"""What calls between agents cost: hand-overs, deadlines, pending calls, calls beside bare sends.

  ./dev bench calls                                   all of it, about two minutes
  .venv/bin/python bench/calls.py handover            only these figures
  .venv/bin/python bench/calls.py --store memory rate

Each figure has a gateway process of its own on a durable SQLite file. Its host takes notes for
sessions and only counts; its callee answers after a while, or never. Calls come over loopback
through POST /tools/agent_call. Clocks are at the edges: where the store's thread has synced a
callee's end, and where the host is handed a note.
"""

import argparse
import asyncio
import json
import os
import pickle
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from measure import cpu_s, ms, percentile, resident_kb
from served import serve_measured
from servers import LOADER_CORE, SERVER_CORE, free_port, wait_for_port
from wire import Connection, Target

Json = Any

CONNECTIONS = 16
CALLERS = 200
"""Sessions that call in turn; each has seen its last answer when it calls again."""
KEPT_S = 3.0
IDLE_S = 10.0
MOST_S = 120.0
"""No figure may take longer."""
PENDING = 1000
RPC = "/a2a/jsonrpc"


# ------------------------------------------------------------------ the gateway, with its clocks


class Seen:
    """When what happened in the gateway, by the machine's clock."""

    def __init__(self) -> None:
        self.ended: dict[str, float] = {}
        """When the end of a task was durable."""
        self.said: dict[str, float] = {}
        """When the callee answered, by the id of the call."""
        self.handed: list[tuple[float, str]] = []
        """When the host was handed a note, and its text."""


class Member:
    """An agent whose sessions are in a host that counts, and who answers when it is told to.

    `{"at": 1.5e9}` answers at that time, `{"never": true}` never, `{}` at once.
    """

    def __init__(self, name: str, seen: Seen) -> None:
        from openclaw_a2a.ports import Recovery

        self.recovery = Recovery.REPEAT
        self._prefix = f"agent:{name}:"
        self._seen = seen

    async def run(self, turn: Json) -> AsyncIterator[Json]:
        from openclaw_a2a.model.agent_event import Reply

        if not turn.body.startswith("{"):
            yield Reply.of_text(turn.body)
            return
        asked = json.loads(turn.body)
        if asked["input"].get("never"):
            await asyncio.get_running_loop().create_future()
        if "at" in asked["input"]:
            await asyncio.sleep(asked["input"]["at"] - time.time())
        self._seen.said[asked["correlationId"]] = time.time()
        yield Reply.of_text('{"output": "done", "confidence": 0.9}')

    async def close(self) -> None:
        """Nothing is held."""

    def owns_session(self, session_key: str) -> bool:
        return session_key.startswith(self._prefix)

    def host_session_key(self, session_key: str) -> str:
        return session_key

    @property
    def host(self) -> str:
        return "host"

    async def locate_session(self, session_key: str) -> Json:
        from openclaw_a2a.ports import SessionPresence

        return SessionPresence.IDLE

    async def deliver(self, note: Json) -> Json:
        from openclaw_a2a.ports import MessageAccepted

        self._seen.handed.append((time.time(), note.text))
        return MessageAccepted()

    async def wait_processed(self, note: Json) -> bool:
        return True


def serve(port: int, data: Path, store: str, profile: Path | None) -> None:
    """Serve until a signal comes, then write down what was seen when."""
    seen = Seen()
    clock_commits(seen)
    settings = {
        "store.kind": store,
        "channels.a2a.accounts.default": {
            "defaultAgentId": "callee",
            "agentStyle": "task-generating",
        },
        "tools.perTokenCalls": 1000,
        "limits.runs": 1_000_000,
        "limits.perPeerRuns": 1_000_000,
        "limits.pendingCalls": 1_000_000,
        "limits.perAgentCalls": 1_000_000,
        "responseRouting.maxTimeoutMs": 86_400_000,
        "tools.agentToAgent.enabled": True,
        "tools.agentToAgent.allow": ["*"],
    }
    agents = {name: Member(name, seen) for name in ("caller", "callee")}
    serve_measured(data, port, agents=agents, settings=settings, profile=profile)
    (data / "seen").write_bytes(pickle.dumps((seen.ended, seen.said, seen.handed)))


def clock_commits(seen: Seen) -> None:
    """Note when the ends of tasks are durable, where the store says so first."""
    from openclaw_a2a.model.task import is_terminal
    from openclaw_a2a.store.commands import ChangeTask, Submit
    from openclaw_a2a.store.sqlite.database import SqliteDatabase

    write_group = SqliteDatabase.write_group

    def clocked(self: Json, group: Json) -> Json:
        outcomes = write_group(self, group)
        now = time.time()
        for write in group:
            if isinstance(write.command, Submit):
                change = write.command.submission.commit
            else:
                change = write.command.change if isinstance(write.command, ChangeTask) else None
            if change is not None and is_terminal(change.head.state):
                seen.ended[change.head.id] = now
        return outcomes

    SqliteDatabase.write_group = clocked


class Bed:
    """A running gateway, and what it leaves behind."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, data: Path) -> None:
        self.process, self.pid, self.data = process, process.pid, data
        self.url = f"http://127.0.0.1:{port}"
        self.token = _token(data)

    def target(self, path: str, session: str = "") -> Target:
        """Where calls, or bare messages, go to."""
        headers = [
            f"Authorization: Bearer {self.token}",
            "X-OpenClaw-Agent-Id: caller",
            f"X-OpenClaw-Session-Key: {session}",
        ]
        own = headers if session else []
        return Target(self.url + path, "1.0", own, accept="application/json")

    def stop(self) -> tuple[dict[str, float], dict[str, float], list[tuple[float, Json]]]:
        """End the gateway; when tasks ended, callees answered, and notes were handed over."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        ended, said, handed = pickle.loads((self.data / "seen").read_bytes())
        return ended, said, [(at, json.loads(text)) for at, text in handed]

    def calls(self) -> list[Json]:
        """The calls as they are kept, once the gateway has ended."""
        from msgspec.json import decode

        from openclaw_a2a.model.call import Call

        with sqlite3.connect(next(self.data.glob("*.db"))) as connection:
            rows = connection.execute("SELECT body FROM record WHERE kind = 'call'").fetchall()
        return [decode(row[0], type=Call) for row in rows]


def _token(data: Path) -> str:
    from openclaw_a2a.auth.tokens import TokenKind, TokenStore

    return TokenStore(data).create("host", TokenKind.HOST)


@contextmanager
def started(data: Path, options: Json) -> Iterator[Bed]:
    """A gateway with a folder of its own, until the block ends."""
    data.mkdir()
    port = free_port()
    command = [sys.executable, __file__, "serve", str(port), str(data), options.store]
    if options.profile:
        command.append(f"{options.profile}.{data.name}")
    with (data / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=data, stdout=log, stderr=log)
        try:
            wait_for_port(port, process, data / "log")
            yield Bed(process, port, data)
        finally:
            process.kill()
            process.wait()


@contextmanager
def cores_apart(pid: int) -> Iterator[None]:
    """The gateway on one core and the loader on another, where rates are compared."""
    if not LOADER_CORE:
        yield
        return
    before = os.sched_getaffinity(0)
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {int(SERVER_CORE)})
    os.sched_setaffinity(0, {int(LOADER_CORE)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def queued_s(pid: int) -> float:
    """Seconds in which a thread of the gateway wanted a core that somebody else had."""
    total = 0.0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        total += int((thread / "schedstat").read_text().split()[1]) / 1e9
    return total


# ------------------------------------------------------------------ calling


class Line:
    """A session's connection, made anew before the gateway closes it for being idle."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._connection: Connection | None = None
        self._used = 0.0

    async def ask(self, body: Json) -> tuple[int, bytes]:
        known, is_old = self._connection, time.time() - self._used > KEPT_S
        if known is None or known.is_closed or is_old:
            if known is not None:
                known.close()
            self._connection = await self._target.connect()
        self._used = time.time()
        assert self._connection is not None
        return await self._connection.request(json.dumps(body).encode())


class Callers:
    """Sessions that call in turn, each over a connection of its own."""

    def __init__(self, bed: Bed) -> None:
        self._free: asyncio.Queue[Line] = asyncio.Queue()
        self.accepted = 0
        self.refused: list[str] = []
        for number in range(CALLERS):
            session = f"agent:caller:{number}"
            self._free.put_nowait(Line(bed.target("/tools/agent_call", session)))

    async def call(self, make: Callable[[], Json]) -> None:
        """Make one call; it is over when the call is accepted, or answered with `wait`."""
        line = await self._free.get()
        try:
            status, answer = await line.ask({"agent": "callee", "skill": "work", **make()})
        finally:
            self._free.put_nowait(line)
        if status == 200 and json.loads(answer)["status"] in ("pending", "completed"):
            self.accepted += 1
        else:
            self.refused.append(answer.decode())

    async def many(self, makes: Iterable[Callable[[], Json]]) -> None:
        """Make calls, some being asked for at a time."""
        places = asyncio.Semaphore(CONNECTIONS)

        async def place(make: Callable[[], Json]) -> None:
            async with places:
                await self.call(make)

        await asyncio.gather(*map(place, makes))

    def told(self) -> Json:
        """How many calls were accepted, and what kept the others from it."""
        return {"accepted": self.accepted, "refused": len(self.refused), "why": self.refused[:1]}


# ------------------------------------------------------------------ completion to hand-over


def _answered(moment: float) -> Json:
    """A call that is answered at this moment."""
    return {"input": {"at": moment}}


async def call_now_and_then(callers: Callers, count: int) -> None:
    """One call under way at a time, mostly."""
    for _ in range(count):
        await callers.call(lambda: _answered(time.time() + 0.01))
        await asyncio.sleep(0.03)


async def keep_in_flight(callers: Callers, count: int, seconds: float) -> None:
    """So many calls that the callees are working on, at any moment."""
    end = time.time() + seconds

    async def go_on() -> None:
        while (now := time.time()) < end:
            answer_at = now + random.uniform(1.0, 5.0)
            await callers.call(partial(_answered, answer_at))
            await asyncio.sleep(max(0.0, answer_at - time.time()))

    await asyncio.gather(*(go_on() for _ in range(count)))


async def end_together(callers: Callers, count: int) -> None:
    """So many callees that answer in the same moment."""
    answer_at = time.time() + 3.0
    await callers.many([partial(_answered, answer_at)] * count)
    await asyncio.sleep(max(0.0, answer_at - time.time()))


HANDOVERS: dict[str, Callable[[Callers], Awaitable[None]]] = {
    "one_at_a_time": lambda callers: call_now_and_then(callers, 300),
    "200_in_flight": lambda callers: keep_in_flight(callers, 200, 10.0),
    "200_ending_at_once": lambda callers: end_together(callers, 200),
}


async def measure_handover(data: Path, options: Json) -> Json:
    """Milliseconds from the synced end of the callee's task, and from its answer, to the host."""
    figures: Json = {}
    for name, load in HANDOVERS.items():
        with started(data / f"handover-{name}", options) as bed:
            callers = Callers(bed)
            await call_now_and_then(callers, 50)
            warm, began, queued = callers.accepted, time.time(), queued_s(bed.pid)
            await load(callers)
            await asyncio.sleep(1.5)
            queued = (queued_s(bed.pid) - queued) / (time.time() - began)
            ended, said, handed = bed.stop()
        later = [(at, note) for at, note in handed if said[note["correlationId"]] >= began]
        from_end = [at - ended[note["taskId"]] for at, note in later if note["taskId"] in ended]
        from_answer = [at - said[note["correlationId"]] for at, note in later]
        figures[name] = {
            **callers.told(),
            "handed_over": len(handed),
            "warm_up": warm,
            "waited_for_a_core_percent": round(queued * 100, 1),
            "from_end": spread(from_end),
            "from_answer": spread(from_answer),
        }
    return figures


# ------------------------------------------------------------------ pending calls and deadlines


async def measure_pending(data: Path, options: Json) -> Json:
    """A thousand calls that nobody answers: what they cost, and when their timeouts come."""
    figures: Json = {}
    for name, seconds in {"spread_over_5_s": 5.0, "all_at_once": 0.0}.items():
        with started(data / f"pending-{name}", options) as bed:
            callers = Callers(bed)
            await call_now_and_then(callers, 50)
            await asyncio.sleep(1)
            before = resident_kb(bed.pid) or 0
            first = time.time() + 8.0 + IDLE_S
            moments = [first + seconds * number / PENDING for number in range(PENDING)]
            began = time.time()
            await callers.many([partial(_never, moment) for moment in moments])
            placed = time.time() - began
            await asyncio.sleep(2)
            held = (resident_kb(bed.pid) or 0) - before
            spent = cpu_s(bed.pid)
            await asyncio.sleep(IDLE_S)
            idle = (cpu_s(bed.pid) - spent) / IDLE_S
            assert time.time() < first, "the machine is too slow: deadlines came while idle"
            await asyncio.sleep(first - time.time())
            queued = queued_s(bed.pid)
            await asyncio.sleep(seconds + 0.5)
            queued = (queued_s(bed.pid) - queued) / (seconds + 0.5)
            await asyncio.sleep(4)
            _, _, handed = bed.stop()
            calls = bed.calls()
        figures[name] = {
            **callers.told(),
            "placed_in_s": round(placed, 2),
            "idle_cpu_percent": round(idle * 100, 2),
            "kb_per_pending_call": round(held / PENDING, 1),
            "waited_for_a_core_percent": round(queued * 100, 1),
            **_timeouts(calls, handed),
        }
    return figures


def _never(moment: float) -> Json:
    """A call that nobody answers, with its deadline at this moment."""
    return {"input": {"never": True}, "timeout": max(1, (moment - time.time()) * 1000)}


def _timeouts(calls: Sequence[Json], handed: Sequence[tuple[float, Json]]) -> Json:
    """How long after their deadlines calls were settled, and their callers told."""
    kept = {call.id: call for call in calls if call.status.value == "timeout"}
    told = [(at, kept[note["correlationId"]]) for at, note in handed if note["status"] == "timeout"]
    return {
        "timed_out": len(kept),
        "delivered": sum(call.delivered_at is not None for call in kept.values()),
        "told_twice": len(told) - len({call.id for _, call in told}),
        "settled_after_deadline": spread(
            [(call.settled_at - call.deadline).total_seconds() for call in kept.values()]
        ),
        "told_after_deadline": spread([at - call.deadline.timestamp() for at, call in told]),
    }


# ------------------------------------------------------------------ calls beside bare sends


async def measure_rate(data: Path, options: Json) -> Json:
    """Server CPU and rate of calls, and of bare messages to the same agent, in turn."""
    rows: dict[str, list[Json]] = {}
    with started(data / "rate", options) as bed, cores_apart(bed.pid):
        callers = Callers(bed)
        for turn in range(options.rounds + 1):
            for name, load in {
                "send": lambda end: send_until(bed.url, end),
                "call": lambda end: call_until(callers, end),
                "call_and_wait": lambda end: call_until(callers, end, wait=True),
            }.items():
                began, spent = time.time(), cpu_s(bed.pid)
                count = await load(began + 2.0)
                seconds = time.time() - began
                await asyncio.sleep(1)  # what is to be brought is brought
                cost = (cpu_s(bed.pid) - spent) / count
                row = {"per_s": count / seconds, "cpu_us": cost * 1e6}
                if turn:  # the first one warms up
                    rows.setdefault(name, []).append(row)
        _, _, handed = bed.stop()
    figures = {name: _medians(turns) for name, turns in rows.items()}
    for name, row in figures.items():
        pairs = zip(rows[name], rows["send"], strict=True)
        ratios = [one["cpu_us"] / send["cpu_us"] for one, send in pairs]
        row["cpu_to_send"] = round(percentile(ratios, 0.5) or 0, 2)
        row["all_ratios"] = [round(one, 2) for one in ratios]
    return {**callers.told(), "handed_over": len(handed), **figures}


async def send_until(url: str, end: float) -> int:
    """Send messages to the default agent on all connections; how many."""
    target = Target(url + RPC, "1.0", [], accept="application/json")

    async def work() -> int:
        connection, count = await target.connect(), 0
        while time.time() < end:
            status, body = await connection.request(target.dialect.send("hello"))
            assert status == 200 and b'"error"' not in body[:80], body
            count += 1
        connection.close()
        return count

    return sum(await asyncio.gather(*(work() for _ in range(CONNECTIONS))))


async def call_until(callers: Callers, end: float, *, wait: bool = False) -> int:
    before = callers.accepted

    async def work() -> None:
        while time.time() < end:
            await callers.call(lambda: {"input": {}, "wait": wait})

    await asyncio.gather(*(work() for _ in range(CONNECTIONS)))
    return callers.accepted - before


# ------------------------------------------------------------------ all of it


def spread(seconds: Sequence[float]) -> Json:
    """Milliseconds: the middle, the last percent, and the ends."""
    return {
        "count": len(seconds),
        "least": ms(min(seconds, default=None)),
        "p50": ms(percentile(seconds, 0.5)),
        "p99": ms(percentile(seconds, 0.99)),
        "most": ms(max(seconds, default=None)),
    }


def _medians(rows: Sequence[Json]) -> Json:
    return {name: round(percentile([row[name] for row in rows], 0.5) or 0, 1) for name in rows[0]}


FIGURES = {"handover": measure_handover, "pending": measure_pending, "rate": measure_rate}


def measure_calls(data: Path, options: Json = None) -> Json:
    """The chosen figures, one after the other, each within its time."""
    options = options or parse_options([])

    async def measure() -> Json:
        figures: Json = {}
        for name in options.figures or FIGURES:
            async with asyncio.timeout(MOST_S):
                figures[name] = await FIGURES[name](data, options)
        return figures

    return asyncio.run(measure())


def parse_options(words: Sequence[str]) -> Json:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("figures", nargs="*", metavar="FIGURE", help=", ".join(FIGURES))
    options.add_argument("--rounds", type=int, default=3, help="of the rate")
    options.add_argument("--store", default="sqlite", help="memory shows what durability costs")
    options.add_argument("--profile", type=Path, help="write profiles of the gateway here")
    chosen = options.parse_args(words)
    if unknown := [name for name in chosen.figures if name not in FIGURES]:
        options.error(f"no such figure: {', '.join(unknown)}; there are {', '.join(FIGURES)}")
    return chosen


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        profile = Path(sys.argv[5]) if sys.argv[5:] else None
        serve(int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], profile)
        return
    options = parse_options(sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="a2a-bench-") as folder:
        print(json.dumps(measure_calls(Path(folder), options), indent=1))


if __name__ == "__main__":
    main()
