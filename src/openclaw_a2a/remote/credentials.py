"""Secrets of targets: `${NAME}` in the configuration is filled in, and kept out of all output.

The environment is read when a call is made, so that a changed value needs no new configuration.
"""

import re
from collections.abc import Mapping
from typing import cast

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.remote.config import Auth
from openclaw_a2a.remote.errors import ErrorCode, RemoteFailure

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def has_variables(text: str) -> bool:
    """True when the text refers to environment variables."""
    return _VARIABLE.search(text) is not None


def substitute(text: str, environment: Mapping[str, str]) -> str:
    """The text with `${NAME}` replaced. Raises: RemoteFailure (a variable is not set)."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name not in environment:
            raise RemoteFailure(
                ErrorCode.TARGET_RESOLUTION,
                f"the environment variable {name}, which the configuration uses, is not set",
                {
                    "reason": "missing_environment_variable",
                    "variable": name,
                    "hint": f"set {name} where the gateway runs, and start it again",
                    "suggested_action": "list_targets",
                },
            )
        return environment[name]

    return _VARIABLE.sub(value, text)


REDACTED = "[hidden]"
_MIN_SECRET_CHARS = 6
"""Shorter values are no secrets, and would be found in any text."""


def find_secrets(
    auth: Auth | None, parameters: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[str, ...]:
    """What must not be shown: the credentials, and headers with values from the environment."""
    found = [substitute(auth.token, environment)] if auth else []
    found += [
        substitute(value, environment) for value in parameters.values() if has_variables(value)
    ]
    return tuple(
        sorted({one for one in found if len(one) >= _MIN_SECRET_CHARS}, key=len, reverse=True)
    )


def redact(value: Json, secrets: tuple[str, ...]) -> Json:
    """The value with every secret in its texts replaced."""
    if not secrets:
        return value
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, REDACTED)
        return value
    if isinstance(value, dict):
        members = cast("JsonObject", value)
        return {redact(key, secrets): redact(member, secrets) for key, member in members.items()}
    if isinstance(value, list):
        return [redact(item, secrets) for item in cast("list[Json]", value)]
    return value
