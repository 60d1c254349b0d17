"""Adds targets to the settings file and takes them out; everything else in it stays as it is."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.settings.places import (
    Place,
    member,
    members,
    root_place,
    with_member,
    without,
)
from openclaw_a2a.settings.report import is_list, is_object
from openclaw_a2a.settings.write import Addition, parsed, text_of, user_file


def plan_target(path: Path | None, target: JsonObject) -> Addition:
    """What the settings file needs so that the target is known; nothing is changed.

    Without a path it is the file in the user's config folder. `text` has the lines for a person.
    """
    place = path or user_file()
    entry = _written(target)
    section = _section(entry)
    text = text_of(place)
    if text is None:
        whole = f"{{\n{_indented(section)},\n}}\n"
        return Addition(place, section, is_possible=not place.exists(), whole=whole)
    return _planned(place, text, section, lambda: _with_target(text, entry), target=target)


def plan_removal(path: Path, alias: str) -> Addition | None:
    """How the settings file loses a target; None when the file has no such target."""
    text = text_of(path)
    values = parsed(text or "")
    targets = _targets_of(values)
    indexes = [index for index, one in enumerate(targets) if _alias_of(one) == alias]
    if text is None or len(indexes) != 1:
        return None
    left = [one for index, one in enumerate(targets) if index != indexes[0]]

    def change() -> str:
        return without(text, members(text, _list_place(text))[indexes[0]])

    whole = _attempt(change)
    is_right = is_object(values) and parsed(whole) == _with_targets(values, left)
    return Addition(path, _written(targets[indexes[0]]), is_possible=is_right, whole=whole)


def _planned(
    path: Path, text: str, lines: str, change: Callable[[], str], *, target: JsonObject
) -> Addition:
    values = parsed(text)
    whole = _attempt(change)
    # What comes out must say what it said before, and the target: else hands off.
    wanted = _with_targets(values, [*_targets_of(values), target]) if is_object(values) else None
    return Addition(
        path, lines, is_possible=wanted is not None and parsed(whole) == wanted, whole=whole
    )


def _with_target(text: str, entry: str) -> str:
    root = root_place(text)
    outbound = member(text, root, "outbound")
    if outbound is None:
        return with_member(text, root, _section(entry))
    targets = member(text, outbound, "targets")
    if targets is None:
        return with_member(text, outbound, f"targets: [\n  {entry},\n]")
    return with_member(text, targets, entry)


def _list_place(text: str) -> Place:
    outbound = member(text, root_place(text), "outbound")
    targets = member(text, outbound, "targets") if outbound else None
    if targets is None:
        raise ValueError("there is no list of targets")
    return targets


def _attempt(change: Callable[[], str]) -> str:
    """The changed text; empty when the text is such that its places cannot be told."""
    try:
        return change()
    except (ValueError, IndexError, RecursionError):
        return ""


def _targets_of(values: Json) -> list[Json]:
    section = values.get("outbound") if is_object(values) else None
    targets = section.get("targets") if is_object(section) else None
    return targets if is_list(targets) else []


def _with_targets(values: JsonObject, targets: list[Json]) -> JsonObject | None:
    section = values.get("outbound", {})
    if not is_object(section) or not isinstance(section.get("targets", []), list):
        return None
    return {**values, "outbound": {**section, "targets": targets}}


def _alias_of(target: Json) -> str | None:
    alias = target.get("alias") if is_object(target) else None
    return alias.strip() if isinstance(alias, str) else None


def _section(entry: str) -> str:
    return f"outbound: {{\n  targets: [\n    {entry},\n  ],\n}}"


def _indented(lines: str) -> str:
    return "\n".join(f"  {line}" for line in lines.splitlines())


def _written(value: Json) -> str:
    """The value on one line, as people write JSON5."""
    if is_object(value):
        shown = [f"{_name(key)}: {_written(one)}" for key, one in value.items()]
        return f"{{ {', '.join(shown)} }}" if shown else "{}"
    if is_list(value):
        return f"[{', '.join(_written(one) for one in value)}]"
    return msgspec.json.encode(value).decode()


def _name(key: str) -> str:
    return key if key.isascii() and key.isidentifier() else msgspec.json.encode(key).decode()
