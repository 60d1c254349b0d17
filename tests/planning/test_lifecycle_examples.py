"""Four objectives from creation to completion, with scripted agents."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.conformance.asgi_client import Request
from tests.conformance.protocol_clients import FrameReader
from tests.planning.gateway_harness import PlanningHarness, asks, first_line

from openclaw_a2a.planning.steps import EXTENSION_URI

Json = Any

# The contract's own request: neither a message id nor the kind of its part.
GARDEN_PARTY = b"""
{"jsonrpc":"2.0","method":"message/send","id":"1","params":{"message":{"role":"user",
  "parts":[{"text":"Organise a garden party for twenty guests"}],
  "metadata":{"opt/v1/objective":{"id":"obj-123","name":"Garden party","status":"submitted"}}}}}"""


class Watcher:
    """Follows an objective and remembers every result."""

    def __init__(self, frames: FrameReader) -> None:
        self._frames = frames
        self.numbers: list[int] = []
        self.results: list[Json] = []

    async def next(self) -> Json:
        frame = await self._frames.next()
        assert frame is not None
        self.numbers.append(int(frame.id or "-1"))
        self.results.append(frame.json["result"])
        return self.results[-1]

    async def ended(self) -> bool:
        """True when the stream ends here."""
        return await self._frames.next() is None

    async def until(self, op: str) -> None:
        """Read on to an operation."""
        while (await self.next()).get("change", {}).get("op") != op:
            pass

    def statuses_of(self, item_id: str) -> list[str]:
        """The statuses that something took, one after the other."""
        changes = [one["change"]["data"] for one in self.results if "change" in one]
        return [one["status"] for one in changes if one.get("id") == item_id and "status" in one]


@asynccontextmanager
async def watching(
    harness: PlanningHarness, objective_id: str, after: int | None = None
) -> AsyncGenerator[Watcher]:
    """A reader of an objective's changes."""
    params = {"id": objective_id}
    body = {"jsonrpc": "2.0", "id": 1, "method": "objectives/subscribe", "params": params}
    headers = {"content-type": "application/json"}
    if after is not None:
        headers["last-event-id"] = str(after)
    asked = Request("POST", "/a2a/jsonrpc", headers, (json.dumps(body).encode(),))
    async with harness.client.open(asked) as exchange:
        await exchange.wait_started()
        yield Watcher(FrameReader(exchange, lambda _: None))


def statuses(objective: Json) -> dict[str, str]:
    """Every plan and task by its name, with its status."""
    found = {plan["name"]: plan["status"] for plan in objective["plans"]}
    for plan in objective["plans"]:
        found |= {task["name"]: task["status"] for task in plan["tasks"]}
    return found


def step(objective: Json, name: str) -> Json:
    """A plan task by its name."""
    tasks = [task for plan in objective["plans"] for task in plan["tasks"]]
    return next(task for task in tasks if task["name"] == name)


async def a2a_states(harness: PlanningHarness, objective: Json) -> dict[str, str]:
    """The state of each step's own A2A task, as a client sees it who knows nothing of plans."""
    found: dict[str, str] = {}
    for plan in objective["plans"]:
        for task in plan["tasks"]:
            shown = await harness.call("GetTask", id=task["a2aTaskId"])
            assert shown["contextId"] == objective["id"]
            assert shown["metadata"]["opt/v1/objectiveId"] == objective["id"]
            assert shown["metadata"]["opt/v1/planId"] == plan["id"]
            assert shown["metadata"]["opt/v1/taskIndex"] == task["taskIndex"]
            assert shown["metadata"].get("opt/v1/dependencies", []) == task["dependencies"]
            found[task["name"]] = shown["status"]["state"].removeprefix("TASK_STATE_").lower()
    return found


@pytest.mark.requirement(
    "opt.message.bare",
    "opt.message.own-id",
    "opt.key.both",
    "opt.storage.session",
    "opt.follow.cursor",
)
async def test_garden_party_starts_with_a_minimal_message(
    harness: PlanningHarness,
) -> None:
    answer = await harness.client.post("/a2a/jsonrpc", GARDEN_PARTY)
    assert answer.headers["a2a-extensions"] == EXTENSION_URI
    task = answer.json["result"]
    assert (answer.json["id"], task["kind"], task["contextId"]) == ("1", "task", "obj-123")
    assert task["status"]["state"] == "completed"
    assert task["metadata"]["opt/v1/objectiveId"] == "obj-123"
    party = await harness.get("obj-123")
    assert (party["name"], party["status"], party["plans"]) == ("Garden party", "submitted", [])
    asked = harness.workers["main"].turns
    assert asked[0].session_key == "agent:main:a2a:obj:obj-123"

    venue = await harness.plan(
        "obj-123",
        [{"name": "list venues"}, {"name": "book one", "dependencies": ["task-0"]}],
        name="Venue",
    )
    food = await harness.plan(
        "obj-123",
        [{"name": "ask guests", "metadata": {"agent": "helper"}}, {"name": "order food"}],
        name="Food",
        dependencies=[venue["id"]],
    )
    assert (venue["status"], food["status"]) == ("pending", "blocked")
    assert (await harness.get("obj-123"))["status"] == "planning"
    async with watching(harness, "obj-123") as watcher:
        assert (await watcher.next())["objective"]["id"] == "obj-123"
        await harness.call("objectives/run", id="obj-123")
        await watcher.until("archive")
    assert watcher.statuses_of("obj-123") == ["working", "completed"]
    assert watcher.statuses_of(venue["id"]) == ["working", "completed"]
    assert watcher.statuses_of(food["id"]) == ["pending", "working", "completed"]
    assert watcher.numbers == sorted(set(watcher.numbers))
    assert watcher.results[-1]["status"] == "completed"
    assert watcher.results[-1]["progress"]["percent"] == 100

    party = await harness.ends("obj-123")
    assert set((await a2a_states(harness, party)).values()) == {"completed"}
    assert party["progress"] == {"done": 4, "total": 4, "percent": 100, "current": []}
    assert harness.workers["helper"].asked == ["ask guests"]
    main = harness.workers["main"].asked
    assert main[:3] == ["Organise a garden party for twenty guests", "list venues", "book one"]

    async with watching(harness, "obj-123", after=watcher.numbers[3]) as again:
        while again.numbers[-1:] != watcher.numbers[-1:]:
            await again.next()
    assert again.numbers == watcher.numbers[4:]
    assert [one["change"] for one in again.results] == [
        one["change"] for one in watcher.results[4:]
    ]


@pytest.mark.requirement("opt.storage.inputs", "opt.run.agent")
async def test_blog_post_hands_each_step_what_the_steps_before_found(
    harness: PlanningHarness,
) -> None:
    texts = {
        "research": "bees dance",
        "facts": "eight words",
        "write": "Bees dance in eight words.",
        "review": "fine as it is",
    }

    async def work(turn: Any) -> str:
        return texts[first_line(turn)]

    for worker in harness.workers.values():
        worker.work = work
    post = await harness.objective("Blog post", description="For people who like bees")
    await harness.plan(
        post,
        [
            {"name": "research", "description": "Read three papers"},
            {"name": "facts"},
            {
                "name": "write",
                "dependencies": ["task-0", "task-1"],
                "metadata": {"agent": "helper"},
            },
            {"name": "review", "dependencies": ["task-2"], "metadata": {"agent": "person"}},
        ],
        name="Article",
    )
    await harness.call("objectives/run", id=post)
    ended = await harness.ends(post)
    assert set(statuses(ended).values()) == {"completed"}
    assert set((await a2a_states(harness, ended)).values()) == {"completed"}
    research, write = harness.workers["main"].turns[0].body, harness.workers["helper"].turns[0]
    assert "Read three papers" in research
    assert "Blog post\nFor people who like bees" in research
    assert "research:\nbees dance" in write.body
    assert "facts:\neight words" in write.body
    [review] = harness.workers["person"].turns
    assert "Bees dance in eight words." in review.body
    assert "bees dance\n" not in review.body
    shown = await harness.call("GetTask", id=step(ended, "write")["a2aTaskId"])
    assert shown["artifacts"][0]["parts"][0]["text"] == texts["write"]


@pytest.mark.requirement("opt.run.retry", "opt.rollup.retry")
async def test_migration_tries_a_step_again_and_needs_no_rollback(
    harness: PlanningHarness,
) -> None:
    tries = 0

    async def work(turn: Any) -> str:
        nonlocal tries
        tries += first_line(turn) == "copy rows"
        if first_line(turn) == "copy rows" and tries == 1:
            raise RuntimeError("the connection broke")
        return f"did {first_line(turn)}"

    harness.workers["main"].work = work
    migration = await harness.objective("Move the database")
    move = await harness.plan(
        migration,
        [
            {"name": "back up"},
            {"name": "copy rows", "dependencies": ["task-0"], "metadata": {"retries": 2}},
            {"name": "compare", "dependencies": ["task-1"]},
        ],
        name="Move",
    )
    rollback = await harness.plan(
        migration, [{"name": "restore"}], name="Rollback", dependencies=[move["id"]]
    )
    skipped = await harness.call("plans/update", id=rollback["id"], status="skipped")
    assert skipped["plan"]["status"] == "skipped"
    async with watching(harness, migration) as watcher:
        await watcher.next()
        await harness.call("objectives/run", id=migration)
        await watcher.until("archive")
    ended = await harness.ends(migration)
    assert statuses(ended) == {
        "Move": "completed",
        "Rollback": "skipped",
        "back up": "completed",
        "copy rows": "completed",
        "compare": "completed",
        "restore": "pending",
    }
    assert ended["progress"]["total"] == ended["progress"]["done"] == 3
    copy = step(ended, "copy rows")["id"]
    taken = watcher.statuses_of(copy)
    outcomes = [one for one in taken if one != "working"]
    assert outcomes == ["failed", "pending", "completed"]
    assert watcher.statuses_of(move["id"]) == ["working", "completed"], "a retry fails no plan"
    assert harness.workers["main"].asked == ["back up", "copy rows", "copy rows", "compare"]
    links = [
        one["change"] for one in watcher.results if one.get("change", {}).get("op") == "task.link"
    ]
    first, second = [one["data"]["a2aTaskId"] for one in links if one["data"]["id"] == copy]
    assert second == step(ended, "copy rows")["a2aTaskId"]
    for task_id, state in ((first, "FAILED"), (second, "COMPLETED")):
        shown = await harness.call("GetTask", id=task_id)
        assert shown["status"]["state"] == f"TASK_STATE_{state}"


@pytest.mark.requirement(
    "opt.run.question", "opt.message.answer", "opt.rollup.plan-waits", "opt.rollup.plan-free"
)
async def test_conference_trip_waits_for_a_person_before_the_hotel_is_booked(
    harness: PlanningHarness,
) -> None:
    async def approve(turn: Any) -> Any:
        is_asked = turn.body.startswith("approve flight")
        return asks("Take the flight at nine?") if is_asked else f"approved: {turn.body}"

    harness.workers["person"].work = approve
    trip = await harness.objective("Conference trip")
    flight = await harness.plan(
        trip,
        [
            {"name": "search flights"},
            {"name": "approve flight", "dependencies": ["task-0"], "metadata": {"agent": "person"}},
        ],
        name="Flight",
    )
    hotel = await harness.plan(
        trip, [{"name": "book hotel"}], name="Hotel", dependencies=[flight["id"]]
    )
    talk = await harness.plan(trip, [{"name": "write talk"}], name="Talk")
    await harness.call("objectives/run", id=trip)
    waiting = await harness.ends(trip, "blocked")
    assert statuses(waiting) == {
        "Flight": "blocked",
        "Hotel": "blocked",
        "Talk": "completed",
        "search flights": "completed",
        "approve flight": "input-required",
        "book hotel": "pending",
        "write talk": "completed",
    }
    waits = waiting["progress"]["oldestWaiting"]
    assert (waits["name"], waits["planId"]) == ("approve flight", flight["id"])
    assert waiting["progress"]["percent"] == 50
    refused = await harness.fail("plans/update", id=hotel["id"], status="working")
    assert refused["code"] == -32051

    await harness.reopen()
    answer = {
        "role": "user",
        "parts": [{"text": "yes, at nine"}],
        "contextId": trip,
        "metadata": {"opt/v1/taskId": waits["taskId"]},
    }
    async with watching(harness, trip) as watcher:
        await watcher.next()
        sent = await harness.call("message/send", message=answer)
        await watcher.until("archive")
    assert sent["id"] == waits["a2aTaskId"]
    assert watcher.statuses_of(flight["id"]) == ["working", "completed"]
    assert watcher.statuses_of(hotel["id"]) == ["pending", "working", "completed"]
    assert watcher.statuses_of(talk["id"]) == []
    ended = await harness.ends(trip)
    assert set((await a2a_states(harness, ended)).values()) == {"completed"}
    assert harness.workers["main"].asked.count("search flights") == 1
    assert harness.workers["main"].asked[-1] == "book hotel"
    assert [turn.body for turn in harness.workers["person"].turns][1:] == ["yes, at nine"]


async def test_four_objectives_at_once_do_not_mix(harness: PlanningHarness) -> None:
    names = ["party", "post", "migration", "trip"]
    ids = [await harness.objective(name) for name in names]
    for name, objective_id in zip(names, ids, strict=True):
        tasks = [{"name": f"{name} one"}, {"name": f"{name} two", "dependencies": ["task-0"]}]
        await harness.plan(objective_id, tasks)
    await asyncio.gather(*[harness.call("objectives/run", id=one) for one in ids])
    for one in ids:
        await harness.ends(one)
    asked = harness.workers["main"].asked
    assert sorted(asked) == sorted(f"{name} {one}" for name in names for one in ("one", "two"))
    for turn in harness.workers["main"].turns:
        own, _, _ = first_line(turn).partition(" ")
        assert all(name in turn.body or name != own for name in names)
        assert not any(f"did {other}" in turn.body for other in names if other != own)
