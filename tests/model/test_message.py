"""Messages and parts: what they hold and how it is asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.model.ids import MessageId
from openclaw_a2a.model.message import Message, Part, Role


@given(st.binary(max_size=100))
def test_inline_file_gives_its_bytes_back(content: bytes) -> None:
    part = Part.of_bytes(content, media_type="image/png", filename="x.png")
    assert part.content == content
    assert (part.kind, part.is_file, part.filename) == ("file", True, "x.png")


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (Part.of_text(""), "text"),
        (Part.of_data(None), "data"),
        (Part.of_data({"text": "x"}), "data"),
        (Part.of_url("https://example.com/a.png"), "file"),
        (Part.of_bytes(b"", media_type="a/b"), "file"),
    ],
)
def test_part_knows_its_kind(part: Part, kind: str) -> None:
    assert part.kind == kind
    assert part.is_file == (kind == "file")
    assert part.root is part


def test_content_of_what_is_no_inline_file_is_empty() -> None:
    assert Part.of_text("x").content == Part.of_url("https://example.com").content == b""


def test_text_of_a_message_is_its_text_parts_with_blank_lines_between() -> None:
    parts = (Part.of_text("one"), Part.of_data(1), Part.of_text("two"))
    assert Message(MessageId("m"), Role.USER, parts).text == "one\n\ntwo"


def test_message_without_text_has_none() -> None:
    assert Message(MessageId("m"), Role.USER, (Part.of_data(1),)).text == ""
