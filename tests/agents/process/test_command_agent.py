"""A program as an agent: its input, its output and its failures."""

import os
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from openclaw_a2a.agents.process.command_agent import CommandAgent, CommandOptions
from openclaw_a2a.model.agent_event import TextDelta
from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable
from openclaw_a2a.ports import Recovery

ECHO_ARGUMENTS = "import sys; sys.stdout.write(repr(sys.argv[1:]))"
ECHO_INPUT = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"
HOSTILE = "two\nlines 'single' \"double\" $(touch pwned) `id` ; rm -rf \\ * ü 𝄞"


async def test_message_is_the_last_argument(serve, text, make_turn):
    agent = serve(ECHO_ARGUMENTS, "--flag", "--")
    assert await text(agent, make_turn("hello")) == "['--flag', '--', 'hello']"


@pytest.mark.parametrize("message", [HOSTILE, "--help", "-", "", "~", "*"])
async def test_argument_arrives_untouched(serve, text, make_turn, message):
    assert await text(serve(ECHO_ARGUMENTS), make_turn(message)) == repr([message])


@pytest.mark.parametrize("message", [HOSTILE, "", "x" * 1_000_000, "nul \0 is fine"])
async def test_input_arrives_untouched(serve, text, make_turn, message):
    assert await text(serve(ECHO_INPUT, input="stdin"), make_turn(message)) == message


async def test_input_that_the_program_does_not_read_is_no_failure(serve, text, make_turn):
    agent = serve("import os; os.close(0); print('done')", input="stdin")
    assert await text(agent, make_turn("x" * 1_000_000)) == "done\n"


async def test_program_without_input_reads_nothing(serve, text, make_turn):
    assert await text(serve("import sys; print(repr(sys.stdin.read()))"), make_turn()) == "''\n"


async def test_text_arrives_before_the_program_ends(serve, make_turn, tmp_path):
    """The program goes on only after the test has seen its first words, without a line end."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    agent = serve(
        """
        import sys
        print("first ", end="", flush=True)
        print(open(sys.argv[1]).read(), end="")
        """,
        str(gate),
    )
    seen = []
    with anyio.fail_after(240):
        async for event in agent.run(make_turn()):
            seen.append(event)
            if len(seen) == 1:
                await anyio.to_thread.run_sync(gate.write_text, "second")
    assert seen == [TextDelta("first "), TextDelta("second")]


async def test_character_split_over_two_reads_is_one_character(serve, make_turn, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    agent = serve(
        """
        import os, sys
        os.write(1, "a𝄞".encode()[:3])
        open(sys.argv[1]).read()
        os.write(1, "a𝄞".encode()[3:])
        """,
        str(gate),
    )
    seen = []
    with anyio.fail_after(240):
        async for event in agent.run(make_turn()):
            if not seen:
                await anyio.to_thread.run_sync(gate.write_text, "go")
            seen.append(event)
    assert seen == [TextDelta("a"), TextDelta("𝄞")]


async def test_invalid_utf_8_is_replaced(serve, text, make_turn):
    agent = serve(r"import os; os.write(1, b'a\xffb\xf0\x9d')")
    assert await text(agent, make_turn()) == "a\ufffdb\ufffd"


async def test_program_without_output_gives_an_empty_answer(serve, answer, make_turn):
    assert await answer(serve("pass"), make_turn()) == []


async def test_a_flood_of_errors_does_not_stop_the_answer(serve, text, make_turn):
    agent = serve("import sys; sys.stderr.write('x' * 1_000_000); print('done')")
    assert await text(agent, make_turn()) == "done\n"


async def test_exit_code_and_end_of_errors_are_reported(serve, answer, make_turn):
    agent = serve("import sys; sys.stderr.write('a' * 1_000_000 + ' the reason'); sys.exit(3)")
    with pytest.raises(AgentFailed) as caught:
        await answer(agent, make_turn())
    assert "exit code 3" in caught.value.message
    assert caught.value.message.endswith("a the reason")
    assert len(caught.value.message) < 2200


async def test_program_ended_by_a_signal_is_reported(serve, answer, make_turn):
    with pytest.raises(AgentFailed, match="SIGKILL"):
        await answer(serve("import os; os.kill(os.getpid(), 9)"), make_turn())


async def test_text_written_before_a_failure_comes_first(serve, make_turn):
    agent = serve("import sys; print('so far', flush=True); sys.exit(1)")
    seen = ""
    with pytest.raises(AgentFailed):
        async for event in agent.run(make_turn()):
            seen += event.text
    assert seen == "so far\n"


async def test_turn_is_described_in_the_environment(serve, text, make_turn):
    agent = serve(
        "import os; print({k: v for k, v in os.environ.items() if k[:4] in ('A2A_', 'MINE')})",
        env={"MINE": "yes", "A2A_PRINCIPAL": "not me", "A2A_ACCOUNT": "not this"},
    )
    variables = eval(await text(agent, make_turn(resume={"step": 2})))
    del variables["A2A_PROCESS_MARK"]
    assert variables == {
        "A2A_ACCOUNT": "default",
        "A2A_CONTEXT_ID": "context-1",
        "A2A_MESSAGE_ID": "message-1",
        "A2A_PRINCIPAL": "local",
        "A2A_RESUME": '{"step":2}',
        "A2A_SESSION_KEY": "agent:main:a2a:local:c-1",
        "A2A_TASK_ID": "task-1",
        "MINE": "yes",
    }


async def test_given_environment_replaces_the_inherited_one(text, make_turn):
    command = (sys.executable, "-c", "import os; print('HOME' in os.environ, os.environ['ONLY'])")
    agent = CommandAgent(CommandOptions(command), environment={"ONLY": "this"})
    assert await text(agent, make_turn()) == "False this\n"


async def test_directory_of_the_program_can_be_chosen(serve, text, make_turn, tmp_path):
    agent = serve("import os; print(os.getcwd(), end='')", cwd=str(tmp_path))
    assert await text(agent, make_turn()) == str(tmp_path.resolve())


async def test_missing_program_is_named(answer, make_turn):
    agent = CommandAgent(CommandOptions(("no-such-program-here", "x")))
    with pytest.raises(AgentUnavailable, match="no-such-program-here"):
        await answer(agent, make_turn())


async def test_missing_directory_is_named(serve, answer, make_turn, tmp_path):
    missing = str(tmp_path / "missing")
    with pytest.raises(AgentUnavailable, match=missing):
        await answer(serve("pass", cwd=missing), make_turn())


async def test_program_that_may_not_be_run_is_named(answer, make_turn, tmp_path):
    plain = tmp_path / "plain.txt"
    plain.write_text("no program")
    with pytest.raises(AgentUnavailable, match=r"plain\.txt"):
        await answer(CommandAgent(CommandOptions((str(plain),))), make_turn())


async def test_file_that_is_not_executable_code_is_named(answer, make_turn, tmp_path):
    noise = tmp_path / "noise"
    noise.write_bytes(b"\0\1\2")
    noise.chmod(0o755)
    with pytest.raises(AgentUnavailable, match="noise"):
        await answer(CommandAgent(CommandOptions((str(noise),))), make_turn())


async def test_nul_cannot_be_an_argument(serve, answer, make_turn):
    with pytest.raises(AgentFailed, match="NUL"):
        await answer(serve("pass"), make_turn("a\0b"))


async def test_nul_cannot_be_a_variable(serve, answer, make_turn):
    with pytest.raises(AgentFailed, match="MINE"):
        await answer(serve("pass", env={"MINE": "a\0b"}), make_turn())


async def test_too_long_message_cannot_be_an_argument(serve, answer, make_turn):
    with pytest.raises(AgentFailed, match="stdin"):
        await answer(serve("pass"), make_turn("x" * 4_000_000))


async def test_lone_surrogate_is_replaced_in_the_input(serve, text, make_turn):
    assert await text(serve(ECHO_INPUT, input="stdin"), make_turn("a\ud800b")) == "a?b"


async def test_output_over_the_limit_ends_the_program(serve, make_turn, is_there):
    agent = serve(
        """
        import os, sys
        print(os.getpid(), flush=True)
        while True:
            sys.stdout.write("x" * 1000)
        """,
        max_output_bytes=100_000,
    )
    seen = ""
    with pytest.raises(AgentFailed, match="maxOutputBytes"), anyio.fail_after(240):
        async for event in agent.run(make_turn()):
            seen += event.text
    assert len(seen) <= 100_000
    assert not is_there(int(seen.split()[0]))


async def test_program_that_takes_too_long_is_ended(serve, make_turn, is_there):
    agent = serve(
        "import os, signal; print(os.getpid(), flush=True); signal.pause()", timeout_seconds=0.5
    )
    seen = ""
    with pytest.raises(AgentFailed, match=r"0\.5 seconds"), anyio.fail_after(240):
        async for event in agent.run(make_turn()):
            seen += event.text
    assert not is_there(int(seen or 0))


async def test_program_that_closes_its_output_is_still_waited_for(serve, answer, make_turn):
    with pytest.raises(AgentFailed, match="exit code 4"):
        await answer(serve("import os; os.close(1); os._exit(4)"), make_turn())


def test_only_a_repeatable_program_is_run_again():
    once = CommandAgent(CommandOptions(("true",)))
    again = CommandAgent(CommandOptions(("true",), repeatable=True))
    assert (once.recovery, again.recovery) == (Recovery.FAIL, Recovery.REPEAT)


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_descriptors_are_closed(serve, answer, make_turn):
    agent = serve("print('x')", input="stdin")
    await answer(agent, make_turn())
    before = open_descriptors()
    for _ in range(3):
        await answer(agent, make_turn())
    assert open_descriptors() <= before
