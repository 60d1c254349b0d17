"""Accounts: several endpoints in one process, and accounts that cannot run."""

import asyncio
import base64
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from tests.conformance.asgi_client import AsgiClient, AsgiMessage, Receive, Request, Send
from tests.conformance.conftest import Start
from tests.conformance.protocol_clients import Json, V03Client, V1Client, encode_call, v1_message
from tests.conformance.scripted_agent import ScriptedAgent
from tests.conformance.stream_outline import text_of

from openclaw_a2a.app import build_app
from openclaw_a2a.model.agent_event import Reply
from openclaw_a2a.model.ids import AgentId
from openclaw_a2a.settings import load_settings

CARD = "/.well-known/agent-card.json"
RPC = "/a2a/jsonrpc"
TASKS = {"agentStyle": "task-generating"}
SECOND = "channels.a2a.accounts.second"


def _agent(text: str = "hello") -> ScriptedAgent:
    return ScriptedAgent(Reply.of_text(text))


@pytest.mark.requirement("inbound.account.paths", "inbound.account.default-agent")
async def test_each_account_has_its_own_paths_and_agent(start: Start) -> None:
    agents = {"main": _agent("I am main"), "other": _agent("I am other")}
    settings = {SECOND: {"defaultAgentId": "other", "label": "Second"}}
    http = await start(agents, settings=settings)
    first, second = V1Client(http), V1Client(http, path="/agents/second/a2a/jsonrpc")
    assert text_of((await first.send())["message"]) == "I am main"
    assert text_of((await second.send())["message"]) == "I am other"
    card = (await http.get("/agents/second/.well-known/agent-card.json")).json
    assert card["name"] == "Second"
    assert card["url"].endswith("/agents/second/a2a/jsonrpc")
    assert (await http.get("/agents/second/.well-known/agent.json")).json == card
    assert (await http.get("/agents/second/a2a/rest/tasks")).status == 200


@pytest.mark.requirement("inbound.account.default-agent")
async def test_account_without_an_agent_uses_the_gateways_default(start: Start) -> None:
    agents = {"main": _agent("I am main"), "other": _agent("I am other")}
    http = await start(agents, settings={SECOND: {}})
    second = V1Client(http, path="/agents/second/a2a/jsonrpc")
    assert text_of((await second.send())["message"]) == "I am main"


@pytest.mark.requirement("inbound.account.directory")
async def test_directory_lists_the_cards_of_running_accounts(start: Start) -> None:
    settings = {SECOND: {"label": "Second"}, "channels.a2a.accounts.third": {"enabled": False}}
    http = await start(_agent(), account={"label": "First"}, settings=settings)
    response = await http.get("/agents")
    assert response.status == 200
    assert {card["name"] for card in response.json["agents"]} == {"First", "Second"}


@pytest.mark.requirement(
    "inbound.account.enabled-by-default", "inbound.account.unknown-is-disabled"
)
async def test_disabled_account_has_no_routes_and_an_unknown_one_is_like_it(start: Start) -> None:
    http = await start(_agent(), settings={SECOND: {"enabled": False}})
    assert (await http.get(CARD)).status == 200
    card = "/agents/{}/.well-known/agent-card.json"
    disabled, unknown = [await http.get(card.format(name)) for name in ("second", "nobody")]
    assert disabled.status == unknown.status == 404
    call = encode_call("SendMessage", v1_message())
    assert (await http.post("/agents/nobody/a2a/jsonrpc", call)).status == 404


@pytest.mark.requirement("inbound.account.not-running", "inbound.account.needs-public-url")
async def test_an_account_without_a_public_base_url_is_503_with_the_reason(start: Start) -> None:
    http = await start(_agent(), settings={"server.publicBaseUrl": ""})
    for response in (
        await http.get(CARD),
        await http.post(RPC, encode_call("SendMessage", v1_message())),
    ):
        assert response.status == 503
        error = response.json["error"]
        assert error["code"] == "A2A_ACCOUNT_NOT_RUNNING"
        assert error["details"] == {"channel": "a2a", "accountId": "default"}
        assert "publicBaseUrl" in error["message"]


@pytest.mark.requirement("inbound.account.not-running")
async def test_every_route_of_a_stopped_account_is_503(start: Start) -> None:
    http = await start(_agent(), settings={"server.publicBaseUrl": ""})
    assert (await http.get("/.well-known/agent.json")).status == 503
    assert (await http.get("/a2a/rest/tasks")).status == 503
    assert (await http.request(Request("HEAD", CARD))).status == 503


@pytest.mark.requirement("inbound.account.bad-public-url-is-unset")
async def test_public_address_that_is_none_counts_as_absent(start: Start) -> None:
    settings = {"server.publicBaseUrl": ""}
    http = await start(_agent(), account={"publicBaseUrl": "not an address"}, settings=settings)
    assert (await http.get(CARD)).status == 503


@pytest.mark.requirement("inbound.account.inherits")
async def test_account_inherits_the_public_address_of_the_server(start: Start) -> None:
    http = await start(_agent(), settings={"server.publicBaseUrl": "https://gate.example"})
    assert (await http.get(CARD)).json["url"] == "https://gate.example/a2a/jsonrpc"


@pytest.mark.requirement("inbound.account.rpc-path")
async def test_json_rpc_moves_with_its_path_and_gets_a_leading_slash(start: Start) -> None:
    http = await start(_agent(), account={"jsonRpcPath": "talk/here"})
    assert "message" in await V1Client(http, path="/talk/here").send()
    assert (await http.post(RPC, b"{}")).status == 404


@pytest.mark.requirement("inbound.account.route-unknown")
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/nothing/here"), ("POST", "/nothing/here/"), ("POST", "/"), ("PUT", "/")],
)
async def test_other_paths_are_404_with_details(start: Start, method: str, path: str) -> None:
    http = await start(_agent())
    response = await http.request(Request(method, path))
    assert response.status == 404
    error = response.json["error"]
    assert error["code"] == "A2A_ROUTE_NOT_FOUND"
    assert error["details"] == {"channel": "a2a", "accountId": "default"}


@pytest.mark.requirement("inbound.account.method-unknown")
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", RPC, "POST"),
        ("PUT", RPC, "POST"),
        ("GET", f"{RPC}/", "POST"),
        ("POST", CARD, "GET, HEAD"),
        ("DELETE", CARD, "GET, HEAD"),
        ("POST", "/agents", "GET"),
        ("POST", "/healthz", "GET"),
    ],
)
async def test_other_methods_of_a_path_are_405_with_those_it_has(
    start: Start, method: str, path: str, allowed: str
) -> None:
    http = await start(_agent())
    response = await http.request(Request(method, path))
    assert (response.status, response.headers["allow"]) == (405, allowed)
    error = response.json["error"]
    assert error["code"] == "A2A_METHOD_NOT_ALLOWED"
    assert error["details"] == {"channel": "a2a", "accountId": "default"}


@pytest.mark.requirement("inbound.account.rpc-path")
@pytest.mark.parametrize("path", ["", "talk/here", "talk/here/"])
async def test_json_rpc_answers_with_a_slash_too(start: Start, path: str) -> None:
    http = await start(_agent(), account={"jsonRpcPath": path})
    bare = f"/{path}".rstrip("/") if path else RPC
    for spelled in (bare, f"{bare}/"):
        assert "message" in await V1Client(http, path=spelled).send()


@pytest.mark.requirement("inbound.account.route-failure")
async def test_unexpected_failure_of_a_route_is_a_500_with_a_name(start: Start) -> None:
    http = await start(_agent())

    async def without_headers(scope: AsgiMessage, receive: Receive, send: Send) -> None:
        await http.app({**scope, "headers": None}, receive, send)

    response = await AsgiClient(without_headers).get(CARD)
    assert response.status == 500
    assert response.json["error"]["code"] == "A2A_INBOUND_ROUTE_ERROR"
    assert "Traceback" not in response.body.decode()


class _BrokenClock:
    """A clock that stops working when told to."""

    is_broken = False

    def now(self) -> datetime:
        if self.is_broken:
            raise RuntimeError("secret of the clock")
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@pytest.mark.requirement("inbound.rpc.internal")
async def test_internal_failure_is_32603_and_tells_nothing(start: Start) -> None:
    clock = _BrokenClock()
    http = await start(_agent(), clock=clock)
    await anyio.wait_all_tasks_blocked()  # what the gateway does by itself at its start is done
    clock.is_broken = True
    new = await V1Client(http).error("SendMessage", v1_message())
    old = await V03Client(http).error("message/send", {**v1_message(), "message": _old_message()})
    rest = await http.post("/a2a/rest/message:send", b'{"message":%b}' % _new_message())
    clock.is_broken = False
    assert (new.code, old.code, rest.status) == (-32603, -32603, 500)
    assert "secret" not in f"{new.error}{old.error}{rest.body}"


def _old_message() -> Json:
    return {"messageId": "m-o", "role": "user", "parts": [{"kind": "text", "text": "x"}]}


def _new_message() -> bytes:
    return b'{"messageId":"m-n","role":"ROLE_USER","parts":[{"text":"x"}]}'


@pytest.mark.requirement("inbound.account.input-modes", "files.accepted")
async def test_files_within_the_input_modes_reach_the_agent(start: Start) -> None:
    agent = _agent()
    account = {"defaultInputModes": ["text/plain", "image/*", "application/pdf"]}
    v1 = V1Client(await start(agent, account=account))
    await v1.send(
        parts=[{"raw": "UklGRhoAAABXRUJQVlA4TA==", "mediaType": "image/webp", "filename": "a.webp"}]
    )
    await v1.send(parts=[{"text": "see"}, {"raw": "JVBERi0xLjcK", "mediaType": "APPLICATION/PDF"}])
    assert agent.turns[0].message.parts[0].content.endswith(b"WEBPVP8L")
    failed = await v1.error(
        "SendMessage", v1_message(parts=[{"raw": "aGVsbG8=", "mediaType": "audio/ogg"}])
    )
    assert failed.code == -32005
    assert len(agent.turns) == 2


@pytest.mark.requirement("promise.bounds.file-content")
async def test_a_file_that_is_not_what_it_says_is_refused_before_anything_runs(
    start: Start,
) -> None:
    agent = _agent()
    v1 = V1Client(await start(agent, account={"defaultInputModes": ["text/plain", "image/*"]}))
    program = base64.b64encode(b"\x7fELF\x02\x01\x01\x00").decode()
    for media_type in ("image/png", "text/plain"):
        parts = [{"text": "see"}, {"raw": program, "mediaType": media_type}]
        failed = await v1.error("SendMessage", v1_message(parts=parts))
        assert failed.code == -32005
        assert f"message.parts[1] says it is {media_type}" in failed.error["message"]
    assert agent.turns == []


@pytest.mark.requirement("promise.bounds.file-names")
async def test_names_of_files_reach_the_agent_without_folders_and_control_codes(
    start: Start,
) -> None:
    agent = _agent()
    v1 = V1Client(await start(agent))
    part = {"raw": "aGVsbG8=", "mediaType": "text/plain", "filename": "../../.ssh/a\n\u202eb.txt"}
    await v1.send(parts=[{"text": "see"}, part])
    assert agent.turns[0].message.parts[1].filename == "a__b.txt"


@pytest.mark.requirement("files.bounded")
async def test_inline_file_over_the_limit_is_refused(start: Start) -> None:
    agent = _agent()
    account = {"defaultInputModes": ["image/png"], "maxBodyBytes": 10_000}
    http = await start(agent, account=account)
    part = {"raw": base64.b64encode(bytes(10_000)).decode(), "mediaType": "image/png"}
    response = await http.post(RPC, encode_call("SendMessage", v1_message(parts=[part])))
    assert response.status == 413
    assert agent.turns == []


@pytest.mark.requirement("files.private")
@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/a.png",
        "http://localhost:8080/a.png",
        "http://10.1.2.3/a.png",
        "http://192.168.1.1/a.png",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/a.png",
        "http://[fd00::1]/a.png",
        "http://0.0.0.0/a.png",
        "http://2130706433/a.png",
        "file:///etc/passwd",
        "ftp://files.example/a.png",
        "not an address",
    ],
)
async def test_linked_file_on_a_private_address_is_refused(start: Start, url: str) -> None:
    agent = _agent()
    http = await start(agent, account={"defaultInputModes": ["image/png"]})
    new = v1_message(parts=[{"text": "see"}, {"url": url, "mediaType": "image/png"}])
    failed = await V1Client(http).error("SendMessage", new)
    assert "message.parts[1]" in failed.message
    assert agent.turns == []


@pytest.mark.requirement("inbound.account.task-store", "store.json-file.file-name")
async def test_an_account_may_have_its_own_file_store(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "records"
    store = {"kind": "json-file", "path": str(folder)}
    settings = {SECOND: {"taskStore": {"kind": "memory"}, **TASKS}}
    http = await start(_agent(), account={**TASKS, "taskStore": store}, settings=settings)
    task = (await V1Client(http).send())["task"]
    await V1Client(http, path="/agents/second/a2a/jsonrpc").send()
    name = base64.urlsafe_b64encode(task["id"].encode()).decode().rstrip("=")
    assert [path.name for path in folder.glob("*.json")] == [f"{name}.json"]


@pytest.mark.requirement("inbound.account.none-configured")
async def test_gateway_without_channels_has_one_task_generating_account(tmp_path: Path) -> None:
    overrides = {"data": str(tmp_path), "store.kind": "memory"}
    settings = load_settings(overrides=overrides, environ={}).settings
    async with build_app(settings, agents={AgentId("main"): _agent()}) as gateway:
        v1 = V1Client(AsgiClient(gateway.asgi))
        assert "task" in await v1.send()
        assert (await v1.http.get(CARD)).json["name"] == "default"
