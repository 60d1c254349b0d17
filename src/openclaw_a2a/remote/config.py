"""The section `outbound` of the settings: targets, defaults and policy.

Wrong values fall back to their defaults, except in targets: a target that cannot be read is an
error, because messages and credentials could go to the wrong place.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any, TypeVar

import msgspec

from openclaw_a2a.model.errors import Problem, SettingsInvalid
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import ProblemCollector, as_list, as_object, is_list, is_object

TOOL_NAME = "remote_agent"
SECTION = "outbound"
ERROR_PREFIX = "Invalid openclaw-a2a-outbound config:"
CARD_PATH = "/.well-known/agent-card.json"
MAX_TIMEOUT_MS = 100 * 365 * 24 * 3600 * 1000
"""A hundred years: longer durations overflow dates."""

_SECRET_REFERENCE = re.compile(r"(env|file):.+")
_TOKEN_URL = re.compile(r"https?://[^\s/?#@\\]+(/[^\s#\\]*)?")

_Group = TypeVar("_Group", bound=msgspec.Struct)


class Transport(Enum):
    """The transports of A2A, as cards name them."""

    JSONRPC = "JSONRPC"
    HTTP_JSON = "HTTP+JSON"
    GRPC = "GRPC"


DEFAULT_TRANSPORTS = (Transport.JSONRPC, Transport.HTTP_JSON)


class OAuth2Client(msgspec.Struct, frozen=True, rename="camel"):
    """Our OAuth 2 client credentials for a target.

    `client_secret` is a reference. Without `token_url` the card of the target names it; without
    `scopes` the scopes of the card are requested.
    """

    client_id: str
    client_secret: str
    scopes: tuple[str, ...] = ()
    token_url: str = ""


class Auth(msgspec.Struct, frozen=True):
    """The credentials for a target; the token may refer to environment variables."""

    kind: str
    token: str
    oauth2: OAuth2Client | None = None
    """Set for the kind `oauth2`, which has no token of its own."""

    def __repr__(self) -> str:
        """Never the token."""
        return f"Auth(kind={self.kind!r})"


class TargetConfig(msgspec.Struct, frozen=True, rename="camel"):
    """A remote agent that the operator configured."""

    alias: str
    base_url: str
    description: str | None = None
    tags: tuple[str, ...] = ()
    card_path: str = CARD_PATH
    preferred_transports: tuple[Transport, ...] = DEFAULT_TRANSPORTS
    examples: tuple[str, ...] = ()
    is_default: bool = msgspec.field(name="default", default=False)
    auth: Auth | None = None
    allowed_hosts: tuple[str, ...] = ()
    """Other addresses that its card may name: `host:port`, or `host` for all its ports."""


class Defaults(msgspec.Struct, frozen=True, rename="camel"):
    """Values for targets and calls that set none."""

    timeout_ms: int = 120_000
    card_path: str = CARD_PATH
    preferred_transports: tuple[Transport, ...] = DEFAULT_TRANSPORTS
    service_parameters: dict[str, str] = msgspec.field(default_factory=dict)


class HandleLimits(msgspec.Struct, frozen=True, rename="camel"):
    """How long task handles live and how many are kept."""

    ttl_ms: int = 86_400_000
    max_entries: int = 1000


class ContinuationTargets(Enum):
    """Which targets a continuation may name."""

    CONFIGURED = "configured"
    TRUSTED = "trusted"


class Policy(msgspec.Struct, frozen=True, rename="camel"):
    """What callers may do."""

    accepted_output_modes: tuple[str, ...] = ()
    normalize_base_url: bool = True
    enforce_supported_transports: bool = True
    allow_target_url_override: bool = False
    allow_private_targets: bool = False
    """Whether an address that only a caller named may be in the operator's own network."""
    continuation_targets: ContinuationTargets = ContinuationTargets.CONFIGURED
    transport_fallback: bool = False
    max_result_bytes: int = 262_144


class OutboundConfig(msgspec.Struct, frozen=True):
    """The whole section, complete."""

    enabled: bool = False
    defaults: Defaults = Defaults()
    targets: tuple[TargetConfig, ...] = ()
    task_handles: HandleLimits = HandleLimits()
    policy: Policy = Policy()

    @property
    def aliases(self) -> tuple[str, ...]:
        """The aliases of the targets, in their order."""
        return tuple(target.alias for target in self.targets)

    @property
    def default_target(self) -> TargetConfig | None:
        """The target of requests that name none."""
        return next((target for target in self.targets if target.is_default), None)


class InvalidTargets(TypeError, ValueError):
    """The targets cannot be read; `problems` has every reason."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        reasons = "; ".join(f"{one.path} {one.message}".strip() for one in problems)
        super().__init__(f"{ERROR_PREFIX} {reasons}")


def parse_config(value: Json) -> OutboundConfig:
    """The configuration in a JSON value. Raises: InvalidTargets."""
    section = as_object(value)
    defaults = _read(section.get("defaults"), Defaults())
    return OutboundConfig(
        enabled=_flag(section.get("enabled")) or False,
        defaults=defaults,
        targets=_parse_targets(section.get("targets", []), defaults),
        task_handles=_read(section.get("taskHandles"), HandleLimits()),
        policy=_read(section.get("policy"), Policy()),
    )


def _read(value: Json, standard: _Group) -> _Group:
    """The group of settings in an object; what is missing or wrong is as in `standard`."""
    given = as_object(value)
    found: JsonObject = {}
    for field in msgspec.structs.fields(standard):
        _, read = _KINDS[field.type]
        setting = read(given.get(field.encode_name))
        if setting is not None:
            found[field.name] = setting
    return msgspec.structs.replace(standard, **found)


def _parse_targets(value: Json, defaults: Defaults) -> tuple[TargetConfig, ...]:
    found = ProblemCollector()
    if not is_list(value):
        found.problem("targets", "must be a list")
        raise InvalidTargets(found.problems)
    read = [_parse_target(one, f"targets[{i}]", defaults, found) for i, one in enumerate(value)]
    targets = tuple(target for target in read if target is not None)
    aliases = [target.alias for target in targets]
    for alias in dict.fromkeys(one for one in aliases if aliases.count(one) > 1):
        found.problem("", f'duplicate alias "{alias}" in targets')
    marked = [f'"{target.alias}"' for target in targets if target.is_default]
    if len(marked) > 1:
        found.problem("", f"multiple default entries in targets: {', '.join(marked)}")
    if found.problems:
        raise InvalidTargets(found.problems)
    return targets


def _parse_target(
    entry: Json, path: str, defaults: Defaults, found: ProblemCollector
) -> TargetConfig | None:
    if not is_object(entry):
        found.problem(path, "must be an object")
        return None
    for key in ("alias", "baseUrl"):
        if clean_text(entry.get(key)) is None:
            found.problem(f"{path}.{key}", "must be a string that is not blank")
    standard = TargetConfig(
        alias=path,
        base_url="",
        card_path=defaults.card_path,
        preferred_transports=defaults.preferred_transports,
        auth=_parse_auth(entry.get("auth"), f"{path}.auth", found),
    )
    target = _read(entry, standard)
    hosts = tuple(host.lower() for host in target.allowed_hosts)
    return msgspec.structs.replace(target, allowed_hosts=hosts)


def _parse_auth(value: Json, path: str, found: ProblemCollector) -> Auth | None:
    """The credentials of a target. They have no defaults: unreadable ones are an error."""
    if value is None:
        return None
    if not is_object(value):
        found.problem(path, "must be an object")
        return None
    if "oauth2" in value:
        if len(value) > 1:
            found.problem(path, "must have either oauth2, or type and token")
        client = _parse_oauth2(value["oauth2"], f"{path}.oauth2", found)
        return Auth("oauth2", "", client)
    kind, token = value.get("type"), clean_text(value.get("token"))
    if kind not in ("bearer", "apiKey"):
        found.problem(f"{path}.type", "must be bearer or apiKey")
    if token is None:
        found.problem(f"{path}.token", "must be a string that is not blank")
    return Auth(str(kind), token or "")


def _parse_oauth2(value: Json, path: str, found: ProblemCollector) -> OAuth2Client | None:
    if not is_object(value):
        found.problem(path, "must be an object")
        return None
    known = [field.encode_name for field in msgspec.structs.fields(OAuth2Client)]
    found.unknown_keys(path, value, known)
    client_id, secret = clean_text(value.get("clientId")), clean_text(value.get("clientSecret"))
    scopes, url = value.get("scopes", []), value.get("tokenUrl", "")
    if client_id is None:
        found.problem(f"{path}.clientId", "must be a string that is not blank")
    elif secret is None or not _SECRET_REFERENCE.fullmatch(secret):
        found.problem(f"{path}.clientSecret", "must be a reference: env:NAME or file:PATH")
    if not is_list(scopes) or len(clean_texts(scopes)) != len(scopes):
        found.problem(f"{path}.scopes", "must be a list of strings")
    if not isinstance(url, str) or (url and not _TOKEN_URL.fullmatch(url)):
        found.problem(f"{path}.tokenUrl", "must be an http(s) address without a user name")
    return OAuth2Client(client_id or "", secret or "", clean_texts(scopes), str(url))


def clean_text(value: Json) -> str | None:
    """A string without blanks around it; None for a blank string or another kind."""
    return value.strip() or None if isinstance(value, str) else None


def clean_texts(value: Json) -> tuple[str, ...]:
    """The strings of a list, cleaned and without duplicates."""
    found = map(clean_text, as_list(value))
    return tuple(dict.fromkeys(text for text in found if text is not None))


def _flag(value: Json) -> bool | None:
    return value if isinstance(value, bool) else None


def _count(value: Json) -> int | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # To JSON, 5.0 is a whole number too.
    is_count = is_number and value >= 1 and value % 1 == 0
    return min(int(value), MAX_TIMEOUT_MS) if is_count else None


def _text_map(value: Json) -> dict[str, str]:
    return {key: text for key, text in as_object(value).items() if isinstance(text, str)}


def _transports(value: Json) -> tuple[Transport, ...] | None:
    known = {one.value: one for one in Transport}
    return tuple(known[name] for name in clean_texts(value) if name in known) or None


def _continuation_targets(value: Json) -> ContinuationTargets | None:
    name = clean_text(value)
    return next((one for one in ContinuationTargets if one.value == name), None)


# -------------------------------------------------------------------- the section in the settings


class ParsedOutbound(msgspec.Struct, frozen=True):
    """The section as it is used, and what in it is ignored or not used as written."""

    config: OutboundConfig
    warnings: tuple[Problem, ...]


def read_outbound(section: JsonObject) -> ParsedOutbound:
    """The section. Raises: SettingsInvalid (its targets cannot be read)."""
    if not section:
        return ParsedOutbound(OutboundConfig(), ())
    try:
        config = parse_config(section)
    except InvalidTargets as error:
        problems = tuple(
            Problem(
                SECTION, f"{ERROR_PREFIX} {one.path} {one.message}".replace("  ", " "), "targets"
            )
            for one in error.problems
        )
        raise SettingsInvalid(f"{SECTION}: {error}", problems=problems) from None
    return ParsedOutbound(config, tuple(_find_warnings(section)))


def _find_warnings(section: JsonObject) -> Iterable[Problem]:
    """What the published schema does not allow; without the values, which may be secret."""
    import jsonschema_rs

    validator = jsonschema_rs.Draft202012Validator(config_schema(), mask="the value")
    for error in validator.iter_errors(section):
        path = SECTION
        for step in error.instance_path:
            path += f"[{step}]" if isinstance(step, int) else f".{step}"
        if error.kind.name == "additionalProperties":
            for name in getattr(error.kind, "unexpected", ()):
                yield Problem(f"{path}.{name}", "is not a setting and is not read", "unknown-key")
        else:
            yield Problem(path, f"is not used as it is: {error.message}", error.kind.name)


# -------------------------------------------------------------------- the published schema

TEXT_SCHEMA: JsonObject = {"type": "string", "minLength": 1}
FLAG_SCHEMA: JsonObject = {"type": "boolean"}
COUNT_SCHEMA: JsonObject = {"type": "integer", "minimum": 1}
TEXT_MAP_SCHEMA: JsonObject = {"type": "object", "additionalProperties": {"type": "string"}}
TRANSPORT_SCHEMA: JsonObject = {"enum": [transport.value for transport in Transport]}


def closed_schema(properties: JsonObject, required: Sequence[str] = (), **more: Json) -> JsonObject:
    """The schema of an object that takes no other members."""
    schema: JsonObject = {"type": "object", "additionalProperties": False, **more}
    if required:
        schema["required"] = list(required)
    return {**schema, "properties": properties}


_OAUTH2_SCHEMA = closed_schema(
    {
        "clientId": TEXT_SCHEMA,
        "clientSecret": {"type": "string", "pattern": f"^{_SECRET_REFERENCE.pattern}$"},
        "scopes": {"type": "array", "items": TEXT_SCHEMA, "default": []},
        "tokenUrl": {"type": "string", "default": ""},
    },
    ["clientId", "clientSecret"],
)
_AUTH_SCHEMA: JsonObject = {
    "anyOf": [
        closed_schema(
            {"type": {"enum": ["bearer", "apiKey"]}, "token": TEXT_SCHEMA}, ["type", "token"]
        ),
        closed_schema({"oauth2": _OAUTH2_SCHEMA}, ["oauth2"]),
    ]
}
_KINDS: dict[Any, tuple[JsonObject, Callable[[Json], Json]]] = {
    bool: (FLAG_SCHEMA, _flag),
    int: (COUNT_SCHEMA, _count),
    str: ({"type": "string"}, clean_text),
    str | None: ({"type": "string"}, clean_text),
    tuple[str, ...]: ({"type": "array", "items": {"type": "string"}}, clean_texts),
    dict[str, str]: (TEXT_MAP_SCHEMA, _text_map),
    tuple[Transport, ...]: ({"type": "array", "items": TRANSPORT_SCHEMA}, _transports),
    ContinuationTargets: (
        {"enum": [one.value for one in ContinuationTargets]},
        _continuation_targets,
    ),
    Auth | None: (_AUTH_SCHEMA, lambda _: None),  # read by `_parse_auth`, which reports problems
}
"""The schema of a setting by its type, and its reader: None for a value that cannot be used."""


def config_schema() -> JsonObject:
    """The published schema of the configuration, with its defaults."""
    return closed_schema(
        {
            "enabled": {**FLAG_SCHEMA, "default": False},
            "defaults": _group_schema(Defaults),
            "targets": {"type": "array", "items": _group_schema(TargetConfig), "default": []},
            "taskHandles": _group_schema(HandleLimits),
            "policy": _group_schema(Policy),
        }
    )


def _group_schema(group: type[msgspec.Struct]) -> JsonObject:
    properties: JsonObject = {}
    required: list[str] = []
    for field in msgspec.structs.fields(group):
        name, (schema, _) = field.encode_name, _KINDS[field.type]
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        if field.required:
            required.append(name)
            schema = TEXT_SCHEMA
        elif default is not None:
            schema = {**schema, "default": msgspec.json.decode(msgspec.json.encode(default))}
        properties[name] = schema
    return closed_schema(properties, required)
