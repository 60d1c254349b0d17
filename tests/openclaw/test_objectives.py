"""Objectives whose steps are turns of a real OpenClaw."""

import asyncio
import json
from typing import Any

import httpx2
from tests.openclaw.conftest import StartGateway
from tests.openclaw.openclaw_process import FakeModel, OpenClaw

Json = Any
TIMEOUT_S = 240
URI = "https://github.com/zeroasterisk/a2a-opt/v1"
APPROVAL = {
    "id": "flight",
    "header": "Flight",
    "question": "May it be booked?",
    "options": [{"label": "Yes"}, {"label": "No"}],
}
ASK = f"tool:ask_user {json.dumps({'questions': [APPROVAL]})}"


class Trip:
    """An objective at the door of a gateway."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client
        self.id = ""

    async def call(self, method: str, **params: Json) -> Json:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = (await self._client.post("/a2a/jsonrpc", json=body)).json()
        assert "result" in answer, answer
        return answer["result"]

    async def begin(self, name: str) -> None:
        self.id = (await self.call("objectives/create", name=name))["objective"]["id"]

    async def plan(self, name: str, tasks: list[Json], *after: str) -> str:
        plan = {"objectiveId": self.id, "name": name, "tasks": tasks, "dependencies": list(after)}
        return (await self.call("plans/create", **plan))["plan"]["id"]

    async def until(self, **wanted: Json) -> Json:
        """The objective once these of its members are so."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                found = (await self.call("objectives/get", id=self.id))["objective"]
                if all(found.get(key) == value for key, value in wanted.items()):
                    return found
                await asyncio.sleep(0.1)  # another process works on it


async def test_a_trip_whose_hotel_waits_until_a_person_approves_the_flight(
    start_our_gateway: StartGateway, openclaw: OpenClaw, model: FakeModel, marker: str
) -> None:
    our_gateway = start_our_gateway(
        openclaw, settings={"opt": {"enabled": True, "requireActivation": False}}
    )
    headers = {"a2a-version": "1.0", "a2a-extensions": URI}
    async with httpx2.AsyncClient(base_url=our_gateway.url, headers=headers, timeout=240) as client:
        trip = Trip(client)
        await trip.begin(f"Conference {marker}")
        flight = await trip.plan(
            "Flight",
            [
                {"name": f"search {marker}"},
                {"name": "approve", "description": ASK, "dependencies": ["task-0"]},
            ],
        )
        await trip.plan(
            "Hotel",
            [{"name": f"book {marker}", "metadata": {"agent": "helper"}}],
            flight,
        )
        await trip.call("objectives/run", id=trip.id)
        waiting = await trip.until(status="blocked")
        assert [plan["status"] for plan in waiting["plans"]] == ["blocked", "blocked"]
        waits = waiting["progress"]["oldestWaiting"]
        answer = {
            "messageId": f"yes-{marker}",
            "role": "ROLE_USER",
            "parts": [{"text": "Yes"}],
            "contextId": trip.id,
            "metadata": {"opt/v1/taskId": waits["taskId"]},
        }
        await trip.call("SendMessage", message=answer)
        ended = await trip.until(status="completed")
        assert ended["progress"]["percent"] == 100
    search, ask = ended["plans"][0]["tasks"]
    [first] = model.requests(f"agent:main:a2a:obj:{trip.id}:{search['id']}")
    assert f"search {marker}" in first["last_user"]
    asked = model.requests(f"agent:main:a2a:obj:{trip.id}:{ask['id']}")
    assert "echo: search" in asked[0]["last_user"]
    [booked] = model.requests(f"agent:helper:a2a:obj:{trip.id}")
    assert f"book {marker}" in booked["last_user"]
