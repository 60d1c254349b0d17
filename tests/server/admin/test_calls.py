"""The operator lists calls between agents and looks at each of them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.conformance.asgi_client import AsgiClient, Response

from openclaw_a2a.auth.admin_token import AdminAuthenticator
from openclaw_a2a.http.asgi import HttpRequest
from openclaw_a2a.http.deadline import body_deadline
from openclaw_a2a.model.call import Call, Caller, CallId, CallStatus, OutcomeRoute
from openclaw_a2a.model.ids import AgentId, JsonObject, SessionKey, TaskId
from openclaw_a2a.server.admin.calls import CallsAdmin, ShowsCalls
from openclaw_a2a.server.admin.endpoint import AdminEndpoint

TOKEN = "the-operator's-own-token-of-forty-letters"
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def call(
    number: int, status: str = "completed", *, caller: str = "main", callee: str = "b"
) -> Call:
    return Call(
        id=CallId(f"call-{number}"),
        task_id=TaskId(f"task-{number}"),
        caller=Caller(AgentId(caller), "host"),
        callee=AgentId(callee),
        skill="find",
        mode="execute",
        return_to=SessionKey(f"agent:{caller}:main"),
        session_key=SessionKey(f"agent:{callee}:call:{number}"),
        timeout_ms=60_000,
        accepted_at=NOON + timedelta(seconds=number),
        route=OutcomeRoute.SESSION,
        status=CallStatus(status),
    )


class Desk:
    """Knows the calls it was given, the oldest first."""

    def __init__(self, *calls: Call) -> None:
        self._calls = calls

    def listed(self, *, limit: int) -> list[Call]:
        return list(self._calls)[::-1][:limit]

    def find(self, call_id: CallId) -> Call | None:
        return next((one for one in self._calls if one.id == call_id), None)

    async def shown(self, call: Call) -> JsonObject:
        return {
            "correlationId": call.id,
            "agent": call.callee,
            "status": call.status.value,
            "output": {"long": "x" * 10_000},
            "confidence": 0.9,
            "parts": [{"correlationId": "part-1"}],
        }


class Pages:
    """The pages behind the operator's door."""

    def __init__(self, desk: ShowsCalls | None) -> None:
        door = AdminEndpoint(
            AdminAuthenticator(TOKEN, own_hosts=["127.0.0.1"]), body_deadline=body_deadline(5)
        )
        CallsAdmin(lambda: desk).add_to(door)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await door.serve(HttpRequest(scope, receive, send))

        self._door = AsgiClient(app)

    async def get(self, path: str) -> Response:
        return await self._door.get(path, authorization=f"Bearer {TOKEN}")

    async def listed(self, query: str = "") -> list[str]:
        answer = await self.get(f"/operator/calls{query}")
        assert answer.status == 200
        return [one["correlationId"] for one in answer.json["calls"]]


async def test_the_newest_calls_come_first_and_without_their_answers() -> None:
    pages = Pages(Desk(*map(call, range(25))))
    assert (await pages.listed())[:2] == ["call-24", "call-23"]
    answer = await pages.get("/operator/calls?limit=1")
    assert answer.json == {
        "calls": [
            {
                "correlationId": "call-24",
                "agent": "b",
                "status": "completed",
                "confidence": 0.9,
            }
        ],
        "totalSize": 25,
    }


async def test_calls_are_chosen_by_status_and_by_either_agent() -> None:
    desk = Desk(
        call(1, "pending"),
        call(2, callee="c"),
        call(3, "pending", caller="c"),
        call(4, "timeout"),
    )
    pages = Pages(desk)
    assert await pages.listed("?status=pending") == ["call-3", "call-1"]
    assert await pages.listed("?agent=c") == ["call-3", "call-2"]
    assert await pages.listed("?agent=c&status=pending") == ["call-3"]
    assert await pages.listed("?agent=nobody") == []


async def test_one_call_is_shown_whole() -> None:
    answer = await Pages(Desk(call(1), call(2))).get("/operator/calls/call-1")
    assert answer.status == 200
    assert answer.json["output"] == {"long": "x" * 10_000}
    assert answer.json["parts"] == [{"correlationId": "part-1"}]


@pytest.mark.parametrize("wanted", ["call-2", "call", "%00", "x" * 5000])
async def test_a_call_that_does_not_exist_is_told(wanted: str) -> None:
    answer = await Pages(Desk(call(1))).get(f"/operator/calls/{wanted}")
    assert (answer.status, answer.json["error"]["code"]) == (404, "call-not-found")
    assert len(answer.body) < 500


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=-1", "limit=x", "limit=", "limit=٣", "status=happy"]
)
async def test_a_question_that_makes_no_sense_is_refused_with_what_would(query: str) -> None:
    answer = await Pages(Desk()).get(f"/operator/calls?{query}")
    assert (answer.status, answer.json["error"]["code"]) == (400, "invalid-params")
    assert "must be" in answer.json["error"]["message"]


@pytest.mark.parametrize("path", ["/operator/calls", "/operator/calls/call-1"])
async def test_while_calls_are_off_the_setting_is_named(path: str) -> None:
    answer = await Pages(None).get(path)
    assert answer.json["error"]["code"] == "unsupported-operation"
    assert "tools.agentToAgent.enabled" in answer.json["error"]["message"]
