"""Commands against agents that are not ours: a scripted one that answers anything."""

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from openclaw_a2a.cli.a2a_client import Client
from openclaw_a2a.cli.commands.agent import given_up
from openclaw_a2a.cli.follow import Reconnect, TaskFollower
from openclaw_a2a.cli.options import Connection
from openclaw_a2a.model.errors import AgentUnavailable

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
        self.answers: list[Answer | None] = []
        self.calls: list[tuple[str, str | None]] = []
        self.message_ids: list[str] = []
        self.is_asked = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()

    def result(self, result: object) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()
        self.answers.append((200, JSON, body))

    def error(self, error: object, status: int = 200) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "error": error}).encode()
        self.answers.append((status, JSON, body))

    def hang_up(self) -> None:
        """Take the call in, and close the connection without an answer."""
        self.answers.append(None)

    def stream(self, *events: object) -> None:
        frames = (json.dumps({"jsonrpc": "2.0", "id": 1, "result": event}) for event in events)
        body = "".join(f": ping\n\ndata: {frame}\n\n" for frame in frames).encode()
        self.answers.append((200, SSE, body))


@pytest.fixture
def script() -> Iterator[Script]:
    """A scripted agent on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(200, JSON, json.dumps(scripted.card).encode())

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            scripted.calls.append((request["method"], self.headers.get("Last-Event-ID")))
            scripted.message_ids.append(request["params"].get("message", {}).get("messageId"))
            scripted.is_asked.set()
            scripted.may_answer.wait(240)
            answer = scripted.answers.pop(0)
            if answer is None:
                self.close_connection = True
            else:
                self.reply(*answer)

        def reply(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: the tests look at the calls."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        scripted = Script(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield scripted
        scripted.may_answer.set()
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


def test_broken_stream_resumes_from_the_current_task(foreign, script) -> None:
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


DRAINING = {
    "code": -32000,
    "message": "the gateway is stopping; try again when it is back",
    "data": [{"reason": "DRAINING", "metadata": {"code": "draining"}}],
}
ANSWER = {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "yes"}]}}


@pytest.mark.parametrize("more", [[], ["--no-stream"]])
def test_message_is_resent_under_the_same_id_after_connection_loss(
    foreign, script, more: list[str]
) -> None:
    script.hang_up()
    script.error(DRAINING, 503)
    script.answers.append((503, JSON, b'{"error":"starting"}'))
    script.result(ANSWER)
    shown = foreign("send", "there?", *more)
    assert (shown.code, shown.out) == (0, "yes\n")
    assert shown.err.splitlines() == [
        f"the connection to {script.address}/rpc was lost; trying again for 60 s"
    ]
    assert len(script.calls) == 4
    assert len(set(script.message_ids)) == 1


def test_stream_that_ends_without_an_answer_is_requested_again(foreign, script) -> None:
    script.stream()
    script.stream(ANSWER)
    shown = foreign("send", "there?")
    assert (shown.code, shown.out) == (0, "yes\n")
    assert "trying again" in shown.err


def test_rejection_after_a_restart_is_reported_at_once(foreign, script) -> None:
    script.error(DRAINING, 503)
    script.error({"code": -32602, "message": "no"})
    shown = foreign("send", "there?")
    assert shown.code == 1
    waiting, error = shown.err.splitlines()
    assert waiting == "the gateway is stopping; trying again for 60 s"
    assert error.startswith("error rpc-32602: ")


@pytest.fixture
def impatient(script) -> Iterator[Client]:
    client = Client(script.address, "a-secret")
    yield client
    client.close()


def next_step_of(error: AgentUnavailable, task_id: str | None, script: Script) -> str:
    connection = Connection(url=script.address, token="a-secret")
    return given_up(error, task_id, connection).details["nextStep"]


def test_giving_up_without_a_task_says_the_message_may_have_arrived(impatient, script) -> None:
    script.hang_up()
    with pytest.raises(AgentUnavailable) as failure:
        Reconnect(0).call(lambda: impatient.call("SendMessage", {}))
    step = next_step_of(failure.value, None, script)
    assert "may have been taken in" in step
    assert step.endswith(f"openclaw-a2a tasks list --url {script.address}")


def test_giving_up_with_a_task_says_it_is_kept(impatient, script) -> None:
    script.stream({"task": task("TASK_STATE_WORKING")})
    script.hang_up()
    follow = TaskFollower(impatient, reconnect_s=0)
    with pytest.raises(AgentUnavailable) as failure:
        list(follow.send({}))
    step = next_step_of(failure.value, follow.task_id, script)
    assert "The task is kept." in step
    assert step.endswith(f"openclaw-a2a tasks watch t --url {script.address}")


def interrupt(sender: subprocess.Popen[str]) -> list[str]:
    sender.send_signal(signal.SIGINT)
    _, talk = sender.communicate(timeout=240)
    assert sender.returncode == 130
    return talk.splitlines()


@pytest.mark.parametrize("more", [[], ["--no-stream"]])
def test_interrupted_send_without_a_task_says_the_agent_may_still_work(
    program, script, more: list[str]
) -> None:
    script.may_answer.clear()
    script.result(ANSWER)
    arguments = ["send", "x", *more, "--url", script.address]
    sender = subprocess.Popen(
        [*program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert script.is_asked.wait(240)
    assert interrupt(sender) == ["The message was sent; its agent may still be working."]


def test_interrupted_send_prints_how_to_follow_and_stop_the_task(
    program, shared_gateway: str, command
) -> None:
    address = f"{shared_gateway}/agents/slow"
    sender = subprocess.Popen(
        [*program, "send", "hold", "--url", address, "--token", "a-secret"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert sender.stderr is not None
    task_id = sender.stderr.readline().split()[1]
    *_, follow, stop = interrupt(sender)
    command("tasks", "cancel", task_id, "--url", address)
    assert follow == (
        f"The task goes on. Follow it: openclaw-a2a tasks watch {task_id} --url {address}"
    )
    assert stop == f"Stop it: openclaw-a2a tasks cancel {task_id} --url {address}"


def test_agent_without_streaming_gets_a_plain_request(foreign, script) -> None:
    script.card = {**script.card, "capabilities": {}}
    script.result({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "yes"}]}})
    assert foreign("send", "there?").out == "yes\n"
    assert script.calls == [("SendMessage", None)]


def test_plain_json_response_to_a_streaming_call_is_read(foreign, script) -> None:
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
def test_errors_of_other_agents_get_a_code(foreign, script, error: object, code: str) -> None:
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
def test_unreadable_answers_are_reported(foreign, script, answer: Answer, code: str) -> None:
    script.answers.append(answer)
    shown = foreign("send", "x")
    assert shown.code == 1
    assert shown.err.startswith(f"error {code}: ")


def test_agent_with_only_the_old_protocol_is_reported(foreign, script) -> None:
    old = {"url": script.address, "protocolBinding": "JSONRPC", "protocolVersion": "0.3"}
    script.card = {**script.card, "supportedInterfaces": [old]}
    shown = foreign("send", "x")
    assert shown.err.startswith("error binding-not-offered: ")
    assert "JSONRPC 0.3" in shown.err


def test_card_with_an_unreachable_address_is_reported(foreign, script) -> None:
    nowhere = {
        "url": "http://127.0.0.1:1/rpc",
        "protocolBinding": "JSONRPC",
        "protocolVersion": "1.0",
    }
    script.card = {**script.card, "supportedInterfaces": [nowhere]}
    shown = foreign("send", "x")
    assert shown.code == 3
    names = f"the card at {script.address} names http://127.0.0.1:1/rpc as its address"
    assert names in shown.err
    assert "openclaw-a2a up" not in shown.err


@pytest.mark.parametrize("card", [[], {"name": 5}, {"capabilities": 5}, "card"])
def test_invalid_card_is_reported(foreign, script, card: object) -> None:
    script.card = card
    assert foreign("card").err.startswith("error card-invalid: ")


def test_pages_are_joined_up_to_the_limit(foreign, script) -> None:
    for token in ("next", ""):
        tasks = [{**task("TASK_STATE_WORKING"), "id": f"{token}-{n}"} for n in range(100)]
        script.result({"tasks": tasks, "nextPageToken": token, "totalSize": 200})
    listed = foreign("tasks", "list", "--json", "--limit", "150").json
    assert (len(listed["tasks"]), listed["totalSize"]) == (150, 200)


def test_delete_fails_for_agents_without_the_rest_binding(foreign, script) -> None:
    script.result(task("TASK_STATE_COMPLETED"))
    shown = foreign("tasks", "delete", "--yes", "t")
    assert shown.err.startswith("error binding-not-offered: ")
