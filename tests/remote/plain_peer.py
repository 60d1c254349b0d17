"""A peer without streaming, as a fixture."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest


class Plain(BaseHTTPRequestHandler):
    """An agent of A2A 1.0 that cannot stream and answers every message directly."""

    asked: list[str]

    def do_GET(self) -> None:
        address = f"http://127.0.0.1:{self.server.server_address[1]}/rpc"
        interface = {"url": address, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        self._answer(
            {
                "name": "Plain",
                "description": "Answers in one piece",
                "version": "1",
                "capabilities": {"streaming": False},
                "supportedInterfaces": [interface],
                "defaultInputModes": ["text/plain"],
                "defaultOutputModes": ["text/plain"],
                "skills": [],
            }
        )

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append(request["method"])
        answer = {"jsonrpc": "2.0", "id": request["id"]}
        if request["method"] == "SendMessage":
            said = request["params"]["message"]
            message = {
                "messageId": "m",
                "role": "ROLE_AGENT",
                "contextId": "c",
                "parts": [{"text": f"received {said['messageId']}"}],
            }
            self._answer({**answer, "result": {"message": message}})
        else:
            error = {"code": -32004, "message": "streaming is not supported"}
            self._answer({**answer, "error": error})

    def _answer(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def plain_peer() -> Iterator[tuple[str, list[str]]]:
    """The address of an agent that cannot stream, and the methods it was called with."""
    asked: list[str] = []
    kind = type("PlainHere", (Plain,), {"asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
        server.shutdown()
        thread.join()
