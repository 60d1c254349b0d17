"""`OpenClawAgentAdapter`: arguments, synchronous mode, and tasks."""

import os
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from a2a.compat.v0_3 import types as old_sdk
from a2a.types import Message as NewMessage
from a2a.types import Part as NewPart
from a2a.types import Role as NewRole
from a2a.types import SendMessageRequest
from tests.agents.openclaw_cli import closing_adapter
from tests.agents.openclaw_cli.closing_adapter import MOMENTS

from openclaw_a2a.agents.adapter import AgentAdapter
from openclaw_a2a.library.openclaw_adapter import OpenClawAgentAdapter
from openclaw_a2a.model.errors import InvalidParams
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.store import MemoryStore
from openclaw_a2a.store.sqlite.store import SqliteStore

DONE = (TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED)


@pytest.fixture
async def adapt(openclaw):
    """Makes adapters on the fake command; all are closed at the end."""
    made = []

    def build(**options) -> OpenClawAgentAdapter:
        env = {**openclaw.variables, **options.pop("env_vars", {})}
        path = options.pop("openclaw_path", str(openclaw.program))
        adapter = OpenClawAgentAdapter(openclaw_path=path, env_vars=env, **options)
        made.append(adapter)
        return adapter

    yield build
    for adapter in made:
        await adapter.close()


def message_params(text: str, **members) -> dict:
    """Params in the shape of 0.3."""
    message = {"role": "user", "parts": [{"kind": "text", "text": text}], "messageId": text}
    return {"message": {**message, **members}}


async def ended(adapter, task_id):
    """The task, once it has ended."""
    with anyio.fail_after(240):
        while True:
            task = await adapter.get_task(task_id)
            if task is None or task.status.state in DONE:
                return task
            await anyio.sleep(0.01)  # that is what a polling client does


async def finished(adapter, params):
    return await ended(adapter, (await adapter.handle(params)).id)


# ---------------------------------------------------------------- arguments


@pytest.mark.requirement("openclaw.command.defaults")
async def test_arguments_have_the_documented_defaults():
    adapter = OpenClawAgentAdapter()
    assert isinstance(adapter, AgentAdapter)
    assert adapter.session_id.startswith("a2a-")
    assert len(adapter.session_id) == len("a2a-") + 12
    assert adapter.session_id != OpenClawAgentAdapter().session_id
    assert adapter.supports_async_tasks() is adapter.supports_push_notifications() is True
    assert adapter.supports_streaming() is False
    assert OpenClawAgentAdapter(async_mode=False).supports_async_tasks() is False


@pytest.mark.parametrize("level", ["off", "minimal", "low", "medium", "high", "xhigh"])
async def test_every_level_of_thinking_is_taken(level):
    adapter = OpenClawAgentAdapter(thinking=level)
    assert adapter.thinking == level
    assert (await adapter.to_framework(message_params("x")))["thinking"] == level


def test_documented_arguments_are_taken_by_position_and_can_be_read(tmp_path):
    store = MemoryStore()
    adapter = OpenClawAgentAdapter(
        "demo", "main", "high", 20, "claw", tmp_path, {"A": "1"}, True, store, None, 60
    )
    assert (adapter.session_id, adapter.agent_id) == ("demo", "main")
    assert (adapter.thinking, adapter.timeout, adapter.openclaw_path) == ("high", 20, "claw")
    assert (adapter.working_directory, adapter.env_vars) == (str(tmp_path), {"A": "1"})
    assert adapter.async_mode
    defaults = OpenClawAgentAdapter()
    assert (defaults.thinking, defaults.timeout) == ("low", 300)
    assert (defaults.openclaw_path, defaults.env_vars) == ("openclaw", {})


def test_name_and_description_stand_on_the_card():
    metadata = OpenClawAgentAdapter(name="Claw", description="Digs.").get_metadata()
    assert (metadata.name, metadata.description) == ("Claw", "Digs.")
    assert OpenClawAgentAdapter(agent_id="main").get_metadata().name == "OpenClaw main"


@pytest.mark.requirement("openclaw.command.thinking")
def test_unknown_level_of_thinking_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="off, minimal, low, medium, high, xhigh"):
        OpenClawAgentAdapter(thinking="hard")


@pytest.mark.parametrize("wrong", [{"timeout": 0}, {"cleanup_interval_seconds": -1}])
def test_invalid_times_are_refused(wrong):
    with pytest.raises(ValueError, match="> 0"):
        OpenClawAgentAdapter(**wrong)


def test_unknown_argument_is_refused():
    with pytest.raises(TypeError, match="'thinkng'"):
        OpenClawAgentAdapter(thinkng="low")


# ---------------------------------------------------------------- the synchronous way


@pytest.mark.requirement("openclaw.command.sync")
async def test_synchronous_answer_is_a_message_in_the_callers_context(openclaw, adapt):
    adapter = adapt(async_mode=False, agent_id="main", thinking="high")
    answer = await adapter.handle(message_params(" hello ", contextId="team:7/chat:9"))
    assert isinstance(answer, Message)
    assert (answer.role, answer.text) == (Role.AGENT, "echo: hello")
    assert answer.context_id == "team:7/chat:9"
    assert answer.parts[0].root is answer.parts[0]
    assert openclaw.starts() == [
        [
            *("agent", "--local", "--message", "hello", "--json"),
            *("--session-id", "a2a-team-7-chat-9", "--thinking", "high", "--agent", "main"),
        ]
    ]


async def test_three_steps_are_what_handle_does(adapt):
    adapter = adapt(async_mode=False, session_id="mine")
    params = message_params("hello")
    wanted = await adapter.to_framework(params)
    assert wanted == {
        "message": "hello",
        "session_id": "mine",
        "agent_id": None,
        "thinking": "low",
    }
    output = await adapter.call_framework(wanted, params)
    assert output["payloads"] == [{"text": "echo: hello", "mediaUrl": None}]
    assert (await adapter.from_framework(output, params)).text == "echo: hello"
    assert adapter._context_id_to_session_id("My_Ctx_1") == "a2a-my_ctx_1"
    assert adapter._context_id_to_session_id("!!!") == "mine"


async def test_invoke_answers_with_parts(openclaw, adapt):
    openclaw.writes(b'{"payloads": [{"text": "see", "mediaUrl": "https://x/a.png"}]}')
    assert await adapt(async_mode=False).invoke("hi", "c") == [
        Part(text="see"),
        Part(url="https://x/a.png", media_type="image/png"),
    ]


@pytest.mark.requirement("openclaw.command.sync-missing")
async def test_missing_program_is_a_file_not_found(adapt):
    adapter = adapt(async_mode=False, openclaw_path="/nowhere/openclaw")
    with pytest.raises(FileNotFoundError, match="/nowhere/openclaw"):
        await adapter.handle(message_params("hi"))


@pytest.mark.requirement("openclaw.command.sync-timeout")
async def test_timeout_ends_the_processes_and_raises(openclaw, adapt):
    adapter = adapt(async_mode=False, timeout=1.5)
    with pytest.raises(TimeoutError, match=r"1\.5 seconds") as caught:
        await adapter.handle(message_params("hang"))
    assert isinstance(caught.value, RuntimeError)
    openclaw.assert_nothing_runs()


@pytest.mark.parametrize(
    ("output", "exit_code"), [(b'{"error": "no way"}', 0), (b'{"ok":false,"error":"no way"}', 1)]
)
async def test_failure_raises_with_openclaws_message(openclaw, adapt, output, exit_code):
    openclaw.writes(output, exit_code=exit_code)
    with pytest.raises(RuntimeError, match="no way"):
        await adapt(async_mode=False).handle(message_params("hi"))


async def test_answer_without_output_is_its_remark(openclaw, adapt):
    openclaw.writes(b'{"payloads": [], "meta": {"stopReason": "max_tokens"}}')
    assert (await adapt(async_mode=False).handle(message_params("hi"))).text == "max_tokens"


@pytest.mark.requirement("openclaw.command.no-tasks")
async def test_there_are_no_tasks_without_async_mode(adapt):
    adapter = adapt(async_mode=False)
    for call in (
        adapter.get_task("t"),
        adapter.cancel_task("t"),
        adapter.delete_task("t"),
        adapter.set_push_notification_config("t", {"url": "http://x"}),
        adapter.get_push_notification_config("t"),
        adapter.delete_push_notification_config("t"),
    ):
        with pytest.raises(RuntimeError, match="async_mode=False"):
            await call


# ---------------------------------------------------------------- every shape of params


SHAPES = {
    "message": Message("m", Role.USER, (Part(text=" a "), Part(text="b")), "c"),
    "0.3": {
        "message": {
            "role": "user",
            "messageId": "m",
            "contextId": "c",
            "parts": [{"kind": "text", "text": "a"}, {"kind": "text", "text": "b "}],
        }
    },
    "1.0": {
        "message": {
            "role": "ROLE_USER",
            "contextId": "c",
            "parts": [{"text": "a"}, {"data": {}}, {"text": "b"}],
        }
    },
    "sdk of 0.3": old_sdk.MessageSendParams(
        message=old_sdk.Message(
            role=old_sdk.Role.user,
            message_id="m",
            context_id="c",
            parts=[
                old_sdk.Part(root=old_sdk.TextPart(text="a")),
                old_sdk.Part(root=old_sdk.TextPart(text="b")),
            ],
        )
    ),
    "sdk of 1.0": SendMessageRequest(
        message=NewMessage(
            message_id="m",
            role=NewRole.ROLE_USER,
            context_id="c",
            parts=[NewPart(text="a"), NewPart(text="b")],
        )
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_params_are_taken_in_every_shape(adapt, shape):
    task = await finished(adapt(), SHAPES[shape])
    assert (task.context_id, task.status.message.text) == ("c", "echo: a b")


@pytest.mark.parametrize("wrong", [{}, {"message": 1}, {"message": {"role": "ROLE_USER"}}])
async def test_invalid_params_are_refused(adapt, wrong):
    with pytest.raises(InvalidParams):
        await adapt().handle(wrong)
    with pytest.raises(TypeError, match="params are a int"):
        await adapt().handle(7)


# ---------------------------------------------------------------- tasks


@pytest.mark.requirement("openclaw.task.at-work")
async def test_task_is_working_at_once_and_then_completed(openclaw, adapt):
    adapter, gate = adapt(), openclaw.gate()
    task = await adapter.handle(message_params(f"gate:{gate}"))
    assert task.status.state is TaskState.WORKING
    assert task.context_id
    assert [message.text for message in task.history] == [f"gate:{gate}"]
    await openclaw.working()
    assert (await adapter.get_task(task.id)).status.state is TaskState.WORKING
    await anyio.to_thread.run_sync(gate.write_text, "the answer")
    done = await ended(adapter, task.id)
    assert done.status.state is TaskState.COMPLETED
    assert [artifact.name for artifact in done.artifacts] == ["response"]
    assert done.artifacts[0].parts == done.status.message.parts == (Part(text="the answer"),)
    assert [one.role for one in done.history] == [Role.USER, Role.AGENT]
    assert done.history[1] == done.status.message


async def test_response_and_artifact_have_the_same_parts(openclaw, adapt):
    openclaw.writes(b'{"payloads": [{"text": "a", "mediaUrl": "/x/b.pdf"}, {"text": "c"}]}')
    task = await finished(adapt(), message_params("hi"))
    file = Part(url="/x/b.pdf", media_type="application/pdf")
    parts = (Part(text="a"), file, Part(text="c"))
    assert task.artifacts[0].parts == task.status.message.parts == parts


@pytest.mark.requirement("openclaw.command.silent")
async def test_success_without_output_has_no_artifact(openclaw, adapt):
    openclaw.writes(b'{"payloads": [], "meta": {"warning": "nothing to say"}}')
    task = await finished(adapt(), message_params("hi"))
    assert (task.status.state, task.artifacts) == (TaskState.COMPLETED, ())
    assert task.status.message.text == "nothing to say"
    assert len(task.history) == 2


@pytest.mark.requirement("openclaw.task.failed")
@pytest.mark.parametrize(
    ("output", "exit_code", "reason"),
    [
        (b'{"payloads": [], "meta": {"error": "no way"}}', 0, "no way"),
        (b'{"ok": false, "error": {"message": "no such agent"}}', 1, "no such agent"),
        (b"", 5, "OpenClaw ended with exit code 5: why"),
        (b"garbage", 0, "OpenClaw's output could not be read as JSON: 'garbage'"),
    ],
)
async def test_failure_fails_the_task_and_keeps_its_history(
    openclaw, adapt, output, exit_code, reason
):
    openclaw.writes(output, errors=b"why", exit_code=exit_code)
    task = await finished(adapt(), message_params("hi"))
    assert (task.status.state, task.status.message.text) == (TaskState.FAILED, reason)
    assert [message.text for message in task.history] == ["hi", reason]
    assert task.artifacts == ()


async def test_missing_program_fails_the_task(adapt):
    task = await finished(adapt(openclaw_path="/nowhere/openclaw"), message_params("hi"))
    assert task.status.state is TaskState.FAILED
    assert "/nowhere/openclaw" in task.status.message.text


@pytest.mark.requirement("openclaw.task.timeout")
async def test_timeout_fails_the_task_and_names_the_seconds(openclaw, adapt):
    task = await finished(adapt(timeout=1.5), message_params("hang"))
    assert task.status.state is TaskState.FAILED
    assert "1.5 seconds" in task.status.message.text
    openclaw.assert_nothing_runs()


@pytest.mark.requirement("openclaw.task.cancel")
async def test_cancel_ends_the_processes_and_stays_cancelled(openclaw, adapt):
    adapter = adapt()
    task = await adapter.handle(message_params("hang"))
    await openclaw.working()
    cancelled = await adapter.cancel_task(task.id)
    assert cancelled.status.state is TaskState.CANCELED
    openclaw.assert_nothing_runs()
    assert await adapter.get_task(task.id) == cancelled
    assert await adapter.cancel_task(task.id) == cancelled
    assert cancelled.history[0].text == "hang"
    assert await adapter.cancel_task("nobody") is None


async def test_cancel_at_once_is_a_cancel(openclaw, adapt):
    adapter = adapt()
    task = await adapter.handle(message_params("hang"))
    cancelled = await adapter.cancel_task(task.id)
    assert cancelled.status.state is TaskState.CANCELED
    openclaw.assert_nothing_runs()


async def test_queued_task_is_working_and_can_be_cancelled(openclaw, adapt):
    adapter, gate = adapt(), openclaw.gate()
    first = await adapter.handle(message_params(f"gate:{gate}", contextId="c"))
    second = await adapter.handle(message_params("two", contextId="c"))
    assert (await adapter.get_task(second.id)).status.state is TaskState.WORKING
    assert (await adapter.cancel_task(second.id)).status.state is TaskState.CANCELED
    await anyio.to_thread.run_sync(gate.write_text, "done")
    assert (await ended(adapter, first.id)).status.state is TaskState.COMPLETED
    assert len(openclaw.starts()) == 1


@pytest.mark.requirement("openclaw.task.one-run")
async def test_requests_of_one_session_run_one_at_a_time(openclaw, adapt):
    """Two contexts, one session: what tells the contexts apart is not in their session's id."""
    openclaw.variables["FAKE_PARALLEL"] = "1"
    adapter, gate = adapt(), openclaw.gate()
    first = await adapter.handle(message_params(f"gate:{gate}", contextId="a b"))
    await openclaw.working()
    second = await adapter.handle(message_params("two", contextId="a:b"))
    third = await adapter.handle(message_params("three", contextId="other"))
    assert (await ended(adapter, third.id)).status.message.text == "echo: three"
    assert len(openclaw.starts()) == 2
    await anyio.to_thread.run_sync(gate.write_text, "done")
    assert (await ended(adapter, second.id)).status.message.text == "echo: two"
    assert (await ended(adapter, first.id)).status.message.text == "done"


async def test_conversation_continues_in_its_context(adapt):
    adapter = adapt()
    await finished(adapter, message_params("one", contextId="c"))
    task = await finished(adapter, message_params("history", contextId="c"))
    assert task.status.message.text == "history: ['one', 'history']"


@pytest.mark.requirement("openclaw.task.delete")
async def test_ended_task_can_be_deleted(openclaw, adapt):
    adapter = adapt()
    task = await finished(adapter, message_params("hi"))
    assert await adapter.delete_task(task.id) is True
    assert await adapter.get_task(task.id) is None
    assert await adapter.delete_task(task.id) is False
    busy = await adapter.handle(message_params("hang"))
    with pytest.raises(ValueError, match="still at work"):
        await adapter.delete_task(busy.id)


@pytest.mark.requirement("openclaw.task.ttl")
async def test_ended_tasks_are_purged_after_their_ttl(openclaw, adapt, wait_until):
    adapter = adapt(task_ttl_seconds=0.01, cleanup_interval_seconds=0.05)
    task = await adapter.handle(message_params("hi"))
    await ended(adapter, task.id)
    with anyio.fail_after(240):
        while await adapter.get_task(task.id) is not None:  # noqa: ASYNC110 - its own times
            await anyio.sleep(0.02)


async def test_tasks_are_kept_without_a_ttl(adapt):
    adapter = adapt(task_ttl_seconds=None, cleanup_interval_seconds=0.01)
    task = await finished(adapter, message_params("hi"))
    assert await adapter.get_task(task.id) == task


@pytest.mark.requirement("openclaw.task.close")
async def test_close_ends_everything_and_may_be_called_again(openclaw, adapt):
    adapter = adapt()
    await adapter.close()
    await adapter.handle(message_params("hang"))
    await openclaw.working()
    await adapter.close()
    await adapter.close()
    openclaw.assert_nothing_runs()


async def test_tasks_survive_in_a_durable_store(openclaw, adapt, tmp_path):
    path = str(tmp_path / "tasks.db")
    first = adapt(task_store=SqliteStore(path))
    done = await finished(first, message_params("one"))
    cut_off = await first.handle(message_params("hang"))
    await openclaw.working(2)
    await first.close()
    second = adapt(task_store=SqliteStore(path))
    assert await second.get_task(done.id) == done
    assert (await ended(second, cut_off.id)).status.state is TaskState.FAILED


async def test_adapter_needs_only_the_program_on_the_path(openclaw, monkeypatch):
    monkeypatch.setenv("PATH", f"{openclaw.program.parent}:{Path(sys.executable).parent}")
    for name, value in openclaw.variables.items():
        monkeypatch.setenv(name, value)
    async with OpenClawAgentAdapter(session_id="demo", agent_id="main") as adapter:
        assert (await finished(adapter, message_params("hi"))).status.message.text == "echo: hi"


@pytest.mark.slow
@pytest.mark.requirement("openclaw.task.close")
@pytest.mark.parametrize("moment", MOMENTS)
async def test_close_after_a_cancel_leaves_nothing_that_python_warns_of(openclaw, moment):
    """No coroutine that was never awaited, no open pipe: a warning would be on standard error."""
    warnings = ["-W", "error::RuntimeWarning", "-W", "error::ResourceWarning"]
    ended = await anyio.run_process(
        [sys.executable, *warnings, closing_adapter.__file__, moment],
        env={**os.environ, **openclaw.variables, "FAKE_PROGRAM": str(openclaw.program)},
        check=False,
    )
    assert (ended.returncode, ended.stderr.decode()) == (0, "")
    openclaw.assert_nothing_runs()
