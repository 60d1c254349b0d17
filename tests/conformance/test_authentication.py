"""Authentication of callers, and isolation between them."""

import pytest
from tests.conformance.asgi_client import AsgiClient, Request
from tests.conformance.conftest import Start, peers, token_of
from tests.conformance.protocol_clients import (
    Json,
    RpcFailed,
    V03Client,
    V1Client,
    encode_call,
    v03_message,
    v1_message,
)
from tests.conformance.scripted_agent import ScriptedAgent

from openclaw_a2a.model.agent_event import InputRequired, Reply

TASKS = {"agentStyle": "task-generating"}
RPC = "/a2a/jsonrpc"


def _agent() -> ScriptedAgent:
    return ScriptedAgent(Reply.of_text("hello"))


def _as(http: AsgiClient, peer: str) -> AsgiClient:
    return http.with_headers(authorization=f"Bearer {token_of(peer)}")


@pytest.mark.requirement("security.bearer")
async def test_a_peer_is_identified_by_its_token(start: Start) -> None:
    agent = _agent()
    http = await start(agent, settings=peers("alice", "bob"))
    await V1Client(_as(http, "alice")).send()
    await V03Client(_as(http, "bob")).send()
    assert [turn.principal for turn in agent.turns] == ["alice", "bob"]


@pytest.mark.requirement("security.bearer")
async def test_all_tokens_of_a_peer_are_valid(start: Start) -> None:
    agent = _agent()
    both = [
        *peers("alice")["channels.a2a.security.peers.alice"]["tokens"],
        *peers("new")["channels.a2a.security.peers.new"]["tokens"],
    ]
    settings = {"channels.a2a.security.peers.alice": {"tokens": both}}
    http = await start(agent, settings=settings)
    await V1Client(_as(http, "alice")).send()
    await V1Client(_as(http, "new")).send()
    assert [turn.principal for turn in agent.turns] == ["alice", "alice"]


@pytest.mark.requirement("security.unauthenticated", "wire.error.unauthenticated")
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": f"Basic {token_of('alice')}"},
        {"authorization": token_of("alice")},
        {"authorization": f"Bearer {token_of('alice')}x"},
        {"authorization": "Bearer \u00e9"},
    ],
)
async def test_a_call_without_a_valid_token_is_401_with_a_challenge(
    start: Start, headers: dict[str, str]
) -> None:
    agent = _agent()
    http = await start(agent, settings=peers("alice"))
    for path, body in (
        (RPC, encode_call("SendMessage", v1_message())),
        (RPC, encode_call("message/send", v03_message())),
        (RPC, b"{not json"),
        ("/a2a/rest/message:send", b"{}"),
    ):
        response = await http.post(path, body, **headers)
        assert response.status == 401
        assert response.headers["www-authenticate"].lower().startswith("bearer")
        assert response.json["error"]["message"]
    assert (await http.get("/a2a/rest/tasks", **headers)).status == 401
    assert agent.turns == []


@pytest.mark.requirement("security.unauthenticated")
async def test_scheme_is_compared_without_case(start: Start) -> None:
    http = await start(_agent(), settings=peers("alice"))
    v1 = V1Client(http.with_headers(authorization=f"bearer {token_of('alice')}"))
    assert "message" in await v1.send()


@pytest.mark.requirement("security.local")
async def test_caller_on_loopback_without_tokens_is_local(start: Start) -> None:
    agent = _agent()
    await V1Client(await start(agent)).send()
    assert agent.turns[0].principal == "local"


@pytest.mark.requirement("promise.walls.not-found")
async def test_a_task_of_another_caller_looks_like_an_unknown_one(start: Start) -> None:
    agent = ScriptedAgent(InputRequired("Which one?"))
    http = await start(agent, settings=peers("alice", "bob"))
    alice, bob = V1Client(_as(http, "alice")), V1Client(_as(http, "bob"))
    task = (await alice.send())["task"]
    calls: dict[str, Json] = {
        "GetTask": {"id": "ID"},
        "CancelTask": {"id": "ID"},
        "SubscribeToTask": {"id": "ID"},
        "SendMessage": v1_message(taskId="ID"),
        "SendStreamingMessage": v1_message(taskId="ID"),
    }
    for method, params in calls.items():
        theirs = await bob.error(method, _with_id(params, task["id"]))
        nobodys = await bob.error(method, _with_id(params, "no-such-task"))
        assert theirs.code == nobodys.code == -32001
        assert _without_id(theirs, task["id"]) == _without_id(nobodys, "no-such-task")
    assert (await alice.get(task["id"])) == task
    assert len(agent.turns) == 1


def _with_id(params: Json, task_id: str) -> Json:
    if "message" in params:
        return {"message": {**params["message"], "taskId": task_id}}
    return {"id": task_id}


def _without_id(failed: RpcFailed, task_id: str) -> str:
    return str(failed.error).replace(task_id, "ID")


@pytest.mark.requirement("promise.walls.not-found")
async def test_a_task_of_another_caller_is_not_found_in_0_3_and_rest(start: Start) -> None:
    http = await start(_agent(), account=TASKS, settings=peers("alice", "bob"))
    task = (await V1Client(_as(http, "alice")).send())["task"]
    bob = V03Client(_as(http, "bob"))
    assert (await bob.error("tasks/get", {"id": task["id"]})).code == -32001
    assert (await bob.error("tasks/cancel", {"id": task["id"]})).code == -32001
    (frame,) = await bob.events("tasks/resubscribe", {"id": task["id"]})
    assert frame.json["error"]["code"] == -32001
    for method, path in (
        ("GET", ""),
        ("DELETE", ""),
        ("POST", ":cancel"),
        ("GET", ":subscribe"),
    ):
        request = Request(method, f"/a2a/rest/tasks/{task['id']}{path}")
        assert (await _as(http, "bob").request(request)).status == 404


@pytest.mark.requirement("promise.walls.sessions", "security.sessions")
async def test_one_context_of_two_callers_is_two_sessions(start: Start) -> None:
    agent = ScriptedAgent()
    http = await start(agent, settings=peers("alice", "bob"))
    first = await V1Client(_as(http, "alice")).start(contextId="shared")
    second = await V1Client(_as(http, "bob")).start(contextId="shared")
    runs = [await agent.next_run(), await agent.next_run()]
    assert first["contextId"] == second["contextId"] == "shared"
    assert runs[0].turn.session_key != runs[1].turn.session_key
    for run in runs:
        await run.finish(Reply.of_text("done"))


@pytest.mark.requirement("security.sessions")
async def test_contexts_that_differ_in_spelling_only_are_two_sessions(start: Start) -> None:
    agent = _agent()
    v1 = V1Client(await start(agent))
    contexts = ["Mine", "mine", "mi ne", "mi-ne", "m\u00efne", "mine.", "x" * 80, "x" * 81]
    for context in contexts:
        await v1.send(contextId=context)
    assert len({turn.session_key for turn in agent.turns}) == len(contexts)


@pytest.mark.requirement("promise.walls.lists", "wire.list.own-only")
async def test_list_and_references_show_own_tasks_only(start: Start) -> None:
    agent = _agent()
    http = await start(agent, account=TASKS, settings=peers("alice", "bob"))
    alice, bob = V1Client(_as(http, "alice")), V1Client(_as(http, "bob"))
    task = (await alice.send(contextId="shared"))["task"]
    page = await bob.list(contextId="shared")
    assert (page["tasks"], page["totalSize"]) == ([], 0)
    await bob.send(referenceTaskIds=[task["id"]])
    assert agent.turns[-1].reference_tasks == ()
    assert (await alice.list())["totalSize"] == 1


@pytest.mark.requirement("promise.walls.accounts")
async def test_task_of_one_account_is_not_found_at_another(start: Start) -> None:
    settings = {"channels.a2a.accounts.second": {"defaultAgentId": "main", **TASKS}}
    http = await start(_agent(), account=TASKS, settings=settings)
    first, second = V1Client(http), V1Client(http, path="/agents/second/a2a/jsonrpc")
    task = (await first.send())["task"]
    assert (await second.error("GetTask", {"id": task["id"]})).code == -32001
    assert (await second.list())["totalSize"] == 0


@pytest.mark.requirement("door.loopback-host")
@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:9900"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:3000"},
        {"origin": "http://localhost"},
        {"origin": "https://127.0.0.1:9901"},
        {"origin": "file://"},
        {"origin": "http://localhost:9900/path"},
        {"origin": "http://evil@localhost:9900"},
        {"origin": "chrome-extension://localhost:9900"},
        {"host": "localhost:9901"},
        {"host": "localhost:0"},
        {"host": "localhost:"},
        {"host": "127.0.0.1:9900:9900"},
        {"host": "127.0.0.1:evil"},
        {"host": "[::1]evil:9900"},
        {"host": "evil@localhost:9900"},
        {"host": "2130706433:9900"},
        {"host": "0x7f.1:9900"},
        {"host": "127.1:9900"},
        {"host": "0177.0.0.1:9900"},
        {"host": "[::ffff:127.0.0.1]:9900"},
        {"host": "localhost..:9900"},
        {"host": "localhost%2e:9900"},
        {"host": " localhost:9900"},
    ],
)
async def test_loopback_access_refuses_web_pages(start: Start, headers: dict[str, str]) -> None:
    agent = _agent()
    http = await start(agent)
    response = await http.post(RPC, encode_call("SendMessage", v1_message()), **headers)
    assert response.status == 403
    assert (await http.get("/a2a/rest/tasks", **headers)).status == 403
    assert agent.turns == []


@pytest.mark.requirement("door.loopback-host")
@pytest.mark.parametrize(
    "headers",
    [
        {"host": "localhost:9900"},
        {"host": "[::1]:9900"},
        {"host": "LocalHost.:9900"},
        {"host": "localhost"},
        {"host": "[0:0:0:0:0:0:0:1]:9900"},
        {"origin": "http://127.0.0.1:9900"},
        {"origin": "http://LOCALHOST:9900"},
    ],
)
async def test_loopback_access_accepts_its_own_host_names(
    start: Start, headers: dict[str, str]
) -> None:
    http = await start(_agent())
    response = await http.post(RPC, encode_call("SendMessage", v1_message()), **headers)
    assert response.status == 200


@pytest.mark.requirement("security.local")
async def test_caller_from_elsewhere_needs_a_token(start: Start) -> None:
    agent = _agent()
    http = await start(agent)
    body = encode_call("SendMessage", v1_message())
    headers = {"content-type": "application/json"}
    request = Request("POST", RPC, headers, (body,), client="192.0.2.7")
    assert (await http.request(request)).status == 401
    assert agent.turns == []


@pytest.mark.requirement("security.local")
@pytest.mark.parametrize("path", [RPC, "/a2a/rest/message:send"])
@pytest.mark.parametrize(
    "header",
    ["Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "Via"],
)
async def test_without_tokens_a_proxied_request_is_refused(
    start: Start, path: str, header: str
) -> None:
    agent = _agent()
    http = await start(agent)
    passed_on = {header: "for=192.0.2.7", "a2a-version": "1.0"}
    response = await http.post(path, encode_call("SendMessage", v1_message()), **passed_on)
    assert response.status == 403
    assert "channels.a2a.security.peers" in response.json["error"]["message"]
    assert agent.turns == []


@pytest.mark.requirement("security.bearer")
async def test_with_tokens_a_proxied_request_is_accepted(start: Start) -> None:
    http = await start(_agent(), settings=peers("alice"))
    proxied = _as(http, "alice").with_headers(x_forwarded_for="192.0.2.7")
    assert "message" in await V1Client(proxied).send()


@pytest.mark.requirement("security.local")
@pytest.mark.parametrize("client", [None, "testclient"])
async def test_a_caller_without_a_peer_address_needs_a_token(
    start: Start, client: str | None
) -> None:
    """Such a caller counted as loopback and was trusted."""
    agent = _agent()
    gateway = await start(agent)
    body = encode_call("SendMessage", v1_message())
    headers = {"content-type": "application/json"}
    request = Request("POST", RPC, headers, (body,), client=client)
    assert (await gateway.request(request)).status == 401
    assert (await gateway.request(Request("GET", "/a2a/rest/tasks", client=client))).status == 401
    admin = Request("GET", "/operator/approvals", client=client)
    assert (await gateway.request(admin)).status == 403
    assert agent.turns == []
