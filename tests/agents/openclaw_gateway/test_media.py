"""References to files in an agent's answer: which are fetched, and from where."""

import posixpath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from openclaw_a2a.agents.openclaw_gateway.media import is_link, split_media, workspace_path

SPACE = "/srv/claw/workspace"


@pytest.mark.parametrize(
    ("reference", "path"),
    [
        ("./out.png", "out.png"),
        ("out.png", "out.png"),
        ("charts/./a b/ü.png", "charts/a b/ü.png"),
        (f"{SPACE}/out.png", "out.png"),
        (f"file://{SPACE}/charts/out.png", "charts/out.png"),
        ("charts\\out.png", "charts/out.png"),
    ],
)
def test_workspace_files_are_requested_by_their_relative_path(reference: str, path: str) -> None:
    assert workspace_path(reference, SPACE) == path


@pytest.mark.parametrize(
    "reference",
    [
        "/etc/hostname",
        "file:///etc/passwd",
        "../secret.txt",
        "a/../../secret.txt",
        "a/../b.txt",
        "..\\secret.txt",
        "~/.ssh/id_rsa",
        "~root/x",
        "C:\\Windows\\x.ini",
        "\\\\server\\share\\x",
        f"{SPACE}/../other/x",
        f"{SPACE}-other/x",
        SPACE,
        f"{SPACE}/",
        ".",
        "",
        "a\0b",
        "a\nb",
        "media://inbound/x.png",
        "data:image/png;base64,AAAA",
        "file://~/x",
    ],
)
def test_what_lies_elsewhere_is_refused(reference: str) -> None:
    assert workspace_path(reference, SPACE) is None


def test_without_a_known_workspace_only_relative_references_are_followed() -> None:
    assert workspace_path("./a.png", "") == "a.png"
    assert workspace_path("/a.png", "") is None
    assert workspace_path("/a.png", "/") is None


hostile = st.lists(
    st.sampled_from(
        ["..", ".", "/", "\\", "~", "a", "etc", "\0", "file://", SPACE, "C:", "//", " ", "%2e%2e"]
    ),
    max_size=8,
).map("".join)


@given(reference=st.one_of(st.text(), hostile), workspace=st.sampled_from([SPACE, "", "C:\\w"]))
@example(reference=f"{SPACE}/..//etc", workspace=SPACE)
def test_no_path_outside_the_workspace_is_ever_requested(reference: str, workspace: str) -> None:
    path = workspace_path(reference, workspace)
    if path is None:
        return
    assert path
    assert not path.startswith(("/", "\\"))
    assert ".." not in path.replace("\\", "/").split("/")
    assert posixpath.normpath(posixpath.join(SPACE, path)).startswith(f"{SPACE}/")


def test_media_lines_are_cut_out_in_their_order() -> None:
    text = 'Here:\nMEDIA:./a.png\n  media: "b c.png" \nand\nMEDIA:https://example.com/x.png'
    assert split_media(text) == (
        "Here:\nand",
        ("./a.png", "b c.png", "https://example.com/x.png"),
    )


@pytest.mark.parametrize(
    "text",
    [
        "no media here",
        "`MEDIA:./c.png`",
        "    MEDIA:./indented.png",
        "```\nMEDIA:./in_code.txt\n```",
        "~~~\n```\nMEDIA:./in_code.txt\n~~~",
        "see MEDIA:./c.png",
        "MEDIA:",
        "MEDIA:http://127.0.0.1/x.png",
        "  spaces stay\n",
    ],
)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert split_media(text) == (text, ())


@given(text=st.text(alphabet='MEDIA:medi ./x`~\n"', max_size=80))
def test_any_text_is_cut_without_losing_its_other_lines(text: str) -> None:
    kept, references = split_media(text)
    assert len(text_data(kept)) + len(references) == len(text_data(text))
    assert all(references)


def text_data(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("https://example.com/a.png?x=1", True),
        ("HTTPS://example.com/a.png", True),
        ("https://", False),
        ("https://[x", False),
        ("https://a b/", False),
        ("ftp://example.com/a", False),
        ("./https://x", False),
    ],
)
def test_links_are_known(reference: str, expected: bool) -> None:
    assert is_link(reference) is expected
