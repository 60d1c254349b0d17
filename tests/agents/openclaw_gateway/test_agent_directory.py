"""Decoding the list of agents from any response."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from openclaw_a2a.agents.openclaw_gateway.agent_directory import (
    GatewayAgent,
    decode_agents,
    decode_models,
)

ANSWER = {
    "defaultId": "main",
    "agents": [
        {"id": "helper", "workspace": "/w/helper", "model": {"primary": "x"}},
        {
            "id": "main",
            "name": "Main Person",
            "identity": {"name": "Clawd", "theme": "space lobster", "emoji": "*"},
            "workspace": "/w/main",
        },
    ],
}


def test_the_agents_are_read_with_the_default_first() -> None:
    assert decode_agents(ANSWER) == snapshot(
        (
            GatewayAgent(
                id="main",
                name="Clawd",
                description="An OpenClaw agent: space lobster.",
                workspace="/w/main",
            ),
            GatewayAgent(id="helper", workspace="/w/helper"),
        )
    )


def test_an_agent_without_a_description_has_a_profile() -> None:
    profile = GatewayAgent("helper").profile
    assert profile.name == "helper"
    assert profile.description == "The OpenClaw agent helper."
    assert [skill.id for skill in profile.skills] == ["chat"]


def test_a_description_becomes_the_skill() -> None:
    (agent,) = decode_agents({"agents": [{"id": "a", "description": "Waters\n the plants."}]})
    assert agent.profile.skills[0].description == "Waters the plants."


def test_models_that_are_agents_are_agents() -> None:
    names = ["openclaw", "openclaw/default", "openclaw/main", "openclaw/", "gpt", "openclaw/b"]
    answer = {"data": [{"id": name} for name in names] + [{"id": 5}, "x"]}
    assert [agent.id for agent in decode_models(answer)] == ["main", "b"]


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(["agents", "data", "id", "identity", "name", "defaultId", "theme"]),
            inner,
            max_size=5,
        ),
    ),
    max_leaves=20,
)


@given(answer=json_values)
def test_any_answer_is_read_as_some_agents(answer: object) -> None:
    for agent in (*decode_agents(answer), *decode_models(answer)):
        assert agent.id
        assert agent.profile.name
        assert msgspec.json.encode(agent.profile)
