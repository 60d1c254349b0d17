"""Values of the environment in the configuration: `${NAME}`, read when a call is made."""

import re
from collections.abc import Mapping

from openclaw_a2a.outbound.failure import Code, RemoteFailure

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
                Code.TARGET_RESOLUTION,
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
