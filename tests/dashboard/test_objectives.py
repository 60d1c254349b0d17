"""Objectives on their pages: questions of steps are answered there, and dependencies drawn."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from tests.conformance.scripted_agent import ScriptedAgent
from tests.dashboard.conftest import OpenDashboard, Setup
from tests.dashboard.test_untrusted_content import CORPUS, problems_of
from tests.server.push.webhook_receiver import eventually_found

from openclaw_a2a.model.agent_event import Failed, InputRequired, Reply

Json = Any


async def post(setup: Setup, path: str, body: Json) -> Json:
    content = msgspec.json.encode(body)
    done = await setup.program.post(path, content, content_length=str(len(content)))
    assert done.status == 200, done.body
    return done.json


async def make_objective(setup: Setup, *plans: Json) -> str:
    """An objective with these plans; the address of its page."""
    made = await post(setup, "/operator/objectives", {"name": "A fence"})
    await post(setup, f"/operator/objectives/{made['id']}/plans", {"plans": list(plans)})
    return f"/dashboard/objectives/{made['id']}"


def steps(*names: str, after: Sequence[tuple[int, int]] = ()) -> list[Json]:
    """Steps of a plan; `(2, 0)`: the third waits for the first."""
    return [
        {"name": name, "dependencies": [f"task-{b}" for a, b in after if a == number]}
        for number, name in enumerate(names)
    ]


async def until(setup: Setup, page: str, is_so: Callable[[Json], bool]) -> Json:
    """The page once it is so."""

    async def look() -> Json | None:
        found = await setup.json(page)
        return found if is_so(found) else None

    return await eventually_found(look)


async def test_a_question_of_a_step_is_answered_on_the_page(open_dashboard: OpenDashboard) -> None:
    setup = await open_dashboard({"opt.enabled": True})
    page = await make_objective(setup, {"name": "One", "tasks": steps("Paint")})
    browser = await setup.sign_in()
    assert (await browser.act(f"{page}/run")).status == 200
    paint = await setup.agent.next_run()
    await setup.finish(InputRequired("Which **colour**?"), run=paint)
    found = await until(setup, page, lambda one: bool(one["waiting"]))
    [step] = found["waiting"]
    assert (step["name"], step["plan"], step["question"]) == ("Paint", "One", "Which **colour**?")
    assert step["task"] == paint.turn.task_id
    html = (await browser.get(page)).body.decode()
    assert f'hx-post="{page}/answer"' in html
    assert f'name="step" value="{step["id"]}"' in html
    assert "Which <strong>colour</strong>?" in html

    assert (await browser.act(f"{page}/answer", step=step["id"], text=" ")).status == 400
    done = await browser.act(f"{page}/answer", step=step["id"], text="green")
    assert done.status == 200, done.body
    again = await setup.agent.next_run()
    assert again.turn.body == "green"
    assert (await setup.json(page))["waiting"] == []
    await setup.finish(Reply.of_text("It is green."), run=again)
    await until(setup, page, lambda one: one["objective"]["status"] == "completed")


async def test_who_may_only_look_sees_the_question_and_no_form(
    open_dashboard: OpenDashboard,
) -> None:
    agent = ScriptedAgent(InputRequired("Which colour?"))
    setup = await open_dashboard({"opt.enabled": True, "dashboard.readOnly": True}, agent=agent)
    page = await make_objective(setup, {"name": "One", "tasks": steps("Paint")})
    await post(setup, f"{page.replace('/dashboard', '/operator')}/run", {})
    await until(setup, page, lambda one: bool(one["waiting"]))
    html = (await (await setup.sign_in()).get(page)).body.decode()
    assert "Which colour?" in html
    assert "/answer" not in html


async def test_a_failed_objective_says_why_and_is_run_again(open_dashboard: OpenDashboard) -> None:
    setup = await open_dashboard({"opt.enabled": True})
    page = await make_objective(setup, {"name": "One", "tasks": steps("Paint")})
    browser = await setup.sign_in()
    assert (await browser.act(f"{page}/run")).status == 200
    await setup.finish(Failed("no paint left"))
    found = await until(setup, page, lambda one: one["objective"]["status"] == "failed")
    assert found["actions"] == ["run"]
    html = (await browser.get(page)).body.decode()
    assert "no paint left" in html
    assert "Run the objective again" in html
    assert (await browser.act(f"{page}/run")).status == 200
    await setup.finish(Reply.of_text("done"))
    await until(setup, page, lambda one: one["objective"]["status"] == "completed")


async def test_dependencies_are_drawn_from_left_to_right(open_dashboard: OpenDashboard) -> None:
    setup = await open_dashboard({"opt.enabled": True})
    first = {
        "name": "Build",
        "tasks": steps("Dig", "Buy wood", "Nail", after=[(2, 0), (2, 1)]),
    }
    second = {"name": "Finish", "dependencies": [0], "tasks": steps("Paint")}
    page = await make_objective(setup, first, second)
    graph = (await setup.json(page))["graph"]
    nodes = {one["name"]: one for one in graph["nodes"]}
    assert [one["label"] for one in graph["nodes"]] == [
        "1.1 Dig",
        "1.2 Buy wood",
        "1.3 Nail",
        "2.1 Paint",
    ]
    assert nodes["Dig"]["x"] == nodes["Buy wood"]["x"] < nodes["Nail"]["x"] < nodes["Paint"]["x"]
    assert nodes["Dig"]["y"] < nodes["Buy wood"]["y"] < graph["height"]
    ids = {one["id"]: one["name"] for one in graph["nodes"]}
    assert {(ids[one["start"]], ids[one["end"]]) for one in graph["edges"]} == {
        ("Dig", "Nail"),
        ("Buy wood", "Nail"),
        ("Nail", "Paint"),
    }
    html = (await (await setup.sign_in()).get(page)).body.decode()
    assert html.count('class="edge"') == 3
    assert "1.3 Nail" in html


async def test_steps_that_wait_for_nothing_are_not_drawn(open_dashboard: OpenDashboard) -> None:
    setup = await open_dashboard({"opt.enabled": True})
    page = await make_objective(setup, {"name": "Two", "tasks": steps("Dig", "Paint")})
    assert (await setup.json(page))["graph"] is None


async def test_names_of_steps_run_nothing(open_dashboard: OpenDashboard) -> None:
    setup = await open_dashboard({"opt.enabled": True})
    names = [text for text in CORPUS if text.isprintable()]
    chain = [(number, number - 1) for number in range(1, len(names))]
    page = await make_objective(setup, {"name": names[0], "tasks": steps(*names, after=chain)})
    found = await setup.json(page)
    assert len(found["graph"]["edges"]) == len(names) - 1
    response = await (await setup.sign_in()).get(page)
    assert problems_of(response.body.decode()) == []
