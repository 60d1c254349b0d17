"""Fresh ids."""

import os

_AT_ONCE = 256
_pool: list[str] = []


def new_id() -> str:
    """A random id in the form of a UUID.

    Randomness is taken from the system for many ids at once: a system call for each would cost
    more than everything else that happens to a short message.
    """
    if not _pool:
        digits = os.urandom(16 * _AT_ONCE).hex()
        _pool.extend(digits[start : start + 32] for start in range(0, len(digits), 32))
    digits = _pool.pop()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
