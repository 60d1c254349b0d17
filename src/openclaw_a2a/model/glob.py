"""Matches names against the patterns of settings."""

import re
from functools import lru_cache


def matches_any(patterns: tuple[str, ...], name: str) -> bool:
    """True when a name matches one of the patterns; case does not matter."""
    lowered = name.lower()
    return any(_pattern(one.strip().lower()).fullmatch(lowered) for one in patterns)


@lru_cache(maxsize=256)
def _pattern(glob: str) -> re.Pattern[str]:
    """Only `*` is special, unlike in fnmatch."""
    return re.compile(".*".join(map(re.escape, glob.split("*"))), re.DOTALL)
