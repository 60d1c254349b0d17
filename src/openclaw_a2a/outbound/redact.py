"""Keeps secrets out of what callers and logs see, whoever repeats them."""

from collections.abc import Mapping
from typing import cast

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.outbound.config import Auth
from openclaw_a2a.outbound.variables import has_variables, substitute

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
