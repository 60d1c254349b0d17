"""Arbitrary input to the planning endpoints never causes a server error."""

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance.asgi_client import Request, Response
from tests.server.objectives.conftest import ObjectivesServer, ask, build_server
from tests.server.objectives.scripted_planning import METHODS, into_objective

from openclaw_a2a.planning.steps import EXTENSION_URI

Json = Any

_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner),
    max_leaves=15,
)
_metadata_keys = st.sampled_from(
    ["opt/v1/objective", "opt/v1/plan", "opt/v1/preferObjective", "opt/v1/taskId"]
)


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An endpoint for the whole module, called from tests that are not async."""
    data: Path = tmp_path_factory.mktemp("steady")

    @asynccontextmanager
    async def opened() -> AsyncGenerator[ObjectivesServer]:
        async with AsyncExitStack() as parts:
            server = await build_server(parts, data)
            server.planning.take = into_objective("obj-123")
            yield server

    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(portal.call(_made, opened)) as server,
    ):

        def post(body: bytes, **headers: str) -> Response:
            named = {"content-type": "application/json", "a2a-extensions": EXTENSION_URI, **headers}
            asked = Request("POST", "/a2a/jsonrpc", named, (body,))
            return portal.call(server.client.request, asked)

        def rest(line: str, body: bytes | None) -> Response:
            return portal.call(ask, server.activated, line, body)

        yield server, post, rest


async def _made(make: Any) -> Any:
    return make()


def _encoded(value: Json) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _is_clear(answer: Response) -> bool:
    return answer.status < 500 and b"-32603" not in answer.body


@pytest.mark.requirement("opt.bad.hostile")
@given(method=st.sampled_from(sorted(METHODS)), params=_json, call_id=_json)
def test_arbitrary_params_never_cause_a_server_error(
    steady: Any, method: str, params: Json, call_id: Json
) -> None:
    server, post, _ = steady
    server.planning.asked.clear()
    server.planning.result = {"echo": params}
    body = _encoded({"jsonrpc": "2.0", "id": call_id, "method": method, "params": params})
    assert _is_clear(post(body))
    assert _is_clear(post(body, **{"a2a-version": "1.0"}))
    assert all(isinstance(asked.params, dict) for asked in server.planning.asked)


@given(value=_json)
def test_arbitrary_json_is_passed_to_planning_and_back_unchanged(steady: Any, value: Json) -> None:
    server, post, _ = steady
    server.planning.asked.clear()
    server.planning.result = {"echo": value}
    body = _encoded(
        {"jsonrpc": "2.0", "id": 1, "method": "objectives/create", "params": {"metadata": value}}
    )
    answer = post(body)
    if server.planning.asked:
        sent = json.loads(body)["params"]["metadata"]
        assert server.planning.asked[0].params == {"metadata": sent}
        assert answer.json["result"] == {"echo": sent}
    else:
        assert answer.json["error"]["code"] == -32700


@pytest.mark.requirement("opt.bad.hostile")
@given(
    method=st.sampled_from(["GET", "POST", "PATCH", "DELETE", "PUT"]),
    path=st.from_regex(r"\A/(objectives|plans)([/:?&=%#a-zA-Z0-9.\u00e9-]{0,40})\Z"),
    body=st.none() | _json.map(_encoded) | st.binary(max_size=40),
)
def test_arbitrary_paths_never_cause_a_server_error(
    steady: Any, method: str, path: str, body: bytes | None
) -> None:
    server, _, rest = steady
    server.planning.changes.put_nowait(None)  # a stream would end at once
    server.planning.result = {}
    answer = rest(f"{method} {path}", body)
    assert answer.status < 500


@pytest.mark.requirement("opt.bad.hostile")
@given(
    metadata=st.dictionaries(_metadata_keys, _json, max_size=3),
    members=st.dictionaries(st.sampled_from(["messageId", "contextId", "parts"]), _json),
    wire=st.sampled_from(["SendMessage", "message/send"]),
)
def test_arbitrary_messages_never_cause_a_server_error(
    steady: Any, metadata: Json, members: Json, wire: str
) -> None:
    _, post, _ = steady
    role = "user" if wire == "message/send" else "ROLE_USER"
    message = {"role": role, "parts": [{"text": "hi"}], "metadata": metadata, **members}
    body = {"jsonrpc": "2.0", "id": 1, "method": wire, "params": {"message": message}}
    assert _is_clear(post(_encoded(body)))


@given(said=st.text(st.characters(max_codepoint=255, exclude_characters="\r\n"), max_size=60))
def test_arbitrary_extension_headers_never_cause_a_server_error(steady: Any, said: str) -> None:
    _, post, _ = steady
    body = _encoded({"jsonrpc": "2.0", "id": 1, "method": "objectives/list", "params": {}})
    answer = post(body, **{"a2a-extensions": said})
    assert answer.json["error"]["code"] == -32601
