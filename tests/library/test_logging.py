"""Importing or embedding the package leaves the logging of the process as it was."""

import io
import json
import logging
import subprocess
import sys

import pytest

from openclaw_a2a import AgentAdapter, RemoteAgents
from openclaw_a2a.app.logging import configure_logs, logging_to_stderr
from openclaw_a2a.log import get_logger
from openclaw_a2a.settings import LogSettings

SNAPSHOT = """
import json, logging, sys, threading

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
    return {**changed, "hooks": [str(threading.excepthook), str(sys.unraisablehook)]}
"""


def changes_of(code: str) -> dict[str, object]:
    """What running the code in a fresh process changes about logging."""
    program = f"{SNAPSHOT}\nbefore = snapshot()\n{code}\nafter = snapshot()\n" + (
        "json.dump({k: v for k, v in after.items() if before.get(k) != v}, sys.stdout)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=240)
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
    assert (root.level, root.handlers, logging.getLogger("openclaw_a2a").handlers) == before
    assert "broken" in caplog.text


async def test_using_remote_agents_changes_nothing():
    async with RemoteAgents({"targets": []}):
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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=240)
    first, second = (json.loads(line) for line in done.stderr.splitlines())
    assert (first["event"], first["logger"]) == ("it broke: why", "uvicorn.error")
    assert (second["logger"], second["level"]) == ("py.warnings", "warning")


HOOKS = """
import gc, logging, sys, threading
from openclaw_a2a.app.logging import logging_to_stderr
from openclaw_a2a.log import get_logger
from openclaw_a2a.settings import LogSettings

class Broken:
    def __del__(self):
        raise RuntimeError("in a finalizer")

class Unprintable:
    def __repr__(self):
        raise RuntimeError("no text")

def fail():
    raise ValueError("in a thread")

before = threading.excepthook, sys.unraisablehook
with logging_to_stderr(LogSettings(format="json")):
    thread = threading.Thread(target=fail, name="helper")
    thread.start()
    thread.join()
    Broken()
    logging.getLogger("lib").warning("%d items", "three")
    get_logger("openclaw_a2a.tests").info("test.value", value=Unprintable())
    logging.getLogger("lib").warning("GET https://u:p@peer/?key=s3cret", exc_info=ValueError(
        "https://peer/?key=s3cret"
    ))
assert (threading.excepthook, sys.unraisablehook) == before
"""


def test_nothing_that_goes_wrong_in_the_process_is_a_line_of_another_form():
    done = subprocess.run([sys.executable, "-c", HOOKS], capture_output=True, timeout=240)
    assert done.returncode == 0, done.stderr.decode()
    thread, finalizer, arguments, value, secret = map(json.loads, done.stderr.splitlines())
    assert (thread["event"], thread["thread"]) == ("process.thread_raised", "helper")
    assert thread["exception"].endswith("ValueError: in a thread")
    assert finalizer["event"] == "process.exception_ignored"
    assert finalizer["exception"].endswith("RuntimeError: in a finalizer")
    assert (arguments["logger"], "%d items" in arguments["event"]) == ("lib", True)
    assert value["event"] == "test.value"
    assert "s3cret" not in done.stderr.decode()
    assert secret["event"] == "GET https://(hidden)@peer/?(hidden)"


def test_line_for_people_has_the_event_and_its_fields_and_no_control_characters(capsys):
    configure_logs(LogSettings(level="info", format="pretty"))
    log = get_logger("openclaw_a2a.tests")
    log.info("test.shown", agent="main", reason="not \x1b[31mred\x1b[0m", empty="", count=3)
    logging.getLogger("openclaw_a2a.lib").warning("first\nsecond \u202e\x07")
    first, *second = capsys.readouterr().err.splitlines()
    assert "\x1b" not in first
    moment, shown = first.split(" info ", 1)
    assert len(moment.split()) == 2
    assert shown.split(None, 1)[0] == "test.shown"
    assert r"agent=main reason='not \x1b[31mred\x1b[0m' empty='' count=3" in shown
    assert second[0].split(" warning ", 1)[1].strip() == "first"
    assert second[1].split() == ["second", r"\u202e\x07", "logger=openclaw_a2a.lib"]


def test_traceback_for_people_is_below_its_line(capsys):
    configure_logs(LogSettings(level="info", format="pretty"))
    try:
        raise ValueError("broken \x1b]0;title\x07")
    except ValueError:
        get_logger("openclaw_a2a.tests").exception("test.failed", task_id="t-1")
    first, *others = capsys.readouterr().err.splitlines()
    assert "test.failed" in first
    assert "task_id=t-1" in first
    assert others[0].startswith("Traceback")
    assert others[-1] == r"ValueError: broken \x1b]0;title\x07"
