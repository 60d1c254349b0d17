"""Commands against agents that are not ours: a scripted one that answers anything."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

Answer = tuple[int, str, bytes]
SSE, JSON = "text/event-stream", "application/json"


class Script:
    """What the agent answers: its card, and one answer after the other to each call."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.card: object = {
            "name": "foreign",
            "capabilities": {"streaming": True},
            "supportedInterfaces": [
                {"url": f"{address}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
            ],
        }
        self.answers: list[Answer] = []
        self.calls: list[tuple[str, str | None]] = []

    def result(self, result: object) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()
        self.answers.append((200, JSON, body))

    def error(self, error: object, status: int = 200) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "error": error}).encode()
        self.answers.append((status, JSON, body))

    def stream(self, *events: object) -> None:
        frames = (json.dumps({"jsonrpc": "2.0", "id": 1, "result": event}) for event in events)
        body = "".join(f": ping\n\ndata: {frame}\n\n" for frame in frames).encode()
        self.answers.append((200, SSE, body))


@pytest.fixture
def script() -> Iterator[Script]:
    """A scripted agent on a port of its own."""

    class Door(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(200, JSON, json.dumps(scripted.card).encode())

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            scripted.calls.append((request["method"], self.headers.get("Last-Event-ID")))
            self.reply(*scripted.answers.pop(0))

        def reply(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: the tests look at the calls."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        scripted = Script(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield scripted
        server.shutdown()
        thread.join()


@pytest.fixture
def foreign(command, script: Script) -> Callable:
    """Run a command against the scripted agent."""
    return lambda *arguments: command(*arguments, "--url", script.address)


def task(state: str, text: str = "") -> dict[str, object]:
    made: dict[str, object] = {"id": "t", "contextId": "c", "status": {"state": state}}
    if text:
        made["artifacts"] = [{"artifactId": "a", "parts": [{"text": text}]}]
    return made


def piece(text: str) -> dict[str, object]:
    artifact = {"artifactId": "a", "parts": [{"text": text}]}
    return {"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": artifact}}


def test_a_stream_that_breaks_off_is_taken_up_from_the_task_as_it_is(foreign, script) -> None:
    script.stream({"task": task("TASK_STATE_WORKING")}, piece("one "))
    script.stream({"task": task("TASK_STATE_WORKING", "one two")})
    script.answers.append((503, JSON, b'{"error":"starting"}'))
    script.error({"code": -32004, "message": "it has ended"})
    script.result(task("TASK_STATE_COMPLETED", "one two three"))
    shown = foreign("send", "count")
    assert (shown.code, shown.out) == (0, "one two three\n")
    assert [method for method, _ in script.calls] == [
        "SendStreamingMessage",
        "SubscribeToTask",
        "SubscribeToTask",
        "SubscribeToTask",
        "GetTask",
    ]


def test_an_agent_that_does_not_stream_is_asked_plainly(foreign, script) -> None:
    script.card = {**script.card, "capabilities": {}}
    script.result({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "yes"}]}})
    assert foreign("send", "there?").out == "yes\n"
    assert script.calls == [("SendMessage", None)]


def test_a_stream_that_is_one_plain_answer_is_read_too(foreign, script) -> None:
    script.result({"task": task("TASK_STATE_COMPLETED", "done")})
    assert foreign("send", "x").out == "done\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"code": -32603, "message": "no", "data": [{"reason": "SOME_REASON"}]}, "some-reason"),
        ({"code": -32603, "message": "no", "data": {"free": "form"}}, "rpc-32603"),
        ({"code": "A2A_ODD", "message": "no"}, "a2a-odd"),
        ({"message": "no"}, "http-200"),
        ("just text", "http-200"),
    ],
)
def test_errors_of_others_get_a_code_too(foreign, script, error: object, code: str) -> None:
    script.error(error)
    shown = foreign("send", "x")
    assert shown.code == 1
    assert shown.err.startswith(f"error {code}: ")


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ((502, "text/html", b"<h1>"), "http-502"),
        ((401, "text/html", b""), "unauthenticated"),
        ((200, JSON, b"{}"), "answer-unreadable"),
        ((200, JSON, b'{"result": {"task": 5}}'), "answer-unreadable"),
        ((200, SSE, b"data: \xff\n\n"), "stream-unreadable"),
    ],
)
def test_answers_that_are_none_are_told(foreign, script, answer: Answer, code: str) -> None:
    script.answers.append(answer)
    shown = foreign("send", "x")
    assert shown.code == 1
    assert shown.err.startswith(f"error {code}: ")


def test_an_agent_that_speaks_only_the_old_protocol_is_told(foreign, script) -> None:
    old = {"url": script.address, "protocolBinding": "JSONRPC", "protocolVersion": "0.3"}
    script.card = {**script.card, "supportedInterfaces": [old]}
    shown = foreign("send", "x")
    assert shown.err.startswith("error binding-not-offered: ")
    assert "JSONRPC 0.3" in shown.err


@pytest.mark.parametrize("card", [[], {"name": 5}, {"capabilities": 5}, "card"])
def test_a_card_that_is_none_is_told(foreign, script, card: object) -> None:
    script.card = card
    assert foreign("card").err.startswith("error card-invalid: ")


def test_pages_are_joined_up_to_the_limit(foreign, script) -> None:
    for token in ("next", ""):
        tasks = [{**task("TASK_STATE_WORKING"), "id": f"{token}-{n}"} for n in range(100)]
        script.result({"tasks": tasks, "nextPageToken": token, "totalSize": 200})
    listed = foreign("tasks", "list", "--json", "--limit", "150").json
    assert (len(listed["tasks"]), listed["totalSize"]) == (150, 200)


def test_deleting_needs_an_agent_that_can(foreign, script) -> None:
    script.result(task("TASK_STATE_COMPLETED"))
    shown = foreign("tasks", "delete", "--yes", "t")
    assert shown.err.startswith("error binding-not-offered: ")
