"""The pages of the documentation and the code blocks in them."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_OUTSIDE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "bench/README.md")
PAGES = sorted([*(ROOT / name for name in _OUTSIDE), *(ROOT / "docs").rglob("*.md")])
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: where it stands, its language and its text."""

    place: str
    language: str
    text: str


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(language: str, page: str | None = None) -> list[Block]:
    """The blocks in this language, of all pages or of one."""
    return [one for one in _all_blocks() if one.language == language and _is_on(one, page)]


def all_blocks(page: str) -> list[Block]:
    """The blocks of one page in their order."""
    return [one for one in _all_blocks() if _is_on(one, page)]


def text_of(language: str, page: str, holding: str) -> str:
    """The one block of a page that holds this text."""
    [block] = [one for one in blocks(language, page) if holding in one.text]
    return block.text


def commands(page: str | None = None) -> Iterator[tuple[str, list[str]]]:
    """The command lines that people are told to type, each with its place, as words."""
    for block in blocks("console", page):
        joined = block.text.replace("\\\n", " ")
        for line in joined.splitlines():
            if line.startswith("$ "):
                yield block.place, shlex.split(line[2:], comments=True)


def _all_blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in _BLOCK.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield Block(f"{name_of(page)}:{line}", match[1], match[2])


def _is_on(block: Block, page: str | None) -> bool:
    return page is None or block.place.rpartition(":")[0] == page
