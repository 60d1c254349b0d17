"""`send` against a running gateway."""

import io
import subprocess
from pathlib import Path

import pytest


def test_the_answer_is_on_standard_output_and_the_states_beside_it(echo) -> None:
    shown = echo("send", "hello", "there")
    assert (shown.code, shown.out) == (0, "echo: hello there\n")
    states = [line for line in shown.err.splitlines() if not line.startswith("task ")]
    assert states == ["submitted", "working", "completed"]


def test_without_a_stream_the_answer_is_the_same(echo) -> None:
    assert echo("send", "--no-stream", "hello").out == "echo: hello\n"


def test_a_direct_answer_is_shown_without_any_task(command, shared_gateway: str) -> None:
    address = f"{shared_gateway}/agents/direct"
    shown = command("send", "hello", "--url", address)
    assert (shown.code, shown.out, shown.err) == (0, "echo: hello\n", "")
    assert command("send", "--no-stream", "hello", "--url", address).out == "echo: hello\n"


def test_text_may_come_from_standard_input(echo, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe\n"))
    assert echo("send", "-").out == "echo: from a pipe\n"


def test_json_is_one_event_per_line(echo) -> None:
    shown = echo("send", "--json", "hello")
    first, *_, last = shown.lines
    assert first["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert shown.err == ""
    (whole,) = echo("send", "--json", "--no-stream", "hello").lines
    assert whole["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_a_context_is_continued(echo) -> None:
    (first,) = echo("send", "--json", "--no-stream", "--context", "my-context", "a").lines
    (second,) = echo("send", "--json", "--no-stream", "--context", "my-context", "b").lines
    assert first["task"]["contextId"] == second["task"]["contextId"] == "my-context"
    assert first["task"]["id"] != second["task"]["id"]


def test_files_go_along(echo, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}', encoding="utf-8")
    (tmp_path / "b.txt").write_text("b", encoding="utf-8")
    shown = echo("send", "--json", "--file", "a.json", "--file", "b.txt", "look")
    parts = shown.lines[0]["task"]["history"][0]["parts"]
    assert [part.get("filename") for part in parts] == [None, "a.json", "b.txt"]
    assert [part.get("mediaType") for part in parts] == [None, "application/json", "text/plain"]


def test_a_file_that_is_not_there_is_told_before_anything_is_sent(echo) -> None:
    shown = echo("send", "--file", "nowhere.txt", "look")
    assert shown.code == 2
    assert shown.err.startswith("error file-unreadable: ")
    assert "nowhere.txt" in shown.err


def test_a_file_the_agent_does_not_take_is_its_own_error(echo, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    shown = echo("send", "--file", "a.png", "look")
    assert shown.code == 1
    assert "image/png" in shown.err


def test_a_task_that_fails_is_an_exit_code(command, shared_gateway: str) -> None:
    for more in ([], ["--no-stream"], ["--json"]):
        shown = command("send", "x", *more, "--url", f"{shared_gateway}/agents/fails")
        assert shown.code == 1
    assert "failed" in command("send", "x", "--url", f"{shared_gateway}/agents/fails").err


def test_nothing_to_send_is_wrong_usage(echo) -> None:
    shown = echo("send")
    assert shown.code == 2
    assert 'openclaw-a2a send "hello"' in shown.err


def test_an_ended_task_takes_no_more_messages(echo) -> None:
    (first,) = echo("send", "--json", "--no-stream", "a").lines
    shown = echo("send", "--task", first["task"]["id"], "b")
    assert shown.code == 1
    assert shown.err.startswith("error task-terminal: ")


def test_the_card_may_be_the_address(command, shared_gateway: str) -> None:
    card = f"{shared_gateway}/.well-known/agent-card.json"
    assert command("send", "x", "--url", card).out == "echo: x\n"
    assert command("send", "x", "--url", shared_gateway.removeprefix("http://")).code == 0


def test_environment_and_settings_name_the_gateway(
    command, shared_gateway: str, monkeypatch, tmp_path: Path
) -> None:
    port = shared_gateway.rpartition(":")[2]
    # A token that only the gateway has must not keep a command from finding it.
    peers = '{ a: { tokens: ["env:NOT_SET_HERE"] } }'
    channels = f"{{ a2a: {{ security: {{ peers: {peers} }} }} }}"
    settings = f"{{ server: {{ port: {port} }}, channels: {channels} }}"
    (tmp_path / "openclaw-a2a.json5").write_text(settings, encoding="utf-8")
    assert command("send", "x").out == "echo: x\n"
    monkeypatch.setenv("OPENCLAW_A2A_URL", "http://127.0.0.1:1")
    assert command("send", "x").code == 3


def test_when_nothing_answers_the_error_says_where_and_what_to_do(command) -> None:
    shown = command("send", "x", "--url", "http://127.0.0.1:1")
    assert (shown.code, shown.out) == (3, "")
    assert shown.err.startswith("error gateway-unreachable: nothing answers at http://127.0.0.1:1")
    assert "openclaw-a2a up" in shown.err
    assert "Errno" not in shown.err


def test_another_machine_is_not_started_from_here(command) -> None:
    shown = command("send", "x", "--url", "http://nowhere.invalid")
    assert shown.code == 3
    assert "openclaw-a2a up" not in shown.err


@pytest.mark.parametrize("address", ["ftp://x", "http://", "http://[", "http://a b"])
def test_an_address_that_is_none_is_told(command, address: str) -> None:
    shown = command("send", "x", "--url", address)
    assert shown.code == 2
    assert shown.err.startswith("error usage: ")


def test_something_else_at_the_address_is_told(command, shared_gateway: str) -> None:
    shown = command("send", "x", "--url", f"{shared_gateway}/nowhere")
    assert shown.code == 1
    assert shown.err.startswith("error card-not-found: ")
    assert "HTTP 404" in shown.err


def test_a_token_opens_a_gateway_that_asks_for_one(start_gateway, command, monkeypatch) -> None:
    token = "a-token-for-the-tests-of-commands"
    peers = {"alice": {"tokens": ["env:ALICE"]}}
    settings = {"channels": {"a2a": {"security": {"peers": peers}}}}
    gateway = start_gateway(settings, env={"ALICE": token})
    refused = command("send", "x", "--url", gateway.url)
    assert refused.code == 1
    assert refused.err.startswith("error unauthenticated: ")
    assert "--token" in refused.err
    assert command("send", "x", "--url", gateway.url, "--token", token).out == "echo: x\n"
    monkeypatch.setenv("OPENCLAW_A2A_TOKEN", token)
    assert command("tasks", "list", "--json", "--url", gateway.url).json["totalSize"] == 1
    assert "token    needed" in command("card", gateway.url).out


def test_a_reader_that_has_enough_is_no_failure_to_talk_about(program, shared_gateway: str) -> None:
    pipeline = subprocess.Popen(
        [*program, "card", "--json", shared_gateway], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert pipeline.stdout is not None
    pipeline.stdout.close()
    assert pipeline.stderr is not None
    assert pipeline.stderr.read() == b""
    pipeline.stderr.close()
    pipeline.wait(20)
