"""The class that official clients raise for every error, over every binding."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.conformance.test_official_clients import JAVASCRIPT, NODE, ROOT, SCRIPTS
from tests.ports import free_port

from openclaw_a2a.protocol.errors import ERROR_TABLE

pytestmark = [pytest.mark.slow, pytest.mark.requirement("clients.official", "wire.error.classes")]

DEADLINE_S = 240.0
PYTHON = {
    -32700: "JSONParseError",
    -32600: "InvalidRequestError",
    -32601: "MethodNotFoundError",
    -32602: "InvalidParamsError",
    -32603: "InternalError",
    -32001: "TaskNotFoundError",
    -32002: "TaskNotCancelableError",
    -32003: "PushNotificationNotSupportedError",
    -32004: "UnsupportedOperationError",
    -32005: "ContentTypeNotSupportedError",
    -32007: "ExtendedAgentCardNotConfiguredError",
    -32008: "ExtensionSupportRequiredError",
    -32009: "VersionNotSupportedError",
}
JS = {
    **PYTHON,
    -32700: "RequestMalformedError",
    -32600: "RequestMalformedError",
    -32601: "RequestMalformedError",
    -32602: "RequestMalformedError",
    -32603: "JsonRpcTransportError",
}
# That client knows only the reasons of A2A and INVALID_PARAMS; a body that is no JSON has no reason
# of its own in HTTP+JSON.
JS_REST = {code: name for code, name in JS.items() if code > -32600 or code == -32602}
CLIENTS = {
    ("a2a-sdk", "JSONRPC"): (PYTHON, "A2AClientError"),
    ("a2a-sdk", "HTTP+JSON"): ({**PYTHON, -32700: "InvalidRequestError"}, "A2AClientError"),
    ("a2a-js", "JSONRPC"): (JS, "JsonRpcTransportError"),
    ("a2a-js", "HTTP+JSON"): (JS_REST, "A2AError"),
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server whose store fails as the id of a task says."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [sys.executable, str(SCRIPTS / "failing_server.py"), str(port)], cwd=ROOT
    )
    try:
        until = time.monotonic() + DEADLINE_S
        while not _answers(address):
            assert server.poll() is None, "the server ended while it started"
            assert time.monotonic() < until, "the server did not start in time"
            time.sleep(0.05)  # the process tells nobody when it is ready
        yield address
    finally:
        server.kill()
        server.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/.well-known/agent-card.json", trust_env=False).is_success
    except httpx.TransportError:
        return False


@pytest.mark.parametrize(("client", "binding"), CLIENTS, ids=map(" over ".join, CLIENTS))
def test_every_error_is_raised_as_the_class_of_its_code(
    url: str, client: str, binding: str
) -> None:
    classes, other = CLIENTS[client, binding]
    errors = {f"raise-{kind.__name__}": codes for kind, codes in ERROR_TABLE.items()}
    is_python = client == "a2a-sdk"
    program = [sys.executable, SCRIPTS / "errors_1_0.py"]
    command = program if is_python else [NODE, SCRIPTS / "js" / "errors.mjs"]
    done = subprocess.run(
        [*map(str, command), url, binding, *errors],
        cwd=ROOT if is_python else Path(JAVASCRIPT),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S * 2,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = {task_id: classes.get(codes.v1, other) for task_id, codes in errors.items()}
    for task_id, codes in errors.items():
        # It looks at the HTTP status first: on JSON-RPC anything but 200 is no A2A error, and on
        # HTTP+JSON a 404 without a reason of A2A (those of the extension) is an unknown path.
        if is_python and binding == "JSONRPC" and codes.rpc_http != 200:
            expected[task_id] = other
        if is_python and binding == "HTTP+JSON" and (codes.v1, codes.http) == (-32050, 404):
            expected[task_id] = "MethodNotFoundError"
    assert json.loads(done.stdout) == expected
