"""Subscriptions to objectives over both transports."""

import anyio
import pytest
from tests.conformance.asgi_client import Request
from tests.conformance.protocol_clients import FrameReader, encode_call
from tests.server.objectives.conftest import Build, ObjectivesServer
from tests.server.objectives.scripted_planning import Change

from openclaw_a2a.model.errors import PlanItemNotFound, StoreUnavailable
from openclaw_a2a.planning.steps import EXTENSION_URI

PLACES = ["rpc", "rest"]


def _asked(place: str, **headers: str) -> Request:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if place == "rest":
        return Request("GET", "/a2a/rest/objectives/obj-1:subscribe", named)
    body = encode_call("objectives/subscribe", {"id": "obj-1"})
    return Request("POST", "/a2a/jsonrpc", {"content-type": "application/json", **named}, (body,))


def _result(place: str, body: object) -> object:
    return body if place == "rest" else {"jsonrpc": "2.0", "id": 1, "result": body}


@pytest.mark.requirement("opt.follow.changes")
@pytest.mark.parametrize("place", PLACES)
async def test_changes_are_events_with_their_numbers(server: ObjectivesServer, place: str) -> None:
    for number in (3, 4, 7):
        server.planning.changes.put_nowait(Change(number, {"n": number}))
    async with server.activated.open(_asked(place)) as exchange:
        await exchange.wait_started()
        assert exchange.headers["content-type"].startswith("text/event-stream")
        assert exchange.headers["a2a-extensions"] == EXTENSION_URI
        frames = FrameReader(exchange, lambda _: None)
        seen = [await frames.next() for _ in range(3)]
        server.planning.changes.put_nowait(None)
        assert await frames.next() is None
    assert [(one.id, one.json) for one in seen if one] == [
        (str(number), _result(place, {"n": number})) for number in (3, 4, 7)
    ]
    assert server.planning.asked[0].params == {"id": "obj-1"}
    assert (server.planning.cursors, server.planning.open_followers) == ([None], 0)


@pytest.mark.requirement("opt.follow.cursor")
@pytest.mark.parametrize("place", PLACES)
async def test_reader_that_reconnects_continues_after_the_last_event(
    server: ObjectivesServer, place: str
) -> None:
    server.planning.changes.put_nowait(None)
    await server.activated.request(_asked(place, last_event_id="41"))
    assert server.planning.cursors == [41]


@pytest.mark.parametrize("place", PLACES)
async def test_last_event_id_that_is_not_a_number_is_rejected(
    server: ObjectivesServer, place: str
) -> None:
    answer = await server.activated.request(_asked(place, last_event_id="yesterday"))
    assert answer.media_type == "application/json"
    assert answer.json["error"]["code"] == (400 if place == "rest" else -32602)
    assert server.planning.cursors == []


@pytest.mark.parametrize("place", PLACES)
async def test_keep_alive_comments_are_sent_while_nothing_changes(
    server: ObjectivesServer, place: str
) -> None:
    async with server.activated.open(_asked(place)) as exchange:
        await exchange.wait_started()
        frames = FrameReader(exchange, lambda _: None)
        while len(frames.comments) < 2:
            assert await frames.read_chunk()
        server.planning.changes.put_nowait(Change(1, {}))
        frame = await frames.next()
        assert frame is not None
        assert frame.id == "1"


@pytest.mark.parametrize("place", PLACES)
async def test_reader_that_disconnects_unsubscribes(server: ObjectivesServer, place: str) -> None:
    server.planning.changes.put_nowait(Change(1, {}))
    async with server.activated.open(_asked(place)) as exchange:
        await FrameReader(exchange, lambda _: None).next()
        assert (server.planning.open_followers, len(server.streams)) == (1, 1)
    assert (server.planning.open_followers, len(server.streams)) == (0, 0)


@pytest.mark.parametrize("place", PLACES)
async def test_reader_that_reads_nothing_and_disconnects_unsubscribes(
    server: ObjectivesServer, place: str
) -> None:
    for number in range(1, 9):
        server.planning.changes.put_nowait(Change(number, {"text": "x" * 1000}))
    async with server.activated.open(_asked(place), is_slow=True) as exchange:
        await exchange.wait_started()
        await anyio.wait_all_tasks_blocked()
    assert (server.planning.open_followers, len(server.streams)) == (0, 0)


@pytest.mark.parametrize("place", PLACES)
async def test_stopping_the_gateway_ends_the_stream(server: ObjectivesServer, place: str) -> None:
    async with server.activated.open(_asked(place)) as exchange:
        await exchange.wait_started()
        server.streams.close_all()
        assert await FrameReader(exchange, lambda _: None).next() is None
    assert server.planning.open_followers == 0


@pytest.mark.parametrize("place", PLACES)
async def test_error_before_the_first_event_is_a_plain_answer(
    server: ObjectivesServer, place: str
) -> None:
    server.planning.error = PlanItemNotFound("there is no objective obj-1")
    answer = await server.activated.request(_asked(place))
    assert answer.media_type == "application/json"
    assert answer.json["error"]["code"] == (404 if place == "rest" else -32050)
    assert len(server.streams) == 0


@pytest.mark.parametrize("place", PLACES)
async def test_error_during_a_stream_is_its_last_event(
    server: ObjectivesServer, place: str
) -> None:
    server.planning.changes.put_nowait(Change(1, {}))
    server.planning.changes.put_nowait(StoreUnavailable("the disk is full"))
    async with server.activated.open(_asked(place)) as exchange:
        frames = await FrameReader(exchange, lambda _: None).rest()
    assert [frame.event for frame in frames] == [None, "error"]
    assert frames[1].json["error"]["code"] == (503 if place == "rest" else -32603)


@pytest.mark.parametrize("place", PLACES)
async def test_an_unexpected_error_during_a_stream_is_its_last_event(
    server: ObjectivesServer, place: str
) -> None:
    server.planning.changes.put_nowait(Change(1, {"what no JSON has": object()}))
    async with server.activated.open(_asked(place)) as exchange:
        [frame] = await FrameReader(exchange, lambda _: None).rest()
    assert frame.event == "error"
    assert frame.json["error"]["code"] == (500 if place == "rest" else -32603)
    assert (server.planning.open_followers, len(server.streams)) == (0, 0)


@pytest.mark.parametrize("place", PLACES)
async def test_streams_of_objectives_count_towards_the_stream_limit(
    build: Build, place: str
) -> None:
    server = await build(settings={"limits.streams": 1})
    async with server.activated.open(_asked(place)) as exchange:
        await exchange.wait_started()
        assert (await server.activated.request(_asked(place))).status == 429
