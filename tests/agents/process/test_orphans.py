"""Processes that a killed gateway left are ended before its runs are recovered."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from openclaw_a2a.agents.process.child import ProcessSpec, start_process
from openclaw_a2a.agents.process.command_agent import CommandAgent, CommandOptions
from openclaw_a2a.agents.process.tree import TAG_VARIABLE, end_orphans, new_tag
from openclaw_a2a.model.ids import RunId
from openclaw_a2a.ports import SupportsOrphanCleanup

FAMILY = """
import os, signal, subprocess, sys
folder = sys.argv[1]
note = "import os, signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN);" \\
    "open(os.path.join(sys.argv[1], str(os.getpid())), 'w').close(); signal.pause()"
orphan_maker = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"
one = [sys.executable, "-S", "-c", note, folder]
subprocess.Popen(one)
subprocess.Popen(one, start_new_session=True, env={})
subprocess.run([sys.executable, "-S", "-c", orphan_maker, *one])
subprocess.run(["sh", "-c", 'env -i setsid "$@" &', "sh", *one])
exec(note)
"""
FAMILY_SIZE = 5
"""The program notes its process id, as do its four descendants, all of which ignore SIGTERM: one
near it, one in another session without its environment, and two orphans."""

GATEWAY = """
import sys
import anyio
from openclaw_a2a.agents.process.child import ProcessSpec, start_process

async def main():
    start_process(ProcessSpec(tuple(sys.argv[2:]), run_name=sys.argv[1]))
    await anyio.sleep_forever()

anyio.run(main)
"""
TIMEOUT_S = 240.0


def pids_in(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir()]


def until(is_so, what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)  # another process does it; nothing here can be awaited


def has_ended(pid: int) -> bool:
    """Whether it has, while it is not collected."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


@pytest.fixture
def family(tmp_path):
    """Starts the program in a gateway process: that process, and the ids of the whole family."""
    gateways: list[subprocess.Popen[bytes]] = []
    folder = tmp_path / "pids"
    folder.mkdir()
    script = tmp_path / "family.py"
    script.write_text(FAMILY, encoding="utf-8")

    def start(run_id: str):
        program = [sys.executable, "-S", str(script), str(folder)]
        gateway = subprocess.Popen([sys.executable, "-c", GATEWAY, run_id, *program])
        gateways.append(gateway)
        until(lambda: len(pids_in(folder)) == FAMILY_SIZE, "the family did not come up")
        return gateway, pids_in(folder)

    yield start
    for gateway in gateways:
        gateway.kill()
        gateway.wait()
    for pid in pids_in(folder):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def agent() -> CommandAgent:
    return CommandAgent(CommandOptions(command=("true",), kill_grace_seconds=0.1))


async def test_orphans_of_a_killed_gateway_are_ended_by_the_id_of_their_run(
    family, agent, is_there
):
    assert isinstance(agent, SupportsOrphanCleanup)
    gateway, pids = family("orphaned")
    gateway.kill()
    gateway.wait()
    assert all(is_there(pid) for pid in pids)
    with anyio.fail_after(240):
        await agent.end_orphans(RunId("another run"))
        assert all(is_there(pid) for pid in pids)
        await agent.end_orphans(RunId("orphaned"))
    assert not [pid for pid in pids if is_there(pid)]


async def test_killed_gateway_that_is_still_a_zombie_counts_as_dead(family, agent, is_there):
    gateway, pids = family("uncollected")
    gateway.kill()
    until(lambda: has_ended(gateway.pid), "the gateway did not die")
    with anyio.fail_after(240):
        await agent.end_orphans(RunId("uncollected"))
    assert not [pid for pid in pids if is_there(pid)]


async def test_programs_of_a_running_gateway_are_not_ended(family, agent, is_there):
    """The same run id is in two gateways when a store was copied."""
    _, pids = family("copied")
    with anyio.fail_after(240):
        await agent.end_orphans(RunId("copied"))
    assert all(is_there(pid) for pid in pids)


async def test_cancelled_clean_up_still_kills_the_orphans(family, is_there):
    gateway, pids = family("out-of-time")
    gateway.kill()
    gateway.wait()
    patient = CommandAgent(CommandOptions(command=("true",), kill_grace_seconds=600))
    with anyio.move_on_after(1):
        await patient.end_orphans(RunId("out-of-time"))
    until(lambda: not [pid for pid in pids if is_there(pid)], "it still runs")


def test_gateway_that_an_orphan_started_does_not_end_itself(tmp_path):
    """A program may kill its gateway and start it anew: that one has the mark of the run too."""
    renewal = f"""
import os, subprocess, sys
import anyio
from openclaw_a2a.agents.process.command_agent import CommandAgent, CommandOptions
from openclaw_a2a.agents.process.child import ProcessSpec, start_process
from openclaw_a2a.model.ids import RunId

async def main():
    os.kill(int(sys.argv[1]), 9)
    other = start_process(ProcessSpec(("sleep", "100"), run_name="something else"))
    agent = CommandAgent(CommandOptions(command=("true",), kill_grace_seconds=0.1))
    await agent.end_orphans(RunId("renewed"))
    with open({str(tmp_path / "note")!r}, "w") as note:
        note.write(str(os.path.exists(f"/proc/{{other.pid}}")))
    await other.kill_tree(grace_s=0.1)

anyio.run(main)
"""
    script = tmp_path / "renewal.py"
    script.write_text(renewal, encoding="utf-8")
    starts = f'{sys.executable} "$0" $PPID; exit'
    command = ["sh", "-c", starts, str(script)]
    gateway = subprocess.Popen([sys.executable, "-c", GATEWAY, "renewed", *command])
    assert gateway.wait(TIMEOUT_S) == -9
    until((tmp_path / "note").exists, "the gateway ended itself")
    until(lambda: (tmp_path / "note").read_text() == "True", "its other program was ended")


async def test_clean_up_without_orphans_does_nothing(agent):
    with anyio.fail_after(240):
        await agent.end_orphans(RunId("never heard of"))


async def test_two_programs_of_one_run_are_distinguished(is_there):
    launch = ProcessSpec(("sleep", "100"), run_name="same")
    one, other = start_process(launch), start_process(launch)
    with anyio.fail_after(240):
        await one.kill_tree(grace_s=1)
        assert (is_there(one.pid), is_there(other.pid)) == (False, True)
        await other.kill_tree(grace_s=1)


def start_orphan(tag: str) -> int:
    """The id of a process with this tag whose parent has ended."""
    done = subprocess.run(
        ["sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!"],
        env={**os.environ, TAG_VARIABLE: tag},
        capture_output=True,
        start_new_session=True,
        check=True,
    )
    return int(done.stdout)


@pytest.mark.parametrize(
    ("clock_step_s", "is_ended"), [(0, False), (3, False), (-3, False), (-3600, True)]
)
async def test_gateway_is_known_by_its_process_id_and_start_time(is_there, clock_step_s, is_ended):
    """A clock that was set shifts start times a little; a reused process id has another one."""
    digest, pid, started, token = new_tag("shifted").split("-")
    tag = f"{digest}-{pid}-{int(started) + clock_step_s}-{token}"
    sleeper = start_orphan(tag)
    try:
        with anyio.fail_after(240):
            await end_orphans("shifted", grace_s=0.1)
        assert is_there(sleeper) is not is_ended
    finally:
        with suppress(ProcessLookupError):
            os.kill(sleeper, signal.SIGKILL)


# -------------------------------------------------------------------- with a real gateway

NOTES_ITS_PID = """
import os, signal, sys
open(os.path.join(sys.argv[1], str(os.getpid())), "w").close()
signal.pause()
"""


def call(gateway, method: str, params: dict[str, object]):
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    request = urllib.request.Request(
        f"{gateway.url}/a2a/jsonrpc",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "A2A-Version": "1.0"},
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        return json.load(answer)["result"]


@pytest.fixture
def interrupted(start_gateway, tmp_path):
    """A gateway that is killed while its program waits: it, its task, its pid and all pids."""

    def interrupt(*, is_repeatable: bool):
        folder = tmp_path / "pids"
        folder.mkdir()
        command = [sys.executable, "-S", "-c", NOTES_ITS_PID, str(folder)]
        agent = {"adapter": "command", "command": command, "repeatable": is_repeatable}
        account = {"defaultAgentId": "main", "agentStyle": "task-generating"}
        gateway = start_gateway(
            {
                "agents": {"main": agent},
                "channels": {"a2a": {"accounts": {"default": account}}},
            }
        )
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "wait"}]}
        options = {"returnImmediately": True}
        sent = call(gateway, "SendMessage", {"message": message, "configuration": options})
        until(lambda: pids_in(folder), "the program did not start")
        gateway.kill()
        return gateway, sent["task"]["id"], pids_in(folder)[0], folder

    return interrupt


@pytest.mark.slow
def test_repeated_run_has_one_program_after_a_kill_of_the_gateway(interrupted, is_there):
    gateway, task_id, first, folder = interrupted(is_repeatable=True)
    assert is_there(first)
    gateway.start()
    assert not is_there(first)
    until(lambda: len(pids_in(folder)) == 2, "the run was not repeated")
    assert len([pid for pid in pids_in(folder) if is_there(pid)]) == 1
    canceled = call(gateway, "CancelTask", {"id": task_id})
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
    assert not [pid for pid in pids_in(folder) if is_there(pid)]


@pytest.mark.slow
def test_failed_run_has_no_program_after_a_kill_of_the_gateway(interrupted, is_there):
    gateway, task_id, first, folder = interrupted(is_repeatable=False)
    assert is_there(first)
    gateway.start()
    assert not is_there(first)
    task = call(gateway, "GetTask", {"id": task_id})
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert pids_in(folder) == [first]
