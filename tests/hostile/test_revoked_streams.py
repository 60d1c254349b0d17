"""A stream ends when the credentials that opened it are no longer valid."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.hostile.limited_gateway import (
    DEADLINE_S,
    EXTENSION,
    RPC,
    LimitedGateway,
    limited_gateway,
)

from openclaw_a2a.auth.principal import Scope
from openclaw_a2a.auth.tokens import TokenKind, TokenStore

Json = Any
pytestmark = pytest.mark.slow
HEADERS = {
    "a2a-version": "1.0",
    "a2a-extensions": EXTENSION,
    "accept": "text/event-stream",
}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[LimitedGateway]:
    server = {"stopSeconds": 0, "heartbeatSeconds": 0.5}
    with limited_gateway(tmp_path, "alice", server=server, opt={"enabled": True}) as started:
        yield started


def rpc(method: str, params: Json) -> Json:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


MESSAGE = {
    "message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hold it"}]},
}
CALL = {"agent": "main", "skill": "work", "input": {"hold": 1}, "wait": True}


def revoke(tokens: TokenStore) -> None:
    tokens.revoke("bob")


def expire(tokens: TokenStore) -> None:
    """Let the token of bob end now; another one takes its place, which the stream does not show."""
    if len([one for one in tokens.list_tokens() if one.name == "bob"]) == 1:
        tokens.rotate("bob", grace=timedelta(0))


def told_after_the_end_of_a_token(
    gateway: LimitedGateway,
    scope: Scope,
    path: str,
    body: Json = None,
    *,
    end: Callable[[TokenStore], None] = revoke,
    version: str = "1.0",
) -> str:
    """What a stream says from its beginning to its end; its token ends in between."""
    tokens = TokenStore(gateway.home)
    kind = TokenKind.TOOL if scope is Scope.TOOLS else TokenKind.PEER
    token = tokens.create("bob", kind, scopes=[scope])
    headers = {**HEADERS, "a2a-version": version, "authorization": f"Bearer {token}"}
    method = "GET" if body is None else "POST"
    told = ""
    with (
        httpx2.Client(base_url=gateway.address, headers=headers, timeout=DEADLINE_S) as http,
        http.stream(method, path, json=body) as answer,
    ):
        assert answer.status_code == 200, answer.read()
        deadline = time.monotonic() + DEADLINE_S  # heartbeats would come for ever
        for text in answer.iter_text():
            assert time.monotonic() < deadline, told
            told += text
            end(tokens)
        assert http.request(method, path, json=body).status_code == 401
    return told


@pytest.mark.parametrize("end", [revoke, expire])
@pytest.mark.parametrize("path", [RPC, "/a2a/rest/message:stream"])
def test_the_stream_of_a_task_ends_and_its_run_goes_on(
    gateway: LimitedGateway, path: str, end: Callable[[TokenStore], None]
) -> None:
    body = rpc("SendStreamingMessage", MESSAGE) if path == RPC else MESSAGE
    told = told_after_the_end_of_a_token(gateway, Scope.A2A, path, body, end=end)
    frames = [line for line in told.splitlines() if line.startswith("data:")]
    assert "TASK_STATE" in told
    assert "not valid here" in json.loads(frames[-1].removeprefix("data:"))["error"]["message"]
    assert gateway.started() == ["hold it"]


def test_the_stream_of_a_task_ends_in_the_old_version(gateway: LimitedGateway) -> None:
    message = {
        "kind": "message",
        "messageId": "m-1",
        "role": "user",
        "parts": [{"kind": "text", "text": "hold it"}],
    }
    told = told_after_the_end_of_a_token(
        gateway, Scope.A2A, RPC, rpc("message/stream", {"message": message}), version="0.3"
    )
    assert "not valid here" in told.splitlines()[-2]


def test_the_stream_of_a_page_ends(gateway: LimitedGateway) -> None:
    path = "/dashboard/live?at=/dashboard"
    told = told_after_the_end_of_a_token(gateway, Scope.DASHBOARD, path)
    assert "not valid here" in told


def test_the_stream_of_the_operator_ends(gateway: LimitedGateway) -> None:
    alice = gateway.peer("alice")
    task = alice.start("hold it")
    path = f"/operator/tasks/{task['id']}/events"
    told = told_after_the_end_of_a_token(gateway, Scope.ADMIN, path)
    assert "not the operator's token" in told


def test_the_stream_of_an_objective_ends(gateway: LimitedGateway) -> None:
    token = TokenStore(gateway.home).create("bob", TokenKind.PEER)
    headers = {**HEADERS, "authorization": f"Bearer {token}"}
    made = httpx2.post(
        f"{gateway.address}{RPC}",
        json=rpc("objectives/create", {"name": "Trip"}),
        headers=headers,
        timeout=DEADLINE_S,
    )
    asked = rpc("objectives/subscribe", {"id": made.json()["result"]["objective"]["id"]})
    told = told_after_the_end_of_a_token(gateway, Scope.A2A, RPC, asked)
    assert "not valid here" in told


def test_the_stream_of_a_tool_ends(gateway: LimitedGateway) -> None:
    told = told_after_the_end_of_a_token(gateway, Scope.TOOLS, "/tools/agent_call", CALL)
    assert "event: error" in told
    assert "not known here, or was revoked" in told


def test_the_stream_of_an_mcp_session_ends(gateway: LimitedGateway) -> None:
    tokens = TokenStore(gateway.home)
    headers = {
        "authorization": f"Bearer {tokens.create('bob')}",
        "accept": "application/json, text/event-stream",
    }
    opening = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    with httpx2.Client(base_url=gateway.address, headers=headers, timeout=DEADLINE_S) as http:
        opened = http.post("/mcp", json=rpc("initialize", opening))
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert http.post("/mcp", json=ready, headers=session).status_code == 202
        with http.stream("GET", "/mcp", headers=session) as answer:
            assert answer.status_code == 200
            tokens.revoke("bob")
            # Its end is what is waited for; heartbeats would come for ever.
            deadline = time.monotonic() + DEADLINE_S
            for _ in answer.iter_bytes():
                assert time.monotonic() < deadline
        assert http.get("/mcp", headers=session).status_code == 401
