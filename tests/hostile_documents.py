"""Documents that a decoder may meet: arbitrary bytes, and JSON that is nearly what it expects."""

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

Json = Any

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from(["", "\ud800", "\0", "x" * 300, "0001-01-01T00:00:00", "1e999"])
)


_NOISE = [b"[" * 5000, b'{"a":' * 5000, b"9" * 99, b"NaN", b"-Infinity", b"\\ud800"]


def json_near(members: Sequence[str], values: Sequence[Json] = ()) -> st.SearchStrategy[Json]:
    """JSON whose objects have these members, with these values and any others."""
    scalars = _SCALARS | st.sampled_from(list(values)) if values else _SCALARS
    names = st.sampled_from(list(members)) | st.text(max_size=4)
    return st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(names, inner, max_size=4)
            | st.fixed_dictionaries(
                {}, optional=dict.fromkeys(members, inner | st.sampled_from([*values, None]))
            )
        ),
        max_leaves=20,
    )


@st.composite
def documents(draw: st.DrawFn, value: st.SearchStrategy[Json]) -> bytes:
    """The value as JSON, with or without damage, or bytes that are nothing at all."""
    if draw(st.integers(0, 19)) == 0:
        return draw(st.binary(max_size=300))
    text = json.dumps(draw(value)).encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 5)):
        return text
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, len(text)))
    noise = draw(st.binary(max_size=5) | st.sampled_from(_NOISE))
    return text[:start] + noise + text[end:]
