"""The disk of the store is full: everybody who waits is told, and work goes on with space."""

import json
import os
import resource
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

Json = Any
DEADLINE_S = 240.0
DISK_BYTES = 24 * 1024 * 1024
PROGRAM = str(Path(sys.executable).with_name("openclaw-a2a"))
# Says that it began, waits for a file, and then says more than fits into what files have in use.
AGENT = """
import pathlib, sys, time
print("begun", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.02)
print("x" * 300_000)
"""


class SmallDisk:
    """A file system of its own with little space."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filling = path / "filling"

    def fill(self) -> None:
        """Leave no space."""
        for size in (64 * 1024, 1):
            with self._filling.open("ab", buffering=0) as file:
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    pass

    def leave(self, size: int) -> None:
        """Leave so many bytes."""
        self.fill()
        with self._filling.open("r+b") as file:
            file.truncate(self._filling.stat().st_size - size)

    def free(self) -> None:
        """Give the space back."""
        self._filling.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    path = tmp_path / "disk"
    path.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(path)]
    if os.geteuid() or subprocess.run(["mount", *options], capture_output=True).returncode:
        pytest.skip("a file system of a test's own can be mounted only by root")
    yield SmallDisk(path)
    subprocess.run(["umount", str(path)], check=True)


def request(url: str, body: Json = None) -> tuple[int, Json]:
    headers = {"content-type": "application/json", "a2a-version": "1.0"}
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, data, headers), timeout=DEADLINE_S
        ) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def rpc(url: str, method: str, params: Json) -> Json:
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return request(f"{url}/a2a/jsonrpc", call)[1]


def send(url: str, message_id: str) -> Json:
    said = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": "go on"}]}
    return rpc(url, "SendMessage", {"message": said})


def wait_until(is_so: Callable[[], Json], what: str) -> Json:
    deadline = time.monotonic() + DEADLINE_S
    while not (found := is_so()):
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.05)  # another process has to do it; nothing here can be awaited
    return found


def code_of(answer: Json) -> str:
    return answer["error"]["data"][0]["metadata"]["code"]


def examine_disk(config: Path, home: Path, **limits: Any) -> Json:
    """What `doctor` finds about the disk."""
    checked = subprocess.run(
        [PROGRAM, "doctor", "--json", "--config", str(config)],
        capture_output=True,
        env={**os.environ, "HOME": str(home)},
        **limits,
    )
    findings = {one["check"]: one for one in json.loads(checked.stdout)["findings"]}
    assert checked.returncode == (1 if findings["disk"]["verdict"] == "broken" else 0)
    return findings["disk"]


def test_doctor_finds_a_disk_that_is_nearly_full_and_one_that_takes_no_writes(
    disk: SmallDisk, tmp_path: Path
) -> None:
    config = tmp_path / "gateway.json5"
    path = disk.path / "store" / "state.db"
    path.parent.mkdir(mode=0o700)
    config.write_text(json.dumps({"store": {"path": str(path)}}), encoding="utf-8")
    assert examine_disk(config, tmp_path)["verdict"] != "broken"

    # There is room for what `doctor` writes, and not for much more.
    disk.leave(512 * 1024)
    found = examine_disk(config, tmp_path)
    assert found["verdict"] == "broken"
    assert "is full" in found["detail"]
    disk.free()

    def allow_small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (32 * 1024, 32 * 1024))

    found = examine_disk(config, tmp_path, preexec_fn=allow_small_files)
    assert found["verdict"] == "broken"
    assert "takes no writes" in found["detail"]


@pytest.mark.parametrize("kind", ["sqlite", "json-file"])
def test_full_disk_is_reported_to_everybody_who_waits_and_work_goes_on_with_space(
    disk: SmallDisk, start_gateway: Any, tmp_path: Path, kind: str
) -> None:
    gate = tmp_path / "gate"
    agent = {"adapter": "command", "command": [sys.executable, "-c", AGENT, str(gate)]}
    path = disk.path / ("state.db" if kind == "sqlite" else "tasks")
    gateway = start_gateway(
        {
            "store": {"kind": kind, "path": str(path)},
            "agents": {"main": {**agent, "input": "stdin", "output": "text"}},
            "lease": {"seconds": 6},
            "channels": {"a2a": {"accounts": {"default": {"agentStyle": "task-generating"}}}},
        }
    )
    url = gateway.url

    def working() -> list[Json]:
        found = rpc(url, "ListTasks", {"includeArtifacts": True})["result"]["tasks"]
        return [one for one in found if "begun" in json.dumps(one.get("artifacts", []))]

    with ThreadPoolExecutor() as threads:
        blocking = threads.submit(send, url, "blocking")
        command = subprocess.Popen(
            [PROGRAM, "send", "--url", url, "go on"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            tasks = wait_until(lambda: len(working()) == 2 and working(), "the start of two runs")
            disk.fill()
            gate.touch()
            assert code_of(blocking.result(DEADLINE_S)) == "store-unavailable"
            said, _ = command.communicate(timeout=DEADLINE_S)
        finally:
            gate.touch()
            command.kill()
    assert command.returncode == 1
    assert "store-unavailable" in said

    status, ready = request(f"{url}/readyz")
    assert status == 503
    assert "is full" in ready["reasons"][0]
    assert examine_disk(gateway.config, gateway.home)["verdict"] == "broken"
    for task in tasks:
        subscribed = rpc(url, "SubscribeToTask", {"id": task["id"]})
        assert code_of(subscribed) == "store-unavailable"

    disk.free()
    wait_until(lambda: request(f"{url}/readyz")[0] == 200, "readiness")
    done = send(url, "with space")["result"]["task"]
    assert done["status"]["state"] == "TASK_STATE_COMPLETED"
    for task in tasks:
        wait_until(
            lambda task=task: (
                rpc(url, "GetTask", {"id": task["id"]})["result"]["status"]["state"]
                == "TASK_STATE_FAILED"
            ),
            "the end of a task that could not be stored",
        )
