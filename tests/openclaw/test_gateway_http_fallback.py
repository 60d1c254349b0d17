"""The HTTP fallback with a real OpenClaw: streaming, cancelling, and errors."""

import base64
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import pytest
from tests.openclaw.openclaw_process import FakeModel, OpenClaw
from tests.openclaw.turns import turn_of

from openclaw_a2a.agents.openclaw_gateway.handshake import GatewayAddress
from openclaw_a2a.agents.openclaw_gateway.http_fallback import list_agents_over_http, run_over_http
from openclaw_a2a.model.agent_event import AgentEvent, Report, Started, TextDelta
from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.turn import Turn

DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"


class HttpAgent:
    """Runs turns of one agent over HTTP, as `OpenClawGatewayAgent` does."""

    def __init__(
        self, url: str, token: str, *, agent_id: str = "main", timeout_s: float = 60
    ) -> None:
        self.address = GatewayAddress(url, token)
        self._agent_id, self._timeout_s = agent_id, timeout_s

    def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        return run_over_http(self.address, turn, agent_id=self._agent_id, timeout_s=self._timeout_s)


def fallback_to(openclaw: OpenClaw, **options: Any) -> HttpAgent:
    token = options.pop("token", openclaw.token)
    return HttpAgent(openclaw.ws_url, token, **options)


def question(marker: str, text: str) -> Turn:
    return turn_of(text, context=marker)


async def all_of(events: AsyncIterator[AgentEvent]) -> list[AgentEvent]:
    with anyio.fail_after(240):
        return [event async for event in events]


def text_of(events: list[AgentEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def test_an_answer_is_streamed_with_what_it_cost(openclaw: OpenClaw, marker: str) -> None:
    events = await all_of(fallback_to(openclaw).run(question(marker, "long:6@50")))
    assert events[0] == Started()
    assert len([event for event in events if isinstance(event, TextDelta)]) > 1
    assert text_of(events) == "w1 w2 w3 w4 w5 w6"
    assert isinstance(events[-1], Report)
    assert events[-1].metadata["usage"]["total_tokens"] > 0


async def test_the_same_session_is_continued(openclaw: OpenClaw, marker: str) -> None:
    fallback = fallback_to(openclaw)
    await all_of(fallback.run(question(marker, f"first {marker}")))
    assert f"first {marker}" in text_of(await all_of(fallback.run(question(marker, "history"))))


async def test_an_image_goes_along(openclaw: OpenClaw, model: FakeModel, marker: str) -> None:
    image = Part.of_bytes(base64.b64decode(DOT), media_type="image/png")
    asked = turn_of(f"see {marker}", parts=(image,), context=marker)
    await all_of(fallback_to(openclaw).run(asked))
    (request,) = model.requests(f"see {marker}")
    assert len(request["images"]) == 1


async def test_closing_the_answer_stops_the_model(
    openclaw: OpenClaw, model: FakeModel, marker: str
) -> None:
    events = fallback_to(openclaw).run(question(marker, f"halt:{marker} some words"))
    with anyio.fail_after(240):
        while not isinstance(await anext(events), TextDelta):
            pass
    await events.aclose()
    await anyio.to_thread.run_sync(lambda: model.wait_for(marker, outcome="client-gone"))


async def test_cancelling_the_wait_for_an_answer_stops_the_model(
    openclaw: OpenClaw, model: FakeModel, marker: str
) -> None:
    async def ask() -> None:
        await all_of(fallback_to(openclaw).run(question(marker, f"hold:{marker} words")))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await anyio.to_thread.run_sync(lambda: model.wait_for(marker, outcome="active"))
        group.cancel_scope.cancel()
    await anyio.to_thread.run_sync(lambda: model.wait_for(marker, outcome="client-gone"))


async def test_a_run_past_its_deadline_is_stopped(
    openclaw: OpenClaw, model: FakeModel, marker: str
) -> None:
    # An OpenClaw that is so busy that it has not asked its model by then has nothing to stop.
    for timeout_s in (5, 30, 120):
        held = f"{marker}-{timeout_s}"
        fallback = fallback_to(openclaw, timeout_s=timeout_s)
        with pytest.raises(AgentFailed, match=f"within {timeout_s} seconds"):
            await all_of(fallback.run(question(held, f"hold:{held} words")))
        if model.requests(held):
            break
    await anyio.to_thread.run_sync(lambda: model.wait_for(held, outcome="client-gone"))


async def test_a_failure_of_the_model_is_reported(openclaw: OpenClaw, marker: str) -> None:
    with pytest.raises(AgentFailed, match="OpenClaw failed"):
        await all_of(fallback_to(openclaw).run(question(marker, "fail:400")))


async def test_a_run_that_our_restart_interrupted_has_failed(
    openclaw: OpenClaw, model: FakeModel, marker: str
) -> None:
    fallback = fallback_to(openclaw)
    with pytest.raises(AgentFailed, match="interrupted by a restart"):
        again = msgspec.structs.replace(question(marker, f"again {marker}"), attempt=2)
        await all_of(fallback.run(again))
    assert model.requests(marker) == []


async def test_an_unknown_agent_is_named(openclaw: OpenClaw, marker: str) -> None:
    with pytest.raises(AgentUnavailable, match="no agent nobody"):
        await all_of(fallback_to(openclaw, agent_id="nobody").run(question(marker, "hi")))


async def test_a_wrong_token_is_reported_with_the_fix(openclaw: OpenClaw, marker: str) -> None:
    fallback = fallback_to(openclaw, token="wrong")
    with pytest.raises(AgentUnavailable, match=r"gateway\.auth\.token"):
        await all_of(fallback.run(question(marker, "hi")))
    with pytest.raises(AgentUnavailable, match=r"gateway\.auth\.token"):
        await list_agents_over_http(GatewayAddress(openclaw.ws_url, "wrong"))


async def test_the_http_api_is_open_where_openclaw_listens(openclaw: OpenClaw) -> None:
    assert await list_agents_over_http(fallback_to(openclaw).address)


async def test_a_missing_gateway_is_reported(free_tcp_port: int, marker: str) -> None:
    fallback = HttpAgent(f"ws://127.0.0.1:{free_tcp_port}", "x", timeout_s=20)
    with pytest.raises(AgentUnavailable, match="openclaw gateway run"):
        await all_of(fallback.run(question(marker, "hi")))
    with pytest.raises(AgentUnavailable, match="openclaw gateway run"):
        await list_agents_over_http(fallback.address)
