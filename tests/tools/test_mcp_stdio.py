"""`openclaw-a2a mcp` as a process of its own, with the official client."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

pytestmark = pytest.mark.slow

HELLO = {"action": "send", "parts": [{"kind": "text", "text": "hello"}]}
FOLLOW = {**HELLO, "follow_updates": True}
NEVER = {"action": "send", "target_alias": "silent", "parts": HELLO["parts"]}
COMMAND = ["-c", "from openclaw_a2a.cli import main; main()", "mcp"]
DEADLINE_S = 240.0


@asynccontextmanager
async def connected(folder: Path, *flags: str, **variables: str) -> AsyncIterator:
    """The client of a new process; what that says to people is in the file `said`."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith("OPENCLAW_")}
    server = StdioServerParameters(
        command=sys.executable,
        args=[*COMMAND, *flags],
        env={**plain, "HOME": str(folder), **variables},
        cwd=folder,
    )
    with (folder / "said").open("w", encoding="utf-8") as said:
        transport = stdio_client(server, errlog=said)
        async with asyncio.timeout(DEADLINE_S), Client(transport) as client:
            yield client


def flags(served, data: Path) -> list[str]:
    return ["--config", str(served.config), "--data", str(data)]


@pytest.mark.requirement("remote.tool.stdio")
async def test_a_running_gateway_makes_the_calls(served) -> None:
    heard: list[str] = []

    async def hear(_progress: float, _total: float | None, message: str | None) -> None:
        heard.append(message or "")

    async with connected(served.folder, *flags(served, served.folder)) as client:
        (tool,) = (await client.list_tools()).tools
        assert "Targets: me, silent" in tool.description
        result = await client.call_tool("remote_agent", FOLLOW, progress_callback=hear)
        assert "hello" in result.structured_content["summary"]["message_text"]
        assert any("completed" in text for text in heard)
        handle = result.structured_content["summary"]["continuation"]["task"]["task_handle"]
    status = {"action": "status", "task_handle": handle}
    operator = served.folder / "operator.token"
    token = operator.read_text(encoding="utf-8").strip()
    known = await served.caller({"authorization": f"Bearer {token}"}).post(
        "/tools/remote_agent", json=status
    )
    assert known.json()["ok"], "the gateway has the handle"


@pytest.mark.requirement("remote.tool.stdio")
async def test_a_cancelled_call_ends_at_the_remote_agent(served) -> None:
    async with connected(served.folder, *flags(served, served.folder)) as client:
        calling = asyncio.ensure_future(client.call_tool("remote_agent", NEVER))
        await served.silent.asked.wait()
        calling.cancel()
        await served.silent.left.wait()


@pytest.mark.parametrize("knows_operator", [True, False])
async def test_without_a_gateway_the_calls_are_made_in_process(
    served, tmp_path, knows_operator
) -> None:
    data = served.folder if knows_operator else tmp_path / "apart"
    nobody = {"OPENCLAW_A2A_SERVER__PORT": "1"}
    async with connected(tmp_path, *flags(served, data), **nobody) as client:
        result = await client.call_tool("remote_agent", HELLO)
        assert "hello" in result.structured_content["summary"]["message_text"]
        calling = asyncio.ensure_future(client.call_tool("remote_agent", NEVER))
        await served.silent.asked.wait()
        calling.cancel()
        await served.silent.left.wait()
    assert "No gateway answers" in (tmp_path / "said").read_text(encoding="utf-8")


async def test_a_gateway_elsewhere_is_called_with_a_tool_token(served, tmp_path) -> None:
    token = served.tokens.create("elsewhere")
    variables = {"OPENCLAW_A2A_TOKEN": token, "OPENCLAW_A2A_URL": served.url}
    async with connected(tmp_path, "--data", str(tmp_path / "apart"), **variables) as client:
        served.tokens.revoke("elsewhere")
        refused = await client.call_tool("remote_agent", HELLO)
        assert refused.structured_content["error"]["code"] == "unauthenticated"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 2, "outbound.enabled"),
        (["--url", "http://127.0.0.1:1"], 2, "token create"),
        (["--url", "http://127.0.0.1:1", "--token", "oca_tool_x"], 3, "nothing answers"),
    ],
)
async def test_a_command_that_can_offer_nothing_says_why(tmp_path, arguments, code, says) -> None:
    plain = {key: value for key, value in os.environ.items() if not key.startswith("OPENCLAW_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *COMMAND,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=tmp_path,
        env={**plain, "HOME": str(tmp_path), "OPENCLAW_A2A_SERVER__PORT": "1"},
    )
    out, err = await asyncio.wait_for(process.communicate(), DEADLINE_S)
    assert (process.returncode, out) == (code, b"")
    assert says in err.decode()
