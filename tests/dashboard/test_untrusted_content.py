"""What agents and callers write can run nothing, wherever a page shows it."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from tests.conformance.protocol_clients import V1Client
from tests.conformance.scripted_agent import ScriptedAgent, Step
from tests.dashboard.conftest import OpenDashboard
from tests.server.admin.asking_agent import AskingAgent, approval

from openclaw_a2a.dashboard.markdown import render_markdown, render_markdown_line
from openclaw_a2a.model.agent_event import (
    Failed,
    InputRequired,
    Note,
    PartDelta,
    Report,
    TextDelta,
    ToolPhase,
    ToolProgress,
)
from openclaw_a2a.model.message import Part

CORPUS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    '"><script>alert(1)</script>',
    "'><img src=x onerror=alert(1)>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java\tscript:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
    "[x](vbscript:msgbox(1))",
    "![x](javascript:alert(1))",
    "![x](http://tracker.example/pixel.png)",
    '![x"onerror="alert(1)](x)',
    "<a href='javascript:alert(1)'>x</a>",
    "[x]: javascript:alert(1)\n\n[x]",
    "<javascript:alert(1)>",
    "<iframe src=javascript:alert(1)>",
    "<style>*{background:url(http://evil.example)}</style>",
    "<form action=http://evil.example><input name=csrf>",
    '<div hx-get="/dashboard/logout" hx-trigger="load">x</div>',
    "<base href=http://evil.example>",
    "</pre></details><script>alert(1)</script>",
    "{{ 7 * 7 }}{% include 'base.html' %}",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "<math><mtext></p><script>alert(1)</script>",
    "<!--<script>alert(1)//-->",
    "```html\n</code></pre><script>alert(1)</script>\n```",
    '[x](http://a.example "onmouseover=alert(1)")',
    '[x](http://a.example/"onmouseover="alert(1))',
    "data: x\n\nevent: error\ndata: <script>alert(1)</script>",
    "<scr<script>ipt>alert(1)</scr</script>ipt>",
    "</title><script>alert(1)</script>",
    "</textarea><img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "<body onload=alert(1)>",
    "<input autofocus onfocus=alert(1)>",
    "<details open ontoggle=alert(1)>x</details>",
    "<video><source onerror=alert(1)></video>",
    "<svg><animate onbegin=alert(1) attributeName=x dur=1s></svg>",
    "<svg><a xlink:href='javascript:alert(1)'><text y=20>x</text></a></svg>",
    "<svg><foreignObject><body onload=alert(1)></foreignObject></svg>",
    "<object data=javascript:alert(1)></object>",
    "<embed src='data:text/html,<script>alert(1)</script>'>",
    "<meta http-equiv=refresh content='0;url=javascript:alert(1)'>",
    "<link rel=stylesheet href=//evil.example/a.css>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'></noscript>",
    "<template><script>alert(1)</script></template>",
    "<xss style=animation-name:turn onanimationstart=alert(1)>",
    "[x](javascript&colon;alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](\x01javascript:alert(1))",
    "<a href='jav&#x09;ascript:alert(1)'>x</a>",
    "![x](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9ImFsZXJ0KDEpIi8+)",
    "[x](//evil.example)",
    '" autofocus onfocus="alert(1)',
    "' onmouseover='alert(1)",
    "` onmouseover=alert(1) `",
    '<div hx-on:click="alert(1)" hx-on::load="alert(1)">x</div>',
    '<button hx-post=/dashboard/callers hx-vals=\'{"name":"x"}\'>x</button>',
    "{{constructor.constructor('alert(1)')()}}${alert(1)}",
    "\\u003cscript\\u003ealert(1)\\u003c/script\\u003e",
    "%3Cscript%3Ealert(1)%3C/script%3E",
    "\u2028<img src=x onerror=alert(1)>\u2029",
    "<img src=x onerror=alert(1)//",
]
"""Each runs `alert`, or fetches from another host, where it is taken for a part of the page."""
ALLOWED_SCRIPTS = re.compile(r"/dashboard/static/[\w.-]+\.js\?v=[0-9a-f]{12}")
HX_ADDRESS = re.compile(r"/dashboard(/|\?|$)")


class Checker(HTMLParser):
    """Collects what could run or fetch something."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "script" and not ALLOWED_SCRIPTS.fullmatch(values.get("src", "")):
            self.problems.append(f"script {attrs}")
        if tag in ("iframe", "object", "embed", "base", "style", "math", "foreignobject"):
            self.problems.append(f"<{tag}>")
        for name, value in values.items():
            if name.startswith(("on", "hx-on")) or name == "style":
                self.problems.append(f"{tag} {name}={value}")
            if name in ("hx-get", "hx-post", "action") and not HX_ADDRESS.match(value):
                self.problems.append(f"{tag} {name}={value}")
            if name == "hx-trigger":
                self.problems.append(f"{tag} {name}={value}")
            if name == "src" and not value.startswith("/dashboard/"):
                self.problems.append(f"{tag} {name}={value}")
            if name == "href" and not re.match(r"(https?://|mailto:|/|#|$)", value):
                self.problems.append(f"{tag} {name}={value}")


def problems_of(html: str) -> list[str]:
    checker = Checker()
    checker.feed(html)
    checker.close()
    return checker.problems


@pytest.mark.parametrize("text", CORPUS)
def test_markdown_runs_and_fetches_nothing(text: str) -> None:
    for html in map(str, (render_markdown(text), render_markdown_line(text))):
        assert problems_of(html) == []
        assert "<img" not in html


def test_markdown_is_still_markdown() -> None:
    html = render_markdown(
        "# Plan\n\n1. **one**\n2. `two`\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n<b>"
    )
    for piece in ("<h1>Plan</h1>", "<strong>one</strong>", "<code>two</code>", "&lt;b"):
        assert piece in html
    # What may be wider than a page is reached by keys.
    assert '<table tabindex="0">' in html
    for code in ("```py\n1 < 2\n```", "    1 < 2"):
        assert '<pre tabindex="0"><code' in (shown := render_markdown(code))
        assert "1 &lt; 2" in shown
    assert render_markdown_line("# **one**\n\ntwo") == "# <strong>one</strong> two"
    link = render_markdown("[docs](https://docs.example/a)")
    assert 'href="https://docs.example/a"' in link
    assert 'rel="noopener noreferrer nofollow"' in link


@pytest.mark.parametrize("text", CORPUS)
async def test_pages_run_nothing_whatever_a_caller_and_an_agent_say(
    open_dashboard: OpenDashboard, text: str
) -> None:
    asking = AskingAgent(approval("a-1", command=text))
    card: dict[str, Any] = {
        "defaultAgentId": "main",
        "agentStyle": "task-generating",
        "defaultOutputModes": ["*/*"],
        "description": text,
        "skills": [{"id": "s", "name": text, "description": text, "tags": [text]}],
    }
    picture = Part.of_bytes(text.encode(), media_type="image/svg+xml", filename=f"{text}.svg")
    steps: list[Step] = [
        Note(text),
        ToolProgress(ToolPhase.START, text, text, {text: text}),
        TextDelta(text),
        PartDelta(picture),
        PartDelta(Part.of_url(f"https://a.example/{text}", filename=text)),
        PartDelta(Part.of_data({"a": text})),
        Report({"model": text}),
        InputRequired(text),
    ]
    agent = ScriptedAgent(
        script=lambda turn: [Failed(text)] if turn.context_id == "fails" else steps
    )
    setup = await open_dashboard(
        {"channels.a2a.accounts.default": card}, agent=agent, others={"other": asking}
    )
    client = V1Client(setup.anyone)
    task = await client.start(text)
    browser = await setup.sign_in()
    async with setup.follow(f"/dashboard/tasks/{task['id']}") as events:
        while '"input-required"' not in (await events.next())[1]:
            pass
    failed = await client.start(text, contextId="fails")
    async with setup.follow(f"/dashboard/tasks/{failed['id']}") as events:
        while '"state":"failed"' not in (await events.next())[1]:
            pass
    for page in (
        "/dashboard",
        "/dashboard/tasks",
        f"/dashboard/tasks/{task['id']}",
        f"/dashboard/tasks/{failed['id']}",
        "/dashboard/agents",
        "/dashboard/agents/default",
    ):
        response = await browser.get(page)
        assert response.status == 200, page
        assert problems_of(response.body.decode()) == [], page
