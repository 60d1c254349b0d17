"""A search finds ids, contexts, callers, agents and texts, and says how far back it went."""

from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from urllib.parse import urlencode

import pytest
from tests.conformance.protocol_clients import V1Client
from tests.conformance.scripted_agent import ScriptedAgent
from tests.dashboard.conftest import Json, OpenDashboard, Setup
from tests.postgres_server import PostgresServer

from openclaw_a2a.dashboard import task_list
from openclaw_a2a.model.agent_event import PartDelta, Reply
from openclaw_a2a.model.message import Part
from openclaw_a2a.ports import SupportsTaskSearch
from openclaw_a2a.store.sqlite import search


@pytest.fixture(params=["sqlite", "postgres", "memory"])
async def store_settings(request: pytest.FixtureRequest) -> AsyncIterator[Mapping[str, Json]]:
    if request.param == "sqlite":
        yield {}
    elif request.param == "memory":
        yield {"store": {"kind": "memory"}, "store.path": None}
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        async with server.borrow_schema() as schema:
            yield {"store": {"kind": "postgres", "url": server.url(), "schema": schema}}


@pytest.fixture
async def setup(store_settings: Mapping[str, Json], open_dashboard: OpenDashboard) -> Setup:
    """A gateway whose store searches by itself, and one whose store does not."""
    agent = ScriptedAgent(
        Reply.of_text("It is GREEN now, 100% and c:\\paint_1"),
        PartDelta(Part.of_data({"shade": "moss"})),
    )
    setup = await open_dashboard(store_settings, agent=agent)
    [engine] = setup.gateway.engines.values()
    is_memory = store_settings.get("store") == {"kind": "memory"}
    assert isinstance(engine.store, SupportsTaskSearch) is not is_memory
    return setup


async def found(setup: Setup, text: str, **more: str) -> list[str]:
    page = await setup.program.get(f"/dashboard/tasks?{encode(q=text, **more)}")
    assert page.status == 200, page.body
    return [one["id"] for one in page.json["tasks"]]


def encode(**members: str) -> str:
    return urlencode(members)


async def test_every_kind_of_text_is_found(setup: Setup) -> None:
    client = V1Client(setup.anyone)
    task = (await client.send('Paint the "Zäune", please'))["task"]
    await client.send("mow the lawn")
    for text in (
        task["id"],
        task["id"][:8],
        task["contextId"],
        'the "Zäune"',
        "PAINT THE",
    ):
        assert await found(setup, text) == [task["id"]], text
    for text in ("green", "100%", "c:\\paint_1", "local", "main"):
        assert len(await found(setup, text)) == 2, text


@pytest.mark.parametrize("text", ["role", "parts", "ROLE_USER", "%", "_", "paint%please", "pa_nt"])
async def test_names_of_members_and_wildcards_match_nothing_by_themselves(
    setup: Setup, text: str
) -> None:
    await V1Client(setup.anyone).send("paint the fence please")
    expected = 1 if text in ("%", "_") else 0  # the answer has them
    assert len(await found(setup, text)) == expected


async def test_tabs_and_filters_hold_for_a_search(setup: Setup) -> None:
    await V1Client(setup.anyone).send("paint the fence")
    assert len(await found(setup, "fence", tab="completed")) == 1
    assert await found(setup, "fence", tab="failed") == []
    assert await found(setup, "fence", caller="nobody") == []
    assert len(await found(setup, "fence", agent="main")) == 1
    assert await found(setup, "fence", agent="mai") == []


async def test_pages_of_a_search_follow_each_other(setup: Setup) -> None:
    client = V1Client(setup.anyone)
    made = [(await client.send(f"fence {n}"))["task"]["id"] for n in range(60)]
    first = await setup.json("/dashboard/tasks?q=fence")
    assert len(first["tasks"]) == 50
    second = await setup.json(f"/dashboard/tasks?{encode(q='fence', after=first['next'])}")
    ids = [one["id"] for one in first["tasks"] + second["tasks"]]
    assert sorted(ids) == sorted(made)
    assert (second["next"], second["searchedUntil"]) == ("", None)
    refused = await setup.program.get("/dashboard/tasks?q=fence&after=nowhere")
    assert (refused.status, refused.json["error"]["code"]) == (400, "invalid-params")


async def test_a_search_that_ends_early_says_how_far_it_came(
    open_dashboard: OpenDashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_WINDOW", 3)
    setup = await open_dashboard(agent=ScriptedAgent(Reply.of_text("done")))
    client = V1Client(setup.anyone)
    old = (await client.send("needle"))["task"]["id"]
    for number in range(4):
        await client.send(f"hay {number}")
    page = await setup.json("/dashboard/tasks?q=needle")
    assert page["tasks"] == []
    assert page["searchedUntil"] is not None
    html = (await (await setup.sign_in()).get("/dashboard/tasks?q=needle")).body.decode()
    assert "Search further back" in html
    page = await setup.json(f"/dashboard/tasks?{encode(q='needle', after=page['next'])}")
    assert [one["id"] for one in page["tasks"]] == [old]
    assert page["next"] == ""


async def test_a_page_that_is_open_does_not_look_through_the_store_each_time(
    open_dashboard: OpenDashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_list, "_SEARCH_FRESH_S", 3600.0)
    setup = await open_dashboard(agent=ScriptedAgent(Reply.of_text("done")))
    client = V1Client(setup.anyone)
    made = [(await client.send("fence"))["task"]["id"] for _ in range(3)]
    assert sorted(await found(setup, "fence")) == sorted(made)
    monkeypatch.setattr(search, "_WINDOW", 1)  # it would find the newest one only
    assert sorted(await found(setup, "fence")) == sorted(made)
    monkeypatch.setattr(task_list, "_SEARCH_FRESH_S", 0.0)
    assert len(await found(setup, "fence")) == 1


async def test_a_search_that_is_kept_shows_what_has_changed_since(
    open_dashboard: OpenDashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_list, "_SEARCH_FRESH_S", 3600.0)
    setup = await open_dashboard()
    first = await setup.start("paint the fence")
    assert await found(setup, "fence") == [first]
    assert await found(setup, "fence", tab="working") == [first]
    assert await found(setup, "fence", tab="completed") == []
    second = await setup.start("mend the fence")
    await setup.start("mow the lawn")
    assert await found(setup, "fence") == [second, first]
    await setup.finish(Reply.of_text("painted"))
    page = await setup.json("/dashboard/tasks?q=fence")
    assert {one["id"]: one["state"] for one in page["tasks"]} == {
        second: page["tasks"][0]["state"],
        first: "completed",
    }
    assert await found(setup, "fence", tab="working") == [second]
    assert await found(setup, "fence", tab="completed") == [first]


async def test_an_encrypted_store_is_searched(
    open_dashboard: OpenDashboard, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text(b64encode(bytes(32)).decode(), encoding="ascii")
    setup = await open_dashboard(
        {"security.encryption.keys": [f"file:{key}"]},
        agent=ScriptedAgent(Reply.of_text("done")),
    )
    await V1Client(setup.anyone).send("fence")
    assert len(await found(setup, "fence")) == 1
