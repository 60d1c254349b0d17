"""`RemoteAgents`: scripts find remote agents, send them work and go on with it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from anyio import fail_after

from openclaw_a2a import RemoteAgentFailed, RemoteAgents
from openclaw_a2a.model.errors import InvalidRequest, SettingsInvalid

NOBODY = "http://127.0.0.1:1"


def section(url: str, **more: object) -> dict[str, object]:
    return {"targets": [{"alias": "asker", "baseUrl": url, "default": True}], **more}


@pytest.mark.requirement("remote.tool.python")
async def test_a_message_is_sent_to_an_alias_and_answered(asker: str) -> None:
    async with RemoteAgents(section(asker)) as remote:
        result = await remote.send("asker", "count")
    assert (result.ok, result.text) == (True, "one two three")
    assert result.task is not None
    assert (result.task.state, result.task.is_over) == ("completed", True)
    assert result.raw["kind"] == "task"
    assert result.envelope["operation"] == "remote_agent"


async def test_updates_grow_and_the_last_has_the_whole_answer(asker: str) -> None:
    async with RemoteAgents(section(asker)) as remote:
        updates = [update async for update in remote.stream("asker", "count")]
    texts = [update.text for update in updates]
    assert texts[-1] == "one two three"
    assert all(texts[-1].startswith(text) for text in texts)
    assert updates[-1].task is not None
    assert updates[-1].task.is_over


@pytest.mark.parametrize("by", ["result", "continuation", "handle"])
async def test_a_paused_task_is_answered_by_result_handle_or_continuation(
    asker: str, by: str
) -> None:
    async with RemoteAgents(section(asker)) as remote:
        asked = await remote.send(None, "erase")
        assert asked.task is not None
        assert asked.task.is_waiting
        kept = {
            "result": asked,
            "continuation": json.loads(json.dumps(asked.continuation)),
            "handle": asked.task.handle,
        }
        answered = await remote.send(kept[by], "yes")
    assert answered.text == "erase: yes"


async def test_a_continuation_outlives_the_object_that_made_it(asker: str) -> None:
    async with RemoteAgents(section(asker)) as remote:
        asked = await remote.send("asker", "erase")
    async with RemoteAgents(section(asker)) as remote:
        assert (await remote.send(asked.continuation, "yes")).text == "erase: yes"


async def test_an_ended_task_is_continued_in_its_context(asker: str) -> None:
    async with RemoteAgents(section(asker)) as remote:
        first = await remote.send("asker", "count")
        second = await remote.send(first, "count")
    assert first.context_id == second.context_id
    assert first.task != second.task


async def test_handles_in_a_folder_outlive_the_object(asker: str, tmp_path: Path) -> None:
    async with RemoteAgents(section(asker), folder=tmp_path) as remote:
        asked = await remote.send("asker", "erase")
        assert asked.task is not None
    async with RemoteAgents(section(asker), folder=tmp_path) as remote:
        assert [one.task_id for one in remote.handles] == [asked.task.id]
        status = await remote.status(asked.task.handle)
    assert status.task == asked.task
    (tmp_path / "rah_broken.json").write_text("{", encoding="utf-8")
    async with RemoteAgents(section(asker), folder=tmp_path) as remote:
        assert len(remote.handles) == 1


async def test_a_task_is_watched_read_and_canceled(asker: str) -> None:
    with fail_after(240):
        async with RemoteAgents(section(asker)) as remote:
            async for update in remote.stream("asker", "hold"):
                held = update
                if update.text == "holding":
                    break
            assert held.task is not None
            status = await remote.status("asker", task_id=held.task.id)
            assert status.task is not None
            assert status.task.state == "working"
            states: list[str | None] = []
            async for update in remote.watch(held):
                if not states:
                    await remote.cancel(held)
                states.append(update.task.state if update.task else None)
            ended = [one async for one in remote.watch(held)]
    assert (states[0], states[-1]) == ("working", "canceled")
    assert [one.task.state for one in ended if one.task] == ["canceled"]


def test_nothing_is_written_to_the_output_of_a_script(asker: str) -> None:
    script = (
        "import asyncio\n"
        "from openclaw_a2a import RemoteAgents\n"
        "async def main():\n"
        "    async with RemoteAgents({}, may_use_any_url=True, raises=False) as remote:\n"
        f"        print((await remote.send({asker!r}, 'count')).text)\n"
        f"        print((await remote.send({NOBODY!r}, 'count')).code)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("one two three\nA2A_SDK_ERROR\n", "")


async def test_a_failure_is_an_exception_with_code_and_details() -> None:
    async with RemoteAgents(section(NOBODY)) as remote:
        with pytest.raises(RemoteAgentFailed) as caught:
            await remote.send("asker", "x")
        with pytest.raises(RemoteAgentFailed, match="A2A_SDK_ERROR"):
            async for _ in remote.stream("asker", "x"):
                pass
    assert caught.value.code == "A2A_SDK_ERROR"
    assert "capability_diagnostics" in caught.value.details
    assert caught.value.result.ok is False
    assert caught.value.continuation is None


async def test_an_invalid_request_reports_its_problems() -> None:
    async with RemoteAgents(section(NOBODY)) as remote:
        with pytest.raises(RemoteAgentFailed, match=r"target_alias: must be one of .*asker"):
            await remote.send("nobody", "x")


async def test_a_failure_after_some_work_has_a_continuation(asker: str) -> None:
    async with RemoteAgents(section(asker)) as remote:
        with pytest.raises(RemoteAgentFailed, match="timed out") as caught:
            async for _ in remote.stream("asker", "hold", timeout_s=5):
                pass
        assert caught.value.continuation is not None
        assert (await remote.cancel(caught.value.continuation)).ok


async def test_failures_are_results_when_exceptions_are_off() -> None:
    async with RemoteAgents(section(NOBODY), raises=False) as remote:
        result = await remote.send("asker", "x")
        updates = [update async for update in remote.stream("asker", "x")]
    assert (result.ok, result.code, result.text) == (False, "A2A_SDK_ERROR", "")
    assert [update.ok for update in updates] == [False]


async def test_addresses_must_be_allowed(asker: str) -> None:
    async with RemoteAgents({}) as remote:
        with pytest.raises(RemoteAgentFailed) as caught:
            await remote.send(asker, "count")
    assert caught.value.code == "VALIDATION_ERROR"
    async with RemoteAgents({}, may_use_any_url=True) as remote:
        assert (await remote.send(asker, "count")).text == "one two three"


async def test_an_agent_that_cannot_stream_answers_in_one_piece(plain_peer) -> None:
    url, asked = plain_peer
    async with RemoteAgents({}, may_use_any_url=True) as remote:
        updates = [one async for one in remote.stream(url, "x", message_id="mine")]
    assert [one.text for one in updates] == ["received mine"]
    assert asked.count("SendMessage") == 1


async def test_targets_have_the_data_of_their_cards(asker: str) -> None:
    targets = [
        {"alias": "asker", "baseUrl": asker, "default": True, "description": "asks"},
        {"alias": "down", "baseUrl": NOBODY},
    ]
    async with RemoteAgents({"targets": targets}) as remote:
        first, second = await remote.targets()
    assert (first.alias, first.name, first.is_default) == ("asker", "Asker", True)
    assert (first.description, first.skills, first.is_streaming) == ("asks", ("Chat",), True)
    assert first.trouble == ""
    assert second.trouble


async def test_files_and_data_are_sent(asker: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a", encoding="utf-8")
    async with RemoteAgents(section(asker)) as remote:
        result = await remote.send(
            "asker", "look", files=[tmp_path / "a.txt"], data={"b": 2}, metadata={"c": 3}
        )
        kinds = [part["kind"] for part in result.raw["history"][0]["parts"]]
        with pytest.raises(InvalidRequest, match="nowhere"):
            await remote.send("asker", "look", files=["nowhere.txt"])
    assert kinds == ["text", "file", "data"]


@pytest.mark.requirement("remote.tool.python")
async def test_the_tool_can_be_used_directly(asker: str) -> None:
    seen: list[object] = []
    async with RemoteAgents(section(asker)) as remote:
        parts = [{"kind": "text", "text": "count"}]
        request = {"action": "send", "parts": parts, "follow_updates": True}
        envelope = await remote.execute(request, seen.append)
        wrong = await remote.execute({"action": "dance"})
    assert envelope["ok"] is True
    assert len(seen) == len(envelope["raw"]["events"])
    assert wrong["error"]["code"] == "VALIDATION_ERROR"


def test_the_section_may_come_from_a_settings_file(tmp_path: Path, monkeypatch, asker: str) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "openclaw-a2a.json5"
    file.write_text(json.dumps({"outbound": section(asker)}), encoding="utf-8")
    for source in (None, file, str(file)):
        assert RemoteAgents(source).config.aliases == ("asker",)


@pytest.mark.parametrize(
    "wrong",
    [
        {"targets": {}},
        {"targets": [{"alias": "a"}]},
        {"targets": [{"alias": "a", "baseUrl": "x"}] * 2},
    ],
)
def test_an_invalid_section_fails_at_construction(wrong) -> None:
    with pytest.raises(SettingsInvalid, match="outbound"):
        RemoteAgents(wrong)


async def test_it_must_be_entered_before_use() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await RemoteAgents({}).execute({"action": "list_targets"})
