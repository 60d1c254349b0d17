"""A stream ends when the credentials that opened it are no longer valid."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.hostile.limited_gateway import (
    EXTENSION,
    PATIENCE_S,
    RPC,
    LimitedGateway,
    limited_gateway,
)

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


def told_after_revocation(gateway: LimitedGateway, kind: TokenKind, path: str, body: Json) -> str:
    """What a stream says from its beginning to its end; its token is revoked in between."""
    tokens = TokenStore(gateway.home)
    headers = {**HEADERS, "authorization": f"Bearer {tokens.create('bob', kind)}"}
    told = ""
    with (
        httpx2.Client(base_url=gateway.address, headers=headers, timeout=PATIENCE_S) as http,
        http.stream("POST", path, json=body) as answer,
    ):
        assert answer.status_code == 200
        for text in answer.iter_text():
            told += text
            tokens.revoke("bob")
        assert http.post(path, json=body).status_code == 401
    return told


@pytest.mark.parametrize("path", [RPC, "/a2a/rest/message:stream"])
def test_the_stream_of_a_task_ends_and_its_run_goes_on(gateway: LimitedGateway, path: str) -> None:
    body = rpc("SendStreamingMessage", MESSAGE) if path == RPC else MESSAGE
    told = told_after_revocation(gateway, TokenKind.PEER, path, body)
    frames = [line for line in told.splitlines() if line.startswith("data:")]
    assert "TASK_STATE" in told
    assert "not valid here" in json.loads(frames[-1].removeprefix("data:"))["error"]["message"]
    assert gateway.started() == ["hold it"]


def test_the_stream_of_an_objective_ends(gateway: LimitedGateway) -> None:
    token = TokenStore(gateway.home).create("bob", TokenKind.PEER)
    headers = {**HEADERS, "authorization": f"Bearer {token}"}
    made = httpx2.post(
        f"{gateway.address}{RPC}",
        json=rpc("objectives/create", {"name": "Trip"}),
        headers=headers,
        timeout=PATIENCE_S,
    )
    asked = rpc("objectives/subscribe", {"id": made.json()["result"]["objective"]["id"]})
    told = told_after_revocation(gateway, TokenKind.PEER, RPC, asked)
    assert "not valid here" in told


def test_the_stream_of_a_tool_ends(gateway: LimitedGateway) -> None:
    told = told_after_revocation(gateway, TokenKind.TOOL, "/tools/agent_call", CALL)
    assert "event: error" in told
    assert "not known here, or was revoked" in told
