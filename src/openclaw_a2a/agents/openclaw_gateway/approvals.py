"""Commands that an OpenClaw agent may run only when somebody allows them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Literal

from openclaw_a2a.agents.openclaw_gateway.connection import GatewayConnection
from openclaw_a2a.agents.openclaw_gateway.protocol import Wire, error_code
from openclaw_a2a.model.agent_event import Approval
from openclaw_a2a.model.errors import AgentFailed, ApprovalNotFound, ApprovalOver
from openclaw_a2a.model.ids import JsonObject, SessionKey, TaskId

_ASK_S: Final = 30.0
_ALLOW: Final = frozenset(
    {"yes", "y", "ok", "okay", "allow", "allowed", "allow-once", "approve", "approved"}
)
_DENY: Final = frozenset(
    {"no", "n", "deny", "denied", "reject", "rejected", "disallow", "do not", "don't"}
)
_POLITE: Final = " \t\r\n.!,;:\"'`"


class Command(Wire, frozen=True):
    """What is to be run, where, and for whom."""

    command: str = ""
    cwd: str | None = None
    warning_text: str | None = None
    agent_id: str | None = None
    session_key: str | None = None
    run_id: str | None = None


class ApprovalRequest(Wire, frozen=True):
    """A command that waits for a decision."""

    id: str = ""
    request: Command = Command()
    created_at_ms: float = 0
    expires_at_ms: float = 0


class ApprovalResolved(Wire, frozen=True):
    """The event of a decision; `resolved_by` is None when nobody took it."""

    id: str = ""
    decision: str = ""
    resolved_by: str | None = None


class _Record(Wire, frozen=True):
    status: str = ""
    reason: str | None = None


class _Resolution(Wire, frozen=True):
    applied: bool = False
    approval: _Record = _Record()


async def pending_approvals(link: GatewayConnection) -> list[ApprovalRequest]:
    """What waits for a decision at the gateway. Raises: AgentUnavailable, AgentFailed."""
    return await link.read(list[ApprovalRequest], "exec.approval.list", {}, timeout_s=_ASK_S)


async def resolve_approval(link: GatewayConnection, approval_id: str, *, allow: bool) -> str:
    """Decide; how it stands then: `allowed`, `denied`, or how it had ended before.

    Raises: ApprovalNotFound, ApprovalOver (somebody or time was faster), AgentUnavailable.
    """
    # Never `allow-always`: where it is not offered, OpenClaw takes it for a denial.
    decision = "allow-once" if allow else "deny"
    params: JsonObject = {"id": approval_id, "kind": "exec", "decision": decision}
    try:
        answer = await link.read(_Resolution, "approval.resolve", params, timeout_s=_ASK_S)
    except AgentFailed as error:
        if error_code(error) == "APPROVAL_NOT_FOUND":
            raise ApprovalNotFound(
                f"nobody waits for a decision on {approval_id[:80]};"
                " list the approvals there are: openclaw-a2a approvals list"
            ) from None
        raise
    if not answer.applied:
        raise ApprovalOver(
            f"approval {approval_id[:80]} is decided already: {ended_how(answer.approval)}"
        )
    return answer.approval.status


def read_decision(text: str) -> Literal["allow", "deny"] | None:
    """The peer's decision; None when its words are neither yes nor no."""
    words = " ".join(text.casefold().strip(_POLITE).split())
    words = words.removeprefix("please ").removesuffix(" please").strip(_POLITE)
    if words in _ALLOW:
        return "allow"
    return "deny" if words in _DENY else None


def approval_prompt(waiting: ApprovalRequest) -> str:
    """What a peer is asked who may decide."""
    lines = [f"The agent wants to run a command: {waiting.request.command}"]
    if waiting.request.cwd:
        lines.append(f"In the directory: {waiting.request.cwd}")
    if waiting.request.warning_text:
        lines.append(f"Warning: {waiting.request.warning_text}")
    return "\n".join((*lines, "Answer allow or deny."))


def operator_note(waiting: ApprovalRequest) -> str:
    """What a task says while the operator has to decide."""
    place = f" in {waiting.request.cwd}" if waiting.request.cwd else ""
    return (
        f"Waits for the operator to allow: {waiting.request.command}{place};"
        f" openclaw-a2a approvals allow {waiting.id}"
    )


def as_approval(waiting: ApprovalRequest, tasks: Mapping[str, TaskId]) -> Approval:
    """The approval in the gateway's own words; `tasks` are our tasks by their runs."""
    wanted = waiting.request
    return Approval(
        id=waiting.id,
        command=wanted.command,
        asked_at=_time(waiting.created_at_ms),
        expires_at=_time(waiting.expires_at_ms),
        cwd=wanted.cwd or "",
        session_key=SessionKey(wanted.session_key) if wanted.session_key else None,
        task_id=tasks.get(wanted.run_id or ""),
        warning=wanted.warning_text or "",
    )


def ended_how(record: _Record) -> str:
    """How an approval ended, in words."""
    if record.status == "expired" or record.reason == "timeout":
        return "its time was over"
    if record.reason == "run-aborted":
        return "its run was stopped"
    if record.reason == "gateway-restart":
        return "OpenClaw was restarted meanwhile"
    return record.status or "it is over"


def _time(milliseconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)
