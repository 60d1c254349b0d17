"""Which addresses callers may name as webhooks, as far as their text tells.

A caller names the address that this gateway will connect to, from inside the operator's network;
`runtime/addresses.py` checks where it leads when it is called.
"""

import re
from urllib.parse import urlsplit

from openclaw_a2a.model.links import why_not_public

_CHARACTERS = re.compile(r"[!-\[\]-~]+")


def why_not_a_webhook(url: str, *, allow_private: bool) -> str | None:
    """Why an address cannot be a webhook; None when it may be one, as far as its text tells."""
    if not _CHARACTERS.fullmatch(url):
        return "must be an address in ASCII without spaces and backslashes"
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname or "", parts.port
    except ValueError:
        return "is not an address"
    if parts.scheme not in ("http", "https") or not host:
        return "must be an http or https address"
    if "@" in parts.netloc:
        return "must not hold a user name or password; give them as authentication"
    reason = None if allow_private else why_not_public(url)
    return reason and f"{reason}; a webhook must be at a public address"
