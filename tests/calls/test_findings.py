"""What people who used calls stumbled over."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.conformance.asgi_door import Door

from openclaw_a2a.ports import Recovery
from openclaw_a2a.tools.tokens import TokenKind

from .village import Held, Json, Village, main_session, says, village_in

A = main_session("a")
DEBATE = {
    "topic": "tides",
    "proposer": {"agent": "b", "skill": "propose"},
    "critics": [{"agent": "c"}],
    "resolver": {"agent": "d", "skill": "resolve"},
    "input": {"secret": "s3cret"},
    "rounds": 1,
}


@pytest.fixture
async def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Village]:
    """A village whose gateway is opened by the test."""
    monkeypatch.chdir(tmp_path)
    async with village_in(tmp_path) as one:
        yield one


def audit_of(village: Village) -> list[Json]:
    text = (village.folder / "calls-audit.jsonl").read_text()
    assert "s3cret" not in text
    return [json.loads(line) for line in text.splitlines()]


# -------------------------------------------------------------------- the audit log


async def test_every_step_of_a_debate_is_in_the_audit_log(village: Village) -> None:
    for name in "bcd":
        village.members[name].answer = says('{"output": "well", "confidence": 0.6}')
    await village.use(village.door("a"), "debate_call", DEBATE)
    found = [(one["event"], one["requester"], one["skill"]) for one in audit_of(village)]
    steps = ("debate", "propose", "critique", "refine", "resolve")
    assert found == [("call", "a", skill) for skill in steps]


async def test_the_audit_log_tells_why_a_call_was_refused(village: Village) -> None:
    await village.call("a", "a")
    await village.call("a", "nobody")
    refused = audit_of(village)
    assert [one["event"] for one in refused] == ["call-refused", "call-refused"]
    assert "self-call" in refused[0]["reason"]
    assert "there is no agent nobody" in refused[1]["reason"]


async def test_the_audit_log_tells_that_an_input_did_not_fit_without_telling_the_input(
    town: Village,
) -> None:
    skill = {"name": "work", "input": {"secret": {"type": "integer"}}}
    await town.open({"agents.b.skills": [skill]})
    refused = await town.call("a", "b", input={"secret": "s3cret"})
    assert "s3cret" in refused["error"]
    [line] = audit_of(town)
    assert line["reason"] == "the input does not fit work"


@pytest.mark.parametrize(
    ("request_", "target", "skill"),
    [
        ({"agent": "B", "skill": "work", "input": "s3cret"}, "b", "work"),
        ({"agent": "s3cret!", "skill": "work", "input": {}}, "", "work"),
        ({"agent": "b", "skill": "s3cret!", "input": {}}, "b", ""),
        (["s3cret"], "", ""),
    ],
)
async def test_the_audit_log_tells_whom_an_unusable_call_was_for(
    village: Village, request_: Json, target: str, skill: str
) -> None:
    await village.use(village.door("a"), "agent_call", request_)
    [line] = audit_of(village)
    assert (line["event"], line["target"], line["skill"]) == ("call-invalid", target, skill)


# -------------------------------------------------------------------- who calls


async def test_an_agent_without_a_session_has_a_clean_name_too(village: Village) -> None:
    token = village.token("host", TokenKind.HOST)
    headers = {"authorization": f"Bearer {token}", "x-openclaw-agent-id": "Lab: A/7"}
    assert village.gateway is not None
    door = Door(village.gateway.asgi, headers)
    arguments: Json = {"agent": "b", "skill": "work", "input": {}, "wait": True}
    answer = await village.use(door, "agent_call", arguments)
    assert answer["status"] == "completed"
    assert village.members["b"].asked[0]["returnTo"] == "agent:lab-a-7:inbox"


# -------------------------------------------------------------------- restarts


async def test_a_callee_that_must_not_be_asked_again_is_to_be_called_again(town: Village) -> None:
    held = Held()
    town.members["b"].answer, town.members["b"].recovery = held, Recovery.FAIL
    await town.open()
    await town.call("a", "b")
    await held.asked.wait()
    await town.reopen()
    [told] = await town.host.next_told(A)
    assert "call it again" in told["error"]
    assert "message" not in told["error"]
