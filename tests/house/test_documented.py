"""What people can set, type or meet is on a page of docs/reference, in `code` marks."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from openclaw_a2a.model import errors
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.settings import settings_schema

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"


def documented() -> set[str]:
    """Everything in code marks on the reference pages; `<any name>` counts as `<>`."""
    found: set[str] = set()
    for page in REFERENCE.glob("**/*.md"):
        text = page.read_text(encoding="utf-8")
        found.update(re.findall(r"`([^`\n]+)`", text))
    return {re.sub(r"<[^>]*>", "<>", mark) for mark in found}


def error_codes(root: type[errors.GatewayError] = errors.GatewayError) -> Iterator[str]:
    yield root.code
    for child in root.__subclasses__():
        yield from error_codes(child)


def setting_paths(node: JsonObject, schema: JsonObject, path: str = "") -> Iterator[str]:
    """Every key as a dotted path: `server.port`, `agents.<>.adapter`."""
    if "$ref" in node:
        node = schema["$defs"][node["$ref"].rpartition("/")[2]]
    for choice in node.get("anyOf", ()):
        yield from setting_paths(choice, schema, path)
    for name, member in node.get("properties", {}).items():
        inner = f"{path}.{name}" if path else name
        below = list(setting_paths(member, schema, inner))
        yield from below or [inner]
    members = node.get("additionalProperties")
    if isinstance(members, dict):
        yield from setting_paths(members, schema, f"{path}.<>")


def schema_paths() -> list[str]:
    schema = settings_schema()
    return sorted({path for path in setting_paths(schema, schema) if not path.startswith("$")})


def missing(wanted: Iterable[str]) -> list[str]:
    return sorted(set(wanted) - documented())


def test_every_error_code_is_documented() -> None:
    assert missing(error_codes()) == []


def test_every_setting_is_documented() -> None:
    assert missing(schema_paths()) == []
