"""`OpenClawAgentAdapter` served with `to_a2a`."""

import anyio
import httpx2
import pytest

from openclaw_a2a import load_a2a_agent, to_a2a


@pytest.fixture
async def ask(openclaw):
    """Calls a method of the served adapter, with a caller's token."""
    adapter = await load_a2a_agent(
        {
            "adapter": "openclaw",
            "session_id": "demo",
            "agent_id": "main",
            "thinking": "low",
            "openclaw_path": str(openclaw.program),
            "env_vars": openclaw.variables,
        }
    )
    app = to_a2a(adapter, auth={"ann": "token-of-ann", "bob": "token-of-bob"})
    transport = httpx2.ASGITransport(app)
    async with app, httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:

        async def call(method: str, params: dict, caller: str = "ann") -> dict:
            headers = {"A2A-Version": "1.0", "Authorization": f"Bearer token-of-{caller}"}
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            answer = await client.post("/", json=body, headers=headers, timeout=240)
            return answer.json()["result"]

        yield call


def message_params(text: str, **configuration) -> dict:
    message = {"role": "ROLE_USER", "messageId": text, "parts": [{"text": text}], "contextId": "c"}
    return {"message": message, "configuration": configuration}


async def test_answer_is_one_artifact_of_a_task(ask):
    task = (await ask("SendMessage", message_params("hello")))["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert [one["name"] for one in task["artifacts"]] == ["response"]
    assert task["artifacts"][0]["parts"] == [{"text": "echo: hello"}]


async def test_two_callers_of_one_context_have_two_sessions(ask):
    await ask("SendMessage", message_params("from ann"), "ann")
    await ask("SendMessage", message_params("from bob"), "bob")
    reply = (await ask("SendMessage", message_params("history"), "ann"))["task"]["status"][
        "message"
    ]
    assert reply["parts"] == [{"text": "history: ['from ann', 'history']"}]


async def test_cancel_over_http_leaves_nothing_running(openclaw, ask):
    task = (await ask("SendMessage", message_params("hang", returnImmediately=True)))["task"]
    await openclaw.working()
    with anyio.fail_after(240):
        cancelled = await ask("CancelTask", {"id": task["id"]})
    assert cancelled["status"]["state"] == "TASK_STATE_CANCELED"
    openclaw.assert_nothing_runs()
