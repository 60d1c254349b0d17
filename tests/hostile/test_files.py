"""The files of a gateway: who may read them, and what a link in their place does."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.hostile.test_damaged_rows import TASKS, rpc, send

PROGRAM = str(Path(sys.executable).with_name("openclaw-a2a"))
Json = Any


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def everything_in(folder: Path) -> list[Path]:
    return [Path(base) / name for base, _, names in os.walk(folder) for name in names]


@pytest.mark.parametrize("kind", ["sqlite", "json-file"])
def test_only_the_owner_can_use_the_data_folder_and_what_is_in_it(
    start_gateway: Any, tmp_path: Path, kind: str
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o777)
    gateway = start_gateway({**TASKS, "data": str(data), "store": {"kind": kind}})
    task = send(gateway.url, "m")
    assert mode_of(data) == 0o700
    assert "gateway.folder_made_private" in gateway.output()
    files = everything_in(data)
    assert files
    assert {mode_of(file) & 0o077 for file in files} == {0}
    gateway.stop()
    gateway.start()
    assert rpc(gateway.url, "GetTask", {"id": task})["result"]["id"] == task


def up(tmp_path: Path, config: Json) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "gateway.json5"
    file.write_text(json.dumps(config), encoding="utf-8")
    return subprocess.run(
        [PROGRAM, "up", "--config", str(file), "--port", "0"],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "HOME": str(tmp_path)},
    )


def test_a_database_in_a_folder_that_every_user_may_write_to_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    ended = up(tmp_path, {"store": {"kind": "sqlite", "path": str(folder / "state.db")}})
    assert ended.returncode != 0
    assert "everybody may write" in ended.stderr
    assert f"chmod go-rwx {folder}" in ended.stderr
    assert list(folder.iterdir()) == []


def test_a_database_that_others_could_read_is_made_private(
    start_gateway: Any, tmp_path: Path
) -> None:
    path = tmp_path / "own" / "state.db"
    config = {**TASKS, "store": {"kind": "sqlite", "path": str(path)}}
    gateway = start_gateway(config)
    gateway.stop()
    path.chmod(0o644)
    gateway.start()
    assert mode_of(path) == 0o600
    assert "store.file_made_private" in gateway.output()


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of another user."""
    file = tmp_path / "victim"
    file.write_text("precious", encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("kind", "name"), [("sqlite", "state.db.lock"), ("json-file", ".writer.lock")]
)
def test_a_link_in_the_place_of_the_lock_is_not_followed(
    tmp_path: Path, victim: Path, kind: str, name: str
) -> None:
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    (folder / name).symlink_to(victim)
    path = folder / "state.db" if kind == "sqlite" else folder
    ended = up(tmp_path, {"store": {"kind": kind, "path": str(path)}})
    assert victim.read_text(encoding="utf-8") == "precious"
    assert ended.returncode != 0
    assert name in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("name", [".gateway.jsonl", ".writing"])
def test_a_link_in_the_place_of_a_log_is_not_followed(
    start_gateway: Any, tmp_path: Path, victim: Path, name: str
) -> None:
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    (folder / name).symlink_to(victim)
    gateway = start_gateway({**TASKS, "store": {"kind": "json-file", "path": str(folder)}})
    task = send(gateway.url, "m")
    gateway.kill()
    gateway.start()
    assert rpc(gateway.url, "GetTask", {"id": task})["result"]["id"] == task
    assert victim.read_text(encoding="utf-8") == "precious"
