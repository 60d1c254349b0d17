"""Writes what the tool returns in an installation without grpc, as JSON, to the file given."""

import asyncio
import json
import sys
from pathlib import Path

from tests.remote.scripted_peer import card_of, message, result, scripted
from tests.remote.tool_harness import one_target, open_tool

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.remote.result import RemoteFailure

GRPC = {"url": "127.0.0.1:1", "protocolBinding": "GRPC", "protocolVersion": "1.0"}
LAX = {"enforceSupportedTransports": False}


async def configured() -> JsonObject:
    """A target that prefers gRPC."""
    try:
        async with open_tool(one_target("http://127.0.0.1:1/", preferredTransports=["GRPC"])):
            return {}
    except RemoteFailure as failure:
        return failure.as_object()


async def continued() -> JsonObject:
    """A continuation from an installation that had grpc."""
    there = {
        "target_url": "http://127.0.0.1:1/",
        "card_path": "/.well-known/agent-card.json",
        "preferred_transports": ["GRPC", "JSONRPC"],
    }
    async with open_tool(one_target("http://127.0.0.1:1/")) as harness:
        continuation = {"target": there, "task": {"task_id": "t-1"}}
        return await harness.fail("status", continuation=continuation)


async def sent(*more: JsonObject) -> JsonObject:
    """A send to a peer that offers gRPC first, under a policy that ignores what is not spoken."""
    async with scripted(result(message())) as peer:
        others = card_of(peer.url)["supportedInterfaces"] if more else []
        peer.card = card_of(peer.url, supportedInterfaces=[GRPC, *others])
        config = one_target(peer.url, policy=LAX, preferredTransports=["GRPC", "JSONRPC"])
        async with open_tool(config) as harness:
            return await harness.send("hi")


async def tell() -> JsonObject:
    return {
        "configured": await configured(),
        "continued": await continued(),
        "offered among others": await sent({}),
        "offered alone": await sent(),
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(asyncio.run(tell())))
