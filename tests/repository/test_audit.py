"""`./dev audit` finds the pinned versions that an advisory names."""

import importlib.util
import json
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", ROOT / "requirements" / "audit.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def project(tmp_path: Path) -> Path:
    pins = tmp_path / "requirements" / "runtime.txt"
    pins.parent.mkdir()
    pins.write_text("# a comment\nMark.Up[fast]==2.1.0 ; python_version >= '3.11'\nsolid==1.0\n")
    lock = tmp_path / "tests" / "js" / "package-lock.json"
    lock.parent.mkdir(parents=True)
    packages = {"": {"version": "9"}, "node_modules/@scope/leftpad": {"version": "1.3.0"}}
    lock.write_text(json.dumps({"packages": packages}))
    return tmp_path


def record(advisory: str, ecosystem: str, name: str, **affected: Any) -> dict[str, Any]:
    package = {"ecosystem": ecosystem, "name": name}
    return {"id": advisory, "summary": "bad", "affected": [{"package": package, **affected}]}


def between(introduced: str, fixed: str, kind: str = "ECOSYSTEM") -> dict[str, Any]:
    events = [{"introduced": introduced}, {"fixed": fixed}]
    return {"ranges": [{"type": kind, "events": events}]}


def run(audit: ModuleType, project: Path, *records: Any) -> int:
    folder = project / "osv"
    folder.mkdir(exist_ok=True)
    for number, one in enumerate(records):
        (folder / f"{number}.json").write_text(json.dumps(one))
    return audit.main(["--advisories", str(folder)], project)


def test_affected_versions_are_found_in_both_ecosystems(
    audit: ModuleType, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(
        audit,
        project,
        record("A-1", "PyPI", "mark-up", **between("2.0", "2.1.1")),
        record("A-2", "npm", "@scope/leftpad", **between("0", "1.3.1", "SEMVER")),
        record("A-3", "PyPI", "solid", versions=["1.0"]),
    )
    printed = capsys.readouterr().out
    assert code == 1
    assert "mark-up 2.1.0 (requirements/runtime.txt): A-1 bad" in printed
    assert "@scope/leftpad 1.3.0 (tests/js/package-lock.json): A-2" in printed
    assert "3 pinned versions, 3 with a known vulnerability" in printed


def test_fixed_withdrawn_and_other_packages_are_not_found(audit: ModuleType, project: Path) -> None:
    withdrawn = {**record("A-4", "PyPI", "solid", versions=["1.0"]), "withdrawn": "2026-01-01"}
    code = run(
        audit,
        project,
        record("A-1", "PyPI", "mark-up", **between("2.0", "2.1.0")),
        record("A-2", "PyPI", "mark-up", **between("2.1.1", "3")),
        record("A-3", "npm", "solid", versions=["1.0"]),
        withdrawn,
    )
    assert code == 0


@pytest.mark.parametrize(
    ("pinned", "fixed", "is_found"),
    [
        ("1.3.0-next.2", "1.3.0", True),
        ("1.3.0-next.2", "1.3.0-next.10", True),
        ("1.3.0-next.2", "1.3.0-next.2", False),
        ("1.3.0-rc.1", "1.3.0-beta.9", False),
        ("1.3.0", "1.3.0-next.2", False),
        ("1.10.0", "1.9.0", False),
    ],
)
def test_a_version_before_a_release_of_npm_is_older_than_the_release(
    audit: ModuleType, project: Path, pinned: str, fixed: str, is_found: bool
) -> None:
    packages = {"node_modules/other": {"name": "@scope/leftpad", "version": pinned}}
    lock = project / "tests" / "js" / "package-lock.json"
    lock.write_text(json.dumps({"packages": packages}))
    advisory = record("A-1", "npm", "@scope/leftpad", **between("0", fixed, "SEMVER"))
    assert run(audit, project, advisory) == (1 if is_found else 0)


def test_a_zip_is_read_and_a_broken_one_is_an_error(audit: ModuleType, project: Path) -> None:
    archive = project / "all.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("A-1.json", json.dumps(record("A-1", "PyPI", "solid", versions=["1.0"])))
    assert audit.main(["--advisories", str(archive)], project) == 1
    archive.write_bytes(b"no zip")
    assert audit.main(["--advisories", str(archive)], project) == 2


def test_everything_this_project_pins_is_looked_at(audit: ModuleType) -> None:
    found = audit.list_packages(ROOT)
    assert {"PyPI", "npm"} == {package.ecosystem for package in found}
    assert {"uvicorn", "msgspec"} <= {package.name for package in found}
