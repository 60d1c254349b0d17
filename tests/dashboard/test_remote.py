"""The page of remote agents: who answers, what is wrong with their cards, which tasks run there."""

from typing import Any

import msgspec
import pytest
from tests.dashboard.conftest import OpenDashboard, Setup
from tests.dashboard.test_untrusted_content import CORPUS, problems_of
from tests.ports import free_port
from tests.remote.scripted_peer import card_of, hang_up, result, scripted, task
from tests.server.push.webhook_receiver import eventually_found

Json = Any
PAGE = "/dashboard/remote"
SKILL = {"id": "paint", "name": "Paint", "description": "Paints.", "tags": ["colour"]}


def outbound(**urls: str) -> dict[str, Json]:
    """Settings with these remote agents."""
    targets = [{"alias": alias, "baseUrl": url} for alias, url in urls.items()]
    return {
        "outbound.enabled": True,
        "outbound.defaults": {"timeoutMs": 60_000},
        "outbound.targets": targets,
    }


async def send(setup: Setup, alias: str) -> Json:
    """What the tool answers to a message for a remote agent."""
    parts = [{"kind": "text", "text": "hello"}]
    body = msgspec.json.encode({"action": "send", "target_alias": alias, "parts": parts})
    done = await setup.program.post("/tools/remote_agent", body, content_length=str(len(body)))
    assert done.status == 200, done.body
    return done.json


async def read_asked(setup: Setup) -> Json:
    """The page, once every agent on it was asked for its card."""

    async def look() -> Json | None:
        page = await setup.json(PAGE)
        return page if all(one["checkedAt"] for one in page["agents"]) else None

    return await eventually_found(look)


async def test_remote_agents_are_shown_with_what_they_offer(open_dashboard: OpenDashboard) -> None:
    async with scripted() as peer:
        peer.card = card_of(peer.url, skills=[SKILL])
        setup = await open_dashboard(outbound(good=peer.url))
        [agent] = (await read_asked(setup))["agents"]
        assert (agent["alias"], agent["name"], agent["url"]) == ("good", "Scripted", peer.url)
        assert (agent["isReachable"], agent["error"]) == (True, "")
        assert (agent["transport"], agent["version"]) == ("JSONRPC", "1.0")
        assert (agent["interfaces"], agent["skills"]) == (["JSONRPC 1.0"], ["Paint"])
        assert (agent["cardProblems"], agent["circuit"]["state"]) == ([], "closed")
        assert agent["seconds"] > 0
        html = (await (await setup.sign_in()).get(PAGE)).body.decode()
        assert "has everything that is required" in html
        assert 'href="/dashboard/remote" aria-current="page"' in html


async def test_what_is_wrong_with_a_card_is_said(open_dashboard: OpenDashboard) -> None:
    async with scripted() as peer, scripted() as other:
        peer.card = card_of(peer.url, description="", skills=[])
        other.card = card_of("http://elsewhere.example/", skills=[SKILL])
        setup = await open_dashboard(outbound(poor=peer.url, lost=other.url))
        poor, lost = (await read_asked(setup))["agents"]
        assert [one["field"] for one in poor["cardProblems"]] == ["description", "skills"]
        [problem] = lost["cardProblems"]
        assert problem["field"] == "interfaces"
        assert "elsewhere.example" in problem["problem"]


async def test_an_agent_that_does_not_answer_says_why_and_is_asked_again(
    open_dashboard: OpenDashboard,
) -> None:
    async with scripted(card_answer=hang_up) as peer:
        setup = await open_dashboard(outbound(far=peer.url))
        [agent] = (await read_asked(setup))["agents"]
        assert (agent["isReachable"], agent["hasCard"]) == (False, False)
        assert agent["error"]
        browser = await setup.sign_in()
        html = (await browser.get(PAGE)).body.decode()
        assert "does not answer" in html
        assert 'hx-post="/dashboard/remote/far/check"' in html
        still = await browser.act(f"{PAGE}/far/check")
        assert (still.status, b"far does not answer" in still.body) == (200, True)
        assert b'class="notice bad"' in still.body
        peer.card_answer = None
        done = await browser.act(f"{PAGE}/far/check")
        assert (done.status, b"far answers." in done.body) == (200, True)
        assert b'class="notice good"' in done.body
        [agent] = (await setup.json(PAGE))["agents"]
        assert (agent["isReachable"], agent["name"]) == (True, "Scripted")
        asked = peer.card_requests
        # A card that is known is asked for again all the same.
        assert (await browser.act(f"{PAGE}/far/check")).status == 200
        assert peer.card_requests == asked + 1
        assert (await browser.act(f"{PAGE}/nobody/check")).status == 404


async def test_an_open_circuit_is_shown_with_its_reason(open_dashboard: OpenDashboard) -> None:
    setup = await open_dashboard(outbound(gone=f"http://127.0.0.1:{free_port()}/"))
    for _ in range(5):
        assert (await send(setup, "gone"))["ok"] is False
    [agent] = (await setup.json(PAGE))["agents"]
    circuit = agent["circuit"]
    assert (circuit["state"], circuit["failures"]) == ("open", 5)
    assert circuit["opensUntil"]
    assert circuit["reason"]
    html = (await (await setup.sign_in()).get(PAGE)).body.decode()
    assert "after 5 failures" in html


async def test_tasks_at_remote_agents_are_listed(open_dashboard: OpenDashboard) -> None:
    async with scripted(result(task("WORKING"))) as peer:
        setup = await open_dashboard(outbound(good=peer.url))
        assert (await setup.json(PAGE))["tasks"] == []
        assert (await send(setup, "good"))["ok"] is True
        [shown] = (await setup.json(PAGE))["tasks"]
        assert (shown["taskId"], shown["target"], shown["state"]) == ("t-1", "good", "working")
        assert shown["owner"] == "operator"
        html = (await (await setup.sign_in()).get(PAGE)).body.decode()
        assert "t-1" in html


async def test_a_remote_agent_is_tried_from_the_page(open_dashboard: OpenDashboard) -> None:
    async with scripted(result(task("COMPLETED", text="<b>hi</b>"))) as peer:
        gone = f"http://127.0.0.1:{free_port()}/"
        setup = await open_dashboard(outbound(good=peer.url, gone=gone))
        browser = await setup.sign_in()
        assert f'hx-post="{PAGE}/good/send"' in (await browser.get(PAGE)).body.decode()
        done = await browser.act(f"{PAGE}/good/send", text="hello")
        assert done.status == 200, done.body
        assert b"good (completed): &lt;b&gt;hi&lt;/b&gt;" in done.body
        assert [one["target"] for one in (await setup.json(PAGE))["tasks"]] == ["good"]
        failed = await browser.act(f"{PAGE}/gone/send", text="hello")
        assert (failed.status, b"gone did not answer" in failed.body) == (200, True)
        assert (await browser.act(f"{PAGE}/good/send", text=" ")).status == 400
        assert (await browser.act(f"{PAGE}/nobody/send", text="x")).status == 404


async def test_keys_in_addresses_are_hidden(open_dashboard: OpenDashboard) -> None:
    async with scripted(hang_up) as peer:
        setup = await open_dashboard(outbound(keyed=f"{peer.url}?key=SECRET"))
        page = await read_asked(setup)
        assert "SECRET" not in str(page)


async def test_without_remote_agents_the_page_says_how_to_have_some(setup: Setup) -> None:
    assert await setup.json(PAGE) == {"isEnabled": False, "agents": [], "tasks": [], "isCut": False}
    html = (await (await setup.sign_in()).get(PAGE)).body.decode()
    assert "outbound: { enabled: true }" in html


@pytest.mark.parametrize("text", CORPUS)
async def test_a_card_runs_nothing(open_dashboard: OpenDashboard, text: str) -> None:
    async with scripted() as peer:
        skill = {"id": "s", "name": text, "description": text, "tags": [text]}
        peer.card = card_of(peer.url, name=text, description=text, skills=[skill])
        peer.card["supportedInterfaces"].append(
            {"url": text, "protocolBinding": text, "protocolVersion": text}
        )
        setup = await open_dashboard(outbound(odd=peer.url))
        await read_asked(setup)
        response = await (await setup.sign_in()).get(PAGE)
        assert response.status == 200
        assert problems_of(response.body.decode()) == []
