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
    others: JsonObject = {
        "data": str(settings.data),
        "agents": {name: _agent(agent) for name, agent in settings.agents.items()},
        "channels": {"a2a": _channel(settings)},
        "openclaw": _hide(settings.openclaw, by_name=True),
        "outbound": _hide(settings.outbound, by_name=True),
    }
    shown: JsonObject = {}
    for field in msgspec.structs.fields(FileKeys)[1:]:  # all but `$schema`
        name = field.encode_name
        value = others[name] if name in others else _shown_members(getattr(settings, field.name))
        if value or name not in ("openclaw", "outbound"):  # those may have been left out
            shown[name] = value
    return shown


def _channel(settings: Settings) -> JsonObject:
    peers: JsonObject = {}
    for name, peer in settings.peers.items():
        sources = [one.source for one in peer.tokens]
        shown = [f"sha256:{_HIDDEN}" if one == "sha256" else one for one in sources]
        peers[name] = {
            "tokens": shown,
            **({"certificates": list(peer.certificates)} if peer.certificates else {}),
            **({"mayApprove": True} if peer.may_approve else {}),
        }
    security: JsonObject = {"peers": peers}
    if settings.client_certificate_header:
        security["clientCertificateHeader"] = settings.client_certificate_header
    if settings.oidc:
        security["oidc"] = [_shown_members(one) for one in settings.oidc]
    security["policy"] = _shown_members(settings.policy)
    security["pairing"] = settings.pairing
    return {"accounts": {one.id: _account(one) for one in settings.accounts}, "security": security}


def _hide(value: Json, *, by_name: bool, name: str = "") -> Json:
    """The value without user, query and fragment of addresses, which may hold a key.

    With `by_name` also without texts whose key is one of secrets; references stay.
    """
    if is_object(value):
        return {key: _hide(member, by_name=by_name, name=key) for key, member in value.items()}
    if is_list(value):
        return [_hide(item, by_name=by_name, name=name) for item in value]
    if not isinstance(value, str):
        return value
    if by_name and _SECRET_NAME.search(name) and not _REFERENCE.match(value):
        return _HIDDEN
    return _QUERY_OF_PATH.sub(rf"\1\2{_HIDDEN}", hide_url_secrets(value))


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
    members: JsonObject = {"adapter": agent.adapter, **_hide(agent.options, by_name=True)}
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
    shown = {key: member for key, member in members.items() if member is not None}
    return _hide(shown, by_name=False)


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
