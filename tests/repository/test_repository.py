"""The repository as people find it: lock files, addresses, and nothing of one machine."""

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
NPM_LOCKS = sorted(ROOT.glob("*/**/package-lock.json"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

# Written in pieces, so that this file does not find itself.
REGISTRIES = [
    "pypi" + ".org",
    "python" + "hosted.org",
    "registry.npm" + "js.org",
    "registry.yarn" + "pkg.com",
]
FOLDERS_OF_PEOPLE = re.compile(r"(?<![\w.~}-])/(?:" + "root|home|Users|work" + r")/\w")


def own_files() -> Iterator[Path]:
    """The files of the repository, without what was made in it."""
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    skipped = {".git", *(line.rstrip("/") for line in ignored)}
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in skipped]
        yield from (Path(folder) / name for name in names if name not in skipped)


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    found: list[str] = []
    for path in own_files():
        text = path.read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), start=1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}")
    return found


def test_no_file_names_a_package_registry() -> None:
    assert lines_with(re.compile("|".join(map(re.escape, REGISTRIES)))) == []


def test_no_file_names_a_folder_of_the_machine_it_was_made_on() -> None:
    assert lines_with(FOLDERS_OF_PEOPLE) == []


def locked(name: str) -> dict[str, Version]:
    """The packages of a lock file and their versions."""
    lines = (ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines()
    pins = [line.partition(";")[0].strip() for line in lines if not line.startswith("#")]
    return {pin.partition("==")[0]: Version(pin.partition("==")[2]) for pin in pins}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_lock_has_exact_versions_and_no_addresses(lock: Path) -> None:
    for line in lock.read_text(encoding="utf-8").splitlines():
        is_pin = re.fullmatch(r"[a-z0-9][a-z0-9-]*==[0-9][\w.+!]*( ; .+)?", line)
        assert is_pin or line.startswith("#"), line


@pytest.mark.parametrize("lock", NPM_LOCKS, ids=lambda path: str(path.relative_to(ROOT).parent))
def test_npm_lock_has_no_addresses_of_registries(lock: Path) -> None:
    packages = json.loads(lock.read_text(encoding="utf-8"))["packages"]
    assert [name for name, package in packages.items() if "resolved" in package] == []


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("runtime.txt", PROJECT["project"]["dependencies"]),
        ("dev.txt", PROJECT["project"]["dependencies"] + PROJECT["dependency-groups"]["dev"]),
    ],
)
def test_lock_fits_the_project_file(name: str, wanted: list[str]) -> None:
    versions = locked(name)
    requirements = map(Requirement, wanted)
    stale = [str(one) for one in requirements if versions[one.name] not in one.specifier]
    assert stale == [], "run ./dev lock"


def test_developers_have_what_users_have() -> None:
    runtime, dev = locked("runtime.txt"), locked("dev.txt")
    assert {name: dev[name] for name in runtime} == runtime


def test_readme_shows_both_commands_on_its_first_screen() -> None:
    first_screen = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:40]
    assert "./dev up" in "\n".join(first_screen)
    assert "./dev test" in "\n".join(first_screen)


def test_ci_runs_the_command_of_the_people_and_nothing_else() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert [line for line in script if not line.startswith(("#", "set ", "cd "))] == [
        "exec ./dev test"
    ]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert os.access(ROOT / "dev", os.X_OK)


def test_changelog_knows_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version = PROJECT["project"]["version"]
    assert "## [Unreleased]" in changelog or f"## [{version}]" in changelog


def test_dev_explains_every_command_it_has() -> None:
    script = (ROOT / "dev").read_text(encoding="utf-8")
    cases = script.partition("case $command in")[2]
    commands = set(re.findall(r"^  ([a-z]+)\)$", cases, flags=re.MULTILINE))
    explained = set(re.findall(r"^\./dev ([a-z]+)", script, flags=re.MULTILINE))
    assert commands == explained


def test_dev_refuses_an_unknown_command_and_says_which_exist(tmp_path: Path) -> None:
    done = subprocess.run(
        [ROOT / "dev", "frobnicate"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "frobnicate" in done.stderr
    assert "./dev test" in done.stderr
