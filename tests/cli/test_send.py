"""`send` against a running gateway."""

import io
import subprocess
from pathlib import Path

import pytest


def test_answer_goes_to_standard_output_and_states_to_standard_error(echo) -> None:
    shown = echo("send", "hello", "there")
    assert (shown.code, shown.out) == (0, "echo: hello there\n")
    states = [line for line in shown.err.splitlines() if not line.startswith("task ")]
    assert states == ["submitted", "working", "completed"]


def test_no_stream_prints_the_same_answer(echo) -> None:
    assert echo("send", "--no-stream", "hello").out == "echo: hello\n"


def test_direct_answer_is_shown_without_a_task(command, shared_gateway: str) -> None:
    address = f"{shared_gateway}/agents/direct"
    shown = command("send", "hello", "--url", address)
    assert (shown.code, shown.out, shown.err) == (0, "echo: hello\n", "")
    assert command("send", "--no-stream", "hello", "--url", address).out == "echo: hello\n"


def test_text_is_read_from_standard_input(echo, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe\n"))
    assert echo("send", "-").out == "echo: from a pipe\n"


def test_send_with_json_prints_one_event_per_line(echo) -> None:
    shown = echo("send", "--json", "hello")
    first, *_, last = shown.lines
    assert first["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert shown.err == ""
    (whole,) = echo("send", "--json", "--no-stream", "hello").lines
    assert whole["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_send_continues_a_context(echo) -> None:
    (first,) = echo("send", "--json", "--no-stream", "--context", "my-context", "a").lines
    (second,) = echo("send", "--json", "--no-stream", "--context", "my-context", "b").lines
    assert first["task"]["contextId"] == second["task"]["contextId"] == "my-context"
    assert first["task"]["id"] != second["task"]["id"]


def test_files_are_sent_with_the_message(echo, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}', encoding="utf-8")
    (tmp_path / "b.txt").write_text("b", encoding="utf-8")
    shown = echo("send", "--json", "--file", "a.json", "--file", "b.txt", "look")
    parts = shown.lines[0]["task"]["history"][0]["parts"]
    assert [part.get("filename") for part in parts] == [None, "a.json", "b.txt"]
    assert [part.get("mediaType") for part in parts] == [None, "application/json", "text/plain"]


def test_missing_file_is_reported_before_anything_is_sent(echo) -> None:
    shown = echo("send", "--file", "nowhere.txt", "look")
    assert shown.code == 2
    assert shown.err.startswith("error file-unreadable: ")
    assert "nowhere.txt" in shown.err


def test_file_type_not_accepted_by_the_agent_has_its_own_error_code(echo, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    shown = echo("send", "--file", "a.png", "look")
    assert shown.code == 1
    assert "image/png" in shown.err


def test_failed_task_exits_with_1(command, shared_gateway: str) -> None:
    for more in ([], ["--no-stream"], ["--json"]):
        shown = command("send", "x", *more, "--url", f"{shared_gateway}/agents/fails")
        assert shown.code == 1
    assert "failed" in command("send", "x", "--url", f"{shared_gateway}/agents/fails").err


def test_a_file_of_a_type_that_is_not_accepted_names_the_setting(echo, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# Hi", encoding="utf-8")
    shown = echo("send", "--file", "README.md", "look")
    assert shown.code != 0
    assert "text/markdown" in shown.err
    assert "defaultInputModes" in shown.err


def test_empty_message_is_a_usage_error(echo) -> None:
    shown = echo("send")
    assert shown.code == 2
    assert 'openclaw-a2a send "hello"' in shown.err


def test_finished_task_accepts_no_messages(echo) -> None:
    (first,) = echo("send", "--json", "--no-stream", "a").lines
    shown = echo("send", "--task", first["task"]["id"], "b")
    assert shown.code == 1
    assert shown.err.startswith("error task-terminal: ")


def test_card_address_is_accepted_as_url(command, shared_gateway: str) -> None:
    card = f"{shared_gateway}/.well-known/agent-card.json"
    assert command("send", "x", "--url", card).out == "echo: x\n"
    assert command("send", "x", "--url", shared_gateway.removeprefix("http://")).code == 0


def test_gateway_address_comes_from_environment_or_settings(
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


def test_unreachable_gateway_error_names_address_and_next_step(command) -> None:
    shown = command("send", "x", "--url", "http://127.0.0.1:1")
    assert (shown.code, shown.out) == (3, "")
    assert shown.err.startswith("error gateway-unreachable: nothing answers at http://127.0.0.1:1")
    assert "openclaw-a2a up" in shown.err
    assert "Errno" not in shown.err


def test_unreachable_remote_host_gets_no_start_hint(command) -> None:
    shown = command("send", "x", "--url", "http://nowhere.invalid")
    assert shown.code == 3
    assert "openclaw-a2a up" not in shown.err


@pytest.mark.parametrize("address", ["ftp://x", "http://", "http://[", "http://a b"])
def test_invalid_address_is_a_usage_error(command, address: str) -> None:
    shown = command("send", "x", "--url", address)
    assert shown.code == 2
    assert shown.err.startswith("error usage: ")


def test_server_without_an_agent_card_is_reported(command, shared_gateway: str) -> None:
    shown = command("send", "x", "--url", f"{shared_gateway}/nowhere")
    assert shown.code == 1
    assert shown.err.startswith("error card-not-found: ")
    assert "HTTP 404" in shown.err


def test_token_authenticates_against_a_protected_gateway(
    start_gateway, command, monkeypatch
) -> None:
    token = "a-token-for-the-tests-of-commands"
    peers = {"alice": {"tokens": ["env:ALICE"]}}
    settings = {"channels": {"a2a": {"security": {"peers": peers}}}}
    gateway = start_gateway(settings, env={"ALICE": token})
    refused = command("send", "x", "--url", gateway.url)
    assert refused.code == 1
    assert refused.err.startswith("error unauthenticated: ")
    assert "--token" in refused.err
    assert "--all" not in refused.err
    for words in (["list"], ["show", "t"], ["cancel", "t"]):
        assert "--all" in command("tasks", *words, "--url", gateway.url).err
    assert command("send", "x", "--url", gateway.url, "--token", token).out == "echo: x\n"
    monkeypatch.setenv("OPENCLAW_A2A_TOKEN", token)
    assert command("tasks", "list", "--json", "--url", gateway.url).json["totalSize"] == 1
    assert "token    needed" in command("card", gateway.url).out


def test_closed_output_pipe_prints_no_error(program, shared_gateway: str) -> None:
    pipeline = subprocess.Popen(
        [*program, "card", "--json", shared_gateway], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert pipeline.stdout is not None
    pipeline.stdout.close()
    assert pipeline.stderr is not None
    assert pipeline.stderr.read() == b""
    pipeline.stderr.close()
    pipeline.wait(240)
