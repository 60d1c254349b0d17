"""Canceled means stopped: no process of a turn is left, wherever it has moved."""

import asyncio
import os
import random
import time
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.to_thread
import psutil
import pytest

from openclaw_a2a.agents.process import tree
from openclaw_a2a.agents.process.child import ProcessSpec, start_process
from openclaw_a2a.agents.process.command_agent import CommandAgent, CommandOptions
from openclaw_a2a.model.errors import AgentFailed

STUBBORN = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(1, b"%d\\n" % os.getpid())
signal.pause()
"""
FAMILY = f"""
import os, signal, subprocess, sys

stubborn = [sys.executable, "-S", "-c", {STUBBORN!r}]
orphan_maker = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"

os.write(1, b"%d\\n" % os.getpid())
subprocess.Popen(stubborn)
subprocess.Popen(stubborn, start_new_session=True)
subprocess.Popen(stubborn, start_new_session=True, env={{}})
subprocess.run([sys.executable, "-S", "-c", orphan_maker, *stubborn])
signal.pause()
"""
"""A program with four descendants that ignore SIGTERM: one near it, one in a session of its own,
one without its environment too, and one whose parent is gone."""
FAMILY_SIZE = 5


async def pids_of(events):
    """The process ids of the family, when all of them have come up."""
    text = ""
    while text.count("\n") < FAMILY_SIZE:
        text += (await anext(events)).text
    return [int(word) for word in text.split()]


@pytest.fixture
def family(serve):
    return serve(FAMILY, kill_grace_seconds=0.2)


async def test_closing_ends_the_whole_tree(family, make_turn, is_there):
    with anyio.fail_after(240):
        events = family.run(make_turn())
        pids = await pids_of(events)
        assert all(is_there(pid) for pid in pids)
        await events.aclose()
    assert not [pid for pid in pids if is_there(pid)]


async def test_cancelled_scope_ends_the_whole_tree(family, make_turn, is_there):
    pids = []
    with anyio.fail_after(240):
        async with anyio.create_task_group() as group:

            async def consume():
                events = family.run(make_turn())
                pids.extend(await pids_of(events))
                group.cancel_scope.cancel()
                await anext(events)

            group.start_soon(consume)
    assert len(pids) == FAMILY_SIZE
    assert not [pid for pid in pids if is_there(pid)]


async def test_task_cancelled_again_and_again_still_ends_the_whole_tree(
    family, make_turn, is_there
):
    pids = []
    ready = asyncio.Event()

    async def consume():
        events = family.run(make_turn())
        pids.extend(await pids_of(events))
        ready.set()
        await anext(events)

    with anyio.fail_after(240):
        task = asyncio.ensure_future(consume())
        await ready.wait()
        while not task.done():
            task.cancel()
            await asyncio.wait((task,), timeout=0.01)
    assert task.cancelled()
    assert not [pid for pid in pids if is_there(pid)]


async def test_timeout_ends_the_whole_tree(serve, make_turn, is_there):
    agent = serve(FAMILY, kill_grace_seconds=0.1, timeout_seconds=1.5)
    seen = ""
    with anyio.fail_after(240), pytest.raises(AgentFailed, match=r"1\.5 seconds"):
        async for event in agent.run(make_turn()):
            seen += event.text
    assert not [pid for pid in map(int, seen.split()) if is_there(pid)]


async def test_closing_the_agent_ends_its_programs(family, make_turn, is_there):
    with anyio.fail_after(240):
        events = family.run(make_turn())
        pids = await pids_of(events)
        await family.close()
        assert not [pid for pid in pids if is_there(pid)]
        with pytest.raises(AgentFailed):
            await anext(events)


async def test_processes_that_outlive_the_program_are_ended(serve, text, make_turn, is_there):
    """The one left behind holds the output open; the answer is complete all the same."""
    agent = serve(
        """
        import subprocess, sys
        pause = "import signal; signal.pause()"
        left = subprocess.Popen([sys.executable, "-S", "-c", pause], start_new_session=True)
        print(left.pid)
        """,
        kill_grace_seconds=0.1,
    )
    assert not is_there(int(await text(agent, make_turn())))


async def test_descendant_may_finish_writing_after_the_program_ends(serve, text, make_turn):
    agent = serve(
        """
        import os, subprocess, sys
        late = "import os; os.read(0, 1); print('late')"
        waits, ends = os.pipe()
        subprocess.Popen([sys.executable, "-S", "-c", late], stdin=waits)
        print("early", flush=True)
        """,
        kill_grace_seconds=20,
    )
    assert await text(agent, make_turn()) == "early\nlate\n"


ESCAPES = {
    "held-output": "(env -i setsid sleep {0} </dev/null 2>/dev/null &)",
    "held-errors": "(env -i setsid sleep {0} </dev/null >/dev/null &)",
    "kept-mark": "(setsid sleep {0} </dev/null >/dev/null 2>&1 &)",
    "kept-session": "(env -i sleep {0} </dev/null >/dev/null 2>&1 &)",
    "kept-parent": "env -i setsid sleep {0} </dev/null >/dev/null 2>&1 &",
}
"""Processes that have given up everything by which they can be found, but for one thing."""


def sleeper(seconds):
    """The id of the process `sleep SECONDS`, when there is one."""
    wanted = b"sleep\0%d\0" % seconds
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes() == wanted:
                return int(path.parent.name)
    return None


def wait_for_sleeper(seconds):
    deadline = time.monotonic() + 240
    while sleeper(seconds) is None:
        assert time.monotonic() < deadline, "the process did not come up"
        time.sleep(0.01)  # it comes up by itself; nothing here can be awaited


@pytest.mark.parametrize("escape", list(ESCAPES))
async def test_cancel_ends_a_process_that_kept_one_link_to_the_program(make_turn, escape):
    seconds = 10_000_000 + random.SystemRandom().randrange(80_000_000)
    script = f"{ESCAPES[escape].format(seconds)}\necho up; exec sleep 60"
    agent = CommandAgent(CommandOptions(("sh", "-c", script), kill_grace_seconds=1))
    with anyio.fail_after(240):
        events = agent.run(make_turn())
        await anext(events)
        await anyio.to_thread.run_sync(wait_for_sleeper, seconds)
        await events.aclose()
    assert sleeper(seconds) is None


async def test_completion_ends_an_orphan_that_holds_the_output(text, make_turn):
    seconds = 10_000_000 + random.SystemRandom().randrange(80_000_000)
    script = f"(env -i setsid sleep {seconds} &); echo done"
    agent = CommandAgent(CommandOptions(("sh", "-c", script), kill_grace_seconds=0.1))
    assert await text(agent, make_turn()) == "done\n"
    assert sleeper(seconds) is None


async def test_program_can_clean_up_after_sigterm(serve, make_turn, tmp_path):
    note = tmp_path / "note"
    agent = serve(
        """
        import signal, sys
        def leave(*_):
            open(sys.argv[1], "w").write("in order")
            sys.exit()
        signal.signal(signal.SIGTERM, leave)
        print("ready", flush=True)
        signal.pause()
        """,
        str(note),
        kill_grace_seconds=20,
    )
    with anyio.fail_after(240):
        events = agent.run(make_turn())
        await anext(events)
        await events.aclose()
    assert note.read_text() == "in order"


async def test_stopped_program_gets_sigterm_too(serve, make_turn, is_there):
    agent = serve(
        "import os, signal; os.write(1, b'%d' % os.getpid()); os.kill(0, signal.SIGSTOP)",
        kill_grace_seconds=20,
    )
    with anyio.fail_after(240):
        events = agent.run(make_turn())
        pid = int((await anext(events)).text)
        await events.aclose()
    assert not is_there(pid)


async def test_programs_of_other_turns_are_not_ended(serve, make_turn, is_there):
    agent = serve("import os, signal; os.write(1, b'%d' % os.getpid()); signal.pause()")
    with anyio.fail_after(240):
        one, other = agent.run(make_turn()), agent.run(make_turn())
        first, second = int((await anext(one)).text), int((await anext(other)).text)
        await one.aclose()
        assert (is_there(first), is_there(second)) == (False, True)
        await other.aclose()
    assert not is_there(second)


async def test_nested_gateway_tags_programs_with_both_tags():
    launch = ProcessSpec(("sh", "-c", "echo $A2A_PROCESS_MARK"))
    outer = start_process(launch)
    with anyio.fail_after(240):
        mark = (await outer.read()).decode().strip()
        await outer.kill_tree(grace_s=1)
        inner = start_process(ProcessSpec(launch.argv, variables={"A2A_PROCESS_MARK": mark}))
        inherited = (await inner.read()).decode().strip()
        await inner.kill_tree(grace_s=1)
    assert inherited.startswith(f"{mark}:")


async def test_exit_code_is_known_after_a_kill():
    child = start_process(ProcessSpec(("sleep", "100")))
    with anyio.fail_after(240):
        await child.kill_tree(grace_s=5)
        await child.kill_tree(grace_s=5)
        assert await child.wait() == -15
        assert await child.read() == b""


async def test_process_that_cannot_be_ended_is_reported(serve, make_turn, is_there, monkeypatch):
    agent = serve("import os, signal; os.write(1, b'%d' % os.getpid()); signal.pause()")
    events = agent.run(make_turn())
    with anyio.fail_after(240):
        pid = int((await anext(events)).text)
        with monkeypatch.context() as patch:
            patch.setattr(tree, "_KILL_TIMEOUT_S", 0.1)
            patch.setattr(os, "kill", lambda *_: None)
            patch.setattr(os, "killpg", lambda *_: None)
            with pytest.raises(AgentFailed, match=str(pid)):
                await events.aclose()
        assert is_there(pid)
        await agent.close()
    assert not is_there(pid)


@pytest.mark.parametrize("missing", ["pidfd_open", "waitid"])
async def test_programs_are_ended_without_pidfd_or_waitid(
    serve, make_turn, is_there, monkeypatch, missing
):
    monkeypatch.delattr(os, missing)
    with anyio.fail_after(240):
        events = serve(FAMILY, kill_grace_seconds=0.2).run(make_turn())
        pids = await pids_of(events)
        await events.aclose()
        assert not [pid for pid in pids if is_there(pid)]
        with pytest.raises(AgentFailed, match="exit code 7"):
            await anext(serve("import sys; sys.exit(7)").run(make_turn()))


async def test_program_is_ended_without_a_process_list(serve, make_turn, is_there, monkeypatch):
    agent = serve("import os, signal; os.write(1, b'%d' % os.getpid()); signal.pause()")
    with anyio.fail_after(240):
        with monkeypatch.context() as patch:
            patch.setattr(psutil, "pids", list)
            events = agent.run(make_turn())
            pid = int((await anext(events)).text)
            await events.aclose()
    assert not is_there(pid)


def test_turn_left_open_when_the_gateway_ends_is_ended_too(serve, make_turn, is_there):
    left_open = []

    async def gateway():
        events = serve(FAMILY, kill_grace_seconds=0.2).run(make_turn())
        left_open.append(events)
        return await pids_of(events)

    pids = anyio.run(gateway)
    assert not [pid for pid in pids if is_there(pid)]


def test_kill_interrupted_by_the_end_of_the_loop_still_kills(serve, make_turn, is_there):
    """All tasks are cancelled at the end of a loop, also the one that kills."""

    async def gateway():
        events = serve(FAMILY, kill_grace_seconds=60).run(make_turn())
        pids = await pids_of(events)
        closing = asyncio.ensure_future(events.aclose())
        await asyncio.wait((closing,), timeout=0.05)
        return pids

    pids = asyncio.run(gateway())
    deadline = time.monotonic() + 240
    while any(is_there(pid) for pid in pids):
        assert time.monotonic() < deadline
