"""Agent cards: from metadata, from overrides, and given ones."""

import pytest
from a2a.types import AgentCapabilities as SdkCapabilities
from a2a.types import AgentCard as SdkCard
from a2a.types import AgentInterface as SdkInterface
from a2a.types import AgentSkill as SdkSkill

from openclaw_a2a import (
    AdapterMetadata,
    AgentAdapter,
    AgentCapabilities,
    AgentCard,
    AgentSkill,
    build_agent_card,
    to_a2a,
)


class Silent(AgentAdapter):
    """Says nothing of itself."""

    async def invoke(self, user_input, context_id=None, **kwargs):
        return "ok"


class Described(Silent):
    def __init__(self, **metadata):
        self.metadata = metadata

    def get_metadata(self):
        return AdapterMetadata(**self.metadata)


class Streaming(Silent):
    async def stream(self, user_input, context_id=None, **kwargs):
        yield "ok"


@pytest.mark.requirement("adapter.card.usual")
def test_card_of_an_adapter_without_metadata_has_defaults():
    card = build_agent_card(Silent())
    assert isinstance(card, AgentCard)
    assert (card.name, card.version) == ("Silent", "1.0.0")
    assert card.description == "Silent, an agent that answers over A2A."
    assert (card.capabilities.streaming, card.capabilities.push_notifications) == (False, True)
    assert (card.default_input_modes, card.default_output_modes) == (("text/plain",),) * 2
    (skill,) = card.skills
    assert (skill.id, skill.name, skill.description) == ("chat", "Silent", card.description)
    assert skill.tags == ("chat",)
    assert [one.url for one in card.supported_interfaces] == [
        "http://localhost:9000/",
        "http://localhost:9000",
        "http://localhost:9000/",
    ]
    assert {(one.protocol_binding, one.protocol_version) for one in card.supported_interfaces} == {
        ("JSONRPC", "1.0"),
        ("HTTP+JSON", "1.0"),
        ("JSONRPC", "0.3"),
    }


def test_card_is_built_from_the_metadata():
    card = build_agent_card(
        Described(
            name="Cook",
            description="Cooks.",
            version="2.1",
            skills=[
                {"name": "Boil"},
                {
                    "id": "fry",
                    "name": "Fry",
                    "description": "In oil.",
                    "tags": ["hot"],
                    "examples": ["fry an egg"],
                    "input_modes": ["text"],
                    "output_modes": ["image/png"],
                },
                {},
            ],
            input_modes=["text", "image/png"],
            output_modes=["text/plain"],
            streaming=True,
            provider={"organization": "Kitchen", "url": "https://example.com"},
            documentation_url="https://example.com/docs",
            icon_url="https://example.com/icon.png",
        )
    )
    assert (card.name, card.description, card.version) == ("Cook", "Cooks.", "2.1")
    assert [skill.id for skill in card.skills] == ["skill-0", "fry", "skill-2"]
    fry = card.skills[1]
    assert (fry.name, fry.description, fry.tags) == ("Fry", "In oil.", ("hot",))
    assert (fry.examples, fry.input_modes) == (("fry an egg",), ("text",))
    assert fry.output_modes == ("image/png",)
    assert card.default_input_modes == ("text", "image/png")
    assert card.capabilities.streaming
    assert (card.provider.organization, card.provider.url) == ("Kitchen", "https://example.com")
    assert card.documentation_url == "https://example.com/docs"
    assert card.icon_url == "https://example.com/icon.png"


@pytest.mark.requirement("adapter.card.overrides")
def test_overrides_replace_the_metadata():
    card = build_agent_card(
        Described(name="Cook", description="Cooks.", version="2.1", streaming=True),
        name="Baker",
        description="Bakes.",
        version="3.0",
        streaming=False,
        url="https://bake.example.com/",
        provider={"organization": "Bakery", "url": "https://example.com"},
        documentation_url="https://example.com/bread",
        icon_url="https://example.com/bread.png",
    )
    assert (card.name, card.description, card.version) == ("Baker", "Bakes.", "3.0")
    assert not card.capabilities.streaming
    assert card.supported_interfaces[0].url == "https://bake.example.com/"
    assert card.provider.organization == "Bakery"
    assert card.documentation_url == "https://example.com/bread"
    assert card.icon_url == "https://example.com/bread.png"


@pytest.mark.requirement("adapter.card.streaming")
@pytest.mark.parametrize(
    ("adapter", "overrides", "streams"),
    [
        (Silent(), {}, False),
        (Streaming(), {}, True),
        (Described(streaming=True), {}, True),
        (Streaming(), {"streaming": False}, False),
        (Silent(), {"streaming": True}, True),
    ],
)
def test_streaming_is_overridden_declared_or_detected(adapter, overrides, streams):
    assert build_agent_card(adapter, **overrides).capabilities.streaming is streams


def test_unknown_override_is_refused():
    with pytest.raises(TypeError, match="colour"):
        build_agent_card(Silent(), colour="red")


@pytest.mark.requirement("adapter.card.both")
@pytest.mark.parametrize("path", ["/.well-known/agent-card.json", "/.well-known/agent.json"])
async def test_served_card_fits_both_protocol_versions(serving, path):
    async with serving(Silent(), name="Mute", url="https://mute.example.com/") as client:
        card = (await client.http.get(path)).json()
    assert card["name"] == "Mute"
    assert card["url"] == "https://mute.example.com/"
    assert card["preferredTransport"] == "JSONRPC"
    assert card["protocolVersion"] == "0.3.0"
    assert [skill["name"] for skill in card["skills"]] == ["Mute"]
    assert card["capabilities"]["pushNotifications"] is True
    assert card["supportedInterfaces"][0]["url"] == "https://mute.example.com/"


OLD_CARD = {
    "name": "Old",
    "description": "From before.",
    "version": "0.9",
    "url": "https://old.example.com/rpc",
    "protocolVersion": "0.3.0",
    "capabilities": {"streaming": True},
    "defaultInputModes": ["text"],
    "defaultOutputModes": ["text"],
    "skills": [{"id": "s", "name": "S", "description": "", "tags": []}],
    "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}},
    "security": [{"key": []}],
}


async def test_given_0_3_card_is_served_in_both_versions(serving):
    async with serving(Silent(), agent_card=OLD_CARD) as client:
        hybrid = (await client.http.get("/.well-known/agent.json")).json()
        headers = {"A2A-Version": "1.0"}
        clean = (await client.http.get("/.well-known/agent-card.json", headers=headers)).json()
    assert hybrid["url"] == "https://old.example.com/rpc"
    assert hybrid["security"] == [{"key": []}]
    assert hybrid["securitySchemes"]["key"]["in"] == "header"
    assert clean["supportedInterfaces"][0]["url"] == "https://old.example.com/rpc"
    assert clean["securitySchemes"] == {
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}}
    }
    assert clean["securityRequirements"] == [{"schemes": {"key": {"list": []}}}]
    assert "url" not in clean


async def test_given_card_of_the_official_sdk_is_served(serving):
    given = SdkCard(
        name="Sdk",
        description="From the SDK.",
        version="1.2",
        supported_interfaces=[
            SdkInterface(
                url="https://sdk.example.com/", protocol_binding="JSONRPC", protocol_version="1.0"
            )
        ],
        capabilities=SdkCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[SdkSkill(id="s", name="S", description="d", tags=["t"])],
    )
    async with serving(Silent(), agent_card=given) as client:
        card = (await client.http.get("/.well-known/agent-card.json")).json()
    assert (card["name"], card["url"]) == ("Sdk", "https://sdk.example.com/")
    assert [skill["id"] for skill in card["skills"]] == ["s"]


async def test_card_of_a_pydantic_kind_is_served(serving):
    class OldSdkCard:
        def model_dump(self, *, mode, by_alias, exclude_none):
            assert (mode, by_alias, exclude_none) == ("json", True, True)
            return OLD_CARD

    async with serving(Silent(), agent_card=OldSdkCard()) as client:
        assert (await client.http.get("/.well-known/agent.json")).json()["name"] == "Old"


async def test_given_agent_card_struct_is_served_unchanged(serving):
    given = build_agent_card(Silent(), name="Mine")
    async with serving(Silent(), agent_card=given) as client:
        assert (await client.http.get("/.well-known/agent.json")).json()["name"] == "Mine"


@pytest.mark.parametrize(("adapter", "streams"), [(Silent, False), (Streaming, True)])
async def test_card_that_is_written_with_an_address_is_served_there(serving, adapter, streams):
    given = AgentCard(name="Mine", description="d", url="https://mine.example.com/")
    async with serving(adapter(), agent_card=given) as client:
        hybrid = (await client.http.get("/.well-known/agent.json")).json()
        headers = {"A2A-Version": "1.0"}
        clean = (await client.http.get("/.well-known/agent-card.json", headers=headers)).json()
    assert hybrid["url"] == "https://mine.example.com/"
    assert "url" not in clean
    assert [one["url"].rstrip("/") for one in clean["supportedInterfaces"]] == [
        "https://mine.example.com"
    ] * 3
    assert clean["capabilities"]["streaming"] is streams
    assert clean["version"] == "1.0.0"
    assert clean["skills"] == []
    assert clean["defaultInputModes"] == ["text/plain"]


async def test_card_with_everything_that_0_3_requires_is_served_as_given(serving):
    given = AgentCard(
        name="Mine",
        description="Mine alone.",
        url="http://localhost:9000",
        version="2.0.0",
        capabilities=AgentCapabilities(streaming=False),
        skills=[AgentSkill("s", "S", "d", ["t"])],
        default_input_modes=["text"],
        default_output_modes=["text"],
    )
    assert given.url == "http://localhost:9000"
    async with serving(Streaming(), agent_card=given) as client:
        card = (await client.http.get("/.well-known/agent.json")).json()
    assert (card["url"], card["version"]) == ("http://localhost:9000", "2.0.0")
    assert card["capabilities"]["streaming"] is False
    assert [skill["id"] for skill in card["skills"]] == ["s"]


async def test_missing_fields_of_a_given_card_come_from_the_adapter(serving):
    adapter = Described(version="7", skills=[{"name": "Boil"}])
    async with serving(adapter, agent_card={"name": "Half"}) as client:
        card = (await client.http.get("/.well-known/agent.json")).json()
    assert (card["name"], card["version"], card["url"]) == ("Half", "7", "http://localhost:9000/")
    assert [skill["name"] for skill in card["skills"]] == ["Boil"]


async def test_given_card_without_skills_keeps_none(serving):
    async with serving(Silent(), agent_card={"name": "Bare", "skills": []}) as client:
        assert (await client.http.get("/.well-known/agent.json")).json()["skills"] == []


@pytest.mark.parametrize("card", [7, "https://example.com", {"name": 7}, {"skills": [{}]}])
def test_invalid_card_is_refused_at_once(card):
    with pytest.raises(ValueError, match="agent card"):
        to_a2a(Silent(), agent_card=card)


def test_card_and_overrides_together_are_refused():
    with pytest.raises(TypeError, match="name"):
        to_a2a(Silent(), agent_card=OLD_CARD, name="New")
