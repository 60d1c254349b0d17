"""The hosts whose sessions can receive messages, and which of them a session lives in.

A host is one OpenClaw. Session keys are unique within a host only: with two of them,
`agent:main:main` usually exists in both. A message must never go to the wrong one, so the host of
a calling session is determined while it calls, when the tool's own run is active in it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Set

from openclaw_a2a.model.call import Call, Caller
from openclaw_a2a.model.errors import AgentError
from openclaw_a2a.model.ids import AgentId, SessionKey
from openclaw_a2a.model.session_keys import VIA_PREFIX
from openclaw_a2a.ports import DeliveryFailed, SessionGone, SessionInbox, SessionPresence

_LOCATE_TIMEOUT_S = 5.0


class SessionHosts:
    """The agents of this gateway that can put messages into sessions, grouped by host."""

    def __init__(
        self,
        inboxes: Mapping[AgentId, SessionInbox],
        *,
        name_host: Callable[[str], str] | None = None,
        list_shared: Callable[[AgentId], Awaitable[Set[str]]] | None = None,
        elsewhere: Set[AgentId] = frozenset(),
    ) -> None:
        """`name_host`: the name by which all replicas know a host of this one.

        With other replicas a host is remembered even if it is the only one here. `list_shared`
        gives the hosts of all replicas that a session of an agent may be in; `elsewhere` are the
        agents that only others have.
        """
        self._inboxes = inboxes
        self._elsewhere = elsewhere
        self._name_host = name_host
        self._list_shared = list_shared
        self._hosts: dict[str, SessionInbox] = {}
        for inbox in inboxes.values():
            self._hosts.setdefault(self._name_of(inbox), inbox)
        self.names = frozenset(self._hosts)
        """The hosts of this replica."""

    def _name_of(self, inbox: SessionInbox) -> str:
        return inbox.host if self._name_host is None else self._name_host(inbox.host)

    async def list_hosts(self, caller: Caller, host: str | None = None) -> Set[str]:
        """The hosts that a caller's session may be in: `host` if it is known, else those here.

        Where there are none here, those of the other replicas. Raises: StoreUnavailable.
        """
        if caller.session_key is None:
            return frozenset()
        if self._inboxes or self._list_shared is None:
            return self.names
        return {host} if host is not None else await self._list_shared(caller.agent_id)

    async def find_caller_host(self, caller: Caller) -> str | None:
        """As `find_host`; at a replica without hosts the only one that others have."""
        if self._inboxes:
            return await self.find_host(caller.session_key)
        found = await self.list_hosts(caller)
        return next(iter(found)) if len(found) == 1 else None

    async def find_agent(self, session_key: SessionKey) -> AgentId | None:
        """The agent of this gateway to which a session that calls a tool right now belongs.

        The hosts are asked only when the key names agents in several of them. When they cannot
        tell, it is the first of these agents.
        """
        owners = {
            name: self._name_of(one)
            for name, one in self._inboxes.items()
            if one.owns_session(session_key)
        }
        if len(set(owners.values())) > 1:
            calling = await self.find_host(session_key)
            owners = {name: host for name, host in owners.items() if host == calling} or owners
        return next(iter(owners), None) or self._find_elsewhere(session_key)

    def host_session_key(self, agent_id: AgentId, session_key: SessionKey) -> SessionKey | None:
        """The host's key for a session of an agent of ours; None before that is known."""
        inbox = self._inboxes.get(agent_id)
        return session_key if inbox is None else inbox.host_session_key(session_key)

    def own_session_keys(self, session_key: SessionKey) -> list[SessionKey]:
        """Under which keys runs may be that a host knows by this one, that key included."""
        # A host may have put the names of its own agents and of ours in front.
        label = ":".join(session_key.split(":")[2:])
        labels = (label, label.partition(":")[2])
        candidates = [
            (agent_id, SessionKey(f"agent:{agent_id}:{one}"))
            for agent_id in self._inboxes
            for one in labels
        ]
        found = [key for name, key in candidates if self.host_session_key(name, key) == session_key]
        agent_id = self._find_elsewhere(session_key)
        if agent_id is not None:
            found.append(SessionKey(f"agent:{agent_id}:{label.partition(':')[2]}"))
        return [*dict.fromkeys([session_key, *found])]

    def _find_elsewhere(self, session_key: SessionKey) -> AgentId | None:
        """The agent of a session, if only other replicas have it and its host renames it."""
        # Its host cannot be asked here; the key itself names the agent.
        *_, label = session_key.split(":", 3)[:3]
        agent_id = AgentId(label.removeprefix(VIA_PREFIX))
        return agent_id if agent_id != label and agent_id in self._elsewhere else None

    def host_of(self, inbox: SessionInbox) -> str | None:
        """The host to remember for a session; None while there is only one."""
        is_needed = len(self._hosts) > 1 or self._name_host is not None
        return self._name_of(inbox) if is_needed else None

    def find_inbox(self, call: Call) -> SessionInbox | None:
        """Where the outcome of a call was delivered."""
        session_key = call.caller.session_key
        if session_key is None:
            return None
        inboxes = self._inboxes.values()
        candidates = [one for one in inboxes if call.host in (None, self._name_of(one))]
        owners = (one for one in candidates if one.owns_session(session_key))
        return next(owners, next(iter(candidates), None))

    async def find_host(self, session_key: SessionKey | None) -> str | None:
        """The host of a session that calls a tool right now; None when one cannot tell."""
        if session_key is None or len(self._hosts) < 2:
            # Other replicas may have others.
            only = next(iter(self._hosts), None)
            return None if session_key is None or self._name_host is None else only
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
