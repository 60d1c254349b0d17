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
    for other in (f"/dashboard/tasks/{step['task']}", "/dashboard/tasks"):
        html = (await browser.get(other)).body.decode()
        assert "Which <strong>colour</strong>?" in html
        assert "**colour**?" not in html.partition('id="events"')[0]

    assert (await browser.act(f"{page}/answer", step=step["id"], text=" ")).status == 400
    done = await browser.act(f"{page}/answer", step=step["id"], text="green")
    assert done.status == 200, done.body
    again = await setup.agent.next_run()
    assert again.turn.body == "green"
    assert (await setup.json(page))["waiting"] == []
    await setup.finish(Reply.of_text("It is green."), run=again)
    await until(setup, page, lambda one: one["objective"]["status"] == "completed")


async def test_the_command_of_a_step_sends_it_to_the_agent_that_had_it(
    open_dashboard: OpenDashboard,
) -> None:
    setup = await open_dashboard(
        {
            "opt.enabled": True,
            "agents.painter.adapter": "echo",
            "channels.a2a.accounts.painter.defaultAgentId": "painter",
        }
    )
    [step] = steps("Paint")
    page = await make_objective(
        setup, {"name": "One", "tasks": [step | {"metadata": {"agent": "painter"}}]}
    )
    assert (await (await setup.sign_in()).act(f"{page}/run")).status == 200
    found = await until(setup, page, lambda one: one["objective"]["status"] == "completed")
    task = found["objective"]["plans"][0]["tasks"][0]["a2aTaskId"]
    command = (await setup.json(f"/dashboard/tasks/{task}"))["commands"]["cli"]
    assert "/agents/painter " in command
    assert command.endswith("This is a step of: A fence'")


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
    setup = await open_dashboard({"opt.enabled": True, "opt.maxTasksPerPlan": 100})
    names = [text for text in CORPUS if text.isprintable()]
    chain = [(number, number - 1) for number in range(1, len(names))]
    page = await make_objective(setup, {"name": names[0], "tasks": steps(*names, after=chain)})
    found = await setup.json(page)
    assert len(found["graph"]["edges"]) == len(names) - 1
    response = await (await setup.sign_in()).get(page)
    assert problems_of(response.body.decode()) == []


# -------------------------------------------------------------------- board and tree


async def test_objectives_are_on_a_board_by_status_and_in_a_tree(
    open_dashboard: OpenDashboard,
) -> None:
    setup = await open_dashboard({"opt.enabled": True})
    await post(setup, "/operator/objectives", {"name": "A shed"})
    page = await make_objective(setup, {"name": "One", "tasks": steps("Dig", "Paint")})
    await post(setup, f"{page.replace('/dashboard', '/operator')}/run", {})
    await setup.agent.next_run()
    board = await until(
        setup, "/dashboard/objectives", lambda one: bool(one["columns"][1]["objectives"])
    )
    shown = {one["label"]: [each["name"] for each in one["objectives"]] for one in board["columns"]}
    assert (shown["Planned"], shown["Working"]) == (["A shed"], ["A fence"])
    assert [one["totalSize"] for one in board["columns"]] == [1, 1, 0, 0, 0]
    tree = await setup.json("/dashboard/objectives?view=tree")
    fence = next(one for one in tree["objectives"] if one["name"] == "A fence")
    assert [one["name"] for one in fence["plans"][0]["tasks"]] == ["Dig", "Paint"]
    browser = await setup.sign_in()
    html = (await browser.get("/dashboard/objectives?view=tree")).body.decode()
    assert html.index("A fence") < html.index("Dig") < html.index("A shed")
    refused = await setup.program.get("/dashboard/objectives?view=list")
    assert refused.status == 400
    assert b"must be one of board, tree" in refused.body


async def test_the_steps_of_an_objective_are_on_a_board(open_dashboard: OpenDashboard) -> None:
    setup = await open_dashboard({"opt.enabled": True})
    tasks = steps("Dig", "Paint", after=[(1, 0)])
    page = await make_objective(setup, {"name": "One", "tasks": tasks})
    browser = await setup.sign_in()
    assert (await browser.act(f"{page}/run")).status == 200
    await setup.finish(InputRequired("How deep?"))
    await until(setup, page, lambda one: bool(one["waiting"]))
    found = await setup.json(f"{page}?view=board")
    shown = {one["label"]: [each["name"] for each in one["steps"]] for one in found["columns"]}
    assert (shown["To do"], shown["Waiting on you"]) == (["Paint"], ["Dig"])
    assert found["columns"][2]["steps"][0]["said"] == "How deep?"
    html = (await browser.get(f"{page}?view=board")).body.decode()
    assert 'class="board"' in html


# -------------------------------------------------------------------- editing


async def open_form(setup: Setup, page: str, item: str) -> Json:
    return await setup.json(f"{page}/edit/{item}")


async def find_step(setup: Setup, page: str, name: str) -> Json:
    plans = (await setup.json(page))["objective"]["plans"]
    return next(one for plan in plans for one in plan["tasks"] if one["name"] == name)


async def test_objective_plan_and_step_are_edited(open_dashboard: OpenDashboard) -> None:
    setup = await open_dashboard({"opt.enabled": True})
    tasks = steps("Dig", "Paint", "Nail", after=[(1, 0)])
    page = await make_objective(setup, {"name": "One", "tasks": tasks})
    browser = await setup.sign_in()
    objective = page.rpartition("/")[2]
    plan = (await setup.json(page))["objective"]["plans"][0]["id"]
    paint = await find_step(setup, page, "Paint")
    assert f'hx-get="{page}/edit/{paint["id"]}"' in (await browser.get(page)).body.decode()
    for item, changes in {
        objective: {"name": "A green fence", "description": "Two metres\r\nhigh"},
        plan: {"name": "First"},
        paint["id"]: {"description": "Green, twice", "agent": "main", "after": "1, 3"},
    }.items():
        form = await open_form(setup, page, item)
        saved = await browser.act(
            f"{page}/edit/{item}", version=form["version"], **form["content"] | changes
        )
        assert saved.status == 200, saved.body
    found = (await setup.json(page))["objective"]
    assert (found["name"], found["description"]) == ("A green fence", "Two metres\nhigh")
    assert found["plans"][0]["name"] == "First"
    paint = await find_step(setup, page, "Paint")
    numbers = (await setup.json(page))["numbers"]
    assert (paint["description"], paint["metadata"]["agent"]) == ("Green, twice", "main")
    assert [numbers[one] for one in paint["dependencies"]] == ["1", "3"]
    assert (await open_form(setup, page, paint["id"]))["content"]["after"] == "1, 3"


async def test_a_conflict_shows_both_versions_and_saves_nothing(
    open_dashboard: OpenDashboard,
) -> None:
    setup = await open_dashboard({"opt.enabled": True})
    page = await make_objective(setup, {"name": "One", "tasks": steps("Paint")})
    browser, other = await setup.sign_in(), await setup.sign_in()
    step = (await find_step(setup, page, "Paint"))["id"]
    address = f"{page}/edit/{step}"
    form = await open_form(setup, page, step)
    mine = {**form["content"], "description": "red <b>paint</b>"}
    theirs = {**form["content"], "description": "blue paint"}
    assert (await other.act(address, version=form["version"], **theirs)).status == 200

    conflict = await browser.act(address, version=form["version"], **mine)
    html = conflict.body.decode()
    assert conflict.status == 409
    assert conflict.headers["hx-retarget"] == "#edit"
    assert "blue paint" in html
    assert "red &lt;b&gt;paint&lt;/b&gt;" in html
    assert problems_of(html) == []
    assert (await find_step(setup, page, "Paint"))["description"] == "blue paint"

    # The form that came back is for what is there now: saving it is a choice.
    newest = html.partition('name="version" value="')[2].partition('"')[0]
    assert (await browser.act(address, version=newest, **mine)).status == 200
    assert (await find_step(setup, page, "Paint"))["description"] == "red <b>paint</b>"


async def test_programs_get_the_conflict_with_what_is_there_now(
    open_dashboard: OpenDashboard,
) -> None:
    setup = await open_dashboard({"opt.enabled": True})
    page = await make_objective(setup, {"name": "One", "tasks": steps("Paint")})
    objective = page.rpartition("/")[2]
    body = msgspec.json.encode({"name": "A wall", "version": "old"})
    length = str(len(body))
    refused = await setup.program.post(
        f"{page}/edit/{objective}", body, content_length=length, accept="application/json"
    )
    assert refused.status == 409
    error = refused.json["error"]
    assert (error["code"], error["details"]["content"]["name"]) == ("changed-meanwhile", "A fence")
    assert error["details"]["version"] == (await open_form(setup, page, objective))["version"]


async def test_progress_is_no_conflict(open_dashboard: OpenDashboard) -> None:
    setup = await open_dashboard({"opt.enabled": True})
    page = await make_objective(setup, {"name": "One", "tasks": steps("Dig", "Paint")})
    browser = await setup.sign_in()
    step = (await find_step(setup, page, "Paint"))["id"]
    form = await open_form(setup, page, step)
    assert (await browser.act(f"{page}/run")).status == 200
    await setup.finish(Reply.of_text("dug"))
    await until(setup, page, lambda one: one["objective"]["progress"]["done"] == 1)
    given = {**form["content"], "name": "Paint it"}
    saved = await browser.act(f"{page}/edit/{step}", version=form["version"], **given)
    assert saved.status == 200, saved.body
    assert (await find_step(setup, page, "Paint it"))["id"] == step


async def test_what_cannot_be_saved_says_why(open_dashboard: OpenDashboard) -> None:
    setup = await open_dashboard({"opt.enabled": True})
    tasks = steps("Dig", "Paint", after=[(1, 0)])
    page = await make_objective(setup, {"name": "One", "tasks": tasks})
    browser = await setup.sign_in()
    dig = (await find_step(setup, page, "Dig"))["id"]
    form = await open_form(setup, page, dig)

    async def refusal(**changes: str) -> str:
        given = {**form["content"], **changes}
        refused = await browser.act(f"{page}/edit/{dig}", version=form["version"], **given)
        assert 400 <= refused.status < 500
        return refused.body.decode()

    assert "must not be only blanks" in await refusal(name=" ")
    assert "there is no step 7; the steps are 1, 2" in await refusal(after="7")
    assert "lead in a circle" in await refusal(after="2")
    assert (await browser.act(f"{page}/edit/task-none", name="x")).status == 404
    assert (await browser.act(f"{page}/cancel")).status == 200
    assert "what has ended is not edited" in await refusal(name="Dig deeper")


async def test_who_may_only_look_gets_no_form_and_cannot_save(
    open_dashboard: OpenDashboard,
) -> None:
    setup = await open_dashboard({"opt.enabled": True, "dashboard.readOnly": True})
    page = await make_objective(setup, {"name": "One", "tasks": steps("Paint")})
    objective = page.rpartition("/")[2]
    browser = await setup.sign_in()
    assert "/edit/" not in (await browser.get(page)).body.decode()
    assert "You may only look" in (await browser.get(f"{page}/edit/{objective}")).body.decode()
    form = await open_form(setup, page, objective)
    refused = await browser.act(f"{page}/edit/{objective}", version=form["version"], name="A wall")
    assert refused.status == 403
    assert (await setup.json(page))["objective"]["name"] == "A fence"


async def test_edits_are_in_the_audit_log(open_dashboard: OpenDashboard) -> None:
    setup = await open_dashboard({"opt.enabled": True})
    page = await make_objective(setup, {"name": "One", "tasks": steps("Paint")})
    objective = page.rpartition("/")[2]
    browser = await setup.sign_in()
    form = await open_form(setup, page, objective)
    assert (await browser.act(f"{page}/edit/{objective}", version="old", name="No")).status == 409
    version = form["version"]
    assert (await browser.act(f"{page}/edit/{objective}", version=version, name="A")).status == 200

    async def look() -> Json | None:
        entries = (await setup.json("/dashboard/audit"))["entries"]
        found = [one for one in entries if one.get("action") == "dashboard/edit objective"]
        return found if len(found) == 2 else None

    done, refused = await eventually_found(look)
    assert (done["target"], done["outcome"]) == (objective, "ok")
    assert refused["outcome"] == "refused"


async def test_an_objective_is_paused_and_resumed_and_its_open_page_shows_it(
    open_dashboard: OpenDashboard,
) -> None:
    setup = await open_dashboard({"opt.enabled": True})
    page = await make_objective(setup, {"name": "One", "tasks": steps("Dig", "Paint")})
    browser = await setup.sign_in()
    async with setup.follow(page) as events:
        for action, mode in (("run", "running"), ("pause", "paused"), ("resume", "running")):
            assert (await browser.act(f"{page}/{action}")).status == 200
            while True:
                shown = msgspec.json.decode((await events.next())[1])["objective"]
                if shown.get("execution") == mode:
                    break
