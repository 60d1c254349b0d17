"""The HTTP endpoints of the tools."""

import asyncio
import json
import re
from functools import partial

import httpx2
import pytest
from tests.conformance.asgi_client import AsgiClient, AsgiMessage, Receive, Request, Send

from openclaw_a2a.auth.admin_token import read_admin_token
from openclaw_a2a.auth.peers import Credentials
from openclaw_a2a.auth.tokens import TokenKind
from openclaw_a2a.auth.tool_tokens import ToolAuthenticator, ToolCaller
from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.http.asgi import AsgiRequest
from openclaw_a2a.http.request_limits import RequestBodies
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.tools.http import ToolEndpoints, ToolRequest
from openclaw_a2a.tools.registry import OnUpdate, Tool, ToolRegistry, run_with_progress

HELLO = {"action": "send", "parts": [{"kind": "text", "text": "hello"}]}
NEVER = {"action": "send", "target_alias": "silent", "parts": HELLO["parts"]}
CALL = "/tools/remote_agent"
DEADLINE_S = 240.0


def frames(text: str) -> list[tuple[str, object]]:
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if line[:1] not in ":")
        if "data" in lines:
            found.append((lines.get("event", "message"), json.loads(lines["data"])))
    return found


@pytest.mark.requirement("remote.tool.http", "remote.register.enabled")
async def test_a_caller_with_a_token_sees_the_tools_and_calls_them(served) -> None:
    client = served.client()
    (tool,) = (await client.get("/tools")).json()["tools"]
    assert (tool["name"], tool["label"]) == ("remote_agent", "Remote Agent")
    assert "Targets: me, silent" in tool["description"]
    assert tool["inputSchema"]["additionalProperties"] is False
    answer = await client.post(CALL, json=HELLO)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    envelope = answer.json()
    assert (envelope["ok"], envelope["action"]) == (True, "send")
    assert "hello" in envelope["summary"]["message_text"]


@pytest.mark.parametrize(
    "arguments", [{"action": "send"}, {}, [], None, 7, "x", {"action": "send", "nope": 1}]
)
async def test_a_refusal_of_the_tool_is_a_result_and_not_an_http_error(served, arguments) -> None:
    answer = await served.client().post(CALL, content=json.dumps(arguments), headers=JSON)
    assert answer.status_code == 200
    assert answer.json()["error"]["code"] == "VALIDATION_ERROR"


JSON = {"content-type": "application/json"}
BIG = b'"' + b"x" * (1024 * 1024) + b'"'


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "code"),
    [
        ("POST", CALL, b"{}", {"authorization": ""}, 401, "unauthenticated"),
        ("POST", CALL, b"{}", {"authorization": "Bearer wrong"}, 401, "unauthenticated"),
        ("POST", CALL, b"{}", {"authorization": "Basic x"}, 401, "unauthenticated"),
        ("POST", CALL, b"{}", {"host": "evil.example"}, 403, "not-allowed"),
        ("POST", CALL, b"{}", {"origin": "https://evil.example"}, 403, "not-allowed"),
        ("POST", CALL, b"{", {}, 400, "parse-error"),
        ("POST", CALL, b"", {}, 400, "parse-error"),
        ("POST", CALL, b"\xff", {}, 400, "parse-error"),
        ("POST", CALL, b"[" * 20_000, {}, 400, "parse-error"),
        ("POST", CALL, b"[" * 100_000, {}, 413, "content-too-large"),
        ("POST", CALL, BIG, {}, 413, "body-too-large"),
        ("POST", CALL, b"{}", {"content-type": "text/plain"}, 415, "media-type-not-supported"),
        ("POST", "/tools/other", b"{}", {}, 404, "route-not-found"),
        ("POST", "/tools/", b"{}", {}, 404, "route-not-found"),
        ("GET", "/tools/other", b"", {}, 404, "route-not-found"),
        ("GET", CALL, b"", {}, 405, "method-not-allowed"),
        ("PUT", CALL, b"{}", {"authorization": ""}, 401, "unauthenticated"),
        ("POST", "/results/res_x?from=-1", b"", {}, 405, "method-not-allowed"),
        ("GET", "/results/res_aaaaaaaaaaaaaaaaaaaaaaaa", b"", {}, 404, "route-not-found"),
        ("GET", "/results/..%2f..%2fetc%2fpasswd", b"", {}, 404, "route-not-found"),
        ("GET", "/results/res_x?from=-1", b"", {}, 400, "invalid-params"),
        ("GET", "/results/res_x?bytes=many", b"", {}, 400, "invalid-params"),
    ],
)
async def test_a_refused_request_has_a_status_a_code_and_a_next_step(
    served, method, path, body, headers, status, code
) -> None:
    client = served.client()
    answer = await client.request(method, path, content=body, headers={**JSON, **headers})
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code
    assert len(answer.json()["error"]["message"]) > 20
    assert ("www-authenticate" in answer.headers) == (status == 401)
    assert ("allow" in answer.headers) == (status == 405)


@pytest.mark.requirement("remote.tool.http")
async def test_updates_come_as_they_happen_and_the_result_is_last(served) -> None:
    follow = {**HELLO, "follow_updates": True}
    headers = {"accept": "text/event-stream, application/json"}
    answer = await served.client().post(CALL, json=follow, headers=headers)
    assert answer.headers["content-type"] == "text/event-stream"
    *updates, (last, envelope) = frames(answer.text)
    assert updates
    assert {name for name, _ in updates} == {"update"}
    assert all(update["phase"] == "update" for _, update in updates)
    assert (last, envelope["ok"]) == ("result", True)
    assert envelope["raw"]["events"] == [update["raw"] for _, update in updates]


async def test_a_stream_that_has_nothing_to_tell_stays_alive(served) -> None:
    client = served.client()
    headers = {"accept": "text/event-stream"}
    async with client.stream("POST", CALL, json=NEVER, headers=headers) as answer:
        async for line in answer.aiter_lines():
            assert line.startswith(":")
            break


@pytest.mark.requirement("remote.wire.abort")
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_the_remote_call_ends_when_the_caller_leaves(served, accept) -> None:
    client = served.client()
    calling = asyncio.ensure_future(client.post(CALL, json=NEVER, headers={"accept": accept}))
    await asyncio.wait_for(served.silent.asked.wait(), DEADLINE_S)
    calling.cancel()
    await asyncio.wait_for(served.silent.left.wait(), DEADLINE_S)


async def test_a_call_that_a_stop_of_ours_breaks_off_is_not_to_be_sent_again_blindly(serve) -> None:
    async with httpx2.AsyncClient(trust_env=False, timeout=DEADLINE_S) as client:
        async with serve() as served:
            token = {"authorization": f"Bearer {served.tokens.create('ann')}"}
            asking = client.post(f"{served.url}{CALL}", json=NEVER, headers=token)
            calling = asyncio.ensure_future(asking)
            await asyncio.wait_for(served.silent.asked.wait(), DEADLINE_S)
        answer = await calling
    assert answer.status_code == 503
    error = answer.json()["error"]
    assert "may still be at work" in error["message"]
    assert "action=status" in error["message"]


async def test_one_token_has_so_many_calls_at_once_and_no_more(serve) -> None:
    async with serve(tools={"perTokenCalls": 1}) as served:
        ann, bob = served.client("ann"), served.client("bob")
        calling = asyncio.ensure_future(ann.post(CALL, json=NEVER))
        await asyncio.wait_for(served.silent.asked.wait(), DEADLINE_S)
        refused = await ann.post(CALL, json=HELLO)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "overloaded")
        assert int(refused.headers["retry-after"]) >= 1
        assert (await bob.post(CALL, json=HELLO)).json()["ok"]
        calling.cancel()
        await asyncio.wait_for(served.silent.left.wait(), DEADLINE_S)
        async with asyncio.timeout(DEADLINE_S):
            while (await ann.post(CALL, json=HELLO)).status_code == 429:
                continue  # the server learns of it a moment later


async def read(client, path: str, *, start: int, count: int) -> bytes:
    piece = await client.get(path, params={"from": start, "bytes": count})
    assert piece.status_code == 200
    assert int(piece.headers["x-total-bytes"]) >= start + len(piece.content)
    return piece.content


@pytest.mark.requirement("remote.large.cut", "remote.large.owner")
async def test_a_large_result_is_cut_and_its_owner_reads_the_rest(served) -> None:
    ann, bob = served.client("ann"), served.client("bob")
    text = "".join(f"{number:07d} " for number in range(20_000))
    sent = {"action": "send", "parts": [{"kind": "text", "text": text}]}
    answer = await ann.post(CALL, json=sent)
    assert len(answer.content) < 100_000
    shown, _, hint = answer.json()["summary"]["message_text"].partition("\n[cut here: ")
    path, start, count = re.search(r"GET (/results/\S+)\?from=(\d+)&bytes=(\d+)", hint).groups()
    whole = shown.encode()
    assert len(whole) == int(start)
    while len(piece := await read(ann, path, start=len(whole), count=int(count))):
        whole += piece
    assert text.strip() in whole.decode()
    assert len((await ann.get(path, params={"bytes": 10**12})).content) == len(whole)
    assert (await ann.get(path, params={"from": 10**9})).content == b""
    assert (await bob.get(path)).status_code == 404
    posted = await ann.post(path)
    assert (posted.status_code, posted.headers["allow"]) == (405, "GET")


@pytest.mark.requirement("remote.tool.tokens")
async def test_a_revoked_token_is_refused_at_once(served) -> None:
    client = served.client("ann")
    assert (await client.get("/tools")).status_code == 200
    served.tokens.revoke("ann")
    assert (await client.get("/tools")).status_code == 401


async def test_the_operator_calls_tools_from_the_own_machine_only(served) -> None:
    token = {"authorization": f"Bearer {read_admin_token(served.folder)}"}
    assert (await served.caller(token).get("/tools")).status_code == 200
    proxied = served.caller({**token, "x-forwarded-for": "203.0.113.9"})
    assert (await proxied.get("/tools")).status_code == 401


async def test_all_requests_are_refused_while_the_tokens_cannot_be_read(served) -> None:
    client = served.client()
    (served.folder / "tokens.json").write_text("{", encoding="utf-8")
    answer = await client.get("/tools")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "corrupt-record")
    assert str(served.folder) not in answer.text


@pytest.mark.requirement("remote.register.enabled")
async def test_without_outbound_there_are_no_tools(serve) -> None:
    async with serve(outbound={"enabled": False}) as served:
        client = served.client("plugin", TokenKind.HOST)
        assert (await client.get("/tools")).json() == {"tools": []}
        answer = await client.post(CALL, json=HELLO)
        assert answer.status_code == 404
        assert "outbound.enabled" in answer.json()["error"]["message"]
        assert (await client.post("/mcp", json={})).status_code == 404


async def test_endpoints_that_the_settings_turn_off_are_not_served(serve) -> None:
    async with serve(tools={"http": False, "mcp": False}) as served:
        client = served.client()
        for path in ("/tools", "/mcp", "/results/res_x"):
            answer: httpx2.Response = await client.get(path)
            assert answer.status_code == 404


@pytest.mark.requirement("remote.durable.handle")
async def test_a_handle_is_good_after_a_restart(serve) -> None:
    kept = {"store": {"kind": "sqlite"}}
    async with serve(**kept) as served:
        token = {"authorization": f"Bearer {served.tokens.create('ann')}"}
        answer = await served.caller(token).post(CALL, json=HELLO)
        task = answer.json()["summary"]["continuation"]["task"]
        port = int(served.url.rpartition(":")[2])
    status = {"action": "status", "task_handle": task["task_handle"]}
    async with serve(port=port, **kept) as served:
        again = (await served.caller(token).post(CALL, json=status)).json()
        assert again["ok"], again
        assert again["raw"]["id"] == task["task_id"]


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("never", ["written"]),
        ("as the result is ready", ["lost"]),
        ("while the tool runs", ["cancelled"]),
    ],
)
async def test_a_tool_learns_whether_its_result_was_written(
    tmp_path, accept, when, expected
) -> None:
    seen: list[str] = []
    answer, is_running = asyncio.get_running_loop().create_future(), asyncio.Event()

    async def run(*_: object) -> dict[str, object]:
        is_running.set()
        try:
            return await answer
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    tool = Tool(
        "ask", "Ask", "", {}, run, lambda _: seen.append("written"), lambda _: seen.append("lost")
    )
    supervisor = Supervisor()
    endpoints = ToolEndpoints(
        ToolRegistry([tool]),
        ToolAuthenticator(Credentials(), max_calls=1),
        read_result=lambda *_: None,
        heartbeat_s=60.0,
        supervisor=supervisor,
    )

    async def app(scope: AsgiMessage, receive: Receive, send: Send) -> None:
        http = AsgiRequest(scope, receive, send)
        body = await http.read_body(100, RequestBodies(5.0))
        is_streamed = accept == "text/event-stream"
        request = ToolRequest(http, ToolCaller("caller"), body, is_streamed=is_streamed)
        await endpoints.call(request)

    request = Request("POST", "/tools/ask", {**JSON, "accept": accept}, (b"{}",))
    async with AsgiClient(app).open(request) as active:
        async with asyncio.timeout(240):
            await is_running.wait()
        if when != "never":
            active.disconnect()
        if when != "while the tool runs":
            answer.set_result({"ok": True})
        await active.wait_ended()
    assert seen == expected
    assert await supervisor.stop() == []


async def test_a_slow_client_misses_the_oldest_updates_and_is_told_how_many() -> None:
    many, kept = 1000, 256
    may_show = asyncio.Event()
    shown: list[JsonObject] = []

    async def run(_arguments: Json, _caller: ToolCaller, report: OnUpdate) -> JsonObject:
        for number in range(many):
            report(partial(dict, number=number))
        may_show.set()
        return {"ok": True}

    async def show(update: JsonObject) -> None:
        await may_show.wait()
        shown.append(update)

    caller = ToolCaller("somebody")
    result = await run_with_progress(Tool("t", "T", "", {}, run), {}, caller, show)
    assert result == {"ok": True}
    numbers = [one["number"] for one in shown]
    assert numbers == list(range(many - kept, many)), "the newest are shown, in their order"
    assert [one.get("dropped_updates") for one in shown] == [many - kept] + [None] * (kept - 1)
