"""Commands of an OpenClaw agent that wait for approval: listing, deciding, and their texts."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Literal

from openclaw_a2a.agents.openclaw_gateway.connection import GatewayConnection
from openclaw_a2a.agents.openclaw_gateway.protocol import Wire, error_code
from openclaw_a2a.model.agent_event import Approval
from openclaw_a2a.model.errors import AgentFailed, ApprovalNotFound, ApprovalOver
from openclaw_a2a.model.ids import JsonObject, SessionKey, TaskId

_TIMEOUT_S: Final = 30.0
_ALLOW: Final = frozenset(
    {"yes", "y", "ok", "okay", "allow", "allowed", "allow-once", "approve", "approved"}
)
_DENY: Final = frozenset(
    {"no", "n", "deny", "denied", "reject", "rejected", "disallow", "do not", "don't"}
)
_PUNCTUATION: Final = " \t\r\n.!,;:\"'`"


class ApprovalCommand(Wire, frozen=True):
    """The command, its directory, and the run that wants it."""

    command: str = ""
    cwd: str | None = None
    warning_text: str | None = None
    agent_id: str | None = None
    session_key: str | None = None
    run_id: str | None = None


class ApprovalRequest(Wire, frozen=True):
    """A command that waits for a decision."""

    id: str = ""
    request: ApprovalCommand = ApprovalCommand()
    created_at_ms: float = 0
    expires_at_ms: float = 0


class ApprovalResolved(Wire, frozen=True):
    """The event of a decision; `resolved_by` is None when it expired."""

    id: str = ""
    decision: str = ""
    resolved_by: str | None = None


class _ResolvedApproval(Wire, frozen=True):
    status: str = ""
    reason: str | None = None


class _ResolveResponse(Wire, frozen=True):
    applied: bool = False
    approval: _ResolvedApproval = _ResolvedApproval()


async def list_pending_approvals(connection: GatewayConnection) -> list[ApprovalRequest]:
    """The gateway's pending approvals. Raises: AgentUnavailable, AgentFailed."""
    return await connection.read(
        list[ApprovalRequest], "exec.approval.list", {}, timeout_s=_TIMEOUT_S
    )


async def resolve_approval(connection: GatewayConnection, approval_id: str, *, allow: bool) -> None:
    """Allow or deny the command.

    Raises: ApprovalNotFound, ApprovalOver (decided or expired before), AgentUnavailable.
    """
    # Never `allow-always`: where it is not offered, OpenClaw treats it as a denial.
    decision = "allow-once" if allow else "deny"
    params: JsonObject = {"id": approval_id, "kind": "exec", "decision": decision}
    try:
        response = await connection.read(
            _ResolveResponse, "approval.resolve", params, timeout_s=_TIMEOUT_S
        )
    except AgentFailed as error:
        if error_code(error) == "APPROVAL_NOT_FOUND":
            raise ApprovalNotFound(
                f"there is no pending approval {approval_id[:80]};"
                " list the approvals there are: openclaw-a2a approvals list"
            ) from None
        raise
    if not response.applied:
        raise ApprovalOver(
            f"approval {approval_id[:80]} is decided already: {_end_reason(response.approval)}"
        )


def parse_decision(text: str) -> Literal["allow", "deny"] | None:
    """The peer's decision; None when the text is neither yes nor no."""
    words = " ".join(text.casefold().strip(_PUNCTUATION).split())
    words = words.removeprefix("please ").removesuffix(" please").strip(_PUNCTUATION)
    if words in _ALLOW:
        return "allow"
    return "deny" if words in _DENY else None


def approval_question(approval: ApprovalRequest) -> str:
    """The question to a peer who may decide."""
    lines = [f"The agent wants to run a command: {approval.request.command}"]
    if approval.request.cwd:
        lines.append(f"In the directory: {approval.request.cwd}")
    if approval.request.warning_text:
        lines.append(f"Warning: {approval.request.warning_text}")
    return "\n".join((*lines, "Answer allow or deny."))


def operator_note(approval: ApprovalRequest) -> str:
    """The status text of a task while the operator has to decide."""
    place = f" in {approval.request.cwd}" if approval.request.cwd else ""
    return (
        f"Waits for the operator to allow: {approval.request.command}{place};"
        f" openclaw-a2a approvals allow {approval.id}"
    )


def to_approval(pending: ApprovalRequest, tasks: Mapping[str, TaskId]) -> Approval:
    """The approval for the operator; `tasks` are our tasks by their runs."""
    command = pending.request
    return Approval(
        id=pending.id,
        command=command.command,
        asked_at=_timestamp(pending.created_at_ms),
        expires_at=_timestamp(pending.expires_at_ms),
        cwd=command.cwd or "",
        session_key=SessionKey(command.session_key) if command.session_key else None,
        task_id=tasks.get(command.run_id or ""),
        warning=command.warning_text or "",
    )


def _end_reason(approval: _ResolvedApproval) -> str:
    if approval.status == "expired" or approval.reason == "timeout":
        return "it expired"
    if approval.reason == "run-aborted":
        return "its run was stopped"
    if approval.reason == "gateway-restart":
        return "OpenClaw was restarted meanwhile"
    return approval.status or "it is over"


def _timestamp(milliseconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)
