"""Which gateways run with a data folder."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

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
        return local_gateway(overrides=overrides).address

    with announce_gateway(tmp_path, running(1)), announce_gateway(tmp_path, running(2, minute=1)):
        assert found(1) == "http://127.0.0.1:1"
        assert found(3) == "http://127.0.0.1:2"
    assert found(3) == "http://127.0.0.1:3"


def test_a_reader_is_not_taken_for_a_gateway(tmp_path: Path) -> None:
    """Two commands look at once at what a killed gateway left."""
    path = tmp_path / "gateway-9900.json"
    path.write_bytes(msgspec.json.encode(running(9900)))
    readings: list[list[RunningGateway]] = []
    together = threading.Barrier(2)

    def read_often() -> None:
        together.wait(240)
        readings.extend(find_running_gateways(tmp_path) for _ in range(2000))

    readers = [threading.Thread(target=read_often) for _ in range(2)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(240)
    assert not any(readings)
