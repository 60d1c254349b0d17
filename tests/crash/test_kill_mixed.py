"""All kinds of calls under way, and the gateway killed, also while it recovers from a kill."""

import asyncio
import os
import random
from collections import defaultdict
from collections.abc import Sequence
from contextlib import aclosing

import msgspec
import pytest
from tests.crash.gateway_process import (
    DEADLINE_S,
    PAUSED,
    TERMINAL,
    GatewayProcess,
    Json,
    NoStream,
    state_of,
)

from openclaw_a2a.engine.engine import EngineLimits
from openclaw_a2a.engine.recovery import TOO_MANY_ATTEMPTS
from openclaw_a2a.model.records import decode_event, decode_task
from openclaw_a2a.model.task import Task, TaskState, TaskStatus, apply_event

TERMINAL_TASK = -32004
NOT_CANCELABLE = -32002

PLANS = [
    ("default", ("20", "20")),
    ("default", ("ask", ">yes", "slow")),
    ("default", ("=slow", "=5")),
    ("default", ("+30", ">more")),
    ("default", ("+30", "+slow", "10")),
    ("default", ("+hang", "!")),
    ("default", ("ask", "!")),
    ("default", ("fail", "=fail")),
    ("fragile", ("20", "=slow")),
    ("fragile", ("ask", ">yes")),
    ("fragile", ("+30", ">more")),
    ("hybrid", ("hello", "=hello", "slow")),
    ("hybrid", ("note", "ask", ">yes")),
]
"""Steps of a client: `=` waits for the whole answer, `+` does not wait for the end, `>` goes to
the task of the step before, `!` cancels it; everything else is sent and followed."""


class Client:
    """Goes through its plan; when the gateway dies it begins again, with the same message ids.

    It checks that what it is told never contradicts what it was told before.
    """

    def __init__(
        self, gateway: GatewayProcess, name: str, account: str, plan: Sequence[str]
    ) -> None:
        self._gateway = gateway
        self.name = name
        self.account = account
        self.plan = plan
        self.seen: dict[str, dict[int, Json]] = defaultdict(dict)
        self._may_give_up = False
        self._task_of: dict[str, str] = {}
        self._answer_of: dict[str, Json] = {}

    async def play(self) -> bool:
        """All steps; False when the gateway died meanwhile."""
        task_id: str | None = None
        try:
            for number, step in enumerate(self.plan):
                if step == "!":
                    await self._cancel(task_id or "")
                else:
                    task_id = await self._step(step, f"{self.name}-{number}", task_id)
        except OSError:
            return False
        return True

    async def _step(self, step: str, message_id: str, task_id: str | None) -> str | None:
        message: Json = {
            "messageId": message_id,
            "role": "ROLE_USER",
            "parts": [{"text": step.lstrip("=+>")}],
        }
        if step.startswith(">"):
            message["taskId"] = task_id
        else:
            message["contextId"] = f"context of {self.name}"
        if step.startswith("="):
            return await self._send(message)
        try:
            return await self._stream(message, is_patient=not step.startswith("+"))
        except NoStream as refusal:
            # The task failed in the crash before it could get this message.
            assert refusal.code == TERMINAL_TASK, refusal
            return task_id

    async def _send(self, message: Json) -> str | None:
        answer = await self._gateway.call(self.account, "SendMessage", {"message": message})
        return self._note(message["messageId"], answer["result"])

    async def _stream(self, message: Json, *, is_patient: bool) -> str | None:
        stream = self._gateway.stream(self.account, "SendStreamingMessage", {"message": message})
        task_id: str | None = None
        try:
            async for number, event in stream:
                if task_id is None:
                    task_id = self._note(message["messageId"], event)
                if task_id is None or (not is_patient and "artifactUpdate" in event):
                    break
                self._take(task_id, number, event)
        finally:
            await stream.aclose()
        return task_id

    def _note(self, message_id: str, result: Json) -> str | None:
        """The task of a message, or None for a direct answer; the same as ever."""
        if "message" in result:
            assert self._answer_of.setdefault(message_id, result) == result
            assert message_id not in self._task_of
            return None
        task_id: str = result["task"]["id"]
        assert self._task_of.setdefault(message_id, task_id) == task_id
        assert message_id not in self._answer_of
        return task_id

    def _take(self, task_id: str, number: int, event: Json) -> None:
        if "task" in event:
            return  # a snapshot; what led to it is compared at the end
        assert self.seen[task_id].setdefault(number, event) == event

    async def _cancel(self, task_id: str) -> None:
        answer = await self._gateway.call(self.account, "CancelTask", {"id": task_id})
        if "error" in answer:
            assert answer["error"]["code"] == NOT_CANCELABLE, answer
        else:
            assert answer["result"]["status"]["state"] in TERMINAL

    async def check(self, *, kills: int) -> None:
        """Compare what was seen with what is stored, after so many kills of the gateway."""
        self._may_give_up = kills >= EngineLimits().attempts
        for task_id in {*self._task_of.values(), *self.seen}:
            await self._check_task(task_id)
        for state in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"):
            params = {"contextId": f"context of {self.name}", "status": state}
            answer = await self._gateway.call(self.account, "ListTasks", params)
            assert answer["result"]["tasks"] == []

    async def _check_task(self, task_id: str) -> None:
        answer = await self._gateway.call(self.account, "GetTask", {"id": task_id})
        events = await self._replay(task_id, answer["result"]["status"])
        for number, event in self.seen[task_id].items():
            assert events[number] == event, "what was seen is not what is stored"
        assert b"two runs of one session" not in msgspec.json.encode(list(events.values()))
        assert list(events) == list(range(1, len(events) + 1))
        states = [state_of(event) for event in events.values()]
        ends = [number for number, state in enumerate(states, 1) if state in TERMINAL]
        assert ends in ([], [len(events)])
        assert states[-1] in TERMINAL + PAUSED
        task = decode_task(msgspec.json.encode(answer["result"]))
        assert _fold(task, events) == (task.status, task.artifacts)
        self._check_end(task)

    async def _replay(self, task_id: str, status: Json) -> dict[int, Json]:
        """All events of a task to its present status, read past its pauses."""
        events: dict[int, Json] = {}
        stream = self._gateway.stream(
            self.account, "SubscribeToTask", {"id": task_id}, last_event_id=0
        )
        async with aclosing(stream):
            async for number, event in stream:
                assert number == len(events) + 1
                events[number] = event
                # The stream of a paused task stays open.
                if status == event.get("statusUpdate", {}).get("status"):
                    break
        return events

    def _check_end(self, task: Task) -> None:
        """A task whose agent may be repeated fails when the agent says so, or after many kills."""
        assert task.status.message is not None
        said = task.status.message.text
        if task.status.state is TaskState.FAILED and self.account != "fragile":
            too_often = TOO_MANY_ATTEMPTS.format(attempts=EngineLimits().attempts)
            assert said == "no luck" or (self._may_give_up and said == too_often)
        if task.status.state is TaskState.CANCELED:
            assert "!" in self.plan


def _fold(task: Task, events: dict[int, Json]) -> tuple[TaskStatus, object]:
    """What whoever saw all events knows of the task."""
    held = Task(task.id, task.context_id, TaskStatus(TaskState.SUBMITTED))
    for event in events.values():
        held = apply_event(held, decode_event(msgspec.json.encode(event)))
    return held.status, held.artifacts


async def _play_until_killed(
    gateway: GatewayProcess, clients: Sequence[Client], chance: random.Random
) -> None:
    plays = [asyncio.ensure_future(client.play()) for client in clients]
    await asyncio.sleep(chance.uniform(0, 0.25))  # a random moment is the point here
    gateway.kill()
    await asyncio.gather(*plays)


async def _play_to_the_end(clients: Sequence[Client]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        assert all(await asyncio.gather(*(client.play() for client in clients)))


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.requirement(
    "promise.commit.before-show",
    "promise.order.one-order",
    "promise.order.one-terminal",
    "promise.recovery.no-zombie",
    "promise.idempotent.task",
    "promise.idempotent.direct",
)
@pytest.mark.parametrize(
    ("gateway_process", "usual"), [("sqlite", 40), ("json-file", 6)], indirect=["gateway_process"]
)
async def test_calls_of_every_kind_survive_kills_also_of_a_gateway_that_recovers(
    gateway_process: GatewayProcess, usual: int, rounds: int | None
) -> None:
    chance = random.Random(os.environ.get("CRASH_SEED", "a2a"))
    await gateway_process.start()
    for number in range(rounds or usual):
        clients = [
            Client(gateway_process, f"round {number} client {index}", account, plan)
            for index, (account, plan) in enumerate(PLANS)
        ]
        await _play_until_killed(gateway_process, clients, chance)
        kills = 1
        if chance.random() < 0.4:
            kills += 1
            gateway_process.spawn()
            await asyncio.sleep(chance.uniform(0.2, 0.7))  # somewhere in its start, or just after
            gateway_process.kill()
        if chance.random() < 0.3:
            kills += 1
            await gateway_process.start()
            await _play_until_killed(gateway_process, clients, chance)
        await gateway_process.start()
        await _play_to_the_end(clients)
        for client in clients:
            await client.check(kills=kills)
