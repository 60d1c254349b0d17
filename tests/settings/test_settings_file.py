"""Targets are added to and removed from a settings file that a person wrote."""

from pathlib import Path

import pyjson5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.settings.settings_file import (
    find_member,
    list_members,
    plan_target_addition,
    plan_target_removal,
    root_span,
)

OPS = {"alias": "ops", "baseUrl": "https://ops.example"}

WRITTEN = """\
// mine
{
  server: { port: 9900 }, // the port
  outbound: {
    enabled: true, /* on */
    targets: [
      // docs first
      { alias: "docs", baseUrl: "http://127.0.0.1:1", tags: ["a, b"] }  // no comma here
    ], // all of them
  },
}
"""


def file_with(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "openclaw-a2a.json5"
    path.write_bytes(text.encode())
    return path


def added(tmp_path: Path, text: str) -> str:
    path = file_with(tmp_path, text)
    plan = plan_target_addition(path, OPS)
    assert plan.is_possible
    plan.write()
    return path.read_bytes().decode()


def test_a_target_joins_the_list_and_every_comment_stays_where_it_was(tmp_path: Path) -> None:
    after = added(tmp_path, WRITTEN)
    entry = '      { alias: "ops", baseUrl: "https://ops.example" },\n'
    assert after == WRITTEN.replace("] }  //", "] },  //").replace("    ], //", f"{entry}    ], //")


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "{\n}\n",
        "{ server: { port: 1 } }",
        "{ // first\n  server: { port: 1 }, // last\n}",
        "{ outbound: {} }",
        "{ outbound: { enabled: true } }",
        "{ outbound: { targets: [] } }",
        "{ outbound: { targets: [\n] } }",
        '{ "outbound": { "targets": [ {"alias": "a", "baseUrl": "http://a"}, ] } }',
        "{ 'outbound': { targets: [ { alias: 'it\\'s', baseUrl: 'http://a//b' } ] } }",
        "{\r\n  outbound: {\r\n    targets: [\r\n    ],\r\n  },\r\n}\r\n",
        "{ data: '/* no comment', outbound: { targets: [ ] /* } */ } }",
    ],
)
def test_all_other_content_of_the_file_stays(tmp_path: Path, text: str) -> None:
    after = added(tmp_path, text)
    before = pyjson5.decode(text)
    known = before.get("outbound", {}).get("targets", [])
    outbound = {**before.get("outbound", {}), "targets": [*known, OPS]}
    assert pyjson5.decode(after) == {**before, "outbound": outbound}
    assert after.count("\r") == text.count("\r")


def test_an_object_on_one_line_is_opened_at_its_depth(tmp_path: Path) -> None:
    text = "{\n  // mine\n  outbound: { enabled: true },\n}\n"
    assert added(tmp_path, text).splitlines() == [
        "{",
        "  // mine",
        "  outbound: { enabled: true,",
        "    targets: [",
        '      { alias: "ops", baseUrl: "https://ops.example" },',
        "    ],",
        "  },",
        "}",
    ]


def test_a_missing_file_is_created(tmp_path: Path) -> None:
    path = tmp_path / "new" / "openclaw-a2a.json5"
    plan_target_addition(path, OPS).write()
    assert pyjson5.decode(path.read_text()) == {"outbound": {"targets": [OPS]}}
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{ outbound: 1 }",
        "{ outbound: { targets: {} } }",
        "{ a: ",
        "{ out\\u0062ound: { enabled: true } }",
    ],
)
def test_what_cannot_be_changed_safely_is_left_alone(tmp_path: Path, text: str) -> None:
    plan = plan_target_addition(file_with(tmp_path, text), OPS)
    assert not plan.is_possible
    assert 'baseUrl: "https://ops.example"' in plan.text


def test_removing_a_target_removes_only_its_line(tmp_path: Path) -> None:
    path = file_with(tmp_path, added(tmp_path, WRITTEN))
    plan = plan_target_removal(path, "ops")
    assert plan is not None
    assert plan.is_possible
    assert plan.whole == WRITTEN.replace("] }  //", "] },  //")
    docs = plan_target_removal(path, "docs")
    assert docs is not None
    assert docs.is_possible
    assert "// docs first" in docs.whole
    assert "// no comma here" in docs.whole


def test_a_target_that_is_not_in_the_file_cannot_go(tmp_path: Path) -> None:
    assert plan_target_removal(file_with(tmp_path, WRITTEN), "nobody") is None
    assert plan_target_removal(file_with(tmp_path, "no json5"), "nobody") is None
    assert plan_target_removal(tmp_path / "nowhere.json5", "nobody") is None


@given(st.text(alphabet="{}[]:,\"'/*\n\\ ab1", max_size=60))
def test_no_text_confuses_the_places(text: str) -> None:
    try:
        root = root_span(text)
        found = list_members(text, root)
        find_member(text, root, "a")
    except (ValueError, IndexError):
        return
    assert all(root.start < one.start < one.end < root.end for one in found)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=5), json_values, max_size=5))
def test_members_are_found_where_they_stand(value: dict[str, object]) -> None:
    text = pyjson5.encode(value)
    found = list_members(text, root_span(text))
    assert {one.key: pyjson5.decode(text[one.start : one.end]) for one in found} == value
