"""Two callers of tools see their own things only: calls, objectives, remote tasks and results.

Every tool of a gateway with all of them is called by one caller with the ids of another's things,
over HTTP and over MCP. A new tool without a row fails.
"""

import json
import re
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx2
import pytest
from tests.hostile.limited_gateway import DEADLINE_S, LimitedGateway, limited_gateway

from openclaw_a2a.auth.tokens import TokenStore

pytestmark = pytest.mark.slow
Json = Any
SECRET = "the secret of alice"
CALL = {"agent": "worker", "skill": "work", "input": {}, "wait": True}
DEBATE = {
    "topic": SECRET,
    "input": {},
    "proposer": {"agent": "worker", "skill": "propose"},
    "critics": [{"agent": "critic"}],
    "resolver": {"agent": "critic", "skill": "resolve"},
}
SAYS = [{"kind": "text", "text": "tell me"}]
CONTINUATION = {
    "target": {
        "target_url": "URL",
        "card_path": "/.well-known/agent-card.json",
        "preferred_transports": ["JSONRPC", "HTTP+JSON"],
    },
    "task": {"task_id": "REMOTE-TASK", "task_handle": "HANDLE"},
}

ATTEMPTS: dict[str, list[Json]] = {
    "agent_poll": [
        {"correlationId": "CALL"},
        {"taskId": "TASK-OF-CALL"},
        {"correlationId": "BATCH"},
        {"taskId": "TASK-OF-BATCH"},
        {"correlationId": "DEBATE"},
        {"taskId": "TASK-OF-DEBATE"},
    ],
    "objective_status": [{"id": "OBJECTIVE"}, {"id": "OBJECTIVE", "includePlans": False}],
    "objective_update": [
        {"id": "OBJECTIVE", "name": "mine now"},
        {"id": "OBJECTIVE", "status": "canceled"},
        *[{"id": "OBJECTIVE", "action": one} for one in ("run", "pause", "resume", "replan")],
    ],
    "plan_create": [{"objectiveId": "OBJECTIVE", "name": "a foot in the door"}],
    "plan_update": [
        {"id": "PLAN", "name": "mine now"},
        {"id": "PLAN", "tasks": [{"id": "STEP", "status": "canceled"}]},
        {"id": "PLAN", "addTasks": [{"name": "more"}]},
        *[{"id": "PLAN", "action": one} for one in ("run", "pause", "resume")],
    ],
    "step_read": [{"objectiveId": "OBJECTIVE", "step": "STEP"}],
    "step_answer": [
        {"objectiveId": "OBJECTIVE", "text": "an answer"},
        {"objectiveId": "OBJECTIVE", "text": "an answer", "step": "STEP"},
    ],
    "remote_agent": [
        *[{"action": one, "task_handle": "HANDLE"} for one in ("status", "watch", "cancel")],
        {"action": "send", "task_handle": "HANDLE", "parts": SAYS},
        *[{"action": one, "task_id": "REMOTE-TASK"} for one in ("status", "watch", "cancel")],
        *[{"action": one, "continuation": CONTINUATION} for one in ("status", "watch", "cancel")],
        {"action": "send", "task_id": "REMOTE-TASK", "parts": SAYS},
        {"action": "send", "continuation": CONTINUATION, "parts": SAYS},
    ],
}
"""What each tool is asked about another caller's things."""

MAKES = {
    "agent_call": ("CALL", "TASK-OF-CALL"),
    "agent_call_batch": ("BATCH", "TASK-OF-BATCH"),
    "debate_call": ("DEBATE", "TASK-OF-DEBATE"),
    "objective_create": ("OBJECTIVE", "PLAN", "STEP"),
}
"""The tools that name nothing that is there, and the things they make, which others ask about."""


class Caller(NamedTuple):
    """One caller of the tools."""

    address: str
    headers: dict[str, str]

    def use(self, tool: str, **arguments: Json) -> Json:
        """The answer of a tool over HTTP."""
        address = f"{self.address}/tools/{tool}"
        answer = httpx2.post(address, json=arguments, headers=self.headers, timeout=DEADLINE_S)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def use_mcp(self, tool: str, **arguments: Json) -> Json:
        """The answer of a tool over MCP, in the newest version, which has no sessions."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        headers = {
            **self.headers,
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/call",
            "mcp-name": tool,
        }
        params = {"name": tool, "arguments": arguments, "_meta": meta}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = httpx2.post(f"{self.address}/mcp", json=body, headers=headers, timeout=DEADLINE_S)
        assert answer.status_code == 200, answer.text
        found = re.search(r"^data: (.*)$", answer.text, re.MULTILINE)
        return json.loads(found[1] if found else answer.text)["result"]["structuredContent"]

    def read(self, path: str) -> tuple[int, str]:
        answer = httpx2.get(self.address + path, headers=self.headers, timeout=DEADLINE_S)
        return answer.status_code, answer.text


class Pair(NamedTuple):
    """The caller that owns something, and the one that asks about it."""

    alice: Caller
    bob: Caller


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LimitedGateway]:
    """A gateway with every tool, whose only remote agent is itself."""
    home = tmp_path_factory.mktemp("tools")
    target = {
        "alias": "me",
        "baseUrl": "http://127.0.0.1:PORT",
        "default": True,
        "auth": {"type": "bearer", "token": "token-of-self"},
    }
    sections = {
        "outbound": {"enabled": True, "targets": [target], "policy": {"maxResultBytes": 20_000}},
        "opt": {"enabled": True, "tools": True},
    }
    with limited_gateway(home, "self", **sections) as gateway:
        yield gateway


@pytest.fixture(scope="module", params=["two tokens", "two agents of one host"])
def pair(request: pytest.FixtureRequest, gateway: LimitedGateway) -> Pair:
    """Two callers: with tokens of their own, or vouched for by the same host."""

    def of_host(agent: str) -> Caller:
        token = json.loads((gateway.home / "tools.json").read_text(encoding="utf-8"))["token"]
        headers = {
            "authorization": f"Bearer {token}",
            "x-openclaw-agent-id": agent,
            "x-openclaw-session-key": f"agent:{agent}:main",
        }
        return Caller(gateway.address, headers)

    def of_token(name: str) -> Caller:
        token = TokenStore(gateway.home).create(name)
        return Caller(gateway.address, {"authorization": f"Bearer {token}"})

    if request.param == "two tokens":
        return Pair(of_token("alice"), of_token("bob"))
    return Pair(of_host("boss"), of_host("critic"))


@pytest.fixture(scope="module")
def hers(pair: Pair, gateway: LimitedGateway) -> dict[str, str]:
    """The ids of what Alice has made with each tool."""
    alice = pair.alice
    call = alice.use("agent_call", **CALL)
    (batch,) = alice.use("agent_call_batch", calls=[CALL])["results"]
    debate = alice.use("debate_call", **DEBATE)
    objective = alice.use("objective_create", name=SECRET)["objective"]
    steps = [{"name": f"ask {SECRET}", "metadata": {"agent": "main"}}]
    made = alice.use("plan_create", objectiveId=objective["id"], name=SECRET, tasks=steps)
    alice.use("objective_update", id=objective["id"], action="run")
    wait_question(alice, objective["id"])
    sent = alice.use("remote_agent", action="send", parts=[text(f"ask {SECRET}")])
    assert sent["ok"], sent
    continuation = sent["summary"]["continuation"]
    long = alice.use("remote_agent", action="send", parts=[text("long")])
    return {
        "CALL": call["correlationId"],
        "TASK-OF-CALL": call["taskId"],
        "BATCH": batch["correlationId"],
        "TASK-OF-BATCH": batch["taskId"],
        "DEBATE": debate["correlationId"],
        "TASK-OF-DEBATE": debate["taskId"],
        "OBJECTIVE": objective["id"],
        "PLAN": made["plan"]["id"],
        "STEP": made["plan"]["tasks"][0]["id"],
        "HANDLE": continuation["task"]["task_handle"],
        "REMOTE-TASK": continuation["task"]["task_id"],
        "CONTEXT": continuation["conversation"]["context_id"],
        "RESULT": re.search(r"GET (/results/[^?]+)", json.dumps(long))[1],
        "URL": gateway.address,
    }


def text(said: str) -> Json:
    return {"kind": "text", "text": said}


def wait_question(alice: Caller, objective_id: str) -> None:
    for _ in range(10_000):
        found = alice.use("step_read", objectiveId=objective_id, step="ask")
        if "question" in found:
            return
    pytest.fail(f"the step asked nothing: {found}")


def nobodys(hers: dict[str, str]) -> dict[str, str]:
    """Ids that nothing has, in the form of hers."""
    return {
        **{name: str(uuid.uuid4()) for name in hers},
        "OBJECTIVE": "obj-0123456789abcdef",
        "PLAN": "plan-0123456789abcdef",
        "STEP": "task-0123456789abcdef",
        "HANDLE": f"rah_{uuid.uuid4()}",
        "RESULT": "/results/res_aaaaaaaaaaaaaaaaaaaaaaaa",
        "URL": hers["URL"],
    }


def put_ids(value: Json, ids: dict[str, str]) -> Json:
    filled = json.dumps(value)
    for name in sorted(ids, key=len, reverse=True):
        filled = filled.replace(f'"{name}"', json.dumps(ids[name]))
    return json.loads(filled)


def without_ids(answer: Json, ids: dict[str, str]) -> str:
    shown = json.dumps(answer)
    for name, one in ids.items():
        shown = shown.replace(one, name)
    return shown


def state_of(alice: Caller, ids: dict[str, str]) -> Json:
    """Everything that there is to see of Alice's things."""
    polled = [alice.use("agent_poll", correlationId=ids[one]) for one in ("CALL", "BATCH")]
    objective = alice.use("objective_status", id=ids["OBJECTIVE"])
    step = alice.use("step_read", objectiveId=ids["OBJECTIVE"], step=ids["STEP"])
    remote = alice.use("remote_agent", action="status", task_handle=ids["HANDLE"])
    assert (remote["ok"], remote["raw"]["status"]["state"]) == (True, "input-required"), remote
    return polled, objective, step, remote["raw"]


def test_every_tool_has_a_row(gateway: LimitedGateway, pair: Pair) -> None:
    _, listed = pair.alice.read("/tools")
    assert {tool["name"] for tool in json.loads(listed)["tools"]} == {*ATTEMPTS, *MAKES}
    asked_about = json.dumps(list(ATTEMPTS.values()))
    for things in MAKES.values():
        assert [one for one in things if f'"{one}"' not in asked_about] == []


@pytest.mark.parametrize("protocol", ["http", "mcp"])
@pytest.mark.parametrize("tool", ATTEMPTS)
def test_things_of_another_caller_look_like_nothing_to_a_tool(
    pair: Pair, hers: dict[str, str], tool: str, protocol: str
) -> None:
    before = state_of(pair.alice, hers)
    use = pair.bob.use if protocol == "http" else pair.bob.use_mcp
    for arguments in ATTEMPTS[tool]:
        theirs, nothing = (
            (use(tool, **put_ids(arguments, ids)), ids) for ids in (hers, nobodys(hers))
        )
        shown = without_ids(*theirs)
        assert "alice" not in shown, (arguments, shown)
        if tool != "remote_agent" or "UNKNOWN_TASK_HANDLE" in shown:
            assert shown == without_ids(*nothing), arguments
            assert "error" in theirs[0], (arguments, shown)
            continue
        # The words of a peer about a task that is not there are its own; what they say is not.
        for answer, _ in (theirs, nothing):
            assert answer["ok"] is False, (arguments, shown)
            assert answer["error"]["details"]["rpcCode"] == -32001, (arguments, answer)
    assert state_of(pair.alice, hers) == before


def test_lists_have_the_callers_own_things(pair: Pair, hers: dict[str, str]) -> None:
    shown = json.dumps(pair.bob.use("objective_status"))
    assert hers["OBJECTIVE"] not in shown
    assert "alice" not in shown
    assert hers["OBJECTIVE"] in json.dumps(pair.alice.use("objective_status"))


def test_the_conversation_of_another_caller_with_a_remote_agent_cannot_be_joined(
    pair: Pair, hers: dict[str, str]
) -> None:
    joined = {"action": "send", "context_id": hers["CONTEXT"], "parts": SAYS}
    refused = pair.bob.use("remote_agent", **joined)
    assert (refused["ok"], refused["error"]["code"]) == (False, "VALIDATION_ERROR"), refused
    target = {**CONTINUATION["target"], "target_url": hers["URL"]}
    conversation = {"context_id": hers["CONTEXT"], "can_send": True}
    continuation = {"target": target, "conversation": conversation}
    again = pair.bob.use("remote_agent", action="send", continuation=continuation, parts=SAYS)
    assert (again["ok"], again["error"]["code"]) == (False, "VALIDATION_ERROR"), again
    assert pair.alice.use("remote_agent", **joined)["ok"]


def test_a_message_to_a_remote_agent_cannot_refer_to_the_task_of_another_caller(
    pair: Pair, hers: dict[str, str]
) -> None:
    sent = {"action": "send", "reference_task_ids": [hers["REMOTE-TASK"]], "parts": SAYS}
    refused = pair.bob.use("remote_agent", **sent)
    assert (refused["ok"], refused["error"]["details"]["rpcCode"]) == (False, -32001), refused
    assert pair.alice.use("remote_agent", **sent)["ok"]


def test_the_rest_of_a_result_is_for_the_token_that_got_it(
    gateway: LimitedGateway, hers: dict[str, str]
) -> None:
    token = TokenStore(gateway.home).create("eve")
    eve = Caller(gateway.address, {"authorization": f"Bearer {token}"})
    answers = [eve.read(ids["RESULT"]) for ids in (hers, nobodys(hers))]
    assert [status for status, _ in answers] == [404, 404]
    (_, theirs), (_, nothing) = answers
    assert "no result" in theirs
    assert "no result" in nothing
    stored = list(gateway.home.rglob("res_*"))
    assert stored and not [one for one in stored if one.stat().st_mode & 0o077]
