"""What the banner of `up` says about OpenClaw."""

import json
from pathlib import Path

import pytest
from tests.ports import free_port

pytestmark = pytest.mark.slow


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The config of an OpenClaw that does not run."""
    path = tmp_path / "openclaw.json"
    gateway = {"port": free_port(), "auth": {"mode": "token", "token": "a-token-nobody-sees"}}
    entries = {"main": {"identity": {"name": "Samantha"}}, "helper": {}}
    values = {"gateway": gateway, "agents": {"entries": entries}}
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def test_without_openclaw_the_banner_says_how_to_add_it(start_gateway) -> None:
    lines = start_gateway().output().splitlines()
    assert len([line for line in lines if "OpenClaw" in line or "  openclaw " in line]) == 1
    assert any(line.endswith(" connect openclaw") for line in lines)


def test_with_configured_agents_the_banner_does_not_mention_openclaw(start_gateway) -> None:
    gateway = start_gateway({"agents": {"main": {"adapter": "echo"}}})
    assert "connect openclaw" not in gateway.output()


def test_an_openclaw_that_is_down_is_shown_as_unavailable_with_the_reason(
    start_gateway, config: Path
) -> None:
    output = start_gateway(env={"OPENCLAW_CONFIG_PATH": str(config)}).output()
    assert "Samantha     agent main (openclaw-gateway), unavailable" in output
    assert "helper       agent helper (openclaw-gateway), unavailable" in output
    lines = [line for line in output.splitlines() if line.startswith("Unavailable: ")]
    assert len(lines) == 1
    assert "openclaw gateway run" in lines[0]
    assert "a-token-nobody-sees" not in output


def test_a_broken_openclaw_config_is_reported_and_the_gateway_starts(
    start_gateway, config: Path
) -> None:
    config.write_text("{gateway: ", encoding="utf-8")
    gateway = start_gateway(env={"OPENCLAW_CONFIG_PATH": str(config)})
    output = gateway.output()
    assert output.count("is not JSON5") == 1
    assert "agent main (echo)" in output
    (line,) = [one for one in output.splitlines() if one.startswith("  openclaw ")]
    assert "cannot be read" in line
    assert line.endswith(" doctor")
