"""OAuth 2 for outgoing calls: the card says where tokens are, the settings say who we are."""

import asyncio
import base64
import json
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import grpc
import pytest
from tests.auth.local_issuer import serve_issuer
from tests.captured_logs import capture_logs
from tests.remote.grpc_peer import Context, GrpcPeer, grpc_peer
from tests.remote.scripted_peer import (
    Answer,
    PeerRequest,
    PeerWriter,
    ScriptedPeer,
    card_of,
    message,
    respond,
    result,
    scripted,
    stream,
    task,
)
from tests.remote.tool_harness import ToolHarness, one_target, open_tool
from tests.server.conftest import MakeGateway, make_gateway

from openclaw_a2a import RemoteAgents
from openclaw_a2a.remote.config import InvalidTargets, parse_config

__all__ = ["make_gateway"]

Json = Any
SECRET = "client-secret:7d6c5b4a/&="
CLIENT: Json = {"clientId": "robot one", "clientSecret": "env:CLIENT_SECRET"}
ENVIRONMENT = {"CLIENT_SECRET": SECRET}


class Issuer:
    """What a peer with a token endpoint of its own answers."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.answer = answer or result(message("hello"))
        self.lifetime: Json = 3600
        self.valid: set[str] = set()
        self.issued = 0
        self.token_answer: Answer | None = None

    async def __call__(self, received: PeerRequest, writer: PeerWriter) -> None:
        if received.path.startswith("/token"):
            await self._issue(received, writer)
        elif received.headers.get("authorization", "").removeprefix("Bearer ") in self.valid:
            await self.answer(received, writer)
        else:
            await respond({"error": "who?"}, status="401 No")(received, writer)

    async def _issue(self, received: PeerRequest, writer: PeerWriter) -> None:
        if self.token_answer is not None:
            await self.token_answer(received, writer)
            return
        self.issued += 1
        token = f"access-token-{self.issued}"
        self.valid.add(token)
        body = {"access_token": token, "token_type": "bearer", "expires_in": self.lifetime}
        await respond({key: one for key, one in body.items() if one is not None})(received, writer)


def v1_card(peer: ScriptedPeer, token_url: str | None = None, **more: Json) -> Json:
    flow = {"tokenUrl": token_url or f"{peer.url}token", "scopes": {"call": "Calls agents"}}
    scheme = {"oauth2SecurityScheme": {"flows": {"clientCredentials": flow}}}
    requirement = {"schemes": {"machine": {"list": ["call", "read"]}}}
    security = {"securitySchemes": {"machine": scheme}, "securityRequirements": [requirement]}
    return card_of(peer.url, **{**security, **more})


def v03_card(peer: ScriptedPeer, token_url: str | None = None) -> Json:
    flow = {"tokenUrl": token_url or f"{peer.url}token", "scopes": {"call": "Calls agents"}}
    return {
        "name": "Scripted",
        "description": "Says what it is told to.",
        "version": "1",
        "protocolVersion": "0.3.0",
        "url": f"{peer.url}rpc",
        "preferredTransport": "JSONRPC",
        "capabilities": {"streaming": True},
        "defaultInputModes": [],
        "defaultOutputModes": [],
        "skills": [],
        "securitySchemes": {
            "other": {"type": "http", "scheme": "bearer"},
            "machine": {"type": "oauth2", "flows": {"clientCredentials": flow}},
        },
        "security": [{"machine": ["call", "read"]}],
    }


def opened(
    peer: ScriptedPeer, *, client: Json = None, **more: Json
) -> AbstractAsyncContextManager[ToolHarness]:
    auth = {"oauth2": {**CLIENT, **(client or {})}}
    return open_tool(one_target(peer.url, auth=auth, **more), environment=ENVIRONMENT)


def token_requests(peer: ScriptedPeer) -> list[PeerRequest]:
    return [one for one in peer.requests if one.path.startswith("/token")]


V03_ANSWER = result({"kind": "message", "messageId": "m", "role": "agent", "parts": []})


@pytest.mark.parametrize(("make", "answer"), [(v1_card, None), (v03_card, V03_ANSWER)])
async def test_the_token_endpoint_of_the_card_gives_a_token_for_the_calls(
    make: Callable[[ScriptedPeer], Json], answer: Answer | None
) -> None:
    async with scripted(Issuer(answer)) as peer:
        peer.card = make(peer)
        async with opened(peer) as harness:
            for _ in range(3):
                assert (await harness.send("hi"))["ok"]
        [asked] = token_requests(peer)
        kind, _, credentials = asked.headers["authorization"].partition(" ")
        assert kind == "Basic"
        assert base64.b64decode(credentials) == b"robot+one:client-secret%3A7d6c5b4a%2F%26%3D"
        assert parse_qs(asked.body.decode()) == {
            "grant_type": ["client_credentials"],
            "scope": ["call read"],
        }
        assert asked.headers["content-type"] == "application/x-www-form-urlencoded"
        calls = [one for one in peer.calls if one.path == "/rpc"]
        assert {one.headers["authorization"] for one in calls} == {"Bearer access-token-1"}
        assert SECRET not in str([one.headers for one in calls])


async def test_scopes_of_the_settings_come_before_those_of_the_card() -> None:
    async with scripted(Issuer()) as peer:
        peer.card = v1_card(peer)
        async with opened(peer, client={"scopes": ["mine"]}) as harness:
            assert (await harness.send("hi"))["ok"]
        assert parse_qs(token_requests(peer)[0].body.decode())["scope"] == ["mine"]


async def test_the_secret_may_be_in_a_file(tmp_path: Path) -> None:
    place = tmp_path / "secret"
    place.write_text("from-a-file\n")
    async with scripted(Issuer()) as peer:
        peer.card = v1_card(peer)
        async with opened(peer, client={"clientSecret": f"file:{place}"}) as harness:
            assert (await harness.send("hi"))["ok"]
        sent = token_requests(peer)[0].headers["authorization"].partition(" ")[2]
        assert base64.b64decode(sent).endswith(b":from-a-file")


async def test_a_secret_that_is_missing_fails_the_call_and_nothing_is_sent() -> None:
    async with scripted(Issuer()) as peer:
        peer.card = v1_card(peer)
        async with opened(peer, client={"clientSecret": "env:MISSING"}) as harness:
            error = await harness.fail_send()
        assert "MISSING" in error["message"]
        assert peer.requests == []


async def test_a_token_is_renewed_before_it_expires() -> None:
    issuer = Issuer()
    issuer.lifetime = 600
    async with scripted(issuer) as peer:
        peer.card = v1_card(peer)
        async with opened(peer) as harness:
            assert (await harness.send("hi"))["ok"]
            harness.advance(500)
            assert (await harness.send("hi"))["ok"]
            assert issuer.issued == 1
            harness.advance(60)
            assert (await harness.send("hi"))["ok"]
            assert issuer.issued == 2


@pytest.mark.parametrize("follows", [False, True])
async def test_a_refused_token_is_renewed_once(follows: bool) -> None:
    issuer = Issuer(stream(message("hello")) if follows else None)
    async with scripted(issuer) as peer:
        peer.card = v1_card(peer)
        async with opened(peer) as harness:
            assert (await harness.send("hi", follow_updates=follows))["ok"]
            issuer.valid.clear()  # the peer has forgotten it
            assert (await harness.send("hi", follow_updates=follows))["ok"]
            assert issuer.issued == 2
            issuer.valid = FrozenSet()
            error = await harness.fail_send(follow_updates=follows)
            assert error["details"]["httpStatus"] == 401
            assert issuer.issued == 3


async def test_a_refused_token_is_renewed_over_http_json() -> None:
    issuer = Issuer(respond(message("hello")))
    async with scripted(issuer) as peer:
        interface = {"url": f"{peer.url}rest", "protocolBinding": "HTTP+JSON"}
        peer.card = v1_card(peer, supportedInterfaces=[{**interface, "protocolVersion": "1.0"}])
        async with opened(peer) as harness:
            for _ in range(2):
                assert (await harness.send("hi"))["ok"]
                issuer.valid.clear()
            assert issuer.issued == 2


async def test_a_refused_token_is_renewed_over_grpc() -> None:
    issuer = Issuer()

    async def answer(peer: GrpcPeer, context: Context) -> Json:
        token = dict(peer.requests[-1]).get("authorization", "").removeprefix("Bearer ")
        if token not in issuer.valid:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "who?")
        return message("hello")

    async with scripted(issuer) as server, grpc_peer(answer) as peer:
        auth = {"oauth2": {**CLIENT, "tokenUrl": f"{server.url}token"}}
        place = {"allowedHosts": [f"127.0.0.1:{peer.port}"]}
        config = one_target(peer.url, auth=auth, preferredTransports=["GRPC"], **place)
        async with open_tool(config, environment=ENVIRONMENT) as harness:
            for _ in range(2):
                assert (await harness.send("hi"))["ok"]
                issuer.valid.clear()
        assert issuer.issued == 2


class FrozenSet(set[str]):
    """A peer that accepts no token at all."""

    def add(self, _: str) -> None:
        pass


async def test_calls_at_the_same_time_share_one_token_request() -> None:
    issuer = Issuer()
    async with scripted(issuer) as peer:
        peer.card = v1_card(peer)
        async with opened(peer) as harness:
            answers = await asyncio.gather(*[harness.send("hi") for _ in range(10)])
        assert all(one["ok"] for one in answers)
        assert issuer.issued == 1


async def test_a_task_is_polled_with_a_new_token_when_the_old_one_expires() -> None:
    states = iter(["WORKING", "WORKING", "COMPLETED"])
    issuer = Issuer()

    async def answer(received: PeerRequest, writer: PeerWriter) -> None:
        issuer.valid.clear()  # each token is good for one request
        if received.json["method"] == "SendMessage":
            await result({"task": task("SUBMITTED")["task"]})(received, writer)
        else:
            await result(task(next(states))["task"])(received, writer)

    issuer.answer = answer
    async with scripted(issuer) as peer:
        peer.card = v1_card(peer, capabilities={"streaming": False})
        async with opened(peer) as harness:
            envelope = await harness.send("hi", follow_updates=True)
    assert envelope["ok"], envelope
    assert issuer.issued == 4


@pytest.mark.slow
async def test_one_gateway_calls_another_that_trusts_the_issuer(
    make_gateway: MakeGateway, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("anything")
    with serve_issuer() as issuer:
        security = {"oidc": [issuer.settings()]}
        accounts = {"default": {"agentStyle": "task-generating"}}
        gateway = make_gateway({"channels": {"a2a": {"security": security, "accounts": accounts}}})
        await gateway.start()
        client = {"clientId": "robot", "clientSecret": f"file:{secret}"}
        url = f"http://127.0.0.1:{gateway.port}"
        target = {"alias": "other", "baseUrl": url}
        pinned = {**target, "auth": {"oauth2": {**client, "tokenUrl": f"{issuer.url}/token"}}}
        async with RemoteAgents({"targets": [pinned]}) as remote:
            sent = await remote.send("other", "hello")
            assert sent.text == "echo: hello"
            assert (await remote.check("other")).is_let_in
        async with RemoteAgents({"targets": [target]}) as remote:
            assert (await remote.check("other")).is_let_in is False
        task_id = sent.task.id
        for sub, code in (("robot", None), ("alice", -32001)):
            header = b"authorization: Bearer " + issuer.token(sub=sub).encode()
            found = await gateway.call("GetTask", {"id": task_id}, headers=[header])
            assert found.json.get("error", {}).get("code") == code


# ---------------------------------------------------------------- where the secret may go


@pytest.mark.parametrize(
    "place",
    [
        "http://127.0.0.1:{other}/token",
        "https://evil.example/token",
        "http://evil.example/token",
        "http://127.0.0.1@127.0.0.1:{other}/token",
        "//127.0.0.1:{other}/token",
        "http://127.0.0.1:{own}@127.0.0.1:{other}/token",
        "ftp://127.0.0.1:{own}/token",
        "/token",
        "token",
        "http://[::1",
        "",
        "file:///etc/passwd",
        5,
        None,
    ],
)
@pytest.mark.parametrize("make", [v1_card, v03_card])
async def test_a_card_cannot_send_the_secret_elsewhere(
    make: Callable[[ScriptedPeer, Json], Json], place: Json
) -> None:
    async with scripted(Issuer()) as thief, scripted(Issuer()) as peer:
        given = place.format(other=thief.port, own=peer.port) if isinstance(place, str) else place
        card = make(peer, "x")
        scheme = card["securitySchemes"]["machine"]
        inner = scheme.get("oauth2SecurityScheme", scheme)
        inner["flows"]["clientCredentials"]["tokenUrl"] = given
        peer.card = card
        async with opened(peer) as harness:
            error = await harness.fail_send()
        assert error["details"]["errorName"] == "NoTokenEndpoint"
        assert "tokenUrl" in error["details"]["hint"]
        assert thief.requests == []
        assert peer.calls == []


async def test_the_operator_may_name_the_token_endpoint() -> None:
    issuer = Issuer()
    async with scripted(issuer) as server, scripted(issuer) as peer:
        peer.card = v1_card(peer, "https://evil.example/token")
        async with opened(peer, client={"tokenUrl": f"{server.url}token"}) as harness:
            assert (await harness.send("hi"))["ok"]
        assert len(server.requests) == 1
        assert token_requests(peer) == []


async def test_a_token_endpoint_at_an_allowed_host_is_used() -> None:
    issuer = Issuer()
    async with scripted(issuer) as server, scripted(issuer) as peer:
        peer.card = v1_card(peer, f"{server.url}token")
        async with opened(peer, allowedHosts=[f"127.0.0.1:{server.port}"]) as harness:
            assert (await harness.send("hi"))["ok"]
        assert len(server.requests) == 1


async def test_a_redirect_of_the_token_endpoint_is_not_followed() -> None:
    issuer = Issuer()
    async with scripted(Issuer()) as thief, scripted(issuer) as peer:
        issuer.token_answer = respond("", status="307 Go", Location=f"{thief.url}token")
        peer.card = v1_card(peer)
        async with opened(peer) as harness:
            error = await harness.fail_send()
        assert error["details"]["errorName"] == "NoAccessToken"
        assert thief.requests == []


async def test_another_card_of_the_same_host_gets_no_secret() -> None:
    """A continuation names a card path; its author must not choose the token endpoint."""
    issuer = Issuer()
    async with scripted(issuer) as peer:
        peer.card = v1_card(peer)

        async def answer(received: PeerRequest, writer: PeerWriter) -> None:
            if received.path == "/uploads/card.json":
                await respond(v1_card(peer, f"{peer.url}token/uploads"))(received, writer)
            else:
                await issuer(received, writer)

        peer.answer = answer
        named = {
            "target_url": peer.url,
            "card_path": "/uploads/card.json",
            "preferred_transports": ["JSONRPC"],
        }
        continuation = {"target": named, "conversation": {"context_id": "c-1"}}
        async with opened(peer) as harness:
            await harness.fail_send(continuation=continuation)
        assert token_requests(peer) == []


# ---------------------------------------------------------------- what goes wrong, and secrets


@pytest.mark.parametrize(
    "bad",
    [
        respond({"error": "invalid_client", "error_description": "no"}, status="401 No"),
        respond({"error": ["x"]}, status="400 No"),
        respond("<html>", kind="text/html"),
        respond([]),
        respond({}),
        respond({"access_token": 5, "token_type": "bearer"}),
        respond({"access_token": "", "token_type": "bearer"}),
        respond({"access_token": "a\r\nx-evil: 1", "token_type": "bearer"}),
        respond({"access_token": "x" * 100_000, "token_type": "bearer"}),
        respond({"access_token": "abc", "token_type": "mac"}),
        respond({"access_token": "abc"}),
        respond("", status="500 No"),
    ],
)
async def test_a_token_endpoint_without_a_token_fails_the_call(bad: Answer) -> None:
    issuer = Issuer()
    issuer.token_answer = bad
    async with scripted(issuer) as peer:
        peer.card = v1_card(peer)
        async with opened(peer) as harness:
            error = await harness.fail_send()
        assert error["details"]["errorName"] == "NoAccessToken"
        assert [one for one in peer.calls if one.path == "/rpc"] == []


async def test_secrets_of_oauth2_are_in_no_envelope_and_in_no_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    basic = base64.b64encode(b"robot+one:client-secret%3A7d6c5b4a%2F%26%3D").decode()

    async def echo(received: PeerRequest, writer: PeerWriter) -> None:
        said = f"{received.headers['authorization']} {SECRET} {basic}"
        if "Stream" in received.json["method"]:
            await stream(task("WORKING", text=said), message(said))(received, writer)
        else:
            await result(task("WORKING", text=said))(received, writer)

    issuer = Issuer(echo)
    async with scripted(issuer) as peer:
        peer.card = v1_card(peer)
        with capture_logs() as logs:
            async with opened(peer) as harness:
                assert (await harness.send("hi"))["ok"]
                await harness.send("hi", follow_updates=True)
                issuer.valid.clear()
                await harness.send("hi")
                said = f"no {SECRET} {basic} access-token-2"
                body = {"error": "x", "error_description": said}
                issuer.token_answer = respond(body, status="400 No")
                issuer.valid.clear()
                await harness.fail_send()
                await harness.execute("list_targets")
                shown = json.dumps(
                    [harness.envelopes, harness.tool.handles.all, logs], default=repr
                )
        shown += caplog.text + repr(parse_config(one_target(peer.url, auth={"oauth2": CLIENT})))
    for secret in (SECRET, json.dumps(SECRET)[1:-1], basic, "access-token-1", "access-token-2"):
        assert secret not in shown
    assert "[hidden]" in shown


@pytest.mark.parametrize(
    ("auth", "path"),
    [
        ({"oauth2": 1}, "auth.oauth2"),
        ({"oauth2": {}}, "auth.oauth2.clientId"),
        ({"oauth2": {**CLIENT, "clientSecret": "plain text"}}, "auth.oauth2.clientSecret"),
        ({"oauth2": {**CLIENT, "clientSecret": 5}}, "auth.oauth2.clientSecret"),
        ({"oauth2": {**CLIENT, "tokenUrl": "ftp://x"}}, "auth.oauth2.tokenUrl"),
        ({"oauth2": {**CLIENT, "tokenUrl": "https://a:b@x/"}}, "auth.oauth2.tokenUrl"),
        ({"oauth2": {**CLIENT, "scopes": "a b"}}, "auth.oauth2.scopes"),
        ({"oauth2": {**CLIENT, "more": 1}}, "auth.oauth2.more"),
        ({"oauth2": CLIENT, "type": "bearer", "token": "x"}, "auth"),
    ],
)
def test_wrong_credentials_in_the_settings_are_errors_without_their_values(
    auth: Json, path: str
) -> None:
    with pytest.raises(InvalidTargets) as failed:
        parse_config(one_target("https://x", auth=auth))
    assert [one.path for one in failed.value.problems] == [f"targets[0].{path}"]
    assert "plain text" not in str(failed.value)
