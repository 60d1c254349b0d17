"""Names in calls, cleaned and checked: agents, skills and sessions."""

import re
from collections.abc import Sequence

from openclaw_a2a.model.ids import AgentId, Json, SessionKey

_AGENT = re.compile(r"[a-z0-9_-]{1,64}")
_SKILL = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_SESSION = re.compile(r"agent:([a-z0-9_-]+)(?::[a-z0-9_.-]+)+")
_SESSION_IN_TEXT = re.compile(r"\bagent:([a-z0-9_-]+)(?::[a-z0-9_.-]*[a-z0-9_-])+", re.IGNORECASE)
TARGET = "target:"
"""How the agent of a call begins when it is a remote one, by its alias."""


class BadName(ValueError):
    """A name that cannot be used; its text says why."""


class BadCall(ValueError):
    """The input of a call that cannot be used; `problems` says everything that is wrong with it."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def read_agent(value: Json) -> AgentId:
    """The id of an agent. Raises: BadName."""
    if not isinstance(value, str):
        raise BadName("agent must be a string")
    name = value.strip()
    if name.startswith(TARGET):
        return AgentId(TARGET + read_alias(name.removeprefix(TARGET)))
    if not _AGENT.fullmatch(name.lower()):
        raise BadName(f"agent {_shown(name)} is no agent id: 1 to 64 of a-z 0-9 _ -")
    return AgentId(name.lower())


def read_alias(value: str) -> str:
    """The alias of a remote target. Raises: BadName."""
    alias = value.strip()
    if not alias or len(alias) > 128 or any(sign in alias for sign in ("..", "/", "\\", "\0")):
        raise BadName(f"{_shown(value)} is no alias of a remote target")
    return alias


def read_skill(value: Json) -> str:
    """The name of a skill. Raises: BadName."""
    if not isinstance(value, str):
        raise BadName("skill must be a string")
    name = value.strip()
    if not _SKILL.fullmatch(name):
        raise BadName(f"skill {_shown(name)} is no skill name: 1 to 128 of a-z A-Z 0-9 _ -")
    return name


def agent_of(session_key: SessionKey) -> AgentId | None:
    """The agent a session belongs to; None when the text is no session key."""
    match = _SESSION.fullmatch(session_key)
    return AgentId(match[1]) if match else None


def without_sessions(text: str) -> str:
    """The text with agents in the place of their sessions, whose keys name people and channels."""
    return _SESSION_IN_TEXT.sub(r"agent:\1", text)


def _shown(text: str) -> str:
    return repr(text[:80])
