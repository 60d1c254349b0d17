"""The section `outbound` of the settings: targets, defaults and policy.

Wrong values fall back to their defaults, except in targets: a target that cannot be read is an
error, because messages and credentials could go to the wrong place.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TypeVar

import msgspec

from openclaw_a2a.model.errors import Problem, SettingsInvalid
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import ProblemCollector, is_list, is_object

TOOL_NAME = "remote_agent"
SECTION = "outbound"
ERROR_PREFIX = "Invalid openclaw-a2a-outbound config:"
CARD_PATH = "/.well-known/agent-card.json"
MAX_TIMEOUT_MS = 100 * 365 * 24 * 3600 * 1000
"""A hundred years: more than clocks and calendars can add."""

_T = TypeVar("_T")


class Transport(Enum):
    """The transports of A2A, as cards name them."""

    JSONRPC = "JSONRPC"
    HTTP_JSON = "HTTP+JSON"
    GRPC = "GRPC"


DEFAULT_TRANSPORTS = (Transport.JSONRPC, Transport.HTTP_JSON)


class Auth(msgspec.Struct, frozen=True):
    """The credentials for a target; the token may refer to environment variables."""

    kind: str
    token: str

    def __repr__(self) -> str:
        """Never the token."""
        return f"Auth(kind={self.kind!r})"


class TargetConfig(msgspec.Struct, frozen=True):
    """A remote agent that the operator configured."""

    alias: str
    base_url: str
    description: str | None = None
    tags: tuple[str, ...] = ()
    card_path: str = CARD_PATH
    preferred_transports: tuple[Transport, ...] = DEFAULT_TRANSPORTS
    examples: tuple[str, ...] = ()
    is_default: bool = False
    auth: Auth | None = None
    allowed_hosts: tuple[str, ...] = ()
    """Hosts besides its own that its card may name as interfaces."""


class Defaults(msgspec.Struct, frozen=True):
    """Values for targets and calls that set none."""

    timeout_ms: int = 120_000
    card_path: str = CARD_PATH
    preferred_transports: tuple[Transport, ...] = DEFAULT_TRANSPORTS
    service_parameters: dict[str, str] = msgspec.field(default_factory=dict)


class HandleLimits(msgspec.Struct, frozen=True):
    """How long task handles live and how many are kept."""

    ttl_ms: int = 86_400_000
    max_entries: int = 1000


class ContinuationTargets(Enum):
    """Which targets a continuation may name."""

    CONFIGURED = "configured"
    TRUSTED = "trusted"


class Policy(msgspec.Struct, frozen=True):
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
    section = _object(value)
    defaults = _parse_defaults(_object(section.get("defaults")))
    handles = _object(section.get("taskHandles"))
    return OutboundConfig(
        enabled=_flag(section.get("enabled"), default=False),
        defaults=defaults,
        targets=_parse_targets(section.get("targets", []), defaults),
        task_handles=HandleLimits(
            ttl_ms=min(_count(handles.get("ttlMs"), default=86_400_000), MAX_TIMEOUT_MS),
            max_entries=_count(handles.get("maxEntries"), default=1000),
        ),
        policy=_parse_policy(_object(section.get("policy"))),
    )


def _parse_defaults(values: JsonObject) -> Defaults:
    parameters = _object(values.get("serviceParameters"))
    return Defaults(
        timeout_ms=min(_count(values.get("timeoutMs"), default=120_000), MAX_TIMEOUT_MS),
        card_path=clean_text(values.get("cardPath")) or CARD_PATH,
        preferred_transports=_transports(values.get("preferredTransports"), DEFAULT_TRANSPORTS),
        service_parameters={k: text for k, text in parameters.items() if isinstance(text, str)},
    )


def _parse_policy(values: JsonObject) -> Policy:
    default = Policy()
    return Policy(
        accepted_output_modes=clean_texts(values.get("acceptedOutputModes")),
        normalize_base_url=_flag(values.get("normalizeBaseUrl"), default=True),
        enforce_supported_transports=_flag(values.get("enforceSupportedTransports"), default=True),
        allow_target_url_override=_flag(values.get("allowTargetUrlOverride"), default=False),
        allow_private_targets=_flag(values.get("allowPrivateTargets"), default=False),
        continuation_targets=_member(
            values.get("continuationTargets"), ContinuationTargets, default.continuation_targets
        ),
        transport_fallback=_flag(values.get("transportFallback"), default=False),
        max_result_bytes=_count(values.get("maxResultBytes"), default=default.max_result_bytes),
    )


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
    return TargetConfig(
        alias=clean_text(entry.get("alias")) or path,
        base_url=clean_text(entry.get("baseUrl")) or "",
        description=clean_text(entry.get("description")),
        tags=clean_texts(entry.get("tags")),
        card_path=clean_text(entry.get("cardPath")) or defaults.card_path,
        preferred_transports=_transports(
            entry.get("preferredTransports"), defaults.preferred_transports
        ),
        examples=clean_texts(entry.get("examples")),
        is_default=entry.get("default") is True,
        auth=_parse_auth(entry.get("auth"), f"{path}.auth", found),
        allowed_hosts=tuple(host.lower() for host in clean_texts(entry.get("allowedHosts"))),
    )


def _parse_auth(value: Json, path: str, found: ProblemCollector) -> Auth | None:
    """Credentials are never guessed: what cannot be read is an error."""
    if value is None:
        return None
    if not is_object(value):
        found.problem(path, "must be an object")
        return None
    kind, token = value.get("type"), clean_text(value.get("token"))
    if kind not in ("bearer", "apiKey"):
        found.problem(f"{path}.type", "must be bearer or apiKey")
    if token is None:
        found.problem(f"{path}.token", "must be a string that is not blank")
    return Auth(str(kind), token or "")


def _object(value: Json) -> JsonObject:
    return value if is_object(value) else {}


def _flag(value: Json, *, default: bool) -> bool:
    return value if isinstance(value, bool) else default


def _count(value: Json, *, default: int) -> int:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # To JSON, 5.0 is a whole number too.
    is_count = is_number and value >= 1 and value % 1 == 0
    return int(value) if is_count else default


def clean_text(value: Json) -> str | None:
    """A string without blanks around it; None for a blank string or another kind."""
    return value.strip() or None if isinstance(value, str) else None


def clean_texts(value: Json) -> tuple[str, ...]:
    """The strings of a list, cleaned and without duplicates."""
    found = map(clean_text, value) if is_list(value) else ()
    return _unique(text for text in found if text is not None)


def _transports(value: Json, default: tuple[Transport, ...]) -> tuple[Transport, ...]:
    named: Iterable[Json] = value if is_list(value) else ()
    found: list[Transport | None] = [_member(one, Transport, None) for one in named]
    return _unique(one for one in found if one is not None) or default


def _member(value: Json, kind: type[Enum], default: Json) -> Json:
    text = value.strip() if isinstance(value, str) else value
    return next((member for member in kind if member.value == text), default)


def _unique(values: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(values))


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
            Problem(SECTION, f"{one.path} {one.message}".strip(), "targets")
            for one in error.problems
        )
        reason = "; ".join(one.message for one in problems)
        raise SettingsInvalid(f"{SECTION}: {reason}", problems=problems) from None
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


def config_schema() -> JsonObject:
    """The published schema of the configuration, with its defaults."""
    transports: JsonObject = {
        "type": "array",
        "items": TRANSPORT_SCHEMA,
        "default": [one.value for one in DEFAULT_TRANSPORTS],
    }
    texts: JsonObject = {"type": "array", "items": {"type": "string"}, "default": []}
    auth = closed_schema(
        {"type": {"enum": ["bearer", "apiKey"]}, "token": TEXT_SCHEMA}, ["type", "token"]
    )
    target = closed_schema(
        {
            "alias": TEXT_SCHEMA,
            "baseUrl": TEXT_SCHEMA,
            "description": {"type": "string"},
            "tags": texts,
            "cardPath": {"type": "string", "default": CARD_PATH},
            "preferredTransports": transports,
            "examples": texts,
            "default": {**FLAG_SCHEMA, "default": False},
            "auth": auth,
            "allowedHosts": texts,
        },
        ["alias", "baseUrl"],
    )
    return closed_schema(
        {
            "enabled": {**FLAG_SCHEMA, "default": False},
            "defaults": closed_schema(
                {
                    "timeoutMs": {**COUNT_SCHEMA, "default": 120_000},
                    "cardPath": {"type": "string", "default": CARD_PATH},
                    "preferredTransports": transports,
                    "serviceParameters": {**TEXT_MAP_SCHEMA, "default": {}},
                }
            ),
            "targets": {"type": "array", "items": target, "default": []},
            "taskHandles": closed_schema(
                {
                    "ttlMs": {**COUNT_SCHEMA, "default": 86_400_000},
                    "maxEntries": {**COUNT_SCHEMA, "default": 1000},
                }
            ),
            "policy": closed_schema(
                {
                    "acceptedOutputModes": texts,
                    "normalizeBaseUrl": {**FLAG_SCHEMA, "default": True},
                    "enforceSupportedTransports": {**FLAG_SCHEMA, "default": True},
                    "allowTargetUrlOverride": {**FLAG_SCHEMA, "default": False},
                    "allowPrivateTargets": {**FLAG_SCHEMA, "default": False},
                    "continuationTargets": {
                        "enum": ["configured", "trusted"],
                        "default": "configured",
                    },
                    "transportFallback": {**FLAG_SCHEMA, "default": False},
                    "maxResultBytes": {**COUNT_SCHEMA, "default": 262_144},
                }
            ),
        }
    )
