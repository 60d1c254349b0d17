"""`to_a2a`: both protocol versions, stores, authentication, life cycle."""

import asyncio
import json

import anyio
import httpx
import httpx2
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import Message, Part, Role, SendMessageRequest, TaskState
from starlette.applications import Starlette
from starlette.routing import Mount

from openclaw_a2a import AgentAdapter, to_a2a
from openclaw_a2a.agents.echo import EchoAgent
from openclaw_a2a.model.agent_event import InputRequired, TextDelta
from openclaw_a2a.store import create_store


class Echo(AgentAdapter):
    """Says it back, word by word."""

    def __init__(self):
        self.is_closed = False

    async def invoke(self, user_input, context_id=None, **kwargs):
        return user_input

    async def stream(self, user_input, context_id=None, **kwargs):
        for word in user_input.split(" "):
            yield word

    async def close(self):
        self.is_closed = True


HOST = "http://agent.test"


def old_request(text):
    """A request of 0.3."""
    parts = [{"kind": "text", "text": text}]
    message = {"kind": "message", "messageId": "old-1", "role": "user", "parts": parts}
    return {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}


def official_request(text):
    message = Message(message_id="m-1", role=Role.ROLE_USER, parts=[Part(text=text)])
    return SendMessageRequest(message=message)


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("streaming", [True, False])
async def test_official_client_is_answered(binding, streaming):
    async with to_a2a(Echo(), url="http://agent.test/") as app:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://agent.test") as http:
            card = await A2ACardResolver(http, "http://agent.test").get_agent_card()
            config = ClientConfig(
                httpx_client=http, streaming=streaming, supported_protocol_bindings=[binding]
            )
            client = ClientFactory(config).create(card)
            events = [event async for event in client.send_message(official_request("a b c"))]
    if streaming:
        updates = [one.artifact_update for one in events if one.HasField("artifact_update")]
        assert [part.text for one in updates for part in one.artifact.parts] == ["a", "b", "c"]
        assert [one.last_chunk for one in updates] == [False, False, True]
        assert events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
    else:
        task = events[-1].task
        assert [artifact.name for artifact in task.artifacts] == ["response"]
        assert task.status.message.parts[0].text == "abc"


class Whole(AgentAdapter):
    """Answers with one whole text."""

    async def invoke(self, user_input, context_id=None, **kwargs):
        return user_input


async def stream_requests(client):
    """The responses to every request for a stream, in either version and binding."""
    task = await client.send("hi")
    old = {"kind": "message", "messageId": "o", "role": "user", "parts": [{"kind": "text"}]}
    old["parts"][0]["text"] = "hi"
    calls = [
        ("SendStreamingMessage", {"message": client.message("hi")}),
        ("SubscribeToTask", {"id": task["id"]}),
        ("message/stream", {"message": old}),
        ("tasks/resubscribe", {"id": task["id"]}),
        ("SendStreamingMessage", {}),
    ]
    for method, params in calls:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        yield await client.http.post("/", json=request)
    yield await client.http.post("/message:stream", json={"message": client.message("hi")})
    yield await client.http.get(f"/tasks/{task['id']}:subscribe")


@pytest.mark.requirement("adapter.server.no-streaming")
@pytest.mark.parametrize(
    ("adapter", "options"),
    [
        (Whole, {}),
        (Echo, {"streaming": False}),
        (Echo, {"agent_card": {"name": "Given", "capabilities": {"streaming": False}}}),
    ],
)
async def test_streams_are_refused_where_the_card_says_that_there_are_none(
    serving, adapter, options
):
    async with serving(adapter(), **options) as client:
        card = (await client.http.get("/.well-known/agent-card.json")).json()
        answers = [answer async for answer in stream_requests(client)]
    assert card["capabilities"]["streaming"] is False
    codes = [answer.json()["error"]["code"] for answer in answers]
    assert codes == [-32004] * 5 + [400] * 2
    assert [answer.status_code for answer in answers] == [200] * 5 + [400] * 2
    reasons = [answer.json()["error"]["details"][0]["reason"] for answer in answers[5:]]
    assert reasons == ["UNSUPPORTED_OPERATION"] * 2


async def test_whole_answer_is_streamed_where_the_card_says_so(serving):
    async with serving(Whole(), streaming=True) as client:
        events = await client.stream("hi")
    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_official_client_does_not_stream_from_an_adapter_that_cannot():
    async with (
        to_a2a(Whole(), url=f"{HOST}/") as app,
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=HOST) as http,
    ):
        card = await A2ACardResolver(http, HOST).get_agent_card()
        client = ClientFactory(ClientConfig(httpx_client=http, streaming=True)).create(card)
        events = [event async for event in client.send_message(official_request("hi"))]
    assert [event.task.status.state for event in events] == [TaskState.TASK_STATE_COMPLETED]


async def test_push_is_refused_where_a_given_card_does_not_offer_it(serving):
    card = {"name": "Given", "capabilities": {"pushNotifications": False}}
    async with serving(Echo(), agent_card=card) as client:
        task = await client.send("hi")
        config = {"taskId": task["id"], "url": "https://example.com/hook"}
        answer = await client.call("CreateTaskPushNotificationConfig", **config)
    assert answer["error"]["code"] == -32003


@pytest.mark.requirement("adapter.server.root")
async def test_both_generations_are_spoken_at_the_root(serving):
    async with serving(Echo()) as client:
        new = await client.call("SendMessage", message=client.message("hi"))
        old_message = {
            "kind": "message",
            "messageId": "old-1",
            "role": "user",
            "parts": [{"kind": "text", "text": "hi"}],
        }
        old = await client.call("message/send", message=old_message)
        rest = await client.http.post("/message:send", json={"message": client.message("hi")})
    assert new["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert old["result"]["kind"] == "task"
    assert old["result"]["status"]["state"] == "completed"
    assert old["result"]["artifacts"][0]["name"] == "response"
    assert rest.json()["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.requirement("inbound.account.method-unknown")
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/", "POST"),
        ("PUT", "/.well-known/agent-card.json", "GET, HEAD"),
        ("POST", "/.well-known/agent.json", "GET, HEAD"),
        ("GET", "/message:send", "POST"),
    ],
)
async def test_other_methods_of_a_path_at_the_root_are_405_with_those_it_has(
    serving, method, path, allowed
):
    async with serving(Echo()) as client:
        answer = await client.http.request(method, path)
    assert (answer.status_code, answer.headers.get("allow")) == (405, allowed)


async def test_function_and_agent_are_served_like_adapters(serving):
    async with serving(lambda text: text[::-1]) as client:
        assert (await client.send("abc"))["status"]["message"]["parts"] == [{"text": "cba"}]
    async with serving(EchoAgent()) as client:
        task = await client.send("abc")
    assert [one["name"] for one in task["artifacts"]] == ["response"]
    assert task["status"]["message"]["parts"] == [{"text": "echo: abc"}]


def test_object_that_cannot_answer_is_refused():
    with pytest.raises(TypeError, match="int cannot answer"):
        to_a2a(7)


async def test_question_of_an_agent_pauses_the_task_and_its_answer_resumes_it(serving):
    async def asks(text, turn):
        if turn.resume is None:
            yield InputRequired("Which one?", {"asked": text})
        else:
            yield TextDelta(f"{turn.resume['asked']}: {text}")

    async with serving(asks) as client:
        task = await client.send("delete")
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        again = await client.send("the old", taskId=task["id"], contextId=task["contextId"])
    assert again["status"]["message"]["parts"] == [{"text": "delete: the old"}]


# ------------------------------------------------------------------------------- store and life


@pytest.mark.requirement("adapter.server.store")
async def test_tasks_outlive_the_application_in_a_given_store(serving, tmp_path):
    place = tmp_path / "tasks.db"
    async with serving(Echo(), task_store=place) as client:
        task = await client.send("hi")
    async with serving(Echo(), task_store=create_store("sqlite", path=str(place))) as client:
        assert await client.state(task["id"]) == "TASK_STATE_COMPLETED"


class Interrupted(Echo):
    """Never ends in its first life, and answers in its second."""

    def __init__(self, *, is_second=False, is_repeatable=False):
        super().__init__()
        self.is_second, self.is_repeatable = is_second, is_repeatable
        self.begun = asyncio.Event()

    async def stream(self, user_input, context_id=None, **kwargs):
        self.begun.set()
        if not self.is_second:
            yield "half"
            await asyncio.Event().wait()
        yield "whole"


@pytest.mark.parametrize(
    ("is_repeatable", "state"), [(False, "TASK_STATE_FAILED"), (True, "TASK_STATE_COMPLETED")]
)
async def test_run_that_a_stop_cut_off_is_repeated_or_failed_at_the_next_start(
    serving, tmp_path, is_repeatable, state
):
    first = Interrupted(is_repeatable=is_repeatable)
    async with serving(first, stop_s=0, task_store=tmp_path / "tasks.db") as client:
        task = await client.send("hi", wait=False)
        with anyio.fail_after(240):
            await first.begun.wait()
    again = Interrupted(is_second=True, is_repeatable=is_repeatable)
    async with serving(again, task_store=tmp_path / "tasks.db") as client:
        if is_repeatable:
            with anyio.fail_after(240):
                await again.begun.wait()
            await client.http.get(f"/tasks/{task['id']}:subscribe")
        assert await client.state(task["id"]) == state


async def test_tasks_are_in_memory_without_a_store(serving):
    async with serving(Echo()) as client:
        task = await client.send("hi")
    async with serving(Echo()) as client:
        assert "error" in await client.call("GetTask", id=task["id"])


async def lifespan(app, *, between):
    """Play a server's part in the life of an application."""
    say, hear = asyncio.Queue(), asyncio.Queue()
    life = asyncio.ensure_future(app({"type": "lifespan"}, say.get, hear.put))
    say.put_nowait({"type": "lifespan.startup"})
    with anyio.fail_after(240):
        first = await hear.get()
        if first["type"] != "lifespan.startup.complete":
            await life
            return first, None
        await between()
        say.put_nowait({"type": "lifespan.shutdown"})
        last = await hear.get()
        await life
    return first, last


async def card_of(app):
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app), base_url="http://test"
    ) as http:
        return (await http.get("/.well-known/agent-card.json")).json()


async def test_application_follows_the_lifespan_and_closes_the_adapter():
    adapter = Echo()
    app = to_a2a(adapter)

    async def between():
        assert (await card_of(app))["name"] == "Echo"
        assert not adapter.is_closed

    first, last = await lifespan(app, between=between)
    assert first == {"type": "lifespan.startup.complete"}
    assert last == {"type": "lifespan.shutdown.complete"}
    assert adapter.is_closed


async def test_application_that_cannot_start_reports_the_reason(tmp_path):
    (tmp_path / "folder").mkdir()
    app = to_a2a(Echo(), task_store=tmp_path / "folder")
    first, _ = await lifespan(app, between=None)
    assert first["type"] == "lifespan.startup.failed"
    assert first["message"]


async def test_application_without_a_lifespan_starts_with_the_first_request():
    app = to_a2a(Echo())
    cards = await asyncio.gather(*[card_of(app) for _ in range(5)])
    assert [card["name"] for card in cards] == ["Echo"] * 5
    await app.stop()


async def test_application_answers_below_the_path_it_is_mounted_at():
    async with to_a2a(Echo()) as app:
        transport = httpx2.ASGITransport(app, root_path="/agents/echo")
        async with httpx2.AsyncClient(transport=transport, base_url="http://test") as http:
            card = await http.get("/agents/echo/.well-known/agent-card.json")
            message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
            sent = await http.post("/agents/echo/message:send", json={"message": message})
    assert card.json()["name"] == "Echo"
    assert sent.json()["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


CARD_AT_A_PATH = {"name": "Weather", "description": "d", "version": "1", "url": f"{HOST}/weather"}


def mounted(app):
    return Starlette(routes=[Mount("/weather", app)])


@pytest.mark.parametrize("place", [mounted, lambda app: app], ids=["mounted", "at the root"])
@pytest.mark.parametrize(
    "card",
    [{"url": f"{HOST}/weather"}, {"url": f"{HOST}/weather/"}, {"agent_card": CARD_AT_A_PATH}],
)
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_addresses_on_the_card_answer_as_they_are_printed(place, card, binding):
    async with to_a2a(Echo(), **card) as app:
        transport = httpx.ASGITransport(place(app))
        async with httpx.AsyncClient(transport=transport, base_url=HOST) as http:
            found = await A2ACardResolver(http, f"{HOST}/weather").get_agent_card()
            config = ClientConfig(httpx_client=http, supported_protocol_bindings=[binding])
            client = ClientFactory(config).create(found)
            events = [event async for event in client.send_message(official_request("a b"))]
        # Not the same one: the official client has set the version on it.
        async with httpx.AsyncClient(transport=transport, base_url=HOST) as http:
            legacy = (await http.get("/weather/.well-known/agent.json")).json()
            old = await http.post(legacy["url"], json=old_request("hi"))
    assert events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
    assert old.json()["result"]["status"]["state"] == "completed"


# ------------------------------------------------------------------------------- push


@pytest.mark.requirement("adapter.server.empty-webhook")
@pytest.mark.parametrize("config", [{"url": ""}, {"url": "", "token": "t"}])
async def test_push_configuration_with_an_empty_url_is_ignored(serving, config):
    async with serving(Echo()) as client:
        new = await client.call(
            "SendMessage",
            message=client.message("hi"),
            configuration={"taskPushNotificationConfig": config},
        )
        old_message = {"messageId": "o", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}
        old = await client.call(
            "message/send",
            message={"kind": "message", **old_message},
            configuration={"pushNotificationConfig": config},
        )
    assert new["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert old["result"]["status"]["state"] == "completed"


# ------------------------------------------------------------------------------- callers

MESSAGE = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}


async def send_message(client, headers=None):
    """Status and body of a send."""
    answer = await client.http.post("/message:send", json={"message": MESSAGE}, headers=headers)
    return answer.status_code, answer.json()


async def test_without_auth_every_caller_is_answered(serving):
    async with serving(Echo()) as client:
        assert (await send_message(client))[0] == 200
        assert (await send_message(client, {"X-Forwarded-For": "203.0.113.9"}))[0] == 200


OWN = "127.0.0.1:9000"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example.com"},
        {"Origin": "https://evil.example.com"},
        [("Host", "evil.example.com"), ("Host", OWN)],
        [("Host", OWN), ("Host", OWN)],
        [("Origin", "https://evil.example.com"), ("Origin", f"http://{OWN}")],
        [("Origin", "https://evil.example.com"), ("Origin", "")],
    ],
)
async def test_web_pages_cannot_call_an_open_server_on_loopback(headers):
    async with to_a2a(Echo()) as app:
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:9000"
        ) as http:
            good = await http.post("/message:send", json={"message": MESSAGE})
            bad = await http.post("/message:send", json={"message": MESSAGE}, headers=headers)
    assert (good.status_code, bad.status_code) == (200, 403)


@pytest.mark.requirement("adapter.server.auth")
@pytest.mark.parametrize("auth", ["secret", ["other", "secret"], {"ann": "secret"}])
async def test_callers_are_authenticated_by_bearer_token(serving, auth):
    async with serving(Echo(), auth=auth) as client:
        assert (await send_message(client))[0] == 401
        assert (await send_message(client, {"Authorization": "Bearer wrong"}))[0] == 401
        assert (await send_message(client, {"Authorization": "Bearer secret"}))[0] == 200
        card = (await client.http.get("/.well-known/agent-card.json")).json()
    assert card["securitySchemes"]["bearer"]["scheme"] == "Bearer"


async def test_two_callers_do_not_see_each_other(serving):
    async with serving(Echo(), auth={"ann": ["a", "a2"], "bob": "b"}) as client:
        _, body = await send_message(client, {"Authorization": "Bearer a"})
        path = f"/tasks/{body['task']['id']}"
        seen = {
            token: (await client.http.get(path, headers={"Authorization": f"Bearer {token}"}))
            for token in ("a", "a2", "b")
        }
    assert {token: one.status_code for token, one in seen.items()} == {
        "a": 200,
        "a2": 200,
        "b": 404,
    }


@pytest.mark.parametrize("auth", ["", [], {}, [" "], {"ann": []}])
def test_auth_without_a_token_is_refused_at_once(auth):
    with pytest.raises(ValueError, match="token"):
        to_a2a(Echo(), auth=auth)


@pytest.mark.requirement("adapter.server.auth")
async def test_function_identifies_the_caller(serving):
    class Seeing(Echo):
        async def stream(self, user_input, context_id=None, **kwargs):
            yield kwargs["context"].turn.principal

    async def who(headers):
        return {"k-1": "ann", "k-2": True}.get(headers.get("x-key"))

    async with serving(Seeing(), auth=who) as client:
        assert (await send_message(client))[0] == 401
        _, ann = await send_message(client, {"X-Key": "k-1"})
        _, unnamed = await send_message(client, {"X-Key": "k-2"})
    words = [body["task"]["status"]["message"]["parts"][0]["text"] for body in (ann, unnamed)]
    assert words == ["ann", "peer"]


async def test_function_sees_all_lines_of_a_header(serving):
    """The last of two counted."""

    def who(headers):
        return headers.get("x-key") == "k-1"

    async with serving(Echo(), auth=who) as client:
        for keys in (["other", "k-1"], ["k-1", "k-1"]):
            assert (await send_message(client, [("X-Key", key) for key in keys]))[0] == 401
        assert (await send_message(client, [("X-Key", "k-1")]))[0] == 200


@pytest.mark.requirement("security.challenge")
@pytest.mark.parametrize(
    ("schemes", "challenges"),
    [
        ({}, ["Bearer"]),
        ({"a": {"type": "apiKey", "in": "header", "name": "X-Key"}}, ["ApiKey"]),
        ({"a": {"type": "http", "scheme": "Basic"}}, ["Basic"]),
        ({"a": {"type": "http", "scheme": "no scheme"}}, ["Bearer"]),
        (
            {
                "a": {"type": "openIdConnect", "openIdConnectUrl": "https://id.example"},
                "b": {"type": "http", "scheme": "bearer"},
                "c": {"type": "mutualTLS"},
            },
            ["Bearer", "ClientCertificate"],
        ),
    ],
)
async def test_the_challenge_of_a_function_is_what_the_card_says(schemes, challenges):
    card = {"name": "Echo", "url": "http://127.0.0.1:9000/", "securitySchemes": schemes}
    async with to_a2a(Echo(), card, auth=lambda headers: None) as app:
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url=f"http://{OWN}") as http:
            refused = await http.post("/message:send", json={"message": MESSAGE})
    assert refused.status_code == 401
    said = refused.headers.get_list("www-authenticate")
    assert said == [f'{scheme} realm="openclaw-a2a"' for scheme in challenges]


async def test_function_that_raises_refuses_the_request(serving, caplog):
    def who(headers):
        raise RuntimeError("the list is lost")

    async with serving(Echo(), auth=who) as client:
        assert (await send_message(client))[0] == 401
    assert "the list is lost" in caplog.text


async def test_hostile_bodies_are_answered_with_errors(serving):
    async with serving(Echo()) as client:
        for body in (b"", b"{", b"[]", b"\xff", json.dumps({"method": 7}).encode()):
            answer = await client.http.post(
                "/", content=body, headers={"Content-Type": "application/json"}
            )
            assert "error" in answer.json()
