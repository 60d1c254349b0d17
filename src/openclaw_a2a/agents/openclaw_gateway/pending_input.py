"""What a run waits for: questions to the peer, and commands that need approval."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Literal

from openclaw_a2a.agents.openclaw_gateway.connection import GatewayConnection
from openclaw_a2a.agents.openclaw_gateway.protocol import Wire, error_code
from openclaw_a2a.model.agent_event import Approval
from openclaw_a2a.model.errors import AgentFailed, ApprovalNotFound, ApprovalOver
from openclaw_a2a.model.ids import JsonObject, SessionKey, TaskId

_TIMEOUT_S: Final = 30.0
_LEADING_NUMBER: Final = re.compile(r"\s*(?:\(?\d{1,2}[.):]|[-*])\s+")


class Option(Wire, frozen=True):
    """One of the answers a question suggests."""

    label: str = ""
    description: str | None = None


class Question(Wire, frozen=True):
    """One question of a request."""

    question_id: str = ""
    header: str = ""
    question: str = ""
    options: tuple[Option, ...] = ()
    multi_select: bool = False


class QuestionRequest(Wire, frozen=True):
    """A group of questions that are answered together."""

    id: str = ""
    run_id: str = ""
    questions: tuple[Question, ...] = ()
    status: str = "pending"


class _QuestionList(Wire, frozen=True):
    questions: tuple[QuestionRequest, ...] = ()


async def list_pending_questions(
    connection: GatewayConnection, run_id: str
) -> list[QuestionRequest]:
    """The run's unanswered questions. Raises: AgentUnavailable, AgentFailed."""
    response = await connection.read(_QuestionList, "question.list", {}, timeout_s=_TIMEOUT_S)
    return [one for one in response.questions if one.run_id == run_id and one.status == "pending"]


async def resolve_question(
    connection: GatewayConnection, request: QuestionRequest, text: str
) -> bool:
    """False: it was over. Raises: AgentUnavailable, AgentFailed (the answer is not accepted)."""
    answers = parse_answers(request.questions, text)
    params: JsonObject = {"id": request.id, "answers": {"answers": answers}}
    try:
        await connection.call("question.resolve", params, timeout_s=_TIMEOUT_S)
    except AgentFailed as error:
        # Answered elsewhere, expired, or lost with a restart of OpenClaw.
        if error_code(error) in {"QUESTION_ALREADY_TERMINAL", "QUESTION_NOT_FOUND"}:
            return False
        raise
    return True


def question_prompt(request: QuestionRequest) -> str:
    """The text of the questions for the peer."""
    blocks: list[str] = []
    for one in request.questions:
        lines = [one.question.strip() or one.header.strip() or "The agent has a question."]
        for option in one.options:
            described = f": {option.description}" if option.description else ""
            lines += [f"- {option.label}{described}"] if option.label else []
        blocks.append("\n".join(lines))
    if len(blocks) == 1:
        return blocks[0]
    numbered = [f"{number}. {block}" for number, block in enumerate(blocks, 1)]
    return "\n\n".join(numbered) + "\n\nAnswer each question on a line of its own, in this order."


def parse_answers(questions: Sequence[Question], text: str) -> dict[str, list[str]]:
    """The answers in a text, by question.

    One question takes the whole text. Several take one line each, in their order or after their
    header (`Size: L`); with fewer lines than questions, each is answered with the whole text.
    """
    if len(questions) == 1:
        return {questions[0].question_id: _match_options(questions[0], text.strip())}
    lines = [_LEADING_NUMBER.sub("", line, count=1).strip() for line in text.splitlines()]
    lines = [line for line in lines if line]
    answers: dict[str, list[str]] = {}
    for question in questions:
        names = {question.header.casefold(), question.question_id.casefold()} - {""}
        for line in lines:
            name, colon, answer = line.partition(":")
            if colon and name.strip().casefold() in names:
                lines.remove(line)
                answers[question.question_id] = _match_options(question, answer.strip())
                break
    left = [one for one in questions if one.question_id not in answers]
    if len(lines) < len(left):
        lines = [text.strip()] * len(left)
    for question, line in zip(left, lines, strict=False):
        answers[question.question_id] = _match_options(question, line)
    return answers


def _match_options(question: Question, text: str) -> list[str]:
    """The offered labels that the text names, in their spelling; else the text itself."""
    labels = {one.label.strip().casefold(): one.label for one in question.options}
    if (label := labels.get(_normalize(text))) is not None:
        return [label]
    if text.isdecimal() and 1 <= int(text) <= len(question.options):
        return [question.options[int(text) - 1].label]
    found = [labels.get(_normalize(part)) for part in text.split(",")]
    named = [label for label in found if label is not None]
    return named if question.multi_select and named and len(named) == len(found) else [text]


def _normalize(text: str) -> str:
    return text.strip().strip("\"'`.!").strip().casefold()


_ALLOW: Final = {"yes", "y", "ok", "okay", "allow", "allowed", "allow-once", "approve", "approved"}
_DENY: Final = {"no", "n", "deny", "denied", "reject", "rejected", "disallow", "do not", "don't"}
_END_REASONS: Final = {
    "timeout": "it expired",
    "run-aborted": "its run was stopped",
    "gateway-restart": "OpenClaw was restarted meanwhile",
}
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
    """Allow or deny. Raises: ApprovalNotFound, ApprovalOver (decided before), AgentUnavailable."""
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
        over = response.approval
        is_expired = over.status == "expired"
        reason = _END_REASONS.get("timeout" if is_expired else over.reason or "", over.status)
        raise ApprovalOver(
            f"approval {approval_id[:80]} is decided already: {reason or 'it is over'}"
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
    wanted = approval.request
    lines = (
        f"The agent wants to run a command: {wanted.command}",
        f"In the directory: {wanted.cwd}" if wanted.cwd else "",
        f"Warning: {wanted.warning_text}" if wanted.warning_text else "",
        "Answer allow or deny.",
    )
    return "\n".join(filter(None, lines))


def operator_note(approval: ApprovalRequest) -> str:
    """The status text of a task while the operator has to decide.

    The peer reads it, so `ApprovalRedactor` hides the folder in the command.
    """
    return (
        f"Waits for the operator to allow: {approval.request.command};"
        " the operator sees it with: openclaw-a2a approvals list"
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


def _timestamp(milliseconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)
