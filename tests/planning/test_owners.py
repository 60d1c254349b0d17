"""Objectives belong to one caller: a peer, a program and the operator never share a name."""

import json
from typing import Any

from tests.conformance.conftest import peers, token_of
from tests.planning.gateway_harness import PlanningHarness

from openclaw_a2a.auth.tokens import TOKENS_FILE, TokenKind, TokenStore

Json = Any
ON = {"opt.tools": True}


async def tool(harness: PlanningHarness, token: str, called: str, **arguments: Json) -> Json:
    client = harness.client.with_headers(authorization=f"Bearer {token}")
    content = json.dumps(arguments).encode()
    return (await client.post(f"/tools/{called}", content, content_length=str(len(content)))).json


async def rpc(harness: PlanningHarness, token: str, method: str, **params: Json) -> Json:
    client = harness.client.with_headers(authorization=f"Bearer {token}")
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return (await client.post("/a2a/jsonrpc", json.dumps(body).encode())).json["result"]


def names(listed: Json) -> list[str]:
    return [one["name"] for one in listed["objectives"]]


async def test_a_program_and_a_peer_of_one_name_see_their_own_objectives(
    harness: PlanningHarness,
) -> None:
    await harness.reopen({**ON, **peers("alice")})
    token = TokenStore(harness.folder).create("alice", TokenKind.TOOL)
    made = await rpc(harness, token_of("alice"), "objectives/create", name="of the peer")
    await tool(harness, token, "objective_create", name="of the program")
    assert names(await tool(harness, token, "objective_status")) == ["of the program"]
    assert names(await rpc(harness, token_of("alice"), "objectives/list")) == ["of the peer"]
    found = await tool(harness, token, "objective_status", id=made["objective"]["id"])
    assert (found["status"], found["code"]) == ("error", "plan-item-not-found")


def forget_owners(harness: PlanningHarness) -> None:
    """Make the token file one of an earlier version."""
    path = harness.folder / TOKENS_FILE
    file = json.loads(path.read_bytes())
    for one in file["tokens"]:
        one.pop("owner", None)
    path.write_text(json.dumps(file), encoding="utf-8")


async def test_a_program_keeps_the_objectives_that_it_made_with_an_earlier_version(
    harness: PlanningHarness,
) -> None:
    await harness.reopen(ON)
    tokens = TokenStore(harness.folder)
    token = tokens.create("nightly", TokenKind.TOOL)
    forget_owners(harness)
    await tool(harness, token, "objective_create", name="old")
    for one in (token, tokens.create("nightly", TokenKind.TOOL)):
        assert names(await tool(harness, one, "objective_status")) == ["old"]
    peer = tokens.create("bob", TokenKind.PEER)
    assert names(await rpc(harness, peer, "objectives/list")) == []


async def test_a_token_of_an_earlier_version_does_not_read_what_a_peer_of_its_name_has(
    harness: PlanningHarness,
) -> None:
    await harness.reopen({**ON, **peers("alice")})
    tokens = TokenStore(harness.folder)
    program, other = (tokens.create(name, TokenKind.TOOL) for name in ("alice", "carol"))
    forget_owners(harness)
    carol = tokens.create("carol", TokenKind.PEER)
    for peer, token in ((token_of("alice"), program), (carol, other)):
        await rpc(harness, peer, "objectives/create", name="of the peer")
        assert names(await tool(harness, token, "objective_status")) == []
