"""What a person does in a browser happens, and the page shows it without being loaded again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.browser.conftest import DEADLINE_S, Browser, DemoGateway, OpenBrowser
from tests.dashboard.test_safety import create_token

from openclaw_a2a.auth.principal import Scope

MARK = "window.isSame = true"


def test_a_page_changes_without_being_loaded_again(demo: DemoGateway, visit: OpenBrowser) -> None:
    page = visit(demo).open("/dashboard/tasks")
    page.wait_for_selector("tr[data-row]")
    page.evaluate(MARK)
    demo.send("What is the weather in Oslo?")
    page.wait_for_selector("tr:has-text('in Oslo') >> text=completed")
    assert page.evaluate("window.isSame") is True


def test_an_approval_is_given(demo: DemoGateway, visit: OpenBrowser) -> None:
    task = demo.send("Deploy the blog.", "deployer")
    demo.wait(lambda one: one["approval"] is not None, f"/dashboard/tasks/{task}")
    page = visit(demo).open("/dashboard")
    page.evaluate(MARK)
    asked = page.locator(f"article:has(a[href='/dashboard/tasks/{task}']):has-text('decision')")
    asked.get_by_role("button", name="Allow once").click()
    page.wait_for_selector("text=It was allowed.")
    asked.wait_for(state="detached")
    page.wait_for_selector(f"[id='c-{task}'].s-completed")
    assert page.evaluate("window.isSame") is True
    done = demo.request(f"/dashboard/tasks/{task}")
    assert done["conversation"][-1]["parts"][0]["text"] == "Deployed."


def test_a_question_is_answered_while_the_page_goes_on(
    demo: DemoGateway, visit: OpenBrowser
) -> None:
    task = demo.send("Where is my parcel?", "support")
    demo.wait(lambda one: one["canAnswer"], f"/dashboard/tasks/{task}")
    page = visit(demo).open("/dashboard")
    card = page.locator(f"[id='c-{task}']")
    box = card.get_by_placeholder("Answer for the caller")
    box.fill("10")
    # The page changes around the box; what was typed stays.
    demo.send("What is the weather in Turin?")
    page.wait_for_selector("text=in Turin")
    assert box.input_value() == "10"
    box.press_sequentially("41")
    card.get_by_role("button", name="Answer").click()
    page.wait_for_selector("text=The answer was sent.")
    page.wait_for_selector(f"[id='c-{task}'].s-completed")
    found = demo.request(f"/dashboard/tasks/{task}")
    assert found["conversation"][-1]["parts"][0]["text"] == "Order 1041 leaves tomorrow."


def test_a_task_is_canceled_and_done_again(demo: DemoGateway, visit: OpenBrowser) -> None:
    task = demo.send("Deploy the wiki.", "deployer")
    page = visit(demo).open(f"/dashboard/tasks/{task}")
    # A click on a page that is just being replaced reaches nothing.
    page.wait_for_selector(".headline:has-text('Waits for your decision')")
    page.get_by_role("button", name="Cancel task").click()
    page.wait_for_selector("text=The task was canceled.")
    page.wait_for_selector(".task-head >> text=canceled")
    page.get_by_role("button", name="Do it again").click()
    page.wait_for_url(lambda url: "/dashboard/tasks/" in url and task not in url)
    page.wait_for_selector(".headline:has-text('Waits for your decision')")
    page.get_by_role("button", name="Deny").click()
    page.wait_for_selector(".task-head >> text=completed")


def test_an_agent_is_asked_and_its_answer_streams_in(demo: DemoGateway, visit: OpenBrowser) -> None:
    page = visit(demo).open("/dashboard/agents/default")
    page.get_by_placeholder("A message to Researcher").fill("And the tides in Lisbon?")
    page.get_by_role("button", name="Send").click()
    page.wait_for_url("**/dashboard/agents/default?context=*")
    page.evaluate(MARK)
    page.wait_for_selector(".said.by-agent >> text=Bay of Fundy")
    page.wait_for_selector("#chat .turn-end >> text=completed")
    assert page.evaluate("window.isSame") is True


def test_a_step_of_an_objective_is_answered(demo: DemoGateway, visit: OpenBrowser) -> None:
    made = demo.request("/operator/objectives", {"name": "Send the parcel"})
    root = f"/operator/objectives/{made['id']}"
    step = {"name": "Ask which one", "metadata": {"agent": "support"}}
    demo.request(f"{root}/plans", {"plans": [{"name": "One step", "tasks": [step]}]})
    demo.request(f"{root}/run", {})
    page = visit(demo).open(f"/dashboard/objectives/{made['id']}")
    page.evaluate(MARK)
    page.get_by_placeholder("Answer for this step").fill("1042")
    page.get_by_role("button", name="Answer").click()
    page.wait_for_selector("text=The answer was sent.")
    page.wait_for_selector(".task-head >> text=completed")
    assert page.get_by_placeholder("Answer for this step").count() == 0
    assert page.evaluate("window.isSame") is True


def make_objective(demo: DemoGateway, name: str, *steps: str, agent: str = "support") -> str:
    """An objective whose steps wait for each other; the address of its page."""
    made = demo.request("/operator/objectives", {"name": name})
    tasks = [
        {
            "name": step,
            "metadata": {"agent": agent},
            "dependencies": [f"task-{number - 1}"] if number else [],
        }
        for number, step in enumerate(steps)
    ]
    root = f"/operator/objectives/{made['id']}"
    demo.request(f"{root}/plans", {"plans": [{"name": "All of it", "tasks": tasks}]})
    return f"/dashboard/objectives/{made['id']}"


def test_an_objective_is_run_paused_resumed_and_canceled(
    demo: DemoGateway, visit: OpenBrowser
) -> None:
    address = make_objective(demo, "Find the key", "Ask which one", "Bring it")
    page = visit(demo).open(address)
    page.evaluate(MARK)
    for action, after in (("Run", "Pause"), ("Pause", "Resume"), ("Resume", "Pause")):
        page.get_by_role("button", name=action, exact=True).click()
        page.get_by_role("button", name=after, exact=True).wait_for()
    page.get_by_role("button", name="Cancel", exact=True).click()  # the question is said yes to
    page.wait_for_selector(".task-head .s-canceled")
    assert page.get_by_role("button", name="Resume").count() == 0
    assert page.evaluate("window.isSame") is True


def test_a_failed_step_is_retried(demo: DemoGateway, visit: OpenBrowser) -> None:
    address = make_objective(demo, "Ask for tomorrow", "The weather tomorrow", agent="weather")
    demo.request(address.replace("/dashboard", "/operator") + "/run", {})
    page = visit(demo).open(f"{address}?view=board")
    page.get_by_role("button", name="Retry").click()
    page.wait_for_selector("text=It is tried again.")
    demo.wait(lambda one: one["objective"]["status"] == "failed", address)


def test_a_step_is_edited_beside_the_page(demo: DemoGateway, visit: OpenBrowser) -> None:
    address = make_objective(demo, "Paint the gate", "Buy paint", "Paint")
    page = visit(demo).open(address)
    page.evaluate(MARK)
    page.get_by_role("button", name="Edit step Paint").click()
    page.get_by_label("Name").fill("Paint it twice")
    page.get_by_label("What is to be done").fill("Green, and let it dry.")
    page.get_by_label("After the steps").fill("")
    page.get_by_role("button", name="Save").click()
    page.wait_for_selector("text=The step was changed.")
    page.wait_for_selector("#peek", state="hidden")
    page.wait_for_selector("td:has-text('Paint it twice')")
    assert page.evaluate("window.isSame") is True
    step = demo.request(address)["objective"]["plans"][0]["tasks"][1]
    assert (step["description"], step["dependencies"]) == ("Green, and let it dry.", [])


@pytest.mark.parametrize("choice", ["Save mine over it", "Keep what is there"])
def test_a_conflict_shows_both_versions_and_one_is_chosen(
    demo: DemoGateway, visit: OpenBrowser, choice: str
) -> None:
    address = make_objective(demo, "Paint the door", "Paint")
    mine, theirs = visit(demo).open(address), visit(demo).open(address)
    for page in (mine, theirs):
        page.get_by_role("button", name="Edit the objective").click()
        page.get_by_label("Name").wait_for()
    theirs.get_by_label("Name").fill("Paint the door blue")
    theirs.get_by_role("button", name="Save").click()
    theirs.wait_for_selector("text=The objective was changed.")
    mine.get_by_label("Name").fill("Paint the door red")
    mine.get_by_role("button", name="Save").click()
    conflict = mine.locator(".conflict")
    conflict.get_by_text("Paint the door blue").wait_for()
    assert conflict.get_by_text("Paint the door red").count() == 1
    # Nothing is lost: what was written still stands in the form.
    assert mine.get_by_label("Name").input_value() == "Paint the door red"
    assert demo.request(address)["objective"]["name"] == "Paint the door blue"
    mine.locator(f"#edit >> text={choice}").click()
    mine.wait_for_selector("#peek", state="hidden")
    colour = "red" if choice.startswith("Save") else "blue"
    mine.wait_for_selector(f"h1:has-text('Paint the door {colour}')")
    assert demo.request(address)["objective"]["name"] == f"Paint the door {colour}"


def test_a_form_that_is_a_page_of_its_own_leads_back(demo: DemoGateway, visit: OpenBrowser) -> None:
    address = make_objective(demo, "Mow the lawn", "Mow")
    objective = address.rpartition("/")[2]
    page = visit(demo).open(f"{address}/edit/{objective}")
    page.get_by_label("Description").fill("Before noon")
    page.get_by_role("button", name="Save").click()
    page.wait_for_url(f"**{address}")
    page.wait_for_selector("text=Before noon")


def test_a_debate_grows_on_its_page(demo: DemoGateway, visit: OpenBrowser) -> None:
    debate = {
        "topic": "Which colour?",
        "proposer": {"agent": "writer", "skill": "propose"},
        "critics": [{"agent": "researcher"}],
        "resolver": {"agent": "researcher", "skill": "judge"},
        "input": {},
        "wait": False,
    }
    call = demo.request("/tools/debate_call", debate)["correlationId"]
    page = visit(demo).open(f"/dashboard/calls/{call}")
    page.evaluate(MARK)
    page.wait_for_selector("h2:has-text('Round 1')")
    page.wait_for_selector("h2:has-text('Verdict: resolved')")
    assert page.evaluate("window.isSame") is True


def test_a_delivery_is_tried_again(demo: DemoGateway, visit: OpenBrowser) -> None:
    page = visit(demo).open("/dashboard/deliveries")
    page.wait_for_selector("td:has-text('cannot be reached')")
    [before] = demo.request("/dashboard/deliveries")["deliveries"]
    page.get_by_role("button", name="Try again").click()
    page.wait_for_selector(".notice:has-text('It is tried again now.')")
    # It was tried, and nobody is there: it is given up again, with what the attempts met.
    found = demo.wait(
        lambda one: (
            one["counts"]["dead"] == 1 and one["deliveries"][0]["updatedAt"] > before["updatedAt"]
        ),
        "/dashboard/deliveries",
    )
    assert "connection refused" in found["deliveries"][0]["reason"]


def test_a_token_stays_until_it_is_copied_and_is_revoked(
    demo: DemoGateway, visit: OpenBrowser
) -> None:
    page = visit(demo, permissions=["clipboard-read", "clipboard-write"]).open("/dashboard/callers")
    page.clock.install()
    page.evaluate(MARK)
    page.get_by_label("Name").fill("shop")
    # Not for A2A: from the first such token on, callers of this machine need one too.
    page.get_by_label("For").select_option("dashboard")
    page.get_by_role("button", name="Make").click()
    notice = page.locator(".notice", has_text="which is not shown again")
    notice.wait_for()
    page.clock.fast_forward(
        600_000
    )  # nobody gets it anywhere else: it does not disappear by itself
    notice.get_by_role("button", name="Copy").click()
    notice.get_by_role("button", name="Copied").wait_for()
    token = page.evaluate("navigator.clipboard.readText()")
    assert token in notice.inner_text()
    assert token.startswith("oca_")
    notice.get_by_role("button", name="Close").click()
    assert notice.count() == 0
    row = page.locator("tr", has_text="shop").filter(has=page.get_by_role("button"))
    row.get_by_role("button", name="Revoke").click()  # the question is said yes to
    row.wait_for(state="detached")
    assert page.evaluate("window.isSame") is True


def test_a_remote_agent_is_tried(demo: DemoGateway, visit: OpenBrowser) -> None:
    page = visit(demo).open("/dashboard/remote")
    card = page.locator("[id='x-weather-office']")
    card.get_by_placeholder("Try it").fill("What is the weather in Vienna?")
    card.get_by_role("button", name="Send").click()
    card.locator(".try-answer:has-text('Sunny, 21')").wait_for()
    # The page goes on; the answer stays where it is.
    page.wait_for_selector("td:has-text('Sunny, 21')")
    assert "Sunny" in card.locator(".try-answer").inner_text()


def test_who_may_only_look_sees_everything_and_changes_nothing(
    demo: DemoGateway, browser: Browser
) -> None:
    token = create_token(demo.data.parent, "viewer", Scope.DASHBOARD)
    context = browser.new_context()
    looking = context.new_page()
    looking.goto(f"{demo.address}/dashboard")
    looking.fill("#token", token)
    looking.get_by_role("button", name="Sign in").click()
    looking.wait_for_selector("#col-waiting")
    assert looking.locator("text=read-only").count() == 1
    for path in ("/dashboard", "/dashboard/objectives", "/dashboard/deliveries"):
        looking.goto(demo.address + path)
        assert looking.locator("main form[hx-post]").count() == 0
    task = demo.find_task("Deploy the new shop.")
    # Events can be taken along by whoever may see them.
    looking.goto(f"{demo.address}/dashboard/tasks/{task}")
    assert looking.get_by_role("link", name="Events as JSONL").count() == 1
    assert looking.locator("main form[hx-post]").count() == 0
    refused = looking.evaluate(
        "async path => (await fetch(path, {method: 'POST', headers:"
        " JSON.parse(document.body.getAttribute('hx-headers:inherited'))})).status",
        f"/dashboard/tasks/{task}/cancel",
    )
    assert refused == 403
    context.close()


def test_a_request_without_the_token_of_the_page_is_refused(
    demo: DemoGateway, visit: OpenBrowser
) -> None:
    page = visit(demo).open("/dashboard")
    task = demo.find_task("Deploy the new shop.")
    send = (
        "async ([path, token]) => (await fetch(path, {method: 'POST',"
        " headers: token ? {'X-CSRF-Token': token} : {}})).status"
    )
    for token in ("", "guess"):
        assert page.evaluate(send, [f"/dashboard/tasks/{task}/cancel", token]) == 403
    assert demo.request(f"/dashboard/tasks/{task}")["task"]["state"] == "working"


def test_a_remote_agent_is_asked_now(demo: DemoGateway, visit: OpenBrowser) -> None:
    page = visit(demo).open("/dashboard/remote")
    page.wait_for_selector("[id='x-weather-office'] .s-completed:has-text('answers')")
    page.locator("[id='x-print-shop']").get_by_role("button", name="Ask for its card").click()
    page.wait_for_selector(".notice.bad:has-text('print-shop does not answer')")
    page.wait_for_selector("td:has-text('weather-office')")


def test_updates_are_paused_and_caught_up_with(demo: DemoGateway, visit: OpenBrowser) -> None:
    page = visit(demo).open("/dashboard/tasks")
    page.wait_for_selector("tr[data-row]")
    page.keyboard.press("p")
    page.wait_for_selector("#pause >> text=paused")
    with page.expect_event("console", lambda said: said.text == "held"):
        page.evaluate(
            "document.addEventListener('htmx:sse:before:message', () => console.log('held'))"
        )
        demo.send("What is the weather in Riga?")
    assert page.locator("text=in Riga").count() == 0
    page.keyboard.press("p")
    page.wait_for_selector("text=in Riga")


def test_a_browser_that_is_not_signed_in_is_led_to_the_sign_in(
    demo: DemoGateway, browser: Browser
) -> None:
    page = browser.new_context().new_page()
    page.goto(demo.address)
    assert page.url.endswith("/dashboard")
    assert page.inner_text("h1") == "Sign in"
    page.fill("#token", "wrong")
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_selector("text=these credentials are not valid here")
    link = demo.link()
    page.goto(link)
    page.wait_for_selector("#col-waiting")
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_selector("h1:text('Sign in')")
    page.goto(link)
    page.wait_for_selector("text=this link was used before")
    page.context.close()


@pytest.mark.parametrize("how", ["form", "fetch"])
def test_a_page_of_another_origin_cannot_act(
    demo: DemoGateway, visit: OpenBrowser, how: str
) -> None:
    seen = visit(demo)
    task = demo.send("Deploy the forum.", "deployer")
    demo.wait(lambda one: one["task"]["state"] == "working", f"/dashboard/tasks/{task}")
    target = f"{demo.address}/dashboard/tasks/{task}/cancel"
    page = seen.page
    # Another name of the same machine: another site for the browser.
    page.goto(demo.address.replace("127.0.0.1", "localhost") + "/healthz")
    if how == "form":
        page.evaluate(
            "target => { const form = document.createElement('form'); form.method = 'post';"
            " form.action = target; document.body.append(form); form.submit(); }",
            target,
        )
        page.wait_for_url(target)
    else:
        page.evaluate(
            "target => fetch(target, {method: 'POST', mode: 'no-cors', credentials: 'include'})"
            ".catch(() => {})",
            target,
        )
    assert demo.request(f"/dashboard/tasks/{task}")["task"]["state"] == "working"
    demo.request(f"/dashboard/tasks/{task}/cancel", {})
    seen.problems.clear()


def test_a_conversation_with_files_streams_on_the_page_of_an_agent(
    demo: DemoGateway, visit: OpenBrowser, tmp_path: Path
) -> None:
    note = tmp_path / "orders.txt"
    note.write_text("1041\n", encoding="utf-8")
    page = visit(demo).open("/dashboard/agents/support")
    page.get_by_placeholder("A message to Support").fill("Where is my order?")
    page.set_input_files("#files-support", str(note))
    page.wait_for_selector(".chosen-files:has-text('orders.txt')")
    page.get_by_role("button", name="Send").click()
    page.wait_for_url("**/dashboard/agents/support?context=*")
    page.wait_for_selector("#chat >> text=Which order do you mean")
    assert page.locator("#chat .file:has-text('orders.txt')").count() == 1
    page.evaluate(MARK)
    page.get_by_placeholder("Your answer").fill("1041")
    page.get_by_role("button", name="Answer").click()
    page.wait_for_selector("#chat >> text=Order 1041 leaves tomorrow.")
    page.get_by_placeholder("A message to Support").fill("And my other order?")
    page.get_by_role("button", name="Send").click()
    page.wait_for_selector("#chat .by-user:has-text('And my other order?')")
    # It asks again, and there is one box to answer in.
    page.get_by_placeholder("Your answer").wait_for()
    assert page.get_by_placeholder("A message to Support").count() == 0
    assert page.evaluate("window.isSame") is True


def test_the_panel_beside_a_list_follows_its_task(demo: DemoGateway, visit: OpenBrowser) -> None:
    task = demo.send("Where is my letter?", "support")
    demo.wait(lambda one: one["canAnswer"], f"/dashboard/tasks/{task}")
    page = visit(demo).open("/dashboard")
    page.evaluate(MARK)
    page.locator(f"[id='c-{task}'] .peek-button").click()
    panel = page.locator("#peek-body")
    box = panel.get_by_placeholder("Answer for the caller")
    box.fill("1042")
    # The page changes; what was typed in the panel stays.
    demo.send("What is the weather in Ghent?")
    page.wait_for_selector("#live >> text=in Ghent")
    assert box.input_value() == "1042"
    panel.get_by_role("button", name="Answer").click()
    panel.locator(".task-head .state.s-completed").wait_for()
    panel.locator("text=Order 1042 leaves tomorrow.").first.wait_for()
    assert page.evaluate("window.isSame") is True


def test_what_is_copied_runs_and_makes_a_new_task_each_time(
    demo: DemoGateway, visit: OpenBrowser
) -> None:
    text = 'What is the weather in O\'Higgins, "NEW-ID" & $HOME?'
    task = demo.send_over_http(text)
    context = {"permissions": ["clipboard-read", "clipboard-write"]}
    page = visit(demo, **context).open(f"/dashboard/tasks/{task}")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    known = {task}
    for label in ("command", "curl", "Python"):
        page.locator(".copy", has_text=label).get_by_role("button", name="Copy").click()
        page.wait_for_selector(f".copy:has-text('{label}') button:has-text('Copied')")
        copied = page.evaluate("navigator.clipboard.readText()")
        run = [sys.executable, "-c"] if label == "Python" else ["bash", "-c"]
        for _ in range(2):
            done = subprocess.run(
                [*run, copied],
                env={"PATH": path, "HOME": str(demo.data.parent), "NO_COLOR": "1"},
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
                check=False,
            )
            assert "Sunny" in done.stdout, (label, done)
            [newest, *_] = demo.request("/dashboard/tasks?agent=weather")["tasks"]
            assert newest["id"] not in known, label
            assert newest["title"] == text, label
            known.add(newest["id"])


def test_what_is_unfolded_stays_so_while_the_page_changes(
    demo: DemoGateway, visit: OpenBrowser
) -> None:
    task = demo.send("Deploy the shop again.", "deployer")
    demo.wait(lambda one: one["approval"] is not None, f"/dashboard/tasks/{task}")
    page = visit(demo).open(f"/dashboard/tasks/{task}")
    first = page.locator(".events > li > details").first
    first.locator("summary").first.click()
    page.get_by_role("button", name="Allow once").click()
    page.wait_for_selector(".task-head >> text=completed")
    assert first.get_attribute("open") is not None
