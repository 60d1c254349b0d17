"""What people can set, type or meet is on a page of docs/reference, in `code` marks."""

import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from cyclopts import App

import openclaw_a2a
from openclaw_a2a.cli.dispatch import build_commands
from openclaw_a2a.cli.overview import ALIASES
from openclaw_a2a.model.errors import GatewayError
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


def error_kinds(root: type[GatewayError] = GatewayError) -> Iterator[type[GatewayError]]:
    yield root
    for child in root.__subclasses__():
        yield from error_kinds(child)


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
    if isinstance(node.get("additionalProperties"), dict):
        yield from setting_paths(node["additionalProperties"], schema, f"{path}.<>")


def schema_paths() -> list[str]:
    schema = settings_schema()
    return sorted({path for path in setting_paths(schema, schema) if not path.startswith("$")})


def commands(app: App, path: str = "openclaw-a2a") -> Iterator[str]:
    """Every command as people type it: `openclaw-a2a tasks list`."""
    names = [name for name in app if not name.startswith("-") and name not in ALIASES.values()]
    if not names:
        yield path
    for name in names:
        yield from commands(app[name], f"{path} {name}")


def missing(wanted: Iterable[str]) -> list[str]:
    return sorted(set(wanted) - documented())


def test_every_error_code_is_documented() -> None:
    assert missing(kind.code for kind in error_kinds()) == []


def test_errors_are_all_on_one_page_of_the_source() -> None:
    for module in pkgutil.walk_packages(openclaw_a2a.__path__, "openclaw_a2a."):
        importlib.import_module(module.name)
    elsewhere = [kind for kind in error_kinds() if kind.__module__ != GatewayError.__module__]
    assert elsewhere == []


def test_every_setting_is_documented() -> None:
    assert missing(schema_paths()) == []


def test_every_public_name_of_the_library_is_documented() -> None:
    assert missing(openclaw_a2a.__all__) == []


def test_every_command_is_documented() -> None:
    assert missing(commands(build_commands())) == []
