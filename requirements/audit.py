#!/usr/bin/env python3
"""Known vulnerabilities of the exact versions in requirements/*.txt and in the npm lock files.

  ./dev audit                        asks the OSV service
  ./dev audit --advisories PATH      reads OSV records (a folder, or a zip as OSV offers it)

Exit codes: 0 nothing known, 1 something found, 2 the advisories could not be read.
"""

import argparse
import json
import re
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parent.parent
SERVICE = "https://api.osv.dev/v1/querybatch"
PATIENCE_S = 60
Json = Any


class Package(NamedTuple):
    """One pinned version; `where` is the file that pins it."""

    ecosystem: str
    name: str
    version: str
    where: str


class Finding(NamedTuple):
    """An advisory that a pinned version is affected by."""

    package: Package
    advisory: str
    summary: str


class Unreadable(Exception):
    """The advisories cannot be read."""


def list_packages(root: Path) -> list[Package]:
    """Everything that this project pins."""
    found = []
    for path in sorted((root / "requirements").glob("*.txt")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if pin := re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;]+)", line):
                name = canonicalize_name(pin[1])
                found.append(Package("PyPI", name, pin[2], str(path.relative_to(root))))
    for path in sorted(root.glob("*/**/package-lock.json")):
        if {".dev", ".venv", "node_modules"}.isdisjoint(path.relative_to(root).parts):
            where = str(path.relative_to(root))
            for place, locked in json.loads(path.read_text(encoding="utf-8"))["packages"].items():
                if place and "version" in locked:
                    # A package that is installed under another name has its own beside it.
                    name = locked.get("name") or place.rpartition("node_modules/")[2]
                    found.append(Package("npm", name, locked["version"], where))
    return found


def read_records(path: Path) -> Iterator[Json]:
    """The OSV records in a folder or a zip. Raises: Unreadable."""
    try:
        if path.is_dir():
            for file in sorted(path.rglob("*.json")):
                yield json.loads(file.read_text(encoding="utf-8"))
        else:
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    yield json.loads(archive.read(name))
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise Unreadable(f"{path} cannot be read: {error}") from error


def match_records(packages: Iterable[Package], records: Iterable[Json]) -> list[Finding]:
    """The packages that the records say are affected."""
    by_name: dict[tuple[str, str], list[Package]] = {}
    for package in packages:
        by_name.setdefault((package.ecosystem, package.name), []).append(package)
    found = []
    for record in records:
        for affected in () if "withdrawn" in record else record.get("affected", ()):
            named = affected.get("package", {})
            ecosystem, name = named.get("ecosystem", ""), named.get("name", "")
            if ecosystem == "PyPI":
                name = canonicalize_name(name)
            found += [
                Finding(package, record["id"], record.get("summary", ""))
                for package in by_name.get((ecosystem, name), ())
                if is_affected(package, affected)
            ]
    return found


def is_affected(package: Package, affected: Json) -> bool:
    """True when an OSV `affected` entry names the version or has it in one of its ranges."""
    if package.version in affected.get("versions", ()):
        return True
    key = _semver_key if package.ecosystem == "npm" else _python_key
    return any(
        _is_in_range(package.version, one.get("events", ()), key)
        for one in affected.get("ranges", ())
        if one.get("type") in ("ECOSYSTEM", "SEMVER")
    )


def _is_in_range(version: str, events: Iterable[Json], key: Callable[[str], Any]) -> bool:
    # The last event at or before the version decides.
    inside, mine = False, key(version)
    for event in sorted(events, key=lambda one: key(next(iter(one.values())))):
        [(kind, place)] = event.items()
        if kind == "introduced" and (place == "0" or key(place) <= mine):
            inside = True
        elif (kind == "fixed" and key(place) <= mine) or (
            kind == "last_affected" and key(place) < mine
        ):
            inside = False
    return inside


def _python_key(version: str) -> Version:
    try:
        return Version(version)
    except InvalidVersion:
        return Version(".".join(re.findall(r"\d+", version)[:3]) or "0")


def _semver_key(version: str) -> Any:
    """Its place in the order of semver.org, section 11: a pre-release comes before its release."""
    release, _, before = version.partition("+")[0].partition("-")
    numbers = ([int(one) for one in re.findall(r"\d+", release)] + [0, 0, 0])[:3]
    marks = [(0, int(one), "") if one.isdigit() else (1, 0, one) for one in before.split(".")]
    return numbers, not before, marks


def ask_service(packages: list[Package]) -> list[Finding]:
    """What the OSV service knows about the packages. Raises: Unreadable."""
    queries = [
        {"package": {"ecosystem": one.ecosystem, "name": one.name}, "version": one.version}
        for one in packages
    ]
    found = []
    for start in range(0, len(queries), 500):
        body = json.dumps({"queries": queries[start : start + 500]}).encode()
        request = urllib.request.Request(SERVICE, body, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                results = json.load(answer)["results"]
        except (urllib.error.URLError, TimeoutError, ValueError, KeyError) as error:
            raise Unreadable(f"{SERVICE} does not answer: {error}") from error
        for package, result in zip(packages[start:], results, strict=False):
            found += [Finding(package, one["id"], "") for one in result.get("vulns", ())]
    return found


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--advisories", type=Path, help="a folder or zip of OSV records")
    given = parser.parse_args(arguments)
    packages = list_packages(root)
    try:
        if given.advisories is None:
            found = ask_service(packages)
        else:
            found = match_records(packages, read_records(given.advisories))
    except Unreadable as error:
        print(f"{error}\nWithout a network: ./dev audit --advisories PATH", file=sys.stderr)
        return 2
    for package, advisory, summary in sorted(set(found)):
        print(f"{package.name} {package.version} ({package.where}): {advisory} {summary}".rstrip())
    print(f"{len(set(packages))} pinned versions, {len(set(found))} with a known vulnerability")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
