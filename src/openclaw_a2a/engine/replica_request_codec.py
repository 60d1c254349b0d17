"""Requests of one replica to another and their answers, as they are stored in the database.

The field names are read by replicas of the neighbouring versions: add fields with defaults only.
"""

from collections.abc import Callable

import msgspec

from openclaw_a2a.engine.tasks.submit import InternalOrigin, SubmitRequest
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.delivery import Delivery
from openclaw_a2a.model.errors import CorruptRecord, GatewayError, GatewayFault, Overloaded, Problem
from openclaw_a2a.model.ids import AgentId, Json, OwnerId, RunId, SessionKey, TaskId
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.records import Hold
from openclaw_a2a.model.turn import Provenance, Scope
from openclaw_a2a.ports import Record

log = get_logger(__name__)


class InternalRequest(msgspec.Struct, frozen=True):
    """What belongs to a message of the gateway itself: see `InternalOrigin`."""

    agent_id: AgentId
    session_key: SessionKey
    provenance: Provenance | None = None
    metadata: dict[str, Json] | None = None
    record: Record | None = None
    delivery: Delivery | None = None
    sender: OwnerId = OwnerId("")
    """The replica that sends the delivery."""


class MessageRequest(msgspec.Struct, frozen=True, tag="message"):
    """A message for a session of another replica: see `SubmitRequest`."""

    scope: Scope
    message: Message
    is_blocking: bool = True
    accepted_output_modes: tuple[str, ...] = ()
    original_message: Message | None = None
    is_answer: bool = False
    address: str = ""
    is_from_peer: bool = False
    is_decided: bool = False
    hold: Hold | None = None
    metadata: dict[str, Json] | None = None
    new_task_id: TaskId | None = None
    internal: InternalRequest | None = None


class CancelRequest(msgspec.Struct, frozen=True, tag="cancel"):
    """The cancellation of a task that another replica works on."""

    scope: Scope | None
    task_id: TaskId


class ReleaseRequest(msgspec.Struct, frozen=True, tag="release"):
    """The operator has allowed a held task whose session another replica has."""

    task_id: TaskId


class WaitRequest(msgspec.Struct, frozen=True, tag="wait"):
    """The agent of a run waits for another one; or, with 0 seconds, it does not any more.

    The waiting replica repeats this; without a repetition the run gets its run slot back after so
    many seconds.
    """

    run_id: RunId
    waiter: str
    seconds: float


class RequestAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of a request: the run that answers a message, or the error."""

    run_id: RunId = RunId("")
    task_id: TaskId = TaskId("")
    answer: bytes | None = None
    code: str = ""
    message: str = ""
    details: dict[str, Json] = {}
    problems: tuple[Problem, ...] = ()
    retry_after_s: float | None = None


ReplicaRequest = MessageRequest | CancelRequest | ReleaseRequest | WaitRequest
_request_decoder = msgspec.json.Decoder(ReplicaRequest)
_answer_decoder = msgspec.json.Decoder(RequestAnswer)


def decode_request(body: bytes, replica: OwnerId) -> ReplicaRequest:
    """A request for `replica`. Raises: Overloaded (of a newer version), CorruptRecord."""
    try:
        return _request_decoder.decode(body)
    except msgspec.ValidationError as error:  # of a newer version, which knows other requests
        raise Overloaded(
            f"replica {replica} does not know this request ({error}); try again when all "
            "replicas have the same version"
        ) from None
    except (ValueError, RecursionError) as error:
        raise _damaged("the request of another replica", error) from error


def decode_request_answer(body: bytes, owner: OwnerId) -> RequestAnswer:
    """The answer of a replica. Raises: the error that it answered with, CorruptRecord."""
    try:
        answer = _answer_decoder.decode(body)
    except (ValueError, RecursionError) as error:
        raise _damaged(f"the answer of replica {owner}", error) from error
    if answer.code:
        raise _make_error(answer)
    return answer


def describe_message(request: SubmitRequest, internal: InternalRequest | None) -> MessageRequest:
    """A message for the replica that owns its session."""
    described = msgspec.convert(request, MessageRequest, from_attributes=True)
    return msgspec.structs.replace(described, internal=internal)


def restore_message(request: MessageRequest) -> SubmitRequest:
    """A message as the replica that handed it off had it."""
    submitted = msgspec.convert(request, SubmitRequest, from_attributes=True)
    internal = request.internal
    if internal is None:
        return submitted
    record, delivery = internal.record, internal.delivery
    make_delivery: Callable[[TaskId, int], Delivery] | None = (
        None if delivery is None else lambda _task_id, _cursor: delivery
    )
    return msgspec.structs.replace(
        submitted,
        internal_origin=InternalOrigin(
            internal.session_key,
            internal.provenance,
            None if record is None else lambda _: record,
            internal.metadata,
        ),
        make_delivery=make_delivery,
        delivery_owner=internal.sender,
    )


def _damaged(what: str, error: Exception) -> CorruptRecord:
    log.warning("replica.request_damaged", what=what, reason=str(error))
    return CorruptRecord(
        f"{what} cannot be read; run the same version on all replicas, and try again"
    )


def describe_error(error: GatewayError) -> RequestAnswer:
    """The answer to a request that failed."""
    return RequestAnswer(
        code=error.code,
        message=error.message,
        details=error.details,
        problems=tuple(getattr(error, "problems", ())),
        retry_after_s=getattr(error, "retry_after_s", None),
    )


def _make_error(answer: RequestAnswer) -> GatewayError:
    """The error that another replica raised."""
    kind = _find_kind(GatewayError, answer.code) or GatewayFault
    error = kind(answer.message)  # with whatever else errors of its kind have
    error.details = answer.details
    if hasattr(error, "problems"):
        vars(error)["problems"] = answer.problems
    if answer.retry_after_s is not None:
        vars(error)["retry_after_s"] = answer.retry_after_s
    return error


def _find_kind(kind: type[GatewayError], code: str) -> type[GatewayError] | None:
    for one in kind.__subclasses__():
        if "code" in vars(one) and one.code == code:
            return one
        if (found := _find_kind(one, code)) is not None:
            return found
    return None
