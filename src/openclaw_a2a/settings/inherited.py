"""The variables that programs inherit from the gateway, for those who must know what they see."""

import os
from collections.abc import Mapping


def inherited_variables(given: Mapping[str, str] | None) -> Mapping[str, str]:
    """The environment a program is started with: the one given, else the gateway's own."""
    return os.environ if given is None else given
