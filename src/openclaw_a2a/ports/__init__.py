"""What the engine needs from outside: a store, agents, session inboxes, senders and a clock."""

from openclaw_a2a.ports.agent import (
    Agent,
    AgentLookup,
    Recovery,
    SupportsApprovals,
    SupportsAvailability,
    SupportsBackgroundEvents,
    SupportsDetach,
    SupportsOrphanCleanup,
    SupportsPauseCancel,
    SupportsProfile,
)
from openclaw_a2a.ports.clock import Clock
from openclaw_a2a.ports.delivery_store import DeliveryPage, DeliveryStore
from openclaw_a2a.ports.log_store import LogAppend, LogHead, LogLine, LogStore, StoredLog
from openclaw_a2a.ports.record_store import Record, RecordStore
from openclaw_a2a.ports.sender import Delivered, DeliveryFailed, Sender
from openclaw_a2a.ports.session_inbox import (
    MessageAccepted,
    SessionGone,
    SessionInbox,
    SessionMessage,
    SessionPresence,
)
from openclaw_a2a.ports.store import Store
from openclaw_a2a.ports.task_store import (
    ALL_TASKS,
    Accepted,
    Commit,
    Duplicate,
    MessageKey,
    PurgeResult,
    RecentHead,
    Retention,
    Submission,
    TaskFilter,
    TaskKey,
    TaskPage,
    TaskQuery,
    TaskStore,
)

__all__ = [
    "ALL_TASKS",
    "Accepted",
    "Agent",
    "AgentLookup",
    "Clock",
    "Commit",
    "Delivered",
    "DeliveryFailed",
    "DeliveryPage",
    "DeliveryStore",
    "Duplicate",
    "LogAppend",
    "LogHead",
    "LogLine",
    "LogStore",
    "MessageAccepted",
    "MessageKey",
    "PurgeResult",
    "RecentHead",
    "Record",
    "RecordStore",
    "Recovery",
    "Retention",
    "Sender",
    "SessionGone",
    "SessionInbox",
    "SessionMessage",
    "SessionPresence",
    "Store",
    "StoredLog",
    "Submission",
    "SupportsApprovals",
    "SupportsAvailability",
    "SupportsBackgroundEvents",
    "SupportsDetach",
    "SupportsOrphanCleanup",
    "SupportsPauseCancel",
    "SupportsProfile",
    "TaskFilter",
    "TaskKey",
    "TaskPage",
    "TaskQuery",
    "TaskStore",
]
