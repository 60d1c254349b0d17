"""The house rules that linters do not know: sizes, names, docstrings, the environment, escapes."""

import ast
import io
import re
import statistics
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "openclaw_a2a"
MODULES = sorted(SOURCE.rglob("*.py"))

LONGEST_MODULE, LONG_MODULE = 500, 350
LONGEST_FUNCTION, LONG_FUNCTION, USUAL_FUNCTION = 60, 25, 8
MOST_PARAMETERS = 6

BANNED = {
    *("manager", "helper", "util", "handler", "base", "impl"),
    *("common", "misc", "data", "info", "v2"),
}
# The words of the protocol and of its people; everything else has a better name.
SPOKEN_FOR = {"base_url", "data_folder", "of_data", "ErrorInfo"}

READS_ENVIRONMENT = {"agents/process.py"}  # hands its own environment on to programs

# Comments that switch a check off. The number may only fall; write the new one down here.
ESCAPES = 11

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def functions() -> Iterator[tuple[str, FunctionNode]]:
    for path in MODULES:
        for node in ast.walk(parse(path)):
            if isinstance(node, FunctionNode):
                yield f"{name_of(path)}::{node.name}", node


def length(node: FunctionNode) -> int:
    """Lines of a function without its docstring."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node) is None:
        return lines
    docstring = node.body[0]
    return lines - ((docstring.end_lineno or docstring.lineno) - docstring.lineno + 1)


def ninth_tenth(values: list[int]) -> int:
    return sorted(values)[int(0.9 * (len(values) - 1))]


def words(name: str) -> set[str]:
    """The words of a name in either spelling, plurals as singulars."""
    for known in SPOKEN_FOR:
        name = name.replace(known, "")
    found = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)
    return {word.lower() for word in found} | {word.lower().removesuffix("s") for word in found}


def comments(path: Path) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def test_modules_stay_short() -> None:
    sizes = {name_of(path): len(path.read_text("utf-8").splitlines()) for path in MODULES}
    assert {name: size for name, size in sizes.items() if size > LONGEST_MODULE} == {}
    assert ninth_tenth(list(sizes.values())) <= LONG_MODULE


def test_functions_stay_short() -> None:
    sizes = {name: length(node) for name, node in functions()}
    assert {name: size for name, size in sizes.items() if size > LONGEST_FUNCTION} == {}
    assert ninth_tenth(list(sizes.values())) <= LONG_FUNCTION
    assert statistics.median(sizes.values()) <= USUAL_FUNCTION


def test_functions_take_few_parameters() -> None:
    counts: dict[str, int] = {}
    for name, node in functions():
        given = [one.arg for one in node.args.posonlyargs + node.args.args + node.args.kwonlyargs]
        counts[name] = len([one for one in given if one not in ("self", "cls")])
    assert {name: count for name, count in counts.items() if count > MOST_PARAMETERS} == {}


def test_names_say_what_a_thing_does() -> None:
    named = [path.stem for path in MODULES]
    for path in MODULES:
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                named.append(node.name)
    assert sorted({name for name in named if words(name) & BANNED}) == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [name_of(path) for path in MODULES if not ast.get_docstring(parse(path))]
    assert silent == []


def test_first_line_of_a_module_is_one_sentence() -> None:
    first_lines = {
        name_of(path): (ast.get_docstring(parse(path)) or ".").splitlines()[0] for path in MODULES
    }
    unfinished = {name: line for name, line in first_lines.items() if line[-1] not in ".:?"}
    assert unfinished == {}


def test_only_settings_reads_the_environment() -> None:
    readers = {
        name_of(path)
        for path in MODULES
        if not name_of(path).startswith("settings/")
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "environb")
    }
    assert readers == READS_ENVIRONMENT


def test_escapes_from_checks_have_a_reason_and_do_not_grow() -> None:
    escape = re.compile(r"#\s*(noqa|type: ignore|pyright: ignore|pragma: no cover)(.*)")
    found = {
        f"{name_of(path)}:{line}": match
        for path in MODULES
        for line, comment in comments(path)
        if (match := escape.match(comment))
    }
    bare = [place for place, match in found.items() if not re.search(r"\w+ \w+$", match.group(2))]
    assert bare == []
    assert len(found) == ESCAPES, "\n".join(sorted(found))


def test_nothing_is_left_for_later() -> None:
    later = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
    assert [name_of(path) for path in MODULES if later.search(path.read_text("utf-8"))] == []
