"""The hosts whose sessions can receive messages, and which of them a session lives in.

A host is one OpenClaw. Session keys are unique within a host only: with two of them,
`agent:main:main` usually exists in both. A message must never go to the wrong one, so the host of
a calling session is determined while it calls, when the tool's own run is active in it.
"""

import asyncio
from collections.abc import Mapping

from openclaw_a2a.model.call import Call
from openclaw_a2a.model.errors import AgentError
from openclaw_a2a.model.ids import AgentId, SessionKey
from openclaw_a2a.ports import DeliveryFailed, SessionGone, SessionInbox, SessionPresence

_LOCATE_TIMEOUT_S = 5.0


class SessionHosts:
    """The agents of this gateway that can put messages into sessions, grouped by host."""

    def __init__(self, inboxes: Mapping[AgentId, SessionInbox]) -> None:
        self._inboxes = inboxes
        self._hosts: dict[str, SessionInbox] = {}
        for inbox in inboxes.values():
            self._hosts.setdefault(inbox.host, inbox)

    @property
    def has_inboxes(self) -> bool:
        """True when there is any session that messages can be put into."""
        return bool(self._inboxes)

    async def find_agent(self, session_key: SessionKey) -> AgentId | None:
        """The agent of this gateway to which a session that calls a tool right now belongs.

        The hosts are asked only when the key names agents in several of them. When they cannot
        tell, it is the first of these agents.
        """
        owners = {
            name: one.host for name, one in self._inboxes.items() if one.owns_session(session_key)
        }
        if len(set(owners.values())) > 1:
            calling = await self.find_host(session_key)
            owners = {name: host for name, host in owners.items() if host == calling} or owners
        return next(iter(owners), None)

    def host_session_key(self, agent_id: AgentId, session_key: SessionKey) -> SessionKey | None:
        """The host's key for a session of an agent of ours; None before that is known."""
        inbox = self._inboxes.get(agent_id)
        return session_key if inbox is None else inbox.host_session_key(session_key)

    def host_of(self, inbox: SessionInbox) -> str | None:
        """The host to remember for a session; None while there is only one."""
        return inbox.host if len(self._hosts) > 1 else None

    def find_inbox(self, call: Call) -> SessionInbox | None:
        """Where the outcome of a call was delivered."""
        session_key = call.caller.session_key
        if session_key is None:
            return None
        candidates = [one for one in self._inboxes.values() if call.host in (None, one.host)]
        owners = (one for one in candidates if one.owns_session(session_key))
        return next(owners, next(iter(candidates), None))

    async def find_host(self, session_key: SessionKey | None) -> str | None:
        """The host of a session that calls a tool right now; None when one cannot tell."""
        if session_key is None or len(self._hosts) < 2:
            return None
        presences = await self._ask_hosts(session_key)
        # The run that calls is active, and an idle session of the same key elsewhere is not it.
        active = [one for one, found in presences.items() if found is SessionPresence.ACTIVE]
        if len(active) == 1:
            return active[0]
        hosts = _hosts_with(presences)
        return hosts[0] if len(hosts) == 1 and None not in presences.values() else None

    async def locate_inbox(self, call: Call) -> SessionInbox | SessionGone | DeliveryFailed:
        """Where to deliver the outcome of a call."""
        session_key = call.caller.session_key
        if session_key is not None and call.host is None and len(self._hosts) > 1:
            host = await self._locate_host(session_key)
            return self._hosts[host] if isinstance(host, str) else host
        unreachable = DeliveryFailed("no agent of this gateway reaches the caller's session")
        return self.find_inbox(call) or unreachable

    async def _locate_host(self, session_key: SessionKey) -> str | SessionGone | DeliveryFailed:
        """The only host that has a session. A guess could go to the wrong one, so there is none."""
        # A host that does not answer may be the right one: waiting for it loses nothing, since the
        # outbox tries again, while a message in the wrong session cannot be taken back.
        presences = await self._ask_hosts(session_key)
        silent = [host for host, found in presences.items() if found is None]
        hosts = _hosts_with(presences)
        if silent:
            return DeliveryFailed(
                f"cannot tell which host has session {session_key}: {', '.join(silent)} is not"
                " reachable"
            )
        if len(hosts) > 1:
            return DeliveryFailed(
                f"session {session_key} exists in {' and '.join(hosts)}, and it is not known which"
                " of them called; poll the call with agent_poll"
            )
        return hosts[0] if hosts else SessionGone(f"no host has a session {session_key}")

    async def _ask_hosts(self, session_key: SessionKey) -> dict[str, SessionPresence | None]:
        """What each host says about a session; None for one that does not answer."""
        async with asyncio.TaskGroup() as group:
            asked = {
                host: group.create_task(_ask_host(inbox, session_key))
                for host, inbox in self._hosts.items()
            }
        return {host: task.result() for host, task in asked.items()}


async def _ask_host(inbox: SessionInbox, session_key: SessionKey) -> SessionPresence | None:
    try:
        async with asyncio.timeout(_LOCATE_TIMEOUT_S):
            return await inbox.locate_session(session_key)
    except (AgentError, TimeoutError):
        return None


def _hosts_with(presences: Mapping[str, SessionPresence | None]) -> list[str]:
    absent = (None, SessionPresence.ABSENT)
    return [host for host, found in presences.items() if found not in absent]
