"""The session and the command line of a turn."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.agents.openclaw_cli.command import (
    CliRequest,
    CliSession,
    OpenClawCliOptions,
    agent_session,
    build_command,
    context_session_id,
    message_text,
)
from openclaw_a2a.model.ids import SessionKey
from openclaw_a2a.model.message import Part

ALLOWED = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@pytest.mark.requirement("openclaw.command.session")
@pytest.mark.parametrize(
    ("context_id", "session_id"),
    [
        ("550e8400-e29b-41d4-a716-446655440000", "a2a-550e8400-e29b-41d4-a716-446655440000"),
        ("team:7/chat:9", "a2a-team-7-chat-9"),
        ("My_Ctx_1", "a2a-my_ctx_1"),
        ("!!!", "mine"),
        ("", "mine"),
        (None, "mine"),
        ("---", "mine"),
    ],
)
def test_session_id_follows_the_table(context_id, session_id):
    assert context_session_id(context_id, "mine") == session_id


@given(st.text())
def test_session_id_is_always_valid_for_openclaw(context_id):
    session_id = context_session_id(context_id, "mine")
    assert ALLOWED.fullmatch(session_id)
    assert session_id == "mine" or session_id.startswith("a2a-")


@given(st.text())
def test_same_context_is_always_the_same_session(context_id):
    assert context_session_id(context_id, "x") == context_session_id(context_id, "x")


@pytest.mark.requirement("openclaw.command.line")
def test_command_is_exactly_the_documented_one():
    question = CliRequest("hi", CliSession(id="a2a-c"), agent_id="main")
    assert build_command(OpenClawCliOptions(), question, is_local=True) == (
        *("openclaw", "agent", "--local", "--message", "hi", "--json"),
        *("--session-id", "a2a-c", "--thinking", "low", "--agent", "main"),
    )


def test_command_without_agent_and_through_the_gateway():
    options = OpenClawCliOptions(openclaw_path="oc", thinking="off")
    command = build_command(options, CliRequest("hi", CliSession(id="s")), is_local=False)
    assert command == (
        *("oc", "agent", "--message", "hi", "--json"),
        *("--session-id", "s", "--thinking", "off"),
    )


def test_session_key_names_the_agent_that_is_asked():
    key = SessionKey("agent:support:a2a:peer:c.h-0123456789abcdef")
    assert agent_session(key, "Main").key == "agent:main:a2a:peer:c.h-0123456789abcdef"


def test_text_parts_are_stripped_and_joined_by_one_space():
    parts = [Part(text=" a\n"), Part.of_data({}), Part(text=" "), Part(text="b c")]
    assert message_text(parts) == "a b c"


@given(st.lists(st.text(st.characters())))
def test_every_text_fits_into_an_argument(texts):
    text = message_text([Part(text=one) for one in texts])
    assert "\0" not in text
    assert text.encode().decode() == text
