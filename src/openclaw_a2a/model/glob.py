"""Names by patterns, as people write them in settings."""

import re
from functools import lru_cache


def matches_any(patterns: tuple[str, ...], name: str) -> bool:
    """True when a name fits one of the patterns, in capitals or not."""
    lowered = name.lower()
    return any(_pattern(one.strip().lower()).fullmatch(lowered) for one in patterns)


@lru_cache(maxsize=256)
def _pattern(glob: str) -> re.Pattern[str]:
    """Only `*` is special; fnmatch's other signs stand for themselves."""
    return re.compile(".*".join(map(re.escape, glob.split("*"))), re.DOTALL)
