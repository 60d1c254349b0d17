"""Agent cards as bytes: clean 1.0, or a hybrid that readers of both generations understand."""

import hashlib
from typing import cast

import msgspec

from openclaw_a2a.model.card import AgentCard
from openclaw_a2a.model.ids import Json, JsonObject

_encode = msgspec.json.Encoder().encode

# The 1.0 member that holds a scheme, and what 0.3 calls the type of such a scheme.
_SCHEME_TYPES = {
    "apiKeySecurityScheme": "apiKey",
    "httpAuthSecurityScheme": "http",
    "oauth2SecurityScheme": "oauth2",
    "openIdConnectSecurityScheme": "openIdConnect",
    "mtlsSecurityScheme": "mutualTLS",
}


def card_json(card: AgentCard) -> bytes:
    """The card in 1.0, with nothing of 0.3 in it."""
    return _encode(card)


def hybrid_card_json(card: AgentCard, *, url: str, protocol_version: str = "0.3.0") -> bytes:
    """The 1.0 card with the members of 0.3 beside it; `url` is where 0.3 JSON-RPC is served."""
    members = cast(JsonObject, msgspec.to_builtins(card))
    members["protocolVersion"] = protocol_version
    members["url"] = url
    members["preferredTransport"] = "JSONRPC"
    members["additionalInterfaces"] = [{"transport": "JSONRPC", "url": url}]
    members["capabilities"]["stateTransitionHistory"] = False
    members["supportsAuthenticatedExtendedCard"] = False
    if card.security_schemes:
        members["securitySchemes"] = {
            name: _scheme_for_both(scheme) for name, scheme in card.security_schemes.items()
        }
    if card.security_requirements:
        members["security"] = [_old_requirement(each) for each in card.security_requirements]
    return _encode(members)


def v1_security_schemes(schemes: dict[str, JsonObject]) -> dict[str, JsonObject]:
    """Security schemes of either generation in the shape of 1.0."""
    return {name: _new_scheme(scheme) for name, scheme in schemes.items()}


def v1_security_requirements(security: list[dict[str, list[str]]]) -> list[JsonObject]:
    """What 0.3 calls `security`, as 1.0 has it."""
    return [
        {"schemes": {name: {"list": scopes} for name, scopes in each.items()}} for each in security
    ]


def etag(body: bytes) -> str:
    """The entity tag of a card's bytes, in quotes as the header has it."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _scheme_for_both(scheme: JsonObject) -> JsonObject:
    """The 1.0 member with the 0.3 members beside it: each reader skips what it does not know."""
    for name, scheme_type in _SCHEME_TYPES.items():
        content: Json = scheme.get(name)
        if isinstance(content, dict):
            old = dict(cast(JsonObject, content))
            if "location" in old:
                old["in"] = old.pop("location")
            return {**scheme, "type": scheme_type, **old}
    return scheme


def _new_scheme(scheme: JsonObject) -> JsonObject:
    for name, scheme_type in _SCHEME_TYPES.items():
        if scheme.get("type") == scheme_type and name not in scheme:
            content = {key: value for key, value in scheme.items() if key != "type"}
            if "in" in content:
                content["location"] = content.pop("in")
            return {name: content}
    return scheme


def _old_requirement(requirement: JsonObject) -> JsonObject:
    schemes = cast(dict[str, JsonObject], requirement.get("schemes", {}))
    return {name: scopes.get("list", []) for name, scopes in schemes.items()}
