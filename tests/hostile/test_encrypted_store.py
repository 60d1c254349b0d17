"""A copy of the store of a gateway holds no credentials of webhooks."""

import base64
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.hostile.test_damaged_rows import TASKS, rpc, send
from tests.store.test_encryption import holds

PROGRAM = str(Path(sys.executable).with_name("openclaw-a2a"))
KEY = base64.b64encode(bytes(range(32))).decode()
OTHER = base64.b64encode(bytes(range(1, 33))).decode()
PRECIOUS = "precious-credentials"


def bytes_in(folder: Path) -> bytes:
    files = [Path(base) / name for base, _, names in os.walk(folder) for name in names]
    return b"".join([file.read_bytes() for file in files])


@pytest.mark.parametrize("kind", ["sqlite", "json-file"])
def test_credentials_of_webhooks_are_encrypted_and_a_wrong_key_is_said(
    start_gateway: Any, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "store" / ("state.db" if kind == "sqlite" else "tasks")
    (tmp_path / "key").write_text(KEY, encoding="utf-8")
    (tmp_path / "key").chmod(0o600)
    gateway = start_gateway(
        {
            **TASKS,
            "store": {"kind": kind, "path": str(path)},
            "push": {"allowPrivate": True},
            "security": {"encryption": {"keys": [f"file:{tmp_path / 'key'}"]}},
        }
    )
    url = gateway.url
    task = send(url, "m")
    config = {
        "taskId": task,
        "id": "hook",
        "url": "http://127.0.0.1:9/hook",
        "token": PRECIOUS,
        "authentication": {"scheme": "Bearer", "credentials": PRECIOUS},
    }
    made = rpc(url, "CreateTaskPushNotificationConfig", config)
    assert "result" in made, made
    gateway.kill()
    assert not holds(bytes_in(path.parent), PRECIOUS.encode())
    gateway.start()
    asked = {"taskId": task, "id": "hook"}
    assert rpc(url, "GetTaskPushNotificationConfig", asked)["result"] == made["result"]
    gateway.stop()

    command = [PROGRAM, "up", "--config", str(gateway.config), "--port", str(gateway.port)]
    env = {**os.environ, "HOME": str(gateway.home)}
    (tmp_path / "key").write_text(OTHER, encoding="utf-8")
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, env=env)
    assert ended.returncode != 0
    assert "security.encryption.keys" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert OTHER not in ended.stderr

    shown = subprocess.run(
        [PROGRAM, "config", "show", "--config", str(gateway.config)],
        capture_output=True,
        text=True,
        timeout=240,
        env=env,
    )
    assert f"file:{tmp_path / 'key'}" in shown.stdout
    assert OTHER not in shown.stdout

    (tmp_path / "key").write_text(KEY, encoding="utf-8")
    gateway.start()
    assert rpc(url, "GetTaskPushNotificationConfig", asked)["result"] == made["result"]


@pytest.mark.parametrize("key", [KEY, "env:NOT_SET", "file:/nowhere/key"])
def test_a_key_in_the_settings_or_one_that_is_missing_is_refused(tmp_path: Path, key: str) -> None:
    file = tmp_path / "gateway.json5"
    file.write_text(f'{{security: {{encryption: {{keys: ["{key}"]}}}}}}', encoding="utf-8")
    checked = subprocess.run(
        [PROGRAM, "config", "check", "--config", str(file)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert checked.returncode != 0
    assert "security.encryption.keys[0]" in checked.stdout + checked.stderr
    assert KEY not in checked.stdout + checked.stderr
