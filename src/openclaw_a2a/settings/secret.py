"""Secrets: known by where they come from and by their digest, never by their text."""

import hashlib
import hmac
from typing import NoReturn

_HIDDEN = "(hidden)"


class Secret:
    """A token that was given as a reference or a hash; only its SHA-256 digest is kept.

    `source` says where it came from (`env:NAME`, `file:PATH` or `sha256`) and is safe to show.
    Printing, formatting or encoding a secret never shows the digest.
    """

    __slots__ = ("_digest", "source")

    def __init__(self, source: str, digest: bytes) -> None:
        self.source = source
        self._digest = digest

    @classmethod
    def of_text(cls, source: str, text: str) -> "Secret":
        """The secret whose token is `text`."""
        return cls(source, hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest())

    @property
    def digest(self) -> bytes:
        """SHA-256 of the token, for looking a caller up; 32 bytes."""
        return self._digest

    def matches(self, token: str) -> bool:
        """True when this is the token; takes the same time for every wrong one."""
        given = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        return hmac.compare_digest(self._digest, given)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._digest, other.digest)

    def __hash__(self) -> int:
        return hash(self._digest)

    def __repr__(self) -> str:
        return f"Secret({self.source}, {_HIDDEN})"

    def __str__(self) -> str:
        return _HIDDEN

    def __reduce__(self) -> NoReturn:
        raise TypeError("A secret is not written anywhere.")
