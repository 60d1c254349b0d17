"""Loads settings from a file of the test, isolated from the machine's settings."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pyjson5
import pytest

from openclaw_a2a.model.errors import Problem, SettingsInvalid
from openclaw_a2a.settings import LoadedSettings, load_settings

Load = Callable[..., LoadedSettings]
Problems = Callable[..., dict[str, Problem]]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and working directory with nothing in them."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / ".config"))
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def load(home: Path) -> Load:
    """Load settings from values, a text of the file, or nothing at all."""

    def read(
        values: object = None,
        *,
        text: str | None = None,
        overrides: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> LoadedSettings:
        path = None
        if values is not None or text is not None:
            path = home / "given.json5"
            path.write_text(pyjson5.encode(values) if text is None else text, encoding="utf-8")
        return load_settings(path, overrides=overrides or {}, environ=environ or {})

    return read


@pytest.fixture
def problems(load: Load) -> Problems:
    """The problems of settings that must not load, by path."""

    def read(values: object = None, **more: object) -> dict[str, Problem]:
        with pytest.raises(SettingsInvalid) as caught:
            load(values, **more)
        return {problem.path: problem for problem in caught.value.problems}

    return read
