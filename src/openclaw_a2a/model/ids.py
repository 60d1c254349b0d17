"""Types for ids, so that no bare string crosses a package boundary."""

from typing import Any, NewType

TaskId = NewType("TaskId", str)
ContextId = NewType("ContextId", str)
MessageId = NewType("MessageId", str)
ArtifactId = NewType("ArtifactId", str)
RunId = NewType("RunId", str)
AccountId = NewType("AccountId", str)
AgentId = NewType("AgentId", str)
PeerName = NewType("PeerName", str)
SessionKey = NewType("SessionKey", str)
OwnerId = NewType("OwnerId", str)

Json = Any
"""Any JSON value: null, bool, number, string, list or object."""

JsonObject = dict[str, Json]
"""A JSON object, as metadata and tool payloads carry it."""

GATEWAY_PREFIX = "gateway:"
"""Prefix of the ids of agents that the gateway itself implements."""

TARGET_PREFIX = "target:"
"""Prefix of the agent id of a remote target, before its alias."""

LOCAL_PEER = PeerName("local")
"""The caller on loopback when no tokens are configured."""
