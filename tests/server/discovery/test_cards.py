"""Cards show the profile of an agent where the account says nothing."""

import pytest

from openclaw_a2a.model.card import AgentCard, AgentProfile
from openclaw_a2a.server.cards import LiveCard, apply_profiles, build_card
from openclaw_a2a.settings import load_settings

CARD = "/.well-known/agent-card.json"


async def test_the_card_shows_the_current_profile_of_the_agent(
    open_gateway, moody, profile
) -> None:
    served = await open_gateway({"main": moody})
    before = await served.client.get(CARD)
    assert before.json()["name"] == "default"
    moody.words = profile("Samantha", "A helpful sloth.", "sing", "dance")
    response = await served.client.get(CARD, headers={"if-none-match": before.headers["etag"]})
    card = response.json()
    assert (card["name"], card["description"]) == ("Samantha", "A helpful sloth.")
    assert [skill["id"] for skill in card["skills"]] == ["sing", "dance"]
    assert card["skills"][0]["inputModes"] == card["defaultInputModes"]
    again = await served.client.get(CARD, headers={"if-none-match": response.headers["etag"]})
    assert again.status_code == 304
    moody.words = profile("Samantha", "Another sloth.")
    card = await served.get(CARD, **{"a2a-version": "1.0"})
    assert card["description"] == "Another sloth."
    assert [skill["id"] for skill in card["skills"]] == ["chat"]


@pytest.mark.parametrize("words", [None, AgentProfile()])
async def test_an_agent_without_a_profile_leaves_the_card_unchanged(
    open_gateway, moody, words
) -> None:
    served = await open_gateway({"main": moody})
    card = await served.get(CARD)
    moody.words = words
    assert await served.get(CARD) == card


async def test_the_settings_of_the_account_win_over_the_profile(
    open_gateway, moody, profile
) -> None:
    moody.words = profile("Samantha", "A helpful sloth.", "sing")
    account = {"label": "Front", "skills": [{"id": "talk", "name": "Talk"}]}
    card = await (await open_gateway({"main": moody}, account=account)).get(CARD)
    assert (card["name"], card["description"]) == ("Front", "A helpful sloth.")
    assert [skill["id"] for skill in card["skills"]] == ["talk"]


def test_a_card_is_built_once_for_each_profile(profile) -> None:
    account = load_settings(environ={}).settings.default_account
    built: list[AgentProfile | None] = []

    def build(words: AgentProfile | None) -> AgentCard:
        built.append(words)
        return build_card(apply_profiles(account, words), version="1")

    said = [profile("A"), profile("A"), profile("B"), profile("B"), profile("A")]
    card = LiveCard(account, build, iter(said).__next__)
    assert [card.current().name for _ in said] == ["A", "A", "B", "B", "A"]
    assert built == [profile("A"), profile("B"), profile("A")]
