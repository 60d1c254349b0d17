"""Bearer tokens: how they are read from a request and compared with the known ones."""

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


def read_bearer_token(headers: Mapping[bytes, bytes]) -> bytes | None:
    """The token of a request; None when it has none, or another kind of credentials."""
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    return token.strip() or None if scheme.lower() == b"bearer" else None


def token_digest(token: bytes) -> bytes:
    """The SHA-256 of a token. Tokens are kept and compared as digests only."""
    return hashlib.sha256(token).digest()


def match_token(token: bytes, known: Iterable[tuple[bytes, T]]) -> T | None:
    """Whom a token belongs to, among (digest, owner) pairs.

    Every pair is compared, in constant time: how long it takes tells nothing about the tokens.
    """
    digest, owner = token_digest(token), None
    for candidate, candidate_owner in known:
        if hmac.compare_digest(candidate, digest):
            owner = candidate_owner
    return owner
