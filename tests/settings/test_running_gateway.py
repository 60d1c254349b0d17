"""Which gateways run with a data folder."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from openclaw_a2a.settings import (
    RunningGateway,
    announce_gateway,
    find_running_gateways,
    local_gateway,
)


def running(port: int, *, minute: int = 0) -> RunningGateway:
    address = f"http://127.0.0.1:{port}"
    at = datetime(2026, 11, 16, tzinfo=UTC) + timedelta(minutes=minute)
    return RunningGateway(1, address, address, port, at)


def test_gateways_are_found_while_they_run_the_newest_first(tmp_path: Path) -> None:
    with announce_gateway(tmp_path, running(1)):
        with announce_gateway(tmp_path, running(2, minute=1)):
            assert find_running_gateways(tmp_path) == [running(2, minute=1), running(1)]
        assert find_running_gateways(tmp_path) == [running(1)]
    assert list(tmp_path.glob("*gateway-*")) == []


def test_a_gateway_leaves_the_file_of_its_successor_alone(tmp_path: Path) -> None:
    first = announce_gateway(tmp_path, running(1))
    first.__enter__()
    with announce_gateway(tmp_path, running(1, minute=1)):
        first.__exit__(None, None, None)
        assert find_running_gateways(tmp_path) == [running(1, minute=1)]


def test_files_that_describe_no_gateway_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "gateway-1.json").write_text("{", encoding="utf-8")
    (tmp_path / "gateway-2.json").mkdir()
    assert find_running_gateways(tmp_path) == []
    assert find_running_gateways(tmp_path / "missing") == []


def test_of_several_the_gateway_of_the_settings_is_meant(tmp_path: Path) -> None:
    def found(port: int) -> str:
        overrides = {"data": str(tmp_path), "server.port": port}
        return local_gateway(overrides=overrides, environ={}).address

    with announce_gateway(tmp_path, running(1)), announce_gateway(tmp_path, running(2, minute=1)):
        assert found(1) == "http://127.0.0.1:1"
        assert found(3) == "http://127.0.0.1:2"
    assert found(3) == "http://127.0.0.1:3"
