"""Encodes agent cards: as 1.0, or as a hybrid that 0.3 clients can read too."""

import hashlib
from typing import cast

import msgspec

from openclaw_a2a.model.card import AgentCard
from openclaw_a2a.model.ids import Json, JsonObject

_encode = msgspec.json.Encoder().encode

# The 1.0 member that holds a scheme, and the 0.3 name of its type.
_SCHEME_TYPES = {
    "apiKeySecurityScheme": "apiKey",
    "httpAuthSecurityScheme": "http",
    "oauth2SecurityScheme": "oauth2",
    "openIdConnectSecurityScheme": "openIdConnect",
    "mtlsSecurityScheme": "mutualTLS",
}


def card_json(card: AgentCard) -> bytes:
    """The card in 1.0, without any member of 0.3."""
    members = cast(JsonObject, msgspec.to_builtins(card))
    members.pop("url", None)
    return _encode(members)


def hybrid_card_json(card: AgentCard, *, url: str, protocol_version: str = "0.3.0") -> bytes:
    """The 1.0 card plus the members of 0.3; `url` is the JSON-RPC address for 0.3."""
    members = cast(JsonObject, msgspec.to_builtins(card))
    members["protocolVersion"] = protocol_version
    members["url"] = url
    members["preferredTransport"] = "JSONRPC"
    members["additionalInterfaces"] = [{"transport": "JSONRPC", "url": url}]
    members["capabilities"]["stateTransitionHistory"] = False
    members["supportsAuthenticatedExtendedCard"] = False
    if card.security_schemes:
        members["securitySchemes"] = {
            name: _hybrid_scheme(scheme) for name, scheme in card.security_schemes.items()
        }
    if card.security_requirements:
        members["security"] = [_v03_requirement(each) for each in card.security_requirements]
    return _encode(members)


def v1_security_schemes(schemes: dict[str, JsonObject]) -> dict[str, JsonObject]:
    """Security schemes of either version in the format of 1.0."""
    return {name: _v1_scheme(scheme) for name, scheme in schemes.items()}


def v1_security_requirements(security: list[dict[str, list[str]]]) -> list[JsonObject]:
    """The `security` member of 0.3 in the format of 1.0."""
    return [
        {"schemes": {name: {"list": scopes} for name, scopes in each.items()}} for each in security
    ]


def etag(body: bytes) -> str:
    """The ETag of a card, in quotes."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _hybrid_scheme(scheme: JsonObject) -> JsonObject:
    """The 1.0 member plus the 0.3 members: each client ignores what it does not know."""
    for name, scheme_type in _SCHEME_TYPES.items():
        content: Json = scheme.get(name)
        if isinstance(content, dict):
            old = dict(cast(JsonObject, content))
            if "location" in old:
                old["in"] = old.pop("location")
            return {**scheme, "type": scheme_type, **old}
    return scheme


def _v1_scheme(scheme: JsonObject) -> JsonObject:
    for name, scheme_type in _SCHEME_TYPES.items():
        if scheme.get("type") == scheme_type and name not in scheme:
            content = {key: value for key, value in scheme.items() if key != "type"}
            if "in" in content:
                content["location"] = content.pop("in")
            return {name: content}
    return scheme


def _v03_requirement(requirement: JsonObject) -> JsonObject:
    schemes = cast(dict[str, JsonObject], requirement.get("schemes", {}))
    return {name: scopes.get("list", []) for name, scopes in schemes.items()}
