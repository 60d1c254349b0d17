"""Importing or embedding the package leaves the logging of the process as it was."""

import io
import json
import logging
import subprocess
import sys

import pytest
import structlog

from openclaw_a2a import AgentAdapter, RemoteAgents
from openclaw_a2a.app.logging import configure_logs, logging_to_stderr
from openclaw_a2a.log import get_logger
from openclaw_a2a.settings import LogSettings

SNAPSHOT = """
import json, logging, sys
import structlog

def snapshot():
    loggers = [logging.getLogger(), *[
        one for one in logging.Logger.manager.loggerDict.values() if isinstance(one, logging.Logger)
    ]]
    handlers = {
        one.name: len([each for each in one.handlers if not isinstance(each, logging.NullHandler)])
        for one in loggers
    }
    changed = {
        one.name: [one.level, handlers[one.name], one.propagate, one.disabled]
        for one in loggers
        if one.level or handlers[one.name] or not one.propagate or one.disabled
    }
    return {**changed, "structlog": structlog.is_configured()}
"""


def changes_of(code: str) -> dict[str, object]:
    """What running the code in a fresh process changes about logging."""
    program = f"{SNAPSHOT}\nbefore = snapshot()\n{code}\nafter = snapshot()\n" + (
        "json.dump({k: v for k, v in after.items() if before.get(k) != v}, sys.stdout)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_importing_every_public_name_changes_nothing():
    code = "import openclaw_a2a\nfor name in openclaw_a2a.__all__: getattr(openclaw_a2a, name)"
    assert changes_of(code) == {}


class Whole(AgentAdapter):
    async def invoke(self, user_input, context_id=None, **kwargs):
        raise RuntimeError("broken")


async def test_serving_an_adapter_in_process_changes_nothing(serving, caplog):
    root = logging.getLogger()
    before = root.level, root.handlers[:], logging.getLogger("openclaw_a2a").handlers[:]
    async with serving(Whole()) as client:
        await client.send("hi")
    assert not structlog.is_configured()
    assert (root.level, root.handlers, logging.getLogger("openclaw_a2a").handlers) == before
    assert "broken" in caplog.text


async def test_using_remote_agents_changes_nothing():
    async with RemoteAgents({"targets": []}):
        assert not structlog.is_configured()
        assert logging.getLogger("openclaw_a2a").handlers == []


def test_using_remote_agents_leaves_the_loggers_of_other_libraries_alone():
    code = """
import asyncio
from openclaw_a2a import RemoteAgents

async def use():
    section = {"targets": [{"alias": "peer", "baseUrl": "http://127.0.0.1:1/"}]}
    async with RemoteAgents(section, raises=False) as agents:
        await agents.send("peer", "hi")

asyncio.run(use())
"""
    assert changes_of(code) == {}


def test_log_of_the_package_can_be_shown_for_a_while(capsys):
    logger, log = logging.getLogger("openclaw_a2a"), get_logger("openclaw_a2a.tests")
    before = logger.level, logger.handlers[:], logger.propagate
    with logging_to_stderr(LogSettings(level="info", format="json")):
        log.info("test.shown", count=3)
        log.debug("test.hidden")
    assert (logger.level, logger.handlers, logger.propagate) == before
    shown = json.loads(capsys.readouterr().err)
    assert (shown["event"], shown["count"], shown["level"]) == ("test.shown", 3, "info")
    assert shown["timestamp"].endswith("Z")


def test_configuring_twice_shows_each_line_once(capsys):
    configure_logs(LogSettings(level="info", format="json"))
    configure_logs(LogSettings(level="warning", format="pretty"))
    get_logger("openclaw_a2a.tests").warning("test.once", reason="why")
    shown = capsys.readouterr().err
    assert shown.count("test.once") == 1
    assert "reason" in shown


def test_exception_is_logged_with_its_traceback(capsys):
    configure_logs(LogSettings(level="info", format="json"))
    try:
        raise ValueError("broken")
    except ValueError:
        get_logger("openclaw_a2a.tests").exception("test.failed")
    shown = json.loads(capsys.readouterr().err)
    assert "ValueError: broken" in shown["exception"]


class Unread(io.StringIO):
    """A pipe whose reader has left."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_an_event_raises_nothing_when_nobody_reads_the_log_any_more(monkeypatch):
    configure_logs(LogSettings(level="info", format="json"))
    monkeypatch.setattr(sys, "stderr", Unread())
    get_logger("openclaw_a2a.tests").warning("test.unread")


@pytest.mark.parametrize("field", ["name", "args", "message", "event_name", "module"])
def test_field_may_have_any_name(caplog, field):
    caplog.set_level(logging.INFO)
    get_logger("openclaw_a2a.tests").info("test.field", **{field: "x"})
    assert f"{field}='x'" in caplog.text


@pytest.mark.parametrize("value", ["\udcff", object(), {1: "x"}, 2**70, b"\xff", {"a": "\udcff"}])
def test_every_value_becomes_a_line_of_json(capsys, value):
    configure_logs(LogSettings(level="info", format="json"))
    get_logger("openclaw_a2a.tests").info("test.value", value=value, count=3)
    [line] = capsys.readouterr().err.splitlines()
    assert "test.value" in json.loads(line)["event"]


def test_log_of_libraries_is_shown_in_the_same_form_where_nobody_configured_logging():
    code = """
import logging, sys, warnings
from openclaw_a2a.app.logging import logging_to_stderr
from openclaw_a2a.settings import LogSettings

with logging_to_stderr(LogSettings(format="json")):
    logging.getLogger("uvicorn.error").error("it broke: %s", "why")
    logging.getLogger("asyncio").info("not shown")
    warnings.warn("a warning", stacklevel=1)
"""
    assert changes_of(code) == {}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    first, second = (json.loads(line) for line in done.stderr.splitlines())
    assert (first["event"], first["logger"]) == ("it broke: why", "uvicorn.error")
    assert (second["logger"], second["level"]) == ("py.warnings", "warning")
