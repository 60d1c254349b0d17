"""What clients and agents saw of a cluster, as plain data: the only input of the checker.

All times are of the monotonic clock, which is the same for every process of one machine.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

Json = Any

COMPLETED, FAILED, CANCELED = (f"TASK_STATE_{name}" for name in ("COMPLETED", "FAILED", "CANCELED"))
PAUSED = "TASK_STATE_INPUT_REQUIRED"
TERMINAL = (COMPLETED, FAILED, CANCELED, "TASK_STATE_REJECTED")


@dataclass(frozen=True)
class MessageKey:
    """A message as the gateway tells messages apart: ids of two callers have nothing in common."""

    caller: str
    account: str
    id: str


@dataclass
class Sent:
    """One try to send a message. `outcome` is empty when no answer came, or half of one."""

    key: MessageKey
    context_id: str
    began: float
    ended: float = 0.0
    task_id: str | None = None
    """The task that the message continues."""
    outcome: Json = field(default_factory=dict)
    """`{"task": ...}`, `{"message": ...}` or `{"error": ...}`."""

    @property
    def accepted_task(self) -> str | None:
        return self.outcome["task"]["id"] if "task" in self.outcome else None

    @property
    def is_accepted(self) -> bool:
        return "task" in self.outcome or "message" in self.outcome


@dataclass
class Frame:
    """One numbered event of a stream."""

    at: float
    sequence: int
    event: Json


@dataclass
class Read:
    """One stream. `after` is its Last-Event-ID; `ended`: when the gateway ended it; None: it broke
    off, or the client left. `left`: when the client stopped to read, for whatever reason."""

    task_id: str
    began: float
    after: int | None = None
    frames: list[Frame] = field(default_factory=list)
    ended: float | None = None
    left: float = 0.0


@dataclass
class Got:
    """One answer to GetTask or CancelTask: `{"task": ...}` or `{"error": ...}`."""

    caller: str
    account: str
    task_id: str
    began: float
    ended: float
    outcome: Json
    is_cancel: bool = False


@dataclass
class Listed:
    """One page of ListTasks for a context."""

    caller: str
    account: str
    context_id: str
    began: float
    task_ids: list[str]


@dataclass
class Final:
    """A task at rest, and all of its events, read through two replicas."""

    caller: str
    account: str
    task: Json
    journal: list[Json]
    """The event with the sequence number N is at N - 1."""
    other_journal: list[Json]

    @property
    def state(self) -> str:
        return self.task["status"]["state"]


@dataclass
class Run:
    """One execution by an agent, as it wrote it down itself. `ended` is None when it never did."""

    token: str
    """Starts every piece of text that this execution said."""
    replica: str
    pid: int
    agent: str
    is_repeatable: bool
    session: str
    key: MessageKey
    task_id: str
    text: str
    began: float
    ended: float | None = None
    how: str = ""
    """`done`, `failed`, `asked` or `stopped`."""


class FaultKind(Enum):
    """What was done to the cluster."""

    KILL = "kill"
    STOP = "stop"
    """A stop that the gateway is told of, as for an upgrade."""
    PAUSE = "pause"
    REFUSE = "refuse"
    DROP = "drop"
    DATABASE = "database"
    LOST = "lost"
    """Nothing was done to it, but it was so slow that another gateway took its work."""


@dataclass
class Fault:
    """One fault; `replica` is empty when it was the database itself.

    `gone` is when the process was over, for those that end one.
    """

    kind: FaultKind
    replica: str
    pid: int
    began: float
    ended: float
    gone: float | None = None


@dataclass
class Call:
    """A call between agents that the gateway accepted; `polled`: its outcome when asked for."""

    id: str
    polled: Json = None
    is_late: bool = False
    """The poll told of an answer after the deadline. What the call came to is another outcome, and
    an earlier poll whose answer was lost may have had it."""


@dataclass
class Delivered:
    """The outcome of a call as it arrived in the caller's session, also as the result of a tool."""

    call_id: str
    outcome: Json
    at: float


@dataclass
class Objective:
    """An objective at rest; `steps` are the names of its steps with those they depend on.

    `plans` is how often it has these steps: a request for a plan whose answer was lost and that is
    sent again makes a second one, because such requests have no id.
    """

    id: str
    status: str
    steps: dict[str, list[str]]
    plans: int = 1


@dataclass
class History:
    """Everything that was seen in one run."""

    lease_s: float
    most_delay_s: float | None = None
    """How long the end of a task may take to be seen where nothing fails; None: any time."""
    sent: list[Sent] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    got: list[Got] = field(default_factory=list)
    listed: list[Listed] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    objectives: list[Objective] = field(default_factory=list)
    finals: dict[str, Final] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """What a client waited for in vain, or was refused for no reason."""

    def accepted_tasks(self) -> dict[str, Sent]:
        """Every task that a client knows of, with the first try that told of it."""
        found: dict[str, Sent] = {}
        for sent in self.sent:
            if sent.accepted_task is not None:
                found.setdefault(sent.accepted_task, sent)
        return found

    def statuses(self) -> Iterator[tuple[str, float, float, Json]]:
        """Every task that was shown outside streams: its id, asked when, answered when, status."""
        for sent in self.sent:
            if sent.accepted_task is not None:
                yield sent.accepted_task, sent.began, sent.ended, sent.outcome["task"]["status"]
        for got in self.got:
            if "task" in got.outcome:
                yield got.task_id, got.began, got.ended, got.outcome["task"]["status"]

    def write(self, path: Path) -> None:
        """Write everything down, for whoever looks for the cause of a violation."""
        content = json.dumps(asdict(self), default=lambda one: one.value, indent=1)
        path.write_text(content, encoding="utf-8")


def read_runs(path: Path) -> list[Run]:
    """The runs in the journal that all agents share, in the order in which they began."""
    runs: dict[str, Run] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if "how" in entry:
            run = runs[entry["token"]]
            run.ended, run.how = entry["at"], entry["how"]
        else:
            key = MessageKey(**entry.pop("key"))
            runs[entry["token"]] = Run(key=key, **entry)
    return sorted(runs.values(), key=lambda run: run.began)


def read_losses(outputs: dict[str, str], lease_s: float, clock_offset_s: float) -> list[Fault]:
    """From the logs of the gateways: when which of them was taken for dead and did not know it.

    From the last time that it can have renewed its lease until it says that it knows.
    """
    taken: dict[str, tuple[float, str]] = {}
    lost: dict[str, float] = {}
    for line in "\n".join(outputs.values()).splitlines():
        if '"replica.taken_over"' in line or '"replica.lost"' in line:
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # the process was killed while it wrote this
            at = datetime.fromisoformat(entry["timestamp"]).timestamp() - clock_offset_s
            if entry["event"] == "replica.lost":
                lost[entry["replica"]] = at
            else:
                taken[entry["replica"]] = at, entry["label"]
    return [
        Fault(FaultKind.LOST, label, 0, at - lease_s, lost[name])
        for name, (at, label) in taken.items()
        if name in lost
    ]


def status_of(event: Json) -> Json:
    """The status in an event or in the task of a snapshot; empty for other events."""
    shown = event.get("statusUpdate") or event.get("task") or {}
    return shown.get("status", {})


def state_of(event: Json) -> str:
    return status_of(event).get("state", "")


def text_of(parts: list[Json]) -> str:
    return "".join(part.get("text", "") for part in parts)
