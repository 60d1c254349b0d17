"""An agent with `adapter: "openclaw"` in a real gateway process."""

import json
import time
import urllib.request

import pytest

DONE = ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED")
DEADLINE_S = 240.0


@pytest.fixture
def gateway(openclaw, start_gateway):
    agent = {
        "adapter": "openclaw",
        "openclawPath": str(openclaw.program),
        "env": openclaw.variables,
        "killGraceSeconds": 1,
    }
    return start_gateway({"agents": {"main": agent}})


def call(gateway, method: str, params: dict) -> dict:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
    request = urllib.request.Request(f"{gateway.url}/a2a/jsonrpc", body, headers)
    with urllib.request.urlopen(request, timeout=240) as answer:
        return json.load(answer)["result"]


def send(gateway, text: str) -> dict:
    message = {"role": "ROLE_USER", "messageId": text, "parts": [{"text": text}], "contextId": "c"}
    params = {"message": message, "configuration": {"returnImmediately": True}}
    return call(gateway, "SendMessage", params)["task"]


def ended(gateway, task_id: str) -> dict:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        task = call(gateway, "GetTask", {"id": task_id})
        if task["status"]["state"] in DONE:
            return task
        assert time.monotonic() < deadline, task
        time.sleep(0.05)  # another process works on it


@pytest.mark.slow
def test_task_is_answered_by_the_command_in_its_callers_session(openclaw, gateway):
    task = ended(gateway, send(gateway, "hello")["id"])
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert task["artifacts"][0]["parts"] == [{"text": "echo: hello"}]
    arguments = openclaw.starts()[0]
    assert arguments[arguments.index("--session-key") + 1] == "agent:main:a2a:local:c"


@pytest.mark.slow
async def test_kill_of_the_gateway_leaves_no_command_behind(openclaw, gateway):
    task = send(gateway, "hang")
    await openclaw.working()
    gateway.kill()
    assert openclaw.count_alive() == 2
    gateway.start()
    assert ended(gateway, task["id"])["status"]["state"] == "TASK_STATE_FAILED"
    openclaw.assert_nothing_runs()
    assert ended(gateway, send(gateway, "again")["id"])["status"]["state"] == DONE[0]


@pytest.mark.slow
async def test_cancel_and_stop_leave_no_command_behind(openclaw, gateway):
    task = send(gateway, "hang")
    await openclaw.working()
    cancelled = call(gateway, "CancelTask", {"id": task["id"]})
    assert cancelled["status"]["state"] == "TASK_STATE_CANCELED"
    openclaw.assert_nothing_runs()
    message = {"role": "ROLE_USER", "messageId": "m", "parts": [{"text": "hang"}]}
    call(gateway, "SendMessage", {"message": message, "configuration": {"returnImmediately": True}})
    await openclaw.working(2)
    gateway.stop()
    openclaw.assert_nothing_runs()
