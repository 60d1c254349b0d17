"""Session keys: safe to use anywhere, and never the same for two conversations."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.model.ids import AgentId, ContextId, PeerName
from openclaw_a2a.model.session_keys import main_session_key, safe_label, session_key

KEY = re.compile(r"agent:[a-z0-9_-]+(:[a-z0-9_.-]+)+")
LABEL = re.compile(r"[a-z0-9_.-]+")

alike = st.text(st.sampled_from("aAbB1-_.:/ äé\ud800h0"), max_size=8)
"""Texts that are easily taken for each other once they are cleaned."""

anything = st.text(st.characters(), max_size=90)
names = anything | alike
AGENT = AgentId("main")


def key_of(peer: str, context: str) -> str:
    return session_key(AGENT, PeerName(peer), ContextId(context))


@given(names, names)
def test_key_holds_safe_characters_only(peer: str, context: str) -> None:
    assert KEY.fullmatch(key_of(peer, context))


@given(names, names)
def test_same_caller_and_context_have_the_same_key(peer: str, context: str) -> None:
    assert key_of(peer, context) == key_of(peer, context)


@given(names, names, names, names)
def test_different_callers_or_contexts_never_share_a_key(
    peer: str, context: str, other_peer: str, other_context: str
) -> None:
    is_same = (peer, context) == (other_peer, other_context)
    assert (key_of(peer, context) == key_of(other_peer, other_context)) == is_same


@given(names)
def test_label_of_a_label_is_not_the_label_of_the_text(text: str) -> None:
    label = safe_label(text)
    assert LABEL.fullmatch(label)
    assert label == text or safe_label(label) != label


@pytest.mark.parametrize("text", ["a", "peer_1", "3f0c1e2d-1111-4222-8333-444455556666", "v1.2"])
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert safe_label(text) == text


@pytest.mark.parametrize("text", ["", "Alice", "a:b", "-a", "a.", "a b", "ä", "x" * 61, "../etc"])
def test_changed_text_gets_a_hash(text: str) -> None:
    assert re.search(r"(^|\.)h-[0-9a-f]{16}$", safe_label(text))


def test_label_is_bounded_whatever_the_text() -> None:
    assert len(safe_label("x" * 100_000)) < 100


def test_agent_has_one_main_session() -> None:
    assert main_session_key(AgentId("Main")) == "agent:main:main"
