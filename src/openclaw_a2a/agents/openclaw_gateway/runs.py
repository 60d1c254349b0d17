"""Runs and sessions inside OpenClaw: keys, and which runs and pauses are our tasks'."""

from collections import OrderedDict
from typing import Final, Literal, Self

import msgspec

from openclaw_a2a.model.ids import AgentId, Json, JsonObject, SessionKey, TaskId
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.model.session_keys import VIA_PREFIX, main_session_key


class Timeouts(msgspec.Struct, frozen=True):
    """How long a turn waits for things, in seconds."""

    reconnect_s: float = 300.0
    """For a lost connection, or for a gateway that refuses requests as too busy."""
    recovery_s: float = 180.0  # for a restarted gateway to resume an interrupted run
    silence_s: float = 120.0  # without any event before the run is looked up
    run_poll_s: float = 60.0  # for one `agent.wait` of a live run
    lookup_poll_s: float = 5.0  # for one `agent.wait` of a run that is not shown as live
    stop_s: float = 60.0  # for an aborted run to end
    abort_retry_s: float = 5.0  # between two `chat.abort` requests
    pause_check_s: float = 60.0  # between two looks at everything that tasks wait for


MAX_RUN_IDS: Final = 20
"""So many losses of a message are looked for; after that its last id is used again and again."""


class SessionRef(msgspec.Struct, frozen=True):
    """A session of OpenClaw: its agent, its key, and the agent's workspace folder."""

    agent_id: str
    session_key: str
    workspace: str = ""


class RunRequest(msgspec.Struct, frozen=True):
    """A run: its task, where it runs, and the parameters of `method`, which starts it.

    `params` is None for a run that an earlier turn started. `open_calls` is set for a run that
    paused: the tool calls that were open then; earlier output was emitted before the pause.
    """

    task_id: TaskId
    run_id: str
    session: SessionRef
    params: JsonObject | None = None
    may_approve: bool = False
    open_calls: tuple[str, ...] | None = None
    method: Literal["agent", "chat.send"] = "agent"

    @property
    def run_ids(self) -> tuple[str, ...]:
        """The ids of the run: a message that OpenClaw lost is sent again under the next one."""
        if self.params is None:
            return (self.run_id,)
        return (self.run_id, *(f"{self.run_id}-{n}" for n in range(2, MAX_RUN_IDS + 1)))


def openclaw_session_key(session_key: SessionKey, agent_id: str) -> str:
    """The key under which OpenClaw's agent `agent_id` keeps our session.

    OpenClaw refuses a key that starts with another agent's id. Where our agent has another name
    than OpenClaw's, that name stays in the key, so two of our agents never share a session, except
    for the one main session of OpenClaw's agent.
    """
    _, own_id, rest = session_key.lower().split(":", 2)
    wanted = agent_id.lower()
    if own_id == wanted:
        return session_key.lower()
    if rest == "main":
        return main_session_key(AgentId(wanted))
    return f"agent:{wanted}:{VIA_PREFIX}{own_id}:{rest}"


def find_our_session(openclaw_key: str, agent_id: str) -> SessionKey | None:
    """The inverse of `openclaw_session_key`; None for a session that is not ours."""
    rest = openclaw_key.removeprefix(f"agent:{agent_id.lower()}:")
    if rest == openclaw_key:
        return None
    if rest.startswith("a2a:"):
        return SessionKey(openclaw_key)
    own_id, _, place = rest.removeprefix(VIA_PREFIX).partition(":")
    is_ours = rest.startswith(VIA_PREFIX) and place.startswith("a2a:")
    return SessionKey(f"agent:{own_id}:{place}") if is_ours else None


def session_agent_id(session_key: str) -> str:
    """The agent of OpenClaw that a session key names; empty when it names none."""
    kind, _, rest = session_key.lower().partition(":")
    return rest.partition(":")[0] if kind == "agent" else ""


RUN_PREFIX: Final = "a2a-"
"""Prefix of the idempotency keys of our turns; OpenClaw uses the key as the run id."""

DELIVERY_PREFIX: Final = "session-note-"
"""Prefix of the runs that process messages we delivered into a session."""

_MAX_ADOPTED: Final = 10_000
_MAX_APPROVALS: Final = 100


def may_be_recovery(run_id: str) -> bool:
    """True if OpenClaw may have started the run itself, to resume an interrupted one."""
    return bool(run_id) and not run_id.startswith((RUN_PREFIX, DELIVERY_PREFIX))


class Pause(JsonStruct, frozen=True, omit_defaults=False):
    """The question or approval a paused task waits for; stored with the task as resume token."""

    kind: Literal["question", "approval"]
    id: str
    run_id: str
    open_calls: list[str] = msgspec.field(default_factory=list[str])
    """The tool calls that were open when the run paused."""

    @property
    def resume(self) -> JsonObject:
        """The resume token."""
        return msgspec.to_builtins(self)

    @classmethod
    def from_resume(cls, resume: Json) -> Self | None:
        """The pause of a resume token; None when it is not one of ours."""
        try:
            return msgspec.convert(resume, cls)
        except msgspec.ValidationError:
            return None


class RunRegistry:
    """Written by turns, read by the background watcher of the same gateway connection.

    A run is ours by its prefix, or because a turn adopted it: a restarted OpenClaw resumes an
    interrupted turn under a run id of its own.
    """

    def __init__(self) -> None:
        self._adopted: OrderedDict[str, None] = OrderedDict()
        self.pauses: dict[TaskId, Json] = {}
        """The resume tokens of paused tasks.

        Added before `InputRequired` is emitted: the watcher cannot miss an answer that is given at
        once. Removed before the pause is resolved: it does not report our own answer as one given
        elsewhere.
        """
        self.approvals: OrderedDict[str, str] = OrderedDict()
        """The latest approvals that the operator decides: their ids, with the folders of their
        commands."""

    def record_approval(self, approval_id: str, folder: str) -> None:
        """Record that the operator decides this: peers see neither its id nor its folder."""
        self.approvals[approval_id] = folder
        if len(self.approvals) > _MAX_APPROVALS:
            self.approvals.popitem(last=False)

    def adopt(self, run_id: str) -> None:
        """Record that a turn of ours continues under this run id."""
        # Bounded, the least recent first: old runs are not shown in any history that is checked.
        self._adopted[run_id] = None
        self._adopted.move_to_end(run_id)
        if len(self._adopted) > _MAX_ADOPTED:
            self._adopted.popitem(last=False)

    def is_ours(self, run_id: str) -> bool:
        """True for runs that a turn of ours started or adopted."""
        return run_id.startswith(RUN_PREFIX) or run_id in self._adopted

    def list_pauses(self) -> list[tuple[TaskId, Pause]]:
        """The paused tasks, and what they wait for."""
        read = ((task_id, Pause.from_resume(resume)) for task_id, resume in self.pauses.items())
        return [(task_id, pause) for task_id, pause in read if pause is not None]
