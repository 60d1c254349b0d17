"""Every page in a real browser: no errors, accessible, readable on a phone, in both themes."""

from typing import Any

import pytest
from playwright.sync_api import Page
from tests.browser.conftest import AXE, Browser, DemoGateway, OpenBrowser, TakePicture

PAGES = {
    "now": "/dashboard",
    "tasks": "/dashboard/tasks",
    "task": "two sources",
    "question": "Where is my order?",
    "approval": "Deploy the new shop.",
    "failed": "weather tomorrow",
    "call": "Write a letter",
    "wire": "",
    "wire-rebuilt": "",
    "calls": "/dashboard/calls",
    "debate": "",
    "step": "",
    "objectives": "/dashboard/objectives",
    "tree": "/dashboard/objectives?view=tree",
    "objective": "",
    "board": "",
    "edit": "",
    "deliveries": "/dashboard/deliveries",
    "callers": "/dashboard/callers",
    "audit": "/dashboard/audit",
    "system": "/dashboard/system",
    "agents": "/dashboard/agents",
    "agent": "/dashboard/agents/writer",
    "chat": "",
    "remote": "/dashboard/remote",
    "search": "/dashboard/tasks?q=tides&tab=completed",
    "nothing": "/dashboard/tasks?q=nothing-like-this",
    "missing": "/dashboard/tasks/there-is-no-such-task",
}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"color_scheme": "light", "width": 375},
}


def address_of(gateway: DemoGateway, page: str) -> str:
    if page in ("objective", "board", "edit"):
        found = gateway.request("/dashboard/objectives")["objectives"]
        wanted = next(one["id"] for one in found if one["name"] == "A trip to the islands")
        tail = {"objective": "", "board": "?view=board", "edit": f"/edit/{wanted}"}[page]
        return f"/dashboard/objectives/{wanted}{tail}"
    if page in ("debate", "step"):
        calls = gateway.request("/dashboard/calls")["calls"]
        wanted = next(one["id"] for one in calls if one["isDebate"] == (page == "debate"))
        return f"/dashboard/calls/{wanted}"
    if page == "wire":
        return f"/dashboard/tasks/{gateway.send_over_http('What is the weather in Rome?')}/wire"
    if page == "chat":
        sent = gateway.request(
            "/dashboard/agents/support/send", {"text": "Where is my order?", "chat": "yes"}
        )
        gateway.wait(lambda one: one["canAnswer"], f"/dashboard/tasks/{sent['id']}")
        return sent["location"].removesuffix("#chat")
    if page == "wire-rebuilt":
        return f"/dashboard/tasks/{gateway.find_task('two sources')}/wire?version=0.3"
    place = PAGES[page]
    is_path = place.startswith("/")
    return place if is_path else f"/dashboard/tasks/{gateway.find_task(place)}"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_accessible_and_fits_in_every_look(
    demo: DemoGateway, visit: OpenBrowser, take_picture: TakePicture, page: str
) -> None:
    address = address_of(demo, page)
    problems: list[str] = []
    for look, options in LOOKS.items():
        opened = visit(demo, **options).open(address)
        opened.wait_for_selector("main")
        take_picture(opened, f"{page}-{look}")
        # No line of the page is wider than the window.
        if opened.evaluate("document.documentElement.scrollWidth > innerWidth"):
            problems.append(f"{look}: too wide")
        # As a script of the tests: the policy of the page would not let it in as one of the page.
        opened.evaluate(AXE.read_text(encoding="utf-8"))
        found = opened.evaluate("axe.run(document, {resultTypes: ['violations']})")
        problems += [
            f"{look}: {one['id']}: {one['nodes'][0]['html'][:200]}"
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        ]
    assert problems == []


@pytest.mark.parametrize("look", LOOKS)
def test_what_lies_over_a_page_and_the_sign_in_are_accessible(
    demo: DemoGateway,
    browser: Browser,
    visit: OpenBrowser,
    take_picture: TakePicture,
    look: str,
) -> None:
    options = dict(LOOKS[look])
    opened = visit(demo, **options).open("/dashboard/tasks?agent=researcher")
    problems = list[str]()

    def check(page: Page, place: str) -> None:
        take_picture(page, f"{place}-{look}")
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            problems.append(f"{place}: too wide")
        page.evaluate(AXE.read_text(encoding="utf-8"))
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        problems.extend(
            f"{place}: {one['id']}: {one['nodes'][0]['html'][:200]}"
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        )

    opened.locator("tr:has-text('two sources') .peek-button").first.click()
    opened.wait_for_selector("#peek:not([hidden]) article.task")
    check(opened, "peek")
    opened.keyboard.press("Escape")
    opened.keyboard.press("?")
    opened.wait_for_selector("dialog[open]")
    check(opened, "keys")
    opened.goto(f"{demo.address}/dashboard/remote")
    opened.locator("[id='x-print-shop']").get_by_role("button", name="Ask for its card").click()
    opened.wait_for_selector(".notice")
    check(opened, "notice")
    size = {"width": options.pop("width", 1360), "height": 850}
    context = browser.new_context(viewport=size, **options)
    page = context.new_page()
    page.goto(f"{demo.address}/dashboard")
    check(page, "sign-in")
    page.fill("#token", "wrong")
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_selector("text=these credentials are not valid here")
    check(page, "sign-in-refused")
    context.close()
    assert problems == []


def test_pages_link_to_each_other_and_back_works(demo: DemoGateway, visit: OpenBrowser) -> None:
    seen = visit(demo)
    page = seen.open("/dashboard")
    page.get_by_role("link", name="Tasks", exact=True).click()
    page.get_by_role("link", name="failed").click()
    assert page.url.endswith("/dashboard/tasks?tab=failed")
    page.get_by_role("link", name="What is the weather tomorrow?").first.click()
    page.wait_for_selector("article.task")
    assert "503" in page.inner_text(".headline")
    page.go_back()
    page.wait_for_url("**/dashboard/tasks?tab=failed")
    page.go_back()
    page.wait_for_url("**/dashboard/tasks")


# The lines of text in each row that lie on each other, without what is cut off and so not seen.
COVERED = """[...document.querySelectorAll("table.rows tr")].flatMap((row) => {
  const lines = [...row.cells].flatMap((cell) => {
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), found = [];
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
      const range = document.createRange();
      range.selectNodeContents(text);
      for (const box of range.getClientRects()) {
        let { left, top, right, bottom } = box;
        for (let one = text.parentElement; one !== row; one = one.parentElement) {
          if (getComputedStyle(one).overflow === "visible") continue;
          const edge = one.getBoundingClientRect();
          [left, top] = [Math.max(left, edge.left), Math.max(top, edge.top)];
          [right, bottom] = [Math.min(right, edge.right), Math.min(bottom, edge.bottom)];
        }
        if (right - left > 1 && bottom - top > 4) found.push({ cell, left, top, right, bottom });
      }
    }
    return found;
  });
  return lines.flatMap((a, index) => lines.slice(index + 1)
    .filter((b) => a.cell !== b.cell && a.left < b.right - 1 && b.left < a.right - 1
      && a.top < b.bottom - 4 && b.top < a.bottom - 4)
    .map((b) => `${a.cell.innerText} | ${b.cell.innerText}`));
})"""


CUT_OFF = """[...document.querySelectorAll("table.rows td")]
  .filter((cell) => cell.scrollWidth > cell.clientWidth + 1).map((cell) => cell.innerText)"""
LONG = "a_name_that_is_so_long_that_no_phone_has_a_line_for_it"
WITH_TABLES = ("objective", "deliveries", "calls", "callers", "audit", "remote", "tasks", "system")


@pytest.fixture(scope="session")
def long_names(demo: DemoGateway) -> None:
    """A call and a token whose names need more than one line of a phone."""
    asked = {"agent": "researcher", "skill": LONG, "input": {}, "timeoutSeconds": 3600}
    demo.request("/tools/agent_call", asked)
    demo.request("/dashboard/callers", {"name": LONG, "scope": "tools"})


@pytest.mark.usefixtures("long_names")
@pytest.mark.parametrize("width", [375, 320])
@pytest.mark.parametrize("page", WITH_TABLES)
def test_on_a_phone_nothing_covers_a_text_and_the_menu_shows_the_page(
    demo: DemoGateway, visit: OpenBrowser, page: str, width: int
) -> None:
    opened = visit(demo, width=width).open(address_of(demo, page))
    opened.wait_for_selector("main")
    assert opened.evaluate(COVERED) == []
    assert opened.evaluate(CUT_OFF) == []
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    right, left = opened.evaluate(
        "[...document.querySelectorAll('.menu [aria-current]')]"
        ".flatMap((one) => [one.getBoundingClientRect().right, one.getBoundingClientRect().left])"
    )
    assert 0 <= left < right <= width


def test_views_of_objectives_are_addresses(demo: DemoGateway, visit: OpenBrowser) -> None:
    page = visit(demo).open("/dashboard/objectives")
    page.get_by_role("link", name="Tree", exact=True).click()
    page.wait_for_url("**/dashboard/objectives?view=tree")
    page.get_by_role("link", name="A trip to the islands").click()
    page.get_by_role("link", name="Board", exact=True).click()
    page.wait_for_selector(".board article:has-text('Pack the boat')")
    address = page.url
    page.go_back()
    page.wait_for_selector("table.rows")
    page.go_back()
    page.wait_for_url("**/dashboard/objectives?view=tree")
    # A bookmark leads to the same.
    page.goto(address)
    page.wait_for_selector(".board article:has-text('Pack the boat')")


def test_deadlines_count_down(demo: DemoGateway, visit: OpenBrowser) -> None:
    asked = {"agent": "deployer", "skill": "deploy", "input": {}, "timeoutSeconds": 3600}
    call = demo.request("/tools/agent_call", asked)["correlationId"]
    page = visit(demo).open(f"/dashboard/calls/{call}")
    page.wait_for_selector(".countdown:text-matches('^59 min left$|^[0-9]+:[0-5][0-9] left$')")
    demo.request(
        f"/dashboard/tasks/{demo.request(f'/dashboard/calls/{call}')['call']['task']}/cancel", {}
    )
    page.wait_for_selector(".task-head .s-failed")


def test_keys_search_walk_and_look(demo: DemoGateway, visit: OpenBrowser) -> None:
    page = visit(demo).open("/dashboard/tasks")
    page.wait_for_selector("tr[data-row]")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    chosen = page.locator("tr.chosen")
    assert chosen.count() == 1
    assert chosen.get_attribute("id") == page.locator("tr[data-row]").first.get_attribute("id")
    page.keyboard.press("o")
    page.wait_for_selector("#peek:not([hidden]) article.task")
    page.keyboard.press("Escape")
    page.wait_for_selector("#peek", state="hidden")
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="hidden")
    page.keyboard.press("/")
    page.keyboard.type("tides")
    page.keyboard.press("Enter")
    page.wait_for_url("**/dashboard/tasks?q=tides")
    page.wait_for_selector("tr[data-row]")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("article.task h1")
    for key, place in (("c", "/calls"), ("o", "/objectives"), ("a", "/agents"), ("n", "")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(f"**/dashboard{place}")
        page.wait_for_selector("main")


def test_theme_and_times_are_kept(demo: DemoGateway, visit: OpenBrowser) -> None:
    page = visit(demo, color_scheme="light").open("/dashboard/tasks")
    page.wait_for_selector("text=ago")
    page.click("#theme")
    page.click("#theme")
    page.click("#zone")
    page.reload()
    page.wait_for_selector("td time:text('UTC')")
    assert page.get_attribute("html", "data-theme") == "dark"


def test_a_timeline_is_zoomed(demo: DemoGateway, visit: OpenBrowser) -> None:
    page = visit(demo).open(address_of(demo, "task"))
    bar = page.locator("[data-timeline] .bar").first
    box = bar.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 5)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 5)
    page.mouse.up()
    shown = [float(one) for one in (bar.get_attribute("viewBox") or "").split()]
    assert shown[0] == pytest.approx(250, abs=5)
    assert shown[2] == pytest.approx(250, abs=5)
    whole = page.get_by_role("button", name="Show all")
    assert whole.is_visible()
    bar.dblclick()
    assert bar.get_attribute("viewBox") == "0 0 1000 14"
    assert not whole.is_visible()
