"""Fresh ids."""

import os


def new_id() -> str:
    """A random id in the form of a UUID."""
    digits = os.urandom(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
