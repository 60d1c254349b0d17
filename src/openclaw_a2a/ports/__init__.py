"""What the engine needs from outside: a store, agents, hosts, couriers and a clock."""

from openclaw_a2a.ports.agents import (
    Agent,
    Agents,
    AsksOperator,
    DescribesItself,
    KeepsPaused,
    KnowsItsState,
    LeavesTraces,
    OutlivesGateway,
    Recovery,
    SpeaksLater,
)
from openclaw_a2a.ports.clock import (
    Clock,
)
from openclaw_a2a.ports.couriers import (
    Brought,
    Courier,
    Missed,
)
from openclaw_a2a.ports.sessions import (
    NoteTaken,
    SessionGone,
    SessionNote,
    SessionSink,
)
from openclaw_a2a.ports.store import (
    Accepted,
    Commit,
    DeliveryPage,
    KeptRecord,
    Known,
    RecentHead,
    Retention,
    Store,
    Submission,
    TaskKey,
    TaskPage,
    TaskQuery,
)

__all__ = [
    "Accepted",
    "Agent",
    "Agents",
    "AsksOperator",
    "Brought",
    "Clock",
    "Commit",
    "Courier",
    "DeliveryPage",
    "DescribesItself",
    "KeepsPaused",
    "KeptRecord",
    "Known",
    "KnowsItsState",
    "LeavesTraces",
    "Missed",
    "NoteTaken",
    "OutlivesGateway",
    "RecentHead",
    "Recovery",
    "Retention",
    "SessionGone",
    "SessionNote",
    "SessionSink",
    "SpeaksLater",
    "Store",
    "Submission",
    "TaskKey",
    "TaskPage",
    "TaskQuery",
]
