"""A corpus of attacks, in every place that a page shows, in a browser with a live detector."""

import base64
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page
from tests.browser.conftest import Browser, DemoGateway, OpenBrowser, run_gateway
from tests.browser.hostile_gateway import FAILS
from tests.dashboard.test_untrusted_content import CORPUS

# What attacks call leaves a mark. So does what the policy of the page stops: it should not be
# there at all. `isTrusted` events of a person are made for everything that could listen to them.
DETECTOR = """
window.ran = [];
for (const name of ["alert", "confirm", "prompt", "msgbox"]) {
  window[name] = (...given) => { window.ran.push(`${name}(${given})`); };
}
document.addEventListener("securitypolicyviolation", (event) => {
  window.ran.push(`policy: ${event.violatedDirective} ${event.sample} ${event.blockedURI}`);
});
"""
FOREIGN_MARKUP = """() => {
  const found = [];
  const own = (one) => one.src && new URL(one.src).pathname.startsWith("/dashboard/static/");
  for (const one of document.querySelectorAll("script")) {
    if (!own(one)) found.push(one.outerHTML);
  }
  const elements = "iframe, object, embed, base, math, video, body body";
  for (const one of document.querySelectorAll(elements)) found.push(one.outerHTML);
  for (const one of document.querySelectorAll("*")) {
    for (const { name, value } of one.attributes) {
      if (/^(on|hx-on|style$|srcdoc$|formaction$)/.test(name)) found.push(`${name}=${value}`);
      if (/^(href|src|action|xlink:href)$/.test(name) && !one.closest("svg.sprite, svg.icon")) {
        const { protocol } = new URL(value, location.href);
        if (!["http:", "https:", "mailto:"].includes(protocol)) found.push(`${name}=${value}`);
      }
    }
  }
  return found;
}"""
# Not `wait_for_function`: that evaluates text within the page, which its policy forbids.
WAIT_RAN = """(count) => new Promise((done) => {
  const look = () => window.ran.length < count ? setTimeout(look, 10) : done(window.ran);
  look();
})"""
LOAD_IMAGES = """() => Promise.all([...document.images].map((one) => {
  one.loading = "eager";
  return one.complete || new Promise((done) => {
    one.addEventListener("load", done);
    one.addEventListener("error", done);
  });
}))"""
PROVOKE = """() => {
  for (const one of document.querySelectorAll("main *")) {
    for (const type of ["mouseover", "focus", "animationstart", "toggle", "error", "load"]) {
      one.dispatchEvent(new Event(type));
    }
  }
}"""

INPUT = {"all": CORPUS}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoGateway]:
    folder = tmp_path_factory.mktemp("hostile")
    corpus = folder / "corpus.json"
    corpus.write_text(json.dumps(CORPUS), encoding="utf-8")
    script = str(Path(__file__).with_name("hostile_gateway.py"))
    with run_gateway(
        folder, lambda port, data: [sys.executable, script, port, data, str(corpus)]
    ) as gateway:
        yield gateway


def test_the_detector_fires_when_a_script_runs(browser: Browser, hostile: DemoGateway) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.add_init_script(DETECTOR)
    page.goto(f"{hostile.address}/healthz")
    page.set_content("<img src=x onerror=alert(1)><svg onload=alert(2)>")
    assert len(page.evaluate(WAIT_RAN, 2)) == 2
    # And where the policy stops it, too.
    page.goto(f"{hostile.address}/dashboard")
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=alert(1)>')")
    [stopped] = page.evaluate(WAIT_RAN, 1)
    assert stopped.startswith("policy: script-src")
    assert page.evaluate(FOREIGN_MARKUP) == ["onerror=alert(1)"]
    context.close()


def test_the_corpus_is_large_and_has_no_vector_twice() -> None:
    assert len(CORPUS) >= 60
    assert len(set(CORPUS)) == len(CORPUS)


def test_nothing_that_strangers_write_runs(hostile: DemoGateway, visit: OpenBrowser) -> None:
    seen = visit(hostile)
    page = seen.page
    page.add_init_script(DETECTOR)
    foreign: list[str] = []
    page.on(
        "request",
        lambda one: None if one.url.startswith(hostile.address) else foreign.append(one.url),
    )
    # All of it in one message; each by itself, so that no attack is within the text of another;
    # and as the reason of a failure.
    texts = ["\n\n".join(CORPUS), *CORPUS]
    tasks = [hostile.send(text, "default") for text in texts]
    failed = [
        hostile.request("/dashboard/agents/default/send", {"text": text, "context": FAILS})["id"]
        for text in texts
    ]
    for task in tasks:
        hostile.wait(lambda one: one["canAnswer"], f"/dashboard/tasks/{task}")
    for task in failed:
        hostile.wait(lambda one: one["canRetry"], f"/dashboard/tasks/{task}")
    wire = hostile.send_over_http(texts[0], "default")
    files = [
        {"name": text, "type": "text/plain", "content": base64.b64encode(text.encode()).decode()}
        for text in CORPUS
    ]
    sent = {"text": "files", "files": json.dumps(files)}
    with_files = hostile.request("/dashboard/agents/default/send", sent)["id"]
    hostile.wait(lambda one: one["canAnswer"], f"/dashboard/tasks/{with_files}")
    objective = make_objective(hostile)
    call = hostile.request("/tools/agent_call", {"agent": "main", "skill": "x", "input": INPUT})
    debate = {
        "topic": texts[0],
        "proposer": {"agent": "main", "skill": "propose"},
        "critics": [{"agent": "main", "perspective": CORPUS[0][:100]}],
        "resolver": {"agent": "main", "skill": "judge"},
        "input": INPUT,
        "wait": False,
    }
    debated = hostile.request("/tools/debate_call", debate)
    assert "correlationId" in call, call
    assert "correlationId" in debated, debated
    hostile.request("/dashboard/remote/odd/check", {})
    paths = [
        "/dashboard/objectives",
        "/dashboard/objectives?view=tree",
        objective,
        f"{objective}?view=board",
        f"{objective}/edit/{objective.rpartition('/')[2]}",
        "/dashboard/calls",
        f"/dashboard/calls/{call['correlationId']}",
        f"/dashboard/calls/{debated['correlationId']}",
        "/dashboard/remote",
        "/dashboard/deliveries",
        "/dashboard/system",
        f"/dashboard/tasks/{with_files}",
        "/dashboard",
        "/dashboard/tasks",
        "/dashboard/tasks?q=%3Cscript%3Ealert(1)%3C%2Fscript%3E&caller=%22%3E%3Cimg%20src=x%20onerror=alert(1)%3E",
        "/dashboard/agents",
        "/dashboard/agents/default",
        f"/dashboard/agents/default?context={FAILS}",
        "/dashboard/audit",
        "/dashboard/callers",
        f"/dashboard/tasks/{wire}/wire",
        "/dashboard/tasks/%3Cimg%20src=x%20onerror=alert(1)%3E",
        *[f"/dashboard/tasks/{task}" for task in (*tasks, failed[0])],
    ]
    for path in paths:
        seen.open(path).wait_for_selector("main")
        check(page, path)
    # In the panel beside a list, where a part of a page is put in by a script.
    seen.open("/dashboard/tasks").locator(".peek-button").first.click()
    page.wait_for_selector("#peek:not([hidden]) article.task")
    check(page, "peek")
    assert foreign == []


def make_objective(hostile: DemoGateway) -> str:
    """An objective with names and descriptions of the corpus; the address of its page."""
    names = [text for text in CORPUS if text.isprintable() and len(text) < 200]
    body = {"name": names[0], "description": "\n".join(names)}
    made = hostile.request("/operator/objectives", body)["id"]
    steps = [{"name": text, "description": text, "metadata": {"agent": "main"}} for text in names]
    plans = [{"name": names[1], "description": names[2], "tasks": steps}]
    hostile.request(f"/operator/objectives/{made}/plans", {"plans": plans})
    hostile.request(f"/operator/objectives/{made}/run", {})
    return f"/dashboard/objectives/{made}"


def check(page: Page, place: str) -> None:
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    page.evaluate(PROVOKE)
    page.evaluate(LOAD_IMAGES)
    assert page.evaluate("window.ran") == [], place
    assert page.evaluate(FOREIGN_MARKUP) == [], place
