"""Values of the environment in the configuration: `${NAME}`, read when a call is made."""

import re
from collections.abc import Mapping
from typing import cast

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.remote.config import Auth
from openclaw_a2a.remote.errors import ErrorCode, RemoteFailure

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def has_variables(text: str) -> bool:
    """True when the text takes values from the environment."""
    return _VARIABLE.search(text) is not None


def substitute(text: str, environment: Mapping[str, str]) -> str:
    """The text with `${NAME}` replaced; a variable that is not set fails the call."""

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


HIDDEN = "[hidden]"
_LEAST = 6
"""Shorter values hide nothing, and would be found everywhere."""


def secrets_of(
    auth: Auth | None, parameters: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[str, ...]:
    """What must not be shown: credentials, and headers that come from the environment."""
    found = [substitute(auth.token, environment)] if auth else []
    found += [
        substitute(value, environment) for value in parameters.values() if has_variables(value)
    ]
    return tuple(sorted({one for one in found if len(one) >= _LEAST}, key=len, reverse=True))


def hide(value: Json, secrets: tuple[str, ...]) -> Json:
    """The value with every secret in its texts hidden."""
    if not secrets:
        return value
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, HIDDEN)
        return value
    if isinstance(value, dict):
        members = cast("JsonObject", value)
        return {hide(key, secrets): hide(member, secrets) for key, member in members.items()}
    if isinstance(value, list):
        return [hide(item, secrets) for item in cast("list[Json]", value)]
    return value
