"""What both wires say about ids and file content, once."""

import base64
import binascii
from typing import Annotated

from msgspec import Meta

from openclaw_a2a.model.ids import ContextId, MessageId, TaskId
from openclaw_a2a.protocol.validation import (
    FILLED_ID_PATTERN,
    HEADER_PATTERN,
    ID_PATTERN,
    MAX_HEADER_LENGTH,
    MAX_ID_LENGTH,
    SCHEME_PATTERN,
)

_filled = Meta(min_length=1, max_length=MAX_ID_LENGTH, pattern=FILLED_ID_PATTERN)
_clean = Meta(max_length=MAX_ID_LENGTH, pattern=ID_PATTERN)

RequiredMessageId = Annotated[MessageId, _filled]
RequiredTaskId = Annotated[TaskId, _filled]
RequiredId = Annotated[str, _filled]
PossibleMessageId = Annotated[MessageId, _clean]
OptionalMessageId = PossibleMessageId | None
OptionalTaskId = Annotated[TaskId, _clean] | None
OptionalContextId = Annotated[ContextId, _clean] | None
OptionalId = Annotated[str, _clean] | None
TaskIds = tuple[Annotated[TaskId, _filled], ...] | None
WebAddress = Annotated[str, Meta(min_length=1, max_length=2048)]
InlineWebAddress = Annotated[str, Meta(max_length=2048)]
"""Inside a send: a push configuration without an address is none."""
HeaderText = Annotated[str, Meta(max_length=MAX_HEADER_LENGTH, pattern=HEADER_PATTERN)]
SchemeName = Annotated[str, Meta(min_length=1, max_length=64, pattern=SCHEME_PATTERN)]
Strings = tuple[str, ...] | None
HistoryLength = Annotated[int, Meta(ge=0, le=2**31 - 1)] | None

NOT_BASE64 = "must be base64"

_to_standard = str.maketrans("-_", "+/")


def standard_base64(text: str) -> str | None:
    """The same content as standard base64 with padding; None when the text is no base64.

    Both alphabets are understood, with and without padding, as ProtoJSON asks of readers.
    """
    unpadded = text.translate(_to_standard).rstrip("=")
    try:
        content = base64.b64decode(unpadded + "=" * (-len(unpadded) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    return base64.b64encode(content).decode("ascii")
