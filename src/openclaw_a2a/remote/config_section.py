"""Reads the `outbound` section of the settings, and tells what is wrong with it."""

from collections.abc import Iterable

import msgspec

from openclaw_a2a.model.errors import Problem, SettingsInvalid
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.remote.config import ERROR_PREFIX, OutboundConfig, parse_config
from openclaw_a2a.remote.request.schema import config_schema

SECTION = "outbound"
_HIDDEN = "the value"


class OutboundSection(msgspec.Struct, frozen=True):
    """The section as it is in force, and what of it was not taken as it was written."""

    config: OutboundConfig
    warnings: tuple[Problem, ...]


def read_outbound(section: JsonObject) -> OutboundSection:
    """The section. Raises: SettingsInvalid (its targets cannot be read)."""
    if not section:
        return OutboundSection(OutboundConfig(), ())
    try:
        config = parse_config(section)
    except (TypeError, ValueError) as error:
        reason = str(error).removeprefix(ERROR_PREFIX).strip()
        problem = Problem(SECTION, reason, "targets")
        raise SettingsInvalid(f"{SECTION}: {reason}", problems=(problem,)) from None
    return OutboundSection(config, tuple(_warnings(section)))


def _warnings(section: JsonObject) -> Iterable[Problem]:
    """What the published schema does not know; values are never told, for some are secret."""
    import jsonschema_rs

    validator = jsonschema_rs.Draft202012Validator(config_schema(), mask=_HIDDEN)
    for error in validator.iter_errors(section):
        path = _dotted(error.instance_path)
        if error.kind.name == "additionalProperties":
            for name in getattr(error.kind, "unexpected", ()):
                yield Problem(f"{path}.{name}", "is not a setting and is not read", "unknown-key")
        else:
            yield Problem(path, f"is not used as it is: {error.message}", error.kind.name)


def _dotted(path: Iterable[Json]) -> str:
    shown = SECTION
    for step in path:
        shown += f"[{step}]" if isinstance(step, int) else f".{step}"
    return shown
