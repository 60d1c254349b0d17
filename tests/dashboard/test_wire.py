"""The wire tab shows requests and responses as they came and went, and no secret of them."""

import hashlib
from pathlib import Path

import httpx2
import msgspec
import pytest
from tests.conformance.protocol_clients import (
    V03Client,
    V1Client,
    encode_call,
    v03_message,
    v1_message,
)
from tests.conformance.scripted_agent import ScriptedAgent
from tests.dashboard.conftest import Json, OpenDashboard, Setup, run_dashboard
from tests.tools.tool_gateway import free_socket, serve_app

from openclaw_a2a.app.lifecycle import uvicorn_options
from openclaw_a2a.dashboard.wire_page import HIDDEN, hide_secrets
from openclaw_a2a.http.asgi import HELD_BYTES, HeldExchange
from openclaw_a2a.model.agent_event import Reply, TextDelta

PUSH = "CreateTaskPushNotificationConfig"
PEER = "channels.a2a.security.peers.alice"


def peer_with(token: str) -> Json:
    return {"tokens": [f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"]}


async def wire_of(setup: Setup, task_id: str, query: str = "") -> Json:
    return await setup.json(f"/dashboard/tasks/{task_id}/wire{query}")


def header_values(headers: list[Json]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in headers}


@pytest.fixture
async def setup(open_dashboard: OpenDashboard) -> Setup:
    return await open_dashboard(agent=ScriptedAgent(Reply.of_text("It is green.")))


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_a_send_is_shown_as_it_came_and_went(setup: Setup, version: str) -> None:
    http = setup.anyone.with_headers(user_agent="paint-shop/2")
    if version == "1.0":
        client, method = V1Client(http.with_headers(a2a_version="1.0")), "SendMessage"
        params = v1_message("paint the fence")
    else:
        client, method = V03Client(http), "message/send"
        params = v03_message("paint the fence")
    response = await client.post(method, params)
    result = response.json["result"]
    task_id = result["task"]["id"] if version == "1.0" else result["id"]
    [exchange] = (await wire_of(setup, task_id))["exchanges"]
    assert (exchange["binding"], exchange["version"]) == ("JSON-RPC", version)
    assert (exchange["operation"], exchange["caller"]) == (method, "local")
    assert exchange["requestLine"] == "POST /a2a/jsonrpc HTTP/1.1"
    assert header_values(exchange["requestHeaders"])["user-agent"] == "paint-shop/2"
    assert msgspec.json.decode(exchange["request"]["text"])["params"] == params
    assert (exchange["status"], exchange["reason"]) == (200, "OK")
    assert header_values(exchange["responseHeaders"])["content-length"] == str(len(response.body))
    assert msgspec.json.decode(exchange["response"]["text"]) == response.json
    assert (exchange["response"]["size"], exchange["isStream"]) == (len(response.body), False)
    assert exchange["seconds"] > 0


async def test_http_json_is_shown_with_its_path_and_its_known_parameters(setup: Setup) -> None:
    task_id = (await V1Client(setup.anyone).send("paint"))["task"]["id"]
    path = f"/a2a/rest/tasks/{task_id}"
    await setup.anyone.get(f"{path}?historyLength=1&access_token=s3cret")
    _, exchange = (await wire_of(setup, task_id))["exchanges"]
    assert (exchange["binding"], exchange["operation"]) == ("HTTP+JSON", f"GET {path}")
    assert exchange["requestLine"] == (f"GET {path}?historyLength=1&access_token={HIDDEN} HTTP/1.1")
    assert (exchange["version"], exchange["request"]["size"]) == ("1.0", 0)


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_a_stream_is_shown_frame_by_frame(
    open_dashboard: OpenDashboard, version: str
) -> None:
    agent = ScriptedAgent(TextDelta("It is "), TextDelta("green."))
    setup = await open_dashboard(agent=agent)
    if version == "1.0":
        client, method = V1Client(setup.anyone), "SendStreamingMessage"
        frames = await client.events(method, v1_message("paint"))
        task_id = frames[0].json["result"]["task"]["id"]
    else:
        client, method = V03Client(setup.anyone), "message/stream"
        frames = await client.events(method, v03_message("paint"))
        task_id = frames[0].json["result"]["id"]
    [exchange] = (await wire_of(setup, task_id))["exchanges"]
    assert (exchange["operation"], exchange["version"]) == (method, version)
    assert exchange["isStream"] is True
    shown = [(one["id"], msgspec.json.decode(one["text"])) for one in exchange["frames"]]
    assert shown == [(one.id, one.json) for one in frames]
    summaries = [one["summary"] for one in exchange["frames"]]
    assert summaries[0].startswith("task ")
    assert any(one.startswith("artifactUpdate assistant-output-0001 It is") for one in summaries)
    assert summaries[-1] == (
        "statusUpdate TASK_STATE_COMPLETED" if version == "1.0" else "statusUpdate completed"
    )
    types = header_values(exchange["responseHeaders"])["content-type"]
    assert types.startswith("text/event-stream")
    assert exchange["seconds"] is not None


async def test_what_a_real_connection_gets_is_shown_frame_by_frame(
    open_dashboard: OpenDashboard,
) -> None:
    agent = ScriptedAgent(TextDelta("It is "), TextDelta("green."))
    setup = await open_dashboard(agent=agent)
    listener, url = free_socket()
    message = encode_call("SendStreamingMessage", v1_message("paint"))
    headers = {"content-type": "application/json", "a2a-version": "1.0"}
    async with (
        serve_app(setup.gateway.asgi, listener, **uvicorn_options(setup.gateway)),
        httpx2.AsyncClient(trust_env=False, timeout=240) as client,
    ):
        answer = await client.post(f"{url}/a2a/jsonrpc", content=message, headers=headers)
    frames = [one.split("\ndata: ", 1) for one in answer.text.split("\n\n") if one]
    task_id = msgspec.json.decode(frames[0][1])["result"]["task"]["id"]
    [exchange] = (await wire_of(setup, task_id))["exchanges"]
    shown = [(one["id"], msgspec.json.decode(one["text"])) for one in exchange["frames"]]
    assert shown == [(one.removeprefix("id: "), msgspec.json.decode(text)) for one, text in frames]
    assert len(shown) > 2
    assert exchange["seconds"] is not None


async def test_an_open_stream_is_shown_while_it_goes_on(open_dashboard: OpenDashboard) -> None:
    setup = await open_dashboard()
    async with V1Client(setup.anyone).stream("SendStreamingMessage", v1_message("paint")) as frames:
        [first] = await frames.take(1)
        task_id = first.json["result"]["task"]["id"]
        [exchange] = (await wire_of(setup, task_id))["exchanges"]
        assert (exchange["status"], exchange["seconds"]) == (200, None)
        await (await setup.agent.next_run()).finish(Reply.of_text("done"))
        await frames.rest()


async def test_an_error_is_shown_with_the_request_that_caused_it(setup: Setup) -> None:
    client = V1Client(setup.anyone)
    task_id = (await client.send("paint"))["task"]["id"]
    await client.error("CancelTask", {"id": task_id})
    _, exchange = (await wire_of(setup, task_id))["exchanges"]
    assert exchange["operation"] == "CancelTask"
    assert "error" in msgspec.json.decode(exchange["response"]["text"])


async def test_exchanges_of_other_tasks_and_lists_are_not_shown(setup: Setup) -> None:
    client = V1Client(setup.anyone)
    first = (await client.send("one"))["task"]["id"]
    # An id within the text of a message is no id of that exchange.
    second = (await client.send(f'what is "{first}"?'))["task"]["id"]
    await client.list()
    assert [one["operation"] for one in (await wire_of(setup, first))["exchanges"]] == [
        "SendMessage"
    ]
    assert len((await wire_of(setup, second))["exchanges"]) == 1


async def test_no_secret_of_an_exchange_is_shown(open_dashboard: OpenDashboard) -> None:
    agent = ScriptedAgent(Reply.of_text("done"))
    token = "b3arer-secret"
    setup = await open_dashboard({PEER: peer_with(token)}, agent=agent)
    browser = await setup.sign_in()
    http = setup.anyone.with_headers(
        authorization=f"Bearer {token}",
        cookie="session=c00kie-secret",
        x_api_key="k3y-secret",
        x_custom="cust0m-secret",
    )
    client = V1Client(http)
    task_id = (await client.send("paint"))["task"]["id"]
    config = {
        "taskId": task_id,
        "url": "https://user:pa55-secret@hooks.example/in?sig=s1g-secret",
        "token": "t0ken-secret",
        "authentication": {"scheme": "Bearer", "credentials": "cr3d-secret"},
    }
    await http.post("/a2a/jsonrpc?key=qu3ry-secret", encode_call(PUSH, config))
    twin = await setup.program.get(f"/dashboard/tasks/{task_id}/wire")
    page = await browser.get(f"/dashboard/tasks/{task_id}/wire")
    assert page.status == 200
    _, exchange = twin.json["exchanges"]
    assert exchange["operation"] == PUSH
    assert exchange["caller"] == "alice"
    headers = header_values(exchange["requestHeaders"])
    assert headers["authorization"] == f"Bearer {HIDDEN}"
    assert headers["cookie"] == headers["x-api-key"] == headers["x-custom"] == HIDDEN
    for body in (twin.body.decode(), page.body.decode()):
        assert "-secret" not in body
        assert "hooks.example/in" in body


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{"token":"abc","n":1}', '{\n  "token": "•••",\n  "n": 1\n}'),
        (b'{"a":[{"clientSecret":"abc"}]}', '"clientSecret": "•••"'),
        (b'{"\\u0074oken":"abc"}', '"\\u0074oken": "•••"'),
        (b'{"tokens":["abc","def"],"x":["ok"]}', '"ok"'),
        (b'{"credentials":{"a":{"b":"abc"}},"x":"ok"}', '"x": "ok"'),
        (b'{"token":"abc', '{"token": "•••"'),
        (b'{"nextPageToken":"page2"}', "page2"),
        (b'{"usage":{"inputTokens":12345678901234567890}}', "12345678901234567890"),
        (b'{"cost":1.10e+400}', "1.10e+400"),
        (b'{"url":"https://a.example/b?x=abc#c"}', "https://a.example/b?•••#•••"),
        (b'{"url":"https://a.example/b#abc"}', "https://a.example/b#•••"),
        (b'{"url":"HTTPS://a.example/b?x=abc"}', "//a.example/b?•••"),
        (
            b'{"url":"https:\\/\\/abc@a.example\\/b?x=abc","y":1}',
            '"https://•••@a.example/b?•••",\n',
        ),
        (b'{"urls":["\\u0068ttps://a.example/b?x=abc", "ok"]}', '"https://a.example/b?•••",\n'),
        (b'{"url":"https://a.example/b?x=abc', '"https://a.example/b?•••"'),
        (b'{"url":"https:\\/\\/a.example/b?x=abc\\', '"https://a.example/b?•••"'),
        (b'{"\\u0074oken":"abc', '"\\u0074oken": "•••"'),
        (b'{"url":"https://abc@a.example/b"}', "https://•••@a.example/b"),
        (b'{"url":"https://[abc/?x=abc"}', "•••"),
        (b"not JSON at all", "not JSON at all"),
        (b"\xff\xfe", "��"),
        (b"", ""),
    ],
)
def test_bodies_are_shown_without_secrets_and_with_exact_numbers(body: bytes, shown: str) -> None:
    text = hide_secrets(body)
    assert shown in text
    assert "abc" not in text
    assert "def" not in text


async def test_of_a_task_that_is_not_held_the_store_is_shown_and_marked(
    open_dashboard: OpenDashboard,
) -> None:
    agent = ScriptedAgent(Reply.of_text("done"))
    setup = await open_dashboard({"dashboard.wireExchanges": 2}, agent=agent)
    client = V1Client(setup.anyone)
    task_id = (await client.send("paint the fence"))["task"]["id"]
    assert len((await wire_of(setup, task_id))["exchanges"]) == 1
    for number in range(2):
        await client.send(f"other {number}")
    page = await wire_of(setup, task_id)
    assert (page["exchanges"], page["held"], page["limit"]) == ([], 2, 2)
    assert page["missing"] == "replaced"
    rebuilt = page["rebuilt"]
    assert (rebuilt["version"], rebuilt["operation"]) == ("1.0", "SendStreamingMessage")
    request = msgspec.json.decode(rebuilt["request"]["text"])
    assert request["params"]["message"]["parts"] == [{"text": "paint the fence"}]
    last = msgspec.json.decode(rebuilt["frames"][-1]["text"])["result"]["statusUpdate"]
    assert last["status"]["state"] == "TASK_STATE_COMPLETED"
    old = (await wire_of(setup, task_id, "?version=0.3"))["rebuilt"]
    assert old["operation"] == "message/stream"
    request = msgspec.json.decode(old["request"]["text"])
    assert request["params"]["message"]["parts"] == [{"kind": "text", "text": "paint the fence"}]
    last = msgspec.json.decode(old["frames"][-1]["text"])["result"]
    assert (last["kind"], last["status"]["state"]) == ("status-update", "completed")
    browser = await setup.sign_in()
    html = (await browser.get(f"/dashboard/tasks/{task_id}/wire")).body.decode()
    assert "No exchange of this task is held" in html
    assert "not what went over the wire" in html
    refused = await setup.program.get(f"/dashboard/tasks/{task_id}/wire?version=2")
    assert (refused.status, refused.json["error"]["code"]) == (400, "invalid-params")


async def test_after_a_restart_the_page_says_why_there_are_no_exchanges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    agent = ScriptedAgent(Reply.of_text("done"))
    async with run_dashboard(tmp_path, agent=agent) as before:
        task = (await V1Client(before.anyone).send("paint"))["task"]
        page = await wire_of(before, task["id"])
        assert (len(page["exchanges"]), page["missing"]) == (1, "")
    async with run_dashboard(tmp_path, agent=agent) as after:
        page = await wire_of(after, task["id"])
        assert (page["exchanges"], page["missing"]) == ([], "restarted")
        assert page["startedAt"] > task["status"]["timestamp"]
        # What was said is in the store, and shown as what it is.
        assert '"paint"' in page["rebuilt"]["request"]["text"]
        address = f"/dashboard/tasks/{task['id']}/wire"
        html = (await (await after.sign_in()).get(address)).body.decode()
        assert "the gateway was started again since" in html
        assert "they carry credentials, which are not written to the disk" in html
        sent = await after.program.post(
            "/dashboard/agents/default/send", b'{"text": "hi"}', content_length="14"
        )
        assert (await wire_of(after, sent.json["id"]))["missing"] == "not-http"


async def test_nothing_is_held_when_the_settings_say_so(open_dashboard: OpenDashboard) -> None:
    agent = ScriptedAgent(Reply.of_text("done"))
    setup = await open_dashboard({"dashboard.wireExchanges": 0}, agent=agent)
    task_id = (await V1Client(setup.anyone).send("paint"))["task"]["id"]
    page = await wire_of(setup, task_id)
    assert (page["exchanges"], page["limit"]) == ([], 0)
    html = (await (await setup.sign_in()).get(f"/dashboard/tasks/{task_id}/wire")).body.decode()
    assert "dashboard.wireExchanges" in html


async def test_strangers_take_no_place_from_callers(open_dashboard: OpenDashboard) -> None:
    agent = ScriptedAgent(Reply.of_text("done"))
    settings = {"dashboard.wireExchanges": 1, PEER: peer_with("known")}
    setup = await open_dashboard(settings, agent=agent)
    peer = setup.anyone.with_headers(authorization="Bearer known")
    task_id = (await V1Client(peer).send("paint"))["task"]["id"]
    stranger = setup.anyone.with_headers(authorization="Bearer guessed")
    refused = await V1Client(stranger).post("SendMessage", v1_message("hello"))
    assert refused.status == 401
    assert len((await wire_of(setup, task_id))["exchanges"]) == 1


async def test_of_a_large_exchange_the_beginning_is_held(setup: Setup) -> None:
    text = "x" * (2 * HELD_BYTES)
    task_id = (await V1Client(setup.anyone).send(text))["task"]["id"]
    [exchange] = (await wire_of(setup, task_id))["exchanges"]
    assert exchange["operation"] == "SendMessage"
    for side in ("request", "response"):
        assert exchange[side]["isCut"] is True
        assert exchange[side]["size"] > len(text)
        assert len(exchange[side]["text"]) <= HELD_BYTES


def test_a_stream_that_lasts_holds_its_beginning() -> None:
    held = HeldExchange()
    for _ in range(100):
        held.add_frames((b"y" * 1000,))
    assert held.frames is not None
    assert sum(map(len, held.frames)) == HELD_BYTES
    assert held.sent_size == 100_000
