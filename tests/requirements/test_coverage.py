"""Every rule has a test, every claimed rule exists, every conformance test claims one."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.requirements.manifest import ALL, REQUIREMENTS

TESTS = Path(__file__).parent.parent
Claims = dict[str, set[str]]


def _claims(node: ast.expr) -> Iterator[str]:
    """The ids in `pytest.mark.requirement("id", ...)`, alone or in a list."""
    if isinstance(node, ast.List | ast.Tuple):
        for element in node.elts:
            yield from _claims(element)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.requirement":
        for argument in node.args:
            assert isinstance(argument, ast.Constant), "claim rules by literal ids"
            yield str(argument.value)


def _module_claims(module: ast.Module) -> set[str]:
    found: set[str] = set()
    for statement in module.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark":
            found.update(_claims(statement.value))
    return found


def _read_tests(path: Path) -> Claims:
    """The claims of every test function of a file, its module's claims included."""
    module = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    shared = _module_claims(module)
    tests: Claims = {}
    for node in ast.walk(module):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function and node.name.startswith("test_"):
            own = {claim for mark in node.decorator_list for claim in _claims(mark)}
            tests[f"{path.relative_to(TESTS)}::{node.name}"] = own | shared
    return tests


def _all_tests() -> Claims:
    tests: Claims = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        tests.update(_read_tests(path))
    return tests


def test_ids_are_unique() -> None:
    assert len(ALL) == len(REQUIREMENTS)


def test_every_rule_has_a_test() -> None:
    claimed = {claim for claims in _all_tests().values() for claim in claims}
    missing = [rule.id for rule in ALL if rule.deferred is None and rule.id not in claimed]
    assert missing == []


def test_no_rule_is_both_deferred_and_tested() -> None:
    claimed = {claim for claims in _all_tests().values() for claim in claims}
    stale = [rule.id for rule in ALL if rule.deferred is not None and rule.id in claimed]
    assert stale == []


def test_every_claimed_rule_exists() -> None:
    unknown = {
        test: sorted(claims - REQUIREMENTS.keys())
        for test, claims in _all_tests().items()
        if claims - REQUIREMENTS.keys()
    }
    assert unknown == {}


def test_every_conformance_test_claims_a_rule() -> None:
    silent = [
        test
        for test, claims in _all_tests().items()
        if test.startswith("conformance/") and not claims
    ]
    assert silent == []
