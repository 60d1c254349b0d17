"""Settings of issuers: who signs callers' tokens, for whom they are, and what they allow."""

from typing import Any

import pytest

from openclaw_a2a.settings import OidcSettings, effective_settings

Json = Any
ISSUER: Json = {"issuer": "https://login.example/realm", "audience": ["gateway"]}
PATH = "channels.a2a.security.oidc"


def with_issuers(*issuers: Json, **more: Json) -> Json:
    return {"channels": {"a2a": {"security": {"oidc": list(issuers)}}}, **more}


def test_an_issuer_needs_its_address_and_an_audience_and_is_named_after_its_host(load) -> None:
    settings = load(with_issuers(ISSUER)).settings
    [one] = settings.oidc
    assert one == OidcSettings("https://login.example/realm", ("gateway",), name="login.example")
    assert one.discovery_url == "https://login.example/realm/.well-known/openid-configuration"
    assert all(name[:2] in ("RS", "PS", "ES", "Ed") for name in one.algorithms)
    shown = effective_settings(settings)["channels"]["a2a"]["security"]["oidc"]
    assert shown[0]["issuer"] == "https://login.example/realm"


def test_a_gateway_with_an_issuer_may_be_reached_from_other_machines(load) -> None:
    settings = load(with_issuers(ISSUER, server={"host": "0.0.0.0"})).settings
    assert not settings.is_open


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"issuer": "http://login.example"}, "issuer"),
        ({"issuer": "https://me@login.example"}, "issuer"),
        ({"issuer": "https://login.example?x=1"}, "issuer"),
        ({"issuer": "login.example", "name": "n"}, "issuer"),
        ({"issuer": 5}, "issuer"),
        ({"audience": []}, "audience"),
        ({"audience": "gateway"}, "audience"),
        ({"audience": [""]}, "audience"),
        ({"algorithms": ["HS256"]}, "algorithms"),
        ({"algorithms": ["none"]}, "algorithms"),
        ({"algorithms": []}, "algorithms"),
        ({"scopes": {"x": ["everything"]}}, "scopes"),
        ({"name": "a:b"}, "name"),
        ({"name": "Local"}, "name"),
        ({"accounts": ["nobody"]}, "accounts"),
        ({"agents": ["nobody"]}, "agents"),
        ({"clockSkewSeconds": 3600}, "clockSkewSeconds"),
        ({"jwksUrl": "http://login.example/keys"}, "jwksUrl"),
        ({"audiences": ["x"]}, "audiences"),
    ],
)
def test_wrong_settings_of_an_issuer_are_problems(problems, changed: Json, path: str) -> None:
    found = problems(with_issuers({**ISSUER, **changed}))
    assert list(found) == [f"{PATH}[0].{path}"]


def test_keys_may_come_over_http_on_this_machine_only(load) -> None:
    for url in ("http://127.0.0.1:8080/realms/a", "http://localhost:8080", "http://[::1]:8080"):
        assert load(with_issuers({**ISSUER, "issuer": url, "name": "dev"})).settings.oidc


def test_issuers_with_one_name_or_one_address_are_problems(problems) -> None:
    other = {**ISSUER, "issuer": "https://login.example/other"}
    assert list(problems(with_issuers(ISSUER, other))) == [f"{PATH}[1].name"]
    twice = {**ISSUER, "name": "again"}
    assert list(problems(with_issuers(ISSUER, twice))) == [f"{PATH}[1].issuer"]
    assert list(problems({"channels": {"a2a": {"security": {"oidc": {}}}}})) == [PATH]
