"""Questions that an OpenClaw agent asks in the middle of a turn, and the peer's answers."""

import re
from collections.abc import Sequence
from typing import Final

from openclaw_a2a.agents.openclaw_gateway.connection import GatewayConnection
from openclaw_a2a.agents.openclaw_gateway.protocol import Wire, error_code
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import JsonObject

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
    """The questions that are asked together, and answered together."""

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
    """Answer with the peer's text; False when the question is not pending any more.

    Raises: AgentUnavailable, AgentFailed (the answer is not accepted).
    """
    answers = parse_answers(request.questions, text)
    params: JsonObject = {"id": request.id, "answers": {"answers": answers}}
    try:
        await connection.call("question.resolve", params, timeout_s=_TIMEOUT_S)
    except AgentFailed as error:
        if error_code(error) in {"QUESTION_ALREADY_TERMINAL", "QUESTION_NOT_FOUND"}:
            return False
        raise
    return True


def question_prompt(request: QuestionRequest) -> str:
    """The text of the questions for the peer."""
    blocks = [_block(question) for question in request.questions]
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
        line = next((one for one in lines if _starts_with_name(question, one)), None)
        if line is not None:
            lines.remove(line)
            answers[question.question_id] = _match_options(question, line.partition(":")[2].strip())
    left = [one for one in questions if one.question_id not in answers]
    if len(lines) < len(left):
        lines = [text.strip()] * len(left)
    for question, line in zip(left, lines, strict=False):
        answers[question.question_id] = _match_options(question, line)
    return answers


def _starts_with_name(question: Question, line: str) -> bool:
    """True for a line that begins with the question's header or id and a colon."""
    name, colon, _ = line.partition(":")
    known = {question.header.casefold(), question.question_id.casefold()} - {""}
    return bool(colon) and name.strip().casefold() in known


def _match_options(question: Question, text: str) -> list[str]:
    """The offered labels that the text names, in their spelling; else the text itself."""
    labels = {one.label.strip().casefold(): one.label for one in question.options}
    if (label := labels.get(_normalize(text))) is not None:
        return [label]
    if text.isdecimal() and 1 <= int(text) <= len(question.options):
        return [question.options[int(text) - 1].label]
    if question.multi_select:
        found = [labels.get(_normalize(part)) for part in text.split(",")]
        named = [label for label in found if label is not None]
        if named and len(named) == len(found):
            return named
    return [text]


def _normalize(text: str) -> str:
    return text.strip().strip("\"'`.!").strip().casefold()


def _block(question: Question) -> str:
    asked = question.question.strip() or question.header.strip() or "The agent has a question."
    options = [f"- {_option(one)}" for one in question.options if one.label]
    return "\n".join((asked, *options))


def _option(option: Option) -> str:
    return f"{option.label}: {option.description}" if option.description else option.label
