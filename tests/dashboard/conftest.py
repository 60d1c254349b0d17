"""A gateway with a scripted agent, a browser that is signed in, and one that is not."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.conformance.asgi_client import ActiveRequest, AsgiClient, Request, Response
from tests.conformance.protocol_clients import V1Client
from tests.conformance.scripted_agent import ScriptedAgent, ScriptedRun, Step
from tests.server.push.webhook_receiver import WebhookReceiver

from openclaw_a2a.app import build_app
from openclaw_a2a.app.gateway import Gateway
from openclaw_a2a.model.ids import AgentId
from openclaw_a2a.ports import Agent
from openclaw_a2a.settings import load_settings

Json = Any
FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True)
class Browser:
    """A browser with its session; `csrf` is what the pages that it has loaded tell it."""

    http: AsgiClient
    csrf: str = ""

    async def get(self, path: str) -> Response:
        return await self.http.get(path, accept="text/html,application/xhtml+xml")

    async def act(self, path: str, **form: str) -> Response:
        """Send a form as a page does."""
        headers = {"accept": "text/html", "hx_request": "true", "x_csrf_token": self.csrf}
        return await post_form(self.http, path, form, **headers)


async def post_form(
    http: AsgiClient, path: str, form: Mapping[str, str], **headers: str
) -> Response:
    body = urlencode(form).encode()
    length = str(len(body))
    return await http.post(path, body, content_type=FORM, content_length=length, **headers)


@dataclass(frozen=True)
class Setup:
    """A gateway as its callers, its operator's programs and browsers see it."""

    anyone: AsgiClient
    program: AsgiClient
    agent: ScriptedAgent
    gateway: Gateway

    async def json(self, path: str) -> Json:
        response = await self.program.get(path, accept="application/json")
        assert response.status == 200, response.body
        return response.json

    async def start(self, text: str = "work") -> str:
        """A task that is worked on; its id."""
        return (await V1Client(self.anyone).start(text))["id"]

    async def finish(self, *steps: Step, run: ScriptedRun | None = None) -> None:
        """Let the run (else the next one) say these and finish; returns when that is stored."""
        run = run or await self.agent.next_run()
        await run.finish(*steps)
        # Its events end with the task, or when it pauses.
        await self.program.get(f"/operator/tasks/{run.turn.task_id}/events")

    async def link(self) -> str:
        """A link with which a browser signs in."""
        response = await self.program.post("/operator/dashboard/link", b"{}", content_length="2")
        assert response.status == 200, response.body
        return response.json["path"]

    async def sign_in(self) -> Browser:
        """A browser that has opened the link."""
        response = await self.anyone.get(await self.link(), accept="text/html")
        assert response.status == 303, response.body
        http = self.anyone.with_headers(cookie=response.headers["set-cookie"].partition(";")[0])
        page = await Browser(http).get("/dashboard")
        assert page.status == 200, page.body
        csrf = page.body.decode().partition('"X-CSRF-Token":"')[2].partition('"')[0]
        return Browser(http, csrf)

    @asynccontextmanager
    async def follow(self, at: str, **query: str) -> AsyncGenerator["Events"]:
        """The live updates of a page, as JSON."""
        path = "/dashboard/live?" + urlencode({"at": at, "as": "json", **query})
        async with self.program.open(Request("GET", path)) as active:
            yield Events(active)


class Events:
    """Reads server-sent events."""

    def __init__(self, active: ActiveRequest) -> None:
        self._active = active
        self._text = ""

    async def next(self) -> tuple[str, str]:
        """The id and the data of the next event."""
        while True:
            while "\n\n" in self._text:
                event, _, self._text = self._text.partition("\n\n")
                lines = [line for line in event.split("\n") if not line.startswith(":")]
                if lines:
                    data = "\n".join(one[6:] for one in lines if one.startswith("data: "))
                    found = next((one[4:] for one in lines if one.startswith("id: ")), "")
                    return found, data
            chunk = await self._active.next_chunk()
            assert chunk is not None, "the stream ended"
            self._text += chunk.decode()


OpenDashboard = Callable[..., Awaitable[Setup]]


@asynccontextmanager
async def run_dashboard(
    folder: Path,
    settings: Mapping[str, Json] | None = None,
    *,
    agent: ScriptedAgent | None = None,
    others: Mapping[str, Agent] | None = None,
) -> AsyncGenerator[Setup]:
    """A gateway with its data in a folder, which another one can use after it."""
    agent = agent or ScriptedAgent()
    agents: dict[str, Agent] = {"main": agent, **(others or {})}
    overrides = {
        "data": str(folder / "data"),
        "store.path": str(folder / "state.db"),
        "log.level": "error",
        **{f"agents.{name}.adapter": "echo" for name in agents},
        "channels.a2a.accounts.default": {
            "defaultAgentId": "main",
            "agentStyle": "task-generating",
            "defaultOutputModes": ["*/*"],
        },
        **(settings or {}),
    }
    loaded = load_settings(overrides=overrides, environ={})
    named = {AgentId(name): one for name, one in agents.items()}
    gateway = build_app(loaded.settings, agents=named)
    gateway.loaded = loaded
    async with gateway:
        anyone = AsgiClient(gateway.asgi)
        token = (folder / "data" / "operator.token").read_text(encoding="ascii").strip()
        program = anyone.with_headers(authorization=f"Bearer {token}")
        yield Setup(anyone, program, agent, gateway)


@pytest.fixture
async def open_dashboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[OpenDashboard]:
    """Start a gateway: `await open_dashboard({"dashboard.readOnly": True}, agent=agent)`."""
    monkeypatch.chdir(tmp_path)
    async with AsyncExitStack() as running:

        async def open_one(*given: Mapping[str, Json] | None, **agents: Json) -> Setup:
            return await running.enter_async_context(run_dashboard(tmp_path, *given, **agents))

        yield open_one


@pytest.fixture
async def setup(open_dashboard: OpenDashboard) -> Setup:
    return await open_dashboard()


@pytest.fixture
async def webhook() -> AsyncGenerator[WebhookReceiver]:
    """A webhook on loopback, which answers as the test says."""
    receiver = WebhookReceiver()
    await receiver.open()
    yield receiver
    await receiver.close()
