"""Whatever a caller writes into tokens, cursors and bodies, it is served or told what is wrong."""

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import example, given
from hypothesis import strategies as st
from tests.conformance.asgi_client import AsgiClient, Request, Response
from tests.conformance.conftest import make_gateway
from tests.conformance.protocol_clients import v1_message
from tests.conformance.scripted_agent import ScriptedAgent
from tests.hostile_documents import documents, json_near

from openclaw_a2a.auth.admin_token import read_admin_token
from openclaw_a2a.auth.tokens import TokenKind, TokenStore
from openclaw_a2a.model.agent_event import Reply
from openclaw_a2a.planning.steps import EXTENSION_URI

Json = Any
Ask = Callable[..., Response]

RPC = "/a2a/jsonrpc"
ANSWER = json.dumps({"output": "done", "confidence": 0.9})
SETTINGS: Json = {
    "agents.other.adapter": "echo",
    "channels.a2a.accounts.default.agentStyle": "task-generating",
    "tools.agentToAgent": {"enabled": True, "allow": ["*"]},
    "opt.enabled": True,
    "outbound.enabled": True,
    "outbound.defaults": {"timeoutMs": 1000},
    "outbound.targets": [{"alias": "closed", "baseUrl": "http://127.0.0.1:1", "default": True}],
}


class Gateway:
    """A gateway with everything switched on, asked from tests that are not async."""

    def __init__(self, ask: Ask, admin_token: str, host_token: str) -> None:
        self.ask = ask
        self.admin = {"authorization": f"Bearer {admin_token}"}
        self.host = {
            "authorization": f"Bearer {host_token}",
            "x-openclaw-agent-id": "main",
            "x-openclaw-session-key": "agent:main:main",
        }

    def rpc(self, method: str, params: Json, **headers: str) -> Response:
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {"a2a-version": "1.0", "a2a-extensions": EXTENSION_URI, **headers}
        return self.ask("POST", RPC, json.dumps(call).encode(), **headers)


def is_clear(answer: Response) -> bool:
    """Neither an internal error nor anything unreadable."""
    return answer.status < 500 and b"-32603" not in answer.body and b'"internal' not in answer.body


@pytest.fixture(scope="module", params=["memory", "sqlite", "json-file"])
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    data = tmp_path_factory.mktemp("steady")
    agent = ScriptedAgent(script=lambda turn: [Reply.of_text(ANSWER)])
    settings = {**SETTINGS, "store.kind": request.param}
    with start_blocking_portal() as portal:

        async def make() -> Any:
            agents = {"main": agent, "other": agent}
            return make_gateway(agents, data=data, settings=settings)

        made = portal.call(make)
        with portal.wrap_async_context_manager(made):
            http = AsgiClient(made.asgi)

            def ask(method: str, path: str, body: bytes = b"", **headers: str) -> Response:
                if body:
                    length = str(len(body))
                    headers |= {"content-type": "application/json", "content-length": length}
                return portal.call(http.request, Request(method, path, headers, (body,)))

            host_token = TokenStore(data).create("host", TokenKind.HOST)
            found = Gateway(ask, read_admin_token(data) or "", host_token)
            for number in range(5):
                assert found.rpc("SendMessage", v1_message(f"{number}")).status == 200
                assert is_clear(found.rpc("objectives/create", {"name": f"{number}"}))
            yield found


MOMENTS = [datetime.now(UTC).isoformat(), "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59"]
MOMENTS += ["2026-01-01T00:00:00", "2026-01-01", "\ud800"]
TEXTS = st.sampled_from(["", "x", "\ud800", "\0", "a|b"]) | st.text(st.characters(), max_size=8)
PAIRS = st.tuples(st.sampled_from(MOMENTS) | TEXTS, TEXTS)


def encode_pair(pair: tuple[str, str]) -> str:
    """A token as lists of tasks have them."""
    text = json.dumps(pair).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


TOKENS = (
    PAIRS.map(encode_pair)
    | PAIRS.map("|".join)
    | PAIRS.map("~".join)
    | TEXTS
    | documents(PAIRS).map(lambda text: base64.urlsafe_b64encode(text).decode())
)


@pytest.mark.requirement("promise.bounds.hostile")
@given(TOKENS)
def test_any_page_token_gives_a_page_or_is_refused(gateway: Gateway, token: str) -> None:
    task = gateway.rpc("ListTasks", {"pageSize": 1}).json["result"]["tasks"][0]
    for answer in (
        gateway.rpc("ListTasks", {"pageToken": token, "pageSize": 2}),
        gateway.rpc("objectives/list", {"pageToken": token}),
        gateway.rpc("ListTaskPushNotificationConfigs", {"taskId": task["id"], "pageToken": token}),
    ):
        assert is_clear(answer), answer
        assert "result" in answer.json or answer.json["error"]["code"] in (-32602, -32700)


@pytest.mark.requirement("promise.bounds.hostile")
@given(TOKENS)
def test_a_page_token_that_was_changed_gives_a_page_or_is_refused(
    gateway: Gateway, noise: str
) -> None:
    token = gateway.rpc("ListTasks", {"pageSize": 1}).json["result"]["nextPageToken"]
    for changed in (token + noise, noise + token, token[: len(noise)] + noise):
        assert is_clear(gateway.rpc("ListTasks", {"pageToken": changed}))


MESSAGE = v1_message("the same each time", messageId="m-same")
CURSORS = st.sampled_from(["0", "-1", "1e3", "\u0661", "9" * 18, "9" * 30, " 1 ", "1,2"]) | st.text(
    st.characters(max_codepoint=255, exclude_characters="\r\n\0"), max_size=20
)


@pytest.mark.requirement("promise.bounds.hostile")
@given(CURSORS)
def test_any_last_event_id_gives_a_stream_or_is_refused(gateway: Gateway, cursor: str) -> None:
    with suppress(UnicodeEncodeError):
        cursor.encode("latin-1")
        header = {"last-event-id": cursor}
        task = gateway.rpc("SendMessage", MESSAGE).json["result"]["task"]
        old = {**header, "a2a-version": "0.3"}
        for answer in (
            gateway.rpc("SubscribeToTask", {"id": task["id"]}, **header),
            gateway.rpc("tasks/resubscribe", {"id": task["id"]}, **old),
            gateway.rpc("SendStreamingMessage", MESSAGE, **header),
            gateway.ask("GET", "/operator/tasks", **gateway.admin, **header),
        ):
            assert is_clear(answer), answer


VALUES = ["main", "other", "work", "send", "status", "text", "closed", True, 1, [], {}, "obj-1"]
VALUES += ["http://127.0.0.1:1", "https://[", "agent:main:main", "completed", "*"]
CALL = st.fixed_dictionaries(
    {"agent": st.just("other"), "skill": st.just("work")},
    optional={
        "input": st.dictionaries(st.text(max_size=4), json_near(["a"]), max_size=3),
        "wait": st.booleans(),
        "timeoutMs": st.integers() | st.integers(1, 2000),
        "sessionKey": st.text(max_size=5),
        "metadata": json_near(["chain", "correlationId"]),
    },
)
VALID = {
    "agent_call": CALL,
    "agent_call_batch": st.fixed_dictionaries({"calls": st.lists(CALL, max_size=3)}),
    "remote_agent": st.fixed_dictionaries(
        {"action": st.sampled_from(["send", "status", "cancel", "watch", "list_targets"])},
        optional={
            "parts": st.just([{"kind": "text", "text": "hi"}]),
            "target_url": st.sampled_from(["http://127.0.0.1:1", "https://["]) | TEXTS,
            "task_id": st.text(max_size=5),
        },
    ),
}


@pytest.mark.requirement("promise.bounds.hostile")
@pytest.mark.parametrize("gateway", ["memory"], indirect=True)
@given(st.data())
def test_any_body_of_a_tool_is_answered_or_refused(gateway: Gateway, data: st.DataObject) -> None:
    listed = gateway.ask("GET", "/tools", **gateway.host).json["tools"]
    tool = data.draw(st.sampled_from(listed))
    near = json_near(list(tool["inputSchema"]["properties"]), VALUES)
    body = data.draw(documents(VALID.get(tool["name"], near) | near))
    answer = gateway.ask("POST", f"/tools/{tool['name']}", body, **gateway.host)
    assert is_clear(answer), answer
    assert isinstance(answer.json, dict)


ADMIN_ROUTES = ["objectives", "objectives/obj-1/retry", "objectives/obj-1/answer", "tasks/x/cancel"]
ADMIN_ROUTES += ["objectives/import", "approvals/x", "peers/x/revoke", "deliveries/x/redeliver"]
ADMIN_MEMBERS = [
    "name",
    "owner",
    "plans",
    "tasks",
    "taskId",
    "text",
    "answer",
    "decision",
    "reason",
]


@pytest.mark.requirement("promise.bounds.hostile")
@pytest.mark.parametrize("gateway", ["memory"], indirect=True)
@example("objectives", b'{"name": "\xff"}', "")
@example("objectives", b'{"name":' + b"[" * 100_000, "")
@given(
    st.sampled_from(ADMIN_ROUTES),
    documents(json_near(ADMIN_MEMBERS, ["allow", "deny", "local", "x"])),
    st.sampled_from(["", "?limit=-1", "?status=x", "?limit=%ff", "?owner=%00", "?objective=%ud8"]),
)
def test_any_request_of_the_operator_is_answered_or_refused(
    gateway: Gateway, route: str, body: bytes, query: str
) -> None:
    for method in ("POST", "GET"):
        content = body if method == "POST" else b""
        answer = gateway.ask(method, f"/operator/{route}{query}", content, **gateway.admin)
        assert is_clear(answer), answer
