"""Which messages were surely never seen: almost every one, told without asking the database."""

from collections.abc import Iterable

from openclaw_a2a.store.memory.state import MessageKey

_BITS = 24
_MASK = (1 << _BITS) - 1


class SeenMessages:
    """A Bloom filter over message keys: "no" is certain, "maybe" needs a look.

    Two bits each in two megabytes: with a million messages about one new message in eighty is
    looked up for nothing. It lives as long as the store is open, so Python's own hash will do.
    """

    def __init__(self, keys: Iterable[MessageKey]) -> None:
        self._bits = bytearray(1 << (_BITS - 3))
        for key in keys:
            self.add(key)

    def add(self, key: MessageKey) -> None:
        """Remember a message."""
        first, second = _places(key)
        self._bits[first >> 3] |= 1 << (first & 7)
        self._bits[second >> 3] |= 1 << (second & 7)

    def may_hold(self, key: MessageKey) -> bool:
        """False when the message was surely never added."""
        first, second = _places(key)
        bits = self._bits
        return bool(bits[first >> 3] & 1 << (first & 7) and bits[second >> 3] & 1 << (second & 7))


def _places(key: MessageKey) -> tuple[int, int]:
    code = hash(key)
    return code & _MASK, code >> _BITS & _MASK
