"""Renders the settings for people and editors, with secrets hidden."""

import re
from collections.abc import Iterator, Mapping

import msgspec

from openclaw_a2a.log import hide_url_secrets
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import is_list, is_object, join_path
from openclaw_a2a.settings.file_schema import ACCOUNT_ID, AGENT_ID, PEER_NAME, FileKeys
from openclaw_a2a.settings.sections import Account, AgentSettings, Settings

_HIDDEN = "(hidden)"
_SECRET_NAME = re.compile(
    r"token|secret|password|passphrase|credential|api[_-]?key|authorization", re.I
)
_REFERENCE = re.compile(r"(env|file|openclaw-config):")
_QUERY_OF_PATH = re.compile(r"(?<=^)(/[^?#\s]*)([?#])\S+$")
_DERIVED = ("id", "notRunningReason", "restPath", "agentCardAlias", "customized", "followsHost")


class SettingOrigin(msgspec.Struct, frozen=True):
    """One setting: its path, its effective value, and the source of the value."""

    path: str
    value: Json
    origin: str


def describe_settings(settings: Settings, origins: Mapping[str, str]) -> tuple[SettingOrigin, ...]:
    """Every effective setting, in the order of the file."""
    return tuple(
        SettingOrigin(path, value, _origin(path, origins))
        for path, value in _leaves("", effective_settings(settings))
    )


def effective_settings(settings: Settings) -> JsonObject:
    """The effective settings in the structure of the file, with secrets hidden."""
    peers: JsonObject = {}
    for name, peer in settings.peers.items():
        sources = [one.source for one in peer.tokens]
        shown = [f"sha256:{_HIDDEN}" if one == "sha256" else one for one in sources]
        peers[name] = {
            "tokens": shown,
            **({"certificates": list(peer.certificates)} if peer.certificates else {}),
            **({"mayApprove": True} if peer.may_approve else {}),
        }
    others: JsonObject = {}
    if settings.client_certificate_header:
        others["clientCertificateHeader"] = settings.client_certificate_header
    if settings.oidc:
        others["oidc"] = [_shown_members(one) for one in settings.oidc]
    others["policy"] = _shown_members(settings.policy)
    others["pairing"] = settings.pairing
    accounts = {account.id: _account(account) for account in settings.accounts}
    written = {"openclaw": hide_secrets(settings.openclaw)} if settings.openclaw else {}
    outbound = {"outbound": hide_secrets(settings.outbound)} if settings.outbound else {}
    return {
        "data": str(settings.data),
        "server": _shown_members(settings.server),
        "store": _shown_members(settings.store),
        "agents": {name: _agent(agent) for name, agent in settings.agents.items()},
        **written,
        "channels": {"a2a": {"accounts": accounts, "security": {"peers": peers, **others}}},
        "limits": _shown_members(settings.limits),
        "retention": _shown_members(settings.retention),
        "lease": _shown_members(settings.lease),
        "log": _shown_members(settings.log),
        "push": _shown_members(settings.push),
        **outbound,
        "tools": _shown_members(settings.tools),
        "responseRouting": _shown_members(settings.response_routing),
        "opt": _shown_members(settings.opt),
        "audit": _shown_members(settings.audit),
        "security": _shown_members(settings.security),
    }


def hide_secrets(value: Json, name: str = "") -> Json:
    """The value with everything that looks like a secret hidden; references stay."""
    if is_object(value):
        return {key: hide_secrets(member, key) for key, member in value.items()}
    if is_list(value):
        return [hide_secrets(item, name) for item in value]
    if isinstance(value, str):
        if _SECRET_NAME.search(name) and not _REFERENCE.match(value):
            return _HIDDEN
        return _hide_in_address(value)
    return value


def _hide_in_address(text: str) -> str:
    """An address or path without what may hold a key: user, query, fragment."""
    return _QUERY_OF_PATH.sub(rf"\1\2{_HIDDEN}", hide_url_secrets(text))


def _hide_in_addresses(value: Json) -> Json:
    if is_object(value):
        return {key: _hide_in_addresses(member) for key, member in value.items()}
    if is_list(value):
        return [_hide_in_addresses(item) for item in value]
    return _hide_in_address(value) if isinstance(value, str) else value


def settings_schema() -> JsonObject:
    """The JSON Schema of the settings file, for editors and checks."""
    _, parts = msgspec.json.schema_components((FileKeys,), ref_template="#/$defs/{name}")
    definitions: JsonObject = {**parts}
    for part in definitions.values():
        for member in part.get("properties", {}).values():
            # Defaults that mean "left out", or that repeat the defaults of members.
            if "$ref" in member or member.get("default") in ("", None, {}, []):
                member.pop("default", None)
    definitions["FileKeys"]["properties"]["agents"]["propertyNames"] = {"pattern": AGENT_ID}
    channel = definitions["ChannelKeys"]["properties"]
    channel["accounts"]["propertyNames"] = {"pattern": ACCOUNT_ID}
    definitions["SecurityKeys"]["properties"]["peers"]["propertyNames"] = {"pattern": PEER_NAME}
    root = definitions.pop("FileKeys")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **root,
        "title": "openclaw-a2a settings",
        "description": "Every key may be left out.",
        "$defs": definitions,
    }


def _agent(agent: AgentSettings) -> JsonObject:
    members: JsonObject = {"adapter": agent.adapter, **hide_secrets(agent.options)}
    if agent.skills:
        members["skills"] = [_shown_members(skill) for skill in agent.skills]
    if agent.allowed_targets is not None:
        members["tools"] = {"agentToAgent": {"allow": list(agent.allowed_targets)}}
    return members


def _account(account: Account) -> JsonObject:
    members = _shown_members(account)
    for skill in members["skills"]:  # as in the file, without the modes of the account
        del skill["inputModes"], skill["outputModes"]
    return {key: value for key, value in members.items() if key not in _DERIVED}


def _shown_members(value: msgspec.Struct) -> JsonObject:
    members: JsonObject = msgspec.to_builtins(value, enc_hook=str)  # paths
    return {
        key: _hide_in_addresses(member) for key, member in members.items() if member is not None
    }


def _leaves(path: str, value: Json) -> Iterator[tuple[str, Json]]:
    if not is_object(value) or not value:
        yield path, value
        return
    for key, member in value.items():
        yield from _leaves(join_path(path, key), member)


def _origin(path: str, origins: Mapping[str, str]) -> str:
    """The source of a setting or of its nearest given parent, else `default`."""
    while path:
        if path in origins:
            return origins[path]
        path = path.rpartition(".")[0]
    return "default"
