"""Settings with configured peers, and their tokens."""

import hashlib
from typing import Any

Json = Any


def token_of(peer: str) -> str:
    """The token of a peer."""
    return f"token-of-{peer}-0123456789"


def peers(**may_approve: bool) -> Json:
    """Settings with these peers; the value says whether one may allow commands."""
    known = {
        name: {
            "tokens": ["sha256:" + hashlib.sha256(token_of(name).encode()).hexdigest()],
            "mayApprove": allowed,
        }
        for name, allowed in may_approve.items()
    }
    return {"channels": {"a2a": {"security": {"peers": known}}}}
