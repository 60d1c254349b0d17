"""Files of peers: contents that are not what they say, and names that would do harm."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.model.file_content import clean_filename, content_mismatch

SAMPLES = {
    "image/png": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
    "image/jpeg": b"\xff\xd8\xff\xe0\x00\x10JFIF",
    "image/jpg": b"\xff\xd8\xff\xe0\x00\x10JFIF",
    "image/gif": b"GIF89a\x01\x00",
    "image/webp": b"RIFF\x1a\x00\x00\x00WEBPVP8L",
    "application/pdf": b"%PDF-1.7\n",
    "application/zip": b"PK\x03\x04\x14\x00",
    "audio/wav": b"RIFF\x1a\x00\x00\x00WAVEfmt ",
    "audio/ogg": b"OggS\x00",
    "video/mp4": b"\x00\x00\x00\x18ftypisom",
    "text/plain": "Grüße, 世界\n".encode(),
    "text/csv": b"a,b\n",
    "application/json": b'{"a": 1}',
    "text/html; charset=utf-16": "<p>".encode("utf-16"),
}


def encode(content: bytes) -> str:
    return base64.b64encode(content).decode()


@pytest.mark.parametrize("media_type", SAMPLES)
def test_a_file_of_its_type_is_accepted(media_type: str) -> None:
    assert content_mismatch(media_type, encode(SAMPLES[media_type])) is None
    assert content_mismatch(media_type.upper(), encode(SAMPLES[media_type])) is None


@pytest.mark.parametrize("media_type", SAMPLES)
@pytest.mark.parametrize("content", [b"\x7fELF\x02\x01\x01\x00", b"MZ\x90\x00\x03\x00"])
def test_a_program_under_another_type_is_refused(media_type: str, content: bytes) -> None:
    if "utf-16" not in media_type:
        assert content_mismatch(media_type, encode(content)) is not None


def test_an_image_of_another_kind_is_refused() -> None:
    reason = content_mismatch("image/png", encode(SAMPLES["image/jpeg"]))
    assert reason == "says it is image/png, and its content is not"


@pytest.mark.parametrize("media_type", ["image/svg+xml", "application/octet-stream", "x/y", ""])
def test_types_without_a_signature_are_taken_as_they_are(media_type: str) -> None:
    assert content_mismatch(media_type, encode(bytes(range(256)))) is None


@given(st.text(max_size=40), st.binary(max_size=2000))
def test_any_type_and_content_is_judged(media_type: str, content: bytes) -> None:
    content_mismatch(media_type, encode(content))


@pytest.mark.parametrize(
    ("given_name", "kept"),
    [
        ("report.pdf", "report.pdf"),
        ("Übersicht 2026.pdf", "Übersicht 2026.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Windows\\win.ini", "win.ini"),
        ("/etc/cron.d/x", "x"),
        (".bashrc", "bashrc"),
        ("..", ""),
        ("", ""),
        ("a\x00b\r\n.txt", "a_b__.txt"),
        ("invoice\u202egnp.exe", "invoice_gnp.exe"),
        ("NUL", "_NUL"),
        ("com1.txt", "_com1.txt"),
        ("file.txt:stream", "file.txt_stream"),
    ],
)
def test_names_lose_what_does_harm(given_name: str, kept: str) -> None:
    assert clean_filename(given_name) == kept


@given(st.text(alphabet=st.characters(), max_size=400))
def test_every_cleaned_name_is_one_short_name_in_its_folder(name: str) -> None:
    cleaned = clean_filename(name)
    assert len(cleaned.encode()) <= 200
    assert not set(cleaned) & set('/\\:*?"<>|\0\r\n')
    assert cleaned not in (".", "..")
    assert not cleaned.startswith((".", " "))
    assert clean_filename(cleaned) == cleaned
