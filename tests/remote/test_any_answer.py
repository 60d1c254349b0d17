"""Whatever bytes a peer sends, a call ends with a result or an error that says what is wrong."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hostile_documents import documents, json_near
from tests.remote.scripted_peer import (
    CARD,
    Answer,
    PeerRequest,
    PeerWriter,
    ScriptedPeer,
    card_of,
    message,
    scripted,
    task,
)
from tests.remote.tool_harness import ToolHarness, one_target, open_tool

Json = Any
KINDS = ["application/json", "text/event-stream", "text/html", "application/a2a+json", ""]
STATUSES = ["200 OK", "201 Made", "204 None", "302 Found", "401 Who", "404 No", "500 Oh", "999 ?"]
LIFETIMES = ["3600", "\u0661", "9" * 400, 3600, -1, 0, 1e308, 10**25, True, None, []]
CLIENT = {"clientId": "robot", "clientSecret": "env:CLIENT_SECRET"}


def answer_with(
    body: bytes, status: str = "200 OK", kind: str = "application/json", more: bytes = b""
) -> Answer:
    """Exactly these bytes."""

    async def answer(_received: PeerRequest, writer: PeerWriter) -> None:
        head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nconnection: close\r\n".encode()
        writer.write(head + more + b"\r\n" + body)
        await writer.drain()

    return answer


def open_to(peer: ScriptedPeer, **more: Json) -> Any:
    config = one_target(peer.url, **more)
    config["defaults"] = {"timeoutMs": 20_000}
    return open_tool(config, environment={"CLIENT_SECRET": "secret"})


async def check(harness: ToolHarness, action: str, **request: Json) -> None:
    """A request ends with an envelope that is JSON: a result, or an error of the contract."""
    envelope = await harness.execute(action, **request)
    json.dumps([envelope, harness.updates]).encode()
    if not envelope["ok"]:
        assert envelope["error"]["code"] in ("A2A_SDK_ERROR", "TARGET_RESOLUTION_ERROR"), envelope
        assert envelope["error"]["message"]


HEADERS = st.sampled_from(
    [
        b"",
        b"content-length: 3\r\n",
        b"content-length: x\r\n",
        b"content-length: 99999999999999999999\r\n",
        b"content-encoding: gzip\r\n",
        b"transfer-encoding: chunked\r\n",
        b"x: \xff\xfe\r\n",
        b"retry-after: \xe9\r\n",
        b"location: /\r\n",
        b"no colon\r\n",
        b"www-authenticate: Bearer error=\r\n",
    ]
)
MEMBERS = ["jsonrpc", "id", "result", "error", "code", "message", "data", "task", "status", "state"]
MEMBERS += ["messageId", "role", "parts", "text", "kind", "artifacts", "artifactId", "history"]
MEMBERS += ["statusUpdate", "artifactUpdate", "taskId", "contextId", "metadata", "generation"]
VALUES = ["2.0", "t-1", "TASK_STATE_WORKING", "TASK_STATE_COMPLETED", "ROLE_AGENT", "agent", -32001]
VALUES += [message()["message"], task()["task"], {"state": "TASK_STATE_WORKING"}, 3, [], {}]
ANSWER = json_near(MEMBERS, VALUES)
RESULT = st.builds(
    lambda result: {"jsonrpc": "2.0", "id": 1, "result": result},
    st.sampled_from([message(), task(), task("WORKING")]) | ANSWER,
)
FRAMES = st.lists(
    st.tuples(
        st.sampled_from([b"data: ", b"data:", b"id: 1\ndata: ", b"event: error\ndata: ", b": "]),
        documents(RESULT),
        st.sampled_from([b"\n\n", b"\r\n\r\n", b"\n", b"\r\r"]),
    ).map(b"".join),
    max_size=4,
).map(b"".join)
BODIES = documents(RESULT | ANSWER) | FRAMES | st.binary(max_size=60)


@pytest.mark.requirement("remote.register.never-raises")
@given(BODIES, st.sampled_from(STATUSES), st.sampled_from(KINDS), HEADERS, st.booleans())
async def test_any_answer_of_a_peer_is_a_result_or_an_error(
    body: bytes, status: str, kind: str, headers: bytes, is_followed: bool
) -> None:
    async with scripted(answer_with(body, status, kind, headers)) as peer, open_to(peer) as harness:
        parts = [{"kind": "text", "text": "hi"}]
        await check(harness, "send", parts=parts, follow_updates=is_followed)
        await check(harness, "status", task_id="t-1")
        await check(harness, "watch", task_id="t-1")


URLS = ["http://127.0.0.1:1/rpc", "https://[", "127.0.0.1:x", "", "grpc://a", "http://\u2100/", 5]
SCHEME = st.fixed_dictionaries(
    {},
    optional={
        "oauth2SecurityScheme": json_near(["flows", "clientCredentials", "tokenUrl"], URLS),
        "type": st.sampled_from(["oauth2", "http"]),
        "flows": json_near(["clientCredentials", "tokenUrl", "scopes"], URLS),
    },
)
CARDS = st.fixed_dictionaries(
    {"name": st.just("Peer")},
    optional={
        "supportedInterfaces": st.lists(
            st.fixed_dictionaries(
                {
                    "url": st.sampled_from(URLS) | st.just("OWN") | st.text(max_size=9),
                    "protocolBinding": st.sampled_from(["JSONRPC", "HTTP+JSON", "GRPC", "X", 1]),
                    "protocolVersion": st.sampled_from(["1.0", "0.3", "1.1", "2", "", None]),
                },
            ),
            max_size=3,
        ),
        "url": st.sampled_from(["OWN", *URLS]),
        "preferredTransport": st.sampled_from(["JSONRPC", "HTTP+JSON", "x", None]),
        "protocolVersion": st.sampled_from(["0.3.0", "1.0", "9"]),
        "securitySchemes": st.dictionaries(st.text(max_size=3), SCHEME, max_size=2),
        "security": json_near(["a", "scopes"]),
        "capabilities": json_near(["streaming", "extensions", "uri"], [True, False]),
        "skills": json_near(["id", "name", "tags"]),
    },
) | json_near(["name", "url", "supportedInterfaces", "skills", "securitySchemes"], URLS)


@pytest.mark.requirement("remote.register.never-raises")
@given(documents(CARDS), st.sampled_from(STATUSES[:4]), HEADERS, st.booleans())
async def test_any_card_of_a_peer_is_used_or_refused(
    card: bytes, status: str, headers: bytes, has_client: bool
) -> None:
    more = {"auth": {"oauth2": CLIENT}} if has_client else {}
    async with scripted(answer_with(b"{}")) as peer, open_to(peer, **more) as harness:
        content = card.replace(b"OWN", peer.url.encode())
        peer.card_answer = answer_with(content, status, more=headers)
        await check(harness, "send", parts=[{"kind": "text", "text": "hi"}])
        await check(harness, "list_targets")


TOKENS = st.fixed_dictionaries(
    {"access_token": st.sampled_from(["abc", "", "a b", "\u00e9", "x" * 20_000]) | st.text()},
    optional={
        "token_type": st.sampled_from(["bearer", "Bearer", "mac", 1]),
        "expires_in": st.sampled_from(LIFETIMES),
        "error": json_near(["x"]),
    },
) | json_near(["access_token", "token_type", "expires_in", "error"], ["bearer", *LIFETIMES])


@pytest.mark.requirement("remote.register.never-raises")
@given(documents(TOKENS), st.sampled_from(STATUSES), HEADERS)
async def test_any_answer_of_a_token_endpoint_is_a_token_or_an_error(
    body: bytes, status: str, headers: bytes
) -> None:
    hello = json.dumps({"jsonrpc": "2.0", "id": 1, "result": message()}).encode()
    token_answer, rpc_answer = answer_with(body, status, more=headers), answer_with(hello)

    async def answer(received: PeerRequest, writer: PeerWriter) -> None:
        assert received.path != CARD
        await (token_answer if received.path == "/token" else rpc_answer)(received, writer)

    async with scripted(answer) as peer:
        flow = {"clientCredentials": {"tokenUrl": f"{peer.url}token", "scopes": {}}}
        scheme = {"oauth2SecurityScheme": {"flows": flow}}
        peer.card = card_of(peer.url, securitySchemes={"machine": scheme})
        async with open_to(peer, auth={"oauth2": CLIENT}) as harness:
            await check(harness, "send", parts=[{"kind": "text", "text": "hi"}])
