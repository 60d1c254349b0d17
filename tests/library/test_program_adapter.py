"""`ProgramAdapter`: how programs end, their sessions, and that no process is left."""

import json
import os
import sys
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace

import anyio
import anyio.to_thread
import pytest
from tests.agents.processes import is_alive

from openclaw_a2a import CancelledByAdapter
from openclaw_a2a.agents.process.program_adapter import ProgramAdapter
from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable


class Script(ProgramAdapter):
    """Runs a piece of Python with the message, and the session to go on with, as arguments."""

    def __init__(self, source="", program=sys.executable, **options):
        super().__init__(**options)
        self.source, self.program = source, program
        self.commands = []

    def build_command(self, message, context_key):
        session = self.sessions.get(context_key) or ""
        self.commands.append((message, session))
        return [self.program, "-c", self.source, message, session], bool(session)

    def parse_output(self, stdout, context_key):
        text, _, session = stdout.strip().partition("#")
        return text, session or None

    def binary_not_found_message(self):
        return "Get the program at the corner shop."


class Lines(Script):
    """The same, with a JSON object on each line."""

    def parse_stream_line(self, line):
        return json.loads(line) if line.strip() else None


def context(task_id, session_key=None):
    return SimpleNamespace(task_id=task_id, context_id="c", session_key=session_key)


ECHO = "import sys; print('you said', sys.argv[1])"
FOREVER = """
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
time.sleep(600)
"""


@pytest.fixture
def place(tmp_path):
    """Where a program writes the id of its child: a pipe, so that the reader waits for it."""
    os.mkfifo(tmp_path / "pid")
    return str(tmp_path / "pid")


async def told(place):
    """What a program wrote to a place."""
    with anyio.fail_after(240):
        return await anyio.to_thread.run_sync(Path(place).read_text, abandon_on_cancel=True)


def is_gone(pid):
    return not is_alive(int(pid))


# ------------------------------------------------------------------------------- one run


def test_constructor_has_the_documented_defaults():
    adapter = Script()
    assert (adapter.working_dir, adapter.timeout, adapter.env_vars) == ("", 600, {})


async def test_answer_is_what_the_program_wrote():
    assert await Script(ECHO).invoke("hi") == "you said hi"


@pytest.mark.requirement("adapter.program.environment")
async def test_program_inherits_the_environment_and_runs_in_its_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("FROM_OUTSIDE", "a")
    source = "import os; print(os.environ['FROM_OUTSIDE'], os.environ['MINE'], os.getcwd())"
    adapter = Script(source, working_dir=str(tmp_path), env_vars={"MINE": "b"})
    assert await adapter.invoke("hi") == f"a b {tmp_path}"


async def test_input_is_closed():
    assert await Script("import sys; print('read', repr(sys.stdin.read()))").invoke("hi") == (
        "read ''"
    )


@pytest.mark.requirement("adapter.program.failure")
async def test_exit_code_and_errors_are_reported():
    source = "import sys; print('half'); sys.stderr.write('no paper'); sys.exit(3)"
    with pytest.raises(AgentFailed, match=r"exit code 3: no paper"):
        await Script(source).invoke("hi")


async def test_signal_from_elsewhere_is_a_failure():
    with pytest.raises(AgentFailed, match="SIGKILL"):
        await Script("import os, signal; os.kill(os.getpid(), signal.SIGKILL)").invoke("hi")


@pytest.mark.parametrize("source", ["pass", "print('  ')", "print('#session')"])
async def test_empty_output_is_a_failure(source):
    with pytest.raises(AgentFailed, match=r"nothing|no answer"):
        await Script(source).invoke("hi")


async def test_missing_program_is_reported_with_the_adapters_message():
    with pytest.raises(AgentUnavailable, match="corner shop"):
        await Script(program="openclaw-a2a-no-such-program").invoke("hi")


async def test_missing_directory_is_named(tmp_path):
    with pytest.raises(AgentUnavailable, match=str(tmp_path / "nowhere")):
        await Script(ECHO, working_dir=str(tmp_path / "nowhere")).invoke("hi")


async def test_program_that_may_not_be_run_is_reported(tmp_path):
    program = tmp_path / "plain.txt"
    program.write_text("#!/bin/sh\n")
    with pytest.raises(AgentUnavailable, match=r"plain\.txt may not be run"):
        await Script(program=str(program)).invoke("hi")


@pytest.mark.requirement("adapter.program.time-out")
async def test_time_out_ends_program_and_child_and_names_the_seconds(tmp_path):
    with pytest.raises(AgentFailed, match="within 20 seconds"):
        await Script(FOREVER, timeout=20).invoke(str(tmp_path / "pid"))
    assert is_gone((tmp_path / "pid").read_text())


async def test_output_that_is_not_utf_8_is_still_read():
    source = "import sys; sys.stdout.buffer.write(b'caf\\xe9 \\xf0\\x9f\\x98\\x80')"
    assert await Script(source).invoke("hi") == "caf� 😀"


async def test_fifty_megabytes_are_read_whole():
    source = "import sys; sys.stdout.write('0123456789' * 5_000_000)"
    assert len(await Script(source).invoke("hi")) == 50_000_000


async def test_flood_of_errors_does_not_stop_the_program():
    source = "import sys; sys.stderr.write('e' * 5_000_000); print('fine')"
    assert await Script(source).invoke("hi") == "fine"


# ------------------------------------------------------------------------------- cancelling


@pytest.mark.requirement("adapter.program.cancel")
async def test_cancel_ends_the_running_program_with_its_child(place):
    adapter = Script(FOREVER)
    async with anyio.create_task_group() as group:

        async def ask():
            with pytest.raises(CancelledByAdapter):
                await adapter.invoke(place, "c", context=context("t-1"))

        group.start_soon(ask)
        pid = await told(place)
        await adapter.cancel(context=context("t-1"))
        assert is_gone(pid)


async def test_cancel_of_one_task_does_not_affect_others(tmp_path):
    adapter = Script(FOREVER)
    places = {name: str(tmp_path / name) for name in ("t-1", "t-2")}
    for one in places.values():
        os.mkfifo(one)
    async with anyio.create_task_group() as group:

        async def ask(name):
            with pytest.raises(CancelledByAdapter):
                await adapter.invoke(places[name], name, context=context(name, name))

        for name in places:
            group.start_soon(ask, name)
        pids = {name: await told(place) for name, place in places.items()}
        await adapter.cancel(context=context("t-1"))
        assert is_gone(pids["t-1"])
        assert not is_gone(pids["t-2"])
        await adapter.close()
        assert is_gone(pids["t-2"])


async def test_task_that_is_cancelled_before_it_begins_never_starts_its_program():
    adapter = Script(ECHO)
    await adapter.cancel(context=context("t-1"))
    with pytest.raises(CancelledByAdapter):
        await adapter.invoke("hi", "c", context=context("t-1"))
    assert adapter.commands == []
    assert await adapter.invoke("hi", "c", context=context("t-2")) == "you said hi"


@pytest.mark.requirement("adapter.program.cancel")
async def test_task_that_is_cancelled_while_it_waits_never_starts_its_program(place):
    adapter = Script(FOREVER)
    async with anyio.create_task_group() as group:

        async def ask(task_id):
            with pytest.raises(CancelledByAdapter):
                await adapter.invoke(place, "c", context=context(task_id))

        group.start_soon(ask, "t-1")
        await told(place)
        group.start_soon(ask, "t-2")
        await anyio.wait_all_tasks_blocked()
        await adapter.cancel(context=context("t-2"))
        await adapter.cancel(context=context("t-1"))
    assert len(adapter.commands) == 1


async def test_close_ends_what_runs_and_what_waits(place):
    adapter = Script(FOREVER)
    async with anyio.create_task_group() as group:

        async def ask(task_id):
            with pytest.raises(CancelledByAdapter):
                await adapter.invoke(place, "c", context=context(task_id))

        group.start_soon(ask, "t-1")
        pid = await told(place)
        group.start_soon(ask, "t-2")
        await anyio.wait_all_tasks_blocked()
        await adapter.close()
        assert is_gone(pid)
    assert len(adapter.commands) == 1


# ------------------------------------------------------------------------------- order


@pytest.mark.requirement("adapter.program.one-run")
async def test_one_context_runs_one_at_a_time_and_others_beside_it(tmp_path):
    source = """
import os, pathlib, sys, time
folder, mine = sys.argv[1].split("|")
here = pathlib.Path(folder)
(here / f"{mine}.{os.getpid()}").touch()
(here / f"{mine} began").touch()
print(sorted(one.name.split(".")[0] for one in here.iterdir()))
deadline = time.monotonic() + 240
other = here / ("b began" if mine == "a" else "a began")
while not other.exists():
    if time.monotonic() > deadline:
        print("alone")
        break
    time.sleep(0.01)
(here / f"{mine}.{os.getpid()}").unlink()
"""
    adapter, answers = Script(source), []
    async with anyio.create_task_group() as group:

        async def ask(message, key):
            answers.append((key, await adapter.invoke(message, key)))

        # Each goes on until one of the other context has begun: no context waits for the other.
        group.start_soon(ask, f"{tmp_path}|b", "b")
        for _ in range(3):
            group.start_soon(ask, f"{tmp_path}|a", "a")
    assert [said.count("'a'") for key, said in answers if key == "a"] == [1, 1, 1]
    assert len(answers) == 4
    assert not [said for _, said in answers if "alone" in said]


# ------------------------------------------------------------------------------- sessions

REMEMBERS = "import sys; print(f'{sys.argv[2] or None}#s-{sys.argv[1]}')"


async def test_session_of_a_context_is_resumed(tmp_path):
    file = tmp_path / "deep" / "down" / "sessions.json"
    adapter = Script(REMEMBERS, session_store_path=str(file))
    assert await adapter.invoke("1", "a") == "None"
    assert await adapter.invoke("2", "a") == "s-1"
    assert await adapter.invoke("3", "b") == "None"
    assert json.loads(file.read_text()) == {"a": "s-2", "b": "s-3"}
    assert file.stat().st_mode & 0o077 == 0
    again = Script(REMEMBERS, session_store_path=str(file))
    assert await again.invoke("4", "a") == "s-2"


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"a":"\xff"}', b'{"a":' + b"[" * 9999])
async def test_unreadable_sessions_count_as_none(tmp_path, content: bytes):
    file = tmp_path / "sessions.json"
    file.write_bytes(content)
    adapter = Script(REMEMBERS, session_store_path=str(file))
    assert await adapter.invoke("1", "a") == "None"
    assert json.loads(file.read_text()) == {"a": "s-1"}


async def test_two_callers_with_one_context_id_have_two_sessions():
    adapter = Script(REMEMBERS)
    await adapter.invoke("1", "c", context=context("t-1", "agent:main:a2a:ann:c"))
    assert await adapter.invoke("2", "c", context=context("t-2", "agent:main:a2a:bob:c")) == "None"


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"a": 1}', b"\xff\xfe", b"[" * 100_000])
async def test_file_of_sessions_that_cannot_be_read_is_empty(tmp_path, content):
    file = tmp_path / "sessions.json"
    file.write_bytes(content)
    adapter = Script(REMEMBERS, session_store_path=str(file))
    assert await adapter.invoke("1", "a") == "None"
    assert json.loads(file.read_text()) == {"a": "s-1"}


async def test_file_of_sessions_that_cannot_be_written_is_only_logged(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    adapter = Script(REMEMBERS, session_store_path=str(tmp_path / "file" / "sessions.json"))
    assert await adapter.invoke("1", "a") == "None"
    assert "sessions.write_failed" in caplog.text
    assert await adapter.invoke("2", "a") == "s-1"


# Fails without a word when it is to go on with a session.
STALE = "import sys; sys.exit(1) if sys.argv[2] else print(f'fresh#s-{sys.argv[1]}')"


@pytest.mark.requirement("adapter.program.stale-resume")
@pytest.mark.parametrize("kind", [Script, Lines])
async def test_stale_session_is_forgotten_and_the_program_run_once_more(kind, tmp_path):
    source = STALE
    if kind is Lines:
        source = STALE.replace("f'fresh#s-{sys.argv[1]}'", '\'{"text": "fresh"}\'')
    adapter = kind(source, session_store_path=str(tmp_path / "sessions.json"))
    adapter.sessions.keep("a", "old")
    if kind is Lines:
        assert [piece async for piece in adapter.stream("1", "a")] == ["fresh"]
        assert adapter.sessions.get("a") is None
    else:
        assert await adapter.invoke("1", "a") == "fresh"
        assert adapter.sessions.get("a") == "s-1"
    assert adapter.commands == [("1", "old"), ("1", "")]


@pytest.mark.requirement("adapter.program.stale-resume")
async def test_session_is_not_retried_when_the_program_gives_a_reason():
    source = "import sys; sys.exit('bad session') if sys.argv[2] else print('fresh')"
    adapter = Script(source)
    adapter.sessions.keep("a", "old")
    with pytest.raises(AgentFailed, match="bad session"):
        await adapter.invoke("1", "a")
    assert adapter.commands == [("1", "old")]
    assert adapter.sessions.get("a") == "old"


async def test_program_that_fails_without_a_session_is_not_retried():
    adapter = Script("import sys; sys.exit(1)")
    with pytest.raises(AgentFailed, match="exit code 1 and gave no reason"):
        await adapter.invoke("1", "a")
    assert len(adapter.commands) == 1


async def test_program_that_fails_again_without_its_session_is_tried_only_twice():
    adapter = Script("import sys; sys.exit(1)")
    adapter.sessions.keep("a", "old")
    with pytest.raises(AgentFailed, match="exit code 1"):
        await adapter.invoke("1", "a")
    assert len(adapter.commands) == 2


# ------------------------------------------------------------------------------- streaming

SAYS = """
import json, sys
for item in json.loads(sys.argv[1]):
    print(json.dumps(item), flush=True)
"""


def test_only_an_adapter_that_parses_lines_streams():
    assert not Script().supports_streaming()
    assert Lines().supports_streaming()


async def test_stream_yields_the_text_of_each_line_and_keeps_the_session():
    adapter = Lines(SAYS)
    items = [{"text": "a"}, {"session_id": "s-9"}, {}, {"text": "b"}]
    assert [piece async for piece in adapter.stream(json.dumps(items), "c")] == ["a", "b"]
    assert adapter.sessions.get("c") == "s-9"


async def test_last_line_needs_no_end():
    adapter = Lines('import sys; sys.stdout.write(\'{"text": "a"}\')')
    assert [piece async for piece in adapter.stream("hi")] == ["a"]


async def test_error_line_fails_after_the_text_before_it():
    said = []
    with pytest.raises(AgentFailed, match="too hot"):
        async for piece in Lines(SAYS).stream(json.dumps([{"text": "a"}, {"error": "too hot"}])):
            said.append(piece)
    assert said == ["a"]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (SAYS, "without an answer"),
        (SAYS + "\nsys.stderr.write('torn'); sys.exit(4)", "exit code 4: torn"),
    ],
)
async def test_stream_without_text_or_with_an_exit_code_fails(source, reason):
    with pytest.raises(AgentFailed, match=reason):
        async for _ in Lines(source).stream(json.dumps([{"session_id": "x"}])):
            pass


async def test_each_line_has_its_own_time():
    source = """
import sys, time
for _ in range(6):
    time.sleep(1)
    print('{"text": "a"}', flush=True)
time.sleep(600)
"""
    said = []
    with pytest.raises(AgentFailed, match="within 5 seconds"):
        async for piece in Lines(source, timeout=5).stream("hi"):
            said.append(piece)
    assert len(said) == 6


async def test_program_is_ended_when_the_consumer_stops(place):
    source = 'print(\'{"text": "a"}\', flush=True)\n' + FOREVER
    async with aclosing(Lines(source).stream(place)) as pieces:
        assert await anext(pieces) == "a"
        pid = await told(place)
        assert not is_gone(pid)
    assert is_gone(pid)


async def test_errors_are_drained_while_lines_are_read():
    source = (
        "import sys\n"
        "for _ in range(50):\n"
        "    sys.stderr.write('e' * 100_000)\n"
        '    print(\'{"text": "a"}\', flush=True)\n'
    )
    assert len([piece async for piece in Lines(source).stream("hi")]) == 50


async def test_line_of_fifty_megabytes_is_one_line():
    source = "print('{\"text\": \"' + 'x' * 50_000_000 + '\"}')"
    (piece,) = [piece async for piece in Lines(source).stream("hi")]
    assert len(piece) == 50_000_000


async def test_cancelled_stream_is_cancelled_also_in_the_middle_of_a_line(place):
    source = "import sys; sys.stdout.write('{\"te'); sys.stdout.flush()\n" + FOREVER
    adapter = Lines(source)
    async with anyio.create_task_group() as group:

        async def ask():
            with pytest.raises(CancelledByAdapter):
                async for _ in adapter.stream(place, "c", context=context("t-1")):
                    pass

        group.start_soon(ask)
        pid = await told(place)
        await adapter.cancel(context=context("t-1"))
        assert is_gone(pid)


# ------------------------------------------------------------------------------- served


async def test_cancel_of_a_served_task_ends_the_program(serving, place):
    async with serving(Script(FOREVER)) as client:
        task = await client.send(place, wait=False)
        pid = await told(place)
        answer = await client.call("CancelTask", id=task["id"])
        assert answer["result"]["status"]["state"] == "TASK_STATE_CANCELED"
        assert is_gone(pid)


async def test_stop_of_the_server_ends_the_program(serving, place):
    async with serving(Script(FOREVER), stop_s=0) as client:
        await client.send(place, wait=False)
        pid = await told(place)
    assert is_gone(pid)


async def test_served_program_that_is_missing_fails_with_the_adapters_message(serving):
    async with serving(Script(program="openclaw-a2a-no-such-program")) as client:
        task = await client.send("hi")
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert "corner shop" in task["status"]["message"]["parts"][0]["text"]
