"""Field types that both protocol versions share: ids, header values, base64 content."""

import base64
import binascii
from typing import Annotated

from msgspec import Meta

from openclaw_a2a.model.ids import ContextId, MessageId, TaskId

MAX_ID_LENGTH = 256
"""How long ids from peers may be."""

MAX_HEADER_LENGTH = 4096
"""How long a value may be that is sent back to its peer as a header."""

# The patterns look no further than the longest value: that keeps them cheap on hostile input.
_NO_CONTROLS = rf"^(?![\s\S]{{0,{MAX_ID_LENGTH}}}[\x00-\x1f\x7f-\x9f])"
_FILLED = _NO_CONTROLS + rf"(?=[\s\S]{{0,{MAX_ID_LENGTH}}}\S)"
_HEADER_VALUE = rf"^(?! |[\s\S]{{0,{MAX_HEADER_LENGTH}}}([^\x20-\x7e]| \Z))"
_SCHEME = r"^(?![\s\S]{0,64}[^!#$%&'*+.^_`|~0-9A-Za-z-])"

PATTERN_MESSAGES = {
    _NO_CONTROLS: "must have no control characters",
    _FILLED: "must not be blank and must have no control characters",
    _HEADER_VALUE: "must have printable ASCII characters only, and no blank at either end",
    _SCHEME: "must be the name of an HTTP authentication scheme, such as Bearer",
}
"""What a value is told that does not match one of the patterns."""

_filled = Meta(min_length=1, max_length=MAX_ID_LENGTH, pattern=_FILLED)
_clean = Meta(max_length=MAX_ID_LENGTH, pattern=_NO_CONTROLS)

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
"""Inside a send: a push configuration without a URL is ignored."""
HeaderText = Annotated[str, Meta(max_length=MAX_HEADER_LENGTH, pattern=_HEADER_VALUE)]
SchemeName = Annotated[str, Meta(min_length=1, max_length=64, pattern=_SCHEME)]
Strings = tuple[str, ...] | None
HistoryLength = Annotated[int, Meta(ge=0, le=2**31 - 1)] | None

NOT_BASE64 = "must be base64"

_to_standard = str.maketrans("-_", "+/")


def standard_base64(text: str) -> str | None:
    """The same content as standard base64 with padding; None when the text is not base64.

    Both alphabets are accepted, with and without padding, as ProtoJSON requires of readers.
    """
    unpadded = text.translate(_to_standard).rstrip("=")
    try:
        content = base64.b64decode(unpadded + "=" * (-len(unpadded) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    return base64.b64encode(content).decode("ascii")
