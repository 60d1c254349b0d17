"""A Bloom filter over message ids: a new message needs no look into the database."""

from collections.abc import Iterable

from openclaw_a2a.ports import MessageKey

_BITS = 24
_MASK = (1 << _BITS) - 1


class BloomFilter:
    """A set of message keys: "not in it" is certain, "in it" must be looked up.

    Two bits per key in two megabytes: with a million messages about one new message in eighty is
    looked up in vain. It lives as long as the store is open, so Python's own hash will do.
    """

    def __init__(self, keys: Iterable[MessageKey] = ()) -> None:
        self._bits = bytearray(1 << (_BITS - 3))
        for key in keys:
            self.add(key)

    def add(self, key: MessageKey) -> None:
        """Add a key."""
        first, second = _bits_of(key)
        self._bits[first >> 3] |= 1 << (first & 7)
        self._bits[second >> 3] |= 1 << (second & 7)

    def may_contain(self, key: MessageKey) -> bool:
        """False if the key was certainly never added."""
        first, second = _bits_of(key)
        bits = self._bits
        return bool(bits[first >> 3] & 1 << (first & 7) and bits[second >> 3] & 1 << (second & 7))


def _bits_of(key: MessageKey) -> tuple[int, int]:
    code = hash(key)
    return code & _MASK, code >> _BITS & _MASK
