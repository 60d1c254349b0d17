"""Secrets in addresses: in no output of `config show`, in no line of the log."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from openclaw_a2a.log import get_logger, hide_url_secrets, record_fields

PROGRAM = str(Path(sys.executable).with_name("openclaw-a2a"))
SECRETS = ("SECRET1", "SECRET2", "SECRET3", "SECRET4", "SECRET5", "SECRET6")
CONFIG: dict[str, Any] = {
    "agents": {"main": {"adapter": "remote", "url": "https://h.example/x?token=SECRET1"}},
    "outbound": {
        "enabled": True,
        "targets": [
            {
                "alias": "one",
                "baseUrl": "https://user:SECRET2@h.example/a?key=SECRET3#SECRET4",
                "cardPath": "/card?sig=SECRET5",
            }
        ],
    },
    "responseRouting": {"webhooks": {"alice": {"url": "https://h.example/hook?key=SECRET6"}}},
}


@pytest.mark.parametrize("arguments", [[], ["--json"], ["--origin"], ["--origin", "--json"]])
def test_config_show_hides_users_queries_and_fragments_of_addresses(
    tmp_path: Path, arguments: list[str]
) -> None:
    file = tmp_path / "gateway.json5"
    file.write_text(json.dumps(CONFIG), encoding="utf-8")
    shown = subprocess.run(
        [PROGRAM, "config", "show", "--config", str(file), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert shown.returncode == 0, shown.stderr
    assert [secret for secret in SECRETS if secret in shown.stdout + shown.stderr] == []
    assert "https://h.example/hook?(hidden)" in shown.stdout


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://h.example/a?k=v", "https://h.example/a?(hidden)"),
        ("https://u:p@h.example", "https://(hidden)@h.example"),
        ("ws://h:1/x#key", "ws://h:1/x#(hidden)"),
        ("no answer from http://h/?a=b: refused", "no answer from http://h/?(hidden) refused"),
        ("'http://h/?a=b' and http://i", "'http://h/?(hidden)' and http://i"),
        ("what is http://h/a@b", "what is http://h/a@b"),
        ("is it? yes", "is it? yes"),
    ],
)
def test_addresses_in_a_text_lose_what_may_hold_a_key(text: str, shown: str) -> None:
    assert hide_url_secrets(text) == shown


def test_no_line_of_the_log_shows_the_query_of_an_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger = logging.getLogger("openclaw_a2a")
    logger.propagate = True
    with caplog.at_level(logging.INFO, "openclaw_a2a"):
        get_logger("openclaw_a2a.test").info("push.sent", url="https://h/x?key=SECRET1", count=1)
    [record] = caplog.records
    assert "SECRET1" not in record.getMessage()
    assert record_fields(record) == {
        "event": "push.sent",
        "url": "https://h/x?(hidden)",
        "count": 1,
    }


LOGGED = """
import logging
from openclaw_a2a.app.logging import configure_logs
from openclaw_a2a.log import get_logger
from openclaw_a2a.settings import LogSettings

configure_logs(LogSettings(level="info", format=FORMAT))
log = get_logger("openclaw_a2a.test")
try:
    raise ValueError("no answer from https://h.example/x?key=SECRET1")
except ValueError:
    log.exception("push.failed", url="https://u:SECRET2@h.example")
    other = logging.getLogger("elsewhere")
    other.warning("gave up on https://h.example/?key=SECRET3", exc_info=True)
log.warning("config.wrong", problems=[{"message": "https://h.example/?key=SECRET4 is wrong"}])
"""


@pytest.mark.parametrize("kind", ["json", "pretty"])
def test_no_exception_list_or_foreign_line_shows_the_query_of_an_address(kind: str) -> None:
    logged = subprocess.run(
        [sys.executable, "-c", LOGGED.replace("FORMAT", repr(kind))],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert logged.returncode == 0, logged.stderr
    assert [one for one in SECRETS if one in logged.stderr] == []
    assert logged.stderr.count("h.example") >= 5
    assert "Traceback" in logged.stderr
