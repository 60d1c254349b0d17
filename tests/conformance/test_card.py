"""The agent card, for clients of both protocol versions."""

from importlib.metadata import version

import pytest
from a2a import types as v1_types
from a2a.compat.v0_3 import types as v03_types
from google.protobuf import json_format
from tests.conformance.conftest import Start, peers
from tests.conformance.scripted_agent import ScriptedAgent

from openclaw_a2a.model.agent_event import Reply

CARD = "/.well-known/agent-card.json"
ONLY_V03 = {
    "url",
    "protocolVersion",
    "preferredTransport",
    "additionalInterfaces",
    "security",
    "supportsAuthenticatedExtendedCard",
}


def _agent() -> ScriptedAgent:
    return ScriptedAgent(Reply.of_text("hello"))


@pytest.mark.requirement("inbound.card.hybrid-by-default", "wire.card.v03-required-members")
async def test_card_without_a_version_serves_clients_of_both_generations(start: Start) -> None:
    http = await start(_agent())
    response = await http.get(CARD)
    assert (response.status, response.media_type) == (200, "application/json")
    old = v03_types.AgentCard.model_validate(response.json)
    new = json_format.ParseDict(response.json, v1_types.AgentCard(), ignore_unknown_fields=True)
    assert old.name == new.name
    assert old.url in [interface.url for interface in new.supported_interfaces]


@pytest.mark.requirement("inbound.card.clean-when-asked", "wire.card.required-members")
async def test_the_1_0_card_parses_strictly_and_has_no_0_3_members(start: Start) -> None:
    http = await start(_agent())
    card = (await http.get(CARD, a2a_version="1.0")).json
    parsed = json_format.ParseDict(card, v1_types.AgentCard())
    assert not ONLY_V03 & card.keys()
    assert parsed.name and parsed.description and parsed.version
    assert parsed.supported_interfaces and parsed.skills
    assert parsed.default_input_modes and parsed.default_output_modes
    assert "capabilities" in card


@pytest.mark.requirement("inbound.card.vary")
async def test_the_card_response_varies_by_version(start: Start) -> None:
    http = await start(_agent())
    for headers in ({}, {"a2a_version": "1.0"}):
        response = await http.get(CARD, **headers)
        assert "a2a-version" in response.headers["vary"].lower()


@pytest.mark.requirement("inbound.card.members", "inbound.account.protocol-version")
async def test_card_has_the_members_of_the_contract(start: Start) -> None:
    http = await start(_agent(), account={"label": "Robin", "description": "Knows birds."})
    card = (await http.get(CARD)).json
    assert card["name"] == "Robin"
    assert card["description"] == "Knows birds."
    assert card["protocolVersion"] == "0.3.0"
    assert card["version"] == version("openclaw-a2a")
    assert card["preferredTransport"] == "JSONRPC"
    assert {"transport": "JSONRPC", "url": card["url"]} in card["additionalInterfaces"]
    assert card["defaultInputModes"] == ["text/plain", "application/json"]
    assert card["defaultOutputModes"] == ["text/plain", "application/json"]
    (skill,) = card["skills"]
    assert (skill["id"], skill["name"], skill["tags"]) == ("chat", "Chat", ["chat", "openclaw"])
    assert skill["description"] and skill["examples"]


@pytest.mark.requirement("inbound.account.label", "inbound.account.description")
async def test_card_of_an_unlabelled_account_is_named_by_its_id(start: Start) -> None:
    http = await start(_agent())
    card = (await http.get(CARD)).json
    assert card["name"] == "default"
    assert card["description"]


@pytest.mark.requirement("inbound.account.protocol-version")
async def test_protocol_version_of_the_card_can_be_set(start: Start) -> None:
    http = await start(_agent(), account={"protocolVersion": "0.3.1"})
    assert (await http.get(CARD)).json["protocolVersion"] == "0.3.1"


@pytest.mark.requirement("inbound.card.url")
@pytest.mark.parametrize("base", ["https://gate.example", "https://gate.example/"])
async def test_card_url_is_the_public_address_joined_with_the_path(start: Start, base: str) -> None:
    http = await start(_agent(), account={"publicBaseUrl": base, "jsonRpcPath": "/rpc"})
    assert (await http.get(CARD)).json["url"] == "https://gate.example/rpc"


@pytest.mark.requirement("inbound.card.url")
async def test_card_urls_keep_the_path_of_the_public_base_url(start: Start) -> None:
    http = await start(_agent(), account={"publicBaseUrl": "https://gate.example/under"})
    assert (await http.get(CARD)).json["url"] == "https://gate.example/under/a2a/jsonrpc"


@pytest.mark.requirement("inbound.card.capabilities", "inbound.card.push-not-offered")
@pytest.mark.parametrize("has_push", [True, False])
async def test_the_card_declares_streaming_and_push(start: Start, has_push: bool) -> None:
    account = {} if has_push else {"pushNotifications": False}
    http = await start(_agent(), account=account)
    old = (await http.get(CARD)).json["capabilities"]
    new = (await http.get(CARD, a2a_version="1.0")).json["capabilities"]
    assert old["streaming"] is True
    assert old["stateTransitionHistory"] is False
    assert old["pushNotifications"] is has_push
    assert new["streaming"] is True
    assert bool(new.get("pushNotifications")) is has_push
    assert not new.get("extendedAgentCard")
    assert "stateTransitionHistory" not in new


@pytest.mark.requirement("wire.card.interfaces")
async def test_card_names_both_bindings_and_prefers_json_rpc(start: Start) -> None:
    http = await start(_agent(), account={"publicBaseUrl": "https://gate.example"})
    interfaces = (await http.get(CARD, a2a_version="1.0")).json["supportedInterfaces"]
    first = interfaces[0]
    assert (first["protocolBinding"], first["protocolVersion"]) == ("JSONRPC", "1.0")
    assert first["url"] == "https://gate.example/a2a/jsonrpc"
    rest = [one for one in interfaces if one["protocolBinding"] == "HTTP+JSON"]
    assert [(one["url"], one["protocolVersion"]) for one in rest] == [
        ("https://gate.example/a2a/rest", "1.0")
    ]


@pytest.mark.requirement("inbound.card.skills-repeat-modes", "inbound.card.skill-description")
async def test_skills_repeat_the_modes_and_fall_back_to_their_name(start: Start) -> None:
    account = {
        "skills": [{"id": "sing", "name": "Singing", "tags": ["music"]}],
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain", "audio/ogg"],
    }
    http = await start(_agent(), account=account)
    (skill,) = (await http.get(CARD)).json["skills"]
    assert skill["description"] == "Singing"
    assert skill["inputModes"] == ["text/plain"]
    assert skill["outputModes"] == ["text/plain", "audio/ogg"]


@pytest.mark.requirement("wire.card.etag")
async def test_a_card_with_a_matching_etag_is_not_sent_again(start: Start) -> None:
    http = await start(_agent())
    first = await http.get(CARD)
    again = await http.get(CARD, if_none_match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    other = await http.get(CARD, if_none_match='"something-else"')
    assert other.status == 200


@pytest.mark.requirement("wire.card.etag")
async def test_cards_of_the_two_generations_have_different_tags(start: Start) -> None:
    http = await start(_agent())
    hybrid, clean = await http.get(CARD), await http.get(CARD, a2a_version="1.0")
    assert hybrid.headers["etag"] != clean.headers["etag"]


@pytest.mark.requirement("wire.card.cache-control")
async def test_the_card_response_has_a_cache_lifetime(start: Start) -> None:
    http = await start(_agent())
    assert "max-age=" in (await http.get(CARD)).headers["cache-control"]


@pytest.mark.requirement("inbound.card.old-address")
async def test_card_is_also_at_its_old_address(start: Start) -> None:
    http = await start(_agent())
    assert (await http.get("/.well-known/agent.json")).json == (await http.get(CARD)).json


@pytest.mark.requirement("inbound.card.public", "wire.card.security")
async def test_the_card_is_public_and_declares_the_schemes_of_tokens(start: Start) -> None:
    http = await start(_agent(), settings=peers("alice"))
    old = v03_types.AgentCard.model_validate((await http.get(CARD)).json)
    clean = (await http.get(CARD, a2a_version="1.0")).json
    new = json_format.ParseDict(clean, v1_types.AgentCard())
    assert old.security_schemes and old.security
    name, api_key = old.security_schemes
    scheme = old.security_schemes[name].root
    assert isinstance(scheme, v03_types.HTTPAuthSecurityScheme)
    assert scheme.scheme.lower() == "bearer"
    assert isinstance(old.security_schemes[api_key].root, v03_types.APIKeySecurityScheme)
    assert old.security == [{name: []}, {api_key: []}]
    assert new.security_schemes[name].http_auth_security_scheme.scheme.lower() == "bearer"
    assert new.security_schemes[api_key].api_key_security_scheme.name == "X-API-Key"
    assert [list(one.schemes) for one in new.security_requirements] == [[name], [api_key]]


@pytest.mark.requirement("wire.card.security")
async def test_card_of_an_open_gateway_names_no_security(start: Start) -> None:
    http = await start(_agent())
    card = (await http.get(CARD)).json
    assert not card.get("securitySchemes")
    assert not card.get("security")


@pytest.mark.requirement("inbound.account.card-path")
async def test_card_moves_with_its_path_and_gets_a_leading_slash(start: Start) -> None:
    http = await start(_agent(), account={"agentCardPath": "cards/robin.json"})
    assert (await http.get("/cards/robin.json")).status == 200


PUBLIC_BIND = {"server.host": "0.0.0.0", **peers("alice")}


@pytest.mark.requirement("inbound.card.follows-host")
@pytest.mark.parametrize(
    "host",
    ["agents.example.com", "agents.example.com:8443", "192.0.2.7:9900", "[2001:db8::7]:9900"],
)
async def test_the_card_of_a_public_bind_names_the_host_by_which_it_is_asked_for(
    start: Start, host: str
) -> None:
    http = await start(_agent(), settings=PUBLIC_BIND)
    for headers in ({}, {"a2a_version": "1.0"}):
        card = await http.get(CARD, host=host.upper(), **headers)
        addresses = {one["url"] for one in card.json["supportedInterfaces"]}
        assert addresses == {f"http://{host}/a2a/jsonrpc", f"http://{host}/a2a/rest"}
        assert "host" in card.headers["vary"].lower()
        again = await http.get(CARD, host=host, if_none_match=card.headers["etag"], **headers)
        assert again.status == 304
        other = await http.get(CARD, host="other", if_none_match=card.headers["etag"], **headers)
        assert other.status == 200
    listed = await http.get("/agents", host=host)
    assert f'"url":"http://{host}/a2a/jsonrpc"' in listed.body.decode()


@pytest.mark.requirement("inbound.card.follows-host")
async def test_the_card_behind_a_proxy_with_tls_names_https(start: Start) -> None:
    http = await start(_agent(), settings=PUBLIC_BIND)
    for says, scheme in (("https", "https"), ("HTTPS, http", "https"), ("gopher", "http")):
        card = await http.get(CARD, host="agents.example.com", x_forwarded_proto=says)
        assert card.json["url"] == f"{scheme}://agents.example.com/a2a/jsonrpc"
        assert "x-forwarded-proto" in card.headers["vary"].lower()


@pytest.mark.requirement("inbound.card.follows-host")
@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example/path",
        "user@evil.example",
        "evil.example#",
        "evil.example?x",
        'evil"example',
        "evil example",
        "a..b",
        "-a",
        "a:0",
        "a:65536",
        "a:80:80",
        "[::1",
        "a" * 300,
    ],
)
async def test_a_host_that_is_none_is_not_on_the_card(start: Start, host: str) -> None:
    http = await start(_agent(), settings=PUBLIC_BIND)
    card = await http.get(CARD, host=host)
    assert card.json["url"] == "http://localhost:9900/a2a/jsonrpc"


@pytest.mark.requirement("inbound.card.follows-host")
async def test_hosts_that_a_client_invents_do_not_add_up(start: Start) -> None:
    http = await start(_agent(), settings=PUBLIC_BIND)
    for number in range(100):
        card = await http.get(CARD, host=f"host-{number}")
        assert card.json["url"] == f"http://host-{number}/a2a/jsonrpc"


@pytest.mark.requirement("inbound.card.follows-host")
@pytest.mark.parametrize(
    "settings",
    [
        {**PUBLIC_BIND, "server.publicBaseUrl": "http://set.example"},
        {**PUBLIC_BIND, "channels.a2a.accounts.default.publicBaseUrl": "http://set.example"},
        {"server.host": "127.0.0.1", "server.publicBaseUrl": "http://set.example"},
    ],
)
async def test_a_public_address_that_is_set_is_on_the_card_whatever_the_host(
    start: Start, settings: dict[str, object]
) -> None:
    http = await start(_agent(), settings=settings)
    card = await http.get(CARD, host="other.example")
    assert card.json["url"] == "http://set.example/a2a/jsonrpc"


@pytest.mark.requirement("inbound.card.follows-host")
async def test_the_card_of_a_local_gateway_does_not_follow_the_host(start: Start) -> None:
    http = await start(_agent())
    card = await http.get(CARD, host="other.example")
    assert card.json["url"] == "http://127.0.0.1:9900/a2a/jsonrpc"
