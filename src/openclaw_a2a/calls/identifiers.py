"""Identifiers in calls: agents, skills, remote targets and sessions."""

import re

from openclaw_a2a.model.ids import AgentId, Json, SessionKey

_AGENT = re.compile(r"[a-z0-9_-]{1,64}")
_SKILL = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_SESSION = re.compile(r"agent:([a-z0-9_-]+)(?::[a-z0-9_.-]+)+")
_SESSION_IN_TEXT = re.compile(r"\bagent:([a-z0-9_-]+)(?::[a-z0-9_.-]*[a-z0-9_-])+", re.IGNORECASE)
_UNSAFE_IN_ALIAS = ("..", "/", "\\", "\0")
TARGET_PREFIX = "target:"
"""Prefix of the agent id of a remote target, before its alias."""


class InvalidName(ValueError):
    """A name that cannot be used; the text says why, to follow the name of the field."""


def parse_agent_id(value: Json) -> AgentId:
    """Parse the id of an agent or remote target. Raises: InvalidName."""
    if not isinstance(value, str):
        raise InvalidName("must be a string")
    name = value.strip()
    if name.startswith(TARGET_PREFIX):
        given = name.removeprefix(TARGET_PREFIX)
        alias = given.strip()
        if not alias or len(alias) > 128 or any(sign in alias for sign in _UNSAFE_IN_ALIAS):
            raise InvalidName(f"{given[:80]!r} is no alias of a remote target")
        return AgentId(TARGET_PREFIX + alias)
    if not _AGENT.fullmatch(name.lower()):
        raise InvalidName(f"{name[:80]!r} is no agent id: 1 to 64 of a-z 0-9 _ -")
    return AgentId(name.lower())


def parse_skill_name(value: Json) -> str:
    """Parse the name of a skill. Raises: InvalidName."""
    if not isinstance(value, str):
        raise InvalidName("must be a string")
    name = value.strip()
    if not _SKILL.fullmatch(name):
        raise InvalidName(f"{name[:80]!r} is no skill name: 1 to 128 of a-z A-Z 0-9 _ -")
    return name


def session_agent(session_key: SessionKey) -> AgentId | None:
    """The agent that a session belongs to; None when the text is no session key."""
    match = _SESSION.fullmatch(session_key)
    return AgentId(match[1]) if match else None


def redact_session_keys(text: str) -> str:
    """Replace session keys, which name people and channels, by their agents."""
    return _SESSION_IN_TEXT.sub(r"agent:\1", text)
