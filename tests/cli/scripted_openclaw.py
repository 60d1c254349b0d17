"""A scripted OpenClaw gateway: the handshake, the list of agents, a short turn."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

Json = Any


class ScriptedOpenClaw:
    """Its members say what it answers; `methods` has those that were requested."""

    def __init__(self, port: int) -> None:
        self.url = f"ws://127.0.0.1:{port}"
        self.port = port
        self.token = "the-right-token"
        self.version = "2026.9.6"
        self.protocol = 4
        self.agents = ["main", "helper"]
        self.turn = "ok"
        self.starting = 0
        """How many connections it refuses because it is starting."""
        self.methods: list[str] = []

    def attend(self, socket: ServerConnection) -> None:
        try:
            challenge = {"nonce": "n", "ts": 1}
            socket.send(event("connect.challenge", challenge))
            for raw in socket:
                self._answer(socket, json.loads(raw))
        except ConnectionClosed:
            return

    def _answer(self, socket: ServerConnection, request: Json) -> None:
        method, params = request["method"], request["params"]
        self.methods.append(method)
        if method == "connect" and self.starting > 0:
            self.starting -= 1
            wrong = {"code": "UNAVAILABLE", "message": "gateway starting", "retryable": True}
            answer = {"type": "res", "id": request["id"], "ok": False, "error": wrong}
            socket.send(json.dumps(answer))
        elif method == "connect":
            is_right = params.get("auth", {}).get("token") == self.token
            details = {"code": "AUTH_TOKEN_MISMATCH"}
            wrong = {"code": "INVALID_REQUEST", "message": "unauthorized", "details": details}
            answer = {"payload": self._hello()} if is_right else {"error": wrong}
            socket.send(json.dumps({"type": "res", "id": request["id"], "ok": is_right, **answer}))
        elif method == "agents.list":
            entries = [{"id": name} for name in self.agents]
            self._reply(socket, request, {"defaultId": "main", "agents": entries})
        elif method == "agent":
            self._reply(socket, request, {"status": "accepted", "runId": "r"})
            self._reply(socket, request, {"status": self.turn, "result": {}})

    def _hello(self) -> Json:
        server = {"version": self.version, "bootId": "b"}
        return {"type": "hello-ok", "protocol": self.protocol, "server": server}

    def _reply(self, socket: ServerConnection, request: Json, payload: Json) -> None:
        socket.send(
            json.dumps({"type": "res", "id": request["id"], "ok": True, "payload": payload})
        )


def event(name: str, payload: Json) -> str:
    return json.dumps({"type": "event", "event": name, "payload": payload})


@contextmanager
def scripted_openclaw() -> Iterator[ScriptedOpenClaw]:
    """A gateway that listens while the block runs."""
    script: ScriptedOpenClaw | None = None

    def attend(socket: ServerConnection) -> None:
        assert script is not None
        script.attend(socket)

    with serve(attend, "127.0.0.1", 0) as server:
        script = ScriptedOpenClaw(server.socket.getsockname()[1])
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield script
        finally:
            server.shutdown()
            serving.join(240)
