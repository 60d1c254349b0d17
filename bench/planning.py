#!/usr/bin/env python3
"""What objectives cost: loading them, changing and reading them, and going from step to step.

  ./dev bench planning                                all of it, about three minutes
  .venv/bin/python bench/planning.py load steps       only these figures
  .venv/bin/python bench/planning.py --profile /tmp/p update

All requests go over loopback to the JSON-RPC endpoint of a gateway process on a durable store.
Clocks are at the edges: where the store's thread has synced a step's end, and where an agent is
run.
"""

import argparse
import asyncio
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from calls import RPC, Seen, clock_commits, cores_apart, queued_s, send_until, spread
from measure import cpu_s, percentile, resident_kb
from served import serve_measured
from servers import LOADER_CORE, SERVER_CORE, free_port, wait_for_port
from wire import Connection, Target

Json = Any

URI = "https://github.com/zeroasterisk/a2a-opt/v1"
CONNECTIONS = 8
FEW, MANY = 10, 10_000
LOADED, TASKS = 1_000, 50
CHAINS = 20
STORES = ("sqlite", "json-file")
MOST_S = 600.0
"""No figure may take longer."""


# ------------------------------------------------------------------ the gateway, with its clocks


class Worker:
    """An agent that does a step at once, and notes when it was run."""

    def __init__(self, ran: list[tuple[float, str, str]]) -> None:
        from openclaw_a2a.ports import Recovery

        self.recovery = Recovery.REPEAT
        self._ran = ran

    async def run(self, turn: Json) -> AsyncIterator[Json]:
        from openclaw_a2a.model.agent_event import Reply

        self._ran.append((time.time(), turn.context_id, turn.task_id))
        yield Reply.of_text("done")

    async def close(self) -> None:
        """Nothing is held."""


def serve(port: int, data: Path, store: str, profile: Path | None) -> None:
    """Serve until a signal comes, then write down what was seen when."""
    seen, ran = Seen(), list[tuple[float, str, str]]()
    clock_commits(seen)
    settings = {
        "store.kind": store,
        "opt.enabled": True,
        "opt.maxObjectives": 1_000_000,
        "opt.maxObjectivesPerPeer": 1_000_000,
        "channels.a2a.accounts.default": {"agentStyle": "task-generating"},
    }
    serve_measured(data, port, agents={"main": Worker(ran)}, settings=settings, profile=profile)
    (data / "seen").write_bytes(pickle.dumps((seen.ended, ran)))


class Bed:
    """A running gateway."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, data: Path) -> None:
        self.process, self.pid, self.data = process, process.pid, data
        self.url = f"http://127.0.0.1:{port}"
        url = self.url + RPC
        self._target = Target(url, "1.0", [f"A2A-Extensions: {URI}"], accept="application/json")
        self._connections: list[Connection] = []

    async def open(self) -> None:
        """Connect."""
        self._connections = [await self._target.connect() for _ in range(CONNECTIONS)]

    async def ask(self, place: int, method: str, **params: Json) -> Json:
        """The result of a request over one of the connections."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        if self._connections[place].is_closed:  # it was idle for long
            self._connections[place] = await self._target.connect()
        status, answer = await self._connections[place].request(json.dumps(body).encode())
        assert status == 200 and b'"error"' not in answer[:60], answer[:500]
        return json.loads(answer)["result"]

    async def each(self, count: int, do: Callable[[int, int], Awaitable[None]]) -> None:
        """Do something so many times, on all connections at once."""

        async def work(place: int) -> None:
            for number in range(place, count, CONNECTIONS):
                await do(place, number)

        await asyncio.gather(*map(work, range(CONNECTIONS)))

    async def make(self, count: int, tasks: list[Json]) -> list[Json]:
        """So many objectives of one plan each; the plans."""
        plans: list[Json] = [None] * count

        async def make(place: int, number: int) -> None:
            made = await self.ask(place, "objectives/create", name=f"objective {number}")
            plan = {"objectiveId": made["objective"]["id"], "name": "plan", "tasks": tasks}
            plans[number] = (await self.ask(place, "plans/create", **plan))["plan"]

        await self.each(count, make)
        return plans

    def stop(self) -> tuple[dict[str, float], list[tuple[float, str, str]]]:
        """End the gateway; when tasks ended, and when agents were run for which objective."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        return pickle.loads((self.data / "seen").read_bytes())


@contextmanager
def started(data: Path, options: Json, store: str = "sqlite") -> Iterator[Bed]:
    """A gateway with a folder of its own, until the block ends."""
    data.mkdir()
    port = free_port()
    command = [sys.executable, __file__, "serve", str(port), str(data), store]
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


# ------------------------------------------------------------------ loading


async def measure_load(data: Path, options: Json) -> Json:
    """Seconds until a fresh process has read 1,000 objectives of 50 tasks, half of them done."""
    figures: Json = {}
    for store in STORES:
        with started(data / f"load-{store}", options, store) as bed:
            await bed.open()
            plans = await bed.make(LOADED, steps(TASKS))
            await bed.each(LOADED, partial(finish, bed, plans))
            bed.stop()
        command = [sys.executable, __file__, "read", str(bed.data), store]
        if options.profile:
            command.append(f"{options.profile}.read-{store}")
        if LOADER_CORE:
            command = ["taskset", "-c", SERVER_CORE, *command]
        rows = [json.loads(subprocess.check_output(command)) for _ in range(options.rounds)]
        figures[store] = {**rows[0], **medians(rows, "wall_s", "cpu_s", "waited_s")}
    return figures


def steps(count: int, *, is_chain: bool = False) -> list[Json]:
    """The tasks of a plan; those of a chain wait for each other."""
    return [
        {
            "name": f"step {number}",
            "description": "Do what has to be done here, and say what came of it.",
            **({"dependencies": [f"task-{number - 1}"]} if is_chain and number else {}),
        }
        for number in range(count)
    ]


async def finish(bed: Bed, plans: list[Json], place: int, number: int) -> None:
    """Half of the tasks are done."""
    plan = plans[number]
    done = [{"id": one["id"], "status": "completed"} for one in plan["tasks"][: TASKS // 2]]
    await bed.ask(place, "plans/update", id=plan["id"], tasks=done)


def load(data: Path, kind: str, profile: Path | None) -> None:
    """Read the objectives that are there, and print how long that took."""
    from openclaw_a2a.engine.supervisor import Supervisor
    from openclaw_a2a.planning.model import PlanLimits
    from openclaw_a2a.planning.repository import ObjectiveRepository
    from openclaw_a2a.store import create_store

    async def read() -> Json:
        path = next(data.glob("*.db")) if kind == "sqlite" else data / "store"
        store = create_store(kind, path=str(path), logs_directory=str(data / "objectives"))
        await store.open()
        repository = ObjectiveRepository(
            store.logs,
            store.records,
            Supervisor("bench"),
            now=_no_clock,
            new_id=str,
            limits=PlanLimits(),
        )
        began, spent, waited = time.perf_counter(), time.process_time(), queued_s(os.getpid())
        await repository.load()
        figures = {
            "wall_s": time.perf_counter() - began,
            "cpu_s": time.process_time() - spent,
            "waited_s": queued_s(os.getpid()) - waited,
        }
        states = list(repository.list_open())
        await store.close()
        return {
            "objectives": len(states),
            "tasks": sum(len(one.tasks) for one in states),
            "lines": sum(one.seq for one in states),
            **figures,
        }

    if profile is None:
        print(json.dumps(asyncio.run(read())))
        return
    import cProfile

    with cProfile.Profile() as profiler:
        print(json.dumps(asyncio.run(read())))
    profiler.dump_stats(profile)


def _no_clock() -> Json:
    raise AssertionError("nothing is changed here")


# ------------------------------------------------------------------ changing and reading


async def measure_update(data: Path, options: Json) -> Json:
    """Server CPU of requests with 10 and with 10,000 objectives, two gateways in turn."""
    rows: dict[str, dict[int, list[Json]]] = {}
    with ExitStack() as stack:
        beds: dict[int, tuple[Bed, list[Json]]] = {}
        for count in (FEW, MANY):
            bed = stack.enter_context(started(data / f"update-{count}", options))
            await bed.open()
            before = resident_kb(bed.pid) or 0
            beds[count] = bed, await bed.make(count, steps(5))
            grown = ((resident_kb(bed.pid) or 0) - before) / count
        for turn in range(options.rounds + 1):
            for name, request in REQUESTS.items():
                for count, (bed, plans) in beds.items():
                    row = await spend(bed, plans, request)
                    if turn:  # the first one warms up
                        rows.setdefault(name, {}).setdefault(count, []).append(row)
        if options.profile:
            for bed, _ in beds.values():
                bed.stop()
    figures: Json = {"kb_per_objective": round(grown, 2)}
    for name, counted in rows.items():
        cost = {count: medians(turns, "cpu_us", "p50_ms") for count, turns in counted.items()}
        ratio = cost[MANY]["cpu_us"] / cost[FEW]["cpu_us"]
        figures[name] = {str(count): one for count, one in cost.items()}
        figures[name]["ratio"] = round(ratio, 2)
    return figures


REQUESTS: dict[str, Callable[[Json, int], tuple[str, Json]]] = {
    "update": lambda plan, number: (
        "objectives/update",
        {"id": plan["objectiveId"], "description": f"said {number} times"},
    ),
    "get": lambda plan, _: ("objectives/get", {"id": plan["objectiveId"]}),
    "list": lambda _, __: ("objectives/list", {"pageSize": 10}),
    "list_by_status": lambda _, __: ("objectives/list", {"status": "planning", "pageSize": 10}),
    "plan_get": lambda plan, _: ("plans/get", {"id": plan["id"]}),
}


async def spend(bed: Bed, plans: list[Json], request: Callable[[Json, int], Json]) -> Json:
    """What requests cost the server; no two of them are about the same objective at once."""
    end, counts, times = time.time() + 2.0, [0] * CONNECTIONS, list[float]()

    async def work(place: int) -> None:
        own = plans[place::CONNECTIONS]
        while time.time() < end:
            counts[place] += 1
            method, params = request(own[counts[place] * 7919 % len(own)], counts[place])
            began = time.perf_counter()
            await bed.ask(place, method, **params)
            times.append(time.perf_counter() - began)

    with cores_apart(bed.pid):
        spent = cpu_s(bed.pid)
        await asyncio.gather(*map(work, range(CONNECTIONS)))
        cost = (cpu_s(bed.pid) - spent) / sum(counts)
    return {"cpu_us": cost * 1e6, "p50_ms": (percentile(times, 0.5) or 0) * 1000}


# ------------------------------------------------------------------ from step to step


async def measure_steps(data: Path, options: Json) -> Json:
    """Milliseconds from a step's end to the next one's beginning, in chains of 50 steps."""
    figures: Json = {}
    for name, count in {"one_at_a_time": 1, "20_at_once": 20}.items():
        with started(data / f"steps-{name}", options) as bed:
            await bed.open()
            await run_chains(bed, 1)
            queued, spent, began = queued_s(bed.pid), cpu_s(bed.pid), time.time()
            for _ in range(options.rounds):
                await run_chains(bed, count)
            queued = (queued_s(bed.pid) - queued) / (time.time() - began)
            spent = cpu_s(bed.pid) - spent
            ended, ran = bed.stop()
        later = [one for one in ran if one[0] >= began]
        figures[name] = {
            "steps": len(later),
            "cpu_us_per_step": round(spent / len(later) * 1e6),
            "waited_for_a_core_percent": round(queued * 100, 1),
            "from_end_to_run": spread(_pauses(later, ended)),
            "from_answer_to_run": spread(_pauses(later, {one[2]: one[0] for one in later})),
        }
    return figures


async def run_chains(bed: Bed, count: int) -> None:
    """Carry out so many objectives at once."""
    plans = await bed.make(count, steps(TASKS, is_chain=True))
    for plan in plans:
        await bed.ask(0, "objectives/run", id=plan["objectiveId"])
    await wait_completed(bed, plans)


async def wait_completed(bed: Bed, plans: list[Json]) -> None:
    """Wait until objectives are carried out."""
    for plan in plans:
        while True:
            one = await bed.ask(0, "objectives/get", id=plan["objectiveId"], includePlans=False)
            if one["objective"]["status"] == "completed":
                break
            await asyncio.sleep(0.1)


async def measure_cost(data: Path, options: Json) -> Json:
    """Server CPU of a step of a plan beside that of a bare message to the same agent, in turn."""
    rows: dict[str, list[float]] = {"send": [], "step": []}
    with started(data / "cost", options) as bed, cores_apart(bed.pid):
        await bed.open()
        for turn in range(options.rounds + 1):
            spent = cpu_s(bed.pid)
            count = await send_until(bed.url, time.time() + 2.0)
            await asyncio.sleep(0.5)
            sent = (cpu_s(bed.pid) - spent) / count
            plans = await bed.make(CHAINS, steps(TASKS, is_chain=True))
            await asyncio.sleep(0.5)
            spent = cpu_s(bed.pid)
            for plan in plans:
                await bed.ask(0, "objectives/run", id=plan["objectiveId"])
            await wait_completed(bed, plans)
            stepped = (cpu_s(bed.pid) - spent) / (CHAINS * TASKS)
            if turn:  # the first one warms up
                rows["send"].append(sent * 1e6)
                rows["step"].append(stepped * 1e6)
    ratios = [step / send for step, send in zip(rows["step"], rows["send"], strict=True)]
    return {
        **{f"{name}_cpu_us": round(percentile(values, 0.5) or 0) for name, values in rows.items()},
        "step_to_send": round(percentile(ratios, 0.5) or 0, 2),
        "all_ratios": [round(one, 2) for one in ratios],
    }


def _pauses(ran: Sequence[Json], ended: dict[str, float]) -> list[float]:
    """How long after the end of its objective's last step each was run."""
    last: dict[str, str] = {}
    pauses: list[float] = []
    for moment, objective_id, task_id in ran:
        if objective_id in last:
            pauses.append(moment - ended[last[objective_id]])
        last[objective_id] = task_id
    return pauses


# ------------------------------------------------------------------ all of it


def medians(rows: Sequence[Json], *names: str) -> Json:
    """The middle of each figure."""
    return {name: round(percentile([row[name] for row in rows], 0.5) or 0, 3) for name in names}


FIGURES = {
    "load": measure_load,
    "update": measure_update,
    "steps": measure_steps,
    "cost": measure_cost,
}


def measure_planning(data: Path, options: Json = None) -> Json:
    """The chosen figures, one after the other, each within its time."""
    options = options or parse_options([])

    async def measure() -> Json:
        figures: Json = {"load_average": os.getloadavg()[0]}
        for name in options.figures or FIGURES:
            async with asyncio.timeout(MOST_S):
                figures[name] = await FIGURES[name](data, options)
        return figures

    return asyncio.run(measure())


def parse_options(words: Sequence[str]) -> Json:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("figures", nargs="*", metavar="FIGURE", help=", ".join(FIGURES))
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--profile", type=Path, help="write profiles of the gateways here")
    chosen = options.parse_args(words)
    if unknown := [name for name in chosen.figures if name not in FIGURES]:
        options.error(f"no such figure: {', '.join(unknown)}; there are {', '.join(FIGURES)}")
    return chosen


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        profile = Path(sys.argv[5]) if sys.argv[5:] else None
        serve(int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], profile)
    elif sys.argv[1:2] == ["read"]:
        load(Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]) if sys.argv[4:] else None)
    else:
        options = parse_options(sys.argv[1:])
        with tempfile.TemporaryDirectory(prefix="a2a-bench-") as folder:
            print(json.dumps(measure_planning(Path(folder), options), indent=1))


if __name__ == "__main__":
    main()
