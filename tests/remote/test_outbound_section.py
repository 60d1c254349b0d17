"""The outbound section of the settings: errors and warnings."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.app import build_app
from openclaw_a2a.model.errors import SettingsInvalid
from openclaw_a2a.remote.config import read_outbound
from openclaw_a2a.settings import load_settings

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["enabled", "targets", "alias", "baseUrl", "policy", "auth", "x"]),
            inner,
        )
    ),
)


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"targets": 1}, "targets must be a list"),
        ({"targets": [{"alias": "a"}]}, "targets[0].baseUrl"),
        ({"targets": [{"alias": "a", "baseUrl": "b"}] * 2}, 'duplicate alias "a"'),
    ],
)
def test_invalid_targets_keep_the_gateway_from_starting(tmp_path: Path, section, says) -> None:
    settings = load_settings(
        overrides={"outbound": section, "data": str(tmp_path)}, environ={"HOME": str(tmp_path)}
    ).settings
    with pytest.raises(SettingsInvalid) as caught:
        build_app(settings)
    (problem,) = caught.value.problems
    assert problem.path == "outbound"
    assert says in problem.message
    for text in (problem.message, caught.value.message):
        assert "Invalid openclaw-a2a-outbound config:" in text


@pytest.mark.requirement("remote.schema.one-copy")
def test_ignored_settings_are_reported_without_their_values() -> None:
    target = {"alias": "a", "baseUrl": "http://x", "auth": {"type": "bearer", "token": "sesame"}}
    section = {
        "enabled": True,
        "targts": [],
        "defaults": {"timeoutMs": "sesame"},
        "targets": [{**target, "color": "red"}],
        "policy": {"continuationTargets": "sesame"},
    }
    read = read_outbound(section)
    assert read.config.enabled
    assert sorted(one.path for one in read.warnings) == [
        "outbound.defaults.timeoutMs",
        "outbound.policy.continuationTargets",
        "outbound.targets[0].color",
        "outbound.targts",
    ]
    assert not any("sesame" in one.message for one in read.warnings)


def test_a_valid_section_has_no_warnings() -> None:
    read = read_outbound({"enabled": True, "targets": [{"alias": "a", "baseUrl": "http://x"}]})
    assert (read.config.aliases, read.warnings) == (("a",), ())
    assert read_outbound({}).config.enabled is False


@given(st.dictionaries(st.sampled_from(["enabled", "targets", "policy", "defaults"]), ANYTHING))
def test_any_section_is_read_or_is_invalid_settings(section) -> None:
    try:
        read_outbound(section)
    except SettingsInvalid as error:
        assert error.problems
