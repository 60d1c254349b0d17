"""The index of active runs by session."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.calls.call_gateway import CallGateway

from openclaw_a2a.calls import loop_guard
from openclaw_a2a.calls.loop_guard import RunIndex
from openclaw_a2a.engine.tasks.run import ActiveRun
from openclaw_a2a.model.ids import AgentId, RunId, SessionKey

Json = Any

AGENTS = ("plain", "renamed", "late")


async def test_a_caller_is_found_by_the_name_its_host_has_for_its_session(
    gateway: CallGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"via": ""}

    def there(session_key: SessionKey) -> SessionKey | None:
        return SessionKey(session_key.replace("agent:b:", names["via"])) if names["via"] else None

    async def calls_on(invocation: Json) -> str:
        await gateway.call("a", "d")  # somebody looks while nobody knows the host's name yet
        names["via"] = "agent:b:via-b:"
        session = f"agent:b:via-b:call:{invocation['correlationId']}"
        arguments: Json = {"agent": "c", "skill": "work", "input": {}, "wait": True}
        return json.dumps(
            await gateway.call_tool(gateway.client("b", session), "agent_call", arguments)
        )

    monkeypatch.setattr(gateway.agents["b"], "host_session_key", there)
    gateway.agents["b"].answer = calls_on
    await gateway.call("a", "b", wait=True)
    [turn] = gateway.agents["c"].turns
    assert turn.provenance is not None
    assert turn.provenance.chain == ("a", "b")


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["begin", "queue", "start", "end", "again", "learn", "look"]),
            st.integers(0, 5),
            st.sampled_from(AGENTS),
        ),
        max_size=60,
    )
)
def test_the_answer_is_that_of_asking_every_run(steps: list[tuple[str, int, str]]) -> None:
    runs: dict[RunId, ActiveRun] = {}
    known: set[str] = set()

    def there(agent_id: AgentId, session_key: SessionKey) -> SessionKey | None:
        if agent_id == "late" and not known:
            return None
        return session_key if agent_id == "plain" else SessionKey(f"{agent_id}:{session_key}")

    index = RunIndex(runs, there)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop_guard, "_STALE_RUNS", 4)
        for number, (step, one, agent) in enumerate(steps):
            take_step(runs, step, RunId(f"{number}"), (one, agent))
            if step == "learn":
                known.add("late")
            if step == "look":
                for key in (SessionKey(f"s{one}"), SessionKey(f"{agent}:s{one}")):
                    found = index.find_run(key)
                    every = [run for run in runs.values() if is_in(run, key, there)]
                    assert (found in every) if every else found is None


def take_step(
    runs: dict[RunId, ActiveRun], step: str, run_id: RunId, place: tuple[int, str]
) -> None:
    number, agent = place
    chosen = list(runs)[number : number + 1]
    if step in ("begin", "queue"):
        runs[run_id] = make_run(run_id, f"s{number}", agent, is_started=step == "begin")
    for one in chosen:
        if step == "start":
            cast("Json", runs[one]).record.is_started = True
        if step in ("end", "again"):
            record = cast("Json", runs.pop(one)).record
            if step == "again":  # the same run goes on in another life
                runs[one] = make_run(one, f"s{number}", record.binding.agent_id, is_started=True)


def make_run(run_id: RunId, session: str, agent: str, *, is_started: bool) -> ActiveRun:
    binding = SimpleNamespace(agent_id=agent, session_key=session)
    record = SimpleNamespace(id=run_id, binding=binding, is_started=is_started)
    return cast("ActiveRun", SimpleNamespace(record=record))


def is_in(run: ActiveRun, key: SessionKey, there: loop_guard.HostSessionKey) -> bool:
    own = run.record.binding.session_key
    at_home = there(run.record.binding.agent_id, own) or own
    return run.record.is_started and key in (own, at_home)
