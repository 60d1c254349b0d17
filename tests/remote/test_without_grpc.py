"""An installation without gRPC works as ever, and says how to have it when somebody wants it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from openclaw_a2a.model.ids import JsonObject

ROOT = Path(__file__).parents[2]
WITHOUT = "import runpy, sys; sys.modules['grpc'] = None; "
MODULE = "tests.remote.without_grpc"
SCRIPT = f"{WITHOUT} runpy.run_module('{MODULE}', run_name='__main__', alter_sys=True)"
GATEWAY = f"{WITHOUT} from openclaw_a2a.cli import main; main()"
PATIENCE_S = 60


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> JsonObject:
    """What the tool said in a process in which grpc cannot be imported."""
    answers = tmp_path_factory.mktemp("without-grpc") / "told.json"
    command = [sys.executable, "-c", SCRIPT, answers]
    subprocess.run(command, check=True, timeout=PATIENCE_S, cwd=ROOT)
    return json.loads(answers.read_text())


@pytest.mark.requirement("remote.policy.unspoken-built", "remote.policy.unspoken-continued")
@pytest.mark.parametrize("wish", ["configured", "continued"])
def test_who_prefers_grpc_is_told_how_to_have_it(told: JsonObject, wish: str) -> None:
    error = told[wish]
    assert error["code"] == "A2A_SDK_ERROR"
    assert "does not speak GRPC" in error["message"]
    assert "install openclaw-a2a[grpc]" in error["message"]
    assert error["details"] == {"unsupported": ["GRPC"], "supported": ["JSONRPC", "HTTP+JSON"]}


@pytest.mark.requirement("remote.policy.unspoken-ignored")
def test_grpc_is_passed_over_when_the_policy_says_so(told: JsonObject) -> None:
    assert told["offered among others"]["ok"], told


@pytest.mark.requirement("remote.client.none")
def test_a_peer_that_offers_only_grpc_is_told_with_how_to_have_it(told: JsonObject) -> None:
    error = told["offered alone"]["error"]
    assert error["code"] == "A2A_SDK_ERROR"
    assert "GRPC" in error["message"]
    assert error["details"]["available"] == ["GRPC"]
    assert "install openclaw-a2a[grpc]" in error["details"]["hint"]


@pytest.mark.requirement("remote.policy.unspoken-built")
def test_a_gateway_whose_target_prefers_grpc_does_not_start_and_says_why(tmp_path: Path) -> None:
    target = {"alias": "a", "baseUrl": "http://127.0.0.1:1", "preferredTransports": ["GRPC"]}
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"outbound": {"enabled": True, "targets": [target]}}))
    started = subprocess.run(
        [sys.executable, "-c", GATEWAY, "up", "--config", settings, "--port", "0"],
        env={"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    said = " ".join((started.stdout + started.stderr).split())
    assert started.returncode != 0, said
    assert "outbound.targets" in said
    assert "install openclaw-a2a[grpc]" in said
