"""The names of our sessions inside OpenClaw."""

from openclaw_a2a.model.ids import SessionKey


def session_at_openclaw(session_key: SessionKey, agent_id: str) -> str:
    """The key under which OpenClaw's agent `agent_id` keeps our session.

    OpenClaw refuses a key that begins with another agent's id. Where our agent has another name
    than OpenClaw's, that name stays in the key: two agents of ours never share a session.
    """
    _, own_id, rest = session_key.lower().split(":", 2)
    wanted = agent_id.lower()
    if own_id == wanted:
        return session_key.lower()
    return f"agent:{wanted}:via-{own_id}:{rest}"
