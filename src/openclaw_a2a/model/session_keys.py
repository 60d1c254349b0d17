"""Session keys: which conversation of an agent a caller's context continues."""

import functools
import hashlib
import re

from openclaw_a2a.model.ids import LOCAL_PEER, AgentId, ContextId, PeerName, SessionKey

OPERATOR_NAME = "operator"
"""The name of the person who runs the gateway."""

OWN_CALLERS = frozenset({LOCAL_PEER, OPERATOR_NAME})
"""The user of the gateway's own machine, to whom shares per caller do not apply."""

RESERVED_NAMES = frozenset({"obj", "call", "anon", "gateway", LOCAL_PEER, OPERATOR_NAME})
"""Names of the gateway's own callers and parts of session keys; no peer may have them."""

VIA_PREFIX = "via-"
"""Before the id of our agent in the key of a host that has the agent under another name."""

_MAX_LABEL = 60
_CLEAN = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]{0,58}[a-z0-9_])?")
_UNSAFE = re.compile(r"[^a-z0-9_.-]+")
_HASHED = re.compile(r"(^|\.)h-[0-9a-f]{16}$")
"""A clean text that looks like a hashed label is hashed too, or the two could collide."""
_SESSION = re.compile(r"agent:([a-z0-9_-]+)(?::[a-z0-9_.-]+)+")
_SESSION_IN_TEXT = re.compile(r"\bagent:([a-z0-9_-]+)(?::[a-z0-9_.-]*[a-z0-9_-])+", re.IGNORECASE)


def session_key(agent_id: AgentId, principal: PeerName, context_id: ContextId) -> SessionKey:
    """The key of the session for a caller's context: same caller and context, same session."""
    return SessionKey(f"{_prefix(agent_id, principal)}:{safe_label(context_id)}")


@functools.lru_cache(maxsize=1024)
def _prefix(agent_id: AgentId, principal: PeerName) -> str:
    return f"agent:{agent_id.lower()}:a2a:{safe_label(principal)}"


@functools.lru_cache(maxsize=1024)
def main_session_key(agent_id: AgentId) -> SessionKey:
    """The key of the agent's own main session."""
    return SessionKey(f"agent:{agent_id.lower()}:main")


def session_agent(session_key: SessionKey) -> AgentId | None:
    """The agent that a session belongs to; None when the text is no session key."""
    match = _SESSION.fullmatch(session_key)
    return AgentId(match[1]) if match else None


def redact_session_keys(text: str) -> str:
    """Replace session keys, which name people and channels, by their agents."""
    return _SESSION_IN_TEXT.sub(r"agent:\1", text)


def safe_label(text: str) -> str:
    """The text as one label of a session key.

    A short hash is added whenever cleaning changed something, so two texts never share a label.
    """
    if _CLEAN.fullmatch(text) and not ("h-" in text and _HASHED.search(text)):
        return text
    cleaned = _UNSAFE.sub("-", text.lower()).strip("-.")[:_MAX_LABEL]
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{cleaned}.h-{digest}" if cleaned else f"h-{digest}"
