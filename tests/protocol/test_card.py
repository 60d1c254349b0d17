"""Cards: 1.0, and a hybrid that the official types of both versions accept."""

import json

import pytest
from a2a.compat.v0_3 import types as official_v03
from a2a.types import a2a_pb2 as official_v1
from google.protobuf import json_format
from inline_snapshot import snapshot

from openclaw_a2a.model.card import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentProvider,
    AgentSkill,
)
from openclaw_a2a.protocol.card import card_json, etag, hybrid_card_json

URL = "https://agents.example/a2a/jsonrpc"
FLOWS = {
    "authorizationCode": {
        "authorizationUrl": "https://a.example",
        "tokenUrl": "https://t.example",
        "scopes": {"read": "Read"},
    }
}
SCHEMES = {
    "bearer": {"httpAuthSecurityScheme": {"scheme": "bearer", "description": "A token"}},
    "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}},
    "flow": {"oauth2SecurityScheme": {"flows": FLOWS}},
    "connect": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://o.example"}},
    "mutual": {"mtlsSecurityScheme": {}},
}


@pytest.fixture
def card() -> AgentCard:
    return AgentCard(
        name="Echo",
        description="Says it again",
        version="0.1.0",
        supported_interfaces=(
            AgentInterface(URL, "JSONRPC", "1.0"),
            AgentInterface("https://agents.example/a2a/rest", "HTTP+JSON", "1.0"),
        ),
        capabilities=AgentCapabilities(extensions=(AgentExtension("urn:x"),)),
        default_input_modes=("text/plain",),
        default_output_modes=("text/plain",),
        skills=(AgentSkill("chat", "Chat", "Talk", ("chat",), examples=("hi",)),),
        provider=AgentProvider("https://agents.example", "Example"),
        security_schemes=SCHEMES,
        security_requirements=({"schemes": {"bearer": {"list": []}, "flow": {"list": ["read"]}}},),
    )


def test_the_1_0_card_is_accepted_strictly_by_the_official_type(card: AgentCard):
    parsed = json_format.Parse(card_json(card), official_v1.AgentCard())
    assert parsed.supported_interfaces[0].url == URL
    assert parsed.security_schemes["key"].api_key_security_scheme.location == "header"
    assert parsed.security_requirements[0].schemes["flow"].list == ["read"]


def test_required_members_are_there_even_when_empty():
    card = AgentCard("a", "b", "1", (), AgentCapabilities(streaming=False), (), (), ())
    assert json.loads(card_json(card)) == snapshot(
        {
            "name": "a",
            "description": "b",
            "version": "1",
            "supportedInterfaces": [],
            "capabilities": {
                "streaming": False,
                "pushNotifications": False,
                "extensions": [],
                "extendedAgentCard": False,
            },
            "defaultInputModes": [],
            "defaultOutputModes": [],
            "skills": [],
        }
    )


def test_the_hybrid_card_means_the_same_to_readers_of_1_0(card: AgentCard):
    hybrid = json_format.Parse(
        hybrid_card_json(card, url=URL), official_v1.AgentCard(), ignore_unknown_fields=True
    )
    assert hybrid == json_format.Parse(card_json(card), official_v1.AgentCard())


def test_the_hybrid_card_is_accepted_by_the_official_0_3_type(card: AgentCard):
    old = official_v03.AgentCard.model_validate_json(hybrid_card_json(card, url=URL))
    assert (old.url, old.preferred_transport, old.protocol_version) == (URL, "JSONRPC", "0.3.0")
    assert old.additional_interfaces == [official_v03.AgentInterface(transport="JSONRPC", url=URL)]
    assert old.security == [{"bearer": [], "flow": ["read"]}]
    assert {name: scheme.root.type for name, scheme in old.security_schemes.items()} == {
        "bearer": "http",
        "key": "apiKey",
        "flow": "oauth2",
        "connect": "openIdConnect",
        "mutual": "mutualTLS",
    }
    assert old.security_schemes["key"].root.in_ is official_v03.In.header
    assert old.capabilities.state_transition_history is False


def test_the_0_3_members_of_a_hybrid_card(card: AgentCard):
    clean = json.loads(card_json(card))
    hybrid = json.loads(hybrid_card_json(card, url=URL, protocol_version="0.3.1"))
    added = {name: hybrid[name] for name in hybrid.keys() - clean.keys()}
    assert dict(sorted(added.items())) == snapshot(
        {
            "additionalInterfaces": [
                {"transport": "JSONRPC", "url": "https://agents.example/a2a/jsonrpc"}
            ],
            "preferredTransport": "JSONRPC",
            "protocolVersion": "0.3.1",
            "security": [{"bearer": [], "flow": ["read"]}],
            "supportsAuthenticatedExtendedCard": False,
            "url": "https://agents.example/a2a/jsonrpc",
        }
    )
    assert hybrid["securitySchemes"]["bearer"] == snapshot(
        {
            "httpAuthSecurityScheme": {"scheme": "bearer", "description": "A token"},
            "type": "http",
            "scheme": "bearer",
            "description": "A token",
        }
    )
    assert hybrid["capabilities"] == snapshot(
        {
            "streaming": True,
            "pushNotifications": False,
            "extensions": [{"uri": "urn:x", "required": False}],
            "extendedAgentCard": False,
            "stateTransitionHistory": False,
        }
    )


def test_a_card_without_security_has_no_security_members(card: AgentCard):
    open_card = AgentCard("a", "b", "1", (), card.capabilities, (), (), ())
    members = json.loads(hybrid_card_json(open_card, url=URL))
    assert "security" not in members
    assert "securitySchemes" not in members


def test_a_scheme_of_an_unknown_kind_is_left_as_it_is():
    card = AgentCard("a", "b", "1", (), AgentCapabilities(), (), (), ())
    strange = AgentCard(
        *(getattr(card, name) for name in AgentCard.__struct_fields__[:8]),
        security_schemes={"x": {"other": 1}},
    )
    members = json.loads(hybrid_card_json(strange, url=URL))
    assert members["securitySchemes"] == {"x": {"other": 1}}


def test_the_etag_changes_with_the_card():
    assert etag(b"a") == etag(b"a") != etag(b"b")
    assert etag(b"a").startswith('"')
    assert etag(b"a").endswith('"')
