"""Large strings of stored JSON, kept by themselves and once per task: which they are.

A message is the input of its run and part of the history. The answer of an agent is an artifact
and, as a rule, the text of the last status and part of the history as well. Stores keep such a
string once, under the hash of its bytes, and refer to it wherever it belongs. Readers get the bytes
as they were written.

Events and messages are kept as long as their task, so what they refer to is needed as long:
contents are deleted with their task and need no count of references. A snapshot holds strings of
events and messages alone.
"""

import hashlib
import re
from collections.abc import Iterator
from itertools import islice

LARGE_BYTES = 32 * 1024
"""A string of this size is stored by itself; JSON that is smaller is stored as it is."""

_STRING = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL)
_MOST_STRINGS = 10_000
"""How many strings are looked at: beyond that it is no text or file but a structure."""


def find_large_strings(body: bytes) -> Iterator[tuple[int, int]]:
    """Where the large strings of JSON begin and end, without their quotes."""
    if len(body) < LARGE_BYTES:
        return
    for match in islice(_STRING.finditer(body), _MOST_STRINGS):
        first, last = match.span(1)
        if last - first >= LARGE_BYTES:
            yield first, last


def digest_of(content: bytes) -> bytes:
    """The key of a content within its task."""
    return hashlib.sha256(content).digest()
