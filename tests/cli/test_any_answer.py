"""Whatever a server answers to a command, the command has a result or one of our errors."""

import socket
from collections.abc import Callable, Iterator
from threading import Thread

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.hostile_documents import documents, json_near

from openclaw_a2a.cli.a2a_client import Client
from openclaw_a2a.model.errors import AgentError

ANSWER_MEMBERS = ["jsonrpc", "id", "result", "error", "code", "message", "data", "details"]
ANSWER_MEMBERS += ["reason", "metadata"]
ANSWERS = st.builds(
    lambda more: {"jsonrpc": "2.0", "id": 1, **more},
    json_near(["x"]).map(lambda value: {"result": value}),
) | json_near(ANSWER_MEMBERS, [-32001, "TASK_NOT_FOUND", [{"reason": "A_B", "metadata": {}}]])
ADDRESSES = [
    "OWN",
    "https://[",
    "http://127.0.0.1:1",
    "ftp://x",
    "",
    "http://127.0.0.1:99999",
    "\0",
]
CARDS = st.fixed_dictionaries(
    {
        "name": st.just("x"),
        "supportedInterfaces": st.lists(
            st.fixed_dictionaries(
                {
                    "url": st.sampled_from(ADDRESSES) | st.text(max_size=6),
                    "protocolBinding": st.sampled_from(["JSONRPC", "GRPC"]),
                    "protocolVersion": st.sampled_from(["1.0", "0.3", ""]),
                }
            ),
            min_size=1,
            max_size=2,
        ),
    },
    optional={"capabilities": json_near(["streaming"], [True]), "skills": json_near(["id"])},
) | json_near(["name", "supportedInterfaces", "capabilities"])
HEADERS = st.sampled_from(
    [
        b"",
        b"content-type: text/event-stream\r\n",
        b"content-length: x\r\n",
        b"content-encoding: gzip\r\n",
        b"content-type: \xff\r\n",
        b"location: http://[\r\n",
        b"location: /rpc\r\n",
    ]
)
STATUSES = st.sampled_from([b"200 OK", b"200 OK", b"302 Found", b"404 No", b"500 Oh", b"999 ?"])
CARD = b'{"name":"x","supportedInterfaces":[{"url":"OWN","protocolBinding":"JSONRPC",'
CARD += b'"protocolVersion":"1.0"}]}'


@pytest.fixture(scope="module")
def server() -> Iterator[Callable[[bytes, bytes], str]]:
    """A server on loopback: says what it answers to a GET and to a POST, and its address."""
    answers: dict[bytes, bytes] = {}
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            with connection:
                head = connection.recv(65_536)
                if head.startswith(b"QUIT"):
                    return
                connection.sendall(answers[head.split(b" ")[0]].replace(b"OWN", url.encode()))

    thread = Thread(target=serve)
    thread.start()

    def set_answers(card: bytes, answer: bytes) -> str:
        answers.update({b"GET": card, b"POST": answer, b"DELETE": answer})
        return url

    yield set_answers
    with socket.create_connection(listener.getsockname()) as last:
        last.sendall(b"QUIT")
    thread.join()
    listener.close()


def http_answer(body: bytes, status: bytes = b"200 OK", headers: bytes = b"") -> bytes:
    return b"HTTP/1.1 " + status + b"\r\nconnection: close\r\n" + headers + b"\r\n" + body


FRAMES = st.lists(documents(ANSWERS).map(lambda body: b"data: " + body + b"\n\n"), max_size=3).map(
    b"".join
)


@example(http_answer(CARD), http_answer(b'{"result":{"a":"\xff"}}'))
@example(http_answer(CARD), http_answer(b'{"error":' + b"[" * 100_000))
@example(http_answer(CARD.replace(b"OWN", b"https://[")), http_answer(b"{}"))
@given(
    st.builds(http_answer, st.just(CARD))
    | st.builds(http_answer, documents(CARDS), STATUSES, HEADERS),
    st.builds(http_answer, documents(ANSWERS) | FRAMES, STATUSES, HEADERS) | st.binary(max_size=60),
)
def test_any_answer_of_a_server_is_a_result_or_an_error_of_the_agent(
    server: Callable[[bytes, bytes], str], card: bytes, answer: bytes
) -> None:
    client = Client(server(card, answer), None)
    try:
        for ask in (
            lambda: client.call("GetTask", {"id": "x"}),
            lambda: list(client.stream("SubscribeToTask", {"id": "x"})),
            lambda: client.delete_task("x"),
        ):
            try:
                ask()
            except AgentError as error:
                assert error.message
    finally:
        client.close()
