"""An installation without gRPC works, and names the command that installs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from openclaw_a2a.model.ids import JsonObject

ROOT = Path(__file__).parents[2]
# What only the extra installs.
WITHOUT = (
    "import runpy, sys; "
    "sys.modules.update(dict.fromkeys(['grpc', 'a2a', 'google.protobuf', 'httpx'])); "
)
MODULE = "tests.remote.without_grpc"
SCRIPT = f"{WITHOUT} runpy.run_module('{MODULE}', run_name='__main__', alter_sys=True)"
GATEWAY = f"{WITHOUT} from openclaw_a2a.cli import main; main()"
LIMIT_S = 240


@pytest.fixture(scope="module")
def envelope(tmp_path_factory: pytest.TempPathFactory) -> JsonObject:
    """What the tool said in a process in which grpc cannot be imported."""
    answers = tmp_path_factory.mktemp("without-grpc") / "envelope.json"
    command = [sys.executable, "-c", SCRIPT, answers]
    subprocess.run(command, check=True, timeout=LIMIT_S, cwd=ROOT)
    return json.loads(answers.read_text())


@pytest.mark.requirement("remote.policy.unspoken-built", "remote.policy.unspoken-continued")
@pytest.mark.parametrize("wish", ["configured", "continued"])
def test_preferring_grpc_fails_with_the_install_command(envelope: JsonObject, wish: str) -> None:
    error = envelope[wish]
    assert error["code"] == "A2A_SDK_ERROR"
    assert "does not speak GRPC" in error["message"]
    assert "install openclaw-a2a[grpc]" in error["message"]
    assert error["details"] == {"unsupported": ["GRPC"], "supported": ["JSONRPC", "HTTP+JSON"]}


@pytest.mark.requirement("remote.policy.unspoken-ignored")
def test_grpc_is_skipped_when_the_policy_allows_it(envelope: JsonObject) -> None:
    assert envelope["offered among others"]["ok"], envelope


@pytest.mark.requirement("remote.client.none")
def test_a_peer_with_only_grpc_fails_with_the_install_command(envelope: JsonObject) -> None:
    error = envelope["offered alone"]["error"]
    assert error["code"] == "A2A_SDK_ERROR"
    assert "GRPC" in error["message"]
    assert error["details"]["available"] == ["GRPC"]
    assert "install openclaw-a2a[grpc]" in error["details"]["hint"]


@pytest.mark.requirement("remote.policy.unspoken-built")
def test_a_gateway_with_a_grpc_target_does_not_start(tmp_path: Path) -> None:
    target = {"alias": "a", "baseUrl": "http://127.0.0.1:1", "preferredTransports": ["GRPC"]}
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"outbound": {"enabled": True, "targets": [target]}}))
    started = subprocess.run(
        [sys.executable, "-c", GATEWAY, "up", "--config", settings, "--port", "0"],
        env={"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    said = " ".join((started.stdout + started.stderr).split())
    assert started.returncode != 0, said
    assert "outbound.targets" in said
    assert "install openclaw-a2a[grpc]" in said
