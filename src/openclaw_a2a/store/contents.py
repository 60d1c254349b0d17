"""Finds, replaces and restores the large strings of stored JSON, which are stored once per task.

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
import secrets
from collections.abc import Callable, Iterator
from itertools import islice

import msgspec

from openclaw_a2a.model.errors import CorruptRecord
from openclaw_a2a.model.records import StoredTask, TaskOutline

LARGE_BYTES = 32 * 1024
"""A string of this size is stored by itself; JSON that is smaller is stored as it is."""

MARK = 0
"""The first byte of a database row with references. JSON never begins with it."""

Reference = tuple[int, bytes]
"""Where a content belongs in the row without it, and its hash."""
_OUTLINE_MARK = b"content-%b-" % secrets.token_hex(16).encode()
"""Of this process: a peer does not know it, so no text of a peer is taken for a mark."""
_encode = msgspec.msgpack.encode
_decoder = msgspec.msgpack.Decoder(tuple[list[Reference], bytes])

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


def replace_large_strings(body: bytes, keep: Callable[[bytes, bytes], bool]) -> bytes:
    """The body with references in place of large strings.

    `keep` is called with the hash and the string; False leaves the string where it is.
    """
    references: list[Reference] = []
    rest: list[bytes] = []
    end = size = 0
    for first, last in find_large_strings(body):
        content = body[first:last]
        digest = digest_of(content)
        if keep(digest, content):
            rest.append(body[end:first])
            size += first - end
            references.append((size, digest))
            end = last
    if not references:
        return body
    rest.append(body[end:])
    return bytes([MARK]) + _encode((references, b"".join(rest)))


def restore(body: bytes, find: Callable[[bytes], bytes | None]) -> bytes:
    """A row as it was written; `find` gives the content of a hash. Raises: CorruptRecord."""
    try:
        references, rest = _decoder.decode(memoryview(body)[1:])
    except (ValueError, RecursionError) as error:
        raise CorruptRecord(
            f"a stored row cannot be read: {error}; restore the database from a backup"
        ) from error
    pieces: list[bytes] = []
    end = 0
    for place, digest in references:
        content = find(digest)
        if content is None:
            raise CorruptRecord(
                f"the stored content {digest.hex()[:16]} is missing; restore the database from a "
                "backup"
            )
        pieces += rest[end:place], content
        end = place
    return b"".join((*pieces, rest[end:]))


def list_references(body: bytes) -> list[bytes]:
    """The hashes that a row refers to."""
    digests: list[bytes] = []

    def note(digest: bytes) -> bytes:
        digests.append(digest)
        return b""

    restore(body, note)
    return digests


def mark_contents(body: bytes) -> bytes:
    """A row with marks in place of what it refers to, for `make_outline`. Raises: CorruptRecord."""
    return restore(body, lambda digest: _OUTLINE_MARK + digest.hex().encode())


def make_outline(stored: StoredTask) -> TaskOutline:
    """The outline of a task whose rows went through `mark_contents`."""
    return TaskOutline(stored, _OUTLINE_MARK, 2 * hashlib.sha256().digest_size)
