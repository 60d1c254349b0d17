"""What a person does in a browser happens, and the page shows it without being loaded again."""

import pytest
from tests.browser.conftest import Browser, DemoGateway, OpenBrowser
from tests.dashboard.test_untrusted_content import CORPUS

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
    page.wait_for_url("**/dashboard/tasks/*")
    page.evaluate(MARK)
    page.wait_for_selector(".said.by-agent >> text=Bay of Fundy")
    page.wait_for_selector(".task-head >> text=completed")
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
    page.wait_for_selector("text=Done: answer.")
    page.wait_for_selector(".task-head >> text=completed")
    assert page.get_by_placeholder("Answer for this step").count() == 0
    assert page.evaluate("window.isSame") is True


def test_a_remote_agent_is_asked_now(demo: DemoGateway, visit: OpenBrowser) -> None:
    page = visit(demo).open("/dashboard/remote")
    page.wait_for_selector("[id='x-weather-office'] .s-completed:has-text('answers')")
    page.locator("[id='x-print-shop']").get_by_role("button", name="Ask for its card").click()
    page.wait_for_selector(".notice:has-text('print-shop does not answer')")
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


def test_nothing_that_strangers_write_runs(demo: DemoGateway, visit: OpenBrowser) -> None:
    seen = visit(demo)
    page = seen.page
    ran: list[str] = []
    page.on("dialog", lambda dialog: ran.append(dialog.message))
    foreign: list[str] = []
    page.on(
        "request",
        lambda one: None if one.url.startswith(demo.address) else foreign.append(one.url),
    )
    # All of it in one message, which the answer of the agent repeats, and one by one in lists.
    tasks = [demo.send(text, "echo") for text in ("\n\n".join(CORPUS), *CORPUS)]
    for task in tasks:
        demo.wait(lambda one: one["canRetry"], f"/dashboard/tasks/{task}")
    seen.open(f"/dashboard/tasks/{tasks[0]}").wait_for_selector(".said.by-agent")
    for path in ("/dashboard", "/dashboard/tasks"):
        seen.open(path).wait_for_selector("[data-row]")
    assert ran == []
    assert foreign == []


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
