#!/usr/bin/env python3
"""What a send to a remote agent costs beside a bare client call.

  ./dev bench remote                              JSON-RPC and HTTP+JSON, sends and streams
  .venv/bin/python bench/remote.py --count 2000   more operations per figure

The peer is a process that answers from memory. `bare httpx2` posts the same bytes and parses the
answer; `bare a2a-sdk` is the official client; `tool` is `remote_agent` in this process; `gateway`
is `POST /tools/remote_agent` of a gateway process with SQLite, whose CPU is counted. Rounds are
interleaved; only ratios out of one run count.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from measure import cpu_s, ms, percentile
from served import serve_measured
from servers import free_port, wait_for_port
from wire import Target

Json = Any
CHUNKS = 50
ROUNDS = 5
CONNECTIONS = 8
"""Calls at a time, in the last row: one at a time the gateway pays for a wake-up at every step."""


# ------------------------------------------------------------------ the peer


def answer_of(message: Json) -> Json:
    artifact = {"artifactId": "a", "parts": [{"text": "the answer to " + message["messageId"]}]}
    status = {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-01-01T00:00:00Z"}
    return {"task": {"id": "t-1", "contextId": "c-1", "status": status, "artifacts": [artifact]}}


def events_of(message: Json) -> list[Json]:
    about = {"taskId": "t-1", "contextId": "c-1"}
    status = {"state": "TASK_STATE_WORKING"}
    events: list[Json] = [{"task": {"id": "t-1", "contextId": "c-1", "status": status}}]
    for number in range(CHUNKS):
        artifact = {"artifactId": "a", "parts": [{"text": f"piece {number} "}]}
        events.append({"artifactUpdate": {**about, "artifact": artifact, "append": number > 0}})
    events.append({"statusUpdate": {**about, "status": {"state": "TASK_STATE_COMPLETED"}}})
    return events


async def serve_peer(port: int) -> None:
    """Answer every send with a completed task, over both bindings."""
    url = f"http://127.0.0.1:{port}"
    card = {
        "name": "Bench",
        "description": "answers",
        "version": "1",
        "capabilities": {"streaming": True},
        "supportedInterfaces": [
            {"url": f"{url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": f"{url}/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
        ],
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
    }

    def respond(kind: str, body: bytes) -> bytes:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                length = 0
                if "content-length:" in head:
                    length = int(head.split("content-length:", 1)[1].split("\r\n", 1)[0])
                body = await reader.readexactly(length)
                if head.startswith("get"):
                    writer.write(respond("application/json", json.dumps(card).encode()))
                    continue
                asked = json.loads(body)
                is_rpc = "jsonrpc" in asked
                message = (asked["params"] if is_rpc else asked)["message"]

                def wrap(one: Json, asked: Json = asked, is_rpc: bool = is_rpc) -> str:
                    about = {"jsonrpc": "2.0", "id": asked["id"], "result": one} if is_rpc else one
                    return json.dumps(about)

                if "stream" in head.split("\r\n")[0] or "text/event-stream" in head:
                    frames = "".join(f"data: {wrap(one)}\n\n" for one in events_of(message))
                    writer.write(respond("text/event-stream", frames.encode()))
                else:
                    writer.write(respond("application/json", wrap(answer_of(message)).encode()))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    await server.serve_forever()


# ------------------------------------------------------------------ the callers

Call = Callable[[], Awaitable[None]]


def message() -> Json:
    return {"messageId": uuid.uuid4().hex, "role": "ROLE_USER", "parts": [{"text": "hello"}]}


def bare_http(peer: str, transport: str, *, streams: bool) -> Call:
    import httpx2

    client = httpx2.AsyncClient(trust_env=False)
    headers = {"a2a-version": "1.0"}
    if streams:
        headers["accept"] = "text/event-stream"

    async def call() -> None:
        if transport == "JSONRPC":
            method = "SendStreamingMessage" if streams else "SendMessage"
            url, params = f"{peer}/rpc", {"message": message(), "configuration": {}}
            body: Json = {"jsonrpc": "2.0", "id": uuid.uuid4().hex, "method": method}
            body["params"] = params
        else:
            url = f"{peer}/rest/message:{'stream' if streams else 'send'}"
            body = {"message": message(), "configuration": {}}
        if not streams:
            answer = (await client.post(url, json=body, headers=headers)).json()
            assert answer.get("result", answer)["task"]["status"]
            return
        seen = 0
        async with client.stream("POST", url, json=body, headers=headers) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    json.loads(line[6:])
                    seen += 1
        assert seen == CHUNKS + 2

    return call


def official(peer: str, transport: str, *, streams: bool) -> Call:
    import httpx
    from a2a.client.transports.jsonrpc import JsonRpcTransport
    from a2a.client.transports.rest import RestTransport
    from a2a.types import a2a_pb2 as pb

    http = httpx.AsyncClient(trust_env=False)
    card = pb.AgentCard(capabilities=pb.AgentCapabilities(streaming=True))
    is_rpc = transport == "JSONRPC"
    kind = JsonRpcTransport if is_rpc else RestTransport
    client = kind(http, card, f"{peer}/{'rpc' if is_rpc else 'rest'}")

    async def call() -> None:
        said = pb.Message(message_id=uuid.uuid4().hex, role=pb.Role.ROLE_USER)
        said.parts.append(pb.Part(text="hello"))
        request = pb.SendMessageRequest(message=said)
        if streams:
            events = [event async for event in client.send_message_streaming(request)]
            assert len(events) == CHUNKS + 2
        else:
            assert (await client.send_message(request)).task.id

    return call


async def tool(peer: str, transport: str, *, streams: bool) -> Call:
    from datetime import UTC, datetime

    from openclaw_a2a.remote.config import parse_config
    from openclaw_a2a.remote.tool import RemoteAgentTool
    from openclaw_a2a.remote.transport.http_transport import TargetConnections

    config = parse_config(settings_of(peer)["outbound"])
    remote = RemoteAgentTool(
        config,
        TargetConnections(config.policy),
        now=lambda: datetime.now(UTC),
        new_id=lambda: str(uuid.uuid4()),
        environment={},
    )

    async def call() -> None:
        envelope = await remote.execute(request_of(transport, streams=streams))
        assert envelope["ok"], envelope

    return call


async def gateway(bed: "Gateway", transport: str, *, streams: bool) -> Call:
    connection = await bed.target().connect()

    async def call() -> None:
        body = json.dumps(request_of(transport, streams=streams)).encode()
        status, answer = await connection.request(body)
        assert status == 200 and json.loads(answer)["ok"], answer[:500]

    return call


def request_of(transport: str, *, streams: bool) -> Json:
    request: Json = {
        "action": "send",
        "target_alias": transport,
        "parts": [{"kind": "text", "text": "hello"}],
    }
    return {**request, "follow_updates": True} if streams else request


def settings_of(peer: str) -> Json:
    targets = [
        {"alias": one, "baseUrl": peer, "preferredTransports": [one]}
        for one in ("JSONRPC", "HTTP+JSON")
    ]
    # More than the default: a bench is one caller that sends as fast as it can.
    limits = {"perPeerRequests": 1_000_000}
    return {"limits": limits, "outbound": {"enabled": True, "targets": targets}}


class Gateway:
    """The gateway process."""

    def __init__(self, pid: int, port: int, data: Path) -> None:
        from openclaw_a2a.auth.tokens import TokenKind, TokenStore

        self.pid, self._port = pid, port
        self._token = TokenStore(data).create("host", TokenKind.HOST)

    def target(self) -> Target:
        headers = [f"Authorization: Bearer {self._token}", "X-OpenClaw-Agent-Id: main"]
        url = f"http://127.0.0.1:{self._port}/tools/remote_agent"
        return Target(url, "1.0", headers, accept="application/json")


def serve_gateway_process(port: int, data: Path, peer: str) -> None:
    serve_measured(data, port, agents={}, settings=settings_of(peer), profile=None)


# ------------------------------------------------------------------ the figures


async def measure(call: Call, count: int) -> tuple[list[float], float]:
    """The latencies of calls one after the other, and the CPU seconds of this process."""
    latencies: list[float] = []
    cpu = time.process_time()
    for _ in range(count):
        begun = time.perf_counter()
        await call()
        latencies.append(time.perf_counter() - begun)
    return latencies, time.process_time() - cpu


async def compare(peer: str, bed: Gateway, transport: str, count: int, *, streams: bool) -> Json:
    calls: dict[str, Call] = {
        "bare httpx2": bare_http(peer, transport, streams=streams),
        "bare a2a-sdk": official(peer, transport, streams=streams),
        "tool": await tool(peer, transport, streams=streams),
        "gateway": await gateway(bed, transport, streams=streams),
    }
    seen: dict[str, list[float]] = {name: [] for name in calls}
    cpu = dict.fromkeys(calls, 0.0)
    for call in calls.values():
        await measure(call, count // 10 + 1)
    for _ in range(ROUNDS):
        for name, call in calls.items():
            before = cpu_s(bed.pid)
            latencies, own = await measure(call, count // ROUNDS)
            seen[name] += latencies
            cpu[name] += cpu_s(bed.pid) - before if name == "gateway" else own
    base = percentile(seen["bare httpx2"], 0.5) or 1.0
    sdk = percentile(seen["bare a2a-sdk"], 0.5) or 1.0
    figures: Json = {}
    for name, latencies in seen.items():
        median = percentile(latencies, 0.5) or 0.0
        figures[name] = {
            "p50_ms": ms(median),
            "to_httpx2": round(median / base, 2),
            "to_a2a_sdk": round(median / sdk, 2),
            "cpu_ms": ms(cpu[name] / len(latencies)),
        }
    together = [await gateway(bed, transport, streams=streams) for _ in range(CONNECTIONS)]
    before = cpu_s(bed.pid)
    await asyncio.gather(*(measure(call, count // CONNECTIONS) for call in together))
    spent = (cpu_s(bed.pid) - before) / (count // CONNECTIONS * CONNECTIONS)
    figures[f"gateway x{CONNECTIONS}"] = {"cpu_ms": ms(spent)}
    return figures


async def compare_all(peer: str, bed: Gateway, count: int) -> Json:
    figures: Json = {"load_average": os.getloadavg()[0]}
    for transport in ("JSONRPC", "HTTP+JSON"):
        for streams in (False, True):
            kind = f"stream of {CHUNKS}" if streams else "send"
            many = max(50, count // 10) if streams else count
            compared = await compare(peer, bed, transport, many, streams=streams)
            figures[f"{transport} {kind}"] = compared
    return figures


def measure_remote(data: Path, count: int = 1000) -> Json:
    """The figures of all callers, with a peer and a gateway of their own."""
    log, peer_port, port = data / "log", free_port(), free_port()
    peer = f"http://127.0.0.1:{peer_port}"
    commands = [
        (peer_port, ["peer", str(peer_port)]),
        (port, ["gateway", str(port), str(data), peer]),
    ]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for wanted, command in commands:
            with log.open("ab") as output:
                process = subprocess.Popen(
                    [sys.executable, __file__, *command], stdout=output, stderr=output
                )
            processes.append(process)
            wait_for_port(wanted, process, log)
        return asyncio.run(compare_all(peer, Gateway(processes[1].pid, port, data), count))
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main() -> None:
    if sys.argv[1:2] == ["peer"]:
        asyncio.run(serve_peer(int(sys.argv[2])))
    elif sys.argv[1:2] == ["gateway"]:
        serve_gateway_process(int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
    else:
        parser = argparse.ArgumentParser(description=__doc__)
        parser.add_argument("--count", type=int, default=1000)
        with tempfile.TemporaryDirectory() as folder:
            figures = measure_remote(Path(folder), parser.parse_args().count)
        for name, rows in figures.items():
            print(f"{name}: {rows}" if isinstance(rows, float) else f"\n{name}")
            for caller, row in rows.items() if isinstance(rows, dict) else ():
                print(f"  {caller:14}", "  ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
