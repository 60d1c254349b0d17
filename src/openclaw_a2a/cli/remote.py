"""Reads what an agent answers: a result, or its error in our words."""

import msgspec

from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import Json, JsonObject

OK = 200
_ABSENT = msgspec.Raw()


class _Answer(msgspec.Struct, frozen=True):
    result: msgspec.Raw = _ABSENT
    error: Json = None


class _Error(msgspec.Struct, frozen=True):
    """An error of JSON-RPC (`data`) or of HTTP+JSON (`details`)."""

    message: str = ""
    code: int | str | None = None
    data: Json = None
    details: Json = None


class _Detail(msgspec.Struct, frozen=True):
    reason: str = ""
    metadata: JsonObject = msgspec.field(default_factory=dict)


_answers = msgspec.json.Decoder(_Answer)


def read_result(status: int, body: bytes) -> bytes:
    """The result in a JSON-RPC answer. Raises: AgentFailed."""
    try:
        answer = _answers.decode(body)
    except msgspec.MsgspecError:
        raise refused(status, body) from None
    if answer.error is not None or status != OK:
        raise refused(status, body)
    result = bytes(answer.result)
    if not result:
        raise _failed("the answer has neither a result nor an error", "answer-unreadable")
    return result


def refused(status: int, body: bytes) -> AgentFailed:
    """The error in an answer, of JSON-RPC or HTTP+JSON, or the HTTP status when there is none."""
    try:
        error = msgspec.convert(_answers.decode(body).error, _Error)
    except msgspec.MsgspecError:
        error = _Error()
    message = error.message or f"the answer is HTTP {status} and no A2A answer"
    return _failed(message, _code(error) or _http_code(status))


def _code(error: _Error) -> str | None:
    """Our own code when our gateway sent it, else the reason in our spelling, else the number."""
    for details in (error.data, error.details):
        try:
            known = msgspec.convert(details, tuple[_Detail, ...])
        except msgspec.ValidationError:
            continue
        for detail in known:
            if detail.reason:
                return str(detail.metadata.get("code") or _kebab(detail.reason))
    if isinstance(error.code, str):
        return _kebab(error.code)
    return f"rpc{error.code}" if error.code and error.code < 0 else None


def _kebab(name: str) -> str:
    return name.lower().replace("_", "-")


def _http_code(status: int) -> str:
    return {401: "unauthenticated", 403: "not-allowed"}.get(status, f"http-{status}")


def _failed(message: str, code: str) -> AgentFailed:
    return AgentFailed(message, details={"code": code})
