"""Says where each problem of the settings comes from: the file and line, a variable, or a flag."""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from openclaw_a2a.model.errors import Problem, SettingsInvalid


def invalid(
    problems: Iterable[Problem], *, origins: Mapping[str, str], path: Path | None
) -> SettingsInvalid:
    """The error that lists the problems, each once and with where it comes from."""
    text = _text(path)
    told = tuple(
        Problem(one.path, one.message + _place(one.path, origins, path, text), one.keyword)
        for one in dict.fromkeys(problems)
    )
    lines = "\n".join(f"{one.path}: {one.message}" for one in told)
    return SettingsInvalid(lines, problems=told)


def shown(path: Path) -> str:
    """The path as people would write it: from the working directory when it is below."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _place(place: str, origins: Mapping[str, str], path: Path | None, text: str) -> str:
    keys = re.sub(r"\[\d+\]", "", place)
    origin = origins.get(keys, "")
    if origin.startswith(("environment", "flag")):
        return f" (from {origin})"
    known = keys
    while known and not _is_in_file(known, origins):
        known = known.rpartition(".")[0]
    if path is None or not known:
        return ""
    # What is missing has no line of its own.
    line = _line(keys.rpartition(".")[2], text) if known == keys else ""
    return f" (in {shown(path)}{line})"


def _is_in_file(place: str, origins: Mapping[str, str]) -> bool:
    """True when the file has this setting or something in it."""
    return any(
        origin.startswith("file") and (key == place or key.startswith(f"{place}."))
        for key, origin in origins.items()
    )


def _line(key: str, text: str) -> str:
    """The line of the key, when the file has it only once."""
    found = list(re.finditer(rf"""(?<![\w$.-])["']?{re.escape(key)}["']?\s*:""", text))
    return f", line {text.count(chr(10), 0, found[0].start()) + 1}" if len(found) == 1 else ""


def _text(path: Path | None) -> str:
    if path is not None:
        with suppress(OSError, ValueError):
            return path.read_text(encoding="utf-8-sig")
    return ""
