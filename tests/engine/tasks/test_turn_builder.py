"""From a peer's message to the turn an agent is asked."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.harness import ALICE, BEGINNING, RULES

from openclaw_a2a.engine.engine import AccountRules
from openclaw_a2a.engine.tasks.submit import create_binding
from openclaw_a2a.engine.tasks.turn_builder import STRUCTURED_ONLY, build_turn, untrusted_notes
from openclaw_a2a.engine.transcript.assistant_message import has_content
from openclaw_a2a.model.ids import (
    LOCAL_PEER,
    AccountId,
    ContextId,
    JsonObject,
    MessageId,
    OwnerId,
    PeerName,
    RunId,
    TaskId,
)
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.records import RunOptions, RunRecord
from openclaw_a2a.model.turn import Scope, Turn


def message_of(*parts: Part, metadata: JsonObject | None = None) -> Message:
    return Message(MessageId("m"), Role.USER, parts, ContextId("c"), TaskId("t"), metadata=metadata)


def turn_of(message: Message, rules: AccountRules = RULES, scope: Scope = ALICE) -> Turn:
    binding = create_binding(rules, scope, ContextId("c"), now=BEGINNING)
    run = RunRecord(
        id=RunId("r"),
        task_id=TaskId("t"),
        context_id=ContextId("c"),
        scope=scope,
        session_key=binding.session_key,
        message=message,
        binding=binding,
        options=RunOptions(("text/plain",)),
        owner=OwnerId("o"),
        is_started=False,
    )
    return build_turn(run, rules)


def test_texts_are_joined_by_a_blank_line_and_blank_ones_left_out() -> None:
    turn = turn_of(message_of(Part.of_text("one"), Part.of_text(" \n"), Part.of_text("two")))
    assert turn.body == turn.raw_body == "one\n\ntwo"


def test_structured_data_alone_gets_a_fixed_sentence_and_a_note() -> None:
    turn = turn_of(message_of(Part.of_data({"b": 1, "a": [2]})))
    assert (turn.body, turn.raw_body) == (STRUCTURED_ONLY, "")
    (note,) = turn.untrusted
    label, _, text = note.partition("\n")
    assert "part 1" in label
    assert "ntrusted" in label
    assert text == '{\n  "a": [\n    2\n  ],\n  "b": 1\n}'


def test_every_part_without_text_is_a_note_with_its_number() -> None:
    message = message_of(
        Part.of_text("hello"),
        Part(data={"x": 1}, metadata={"y": 2}),
        Part(url="https://example.com/a.png", media_type="image/png", metadata={"z": 3}),
        metadata={"trace": "t-1"},
    )
    labels = [note.partition("\n")[0] for note in untrusted_notes(message)]
    assert [label.split(" from ")[0] for label in labels] == [
        "Untrusted message metadata",
        "Untrusted structured data, part 2",
        "Untrusted metadata of part 2, kind data",
        "Untrusted metadata of part 3, kind file",
    ]


def test_metadata_of_the_only_part_is_a_note_too() -> None:
    (note,) = untrusted_notes(message_of(Part(text="hello", metadata={"lang": "en"})))
    assert "part 1, kind text" in note
    assert '"lang": "en"' in note


def test_metadata_between_gateways_is_no_note() -> None:
    chain = {"openclaw/v1/chain": ["main"], "openclaw/v1/chainHosts": ["there"]}
    assert untrusted_notes(message_of(Part.of_text("hello"), metadata=chain)) == ()
    (note,) = untrusted_notes(message_of(Part.of_text("hello"), metadata={**chain, "trace": "t"}))
    assert note.endswith('{\n  "trace": "t"\n}')


def test_plain_text_needs_no_note() -> None:
    assert untrusted_notes(message_of(Part.of_text("hello"))) == ()


values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(values)
def test_note_holds_the_whole_value(value: object) -> None:
    (note,) = untrusted_notes(message_of(Part.of_data(value)))
    assert msgspec.json.decode(note.partition("\n")[2].encode("utf-8", "surrogatepass")) == value


@pytest.mark.parametrize(
    ("parts", "is_wanted"),
    [
        ((), False),
        ((Part.of_text(""),), False),
        ((Part.of_text(" \n\t"),), False),
        ((Part.of_text("hi"),), True),
        ((Part.of_text(" "), Part.of_data(None)), True),
        ((Part.of_bytes(b"", media_type="a/b"),), True),
    ],
)
def test_message_with_content_is_usable(parts: tuple[Part, ...], is_wanted: bool) -> None:
    assert has_content(message_of(*parts).parts) == is_wanted


def test_caller_with_a_name_is_the_peer() -> None:
    turn = turn_of(message_of(Part.of_text("hi")))
    assert (turn.binding.peer.id, turn.binding.peer.source) == ("alice", "server-user-name")
    assert (turn.sender, turn.recipient) == ("a2a:alice", "a2a:default")
    assert turn.principal == "alice"


def test_caller_on_this_machine_is_known_by_its_context() -> None:
    scope = Scope(LOCAL_PEER, AccountId("default"))
    turn = turn_of(message_of(Part.of_text("hi")), scope=scope)
    assert (turn.binding.peer.id, turn.binding.peer.source) == ("c", "context-id")


@pytest.mark.parametrize("keeps_origin", [False, True])
def test_origin_is_passed_only_where_the_account_routes_by_it(keeps_origin: bool) -> None:
    rules = msgspec.structs.replace(RULES, keeps_origin=keeps_origin)
    turn = turn_of(message_of(Part.of_text("hi")), rules)
    origin = ("a2a", "a2a:alice") if keeps_origin else (None, None)
    assert (turn.originating_channel, turn.originating_to) == origin


def test_turn_names_its_agent_message_and_thread() -> None:
    turn = turn_of(message_of(Part.of_text("hi")))
    assert (turn.agent_id, turn.message_id, turn.thread_id) == ("main", "m", "t")
    assert turn.session_key == "agent:main:a2a:alice:c"
    assert turn.binding.main_session_key == "agent:main:main"


def test_sessions_of_two_callers_differ_for_one_context() -> None:
    mine = turn_of(message_of(Part.of_text("hi")))
    theirs = turn_of(
        message_of(Part.of_text("hi")), scope=Scope(PeerName("bob"), AccountId("default"))
    )
    assert mine.session_key != theirs.session_key
