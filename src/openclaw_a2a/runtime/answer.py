"""What is kept of a run that made no task: its message, or why there is none."""

import msgspec

from openclaw_a2a.model.errors import GatewayError, OutputNotAccepted
from openclaw_a2a.model.ids import Json
from openclaw_a2a.model.stored import StreamBody, encode_record
from openclaw_a2a.runtime.live import Answer, Refused
from openclaw_a2a.runtime.turn import AccountRules


class StoredAnswer(StreamBody, frozen=True):
    """The stored form: a message or an error."""

    error: dict[str, Json] | None = None


def encode_answer(message: bytes) -> bytes:
    """The stored form of a direct answer, from the bytes of its message."""
    return b'{"message":' + message + b"}"


def encode_refusal(error: GatewayError) -> bytes:
    """The stored form of a run that has nothing to show."""
    details = {"code": error.code, "message": error.message, "details": error.details}
    return msgspec.json.encode({"error": details})


def decode_answer(stored: bytes) -> Answer | Refused:
    """The first thing to show of a run that ended without a task."""
    document = msgspec.json.decode(stored, type=StoredAnswer)
    if document.message is not None:
        return Answer(encode_record(document.message))
    fault = document.error or {}
    details = fault.get("details")
    return Refused(OutputNotAccepted(str(fault.get("message", "")), details=details))


def not_accepted(accepted: tuple[str, ...], rules: AccountRules) -> OutputNotAccepted:
    """Why an answer cannot be sent: the caller takes none of what it holds."""
    modes = list(accepted or rules.output_modes)
    return OutputNotAccepted(
        f"The answer holds nothing in an accepted output mode ({', '.join(modes)}).",
        details={"acceptedOutputModes": modes, "availableOutputModes": list(rules.output_modes)},
    )
