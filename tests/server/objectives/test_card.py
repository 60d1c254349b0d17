"""The extension in agent cards."""

import pytest
from a2a import types as official_v1
from a2a.compat.v0_3 import types as official_v03
from google.protobuf import json_format
from tests.server.objectives.conftest import Build, ObjectivesServer

from openclaw_a2a.planning.steps import EXTENSION_URI
from openclaw_a2a.server.cards import objectives_extension

CARD = "/.well-known/agent-card.json"
ENTRY = {
    "uri": EXTENSION_URI,
    "required": False,
    "params": {"maxPlansPerObjective": 10, "maxTasksPerPlan": 50, "persistenceEnabled": False},
}


@pytest.mark.requirement("opt.card.entry")
async def test_both_cards_declare_the_extension_and_whether_the_store_is_durable(
    server: ObjectivesServer,
) -> None:
    clean = (await server.client.get(CARD, a2a_version="1.0")).json
    hybrid = (await server.client.get(CARD)).json
    assert clean["capabilities"]["extensions"] == [ENTRY]
    assert hybrid["capabilities"]["extensions"] == [ENTRY]
    new = json_format.ParseDict(clean, official_v1.AgentCard())
    assert new.capabilities.extensions[0].params["maxTasksPerPlan"] == 50
    old = official_v03.AgentCard.model_validate(hybrid)
    assert [one.uri for one in old.capabilities.extensions or []] == [EXTENSION_URI]


async def test_card_says_nothing_of_planning_that_is_off(build: Build) -> None:
    server = await build(is_planning=False)
    for version in ("", "1.0"):
        card = (await server.client.get(CARD, a2a_version=version)).json
        assert card["capabilities"].get("extensions", []) == []


def test_limits_and_persistence_are_those_of_the_gateway() -> None:
    extension = objectives_extension(max_plans=3, max_tasks=7, is_persistent=True)
    assert extension.params == {
        "maxPlansPerObjective": 3,
        "maxTasksPerPlan": 7,
        "persistenceEnabled": True,
    }
