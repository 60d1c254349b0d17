"""The `openclaw` command as an agent: answers, failures, queueing, and no process left."""

import json
import os
import resource
import signal
import sys
import tempfile

import anyio
import anyio.to_thread
import msgspec
import pytest

from openclaw_a2a.agents import build_agent
from openclaw_a2a.agents.openclaw_cli import OpenClawCliAgent
from openclaw_a2a.model.agent_event import Note, Reply, Report
from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable, SettingsInvalid
from openclaw_a2a.model.ids import RunId
from openclaw_a2a.model.message import Part
from openclaw_a2a.ports import Recovery, SupportsOrphanCleanup

HOSTILE = "two\nlines 'single' \"double\" $(touch pwned) `id` ; rm -rf \\ * ü 𝄞"


async def test_turn_is_answered_in_the_session_of_its_key(openclaw, serve, events, make_turn):
    assert await events(serve(), make_turn("hello")) == [
        Report({"openclaw": {"provider": "fake", "model": "fake-1", "usage": {"total": 3},
                             "durationMs": 5, "stopReason": "stop"}}),
        Reply((Part(text="echo: hello"),)),
    ]  # fmt: skip
    assert openclaw.starts() == [
        [
            *("agent", "--local", "--message", "hello", "--json"),
            *("--session-key", "agent:main:a2a:local:c-1", "--thinking", "low", "--agent", "main"),
        ]
    ]


async def test_same_context_continues_the_conversation(serve, text, make_turn):
    agent = serve()
    await text(agent, make_turn("one"))
    await text(agent, make_turn("other", context="c-2"))
    assert await text(agent, make_turn("history")) == "history: ['one', 'history']"


async def test_session_belongs_to_the_openclaw_agent_that_is_named(openclaw, serve, make_turn):
    agent = serve(agent_id="Support", thinking="high")
    await anext(agent.run(make_turn()))
    arguments = openclaw.starts()[0]
    assert arguments[arguments.index("--session-key") + 1] == "agent:support:a2a:local:c-1"
    assert arguments[-4:] == ["--thinking", "high", "--agent", "Support"]


@pytest.mark.parametrize("message", [HOSTILE, "--help", "-", "~", "a\n/status"])
async def test_message_arrives_untouched(serve, text, make_turn, message):
    assert await text(serve(), make_turn(message)) == f"echo: {message}"


@pytest.mark.parametrize("message", ["/new", " \n/reset"])
async def test_text_that_starts_with_a_slash_is_no_command(serve, text, make_turn, message):
    assert await text(serve(), make_turn(message)) == f"echo: \u2060{message}"


async def test_untrusted_notes_follow_the_message_in_a_block_of_their_own(serve, text, make_turn):
    """A fence of backticks was closed, or turned inside out, by backticks of the message."""
    turn = make_turn("look\n```", untrusted=("Untrusted data:\n{}",))
    begin, end = "--- Notes from the gateway about the peer's message ---", "--- End of notes ---"
    block = f"{begin}\nUntrusted data:\n{{}}\n{end}"
    assert await text(serve(), turn) == f"echo: look\n```\n\n{block}"


async def test_the_agent_is_told_which_peer_sent_the_message(serve, text, make_turn):
    turn = msgspec.structs.replace(make_turn("hi"), principal="alice")
    told = await text(serve(), turn)
    assert 'Sender known to the gateway: peer "alice", account "default"\n' in told


async def test_files_are_named_as_not_given_to_the_agent(serve, events, make_turn):
    turn = make_turn("look")
    pdf = Part.of_bytes(b"%PDF", media_type="application/pdf", filename="a\nb.pdf")
    link = Part.of_url("https://example.com/x.png", media_type="image/png")
    message = msgspec.structs.replace(turn.message, parts=(Part(text="look"), pdf, link))
    told = await events(serve(), msgspec.structs.replace(turn, message=message))
    notes = [one.text for one in told if isinstance(one, Note)]
    assert [note.partition(":")[0] for note in notes] == [
        "The file in part 2 (a b.pdf) was not given to the agent",
        "The file in part 3 was not given to the agent",
    ]
    (reply,) = [one for one in told if isinstance(one, Reply)]
    assert all(note in reply.parts[0].text for note in notes)


async def test_message_too_long_for_an_argument_is_passed_in_a_file(
    openclaw, serve, text, make_turn
):
    assert await text(serve(), make_turn("x" * 1_000_000)) == "read 1000000"
    path = openclaw.starts()[0][openclaw.starts()[0].index("--message-file") + 1]
    assert not await anyio.Path(path).exists()


async def test_a_message_that_cannot_be_written_to_its_file_leaves_no_file(
    openclaw, serve, text, make_turn, monkeypatch
):
    folder = openclaw.folder / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    agent, (soft, hard) = serve(), resource.getrlimit(resource.RLIMIT_FSIZE)
    # Stands for a full disk: the first part of the message is written, the rest is refused.
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            await text(agent, make_turn("x" * 1_000_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(folder.iterdir()) == []


async def test_working_directory_and_variables_are_the_commands(openclaw, serve, text, make_turn):
    folder = openclaw.folder / "work"
    folder.mkdir()
    await text(serve(working_directory=str(folder)), make_turn())
    assert openclaw.log()[0]["cwd"] == str(folder)


# ---------------------------------------------------------------- bad days


async def test_missing_program_is_unavailable_with_a_next_step(serve, text, make_turn):
    with pytest.raises(AgentUnavailable, match=r"/nowhere/openclaw .* was not found; install"):
        await text(serve(openclaw_path="/nowhere/openclaw"), make_turn())


async def test_missing_program_is_known_before_the_first_turn(serve):
    assert serve().unavailable_reason() is None
    assert "install OpenClaw" in serve(openclaw_path="/nowhere/openclaw").unavailable_reason()


async def test_program_that_may_not_be_run_is_unavailable(openclaw, serve, text, make_turn):
    openclaw.program.chmod(0o644)
    with pytest.raises(AgentUnavailable, match="may not be run"):
        await text(serve(), make_turn())


async def test_missing_working_directory_is_unavailable(serve, text, make_turn):
    with pytest.raises(AgentUnavailable, match="/nowhere"):
        await text(serve(working_directory="/nowhere"), make_turn())


async def test_program_of_the_wrong_version_fails_with_its_message(
    openclaw, serve, text, make_turn
):
    openclaw.writes(
        b"", errors=b"openclaw: Node.js v24.16+ is required (current: v20)", exit_code=1
    )
    with pytest.raises(AgentFailed, match=r"exit code 1: openclaw: Node.js v24.16\+ is required"):
        await text(serve(), make_turn())


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (b"", "without any output"),
        (b'{"payloads": [{"text": "hi", "mediaUrl": null}], "meta": {"dur', "could not be read"),
        (b"\xff\xfe\x00\x01" * 100, "could not be read"),
        (b'{"ok": false, "error": {"message": "Unknown agent id \\"x\\"."}}', "Unknown agent id"),
    ],
)
async def test_output_without_an_answer_is_a_clear_failure(
    openclaw, serve, text, make_turn, output, reason
):
    openclaw.writes(output)
    with pytest.raises(AgentFailed, match=reason):
        await text(serve(), make_turn())


async def test_fifty_megabytes_are_read(openclaw, serve, text, make_turn):
    long = "x" * 50_000_000
    openclaw.writes(b"noise {\n" + json.dumps({"payloads": [{"text": long}]}).encode())
    assert await text(serve(), make_turn()) == long


async def test_output_over_the_limit_ends_the_run(openclaw, serve, text, make_turn):
    openclaw.writes(b"x" * 2_000_000)
    with pytest.raises(AgentFailed, match="more than 1000000 bytes"):
        await text(serve(max_output_bytes=1_000_000), make_turn())
    openclaw.assert_nothing_runs()


async def test_answer_on_the_error_stream_is_found(openclaw, serve, text, make_turn):
    document = {"payloads": [{"text": "here"}], "meta": {"report": "x" * 100_000}}
    openclaw.writes(b"", errors=b"log {\n" + json.dumps(document).encode())
    assert await text(serve(), make_turn()) == "here"


async def test_answer_without_output_is_no_reply(openclaw, serve, events, make_turn):
    openclaw.writes(b'{"payloads": [], "meta": {"durationMs": 3}}')
    assert await events(serve(), make_turn()) == [Report({"openclaw": {"durationMs": 3}})]


# ---------------------------------------------------------------- ending


async def test_timeout_ends_the_command_and_its_child(openclaw, serve, text, make_turn):
    with pytest.raises(AgentFailed, match="within 20 seconds"):
        await text(serve(timeout=20), make_turn("hang"))
    assert len(openclaw.pids()) == 2
    openclaw.assert_nothing_runs()


async def test_cancel_ends_the_command_and_its_child_and_frees_the_directory(
    openclaw, serve, text, make_turn
):
    agent = serve()
    async with anyio.create_task_group() as group:
        group.start_soon(text, agent, make_turn("hang"))
        await openclaw.working()
        group.cancel_scope.cancel()
    openclaw.assert_nothing_runs()
    assert await text(agent, make_turn("again")) == "echo: again"
    assert len(openclaw.starts()) == 2


async def test_cancel_during_start_up_leaves_nothing(openclaw, serve, text, make_turn, wait_until):
    async with anyio.create_task_group() as group:
        group.start_soon(text, serve(), make_turn("hang"))
        await wait_until(openclaw.starts)
        group.cancel_scope.cancel()
    openclaw.assert_nothing_runs()


async def test_child_of_a_killed_launcher_is_ended(openclaw, serve, text, make_turn, wait_until):
    failures = []

    async def ask() -> None:
        with pytest.raises(AgentFailed) as caught:
            await text(serve(), make_turn("hang"))
        failures.append(caught.value.message)

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await openclaw.working()
        os.kill(openclaw.pids()[0], signal.SIGKILL)
    assert failures == ["OpenClaw was ended by signal SIGKILL and gave no reason."]
    openclaw.assert_nothing_runs()


async def test_close_ends_every_run(openclaw, serve, text, make_turn):
    agent = serve()
    async with anyio.create_task_group() as group:
        group.start_soon(_swallow, text, agent, make_turn("hang"))
        await openclaw.working()
        await agent.close()
        await agent.close()
    openclaw.assert_nothing_runs()


async def _swallow(text, agent, turn) -> None:
    with pytest.raises(AgentFailed):
        await text(agent, turn)


GATEWAY = """
import sys
import anyio
from openclaw_a2a.agents.openclaw_cli.command import CliRequest, CliSession
from openclaw_a2a.agents.openclaw_cli.command import OpenClawCliOptions
from openclaw_a2a.agents.openclaw_cli.agent import OpenClawRunner

async def main():
    runner = OpenClawRunner(OpenClawCliOptions(openclaw_path=sys.argv[1]))
    async for _ in runner.run(CliRequest("hang", CliSession(id="s"), run_id="run-1")):
        pass

anyio.run(main)
"""


async def test_orphans_of_a_killed_gateway_are_ended(openclaw, serve):
    agent = serve()
    assert agent.recovery is Recovery.FAIL
    assert isinstance(agent, SupportsOrphanCleanup)
    arguments = [sys.executable, "-c", GATEWAY, str(openclaw.program)]
    gateway = await anyio.open_process(arguments, env={**os.environ, **openclaw.variables})
    async with gateway:
        await openclaw.working()
        gateway.kill()
    await agent.end_orphans(RunId("another"))
    assert openclaw.count_alive() == 2
    await agent.end_orphans(RunId("run-1"))
    openclaw.assert_nothing_runs()


# ---------------------------------------------------------------- one state directory


async def test_runs_on_one_state_directory_are_queued(openclaw, serve, text, make_turn):
    agents = [serve() for _ in range(4)]
    answers: dict[str, str] = {}

    async def ask(number: int) -> None:
        answers[str(number)] = await text(
            agents[number], make_turn(f"{number}", context=f"{number}")
        )

    async with anyio.create_task_group() as group:
        for number in range(4):
            group.start_soon(ask, number)
    assert answers == {str(number): f"echo: {number}" for number in range(4)}


async def test_exclusive_openclaw_is_never_run_in_parallel(
    openclaw, serve, text, make_turn, wait_until
):
    install(openclaw, "2026.9.6")
    agent, gate = serve(), openclaw.gate()
    async with anyio.create_task_group() as group:
        group.start_soon(text, agent, make_turn(f"gate:{gate}", context="a"))
        await openclaw.working()
        for name in ("b", "c", "d"):
            group.start_soon(text, agent, make_turn(name, context=name))
            await anyio.wait_all_tasks_blocked()
        assert len(openclaw.starts()) == 1
        await anyio.to_thread.run_sync(gate.write_text, "done")
    asked = [arguments[arguments.index("--message") + 1] for arguments in openclaw.starts()]
    assert asked == [f"gate:{gate}", "b", "c", "d"]


async def test_old_openclaw_runs_sessions_in_parallel(openclaw, serve, text, make_turn):
    install(openclaw, "2026.3.2")
    openclaw.variables["FAKE_PARALLEL"] = "1"
    await assert_side_by_side(openclaw, serve(), text, make_turn, count=3)


async def test_unknown_openclaw_that_allows_it_runs_sessions_in_parallel(
    openclaw, serve, text, make_turn
):
    openclaw.variables["FAKE_PARALLEL"] = "1"
    await assert_side_by_side(openclaw, serve(), text, make_turn, count=2)


async def assert_side_by_side(openclaw, agent, text, make_turn, *, count) -> None:
    gates = [openclaw.gate(f"gate-{number}") for number in range(count)]
    async with anyio.create_task_group() as group:
        for number, gate in enumerate(gates):
            group.start_soon(text, agent, make_turn(f"gate:{gate}", context=f"{number}"))
        await openclaw.working(count)
        for gate in gates:
            await anyio.to_thread.run_sync(gate.write_text, "done")


def install(openclaw, version: str) -> None:
    """Let the program look like the one of an installed package."""
    package = openclaw.program.parent / "package.json"
    package.write_text(json.dumps({"name": "openclaw", "version": version}))


async def test_cancel_while_queued_starts_nothing(openclaw, serve, text, make_turn):
    install(openclaw, "2026.9.6")
    agent, gate = serve(), openclaw.gate()
    async with anyio.create_task_group() as group:
        group.start_soon(text, agent, make_turn(f"gate:{gate}", context="a"))
        await openclaw.working()
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(text, agent, make_turn("never", context="b"))
            await anyio.wait_all_tasks_blocked()
            waiting.cancel_scope.cancel()
        group.start_soon(text, agent, make_turn("next", context="c"))
        await anyio.to_thread.run_sync(gate.write_text, "done")
    assert len(openclaw.starts()) == 2


async def test_time_in_the_queue_does_not_count(openclaw, serve, text, make_turn):
    install(openclaw, "2026.9.6")
    gate, patient, hasty = openclaw.gate(), serve(), serve(timeout=20.0)
    answers = []

    async def ask() -> None:
        answers.append(await text(hasty, make_turn("hello", context="b")))

    async with anyio.create_task_group() as group:
        group.start_soon(text, patient, make_turn(f"gate:{gate}", context="a"))
        await openclaw.working()
        group.start_soon(ask)
        await anyio.sleep(20.1)  # longer than the one in line may run
        await anyio.to_thread.run_sync(gate.write_text, "done")
    assert answers == ["echo: hello"]


async def test_directory_held_by_another_program_is_waited_for_with_a_note(
    openclaw, serve, events, make_turn
):
    other = await hold_directory(openclaw)
    seen = []
    async for event in serve().run(make_turn("hello")):
        seen.append(event)
        if isinstance(event, Note):
            other.close()
    assert [type(event) for event in seen] == [Note, Report, Reply]
    assert "Another program uses OpenClaw's state directory" in seen[0].text


async def test_directory_that_stays_held_times_out(openclaw, serve, text, make_turn):
    other = await hold_directory(openclaw)
    with other, pytest.raises(AgentFailed, match="within 2 seconds"):
        await text(serve(timeout=2.0), make_turn("hello"))
    openclaw.assert_nothing_runs()


async def hold_directory(openclaw):
    import fcntl

    lock = (openclaw.state / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


# ---------------------------------------------------------------- a gateway beside it


def gateway_of(openclaw):
    """The file that tells that a gateway holds the state directory."""
    return openclaw.state / "gateway"


async def test_running_gateway_is_used_when_allowed(openclaw, serve, events, make_turn):
    gateway_of(openclaw).touch()
    agent = serve()
    first = await events(agent, make_turn("one"))
    assert [type(event) for event in first] == [Note, Report, Reply]
    assert [type(event) for event in await events(agent, make_turn("two"))] == [Report, Reply]
    assert ["--local" in arguments for arguments in openclaw.starts()] == [True, False, False]


async def test_gateway_that_stopped_is_not_used_any_more(openclaw, serve, text, make_turn):
    gateway_of(openclaw).touch()
    agent = serve()
    await text(agent, make_turn("one"))
    gateway_of(openclaw).unlink()
    assert await text(agent, make_turn("two")) == "echo: two"
    modes = ["--local" in arguments for arguments in openclaw.starts()]
    assert modes == [True, False, False, True]


async def test_gateway_that_holds_the_directory_and_is_unreachable_is_an_error(
    openclaw, serve, text, make_turn
):
    gateway_of(openclaw).write_text("out of reach")
    with pytest.raises(AgentFailed, match="gateway is running on this state directory"):
        await text(serve(), make_turn())
    assert len(openclaw.starts()) == 3


async def test_running_gateway_is_an_error_when_it_may_not_be_used(
    openclaw, serve, text, make_turn
):
    gateway_of(openclaw).touch()
    with pytest.raises(AgentFailed, match=r"set gatewayMode to true .* or stop it"):
        await text(serve(gateway_mode=False), make_turn())


async def test_missing_gateway_is_an_error_when_only_it_may_be_used(
    openclaw, serve, text, make_turn
):
    with pytest.raises(AgentFailed, match="Gateway not reachable"):
        await text(serve(gateway_mode=True), make_turn())
    assert "--local" not in openclaw.starts()[0]


# ---------------------------------------------------------------- settings


async def test_settings_make_this_agent(openclaw, text, make_turn):
    options = {"openclawPath": str(openclaw.program), "agentId": "main", "env": openclaw.variables}
    agent = build_agent("openclaw", options, environment=None)
    assert isinstance(agent, OpenClawCliAgent)
    assert await text(agent, make_turn("hi")) == "echo: hi"


def test_wrong_options_are_all_reported():
    options = {"thinking": "hard", "timeout": 0, "agentID": "x", "gatewayMode": "sometimes"}
    with pytest.raises(SettingsInvalid) as caught:
        build_agent("openclaw", options, environment=None, path="agents.main")
    paths = {problem.path for problem in caught.value.problems}
    assert {"agents.main.thinking", "agents.main.timeout", "agents.main.agentID"} <= paths
