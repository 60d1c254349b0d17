"""Edge cases of adapters: agents that yield events, unusual constructors, limits."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from openclaw_a2a import AgentAdapter, Part, load_adapter, register_adapter
from openclaw_a2a.agents import ProgramAdapter, RequestContext, build_agent
from openclaw_a2a.agents.adapter import EventAgent
from openclaw_a2a.agents.process.program_adapter import MAX_OUTPUT_BYTES
from openclaw_a2a.library.inputs import as_agent
from openclaw_a2a.model.agent_event import Failed, InputRequired, Note, PartDelta, TextDelta
from openclaw_a2a.model.card import AgentProfile, AgentSkill
from openclaw_a2a.model.errors import AgentFailed, SettingsInvalid
from openclaw_a2a.model.message import Message, Role
from openclaw_a2a.ports import (
    Recovery,
    SupportsApprovals,
    SupportsAvailability,
    SupportsBackgroundEvents,
    SupportsDetach,
    SupportsOrphanCleanup,
    SupportsPauseCancel,
)

PICTURE = Part.of_url("https://example.com/a.png", media_type="image/png")


class Plain:
    """An agent of the engine that is no adapter; it yields the given events."""

    recovery = Recovery.REATTACH

    def __init__(self, *events):
        self.events, self.turns, self.ended = events, [], []

    async def run(self, turn):
        self.turns.append(turn)
        for event in self.events:
            yield event

    async def close(self):
        self.ended.append("closed")

    async def end_orphans(self, run_id):
        self.ended.append(run_id)

    async def cancel_pause(self, binding, resume):
        self.ended.append(resume)

    def profile(self):
        skill = AgentSkill(id="s", name="S", description="d", tags=("t",))
        return AgentProfile("Scripted one", "Says it.", (skill,))


class Scripted(Plain, EventAgent):
    """The same as an adapter."""


class Silent(AgentAdapter):
    async def invoke(self, user_input, context_id=None, **kwargs):
        return ["a ", Part.of_text("b")]


async def test_invoking_an_event_agent_keeps_the_order_of_its_content():
    agent = Scripted(TextDelta("a"), TextDelta("b"), PartDelta(PICTURE), TextDelta("c"))
    parts = await agent.invoke("hi", "c-1")
    assert parts == [Part.of_text("ab"), PICTURE, Part.of_text("c")]
    (turn,) = agent.turns
    assert (turn.body, turn.context_id, turn.principal) == ("hi", "c-1", "local")


async def test_invoked_event_agent_is_given_the_request_of_the_caller():
    agent = Scripted(TextDelta("ok"))
    message = Message("m", Role.USER, (Part.of_text("hi"), PICTURE))
    await agent.invoke("hi", "c-1", context=RequestContext("t-1", "c-1", message))
    assert (agent.turns[0].task_id, agent.turns[0].message) == ("t-1", message)


class Ready(Plain):
    """An agent with everything that the engine may look for."""

    def detach(self):
        self.ended.append("let go")

    def unavailable_reason(self):
        return "its line is down; plug it in"

    async def background_events(self, recent):
        for event in recent:
            yield event

    async def approvals(self):
        return ()

    async def decide(self, approval_id, *, allow):
        self.ended.append((approval_id, allow))


@pytest.mark.parametrize(
    "protocol", [SupportsDetach, SupportsAvailability, SupportsBackgroundEvents, SupportsApprovals]
)
def test_adapter_claims_only_the_capabilities_it_has(protocol):
    class ReadyAdapter(Ready, EventAgent):
        pass

    assert isinstance(ReadyAdapter(), protocol)
    assert not isinstance(Scripted(), protocol)
    assert not isinstance(Silent(), protocol)


async def test_served_agent_reports_that_it_cannot_answer(serving):
    async with serving(Ready()) as client:
        (state,) = (await client.http.get("/agents")).json()["states"]
    assert (state["available"], state["reason"]) == (False, "its line is down; plug it in")


async def test_failure_of_an_event_agent_is_raised_and_its_question_is_its_answer():
    with pytest.raises(AgentFailed, match="no paper"):
        await Scripted(TextDelta("a"), Failed("no paper")).invoke("hi")
    asking = Scripted(Note("hm"), TextDelta("a"), InputRequired("which?"), TextDelta("never"))
    assert await asking.invoke("hi") == [Part.of_text("awhich?")]


def test_engine_is_given_the_agent_itself():
    for agent in (Plain(), Scripted(), Silent()):
        assert as_agent(agent) is agent


@pytest.mark.usefixtures("own_adapters")
async def test_registered_agent_that_is_no_adapter_can_be_invoked_and_served():
    class NoOptions(msgspec.Struct):
        pass

    class Registered(Plain):
        options_type = NoOptions

        @classmethod
        def from_options(cls, options, *, environment):
            made.append(cls(TextDelta("a")))
            return made[-1]

    made = []
    register_adapter("plain")(Registered)
    adapter = load_adapter({"adapter": "plain"})
    assert isinstance(adapter, AgentAdapter)
    assert await adapter.invoke("hi") == [Part.of_text("a")]
    assert adapter.get_metadata().name == "Scripted one"
    assert (adapter.recovery, as_agent(adapter)) == (Recovery.REATTACH, made[0])
    await adapter.close()
    assert made[0].ended == ["closed"]


def test_simple_adapter_leaves_no_orphans_and_no_pauses():
    assert not isinstance(Silent(), SupportsOrphanCleanup | SupportsPauseCancel)
    assert Silent().profile() == AgentProfile()
    assert Silent().recovery is Recovery.FAIL


async def test_list_may_hold_bare_text(serving):
    async with serving(Silent()) as client:
        task = await client.send("hi")
    assert task["artifacts"][0]["parts"] == [{"text": "a "}, {"text": "b"}]


@pytest.mark.usefixtures("own_adapters")
def test_arguments_that_json_cannot_hold_are_left_to_the_constructor():
    class Odd(Silent):
        def __init__(
            self, when: Any = None, kind: "type[Silent] | None" = None, *, place: Path, plain=1
        ):
            made_of.append((when, kind, place, plain))

    made_of = []
    register_adapter("odd")(Odd)
    build_agent("odd", {"when": [1], "kind": "x", "plain": {}, "place": "/a"}, environment=None)
    assert made_of == [([1], "x", "/a", {})]


async def test_function_is_named_in_the_settings():
    agent = build_agent("callable", {"function": "builtins:str.upper"}, environment=None)
    assert agent.profile().name == "upper"
    with pytest.raises(SettingsInvalid, match="function"):
        build_agent("callable", {"function": "builtins"}, environment=None)


@pytest.mark.usefixtures("own_adapters")
def test_annotations_that_only_a_checker_knows_are_not_checked():
    class Strange(Silent):
        def __init__(self, size: "OnlyForCheckers" = 1):  # noqa: F821 - that is the point
            made_of.append(size)

    made_of = []
    register_adapter("strange")(Strange)
    build_agent("strange", {"size": "big"}, environment=None)
    assert made_of == ["big"]


class Program(ProgramAdapter):
    def __init__(self, source):
        super().__init__()
        self.source = source

    def build_command(self, message, context_key):
        return [sys.executable, "-c", self.source], False

    def parse_output(self, stdout, context_key):
        return stdout, None


async def test_program_that_writes_too_much_is_ended():
    source = "import sys\nwhile True: sys.stdout.write('x' * 1_000_000)"
    with pytest.raises(AgentFailed, match=f"more than {MAX_OUTPUT_BYTES} bytes"):
        await Program(source).invoke("hi")


async def test_cancelled_tasks_that_never_start_are_forgotten():
    adapter = Program("print('fine')")
    for number in range(1100):
        await adapter.cancel(context=SimpleNamespace(task_id=f"t-{number}"))
    forgotten = SimpleNamespace(task_id="t-0", context_id="c", session_key=None)
    assert await adapter.invoke("hi", "c", context=forgotten) == "fine\n"


async def test_cancel_without_a_request_ends_the_conversation():
    adapter = Program("print('fine')")
    await adapter.cancel("c")
    assert await adapter.invoke("hi", "c") == "fine\n"


def test_program_adapter_has_default_messages():
    adapter = Program("")
    assert "install" in adapter.binary_not_found_message()
    assert adapter.parse_stream_line("x") is None


def test_openclaw_gateway_is_loaded_by_name():
    adapter = load_adapter({"adapter": "openclaw-gateway", "url": "ws://127.0.0.1:1"})
    assert isinstance(adapter, AgentAdapter)
