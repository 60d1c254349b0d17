"""Resolves references to tokens at the moment of use: `env:`, `file:` and `openclaw-config:`."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from openclaw_a2a.model.errors import SettingsInvalid
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import is_object
from openclaw_a2a.settings.json5_file import read_text_file
from openclaw_a2a.settings.openclaw.config_file import OpenClawConfig, read_config
from openclaw_a2a.settings.paths import expand_path

OPENCLAW_CONFIG = "openclaw-config:"
"""Prefix of a reference to an OpenClaw config: the token of the gateway it configures."""

TOKEN_VARIABLE = "OPENCLAW_GATEWAY_TOKEN"  # noqa: S105 - a name, not a secret
"""The variable that OpenClaw's own clients read."""

GENERATE_TOKEN_COMMAND = "openclaw doctor --generate-gateway-token"  # noqa: S105 - a name, not a secret
"""OpenClaw's command that generates a gateway token."""

_MAX_BYTES = 1024 * 1024
_SHORTHAND = re.compile(r"\$\{?([A-Z][A-Z0-9_]{0,127})\}?")
_HOW_TO_SET = f"set {TOKEN_VARIABLE}, or openclaw.token in the settings"


def resolve_token(reference: str, *, environ: Mapping[str, str] | None = None) -> str:
    """The token of a reference, read now, so that a changed token needs no restart.

    `env:NAME` is a variable, `file:PATH` a file, `openclaw-config:PATH` the token of the gateway
    of an OpenClaw config; any other text is the token itself.

    Raises:
        SettingsInvalid: there is no token; the message says why and what to do.
    """
    environment = os.environ if environ is None else environ
    scheme, _, rest = reference.partition(":")
    if scheme == "env" and rest:
        return _require(environment.get(rest), f"the variable {rest} is not set; set it")
    if scheme == "file" and rest:
        return _require(_file_text(rest), f"the file {rest} has no token that can be read")
    if scheme + ":" == OPENCLAW_CONFIG and rest:
        config = read_config(Path(rest), environment)
        return _require(gateway_token(config), missing_token(config))
    return reference


def absolute_reference(reference: str, folder: Path) -> str:
    """The reference with an absolute path."""
    scheme, _, rest = reference.partition(":")
    try:
        return f"file:{expand_path(rest, folder)}" if scheme == "file" else reference
    except ValueError:
        return reference


def gateway_token(config: OpenClawConfig) -> str | None:
    """The token that OpenClaw's own clients would use; None when it cannot be read."""
    environment = config.variables.get(TOKEN_VARIABLE)
    local = config.section("gateway", "auth").get("token")
    remote = config.section("gateway", "remote").get("token")
    is_remote = config.section("gateway").get("mode") == "remote"
    first, last = (remote, local) if is_remote else (local, remote)
    if first not in (None, ""):
        return _resolved(config, first)
    return environment or _resolved(config, last)


def missing_token(config: OpenClawConfig) -> str:
    """Why there is no token, and what to do."""
    token = config.section("gateway", "auth").get("token")
    if not config.is_readable:
        return f"OpenClaw's config cannot be read: {config.warnings[0]}"
    if is_object(token):
        source = token.get("source")
        kind = source if source in ("exec", "store", "file", "env") else "unknown"
        return (
            f"gateway.auth.token of {config.path} is a secret of the source {kind}, which could "
            f"not be read here; {_HOW_TO_SET}"
        )
    if token:
        return (
            f"gateway.auth.token of {config.path} names a variable that is not set; {_HOW_TO_SET}"
        )
    return f"{config.path} has no gateway.auth.token; make one with: {GENERATE_TOKEN_COMMAND}"


def _resolved(config: OpenClawConfig, value: Json) -> str | None:
    if is_object(value):
        return _secret(config, value)
    if isinstance(value, str) and (name := _SHORTHAND.fullmatch(value.strip())):
        return config.variables.get(name[1])
    return config.fill(value)


def _secret(config: OpenClawConfig, reference: JsonObject) -> str | None:
    source, name = reference.get("source"), reference.get("id")
    if not isinstance(name, str):
        return None
    if source == "env":
        return config.variables.get(name)
    if source == "file":
        return _file_secret(config, reference, name)
    return None


def _file_secret(config: OpenClawConfig, reference: JsonObject, name: str) -> str | None:
    alias = reference.get("provider") or config.section("secrets", "defaults").get("file")
    provider = config.section("secrets", "providers", str(alias))
    path = config.fill(provider.get("path"))
    text = _file_text(path, config.path.parent) if path else None
    if text is None or provider.get("mode") == "singleValue":
        return text
    return _select_pointer(text, name)


def _select_pointer(text: str, pointer: str) -> str | None:
    """The string that a JSON pointer selects in a JSON text; None when there is none."""
    try:
        value: Json = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return None
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        value = value.get(key) if is_object(value) else None
    return value if isinstance(value, str) and value else None


def _file_text(name: str, folder: Path | None = None) -> str | None:
    try:
        place = expand_path(name, folder or Path.cwd())
        if not place.is_file():
            return None
        return read_text_file(place, max_bytes=_MAX_BYTES).strip() or None
    except (OSError, ValueError):
        return None


def _require(token: str | None, otherwise: str) -> str:
    if token and token.strip():
        return token.strip()
    raise SettingsInvalid(otherwise)
