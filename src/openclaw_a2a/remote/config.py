"""The `outbound` section: targets, defaults and policy, read forgivingly except for targets."""

from collections.abc import Iterable
from enum import Enum
from typing import TypeGuard, TypeVar

import msgspec

from openclaw_a2a.model.ids import Json, JsonObject

ERROR_PREFIX = "Invalid openclaw-a2a-outbound config:"
CARD_PATH = "/.well-known/agent-card.json"
MOST_MS = 100 * 365 * 24 * 3600 * 1000
"""For ever, as far as clocks and calendars are concerned."""

_T = TypeVar("_T")


class Transport(Enum):
    """The ways of speaking A2A, as cards name them."""

    JSONRPC = "JSONRPC"
    HTTP_JSON = "HTTP+JSON"
    GRPC = "GRPC"


DEFAULT_TRANSPORTS = (Transport.JSONRPC, Transport.HTTP_JSON)


class Auth(msgspec.Struct, frozen=True):
    """How we show who we are to a target; the token may be a reference to an environment value."""

    kind: str
    token: str

    def __repr__(self) -> str:
        """Never the token."""
        return f"Auth(kind={self.kind!r})"


class TargetConfig(msgspec.Struct, frozen=True):
    """A remote agent the operator named."""

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
    """Other hosts than its own that its card may send us to."""


class Defaults(msgspec.Struct, frozen=True):
    """What holds when a target or a call says nothing else."""

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
    """Whether addresses that only a caller named may be in the operator's own network."""
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
        """The target that is meant when a request names none."""
        return next((target for target in self.targets if target.is_default), None)


def parse_config(value: Json) -> OutboundConfig:
    """The configuration in a JSON value; wrong values become their defaults.

    Raises:
        TypeError, ValueError: the targets cannot be read; the text begins with `PREFIX`.
    """
    section = _object(value)
    defaults = _defaults(_object(section.get("defaults")))
    return OutboundConfig(
        enabled=_flag(section.get("enabled"), default=False),
        defaults=defaults,
        targets=_targets(section.get("targets", []), defaults),
        task_handles=_handles(_object(section.get("taskHandles"))),
        policy=_policy(_object(section.get("policy"))),
    )


def _defaults(values: JsonObject) -> Defaults:
    return Defaults(
        timeout_ms=min(_count(values.get("timeoutMs"), default=120_000), MOST_MS),
        card_path=_text(values.get("cardPath")) or CARD_PATH,
        preferred_transports=_transports(values.get("preferredTransports"), DEFAULT_TRANSPORTS),
        service_parameters={
            name: text
            for name, text in _object(values.get("serviceParameters")).items()
            if isinstance(text, str)
        },
    )


def _handles(values: JsonObject) -> HandleLimits:
    return HandleLimits(
        ttl_ms=min(_count(values.get("ttlMs"), default=86_400_000), MOST_MS),
        max_entries=_count(values.get("maxEntries"), default=1000),
    )


def _policy(values: JsonObject) -> Policy:
    plain = Policy()
    return Policy(
        accepted_output_modes=_texts(values.get("acceptedOutputModes")),
        normalize_base_url=_flag(values.get("normalizeBaseUrl"), default=True),
        enforce_supported_transports=_flag(values.get("enforceSupportedTransports"), default=True),
        allow_target_url_override=_flag(values.get("allowTargetUrlOverride"), default=False),
        allow_private_targets=_flag(values.get("allowPrivateTargets"), default=False),
        continuation_targets=_member(
            values.get("continuationTargets"), ContinuationTargets, plain.continuation_targets
        ),
        transport_fallback=_flag(values.get("transportFallback"), default=False),
        max_result_bytes=_count(values.get("maxResultBytes"), default=plain.max_result_bytes),
    )


def _targets(value: Json, defaults: Defaults) -> tuple[TargetConfig, ...]:
    if not _is_list(value):
        raise TypeError(f"{ERROR_PREFIX} targets must be a list")
    targets = tuple(_target(entry, f"targets[{i}]", defaults) for i, entry in enumerate(value))
    _check_aliases(targets)
    _check_default(targets)
    return targets


def _target(entry: Json, path: str, defaults: Defaults) -> TargetConfig:
    if not _is_object(entry):
        raise TypeError(f"{ERROR_PREFIX} {path} must be an object")
    alias, base_url = _text(entry.get("alias")), _text(entry.get("baseUrl"))
    if alias is None:
        raise ValueError(f"{ERROR_PREFIX} {path}.alias must be a string that is not blank")
    if base_url is None:
        raise ValueError(f"{ERROR_PREFIX} {path}.baseUrl must be a string that is not blank")
    return TargetConfig(
        alias=alias,
        base_url=base_url,
        description=_text(entry.get("description")),
        tags=_texts(entry.get("tags")),
        card_path=_text(entry.get("cardPath")) or defaults.card_path,
        preferred_transports=_transports(
            entry.get("preferredTransports"), defaults.preferred_transports
        ),
        examples=_texts(entry.get("examples")),
        is_default=entry.get("default") is True,
        auth=_auth(entry.get("auth"), path),
        allowed_hosts=tuple(host.lower() for host in _texts(entry.get("allowedHosts"))),
    )


def _auth(value: Json, path: str) -> Auth | None:
    """How to sign in is never guessed: what cannot be read is an error."""
    if value is None:
        return None
    if not _is_object(value):
        raise TypeError(f"{ERROR_PREFIX} {path}.auth must be an object")
    kind, token = value.get("type"), _text(value.get("token"))
    if kind not in ("bearer", "apiKey"):
        raise ValueError(f"{ERROR_PREFIX} {path}.auth.type must be bearer or apiKey")
    if token is None:
        raise ValueError(f"{ERROR_PREFIX} {path}.auth.token must be a string that is not blank")
    return Auth(kind, token)


def _check_aliases(targets: tuple[TargetConfig, ...]) -> None:
    seen: set[str] = set()
    for target in targets:
        if target.alias in seen:
            raise ValueError(f'{ERROR_PREFIX} duplicate alias "{target.alias}" in targets')
        seen.add(target.alias)


def _check_default(targets: tuple[TargetConfig, ...]) -> None:
    aliases = [f'"{target.alias}"' for target in targets if target.is_default]
    if len(aliases) > 1:
        raise ValueError(
            f"{ERROR_PREFIX} multiple default entries in targets: {', '.join(aliases)}"
        )


def _is_object(value: Json) -> TypeGuard[JsonObject]:
    return isinstance(value, dict)


def _is_list(value: Json) -> TypeGuard[list[Json]]:
    return isinstance(value, list)


def _object(value: Json) -> JsonObject:
    return value if _is_object(value) else {}


def _flag(value: Json, *, default: bool) -> bool:
    return value if isinstance(value, bool) else default


def _count(value: Json, *, default: int) -> int:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # To JSON, 5.0 is a whole number too.
    is_count = is_number and value >= 1 and value % 1 == 0
    return int(value) if is_count else default


def _text(value: Json) -> str | None:
    return value.strip() or None if isinstance(value, str) else None


def _texts(value: Json) -> tuple[str, ...]:
    found = map(_text, value) if _is_list(value) else ()
    return _unique(text for text in found if text is not None)


def _transports(value: Json, default: tuple[Transport, ...]) -> tuple[Transport, ...]:
    named: Iterable[Json] = value if _is_list(value) else ()
    found: list[Transport | None] = [_member(one, Transport, None) for one in named]
    return _unique(one for one in found if one is not None) or default


def _member(value: Json, kind: type[Enum], default: Json) -> Json:
    text = value.strip() if isinstance(value, str) else value
    return next((member for member in kind if member.value == text), default)


def _unique(values: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(values))
