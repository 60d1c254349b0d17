"""What an operator reads in the log of a gateway process that no terminal is attached to."""

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

Json = Any
TOKEN = "a-token-that-is-long-enough"
ENV = {"ALICE": TOKEN, "OPENCLAW_A2A_LOG__FORMAT": "auto"}
FUNCTION = """
import logging
import warnings

async def answer(text):
    if text == "log":
        logging.getLogger("user_agent").error("it %s", "broke", exc_info=ValueError("inside"))
    if text == "warn":
        warnings.warn("a library complains")
    if text == "raise":
        raise ZeroDivisionError("the function is broken")
    return "fine"
"""


@pytest.fixture
def log(start_gateway, tmp_path: Path):
    """A gateway with a Python function as its agent; a call stops it and returns its log."""
    (tmp_path / "user_agent.py").write_text(FUNCTION, encoding="utf-8")
    settings = {
        "log": {"level": "debug"},
        "agents": {
            "main": {"adapter": "callable", "function": "user_agent:answer"},
            "echo": {"adapter": "echo"},
        },
        "channels": {
            "a2a": {
                "accounts": {
                    "default": {"defaultAgentId": "main", "agentStyle": "task-generating"},
                    "direct": {"defaultAgentId": "echo", "agentStyle": "hybrid"},
                },
                "security": {"peers": {"alice": {"tokens": ["env:ALICE"]}}},
            }
        },
    }
    return ReadLog(start_gateway, settings, {**ENV, "PYTHONPATH": str(tmp_path)})


class ReadLog:
    def __init__(self, start_gateway, settings: Json, env: dict[str, str]) -> None:
        self.gateway = start_gateway(settings, env=env)

    def post(self, body: bytes, *, token: str = TOKEN, path: str = "/a2a/jsonrpc") -> Json:
        headers = {"content-type": "application/json", "a2a-version": "1.0"}
        headers["authorization"] = f"Bearer {token}"
        request = urllib.request.Request(self.gateway.url + path, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=240) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    def send(self, text: str, **options: Json) -> Json:
        said = {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]}
        call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": said}}
        return self.post(json.dumps(call).encode(), **options)["result"]

    def events(self) -> list[Json]:
        """Every line of the log; each must be JSON."""
        self.gateway.stop()
        text = self.gateway.output()
        assert TOKEN not in text
        # Emptied: the fixture allows no traceback, and a test here has a function that raises.
        self.gateway.log.write_bytes(b"")
        return [json.loads(line) for line in text.splitlines()]

    def find(self, event: str) -> list[Json]:
        return [one for one in self.events() if one["event"] == event]


def test_log_begins_with_the_address_and_the_agents_and_has_no_banner(log: ReadLog) -> None:
    first, *_ = log.events()
    assert (first["event"], first["level"]) == ("gateway.ready", "info")
    assert (first["url"], first["port"]) == (log.gateway.url, log.gateway.port)
    assert first["accounts"] == {"default": "main", "direct": "echo"}


def test_each_end_of_a_task_is_one_line(log: ReadLog) -> None:
    done, failed = log.send("hello")["task"], log.send("raise")["task"]
    first, second = log.find("task.ended")
    assert first["task_id"] == done["id"]
    assert (first["state"], first["caller"], first["agent"]) == ("completed", "alice", "main")
    assert (first["account"], first["level"]) == ("default", "info")
    assert first["milliseconds"] >= 0
    assert "code" not in first
    assert (second["task_id"], second["state"]) == (failed["id"], "failed")
    assert (second["code"], second["reason"]) == (
        "agent-failed",
        "The agent failed: the function is broken",
    )


def test_answer_without_a_task_is_one_line(log: ReadLog) -> None:
    assert "message" in log.send("hello", path="/agents/direct/a2a/jsonrpc")
    [answered] = log.find("message.answered")
    assert (answered["caller"], answered["account"]) == ("alice", "direct")


def test_exception_of_a_function_is_logged_with_the_task(log: ReadLog) -> None:
    task = log.send("raise")["task"]
    [raised] = log.find("run.agent_raised")
    assert (raised["task_id"], raised["agent"]) == (task["id"], "main")
    assert "user_agent.py" in raised["exception"]
    assert "ZeroDivisionError: the function is broken" in raised["exception"]


def test_each_refusal_is_one_line(log: ReadLog) -> None:
    assert log.post(b"{}", token="wrong") == 401
    assert log.post(b"{nonsense")["error"]["code"] == -32700
    assert log.post(b"{}", path="/nowhere") == 404
    method = {"jsonrpc": "2.0", "id": 1, "method": "NoMethod"}
    assert log.post(json.dumps(method).encode())["error"]["code"] == -32601
    refused = log.find("request.refused")
    assert [(one["code"], one["caller"]) for one in refused] == [
        ("unauthenticated", None),
        ("parse-error", "alice"),
        ("route-not-found", None),
        ("method-not-found", "alice"),
    ]
    assert all(one["level"] == "info" and one["milliseconds"] >= 0 for one in refused)
    assert refused[-1]["rpc"] == "NoMethod"


def test_each_request_is_a_line_at_debug(log: ReadLog) -> None:
    log.send("hello")
    requests = [one for one in log.find("http.request") if one["path"] == "/a2a/jsonrpc"]
    [request] = requests
    assert (request["method"], request["status"], request["caller"]) == ("POST", 200, "alice")
    assert (request["level"], request["client"]) == ("debug", "127.0.0.1")


def test_warnings_of_libraries_are_lines_of_the_same_form(log: ReadLog) -> None:
    log.send("warn")
    [warned] = [one for one in log.events() if "a library complains" in one["event"]]
    assert (warned["level"], warned["logger"]) == ("warning", "py.warnings")


def test_what_a_function_logs_is_a_line_of_the_same_form(log: ReadLog) -> None:
    log.send("log")
    [logged] = log.find("it broke")
    assert (logged["level"], logged["logger"]) == ("error", "user_agent")
    assert logged["exception"].endswith("ValueError: inside")
    assert logged["timestamp"]


def test_refusals_of_unknown_callers_are_one_line_for_each_code(log: ReadLog) -> None:
    for number in range(200):
        assert log.post(b"{}", token="") == 401
        assert log.post(b"{}", token=f"wrong-{number}") in (401, 429)
        assert log.post(b"{}", path=f"/nowhere/{number}") == 404
    assert log.post(b"{nonsense")["error"]["code"] == -32700
    assert log.post(b"{nonsense")["error"]["code"] == -32700
    refused = log.find("request.refused")
    # A minute may end in between: then a second line, and a count.
    assert len([one for one in refused if one.get("caller") is None]) <= 3 * 3
    assert {one["code"] for one in refused if one.get("caller") is None} == {
        "unauthenticated",
        "too-many-attempts",
        "route-not-found",
    }
    assert len([one for one in refused if one.get("caller") == "alice"]) == 2
